"""Take the journal's names over into the table that search by a part of a name reads.

What is new is known from the audit log: everything that gets a name writes a leaf. Run by beat, in bounded
batches; any number of them at once, of which one works. A pass that dies has taken over nothing of its last
batch and is made again. Running it anew over the same entries changes nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db import connection, transaction

from console import following
from console.search_models import PROGRESS_ID, SearchProgress

# Entries of one transaction: a few hundred milliseconds of work.
BATCH_LEAVES: Final = 2_000
# One pass lasts at most about so long; beat calls the next.
PASS_SECONDS: Final = 4.0

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
            following.settle(progress)
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


def _take_over(progress: SearchProgress) -> int:
    rows = following.unread(progress).values_list("pk", "at", "action", "run_ref", "operation_ref")
    leaves: list[tuple[Any, ...]] = list(rows[:BATCH_LEAVES])
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
