"""The last look before a decision: every refusal that it would meet now, and nothing written.

Recording asks the same again under the lock, so what this says may be overtaken, and is then refused there.
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciliation.asked import (
    Asked,
    GivenReceipt,
    amount_stated,
    check_words,
    locked_refusal,
    match_given,
    needs_second_person,
    receipt_named,
    receipt_on_record,
    require_console_may_send,
    why_two,
)
from reconciliation.decisions import refuse_stale
from reconciliation.gathering import Judged
from reconciliation.models import Case
from reconciliation.permissions import ActionStatus
from reconciliation.persons import Forbidden
from reconciliation.states import Action, Permission
from runs.actors import Actor, ActorKind
from runs.models import Operation
from runs.money import Money
from runs.states import Executor


@dataclass(frozen=True, kw_only=True)
class Reviewed:
    """A decision that would be recorded if it were now. `reference` and `amount` are the receipt's.

    `why_two`: why a second person would be asked instead, in a sentence; "" if one is enough.
    """

    status: ActionStatus
    why_two: str = ""
    reference: str = ""
    evidence_id: str = ""
    amount: Money | None = None


def review(*, case: Case, operation: Operation, judged: Judged, actor: Actor, asked: Asked) -> Reviewed:
    """Refuse as `decisions.decide` would, in its order; see there. `judged` is of this case, now."""
    if actor.kind is not ActorKind.PERSON:
        raise Forbidden("Only a person decides a case.", actor=str(actor.kind))
    check_words(asked)
    return consider(case=case, operation=operation, judged=judged, asked=asked)


def consider(
    *, case: Case, operation: Operation, judged: Judged, asked: Asked, may_ask: bool = True
) -> Reviewed:
    """As `review`, whoever it is and whatever the words: only what the case itself would refuse now.

    `may_ask` False: what takes a second person is refused, as for many cases at once.
    """
    refuse_stale(case, judged, asked)
    status = judged.assessment.action(asked.action)
    if status is None or status.permission is Permission.LOCKED:
        raise locked_refusal(asked.action, status)
    why = why_two(operation, judged, status, asked)
    if why and not may_ask:
        raise needs_second_person(asked.action, why)
    if asked.action == Action.CONFIRM:
        return _review_receipt(operation, judged, status, asked.receipt or GivenReceipt(), why)
    if asked.action == Action.RETRY and asked.executor == Executor.CONSOLE:
        require_console_may_send(operation, judged)
    return Reviewed(status=status, why_two=why)


def _review_receipt(
    operation: Operation, judged: Judged, status: ActionStatus, given: GivenReceipt, why: str
) -> Reviewed:
    if given.body:
        match = match_given(operation, judged, given)
        reference = match.receipt.reference or given.reference
        return Reviewed(status=status, why_two=why, reference=reference, amount=match.receipt.amount)
    if not why:
        receipt = receipt_on_record(operation, judged, given)
        return Reviewed(status=status, reference=receipt.reference, evidence_id=receipt.evidence_id)
    named = receipt_named(operation, judged, status, given)
    if named is None:
        return Reviewed(status=status, why_two=why, reference=given.reference)
    on_record = GivenReceipt(evidence_id=named.evidence_id, reference=named.reference)
    return Reviewed(
        status=status,
        why_two=why,
        reference=named.reference,
        evidence_id=named.evidence_id,
        amount=amount_stated(operation, judged, on_record),
    )
