"""Turns and reads: saved once, in order, the same again accepted and anything else refused."""

from __future__ import annotations

from typing import Any

import pytest

from runs import account_access
from runs.account_access import AccountNotFound
from runs.journal.settling import confirm
from runs.journal.turns import (
    CALLS_MAX,
    CallChosen,
    PreviousTurnOpen,
    ResultAlreadySaved,
    TurnAlreadyDecided,
    TurnSaved,
    save_result,
    save_turn,
)
from runs.leases import RunPaused, StaleToken, release
from runs.models import AuditLeaf, Call, Operation, Run, Turn
from runs.money import Money
from runs.refusals import Invalid, NotFound
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
    make_account,
    make_claimed,
    make_run,
    make_team,
    read,
    receipt,
    reply,
    send,
)

pytestmark = pytest.mark.django_db(transaction=True)


def save(run: Run, token: str, *calls: CallChosen, index: int = 1, **fields: Any) -> TurnSaved:
    chosen: dict[str, Any] = {"decision": {"say": "go"}, "parallel": False, "team": TEAM}
    return save_turn(run_id=run.pk, token=token, index=index, calls=calls, **{**chosen, **fields})


def begin() -> tuple[Run, str]:
    make_account()
    run = make_run(budget_minor=10_000)
    return run, claim(run)


def nothing_was_saved() -> bool:
    return not (Turn.objects.exists() or Call.objects.exists() or Operation.objects.exists())


# --- Saving a decision -----------------------------------------------------------------------------------


def test_a_decision_is_saved_with_an_operation_for_each_effect() -> None:
    run, token = begin()
    saved = save(run, token, read("r1"), effect("c1", minor=500), effect("c2"))
    assert (saved.index, saved.replayed) == (1, False)
    run = fresh(run)
    assert (run.turn_index, run.turn_calls, run.turn_settled, run.turn_parallel) == (1, 3, 0, "ordered")
    first, second = Operation.objects.order_by("position")
    assert (first.state, first.position, first.turn_index) == ("ready", 1, 1)
    assert (first.amount_currency, first.amount_minor) == ("EUR", 500)
    assert (second.amount_currency, second.amount_minor) == ("", None)
    assert bytes(first.payload) == b'{"quantity":40,"sku":"FC-20"}'
    body = bytes(AuditLeaf.objects.get(action="turn.saved").body)
    # The leaf holds what is needed to prove the decision, and none of its content.
    assert first.key.encode() in body
    assert first.payload_digest.encode() in body
    assert b"FC-20" not in body


def test_the_same_turn_again_is_accepted_under_the_next_token() -> None:
    run, token = begin()
    save(run, token, effect("c1"))
    release(team=TEAM, run_id=run.pk, token=token)
    assert save(run, claim(run), effect("c1")).replayed
    assert Operation.objects.count() == 1
    assert AuditLeaf.objects.filter(action="turn.saved").count() == 1


def test_an_earlier_turn_can_be_repeated_when_later_ones_are_on_record() -> None:
    run, token = begin()
    save(run, token, index=1)
    save(run, token, index=2)
    assert save(run, token, index=1).replayed


@pytest.mark.parametrize(
    "other",
    [
        {"decision": {"say": "stop"}},
        {"parallel": True},
        {"calls": ()},
        {"calls": (effect("c2"), effect("c1"))},
        {"calls": (effect("c1"), effect("c3"))},
        {"calls": (effect("c1", args={"sku": "FC-20", "quantity": 41}), effect("c2"))},
        {"calls": (effect("c1", minor=1), effect("c2"))},
        {"calls": (effect("c1", tool="other"), effect("c2"))},
        {"calls": (effect("c1", provider="sandbox-mail"), effect("c2"))},
    ],
)
def test_the_same_turn_with_other_content_is_refused_and_the_first_stands(other: dict[str, Any]) -> None:
    run, token = begin()
    make_account("sandbox-mail")
    calls = (effect("c1"), effect("c2"))
    save(run, token, *calls)
    chosen = {"decision": {"say": "go"}, "parallel": False, "calls": calls, **other}
    with pytest.raises(TurnAlreadyDecided) as refused:
        save_turn(team=TEAM, run_id=run.pk, token=token, index=1, **chosen)
    assert refused.value.details == {"run": run.pk, "turn": 1}
    assert list(Operation.objects.order_by("position").values_list("call__call_id", flat=True)) == [
        "c1",
        "c2",
    ]


def test_the_same_turn_is_the_same_however_its_numbers_and_members_are_written() -> None:
    run, token = begin()
    save(run, token, effect("c1", args={"a": 1, "b": 2}))
    assert save(run, token, effect("c1", args={"b": 2.0, "a": 1e0})).replayed


@pytest.mark.parametrize("index", [0, -1, 2, 7, 10**12])
def test_turns_come_one_after_the_other(index: int) -> None:
    run, token = begin()
    with pytest.raises(Invalid) as refused:
        save(run, token, index=index)
    assert refused.value.details["where"] == "index"
    assert nothing_was_saved()


def test_a_turn_without_calls_is_settled_at_once() -> None:
    run, token = begin()
    for index in (1, 2, 3):
        assert not save(run, token, index=index).replayed


def test_the_next_turn_waits_for_every_call_of_this_one() -> None:
    run, token = begin()
    save(run, token, read("r1"), effect("c1"), effect("c2"))
    operations = list(Operation.objects.order_by("position"))

    def refused(unsettled: int) -> None:
        with pytest.raises(PreviousTurnOpen) as refusal:
            save(run, token, index=2)
        assert refusal.value.details == {"run": run.pk, "turn": 1}
        assert f"has {unsettled} calls" in str(refusal.value)

    refused(3)
    save_result(team=TEAM, run_id=run.pk, token=token, index=1, call_id="r1", result=None)
    refused(2)
    for number, operation in enumerate(operations):
        claimed = Claimed(run, token, [operation])
        send(claimed)
        refused(2 - number)
        assert reply(claimed, f"ord_{number}") == 1
    assert not save(run, token, index=2).replayed


def test_a_turn_of_a_paused_run_is_refused_with_the_reasons() -> None:
    claimed = make_claimed()
    send(claimed)
    doubt(claimed.operation)
    with pytest.raises(RunPaused) as refused:
        save(claimed.run, claimed.token, index=2)
    assert refused.value.details["reasons"] == ["outcome"]


def test_a_turn_under_an_ended_lease_is_stale_and_saves_nothing() -> None:
    run, token = begin()
    end_lease_in(run, -0.001)
    with pytest.raises(StaleToken):
        save(run, token, effect("c1"))
    assert nothing_was_saved()


def test_a_turn_of_another_teams_run_is_not_found() -> None:
    run, token = begin()
    make_team("other")
    with pytest.raises(NotFound):
        save(run, token, team="other")


# --- What a call may be ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("calls", "where"),
    [
        ((effect("c1"), effect("c1")), "calls/1/call_id"),
        ((effect("c 1"),), "calls/0/call_id"),
        ((effect(""),), "calls/0/call_id"),
        ((effect("c1", tool=""),), "calls/0/tool"),
        ((effect("c1", tool="t" * 101),), "calls/0/tool"),
        ((effect("c1", provider=""),), "calls/0/provider"),
        ((effect("c1", amount=Money("USD", 5)),), "calls/0/amount/currency"),
        (
            (CallChosen(call_id="r1", tool="t", effect=False, args={}, provider="sandbox-supplier"),),
            "calls/0",
        ),
        ((CallChosen(call_id="r1", tool="t", effect=False, args={}, amount=Money("EUR", 5)),), "calls/0"),
        (tuple(read(f"r{number}") for number in range(CALLS_MAX + 1)), "calls"),
    ],
)
def test_a_call_that_cannot_be_taken_is_refused_with_its_place_and_saves_nothing(
    calls: tuple[CallChosen, ...], where: str
) -> None:
    run, token = begin()
    with pytest.raises(Invalid) as refused:
        save(run, token, *calls)
    assert refused.value.details["where"] == where
    assert nothing_was_saved()
    assert fresh(run).turn_index == 0


@pytest.mark.parametrize("why", ["made up", "other teams'"])
def test_an_account_that_is_not_the_teams_is_refused_like_one_that_there_is_not(why: str) -> None:
    run, token = begin()
    if why == "other teams'":
        make_account("theirs")
        make_team("others")
        account_access.name_first(account="theirs", teams=["others"], actor=PERSON)
    with pytest.raises(AccountNotFound) as refused:
        save(run, token, effect("c1"), effect("c2", provider="theirs"))
    assert refused.value.sentence == "There is no provider account “theirs”."
    assert refused.value.details == {"account": "theirs", "where": "calls/1/provider"}
    assert nothing_was_saved()


def test_a_turn_that_was_saved_is_answered_again_after_its_account_was_closed_to_the_team() -> None:
    run, token = begin()
    save(run, token, effect("c1"))
    make_team("others")
    account_access.name_first(account="sandbox-supplier", teams=["others"], actor=PERSON)
    assert save(run, token, effect("c1")).replayed


def test_a_turn_may_have_as_many_calls_as_allowed() -> None:
    run, token = begin()
    save(run, token, *(read(f"r{number}") for number in range(CALLS_MAX)))
    assert Call.objects.count() == CALLS_MAX


def test_a_run_without_a_budget_takes_amounts_in_any_currency() -> None:
    make_account()
    run = make_run()
    save(run, claim(run), effect("c1", amount=Money("USD", 5)))
    assert Operation.objects.get().amount_currency == "USD"


# --- What a read returned --------------------------------------------------------------------------------


def result(run: Run, token: str, call_id: str = "r1", value: object = 4, **fields: Any) -> Any:
    chosen: dict[str, Any] = {"team": TEAM, "index": 1}
    return save_result(run_id=run.pk, token=token, call_id=call_id, result=value, **{**chosen, **fields})


def test_a_result_is_saved_once_and_the_same_again_is_accepted() -> None:
    run, token = begin()
    save(run, token, read("r1"), read("r2"))
    assert not result(run, token, value={"stock": 4}).replayed
    assert result(run, token, value={"stock": 4.0}).replayed
    assert bytes(Call.objects.get(call_id="r1").result or b"") == b'{"stock":4}'
    assert fresh(run).turn_settled == 1
    assert AuditLeaf.objects.filter(action="read.saved").count() == 1


def test_another_result_is_refused_and_the_first_stands() -> None:
    run, token = begin()
    save(run, token, read("r1"))
    result(run, token, value=4)
    with pytest.raises(ResultAlreadySaved) as refused:
        result(run, token, value=5)
    assert (refused.value.word, refused.value.details) == ("turn_already_decided", {"call": "r1"})
    assert bytes(Call.objects.get().result or b"") == b"4"
    assert fresh(run).turn_settled == 1


def test_a_result_may_be_repeated_after_later_turns() -> None:
    run, token = begin()
    save(run, token, read("r1"))
    result(run, token)
    save(run, token, index=2)
    assert result(run, token).replayed


@pytest.mark.parametrize("fields", [{"call_id": "r9"}, {"index": 2}, {"call_id": ""}])
def test_a_result_of_a_call_that_is_not_there_is_not_found(fields: dict[str, Any]) -> None:
    run, token = begin()
    save(run, token, read("r1"))
    with pytest.raises(NotFound):
        result(run, token, **fields)


def test_an_effect_has_no_result() -> None:
    run, token = begin()
    save(run, token, effect("c1"))
    with pytest.raises(Invalid) as refused:
        result(run, token, call_id="c1")
    assert refused.value.details["where"] == "call_id"


def test_a_read_of_an_ordered_turn_waits_for_the_calls_before_it() -> None:
    run, token = begin()
    save(run, token, effect("c1"), read("r2"))
    with pytest.raises(PreviousTurnOpen) as refused:
        result(run, token, call_id="r2")
    assert refused.value.details == {"turn": 1, "blocked_by": "c1"}
    operation = Operation.objects.get()
    send(Claimed(run, token, [operation]))
    with held(operation) as locked:
        confirm(locked, receipt=receipt(), actor=PERSON)
    assert not result(run, token, call_id="r2").replayed


def test_a_read_of_a_parallel_turn_waits_for_nothing() -> None:
    run, token = begin()
    save(run, token, effect("c1"), read("r2"), parallel=True)
    assert not result(run, token, call_id="r2").replayed


def test_a_result_under_an_ended_lease_is_stale() -> None:
    run, token = begin()
    save(run, token, read("r1"))
    end_lease_in(run, -0.001)
    with pytest.raises(StaleToken):
        result(run, token)
    assert Call.objects.get().result_at is None
