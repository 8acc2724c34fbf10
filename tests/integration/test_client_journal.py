"""The client against the real journal: web server, PostgreSQL and sandbox provider, each a real process."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from console.models import Scope
from reconciliation.accounts import sync_accounts
from recourse_client import (
    AlreadyClaimed,
    Client,
    Confirmed,
    Decided,
    Effect,
    EffectNotSent,
    ExternalIdReused,
    FlowVersionMismatch,
    Go,
    HttpSender,
    JournalUnreachable,
    Money,
    NotSendable,
    NotSent,
    OperationsOpen,
    OutcomeUnknown,
    Patience,
    PreviousTurnOpen,
    ProviderAnswer,
    Read,
    Receipt,
    ReceiptMismatch,
    Refused,
    Rejected,
    ReportNotDelivered,
    RunEnded,
    RunPaused,
    StaleToken,
    TurnAlreadyDecided,
    Unknown,
)
from runs.models import Attempt, Evidence, Operation
from tests.integration.api.world import token
from tests.processes import Server

ORDER = Effect(
    "order",
    tool="place_order",
    provider="sandbox-supplier",
    args={"sku": "FC-20", "quantity": 2, "share": 1.0},
)
PRICE = Read("price", tool="price", args={"sku": "FC-20"})
FAST = Patience(tries_max=3, total_seconds=10, first_pause_seconds=0.05, pause_seconds_max=0.2)


@pytest.fixture
def client(transactional_db: None, web_server: Server, tmp_path: Path) -> Iterator[Client]:
    sync_accounts()
    with Client(
        web_server.url,
        token(Scope.JOURNAL, Scope.READ),
        spool=tmp_path / "spool",
        patience=FAST,
        report_patience=FAST,
        seconds_per_try=20,
    ) as made:
        yield made


class Supplier:
    """Orders at the sandbox, counting how often it was started."""

    def __init__(self, sandbox: Server, **headers: str) -> None:
        self.started: list[Go] = []
        self._send = HttpSender(f"{sandbox.url}/acct/supplier/orders", receipt=self._receipt, headers=headers)

    def __call__(self, go: Go) -> Receipt:
        self.started.append(go)
        return self._send(go)

    @staticmethod
    def _receipt(answer: ProviderAnswer) -> Receipt:
        return Receipt(answer.json()["id"], answer.content)


@pytest.fixture
def supplier(sandbox: Server) -> Supplier:
    return Supplier(sandbox)


def opened(client: Client, **fields: Any) -> Any:
    named = {"flow": "order-agent", "flow_version": "6", "external_id": "ORD-1", "input": {"sku": "FC-20"}}
    return client.run(**{**named, **fields})


def decide(*calls: Effect | Read, **options: Any) -> Any:
    return lambda: Decided({"say": "order it"}, calls or (ORDER,), **options)


def test_one_effect_from_start_to_completion(client: Client, supplier: Supplier) -> None:
    with opened(client, goal="Order coffee", budget=Money("EUR", 10_000)) as run:
        turn = run.turn(1, decide(PRICE, ORDER))
        assert turn.read("price", lambda args: {"minor": 1200, "of": args["sku"]}) == {
            "minor": 1200,
            "of": "FC-20",
        }
        result = turn.effect("order", supplier)
        ended = run.complete({"order": result.receipt.reference})
    assert isinstance(result, Confirmed)
    assert ended.state == "completed"
    (go,) = supplier.started
    assert go.payload_bytes == b'{"quantity":2,"share":1,"sku":"FC-20"}'
    operation = Operation.objects.get()
    assert (operation.state, operation.key) == ("confirmed", go.key)
    assert json.loads(bytes(operation.payload)) == {"quantity": 2, "share": 1, "sku": "FC-20"}
    assert list(client.spool.folder.glob("*.json")) == []


def test_a_resumed_run_sees_what_the_first_saw_and_sends_nothing(client: Client, supplier: Supplier) -> None:
    def forbidden(*_: object) -> Any:
        raise AssertionError("started again")

    with opened(client) as run:
        first = run.turn(1, decide(PRICE, ORDER)).perform(
            reads={"price": lambda args: {"minor": 1200}}, effects={"place_order": supplier}
        )
    with opened(client) as run:
        turn = run.turn(1, forbidden)
        again = turn.perform(reads={"price": forbidden}, effects={"place_order": forbidden})
        assert run.plan.input == {"sku": "FC-20"}
        run.complete(None)
    assert turn.resumed
    assert turn.decision == {"say": "order it"}
    assert again["price"] == first["price"]
    assert again["order"].receipt == first["order"].receipt
    assert len(supplier.started) == 1


def test_an_unknown_outcome_pauses_the_run_and_its_case_is_named(client: Client) -> None:
    def fails(go: Go) -> Receipt:
        raise TimeoutError("no answer")

    with opened(client) as run, pytest.raises(OutcomeUnknown) as caught:
        run.turn(1, decide()).effect("order", fails)
    assert caught.value.case is not None
    with pytest.raises(RunPaused) as paused, opened(client):
        pass
    assert paused.value.reasons == ("outcome",)
    assert paused.value.retry_after_seconds is not None
    assert paused.value.plan is not None


def test_a_refusal_is_the_same_now_and_later(client: Client) -> None:
    def refuses(go: Go) -> Receipt:
        raise Rejected(422, b'{"error": {"code": "sold_out"}}', headers={"X-Request-Id": "r1"})

    with opened(client) as run:
        fresh = run.turn(1, decide()).effect("order", refuses)
    with opened(client) as run:
        saved = run.turn(1, decide()).effect("order", refuses)
        run.complete("nothing to be had")
    assert isinstance(fresh, Refused)
    assert isinstance(saved, Refused)
    assert fresh.refusal == saved.refusal == {"error": {"code": "sold_out"}}


def test_what_was_not_sent_can_be_sent(client: Client, supplier: Supplier) -> None:
    def not_sent(go: Go) -> Receipt:
        raise NotSent("connection refused", phase="connecting")

    with opened(client) as run:
        turn = run.turn(1, decide())
        with pytest.raises(EffectNotSent):
            turn.effect("order", not_sent)
        assert isinstance(turn.effect("order", supplier), Confirmed)
    assert [go.attempt for go in supplier.started] == [2]


def test_a_receipt_for_another_payload_confirms_nothing(client: Client) -> None:
    def other(go: Go) -> Receipt:
        return Receipt(
            "ord_9", {"id": "ord_9", "sku": "XX", "quantity": 9, "share": 1, "status": "succeeded"}
        )

    with opened(client) as run, pytest.raises(ReceiptMismatch):
        run.turn(1, decide()).effect("order", other)
    assert Operation.objects.get().state == "sent_unknown"
    assert list(client.spool.folder.glob("*.json")) == []


def test_another_input_for_a_run_is_refused(client: Client) -> None:
    client.start(flow="order-agent", flow_version="6", external_id="ORD-1", input={"sku": "FC-20"})
    with pytest.raises(ExternalIdReused):
        client.start(flow="order-agent", flow_version="6", external_id="ORD-1", input={"sku": "other"})


def test_a_held_run_names_its_holder(client: Client) -> None:
    with opened(client), pytest.raises(AlreadyClaimed) as held, opened(client):
        pass
    assert held.value.holder == client.worker
    assert held.value.expires_in_ms > 0


def test_another_flow_version_is_refused_with_the_pinned_one(client: Client) -> None:
    with opened(client):
        pass
    with pytest.raises(FlowVersionMismatch) as mismatch, opened(client, flow_version="7"):
        pass
    assert mismatch.value.pinned == "6"


def test_calls_out_of_order_are_refused_with_what_comes_first(client: Client, supplier: Supplier) -> None:
    mail = Effect("mail", "send_mail", "sandbox-mail", {"to": "a@example.com"})
    with opened(client) as run:
        turn = run.turn(1, decide(ORDER, mail))
        with pytest.raises(NotSendable) as blocked:
            turn.effect("mail", supplier)
        with pytest.raises(PreviousTurnOpen):
            run.turn(2, decide())
        with pytest.raises(OperationsOpen):
            run.complete(None)
    first = turn.call("order").operation
    assert first is not None
    assert (blocked.value.reason, blocked.value.blocked_by) == ("blocked_by", first.id)
    assert supplier.started == []


def test_two_that_decide_one_turn_are_told_whose_decision_stands(client: Client) -> None:
    with opened(client) as run:
        run.turn(1, decide())
        # This claim's plan is from before the turn was saved: the model is asked, and answers otherwise.
        with pytest.raises(TurnAlreadyDecided):
            run.turn(1, decide(PRICE))


def test_an_ended_run_is_not_claimed(client: Client) -> None:
    with opened(client) as run:
        run.complete(None)
    with pytest.raises(RunEnded), opened(client):
        pass


def test_reports_of_every_shape_are_taken(client: Client) -> None:
    seen: list[tuple[str, Any]] = [
        ("text", "gateway"),
        ("bytes", b"\xff\x00\x01"),
        ("surrogate", "\ud800 and \x00"),
        ("long", b"x" * 1_000_000),
        ("escapes", "\x01" * 1_000_000),
        ("json", {"n": 2**60}),
        ("nothing", None),
    ]
    for name, body in seen:

        def fails(go: Go, body: Any = body) -> Receipt:
            raise Unknown("e\ud800\x00" * 3000, status=502, headers={"X": "\x00\ud800"}, body=body, phase="p")

        with opened(client, external_id=name) as run, pytest.raises(OutcomeUnknown):
            run.turn(1, decide()).effect("order", fails)
    assert Evidence.objects.count() == len(seen)
    assert list(client.spool.folder.rglob("*.json")) == []


def test_a_receipt_that_the_journal_cannot_take_becomes_an_unknown_outcome(client: Client) -> None:
    def odd(go: Go) -> Receipt:
        return Receipt("ord_1", {"id": 2**60})

    with opened(client) as run, pytest.raises(OutcomeUnknown) as caught:
        run.turn(1, decide()).effect("order", odd)
    assert caught.value.case is not None
    assert Evidence.objects.get().claim == "unknown"


def test_a_report_that_was_kept_is_delivered_by_the_next_start_and_confirms(
    client: Client, supplier: Supplier, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = client._journal.ask

    def unreachable(method: str, path: str, **options: Any) -> Any:
        if path.endswith("/receipt"):
            raise JournalUnreachable("no route", tries=1)
        return ask(method, path, **options)

    monkeypatch.setattr(client._journal, "ask", unreachable)
    with opened(client, lease_seconds=5) as run, pytest.raises(ReportNotDelivered) as caught:
        run.turn(1, decide()).effect("order", supplier)
    assert caught.value.spooled is not None
    assert Operation.objects.get().state == "sent_unknown"
    monkeypatch.undo()
    with opened(client, wait_seconds=30) as run:
        result = run.turn(1, decide()).effect("order", supplier)
        run.complete(None)
    assert isinstance(result, Confirmed)
    assert len(supplier.started) == 1
    assert Attempt.objects.count() == 1


def test_a_stale_token_is_told_apart(client: Client) -> None:
    with opened(client) as run:
        held = run._lease
        assert held is not None
        client._journal.post(f"/runs/{run.id}/release", {"token": held.token})
        with pytest.raises(StaleToken):
            run.turn(1, decide())


def test_work_is_found_by_asking_for_it(client: Client, supplier: Supplier) -> None:
    client.start(flow="order-agent", flow_version="6", external_id="ORD-9", input={"sku": "FC-20"})
    (found,) = client.wait_claimable("order-agent", wait_seconds=1)
    with client.reopen(found.id, flow_version=found.flow_version) as run:
        assert (run.info.external_id, run.plan.input) == ("ORD-9", {"sku": "FC-20"})
        assert client.wait_claimable("order-agent", wait_seconds=0) == []
        run.turn(1, decide()).effect("order", supplier)
        run.complete(None)


class Dropping:
    """Stands between client and journal, passes everything on, and drops the first answer to each call."""

    def __init__(self, upstream: str) -> None:
        self.dropped: list[str] = []
        dropped = self.dropped

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name: self.headers[name] for name in ("Authorization", "Content-Type")}
                answer = httpx.post(upstream + self.path, content=content, headers=headers, timeout=20)
                call = self.path.rsplit("/", 1)[-1]
                if call not in dropped:
                    dropped.append(call)
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self.send_response(answer.status_code)
                self.send_header("Content-Type", answer.headers["Content-Type"])
                self.send_header("Content-Length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def dropping(web_server: Server) -> Iterator[Dropping]:
    between = Dropping(web_server.url)
    yield between
    between.close()


def test_with_every_answer_dropped_once_the_end_is_the_same(
    dropping: Dropping, supplier: Supplier, tmp_path: Path
) -> None:
    sync_accounts()
    secret = token(Scope.JOURNAL, Scope.READ)
    options: dict[str, Any] = {"spool": tmp_path / "spool", "patience": FAST, "report_patience": FAST}
    mail = Effect("mail", "send_mail", "sandbox-mail", {"to": "a@example.com"})

    def refuses(go: Go) -> Receipt:
        raise Rejected(400, b'{"error": "no such address"}')

    with Client(dropping.url, secret, seconds_per_try=20, **options) as client:
        with opened(client) as run:
            turn = run.turn(1, decide(PRICE, ORDER))
            turn.perform(reads={"price": lambda args: 7}, effects={"place_order": supplier})
        with opened(client) as run:
            turn = run.turn(2, decide(mail))
            assert isinstance(turn.effect("mail", refuses), Refused)
            assert run.complete(None).state == "completed"
    assert set(dropping.dropped) == {
        *("runs", "claim", "turns", "result", "send", "receipt", "rejection", "release", "complete")
    }
    assert len(supplier.started) == 1
    assert sorted(Operation.objects.values_list("state", flat=True)) == ["confirmed", "rejected"]
    assert Attempt.objects.count() == 2
    assert Evidence.objects.filter(kind__in=["late_report", "stray_report"]).count() == 0
    assert list((tmp_path / "spool").rglob("*.json")) == []
