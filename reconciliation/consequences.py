"""What each action would do, before anybody does it: a pure function of facts, as the policy is.

It says no more than the code that carries the action out does: where the run goes on, what happens to the
budget, what is sent, what becomes of the key, and what can't be undone. Pages word it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from reconciliation.conclusions import matching_references
from reconciliation.contracts import Contract, LateSend
from reconciliation.facts import Facts
from reconciliation.making_absent_rules import may_prove
from reconciliation.providers.base import FindingKind
from reconciliation.questions import silent_at
from reconciliation.states import Action, CaseKind, Then
from runs.money import Money
from runs.states import RUN_ENDED, Executor, OperationState, Reservation


class RunThen(StrEnum):
    """What becomes of the run."""

    # A worker may claim it again and goes on with what follows.
    GOES_ON = "goes_on"
    # Another open question, or another reason, keeps it paused.
    STAYS_PAUSED = "stays_paused"
    # It ends now.
    ENDS = "ends"
    # It has ended already and stays so.
    ENDED = "ended"
    # A worker may claim it for the repeat, once the grant is there.
    FOR_THE_REPEAT = "for_the_repeat"
    # It waits until the repeat's outcome is known.
    WAITS = "waits"


class BudgetMove(StrEnum):
    """What becomes of the operation's amount in the run's budget."""

    # No amount, or nothing reserved: nothing moves.
    NONE = "none"
    # Spent, with what the receipt says.
    SPENT = "spent"
    # Neither spent nor free until evidence, or somebody who may, says.
    HELD = "held"
    # Free again.
    RELEASED = "released"
    # Stays reserved.
    STAYS = "stays"
    # Spent on top of what was spent before.
    ADDED = "added"


class Sends(StrEnum):
    """What is sent because of the action."""

    NOTHING = "nothing"
    # A fresh lookup first; one request if that finds nothing.
    AFTER_LOOKUP = "after_lookup"
    # One request; nothing can be asked first.
    WITHOUT_LOOKUP = "without_lookup"
    # One request that undoes the effect, if there is one.
    UNDOING = "undoing"


@dataclass(frozen=True, kw_only=True)
class Books:
    """The run's budget and the operation's part of it, in minor units of one currency; "" for no budget."""

    currency: str
    limit_minor: int | None
    reserved_minor: int
    spent_minor: int
    held_minor: int
    amount: Money | None
    reservation: Reservation
    operation_reserved_minor: int = 0
    operation_settled_minor: int = 0


@dataclass(frozen=True, kw_only=True)
class Consequences:
    """What one action would do. `state` is the operation's after it; `request_number` that of the repeat.

    `not_before_at` and `not_after_at` bound a repeat as far as they are known now. `books` is the budget
    afterwards. `may_surprise`: an earlier request can still land, or its effect show, after this.
    `asks_on`: the case stays open over the other effects that are on record.
    """

    action: Action
    state: OperationState
    run: RunThen
    budget: BudgetMove
    budget_minor: int
    freed_minor: int
    books: Books
    sends: Sends
    request_number: int
    key_retired: bool
    final: bool
    may_surprise: bool
    asks_on: bool = False
    not_before_at: datetime | None = None
    not_after_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What decides whether the run goes on afterwards."""

    other_doubts: int
    other_reasons: tuple[str, ...]


def consequences_of(
    action: Action,
    *,
    facts: Facts,
    contract: Contract,
    now: datetime,
    books: Books,
    run: RunFacts,
    executor: str = "",
    then: str = "",
    receipt_minor: int | None = None,
    extra_minor: int = 0,
) -> Consequences:
    """Say what an action would do.

    `receipt_minor` is the receipt's amount where it states one, `extra_minor` what the extra effects of a
    settled operation cost.
    """
    match action:
        case Action.CONFIRM:
            return _confirm(facts, books, run, receipt_minor)
        case Action.RETRY:
            return _retry(facts, contract, now, books, run, executor)
        case Action.ABANDON:
            return _abandon(facts, books, run, then)
        case Action.ACCEPT | Action.COMPENSATE:
            return _after_the_fact(action, facts, books, extra_minor)
        case Action.MAKE_ABSENT:
            return _make_absent(facts, contract, now, books, run, then)


def _confirm(facts: Facts, books: Books, run: RunFacts, receipt_minor: int | None) -> Consequences:
    spent, freed, after = 0, 0, books
    if books.reservation == Reservation.RESERVED and books.amount is not None:
        spent = books.amount.minor if receipt_minor is None else receipt_minor
        freed = max(0, books.operation_reserved_minor - spent)
        after = _moved(books, reserved=-books.operation_reserved_minor, spent=spent)
    return Consequences(
        action=Action.CONFIRM,
        state=OperationState.CONFIRMED,
        run=_run_after_settling(facts, run),
        budget=BudgetMove.SPENT if after is not books else BudgetMove.NONE,
        budget_minor=spent,
        freed_minor=freed,
        books=after,
        sends=Sends.NOTHING,
        request_number=0,
        key_retired=True,
        final=True,
        may_surprise=False,
        asks_on=_shows_others(facts),
    )


def _shows_others(facts: Facts) -> bool:
    """Whether more effects of ours are on record than the one that it would be confirmed with."""
    several = facts.lookup is not None and facts.lookup.finding == FindingKind.SEVERAL
    return facts.case_kind == CaseKind.CONFLICT and (several or len(matching_references(facts)) > 1)


def _retry(
    facts: Facts, contract: Contract, now: datetime, books: Books, run: RunFacts, executor: str
) -> Consequences:
    silent = silent_at(facts)
    starts_by = contract.repeat_starts_by(facts.first_sent_at) if facts.first_sent_at else None
    by_agent = executor != Executor.CONSOLE
    blocked = bool(run.other_reasons) or facts.run_state in RUN_ENDED
    return Consequences(
        action=Action.RETRY,
        state=OperationState.SENT_UNKNOWN,
        run=RunThen.FOR_THE_REPEAT if by_agent and not blocked else RunThen.WAITS,
        budget=BudgetMove.STAYS if books.reservation == Reservation.RESERVED else BudgetMove.NONE,
        budget_minor=books.operation_reserved_minor,
        freed_minor=0,
        books=books,
        sends=Sends.AFTER_LOOKUP if contract.has_lookup else Sends.WITHOUT_LOOKUP,
        request_number=len(facts.attempts) + 1,
        key_retired=False,
        # The grant can be withdrawn until it is used; what was sent can't be.
        final=False,
        may_surprise=False,
        not_before_at=silent if silent is not None and silent > now else None,
        not_after_at=starts_by,
    )


def _abandon(facts: Facts, books: Books, run: RunFacts, then: str) -> Consequences:
    unknown = facts.operation_state == OperationState.SENT_UNKNOWN
    reserved = books.operation_reserved_minor if books.reservation == Reservation.RESERVED else 0
    after = books
    if reserved:
        after = _moved(books, reserved=-reserved, held=reserved if unknown else 0)
    if then == Then.END:
        run_then = RunThen.ENDED if facts.run_state in RUN_ENDED else RunThen.ENDS
    else:
        run_then = _run_after_settling(facts, run)
    budget = BudgetMove.HELD if unknown else BudgetMove.RELEASED
    return Consequences(
        action=Action.ABANDON,
        state=OperationState.ABANDONED,
        run=run_then,
        budget=budget if reserved else BudgetMove.NONE,
        budget_minor=reserved,
        freed_minor=0 if unknown else reserved,
        books=after,
        sends=Sends.NOTHING,
        request_number=0,
        key_retired=True,
        final=True,
        may_surprise=unknown,
    )


def _make_absent(
    facts: Facts, contract: Contract, now: datetime, books: Books, run: RunFacts, then: str
) -> Consequences:
    """What follows if the provider says that it is absent; where that proves nothing, people decide again."""
    way = facts.absence_way
    reserved = books.operation_reserved_minor if books.reservation == Reservation.RESERVED else 0
    proves = way is not None and may_prove(facts, contract, way, now)
    if then == Then.END:
        run_then = RunThen.ENDED if facts.run_state in RUN_ENDED else RunThen.ENDS
    else:
        run_then = _run_after_settling(facts, run)
    stays = BudgetMove.STAYS if reserved else BudgetMove.NONE
    return Consequences(
        action=Action.MAKE_ABSENT,
        state=OperationState.ABANDONED if proves else OperationState.SENT_UNKNOWN,
        run=run_then if proves else RunThen.WAITS,
        budget=BudgetMove.RELEASED if proves and reserved else stays,
        budget_minor=reserved,
        freed_minor=reserved if proves else 0,
        books=_moved(books, reserved=-reserved) if proves and reserved else books,
        sends=Sends.UNDOING,
        request_number=0,
        key_retired=proves,
        final=True,
        may_surprise=way is not None and way.late_send is LateSend.MAY_LAND,
    )


def _after_the_fact(action: Action, facts: Facts, books: Books, minor: int) -> Consequences:
    stands = action == Action.ACCEPT
    minor = minor if books.amount is not None else 0
    held = books.operation_settled_minor if books.reservation == Reservation.HELD else 0
    after = books
    if books.amount is not None:
        after = _moved(books, held=-held, spent=minor if stands else 0)
    move = BudgetMove.NONE
    if minor and stands:
        move = BudgetMove.SPENT if held else BudgetMove.ADDED
    elif held:
        move = BudgetMove.RELEASED
    return Consequences(
        action=action,
        state=facts.operation_state,
        run=RunThen.ENDED if facts.run_state in RUN_ENDED else RunThen.WAITS,
        budget=move,
        budget_minor=minor if stands else held,
        freed_minor=0 if stands else held,
        books=after,
        sends=Sends.NOTHING,
        request_number=0,
        key_retired=True,
        final=True,
        may_surprise=False,
    )


def _run_after_settling(facts: Facts, run: RunFacts) -> RunThen:
    if facts.run_state in RUN_ENDED:
        return RunThen.ENDED
    if run.other_doubts or run.other_reasons:
        return RunThen.STAYS_PAUSED
    return RunThen.GOES_ON


def _moved(books: Books, *, reserved: int = 0, spent: int = 0, held: int = 0) -> Books:
    return Books(
        currency=books.currency,
        limit_minor=books.limit_minor,
        reserved_minor=books.reserved_minor + reserved,
        spent_minor=books.spent_minor + spent,
        held_minor=books.held_minor + held,
        amount=books.amount,
        reservation=books.reservation,
        operation_reserved_minor=books.operation_reserved_minor,
        operation_settled_minor=books.operation_settled_minor,
    )
