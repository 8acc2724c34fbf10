"""One effect: what is sent, what isn't, and what the journal hears of it."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recourse_client import (
    AttemptEnded,
    Client,
    Confirmed,
    EffectNotSent,
    Go,
    JournalUnreachable,
    LeaseLost,
    NotSendable,
    NotSent,
    OutcomeUnknown,
    Patience,
    Receipt,
    ReceiptMismatch,
    ReceiptReused,
    Refused,
    Rejected,
    ReportedLate,
    ReportNotDelivered,
    RunPaused,
    SpoolFull,
    SpoolUnavailable,
    StaleToken,
    StartWindowPassed,
    Unknown,
    UnreadableAnswer,
)
from recourse_client.spool import Spool
from tests.unit.client.agents import Model, Shop, order_run, order_turn, raising
from tests.unit.client.stub_journal import Problem, StubJournal


def files(spool: Path) -> list[str]:
    return sorted(file.name for file in spool.glob("*.json"))


class Clock:
    """A clock that stands still until it is set on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


# --- what your function gets ------------------------------------------------------------------------------


def test_the_function_gets_the_journaled_bytes_and_the_stored_key(client: Client, stub: StubJournal) -> None:
    shop = Shop()
    with order_turn(client) as turn:
        result = turn.effect("order", shop)
    (go,) = shop.asked
    assert go.payload_bytes == stub.only_operation().payload
    assert go.payload == {"sku": "A-1", "count": 2}
    assert (go.key, go.attempt, go.tool, go.provider) == ("key-op_1", 1, "place_order", "stub")
    assert isinstance(result, Confirmed)
    assert result.receipt == Receipt("shop-key-op_1", {"key": "key-op_1", "sku": "A-1"})
    assert not result.saved


def test_a_second_call_for_the_same_effect_returns_the_receipt_and_sends_nothing(client: Client) -> None:
    shop = Shop()
    with order_turn(client) as turn:
        first, second = turn.effect("order", shop), turn.effect("order", shop)
    assert first.receipt == second.receipt
    assert len(shop.asked) == 1


def test_go_is_on_record_before_the_function_starts(client: Client, stub: StubJournal) -> None:
    states: list[str] = []

    def look(go: Go) -> Receipt:
        states.append(stub.only_operation().state)
        return Receipt("r", {})

    with order_turn(client) as turn:
        turn.effect("order", look)
    assert states == ["sent_unknown"]


# --- before the function starts ---------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["drop", "drop_answer", "spoil"])
def test_without_an_answer_to_go_nothing_is_sent(
    client: Client, stub: StubJournal, spool: Path, fault: str
) -> None:
    shop = Shop()
    with order_turn(client) as turn:
        stub.fault("POST .*/send$", fault, times=99)
        with pytest.raises(JournalUnreachable):
            turn.effect("order", shop)
        assert shop.asked == []
        # Whether the attempt is on record is not known; that it never left is.
        assert [name.split("-", 2)[2] for name in files(spool)] == ["not-sent.json"]
    assert len({asked.content for asked in stub.calls("/send$")}) == 1


def test_what_was_not_sent_is_told_later_and_the_operation_is_ready_again(
    client: Client, stub: StubJournal, spool: Path
) -> None:
    shop = Shop()
    with order_turn(client) as turn:
        stub.fault("POST .*/send$", "drop_answer", times=4)
        with pytest.raises(JournalUnreachable):
            turn.effect("order", shop)
        assert stub.only_operation().state == "sent_unknown"
        assert isinstance(turn.effect("order", shop), Confirmed)
    assert [go.attempt for go in shop.asked] == [2]
    assert files(spool) == []


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("start_window_passed", StartWindowPassed),
        ("attempt_ended", AttemptEnded),
        ("stale_token", StaleToken),
        ("not_sendable", NotSendable),
        ("run_paused", RunPaused),
    ],
)
def test_a_refused_go_starts_nothing_and_is_named(
    client: Client, stub: StubJournal, monkeypatch: pytest.MonkeyPatch, word: str, kind: type[Exception]
) -> None:
    shop = Shop()

    def refuse(*args: Any) -> Any:
        raise Problem(409, word)

    with order_turn(client) as turn:
        monkeypatch.setattr(stub, "_send", refuse)
        with pytest.raises(kind):
            turn.effect("order", shop)
    assert shop.asked == []


def test_the_function_is_not_started_after_the_start_window(
    make_client: Callable[..., Client], stub: StubJournal
) -> None:
    clock, shop = Clock(), Shop()
    client = make_client(clock=clock)
    with order_turn(client) as turn:
        held = stub.fault("POST .*/send$", "hold")
        caught: list[BaseException] = []

        def work() -> None:
            try:
                turn.effect("order", shop)
            except Exception as error:  # noqa: BLE001
                caught.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        assert held.reached.wait(10)
        # The answer is there and is 5,000 ms from now; the window began before the question left.
        clock.now += 5.0
        held.release.set()
        thread.join(10)
    assert [type(error) for error in caught] == [StartWindowPassed]
    assert shop.asked == []
    assert stub.only_operation().state == "ready"


def test_the_start_window_counts_from_before_the_first_ask(
    make_client: Callable[..., Client], stub: StubJournal
) -> None:
    clock, shop = Clock(), Shop()

    def pause(seconds: float) -> None:
        clock.now += 5.0

    client = make_client(
        clock=clock, pause=pause, patience=Patience(tries_max=9, total_seconds=60, pause_seconds_max=1)
    )
    with order_turn(client) as turn:
        stub.fault("POST .*/send$", "drop")
        with pytest.raises(StartWindowPassed):
            turn.effect("order", shop)
    assert shop.asked == []


def test_the_function_is_started_just_before_the_window_ends(
    make_client: Callable[..., Client], stub: StubJournal
) -> None:
    clock = Clock()

    def pause(seconds: float) -> None:
        clock.now += 4.5

    client = make_client(
        clock=clock, pause=pause, patience=Patience(tries_max=9, total_seconds=60, pause_seconds_max=0.1)
    )
    shop = Shop()
    with order_turn(client) as turn:
        stub.fault("POST .*/send$", "drop")
        turn.effect("order", shop)
    assert len(shop.asked) == 1


def test_the_function_can_ask_again_right_before_its_first_byte(
    make_client: Callable[..., Client], stub: StubJournal
) -> None:
    clock = Clock()
    client = make_client(clock=clock)

    def slow(go: Go) -> Receipt:
        clock.now += 5.0
        go.check()
        raise AssertionError("started")

    with order_turn(client) as turn, pytest.raises(EffectNotSent):
        turn.effect("order", slow)
    assert stub.only_operation().state == "ready"


def test_nothing_is_asked_or_sent_after_the_lease_ran_out_by_our_clock(
    make_client: Callable[..., Client], stub: StubJournal
) -> None:
    clock, shop = Clock(), Shop()
    client = make_client(clock=clock)
    with order_turn(client, lease_seconds=30) as turn:
        clock.now += 30.0
        with pytest.raises(LeaseLost):
            turn.effect("order", shop)
    assert shop.asked == []
    assert stub.calls("/send$") == []


def test_a_lease_lost_while_go_was_on_its_way_starts_nothing(
    make_client: Callable[..., Client], stub: StubJournal
) -> None:
    stub.start_within_ms = 3_600_000
    clock, shop = Clock(), Shop()
    client = make_client(clock=clock)
    caught: list[BaseException] = []
    with order_turn(client, lease_seconds=30) as turn:
        held = stub.fault("POST .*/send$", "hold")

        def work() -> None:
            try:
                turn.effect("order", shop)
            except Exception as error:  # noqa: BLE001
                caught.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        assert held.reached.wait(10)
        clock.now += 30.0
        held.release.set()
        thread.join(10)
    assert [type(error) for error in caught] == [LeaseLost]
    assert shop.asked == []


def test_a_payload_other_than_the_planned_one_is_not_sent(client: Client, stub: StubJournal) -> None:
    shop = Shop()
    with order_turn(client) as turn:
        stub.only_operation().payload = b'{"sku":"B-2"}'
        with pytest.raises(UnreadableAnswer, match="isn't the one in the plan"):
            turn.effect("order", shop)
    assert shop.asked == []


def test_a_go_that_lacks_anything_is_no_go(
    client: Client, stub: StubJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = stub._send
    names = ["idempotency_key", "payload_base64", "start_within_ms", "request_within_ms", "attempt"]
    shop = Shop()
    with order_turn(client) as turn:
        for name in names:

            def without(body: Any, operation: str, name: str = name) -> Any:
                status, answer = send(body, operation)
                del answer[name]
                return status, answer

            monkeypatch.setattr(stub, "_send", without)
            with pytest.raises(UnreadableAnswer, match=name):
                turn.effect("order", shop)
    assert shop.asked == []


# --- what it may say --------------------------------------------------------------------------------------


def test_a_rejection_settles_and_is_returned(client: Client, stub: StubJournal) -> None:
    with order_run(client) as run:
        turn = run.turn(1, Model())
        result = turn.effect("order", raising(Rejected(422, {"error": "no such item"})))
        assert isinstance(result, Refused)
        assert result.refusal == {"error": "no such item"}
        run.complete(None)
    (report,) = stub.calls("/rejection$")
    assert report.body["body"] == '{"error":"no such item"}'


def test_not_sent_makes_the_operation_ready_again(client: Client, stub: StubJournal) -> None:
    with order_turn(client) as turn:
        with pytest.raises(EffectNotSent, match="connection refused"):
            turn.effect("order", raising(NotSent("connection refused")))
        assert stub.only_operation().state == "ready"
        assert isinstance(turn.effect("order", Shop()), Confirmed)


@pytest.mark.parametrize(
    "error",
    [Unknown("half an answer", status=502, body=b"\xff\x00"), TimeoutError("read"), ValueError("x" * 9999)],
)
def test_anything_else_is_unknown_and_typed(client: Client, stub: StubJournal, error: Exception) -> None:
    with order_turn(client) as turn, pytest.raises(OutcomeUnknown) as caught:
        turn.effect("order", raising(error))
    assert caught.value.__cause__ is error
    assert caught.value.case == "case_op_1"
    (report,) = stub.calls("/unknown$")
    assert len(report.body["error"]) <= 2_000
    assert stub.only_run()["state"] == "paused"


def test_only_an_explicit_not_sent_counts_as_not_sent(client: Client, stub: StubJournal) -> None:
    with order_turn(client) as turn, pytest.raises(OutcomeUnknown):
        turn.effect("order", raising(ConnectionRefusedError("refused")))
    assert stub.only_operation().state == "sent_unknown"


@pytest.mark.parametrize("returned", [None, "ok", {"id": 1}, Receipt("", {}), Receipt(7, {})])  # type: ignore[arg-type]
def test_a_return_value_that_is_no_receipt_proves_nothing(
    client: Client, stub: StubJournal, returned: Any
) -> None:
    with order_turn(client) as turn, pytest.raises(OutcomeUnknown):
        turn.effect("order", Shop(lambda go: returned))
    assert len(stub.calls("/unknown$")) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_an_interruption_is_reported_and_then_goes_on(
    client: Client, stub: StubJournal, spool: Path, error: BaseException
) -> None:
    with pytest.raises(type(error)), order_turn(client) as turn:
        turn.effect("order", raising(error))
    assert len(stub.calls("/unknown$")) == 1
    assert files(spool) == []


def test_an_interruption_without_a_journal_leaves_the_report_on_disk(
    client: Client, stub: StubJournal, spool: Path
) -> None:
    stub.fault("POST .*/unknown$", "drop", times=99)
    with pytest.raises(KeyboardInterrupt), order_turn(client) as turn:
        turn.effect("order", raising(KeyboardInterrupt()))
    assert len(files(spool)) == 1
    assert stub.calls("/release$") == []


@pytest.mark.parametrize("body", [math.nan, object(), {"s": "\ud800"}, {"n": {1, 2}}])
def test_a_receipt_that_json_cannot_hold_is_reported_as_unknown(
    client: Client, stub: StubJournal, spool: Path, body: Any
) -> None:
    with order_turn(client) as turn, pytest.raises(OutcomeUnknown, match="can't be journaled"):
        turn.effect("order", Shop(lambda go: Receipt("shop-1", body)))
    (report,) = stub.calls("/unknown$")
    assert "shop-1" in report.body["error"]
    assert files(spool) == []


def test_a_receipt_that_the_journal_cannot_take_is_reported_as_unknown(
    client: Client, stub: StubJournal, spool: Path
) -> None:
    stub.fault("POST .*/receipt$", "status", status=422)
    with order_turn(client) as turn, pytest.raises(OutcomeUnknown):
        turn.effect("order", Shop(lambda go: Receipt("shop-1", {"n": 2**60})))
    (report,) = stub.calls("/unknown$")
    assert "1152921504606846976" in report.body["body"]
    assert files(spool) == []
    assert len(list((spool / "refused").glob("*.json"))) == 1


@pytest.mark.parametrize(
    ("word", "kind"), [("receipt_mismatch", ReceiptMismatch), ("receipt_reused", ReceiptReused)]
)
def test_a_contradicted_receipt_is_acknowledged_and_named(
    client: Client,
    stub: StubJournal,
    spool: Path,
    monkeypatch: pytest.MonkeyPatch,
    word: str,
    kind: type[Exception],
) -> None:
    def refuse(*args: Any) -> Any:
        raise Problem(409, word)

    monkeypatch.setattr(stub, "_report", refuse)
    with order_turn(client) as turn, pytest.raises(kind):
        turn.effect("order", Shop())
    assert files(spool) == []


def test_a_refusal_of_the_second_attempt_settles_nothing(client: Client, stub: StubJournal) -> None:
    with pytest.raises(OutcomeUnknown), order_turn(client) as turn:
        turn.effect("order", raising(TimeoutError()))
    stub.grant()
    shop = raising(Rejected(404, "gone"))
    with order_turn(client) as turn:
        assert turn.call("order").next == "repeat"
        with pytest.raises(OutcomeUnknown, match="attempt 2 was refused, which doesn't settle"):
            turn.effect("order", shop)
    assert [go.attempt for go in shop.asked] == [2]
    assert stub.only_operation().state == "sent_unknown"


def test_a_reply_after_the_lease_is_kept_as_evidence_and_named(client: Client, stub: StubJournal) -> None:
    def slow(go: Go) -> Receipt:
        stub.end_lease()
        return Receipt("late", {})

    with order_turn(client) as turn, pytest.raises(ReportedLate) as caught:
        turn.effect("order", slow)
    assert caught.value.operation_state == "confirmed"
    assert isinstance(caught.value, LeaseLost)
    assert len(stub.evidence) == 1


def test_a_settlement_by_somebody_else_is_read_from_the_plan(
    client: Client, stub: StubJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def elsewhere(body: Any, operation: str, outcome: str) -> Any:
        stub.only_operation().state = "confirmed"
        stub.only_operation().receipt = {"reference": "by-lookup", "body": {}}
        answer = {
            "operation": {"id": operation, "state": "confirmed"},
            "attempt": {"attempt_id": body["attempt_id"], "number": 1, "outcome": outcome},
            "next": "continue",
            "case": None,
            "recorded_as_evidence": True,
            "replayed": False,
        }
        return 202, answer

    monkeypatch.setattr(stub, "_report", elsewhere)
    with order_turn(client) as turn:
        result = turn.effect("order", raising(TimeoutError()))
    assert isinstance(result, Confirmed)
    assert (result.receipt.reference, result.saved) == ("by-lookup", True)


# --- the report on disk -----------------------------------------------------------------------------------


def test_the_report_is_on_disk_before_it_is_first_delivered(
    client: Client, stub: StubJournal, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    report = stub._report

    def look(*args: Any) -> Any:
        seen.append(files(spool))
        return report(*args)

    monkeypatch.setattr(stub, "_report", look)
    with order_turn(client) as turn:
        turn.effect("order", Shop())
    assert [len(names) for names in seen] == [1]
    assert files(spool) == []


def test_an_undelivered_report_is_named_kept_and_stops_the_run(
    client: Client, stub: StubJournal, spool: Path
) -> None:
    shop = Shop()
    with order_turn(client) as turn:
        stub.fault("POST .*/receipt$", "status", status=503, times=5)
        with pytest.raises(ReportNotDelivered) as caught:
            turn.effect("order", shop)
        assert caught.value.spooled is not None
        kept = json.loads(caught.value.spooled.read_text())
        assert json.loads(kept["content"])["reference"] == "shop-key-op_1"
        assert "stub-bearer-token" not in caught.value.spooled.read_text()
        with pytest.raises(ReportNotDelivered):
            turn.effect("order", shop)
    assert len(shop.asked) == 1
    # Leaving delivered it, so the lease could be given back.
    assert files(spool) == []
    assert stub.only_operation().state == "confirmed"
    assert len(stub.calls("/release$")) == 1


def test_the_next_start_delivers_what_was_left(
    make_client: Callable[..., Client], stub: StubJournal, spool: Path
) -> None:
    stub.fault("POST .*/receipt$", "drop", times=99)
    with pytest.raises(ReportNotDelivered), order_turn(make_client(), lease_seconds=5) as turn:
        turn.effect("order", Shop())
    assert len(files(spool)) == 1
    assert stub.calls("/release$") == []
    stub.faults.clear()
    stub.end_lease()
    shop = Shop()
    with order_turn(make_client()) as turn:
        result = turn.effect("order", shop)
        assert result.receipt.reference == "shop-key-op_1"
    assert shop.asked == []
    assert files(spool) == []


def test_a_report_that_can_be_neither_kept_nor_delivered_says_so(
    client: Client, stub: StubJournal, spool: Path
) -> None:
    def break_everything(go: Go) -> Receipt:
        spool.rename(spool.with_name("gone"))
        spool.write_text("a file where the folder was")
        stub.fault("POST .*/receipt$", "drop", times=99)
        return Receipt("shop-1", {})

    with order_turn(client) as turn, pytest.raises(ReportNotDelivered, match="could not be kept") as caught:
        turn.effect("order", break_everything)
    assert caught.value.spooled is None


def test_a_report_that_cannot_be_kept_is_still_delivered(
    client: Client, stub: StubJournal, spool: Path
) -> None:
    def break_spool(go: Go) -> Receipt:
        spool.rename(spool.with_name("gone"))
        spool.write_text("a file where the folder was")
        return Receipt("shop-1", {})

    with order_turn(client) as turn:
        assert isinstance(turn.effect("order", break_spool), Confirmed)


def test_without_a_usable_folder_no_run_starts(make_client: Callable[..., Client], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    client = make_client(spool=tmp_path / "file")
    with pytest.raises(SpoolUnavailable), order_turn(client):
        pass


def test_nothing_is_sent_whose_report_could_not_be_kept(
    client: Client, stub: StubJournal, spool: Path
) -> None:
    shop = Shop()
    client.spool = Spool(spool, reports_max=0)
    with order_turn(client) as turn, pytest.raises(SpoolFull):
        turn.effect("order", shop)
    assert shop.asked == []
    assert stub.calls("/send$") == []


@pytest.mark.parametrize(
    ("body", "posted", "recorded"),
    [
        ({"id": 1}, {"body": {"id": 1}}, {"id": 1}),
        (b'{"id": 1.0}', {"body": '{"id": 1.0}'}, {"id": 1}),
        ("accepted", {"body": "accepted"}, "accepted"),
        ([1, 2], {"body": "[1,2]"}, [1, 2]),
        (None, {"body": "null"}, None),
        (b"\xff\x00", {"body_base64": "/wA="}, None),
    ],
)
def test_a_receipts_record_is_the_same_now_and_in_a_resumed_run(
    client: Client, stub: StubJournal, body: Any, posted: dict[str, Any], recorded: Any
) -> None:
    with order_turn(client) as turn:
        fresh = turn.effect("order", Shop(lambda go: Receipt("r", body)))
    (report,) = stub.calls("/receipt$")
    assert {name: report.body[name] for name in report.body if name.startswith("body")} == posted
    if recorded is not None:
        with order_turn(client) as turn:
            assert turn.effect("order", Shop()).receipt == fresh.receipt == Receipt("r", recorded)


def test_a_record_that_is_too_long_is_reported_as_unknown(client: Client, stub: StubJournal) -> None:
    with order_turn(client) as turn, pytest.raises(OutcomeUnknown, match="at most 131072"):
        turn.effect("order", Shop(lambda go: Receipt("r", b"x" * 200_000)))
    (report,) = stub.calls("/unknown$")
    assert report.body["error"].startswith("receipt 'r' can't be journaled")
