"""What each action would do, as a pure function: said before it is done, so it must be what is done."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from reconciliation.consequences import (
    Books,
    BudgetMove,
    RunFacts,
    RunThen,
    Sends,
    consequences_of,
)
from reconciliation.facts import AttemptFacts, Facts, Holder
from reconciliation.providers import registry
from reconciliation.states import Action, CaseKind, CaseState
from runs.money import Money
from runs.states import AttemptOutcome, OperationState, Reservation, RunState

NOW = datetime(2026, 11, 29, 18, 0, tzinfo=UTC)
FREE = RunFacts(other_doubts=0, other_reasons=())


def facts(**changes: Any) -> Facts:
    attempt = AttemptFacts(
        number=1,
        outcome=AttemptOutcome.UNKNOWN,
        minted_at=NOW - timedelta(minutes=5),
        quiet_after_at=NOW - timedelta(minutes=4),
        holder=Holder.OUTDATED,
    )
    chosen: dict[str, Any] = {
        "operation_state": OperationState.SENT_UNKNOWN,
        "case_kind": CaseKind.UNKNOWN,
        "case_state": CaseState.NEEDS_DECISION,
        "opened_at": NOW - timedelta(minutes=4),
        "turn_index": 1,
        "call_id": "c1",
        "attempts": (attempt,),
        "first_sent_at": NOW - timedelta(minutes=5),
        "last_quiet_at": NOW - timedelta(minutes=4),
        "pinned": None,
        "current": None,
        "console_can_send": False,
    }
    return Facts(**{**chosen, **changes})


def books(**changes: Any) -> Books:
    chosen: dict[str, Any] = {
        "currency": "EUR",
        "limit_minor": 500_000,
        "reserved_minor": 124_000,
        "spent_minor": 231_040,
        "held_minor": 0,
        "amount": Money("EUR", 124_000),
        "reservation": Reservation.RESERVED,
        "operation_reserved_minor": 124_000,
    }
    return Books(**{**chosen, **changes})


def ask(
    action: Action, *, of: Facts | None = None, money: Books | None = None, run: RunFacts = FREE, **more: Any
) -> Any:
    contract = registry.account("sandbox-payments").contract
    return consequences_of(
        action, facts=of or facts(), contract=contract, now=NOW, books=money or books(), run=run, **more
    )


def test_a_confirmation_books_what_the_receipt_says_and_frees_the_rest() -> None:
    done = ask(Action.CONFIRM, receipt_minor=120_400)
    assert (done.budget, done.budget_minor, done.freed_minor) == (BudgetMove.SPENT, 120_400, 3_600)
    assert (done.books.reserved_minor, done.books.spent_minor) == (0, 351_440)
    assert (done.run, done.sends, done.key_retired, done.final) == (
        RunThen.GOES_ON,
        Sends.NOTHING,
        True,
        True,
    )


def test_a_receipt_without_an_amount_books_what_was_intended() -> None:
    assert ask(Action.CONFIRM).budget_minor == 124_000


def test_a_retry_moves_no_money_and_sends_after_a_lookup() -> None:
    done = ask(Action.RETRY, executor="agent")
    assert done.books == books()
    assert (done.budget, done.sends, done.request_number) == (BudgetMove.STAYS, Sends.AFTER_LOOKUP, 2)
    assert (done.run, done.final, done.key_retired) == (RunThen.FOR_THE_REPEAT, False, False)
    assert ask(Action.RETRY, executor="console").run == RunThen.WAITS


def test_a_retry_where_nothing_can_be_asked_says_so() -> None:
    contract = registry.account("sandbox-courier").contract
    done = consequences_of(
        Action.RETRY, facts=facts(), contract=contract, now=NOW, books=books(), run=FREE, executor="agent"
    )
    assert done.sends == Sends.WITHOUT_LOOKUP


def test_giving_up_the_unknown_holds_the_money_and_may_surprise() -> None:
    done = ask(Action.ABANDON, then="continue")
    assert (done.budget, done.books.held_minor, done.books.reserved_minor) == (BudgetMove.HELD, 124_000, 0)
    assert done.may_surprise
    assert done.run == RunThen.GOES_ON
    assert ask(Action.ABANDON, then="end").run == RunThen.ENDS


def test_giving_up_what_was_never_sent_frees_the_money() -> None:
    done = ask(Action.ABANDON, of=facts(operation_state=OperationState.READY), then="continue")
    assert (done.budget, done.freed_minor, done.may_surprise) == (BudgetMove.RELEASED, 124_000, False)


@pytest.mark.parametrize(
    "run", [RunFacts(other_doubts=1, other_reasons=()), RunFacts(other_doubts=0, other_reasons=("budget",))]
)
def test_another_reason_keeps_the_run_paused(run: RunFacts) -> None:
    assert ask(Action.CONFIRM, run=run).run == RunThen.STAYS_PAUSED
    assert ask(Action.ABANDON, run=run, then="continue").run == RunThen.STAYS_PAUSED


def test_an_ended_run_stays_ended() -> None:
    ended = facts(run_state=RunState.ABANDONED)
    assert ask(Action.CONFIRM, of=ended).run == RunThen.ENDED
    assert ask(Action.ABANDON, of=ended, then="end").run == RunThen.ENDED


def test_an_accepted_extra_effect_spends_what_was_held_and_an_undone_one_frees_it() -> None:
    settled = facts(operation_state=OperationState.ABANDONED, case_kind=CaseKind.CONFLICT)
    money = books(
        reserved_minor=0,
        held_minor=124_000,
        reservation=Reservation.HELD,
        operation_reserved_minor=0,
        operation_settled_minor=124_000,
    )
    accepted = ask(Action.ACCEPT, of=settled, money=money, extra_minor=124_000)
    assert (accepted.budget, accepted.books.held_minor, accepted.books.spent_minor) == (
        BudgetMove.SPENT,
        0,
        355_040,
    )
    undone = ask(Action.COMPENSATE, of=settled, money=money, extra_minor=124_000)
    assert (undone.budget, undone.freed_minor, undone.books.spent_minor) == (
        BudgetMove.RELEASED,
        124_000,
        231_040,
    )


def test_an_effect_without_an_amount_moves_no_money() -> None:
    money = books(amount=None, reservation=Reservation.NONE, operation_reserved_minor=0, reserved_minor=0)
    for action in Action:
        assert ask(action, money=money, then="end", executor="agent").budget == BudgetMove.NONE
