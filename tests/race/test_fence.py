"""The fence (DESIGN law 7): a wait for the run's lock never lets an ended lease through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import models

from runs import leases
from runs.journal.ending import abandon_run, complete_run
from runs.journal.grants import end_grant
from runs.journal.sending import AttemptEnded, Go, NotSendable, begin_repeat_by_console, begin_send
from runs.journal.settling import abandon
from runs.journal.turns import TurnAlreadyDecided, save_result, save_turn
from runs.leases import RunEnded, RunPaused, StaleToken
from runs.models import (
    Attempt,
    AuditLeaf,
    Call,
    Grant,
    Lease,
    Operation,
    Receipt,
    Run,
    Turn,
)
from runs.states import Executor, GrantState
from tests.concurrency import Connect, Outcome, at_once, holding_run, start
from tests.factories import (
    PERSON,
    TEAM,
    Claimed,
    claim,
    doubt,
    effect,
    end_lease_in,
    fresh,
    grant,
    held,
    make_account,
    make_claimed,
    quieten,
    read,
    reply,
    send,
)

pytestmark = pytest.mark.django_db(transaction=True)

# Long enough for a thread to reach the lock on a busy machine; the wait itself is seen, not slept.
LEASE_LEFT_SECONDS = 1.0


def journal_rows() -> dict[str, list[Any]]:
    """Every row that a worker's write could touch, except the lease's end that the test itself moved."""
    tables: list[type[models.Model]] = [Run, Lease, Turn, Call, Operation, Attempt, Receipt, AuditLeaf]
    return {table.__name__: list(table._default_manager.order_by("pk").values()) for table in tables}


def ready() -> Claimed:
    return make_claimed(effect("c1", minor=500), budget_minor=10_000)


def sent() -> Claimed:
    claimed = ready()
    send(claimed)
    return claimed


def without_calls() -> Claimed:
    make_account()
    claimed = make_claimed(read("r1"))
    save_result(team=TEAM, run_id=claimed.run.pk, token=claimed.token, index=1, call_id="r1", result=1)
    return claimed


def with_read() -> Claimed:
    return make_claimed(read("r1"))


def do_save_turn(claimed: Claimed) -> object:
    return save_turn(
        team=TEAM,
        run_id=claimed.run.pk,
        token=claimed.token,
        index=2,
        decision={"next": 2},
        parallel=False,
        calls=(effect("c9"),),
    )


def do_save_result(claimed: Claimed) -> object:
    return save_result(
        team=TEAM, run_id=claimed.run.pk, token=claimed.token, index=1, call_id="r1", result={"stock": 4}
    )


def do_renew(claimed: Claimed) -> object:
    return leases.renew(team=TEAM, run_id=claimed.run.pk, token=claimed.token)


def do_release(claimed: Claimed) -> object:
    return leases.release(team=TEAM, run_id=claimed.run.pk, token=claimed.token)


def do_complete(claimed: Claimed) -> object:
    return complete_run(team=TEAM, run_id=claimed.run.pk, token=claimed.token, output={})


@pytest.mark.parametrize(
    ("prepare", "write"),
    [
        (ready, send),
        (without_calls, do_save_turn),
        (with_read, do_save_result),
        (without_calls, do_complete),
        (ready, do_renew),
        (ready, do_release),
    ],
)
def test_a_lock_wait_that_outlasts_the_lease_is_refused_and_writes_nothing(
    connect: Connect, prepare: Callable[[], Claimed], write: Callable[[Claimed], object]
) -> None:
    claimed = prepare()
    end_lease_in(claimed.run, LEASE_LEFT_SECONDS)
    before = journal_rows()
    with holding_run(connect, claimed.run.pk) as other:
        writing = start(lambda: write(claimed))
        other.wait_for_waiters(1)
        other.wait_past("SELECT lease_expires_at FROM runs_run WHERE id = %s", [claimed.run.pk])
        other.release()
    assert isinstance(writing.result().refusal, StaleToken)
    assert journal_rows() == before


def test_a_lock_wait_that_outlasts_the_lease_confirms_nothing_by_reply(connect: Connect) -> None:
    claimed = sent()
    end_lease_in(claimed.run, LEASE_LEFT_SECONDS)
    before = journal_rows()
    with holding_run(connect, claimed.run.pk) as other:
        replying = start(lambda: [reply(claimed)])
        other.wait_for_waiters(1)
        other.wait_past("SELECT lease_expires_at FROM runs_run WHERE id = %s", [claimed.run.pk])
        other.release()
    assert replying.result().answer == [None]
    assert journal_rows() == before


def test_a_lock_wait_that_ends_before_the_lease_does_goes_through(connect: Connect) -> None:
    claimed = ready()
    with holding_run(connect, claimed.run.pk) as other:
        sending = start(lambda: send(claimed))
        other.wait_for_waiters(1)
        other.release()
    assert sending.result().answer.number == 1


def test_a_lease_that_is_taken_over_while_a_sender_waits_leaves_it_stale(connect: Connect) -> None:
    claimed = ready()
    with holding_run(connect, claimed.run.pk) as other:
        sending = start(lambda: send(claimed))
        other.wait_for_waiters(1)
        other.execute(
            "UPDATE runs_run SET lease_number = 2, lease_token = '2-successor' WHERE id = %s",
            [claimed.run.pk],
        )
        other.release()
    assert isinstance(sending.result().refusal, StaleToken)
    assert not Attempt.objects.exists()


def test_a_run_that_is_paused_while_a_sender_waits_is_not_sent(connect: Connect) -> None:
    claimed = ready()
    with holding_run(connect, claimed.run.pk) as other:
        sending = start(lambda: send(claimed))
        other.wait_for_waiters(1)
        other.execute(
            "UPDATE runs_run SET state = 'paused', paused_at = now(), paused_reasons = '{frozen}',"
            " lease_token = NULL, lease_expires_at = NULL WHERE id = %s",
            [claimed.run.pk],
        )
        other.release()
    refusal = sending.result().refusal
    assert isinstance(refusal, RunPaused)
    assert refusal.details["reasons"] == ["frozen"]
    assert not Attempt.objects.exists()


def test_a_budget_that_is_used_up_while_a_sender_waits_is_not_exceeded(connect: Connect) -> None:
    claimed = ready()
    with holding_run(connect, claimed.run.pk) as other:
        sending = start(lambda: send(claimed))
        other.wait_for_waiters(1)
        other.execute("UPDATE runs_run SET budget_spent_minor = 9501 WHERE id = %s", [claimed.run.pk])
        other.release()
    refusal = sending.result().refusal
    assert isinstance(refusal, RunPaused)
    assert refusal.details["reasons"] == ["budget"]
    assert (fresh(claimed.run).budget_reserved_minor, Attempt.objects.count()) == (0, 0)


# --- Two senders ---------------------------------------------------------------------------------------


def ask(claimed: Claimed, attempt_id: str, operation: Operation | None = None) -> Go:
    return begin_send(
        team=TEAM,
        operation_id=(operation or claimed.operation).pk,
        token=claimed.token,
        attempt_id=attempt_id,
    )


def won_and_lost(outcomes: list[Outcome[Go]]) -> tuple[Go, NotSendable]:
    winners = [one.value for one in outcomes if one.value is not None]
    losers = [one.refusal for one in outcomes if one.refusal is not None]
    assert (len(winners), len(losers)) == (1, 1), outcomes
    assert isinstance(losers[0], NotSendable)
    return winners[0], losers[0]


def test_the_loser_of_two_attempts_at_once_is_told_that_the_outcome_is_unknown(connect: Connect) -> None:
    claimed = ready()
    with holding_run(connect, claimed.run.pk) as other:
        asking = [start(lambda: ask(claimed, "a1")), start(lambda: ask(claimed, "a2"))]
        other.wait_for_waiters(2)
        other.release()
    winner, loser = won_and_lost([one.result() for one in asking])
    assert loser.details["reason"] == "outcome_unknown"
    assert list(Attempt.objects.values_list("attempt_id", flat=True)) == [winner.attempt_id]
    assert fresh(claimed.run).budget_reserved_minor == 500


def test_the_same_attempt_asked_twice_at_once_gets_go_twice_and_is_one_attempt(connect: Connect) -> None:
    claimed = ready()
    with holding_run(connect, claimed.run.pk) as other:
        asking = [start(lambda: ask(claimed, "a1")), start(lambda: ask(claimed, "a1"))]
        other.wait_for_waiters(2)
        other.release()
    answers = [one.result().answer for one in asking]
    assert sorted(answer.replayed for answer in answers) == [False, True]
    assert {answer.number for answer in answers} == {1}
    assert Attempt.objects.count() == 1
    assert fresh(claimed.run).budget_reserved_minor == 500


def test_thirty_two_attempts_at_once_are_one_request() -> None:
    claimed = ready()
    outcomes = at_once([lambda number=number: ask(claimed, f"a{number}") for number in range(32)])  # type: ignore[misc]
    assert sum(one.value is not None for one in outcomes) == 1
    assert Attempt.objects.count() == fresh(claimed.operation).attempts_count == 1


def test_the_later_of_two_ordered_siblings_at_once_waits_for_the_earlier(connect: Connect) -> None:
    claimed = make_claimed(effect("c1"), effect("c2"))
    first, second = claimed.operations
    with holding_run(connect, claimed.run.pk) as other:
        earlier = start(lambda: ask(claimed, "a1", first))
        other.wait_for_waiters(1)
        later = start(lambda: ask(claimed, "a2", second))
        other.wait_for_waiters(2)
        other.release()
    assert earlier.result().answer.number == 1
    refusal = later.result().refusal
    assert isinstance(refusal, NotSendable)
    assert refusal.details == {"reason": "blocked_by", "blocked_by": first.pk}


def test_an_ordered_sibling_that_waited_for_the_earlier_to_be_confirmed_is_sent(connect: Connect) -> None:
    """Its statement's snapshot is older than the confirmation; the slow path looks again under the lock."""
    claimed = make_claimed(effect("c1"), effect("c2"))
    first, second = claimed.operations
    send(claimed, operation=first)
    with holding_run(connect, claimed.run.pk) as other:
        confirming = start(lambda: [reply(claimed)])
        other.wait_for_waiters(1)
        asking = start(lambda: ask(claimed, "a2", second))
        other.wait_for_waiters(2)
        other.release()
    assert confirming.result().answer == [1]
    assert asking.result().answer.number == 1
    assert fresh(second).state == "sent_unknown"


def test_parallel_siblings_at_once_are_both_sent_and_both_reserved() -> None:
    claimed = make_claimed(
        effect("c1", minor=400), effect("c2", minor=500), parallel=True, budget_minor=10_000
    )
    outcomes = at_once([lambda one=one: ask(claimed, "a1", one) for one in claimed.operations])  # type: ignore[misc]
    assert [one.answer.number for one in outcomes] == [1, 1]
    assert fresh(claimed.run).budget_reserved_minor == 900


def test_one_of_two_parallel_siblings_at_once_does_not_fit_the_budget_and_pauses_the_run() -> None:
    claimed = make_claimed(
        effect("c1", minor=600), effect("c2", minor=600), parallel=True, budget_minor=1_000
    )
    outcomes = at_once([lambda one=one: ask(claimed, "a1", one) for one in claimed.operations])  # type: ignore[misc]
    refusals = [one.refusal for one in outcomes if one.refusal]
    assert len(refusals) == 1
    assert isinstance(refusals[0], RunPaused)
    assert refusals[0].details["reasons"] == ["budget"]
    assert fresh(claimed.run).budget_reserved_minor == 600


# --- Two reports ---------------------------------------------------------------------------------------


def test_the_second_of_two_operations_with_one_receipt_at_once_is_not_confirmed() -> None:
    contestants = [sent(), sent()]
    outcomes = at_once([lambda one=one: [reply(one, "ord_1")] for one in contestants])  # type: ignore[misc]
    assert sorted(str(one.answer[0]) for one in outcomes) == ["1", "None"]
    states = sorted(fresh(one.operation).state for one in contestants)
    assert states == ["confirmed", "sent_unknown"]
    loser = next(one for one in contestants if fresh(one.operation).state == "sent_unknown")
    # Nothing of the loser's confirmation is left, its reservation included.
    assert Attempt.objects.get(operation=loser.operation).outcome == "open"
    assert fresh(loser.run).budget_reserved_minor == 500
    assert Receipt.objects.count() == 1


def test_the_same_reply_twice_at_once_confirms_once_and_books_once(connect: Connect) -> None:
    claimed = sent()
    with holding_run(connect, claimed.run.pk) as other:
        replying = [start(lambda: [reply(claimed)]), start(lambda: [reply(claimed)])]
        other.wait_for_waiters(2)
        other.release()
    assert sorted(str(one.result().answer[0]) for one in replying) == ["1", "None"]
    run = fresh(claimed.run)
    assert (run.budget_spent_minor, run.budget_reserved_minor, run.turn_settled) == (500, 0, 1)


def test_a_reply_that_waits_for_a_person_who_abandons_confirms_nothing(connect: Connect) -> None:
    claimed = sent()
    with holding_run(connect, claimed.run.pk) as other:

        def give_up() -> bool:
            with held(claimed.operation) as locked:
                abandon(locked, actor=PERSON, known_effect="Not known.", reason="given up")
            return True

        abandoning = start(give_up)
        other.wait_for_waiters(1)
        replying = start(lambda: [reply(claimed)])
        other.wait_for_waiters(2)
        other.release()
    assert abandoning.result().answer
    assert replying.result().answer == [None]
    assert (fresh(claimed.operation).state, Receipt.objects.count()) == ("abandoned", 0)


# --- Grants, turns and ends ------------------------------------------------------------------------------


def granted(executor: Executor) -> tuple[Claimed, Grant]:
    claimed = sent()
    doubt(claimed.operation)
    quieten(claimed.operation)
    made = grant(claimed.operation, executor=executor)
    token = claim(claimed.run) if executor == Executor.AGENT else ""
    return Claimed(claimed.run, token, claimed.operations), made


def test_of_two_workers_threads_with_one_grant_the_loser_sends_nothing() -> None:
    claimed, made = granted(Executor.AGENT)
    outcomes = at_once([lambda: ask(claimed, "a2"), lambda: ask(claimed, "a3")])
    winner, loser = won_and_lost(outcomes)
    assert loser.details["reason"] == "outcome_unknown"
    assert Attempt.objects.get(grant=made).attempt_id == winner.attempt_id
    assert Attempt.objects.count() == 2


def test_of_two_tasks_of_the_console_with_one_grant_the_loser_sends_nothing() -> None:
    claimed, made = granted(Executor.CONSOLE)
    outcomes = at_once(
        [
            lambda: begin_repeat_by_console(grant_id=made.pk, attempt_id="console-1"),
            lambda: begin_repeat_by_console(grant_id=made.pk, attempt_id="console-2"),
        ]
    )
    _, loser = won_and_lost(outcomes)
    assert loser.details["reason"] == "outcome_unknown"
    assert Attempt.objects.filter(operation=claimed.operation).count() == 2


def test_the_same_console_attempt_twice_at_once_is_one_request_and_one_replay() -> None:
    _, made = granted(Executor.CONSOLE)
    outcomes = at_once([lambda: begin_repeat_by_console(grant_id=made.pk, attempt_id="console-1")] * 2)
    assert sorted(one.answer.replayed for one in outcomes) == [False, True]


def test_a_grant_is_either_consumed_or_withdrawn(connect: Connect) -> None:
    claimed, made = granted(Executor.AGENT)

    def withdraw() -> list[bool]:
        with held(claimed.operation) as locked:
            return [end_grant(locked, made, state=GrantState.VOID, actor=PERSON, why="found after all")]

    with holding_run(connect, claimed.run.pk) as other:
        withdrawing = start(withdraw)
        other.wait_for_waiters(1)
        asking = start(lambda: ask(claimed, "a2"))
        other.wait_for_waiters(2)
        other.release()
    assert withdrawing.result().answer == [True]
    # The run is paused again by it: there is nothing to send.
    assert isinstance(asking.result().refusal, RunPaused)
    assert (fresh(made).state, Attempt.objects.count()) == ("void", 1)


def test_the_loser_of_two_decisions_for_one_turn_is_told_that_it_is_decided() -> None:
    claimed = without_calls()

    def decide(call_id: str) -> object:
        return save_turn(
            team=TEAM,
            run_id=claimed.run.pk,
            token=claimed.token,
            index=2,
            decision={},
            parallel=False,
            calls=(effect(call_id),),
        )

    outcomes = at_once([lambda: decide("c1"), lambda: decide("c2")])
    refusals = [one.refusal for one in outcomes if one.refusal]
    assert len(refusals) == 1
    assert isinstance(refusals[0], TurnAlreadyDecided)
    assert Operation.objects.filter(run=claimed.run).count() == 1


def test_the_same_turn_twice_at_once_mints_each_operation_once() -> None:
    claimed = without_calls()
    outcomes = at_once([lambda: do_save_turn(claimed)] * 4)
    assert all(one.refusal is None for one in outcomes)
    assert Operation.objects.filter(run=claimed.run).count() == 1
    assert Turn.objects.filter(run=claimed.run).count() == 2


def test_a_send_that_waits_for_the_run_to_be_given_up_is_not_sent(connect: Connect) -> None:
    claimed = ready()
    with holding_run(connect, claimed.run.pk) as other:
        giving_up = start(
            lambda: abandon_run(team=TEAM, run_id=claimed.run.pk, actor=PERSON, reason="customer cancelled")
        )
        other.wait_for_waiters(1)
        asking = start(lambda: ask(claimed, "a1"))
        other.wait_for_waiters(2)
        other.release()
    assert giving_up.result().refusal is None
    assert isinstance(asking.result().refusal, RunEnded)
    assert (fresh(claimed.operation).state, Attempt.objects.count()) == ("abandoned", 0)


def test_a_repeat_of_go_that_waits_for_the_reply_is_told_that_it_has_ended(connect: Connect) -> None:
    claimed = sent()
    with holding_run(connect, claimed.run.pk) as other:
        replying = start(lambda: [reply(claimed)])
        other.wait_for_waiters(1)
        asking = start(lambda: ask(claimed, "a1"))
        other.wait_for_waiters(2)
        other.release()
    assert replying.result().answer == [1]
    assert isinstance(asking.result().refusal, AttemptEnded)
