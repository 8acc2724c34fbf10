"""What an action would do to a case as it stands, from its rows: the pure rules are in `consequences`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from reconciliation.consequences import Books, Consequences, RunFacts, consequences_of
from reconciliation.gathering import Judged
from reconciliation.states import Action
from runs.models import Operation, Run
from runs.money import Money
from runs.refusals import Refusal
from runs.states import PauseReason, Reservation


@dataclass(frozen=True, kw_only=True)
class Choices:
    """How an action is to be carried out, as far as it has been chosen.

    `receipt_amount` is what the receipt states that it would be confirmed with, None where it states nothing.
    """

    executor: str = ""
    then: str = ""
    receipt_amount: Money | None = None


def foresee(
    action: Action,
    *,
    run: Run,
    operation: Operation,
    judged: Judged,
    now: datetime,
    choices: Choices,
    extra_minor: int = 0,
) -> Consequences:
    """What the action would do; `extra_minor` is what effects beyond the settled one cost."""
    doubts = run.in_doubt_count - (1 if operation.in_doubt_since_at is not None else 0)
    return consequences_of(
        action,
        facts=judged.facts,
        contract=judged.contract,
        now=now,
        books=Books(
            currency=operation.amount_currency,
            limit_minor=run.budget_limit_minor,
            reserved_minor=run.budget_reserved_minor,
            spent_minor=run.budget_spent_minor,
            held_minor=run.budget_held_minor,
            amount=_amount(operation),
            reservation=Reservation(operation.reservation),
            operation_reserved_minor=operation.reserved_minor,
            operation_settled_minor=operation.settled_minor,
        ),
        run=RunFacts(
            other_doubts=max(0, doubts),
            other_reasons=tuple(one for one in run.paused_reasons if one != PauseReason.OUTCOME),
        ),
        executor=choices.executor,
        then=choices.then,
        receipt_minor=_booked_minor(operation, choices.receipt_amount),
        extra_minor=extra_minor,
    )


def _amount(operation: Operation) -> Money | None:
    currency, minor = operation.amount_currency, operation.amount_minor
    try:
        return Money(currency, minor) if currency and minor is not None else None
    except Refusal:
        # A code that is no amount's any more: nothing can be said of it in numbers.
        return None


def _booked_minor(operation: Operation, stated: Money | None) -> int | None:
    """A receipt's amount where the budget can hold it: in another currency the operation's own is booked."""
    return stated.minor if stated is not None and stated.currency == operation.amount_currency else None
