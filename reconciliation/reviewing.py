"""The last look before a decision: every refusal that it would meet now, and nothing written.

Recording asks the same again under the lock, so what this says may be overtaken, and is then refused there.
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciliation.decisions import (
    Asked,
    Forbidden,
    GivenReceipt,
    check_words,
    locked_refusal,
    match_given,
    needs_second_person,
    receipt_on_record,
    refuse_stale,
    require_console_may_send,
)
from reconciliation.gathering import Judged
from reconciliation.models import Case
from reconciliation.permissions import ActionStatus
from reconciliation.states import Action, Permission
from runs.actors import Actor, ActorKind
from runs.models import Operation
from runs.money import Money
from runs.states import Executor


@dataclass(frozen=True, kw_only=True)
class Reviewed:
    """A decision that would be recorded if it were now. `reference` and `amount` are the receipt's."""

    status: ActionStatus
    reference: str = ""
    evidence_id: str = ""
    amount: Money | None = None


def review(*, case: Case, operation: Operation, judged: Judged, actor: Actor, asked: Asked) -> Reviewed:
    """Refuse as `decisions.decide` would, in its order; see there. `judged` is of this case, now."""
    if actor.kind is not ActorKind.PERSON:
        raise Forbidden("Only a person decides a case.", actor=str(actor.kind))
    check_words(asked)
    return consider(case=case, operation=operation, judged=judged, asked=asked)


def consider(*, case: Case, operation: Operation, judged: Judged, asked: Asked) -> Reviewed:
    """As `review`, whoever it is and whatever the words: only what the case itself would refuse now."""
    refuse_stale(case, judged, asked)
    status = judged.assessment.action(asked.action)
    if status is None or status.permission is Permission.LOCKED:
        raise locked_refusal(asked.action, status)
    if asked.action == Action.CONFIRM:
        return _review_receipt(operation, judged, status, asked.receipt or GivenReceipt())
    if status.permission is Permission.SECOND_PERSON:
        raise needs_second_person(status)
    if asked.action == Action.RETRY and asked.executor == Executor.CONSOLE:
        require_console_may_send(operation, judged)
    return Reviewed(status=status)


def _review_receipt(
    operation: Operation, judged: Judged, status: ActionStatus, given: GivenReceipt
) -> Reviewed:
    if not given.body:
        receipt = receipt_on_record(operation, judged, status, given)
        return Reviewed(status=status, reference=receipt.reference, evidence_id=receipt.evidence_id)
    if status.permission is Permission.SECOND_PERSON and not status.receipt_unlocks:
        raise needs_second_person(status)
    match = match_given(operation, judged, given)
    if not match.matches:
        raise needs_second_person(status, "The receipt given doesn't match: " + " ".join(match.problems))
    return Reviewed(status=status, reference=match.receipt.reference, amount=match.receipt.amount)
