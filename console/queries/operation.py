"""One operation's whole history: every entry about it, and those of its run that it depended on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db.models import Q, QuerySet

from console.queries.administered import Administered
from console.queries.people import Names
from console.queries.together import Together
from reconciliation.models import Case, Decision
from reconciliation.retrospect import Known, OnRecord, decisions_of, event_in, known_at, rows_of
from runs.ids import could_be_id
from runs.locking import database_now
from runs.models import AuditLeaf, Operation, Receipt
from runs.refusals import NotFound

ENTRIES_MAX: Final = 200


@dataclass(frozen=True, kw_only=True)
class OperationRead:
    """A page of an operation's entries, oldest first; where the next one begins, 0 at the end."""

    now: datetime
    operation: Operation
    cases: tuple[Case, ...]
    decisions: tuple[Decision, ...]
    receipt: Receipt | None
    leaves: tuple[AuditLeaf, ...]
    names: Names
    earlier: bool
    next_leaf: int


def find_operation(operation_id: str, *, teams: Sequence[str]) -> Operation:
    """The operation, if it belongs to one of the teams; raises `NotFound`."""
    operations = Operation.objects.select_related("run__flow", "run__flow_version", "call")
    found = operations.filter(pk=operation_id, team__in=teams).first() if could_be_id(operation_id) else None
    if found is None:
        raise NotFound("There is no such operation that you can see.", operation=operation_id[:64])
    return found


def read_operation(operation_id: str, *, teams: Sequence[str], from_leaf: int = 0) -> OperationRead:
    """Read the entries from a number on (0: from the first). Raises `NotFound`."""
    operation = find_operation(operation_id, teams=teams)
    entries = entries_of(operation)
    leaves = list(entries.filter(pk__gte=from_leaf).order_by("id")[: ENTRIES_MAX + 1])
    shown = tuple(leaves[:ENTRIES_MAX])
    decisions = tuple(decisions_of(operation))
    actors = {leaf.actor for leaf in shown} | {one.actor for one in decisions}
    return OperationRead(
        now=database_now(),
        operation=operation,
        cases=tuple(Case.objects.filter(operation=operation).order_by("number")[:ENTRIES_MAX]),
        decisions=decisions,
        receipt=Receipt.objects.filter(operation=operation).defer("body").first(),
        leaves=shown,
        names=Names(actors),
        earlier=bool(from_leaf) and entries.filter(pk__lt=from_leaf).exists(),
        next_leaf=leaves[ENTRIES_MAX].pk if len(leaves) > ENTRIES_MAX else 0,
    )


# What of a run's own entries tells nothing about one of its operations.
_OF_OTHERS: Final = ("read.saved",)


def entries_of(operation: Operation) -> QuerySet[AuditLeaf]:
    """Everything about the operation, and about its run beside its operations, of its own turn and after."""
    of_run = Q(run_ref=operation.run_id, operation_ref="") & ~Q(action__in=_OF_OTHERS)
    return AuditLeaf.objects.filter(Q(operation_ref=operation.pk) | of_run)


def is_of_turn(leaf: AuditLeaf, operation: Operation) -> bool:
    """Whether an entry of the run is about this operation's turn; other turns say nothing about it."""
    if leaf.action != "turn.saved":
        return True
    after = event_in(bytes(leaf.body)).get("after")
    return isinstance(after, dict) and after.get("turn") == operation.turn_index


def read_known(operation_id: str, *, decision_id: str, teams: Sequence[str]) -> tuple[Known, datetime]:
    """What was known at a decision, and the time; its small reads together. Raises `NotFound`."""
    operation = find_operation(operation_id, teams=teams)
    together = Together()
    parts = {name: together.add(rows) for name, rows in rows_of(operation).items()}
    together.read()
    held = OnRecord(**{name: part.rows for name, part in parts.items()})
    return known_at(decision_id=decision_id, operation=operation, on_record=held), database_now()


def find_entry(number: int, *, teams: Sequence[str], beyond: Administered | None = None) -> AuditLeaf:
    """One entry of the teams' history, or of those of no team that the reader may see; raises `NotFound`."""
    leaf = AuditLeaf.objects.filter(pk=number, team_slug__in=teams).first() if number < 2**63 else None
    if leaf is None and beyond is not None and number < 2**63:
        leaf = beyond.find(number)
    if leaf is None:
        raise NotFound("There is no such entry that you can see.", entry=str(number)[:20])
    return leaf
