"""Take the journal's names over into the table that search by a part of a name reads.

What is new is known from the audit log: everything that gets a name writes a leaf. Run by beat, in bounded
batches; any number of them at once, of which one works. A pass that dies has taken over nothing of its last
batch and is made again. Running it anew over the same entries changes nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import connection, transaction

from console.search_models import PROGRESS_ID, SearchProgress
from runs.models import AuditLeaf

# Entries of one transaction: a few hundred milliseconds of work.
BATCH_LEAVES: Final = 2_000
# One pass lasts at most about so long; beat calls the next.
PASS_SECONDS: Final = 4.0
# An entry's number is given out just before its transaction has one of its own; nobody takes so long between.
SETTLE_SECONDS: Final = 5

# When this transaction began, its number, and the oldest other one of this database that is under way (null:
# none). Not a snapshot's upper end, which is behind numbers already given to transactions that aren't over.
# Other databases of the server are left out: theirs can't write here and may last for days. Whose a number
# is, only its lock says; one that has just ended counts as ours.
_SNAPSHOT: Final = """
SELECT
    now(),
    pg_current_xact_id()::text::bigint,
    (
        SELECT min(under_way::text::bigint) FROM pg_snapshot_xip(pg_current_snapshot()) AS under_way
        WHERE NOT EXISTS (
            SELECT FROM pg_locks AS held JOIN pg_stat_activity AS holder ON holder.pid = held.pid
            WHERE held.locktype = 'transactionid' AND held.mode = 'ExclusiveLock' AND held.granted
                AND held.transactionid = under_way::xid
                AND holder.datid <> (SELECT oid FROM pg_database WHERE datname = current_database())
        )
    )
"""
_RUNS: Final = """
INSERT INTO console_searchterm (kind, term, team_slug, subject)
SELECT 'external_id', lower(external_id), team_id, id FROM runs_run WHERE id = ANY(%s)
ON CONFLICT DO NOTHING
"""
_OPERATIONS: Final = """
INSERT INTO console_searchterm (kind, term, team_slug, subject)
SELECT name.kind, name.term, operation.team_id, operation.id
FROM runs_operation AS operation
CROSS JOIN LATERAL (
    VALUES ('operation', lower(substr(operation.id, 4))), ('key', lower(operation.key))
) AS name (kind, term)
WHERE operation.run_id = ANY(%s)
ON CONFLICT DO NOTHING
"""
# 300 is `TERM_LENGTH`: in some locales a small letter is two, and one long name must not stop the rest.
_RECEIPTS: Final = """
INSERT INTO console_searchterm (kind, term, team_slug, subject)
SELECT 'receipt', left(lower(receipt.reference), 300), operation.team_id, operation.id
FROM runs_receipt AS receipt JOIN runs_operation AS operation ON operation.id = receipt.operation_id
WHERE receipt.operation_id = ANY(%s)
ON CONFLICT DO NOTHING
"""


@dataclass(frozen=True, kw_only=True)
class Indexed:
    """What one pass did. `more` says that entries are left which could have been taken over."""

    leaves: int = 0
    through_at: datetime | None = None
    more: bool = False


def index_terms(*, seconds: float = PASS_SECONDS) -> Indexed:
    """Take over what is new, for at most about so long. Owns its transactions."""
    ends = time.monotonic() + seconds
    done = 0
    while True:
        with transaction.atomic():
            progress = _progress()
            if progress is None:
                return Indexed(leaves=done, more=True)  # another pass is at work
            _settle(progress)
            taken = _take_over(progress)
            progress.save()
        done += taken
        if taken < BATCH_LEAVES or time.monotonic() >= ends:
            more = progress.through_leaf < progress.settled_leaf
            return Indexed(leaves=done, through_at=progress.through_at, more=more)


def _progress() -> SearchProgress | None:
    """The progress, held; None while another holds it."""
    SearchProgress.objects.bulk_create([SearchProgress(id=PROGRESS_ID)], ignore_conflicts=True)
    return SearchProgress.objects.select_for_update(skip_locked=True).filter(pk=PROGRESS_ID).first()


def _settle(progress: SearchProgress) -> None:
    """Move on the entry up to which no other can still appear, and note a later one for the next time.

    Entries are numbered when they are written and seen when their transaction commits, so one may appear
    behind others. What was under way when an entry was noted must be over before anything up to it counts.
    """
    with connection.cursor() as cursor:
        cursor.execute(_SNAPSHOT)
        began_at, own, oldest = cursor.fetchone()
    if oldest is None or progress.noted_xid <= oldest:
        progress.settled_leaf, progress.settled_at = progress.noted_leaf, progress.noted_at
    elif progress.noted_xid <= own:
        return
    # Else it is another server's number: those of transactions begin anew after a restore into a new one.
    progress.noted_at = began_at - timedelta(seconds=SETTLE_SECONDS)
    progress.noted_leaf = _latest_leaf(progress.noted_at, progress.settled_leaf)
    progress.noted_xid = own


def _latest_leaf(before: datetime, at_least: int) -> int:
    rows = AuditLeaf.objects.filter(pk__gt=at_least, at__lte=before).order_by("-id")
    return rows.values_list("pk", flat=True).first() or at_least


def _take_over(progress: SearchProgress) -> int:
    rows = AuditLeaf.objects.filter(pk__gt=progress.through_leaf, pk__lte=progress.settled_leaf).order_by(
        "id"
    )
    leaves: list[tuple[Any, ...]] = list(
        rows.values_list("pk", "at", "action", "run_ref", "operation_ref")[:BATCH_LEAVES]
    )
    if len(leaves) < BATCH_LEAVES:
        # Nothing is left up to there, however long ago the last entry was written.
        progress.through_leaf, progress.through_at = progress.settled_leaf, progress.settled_at
    else:
        progress.through_leaf, progress.through_at = leaves[-1][0], leaves[-1][1]
    names = {
        _RUNS: {run for _, _, action, run, _ in leaves if action == "run.started"},
        _OPERATIONS: {run for _, _, action, run, _ in leaves if action == "turn.saved"},
        _RECEIPTS: {operation for *_, operation in leaves if operation},
    }
    with connection.cursor() as cursor:
        for statement, ids in names.items():
            if ids:
                cursor.execute(statement, [sorted(ids)])
    return len(leaves)
