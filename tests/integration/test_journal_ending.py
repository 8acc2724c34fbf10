"""How a run ends: completed when everything is settled, or given up with what is known."""

from __future__ import annotations

import pytest

from runs.journal.ending import OPEN_LISTED_MAX, OperationsOpen, abandon_run, complete_run
from runs.journal.settling import confirm, return_to_ready
from runs.journal.turns import save_result
from runs.leases import RunEnded, RunPaused, StaleToken, release
from runs.models import AuditLeaf, Lease, Operation, Run
from runs.refusals import NotFound
from runs.states import AttemptOutcome
from tests.factories import (
    PERSON,
    TEAM,
    Claimed,
    claim,
    doubt,
    effect,
    end_lease_in,
    fresh,
    held,
    make_claimed,
    make_run,
    make_team,
    read,
    receipt,
    reply,
    send,
)

pytestmark = pytest.mark.django_db(transaction=True)


def complete(run: Run, token: str, output: object = "done", team: str = TEAM) -> tuple[Run, bool]:
    return complete_run(team=team, run_id=run.pk, token=token, output=output)


def give_up(run: Run, team: str = TEAM) -> tuple[Run, bool]:
    return abandon_run(team=team, run_id=run.pk, actor=PERSON, reason="customer cancelled")


# --- Complete --------------------------------------------------------------------------------------------


def test_a_run_whose_calls_are_settled_is_completed_and_its_lease_ends() -> None:
    claimed = make_claimed()
    send(claimed)
    reply(claimed)
    run, repeated = complete(claimed.run, claimed.token, {"order": 1.0})
    assert not repeated
    run = fresh(run)
    assert (run.state, run.lease_token, bytes(run.output or b"")) == ("completed", None, b'{"order":1}')
    assert run.ended_at is not None
    lease = Lease.objects.get()
    assert (lease.ended_by, lease.ended_at) == ("ended", run.ended_at)


def test_a_run_without_a_turn_can_be_completed() -> None:
    run = make_run()
    assert not complete(run, claim(run))[1]


def test_a_completion_can_be_repeated_with_the_same_output_and_any_token() -> None:
    run = make_run()
    token = claim(run)
    complete(run, token, {"n": 1})
    for again in (token, "1-forgotten"):
        assert complete(run, again, {"n": 1.0})[1]
    assert AuditLeaf.objects.filter(action="run.completed").count() == 1


def test_another_output_of_a_completed_run_is_refused_and_the_first_stands() -> None:
    run = make_run()
    token = claim(run)
    complete(run, token, 1)
    with pytest.raises(RunEnded) as refused:
        complete(run, token, 2)
    assert refused.value.details == {"run": run.pk, "state": "completed"}
    assert bytes(fresh(run).output or b"") == b"1"


def test_a_run_with_open_calls_is_not_completed_and_they_are_named() -> None:
    claimed = make_claimed(read("r1"), effect("c1"), effect("c2"), parallel=True)
    first, second = claimed.operations
    send(claimed, operation=first)
    with pytest.raises(OperationsOpen) as refused:
        complete(claimed.run, claimed.token)
    assert sorted(refused.value.details["operations"]) == sorted([first.pk, second.pk])
    assert refused.value.details["calls"] == ["r1"]
    assert fresh(claimed.run).state == "open"


def test_only_a_bounded_number_of_open_calls_is_named() -> None:
    claimed = make_claimed(*(effect(f"c{n}") for n in range(OPEN_LISTED_MAX + 5)), parallel=True)
    with pytest.raises(OperationsOpen) as refused:
        complete(claimed.run, claimed.token)
    assert len(refused.value.details["operations"]) == OPEN_LISTED_MAX


def test_a_paused_run_is_not_completed() -> None:
    claimed = make_claimed()
    send(claimed)
    doubt(claimed.operation)
    with pytest.raises(RunPaused):
        complete(claimed.run, claimed.token)


@pytest.mark.parametrize("end", ["expired", "released", "guessed"])
def test_a_run_is_not_completed_under_a_token_that_has_ended(end: str) -> None:
    run = make_run()
    token = claim(run)
    if end == "expired":
        end_lease_in(run, -0.001)
    elif end == "released":
        release(team=TEAM, run_id=run.pk, token=token)
    else:
        token = "1-guessed"
    with pytest.raises(StaleToken):
        complete(run, token)
    assert fresh(run).state == "open"


def test_a_run_that_was_given_up_is_not_completed() -> None:
    run = make_run()
    token = claim(run)
    give_up(run)
    with pytest.raises(RunEnded) as refused:
        complete(run, token)
    assert refused.value.details["state"] == "abandoned"


# --- Give up ---------------------------------------------------------------------------------------------


def test_giving_up_abandons_what_was_not_sent_and_leaves_the_open_question() -> None:
    claimed = make_claimed(
        effect("c1", minor=100), effect("c2", minor=200), effect("c3"), parallel=True, budget_minor=1_000
    )
    first, second, third = claimed.operations
    send(claimed, operation=first)
    run, repeated = give_up(claimed.run)
    assert not repeated
    run = fresh(run)
    assert (run.state, run.end_reason, run.lease_token) == ("abandoned", "customer cancelled", None)
    assert fresh(first).state == "sent_unknown"
    for operation in map(fresh, (second, third)):
        assert (operation.state, operation.known_effect) == ("abandoned", "Nothing was sent.")
    assert (run.turn_settled, run.turn_calls) == (2, 3)
    assert (run.budget_reserved_minor, run.budget_held_minor) == (100, 0)
    leaf = AuditLeaf.objects.get(action="lease.ended")
    assert (leaf.actor_kind, leaf.actor) == ("person", PERSON.id)


def test_giving_up_frees_what_was_reserved_for_an_operation_that_was_proved_not_sent() -> None:
    claimed = make_claimed(effect(minor=100), budget_minor=1_000)
    send(claimed)
    doubt(claimed.operation, outcome=AttemptOutcome.NOT_SENT)
    with held(claimed.operation) as locked:
        return_to_ready(locked, actor=PERSON)
    give_up(claimed.run)
    run = fresh(claimed.run)
    assert (run.budget_reserved_minor, run.budget_held_minor) == (0, 0)
    assert fresh(claimed.operation).reservation == "released"


def test_an_open_question_of_a_run_that_was_given_up_can_still_be_settled() -> None:
    claimed = make_claimed(effect(minor=100), budget_minor=1_000)
    send(claimed)
    give_up(claimed.run)
    with held(claimed.operation) as locked:
        confirm(locked, receipt=receipt(), actor=PERSON)
    run = fresh(claimed.run)
    assert (run.state, run.budget_spent_minor, run.budget_reserved_minor) == ("abandoned", 100, 0)
    assert fresh(claimed.operation).state == "confirmed"


def test_a_paused_run_can_be_given_up() -> None:
    claimed = make_claimed()
    send(claimed)
    doubt(claimed.operation)
    give_up(claimed.run)
    run = fresh(claimed.run)
    assert (run.state, run.paused_reasons, run.paused_at, run.in_doubt_count) == ("abandoned", [], None, 1)
    with held(claimed.operation) as locked:
        confirm(locked, receipt=receipt(), actor=PERSON)
    assert (fresh(run).state, fresh(run).in_doubt_count) == ("abandoned", 0)


def test_giving_up_can_be_repeated() -> None:
    run = make_run()
    give_up(run)
    assert give_up(run)[1]
    assert AuditLeaf.objects.filter(action="run.abandoned").count() == 1


def test_a_completed_run_cannot_be_given_up() -> None:
    run = make_run()
    complete(run, claim(run))
    with pytest.raises(RunEnded) as refused:
        give_up(run)
    assert refused.value.details["state"] == "completed"


def test_another_teams_run_is_not_found() -> None:
    run = make_run()
    token = claim(run)
    make_team("other")
    with pytest.raises(NotFound):
        complete(run, token, team="other")
    with pytest.raises(NotFound):
        give_up(run, team="other")
    assert fresh(run).state == "open"


def test_a_run_goes_from_turn_to_turn_to_its_end() -> None:
    claimed = make_claimed(read("r1"), effect("c1"))
    save_result(team=TEAM, run_id=claimed.run.pk, token=claimed.token, index=1, call_id="r1", result=4)
    send(claimed)
    reply(claimed)
    complete(claimed.run, claimed.token)
    assert Operation.objects.get().state == "confirmed"
    with pytest.raises(RunEnded):
        send(Claimed(claimed.run, claimed.token, claimed.operations), attempt_id="a2")
