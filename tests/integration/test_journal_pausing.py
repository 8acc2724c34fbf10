"""When an unknown outcome pauses a run and ends its lease, and when the run goes on."""

from __future__ import annotations

import pytest

from runs import leases
from runs.journal.grants import end_grant
from runs.journal.settling import confirm, end_attempt, open_doubt, reject, return_to_ready
from runs.leases import OutcomeNotTakenIn, RunPaused
from runs.models import Attempt, Lease
from runs.states import AttemptOutcome, Executor, GrantState
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
    make_claimed,
    quieten,
    receipt,
    reply,
    send,
)

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_unknown_outcome_pauses_the_run_and_ends_its_lease() -> None:
    claimed = make_claimed()
    send(claimed)
    doubt(claimed.operation)
    run = fresh(claimed.run)
    assert (run.state, run.paused_reasons, run.lease_token) == ("paused", ["outcome"], None)
    assert Lease.objects.get(run=run).ended_by == "paused"


def test_a_run_goes_on_while_another_attempt_of_its_worker_is_open() -> None:
    claimed = make_claimed(effect("c1"), effect("c2"), parallel=True)
    first, second = claimed.operations
    send(claimed, operation=first)
    send(claimed, operation=second, attempt_id="a2")
    doubt(first)
    run = fresh(claimed.run)
    assert (run.state, run.in_doubt_count, run.lease_token) == ("open", 1, claimed.token)


def test_the_usual_reply_of_the_last_open_attempt_leaves_the_pausing_to_the_slow_path() -> None:
    claimed = make_claimed(effect("c1"), effect("c2"), parallel=True)
    first, second = claimed.operations
    send(claimed, operation=first)
    send(claimed, operation=second, attempt_id="a2")
    doubt(first)

    assert reply(claimed, operation=second, attempt_id="a2") is None
    assert fresh(second).state == "sent_unknown"


@pytest.mark.parametrize("attempt_first", [True, False])
def test_a_run_is_paused_when_its_last_open_attempt_ends_over_a_doubt(attempt_first: bool) -> None:
    claimed = make_claimed(effect("c1"), effect("c2"), parallel=True)
    first, second = claimed.operations
    send(claimed, operation=first)
    send(claimed, operation=second, attempt_id="a2")
    doubt(first)
    attempt = Attempt.objects.get(operation=second)
    with held(second) as locked:
        if attempt_first:
            end_attempt(locked, attempt, outcome=AttemptOutcome.RECEIPT)
        confirm(locked, receipt=receipt(), actor=PERSON, attempt=attempt)
        if not attempt_first:
            end_attempt(locked, attempt, outcome=AttemptOutcome.RECEIPT)
    run = fresh(claimed.run)
    assert (run.state, run.paused_reasons, run.lease_token) == ("paused", ["outcome"], None)


@pytest.mark.parametrize("settle", ["confirm", "reject", "return"])
def test_a_run_is_claimable_again_when_its_last_doubt_is_settled(settle: str) -> None:
    claimed = make_claimed()
    send(claimed)
    outcome = AttemptOutcome.NOT_SENT if settle == "return" else AttemptOutcome.UNKNOWN
    doubt(claimed.operation, outcome=outcome)
    with held(claimed.operation) as locked:
        match settle:
            case "confirm":
                confirm(locked, receipt=receipt(), actor=PERSON)
            case "reject":
                reject(locked, refusal=b'"no"', actor=PERSON)
            case _:
                return_to_ready(locked, actor=PERSON)
    run = fresh(claimed.run)
    assert (run.state, run.paused_reasons, run.paused_at, run.in_doubt_count) == ("open", [], None, 0)
    assert claim(run).startswith("2-")


def test_a_run_stays_paused_while_another_outcome_is_in_doubt() -> None:
    claimed = make_claimed(effect("c1"), effect("c2"), parallel=True)
    first, second = claimed.operations
    send(claimed, operation=first)
    send(claimed, operation=second, attempt_id="a2")
    doubt(first)
    doubt(second)
    with held(first) as locked:
        confirm(locked, receipt=receipt(), actor=PERSON)
    run = fresh(claimed.run)
    assert (run.state, run.in_doubt_count) == ("paused", 1)


def test_doubt_is_counted_once_however_often_it_is_opened() -> None:
    claimed = make_claimed()
    send(claimed)
    doubt(claimed.operation)
    doubt(claimed.operation)
    assert fresh(claimed.run).in_doubt_count == 1


def test_doubt_about_an_operation_that_was_not_sent_is_not_counted() -> None:
    claimed = make_claimed()
    with held(claimed.operation) as locked:
        open_doubt(locked)
    assert fresh(claimed.run).in_doubt_count == 0
    assert fresh(claimed.operation).in_doubt_since_at is None


def test_a_grant_to_the_agent_opens_the_run_and_its_end_pauses_it_again() -> None:
    claimed = make_claimed()
    send(claimed)
    doubt(claimed.operation)
    quieten(claimed.operation)
    made = grant(claimed.operation)
    assert fresh(claimed.run).state == "open"
    with held(claimed.operation) as locked:
        assert end_grant(locked, made, state=GrantState.EXPIRED, actor=PERSON, why="unused")
        assert not end_grant(locked, made, state=GrantState.VOID, actor=PERSON, why="again")
    assert fresh(claimed.run).paused_reasons == ["outcome"]
    assert fresh(made).state == "expired"


def test_a_grant_to_the_console_leaves_the_run_paused() -> None:
    claimed = make_claimed()
    send(claimed)
    doubt(claimed.operation)
    quieten(claimed.operation)
    grant(claimed.operation, executor=Executor.CONSOLE)
    assert fresh(claimed.run).paused_reasons == ["outcome"]


# --- What a dead worker left is taken in before anyone claims ---------------------------------------------


def test_a_sent_operation_that_nobody_reported_must_be_taken_in_before_a_claim() -> None:
    claimed = make_claimed()
    send(claimed)
    end_lease_in(claimed.run, -1)
    with pytest.raises(OutcomeNotTakenIn):
        claim(claimed.run)
    doubt(claimed.operation, outcome=AttemptOutcome.UNREPORTED)
    with pytest.raises(RunPaused):
        claim(claimed.run)


def repeated() -> Claimed:
    """An operation whose repeat was granted, minted by a second worker, and not reported yet."""
    claimed = make_claimed()
    send(claimed)
    doubt(claimed.operation)
    quieten(claimed.operation)
    grant(claimed.operation)
    second = Claimed(claimed.run, claim(claimed.run), claimed.operations)
    assert send(second, attempt_id="a2").number == 2
    return second


def test_a_repeat_that_nobody_reported_must_be_taken_in_before_a_claim() -> None:
    claimed = repeated()
    end_lease_in(claimed.run, -1)
    with pytest.raises(OutcomeNotTakenIn):
        claim(claimed.run)
    doubt(claimed.operation, outcome=AttemptOutcome.UNREPORTED)
    with pytest.raises(RunPaused):
        claim(claimed.run)


def test_a_worker_that_leaves_its_repeat_unreported_pauses_the_run() -> None:
    claimed = repeated()
    leases.release(team=TEAM, run_id=claimed.run.pk, token=claimed.token)
    assert fresh(claimed.run).paused_reasons == ["outcome"]


def test_a_lease_that_ran_out_over_a_doubt_gives_nobody_the_next_one() -> None:
    """Taken in attempt by attempt, with nobody having looked at the run: the claim does."""
    claimed = repeated()
    with held(claimed.operation) as locked:
        end_attempt(locked, Attempt.objects.get(attempt_id="a2"), outcome=AttemptOutcome.UNREPORTED)
    end_lease_in(claimed.run, -1)
    with pytest.raises(RunPaused):
        claim(claimed.run)
    run = fresh(claimed.run)
    # The pause is kept although the claim was refused.
    assert (run.state, run.paused_reasons, run.lease_token) == ("paused", ["outcome"], None)
    assert Lease.objects.get(run=run, number=2).ended_by == "expired"


# --- The budget -----------------------------------------------------------------------------------------


def over_budget() -> Claimed:
    """Two effects that fit one by one: the first is in flight, and asking for the second paused the run."""
    claimed = make_claimed(effect("c1", minor=60), effect("c2", minor=60), parallel=True, budget_minor=100)
    send(claimed)
    with pytest.raises(RunPaused):
        send(claimed, attempt_id="a2", operation=claimed.operations[1])
    assert fresh(claimed.run).paused_reasons == ["budget"]
    return claimed


@pytest.mark.parametrize("end", ["refused", "cheaper", "proved absent"])
def test_a_run_goes_on_when_money_comes_free_for_what_paused_it(end: str) -> None:
    """Nobody else could take that reason away: it was the run's own."""
    claimed = over_budget()
    with held(claimed.operation) as locked:
        match end:
            case "refused":
                reject(locked, refusal=b"{}", actor=PERSON)
            case "cheaper":
                confirm(locked, receipt=receipt(minor=40), actor=PERSON)
            case _:
                end_attempt(locked, Attempt.objects.get(), outcome=AttemptOutcome.NOT_SENT)
                return_to_ready(locked, actor=PERSON, release=True)
    assert (fresh(claimed.run).state, fresh(claimed.run).paused_reasons) == ("open", [])
    again = Claimed(claimed.run, claim(claimed.run), claimed.operations)
    send(again, attempt_id="a3", operation=claimed.operations[1])


def test_a_run_stays_paused_while_what_waits_still_does_not_fit() -> None:
    claimed = over_budget()
    with held(claimed.operation) as locked:
        confirm(locked, receipt=receipt(minor=41), actor=PERSON)
    assert (fresh(claimed.run).state, fresh(claimed.run).paused_reasons) == ("paused", ["budget"])
