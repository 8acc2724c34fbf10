"""File the audit log's entries for the effect history: by what they are searched by, and by what sets apart.

Run by beat, in bounded batches; any number of passes at once, of which one works. A pass that dies has filed
nothing of its last batch and is made again. Filing the same entries anew changes nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import connection, transaction

from console import following
from console.history_models import PROGRESS_ID, HistoryEntry, HistoryMark, HistoryProgress, Mark
from reconciliation.gathering import INFORMATIVE
from reconciliation.states import Need
from runs.actors import ActorKind
from runs.models import AuditLeaf
from runs.states import EvidenceKind, LeaseEnd, MatchedBy

# Entries of one transaction: a few hundred milliseconds of work.
BATCH_LEAVES: Final = 2_000
# One pass lasts at most about so long; beat calls the next.
PASS_SECONDS: Final = 4.0
# Nobody reads an intended effect, its evidence and five answers in less.
QUICK_SECONDS: Final = 10

_ENTRIES: Final = """
INSERT INTO console_historyentry (leaf, at, team_slug, action, provider, actor)
SELECT leaf.id, leaf.at, leaf.team_slug, leaf.action, coalesce(operation.provider_id, ''), leaf.actor
FROM runs_auditleaf AS leaf LEFT JOIN runs_operation AS operation ON operation.id = leaf.operation_ref
WHERE leaf.id = ANY(%s) AND leaf.team_slug <> ''
ON CONFLICT DO NOTHING
"""
# Of decisions and repeats: since when the case asked for one, whether a lookup had told anything before, and
# when the key's window had ended.
_BEFORE: Final = """
SELECT leaf.id,
    (SELECT asked.at FROM runs_auditleaf AS asked
     WHERE asked.operation_ref = leaf.operation_ref AND asked.id < leaf.id
        AND asked.action IN ('case.opened', 'case.moved')
     ORDER BY asked.id DESC LIMIT 1),
    EXISTS (SELECT FROM reconciliation_lookup AS lookup
     WHERE lookup.operation_id = leaf.operation_ref AND lookup.asked_at <= leaf.at
        AND lookup.finding = ANY(%(informative)s)),
    (SELECT opened.key_ends_at FROM reconciliation_case AS opened
     WHERE opened.operation_id = leaf.operation_ref AND opened.opened_at <= leaf.at
     ORDER BY opened.number DESC LIMIT 1)
FROM runs_auditleaf AS leaf WHERE leaf.id = ANY(%(leaves)s)
"""
_BY_ACTION: Final[dict[str, Mark]] = {
    "approval.own_attempt_refused": Mark.OWN_APPROVAL,
    "case.claim_taken_over": Mark.TAKEOVER,
    "case.revealed": Mark.REVEALED,
    "write.refused": Mark.FENCED,
    "operation.sent_by_unknown": Mark.CONFLICT,
    "conflict.accepted": Mark.CONFLICT,
    "conflict.compensated": Mark.CONFLICT,
}
_REPEATS: Final = ("case.decided.retry", "operation.sent_again")
_DECIDED: Final = "case.decided."


@dataclass(frozen=True, kw_only=True)
class Filed:
    """What one pass did. `more` says that entries are left which could have been filed."""

    leaves: int = 0
    through_at: datetime | None = None
    more: bool = False


@dataclass(frozen=True)
class _Before:
    """What had been before an entry was written."""

    asked_at: datetime | None
    was_looked_up: bool
    key_ends_at: datetime | None


def file_history(*, seconds: float = PASS_SECONDS) -> Filed:
    """File what is new, for at most about so long. Owns its transactions."""
    ends = time.monotonic() + seconds
    done = 0
    while True:
        with transaction.atomic():
            progress = _progress()
            if progress is None:
                return Filed(leaves=done, more=True)  # another pass is at work
            following.settle(progress)
            taken = _file_next(progress)
            progress.save()
        done += taken
        if taken < BATCH_LEAVES or time.monotonic() >= ends:
            more = progress.through_leaf < progress.settled_leaf
            return Filed(leaves=done, through_at=progress.through_at, more=more)


def _progress() -> HistoryProgress | None:
    """The progress, held; None while another holds it."""
    HistoryProgress.objects.bulk_create([HistoryProgress(id=PROGRESS_ID)], ignore_conflicts=True)
    return HistoryProgress.objects.select_for_update(skip_locked=True).filter(pk=PROGRESS_ID).first()


def _file_next(progress: HistoryProgress) -> int:
    leaves = list(following.unread(progress)[:BATCH_LEAVES])
    if len(leaves) < BATCH_LEAVES:
        # Nothing is left up to there, however long ago the last entry was written.
        progress.through_leaf, progress.through_at = progress.settled_leaf, progress.settled_at
    else:
        progress.through_leaf, progress.through_at = leaves[-1].pk, leaves[-1].at
    if leaves:
        with connection.cursor() as cursor:
            cursor.execute(_ENTRIES, [[leaf.pk for leaf in leaves]])
        marks = list(_marks(leaves))
        HistoryMark.objects.bulk_create(marks, ignore_conflicts=True)
    return len(leaves)


# --- What sets an entry apart ---------------------------------------------------------------------------


def _marks(leaves: Sequence[AuditLeaf]) -> Iterator[HistoryMark]:
    before = _before(leaves)
    marked = {
        leaf: marks for leaf in leaves if leaf.team_slug and (marks := _marks_of(leaf, before.get(leaf.pk)))
    }
    filed = HistoryEntry.objects.filter(pk__in=[leaf.pk for leaf in marked])
    providers = dict(filed.values_list("leaf", "provider")) if marked else {}
    for leaf, marks in marked.items():
        for mark in sorted(marks):
            yield HistoryMark(
                leaf=leaf.pk,
                mark=mark,
                at=leaf.at,
                team_slug=leaf.team_slug,
                provider=providers.get(leaf.pk, ""),
            )


def _marks_of(leaf: AuditLeaf, before: _Before | None) -> set[Mark]:
    found: set[Mark] = set()
    by_person = leaf.actor_kind == ActorKind.PERSON
    if by_person:
        found.add(Mark.PEOPLE)
    if leaf.action in _BY_ACTION:
        found.add(_BY_ACTION[leaf.action])
    if by_person and before is not None and leaf.action.startswith(_DECIDED):
        if before.asked_at is not None and leaf.at - before.asked_at < timedelta(seconds=QUICK_SECONDS):
            found.add(Mark.QUICK)
        if not before.was_looked_up:
            found.add(Mark.NO_LOOKUP)
    ends_at = before.key_ends_at if before is not None and leaf.action in _REPEATS else None
    if ends_at is not None and leaf.at > ends_at:
        found.add(Mark.LATE_RETRY)
    return found | _marks_of_words(leaf)


def _marks_of_words(leaf: AuditLeaf) -> set[Mark]:
    """What only the entry's own words tell."""
    match leaf.action:
        case "case.moved" if _after(leaf).get("need") == Need.CONFLICT:
            return {Mark.CONFLICT}
        case "lease.ended" if _after(leaf).get("ended_by") == LeaseEnd.REVOKED:
            return {Mark.TAKEOVER}
        case "operation.confirmed" if _after(leaf).get("matched_by") == MatchedBy.PERSON:
            return {Mark.OVERRIDE}
        case "evidence.recorded" if _after(leaf).get("kind") in _LATE:
            return {Mark.LATE_EVIDENCE}
        case _:
            return set()


_LATE: Final = (EvidenceKind.LATE_REPORT, EvidenceKind.STRAY_REPORT)


def _after(leaf: AuditLeaf) -> dict[str, Any]:
    """The entry's "after"; {} where it can't be read, so that one bad entry doesn't stop all others."""
    try:
        body: Any = json.loads(bytes(leaf.body))
    except (ValueError, RecursionError):
        return {}
    event = body.get("event") if isinstance(body, dict) else None
    after = event.get("after") if isinstance(event, dict) else None
    return after if isinstance(after, dict) else {}


def _before(leaves: Sequence[AuditLeaf]) -> dict[int, _Before]:
    asked = [
        leaf.pk
        for leaf in leaves
        if leaf.operation_ref and (leaf.action in _REPEATS or leaf.action.startswith(_DECIDED))
    ]
    if not asked:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(_BEFORE, {"leaves": asked, "informative": list(INFORMATIVE)})
        return {pk: _Before(*rest) for pk, *rest in cursor.fetchall()}
