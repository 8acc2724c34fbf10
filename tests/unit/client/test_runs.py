"""Starting, resuming and waiting: the model is asked once a turn, and settled calls are never done again."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from recourse_client import (
    AlreadyClaimed,
    Client,
    Confirmed,
    Effect,
    ExternalIdReused,
    FlowVersionMismatch,
    GivenUp,
    Money,
    NoReceipt,
    OperationsOpen,
    OutcomeUnknown,
    Read,
    Refused,
    Rejected,
    RunEnded,
    RunPaused,
    TurnAlreadyDecided,
    UnreadableAnswer,
)
from recourse_client.plan import read_plan
from tests.unit.client.agents import ORDER, PRICE, Model, Shop, order_run, order_turn, raising
from tests.unit.client.stub_journal import StubJournal

MAIL = Effect(
    "mail", tool="send_mail", provider="mailer", args={"to": "a@example.com"}, amount=Money("EUR", 1)
)


def test_the_same_run_is_reopened_and_another_input_is_refused(client: Client) -> None:
    first = client.start(flow="f", flow_version="1", external_id="x", input={"a": 1})
    again = client.start(flow="f", flow_version="1", external_id="x", input={"a": 1})
    assert again.id == first.id
    with pytest.raises(ExternalIdReused):
        client.start(flow="f", flow_version="1", external_id="x", input={"a": 2})


def test_budget_approval_and_digest_are_sent_only_if_given(client: Client, stub: StubJournal) -> None:
    client.start(flow="f", flow_version="1", external_id="x", input=None)
    client.start(
        flow="f",
        flow_version="1",
        external_id="y",
        input=None,
        budget=Money("EUR", 500),
        approval="appr_1",
        flow_digest="00",
    )
    plain, full = (asked.body for asked in stub.calls("POST /runs$"))
    assert set(plain) == {"flow", "flow_version", "external_id", "input"}
    assert full["budget"] == {"limit": {"currency": "EUR", "minor": 500}}
    assert (full["approval"], full["flow_digest"]) == ("appr_1", "00")


def test_a_resumed_run_repeats_the_turn_and_never_asks_the_model_again(
    client: Client, stub: StubJournal
) -> None:
    model = Model(PRICE, ORDER, MAIL)
    with order_run(client) as run:
        turn = run.turn(1, model)
        assert not turn.resumed
        turn.read("price", lambda args: {"minor": 1200})
        turn.effect("order", Shop())
    with order_run(client) as run:
        turn = run.turn(1, model)
        assert turn.resumed
        assert [call.next for call in turn.calls] == ["skip", "skip", "send"]
    assert model.asked == 1
    first, second = (dict(asked.body) for asked in stub.calls("/turns$"))
    assert first.pop("token") != second.pop("token")
    assert first == second


def test_settled_calls_give_what_is_on_record_and_start_nothing(client: Client, stub: StubJournal) -> None:
    def forbidden(_: object) -> object:
        raise AssertionError("started again")

    with order_run(client) as run:
        turn = run.turn(1, Model(PRICE, ORDER))
        first = turn.perform(reads={"price": lambda args: (1, "two")}, effects={"place_order": Shop()})
    with order_run(client) as run:
        turn = run.turn(1, Model())
        again = turn.perform(reads={"price": forbidden}, effects={"place_order": forbidden})  # type: ignore[dict-item]
    assert again["price"] == first["price"] == [1, "two"]
    assert isinstance(again["order"], Confirmed)
    assert again["order"].saved
    assert again["order"].receipt == first["order"].receipt


def test_a_refusal_on_record_is_returned_and_has_no_receipt(client: Client) -> None:
    with order_turn(client) as turn:
        fresh = turn.effect("order", raising(Rejected(422, {"error": "sold out"})))
    with order_turn(client) as turn:
        saved = turn.effect("order", Shop())
    assert isinstance(fresh, Refused)
    assert isinstance(saved, Refused)
    assert (fresh.saved, saved.saved) == (False, True)
    assert fresh.refusal == saved.refusal
    with pytest.raises(NoReceipt):
        _ = saved.receipt


def test_what_people_gave_up_is_returned_and_has_no_receipt(client: Client, stub: StubJournal) -> None:
    with pytest.raises(OutcomeUnknown), order_turn(client) as turn:
        turn.effect("order", raising(TimeoutError()))
    stub.settle("abandoned", abandoned={"known_effect": "unknown"})
    with order_turn(client) as turn:
        result = turn.effect("order", Shop())
    assert result == GivenUp("op_1", "order", {"known_effect": "unknown"})
    with pytest.raises(NoReceipt):
        _ = result.receipt


def test_a_confirmation_without_a_receipt_says_so(client: Client, stub: StubJournal) -> None:
    with pytest.raises(OutcomeUnknown), order_turn(client) as turn:
        turn.effect("order", raising(TimeoutError()))
    stub.settle("confirmed")
    with order_turn(client) as turn:
        result = turn.effect("order", Shop())
    assert isinstance(result, Confirmed)
    with pytest.raises(NoReceipt, match="by people"):
        _ = result.receipt


def test_a_granted_repeat_sends_once_more_with_the_same_key(client: Client, stub: StubJournal) -> None:
    shop = Shop()
    with pytest.raises(OutcomeUnknown), order_turn(client) as turn:
        turn.effect("order", raising(TimeoutError()))
    stub.grant()
    with order_turn(client) as turn:
        assert isinstance(turn.effect("order", shop), Confirmed)
    ((go),) = shop.asked
    assert (go.attempt, go.key) == (2, "key-op_1")


def test_a_paused_run_cannot_be_claimed_and_says_why(client: Client) -> None:
    with pytest.raises(OutcomeUnknown), order_turn(client) as turn:
        turn.effect("order", raising(TimeoutError()))
    with pytest.raises(RunPaused) as caught, order_run(client):
        pass
    assert caught.value.reasons == ("outcome",)
    assert caught.value.retry_after_seconds == 30
    assert caught.value.plan is not None
    assert read_plan(caught.value.plan).turns[0].calls[0].next == "wait"


def test_in_a_parallel_turn_only_the_open_call_waits(client: Client, stub: StubJournal) -> None:
    with order_run(client) as run:
        turn = run.turn(1, Model(ORDER, PRICE, parallel=True))
        stub.only_operation().state, stub.only_operation().case = "sent_unknown", "case_1"
    with order_run(client) as run:
        turn = run.turn(1, Model())
        read: list[object] = []
        with pytest.raises(RunPaused) as caught:
            turn.perform(reads={"price": read.append}, effects={"place_order": Shop()})
        assert (caught.value.call_id, caught.value.case) == ("order", "case_1")
        assert read == [{"sku": "A-1"}]


def test_perform_starts_nothing_if_a_tool_has_no_function(client: Client, stub: StubJournal) -> None:
    shop = Shop()
    with order_run(client) as run:
        turn = run.turn(1, Model(ORDER, MAIL))
        with pytest.raises(KeyError, match="send_mail"):
            turn.perform(effects={"place_order": shop})
    assert shop.asked == []


def test_a_read_is_no_effect_and_the_other_way_round(client: Client) -> None:
    with order_run(client) as run:
        turn = run.turn(1, Model(PRICE, ORDER))
        with pytest.raises(TypeError):
            turn.read("order", lambda args: None)
        with pytest.raises(TypeError):
            turn.effect("price", Shop())


def test_another_decision_for_a_saved_turn_is_refused(client: Client) -> None:
    with order_run(client) as run:
        run.turn(1, Model(ORDER))
        with pytest.raises(TurnAlreadyDecided):
            run.turn(1, Model(PRICE))


def test_a_held_run_names_its_holder(make_client: Callable[..., Client]) -> None:
    with (
        order_run(make_client(worker="first:1")),
        pytest.raises(AlreadyClaimed) as caught,
        order_run(make_client(worker="second:2")),
    ):
        pass
    assert caught.value.holder == "first:1"
    assert 0 < caught.value.expires_in_ms <= 30_000


def test_another_flow_version_is_refused(client: Client) -> None:
    with order_run(client):
        pass
    with pytest.raises(FlowVersionMismatch) as caught, order_run(client, flow_version="7"):
        pass
    assert caught.value.pinned == "6"


def test_open_operations_keep_a_run_from_completing(client: Client) -> None:
    with order_run(client) as run:
        run.turn(1, Model())
        with pytest.raises(OperationsOpen):
            run.complete(None)


# --- waiting ----------------------------------------------------------------------------------------------


def test_a_paused_run_is_waited_for(client: Client, stub: StubJournal) -> None:
    with pytest.raises(OutcomeUnknown), order_turn(client) as turn:
        turn.effect("order", raising(TimeoutError()))
    timer = threading.Timer(0.3, stub.settle, ["confirmed"], {"receipt": {"reference": "found", "body": {}}})
    timer.start()
    with order_run(client, wait_seconds=20) as run:
        assert run.turn(1, Model()).effect("order", Shop()).receipt.reference == "found"
    timer.join()


def test_waiting_ends_when_time_is_up(client: Client) -> None:
    with pytest.raises(OutcomeUnknown), order_turn(client) as turn:
        turn.effect("order", raising(TimeoutError()))
    with pytest.raises(RunPaused), order_run(client, wait_seconds=0.2):
        pass


def test_a_wait_that_ends_says_what_keeps_the_worker_out_then(
    client: Client, make_client: Callable[..., Client], stub: StubJournal
) -> None:
    def holder_dies(_seconds: float) -> None:
        stub.only_run().update(lease=None, state="paused", paused_reasons=["outcome"])

    waiting = make_client(pause=holder_dies)
    with order_run(client):
        with pytest.raises(RunPaused) as caught, order_run(waiting, wait_seconds=0.2):
            pass
        assert caught.value.reasons == ("outcome",)
        assert len(stub.calls("POST /runs/[^/]+/claim")) == 3
        stub.only_run().update(state="open")


def test_without_a_wait_a_refused_claim_is_made_once(client: Client, stub: StubJournal) -> None:
    with order_run(client):
        with pytest.raises(AlreadyClaimed), order_run(client):
            pass
        assert len(stub.calls("POST /runs/[^/]+/claim")) == 2


def test_waiting_ends_when_the_run_has_ended(client: Client, stub: StubJournal) -> None:
    with order_run(client) as run:
        pass
    stub.only_run()["state"] = "abandoned"
    with pytest.raises(RunEnded):
        run.wait_until_claimable(timeout_seconds=1)


def test_other_runs_that_are_claimable_do_not_end_the_wait(
    make_client: Callable[..., Client], stub: StubJournal
) -> None:
    pauses: list[float] = []
    client = make_client(pause=pauses.append)
    with order_run(client, external_id="mine") as mine:
        client.start(flow="order-agent", flow_version="6", external_id="other", input={"sku": "A-1"})
        stub.runs[mine.id]["state"] = "paused"
        assert not mine.wait_until_claimable(timeout_seconds=0.2)
    assert pauses


def test_a_worker_finds_work_and_takes_it(client: Client) -> None:
    client.start(flow="order-agent", flow_version="6", external_id="ORD-7", input={"sku": "Z"})
    (found,) = client.wait_claimable("order-agent", wait_seconds=0)
    with client.reopen(found.id, flow_version=found.flow_version) as run:
        assert run.info.external_id == "ORD-7"
        assert run.plan.input == {"sku": "Z"}
        assert client.wait_claimable("order-agent", wait_seconds=0) == []


# --- plans that can't be read -----------------------------------------------------------------------------


def plan_with(**changes: object) -> dict[str, object]:
    call: dict[str, object] = {
        "call_id": "c",
        "tool": "t",
        "effect": True,
        "args": {},
        "next": "send",
        "operation": {"id": "op_1", "state": "ready"},
        **changes,
    }
    return {"run_id": "run_1", "state": "open", "turns": [{"index": 0, "calls": [call]}]}


@pytest.mark.parametrize(
    "changes",
    [
        {"next": "hurry"},
        {"next": None},
        {"operation": None},
        {"operation": "op_1"},
        {"operation": {"id": "op_1"}},
        {"effect": "yes"},
        {"call_id": 7},
        {"receipt": "r"},
        {"case": 7},
    ],
)
def test_a_plan_that_cannot_be_read_is_an_error_never_a_guess(changes: dict[str, object]) -> None:
    assert read_plan(plan_with()).turns[0].calls[0].next == "send"
    with pytest.raises(UnreadableAnswer):
        read_plan(plan_with(**changes))


def test_a_call_that_is_skipped_without_an_end_is_an_error(client: Client, stub: StubJournal) -> None:
    with order_turn(client):
        stub.only_operation().state = "mystery"
    with order_turn(client) as turn, pytest.raises(UnreadableAnswer):
        turn.effect("order", Shop())


def test_a_read_keeps_its_saved_result_even_if_it_is_null(client: Client) -> None:
    calls: list[object] = []
    with order_run(client) as run:
        assert run.turn(1, Model(Read("r", tool="look"))).read("r", calls.append) is None
    with order_run(client) as run:
        assert run.turn(1, Model()).read("r", calls.append) is None
    assert calls == [{}]


def test_a_worker_is_named_in_the_journals_alphabet(make_client: Callable[..., Client]) -> None:
    assert make_client(worker="host name/ü:17").worker == "host-name--:17"
    long = make_client(worker=f"{'h' * 80}:4711").worker
    assert len(long) == 64
    assert long.endswith("h:4711")
