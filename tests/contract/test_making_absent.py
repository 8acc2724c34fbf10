"""Requests that make an effect absent: what is sent, and what each answer is taken to say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from console.sandbox.control import SandboxControl
from reconciliation.providers.base import AbsenceKind, AbsenceSeen, OutgoingOperation, elapsed_seconds
from reconciliation.providers.declaration import read_file
from reconciliation.providers.http_declared import HttpDeclared
from reconciliation.providers.registry import SHIPPED
from runs.canonical import canonical_bytes
from tests.contract import absences
from tests.contract.fault_server import FaultServer
from tests.contract.matrix import contract_row
from tests.contract.scripted import Scripted, answer
from tests.contract.stub.square import SquareStub
from tests.contract.subjects.stubbed import SquareBench
from tests.processes import Server
from tests.sandbox_client import new_client

KEY, OPERATION = "k-01", "op_01"
PAYLOAD = {"source_id": "cnon:1", "amount_money": {"amount": 1200, "currency": "EUR"}}


def adapter(slug: str, **environ: str) -> HttpDeclared:
    path: Path = next(SHIPPED.rglob(f"{slug}.toml"))
    return HttpDeclared(read_file(path, shown_as=path.name, environ=environ))


def make_absent(made: HttpDeclared, *, key: str = KEY) -> AbsenceSeen:
    seen = made.make_absent(
        OutgoingOperation(
            operation_id=OPERATION,
            idempotency_key=key,
            tool="payment",
            payload_bytes=canonical_bytes(PAYLOAD),
            payload=PAYLOAD,
            amount=None,
            attempt_id="abs_01",
            attempt_number=1,
            start_by=elapsed_seconds() + 10,
            request_within_ms=10_000,
        )
    )
    made.close()
    return seen


@pytest.fixture
def bench() -> Iterator[SquareBench]:
    made = SquareBench(SquareStub())
    yield made
    made.close()


@contract_row(absences.SQUARE)
def test_squares_payment_is_cancelled_by_its_key_and_its_silence_succeeds_too(bench: SquareBench) -> None:
    bench.waits = False
    order = bench.order()
    sent = bench.receipt(bench.send(order)).reference
    square = adapter("square", SQUARE_URL=bench.peer_url, SQUARE_ACCESS_TOKEN="t-1")
    assert make_absent(square, key=order.key).kind is AbsenceKind.ABSENT
    (payment,) = bench.stub.payments
    assert (payment["id"], payment["status"]) == (sent, "CANCELED")
    again = adapter("square", SQUARE_URL=bench.peer_url, SQUARE_ACCESS_TOKEN="t-1")
    assert make_absent(again, key="never-used").kind is AbsenceKind.ABSENT


@contract_row(absences.SANDBOX)
def test_the_sandbox_undoes_what_a_key_has_made_and_counts_it_apart(sandbox: Server) -> None:
    with SandboxControl(sandbox.url) as control, new_client(sandbox.url) as client:
        headers = {"Idempotency-Key": KEY}
        made = client.post("/acct/payments/refunds", json={"amount_minor": 500}, headers=headers)
        assert made.status_code == 201
        payments = adapter("sandbox-payments", SANDBOX_URL=sandbox.url)
        assert make_absent(payments).kind is AbsenceKind.ABSENT
        counted = control.stats("payments", key=KEY)
        assert (counted.requests, counted.effects, counted.cancels, counted.undone) == (1, 1, 1, 1)
        refused = client.post("/acct/payments/refunds", json={"amount_minor": 500}, headers=headers)
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "key_cancelled")
        (shown,) = control.effects("payments", key=KEY)
        assert (shown.status, shown.receipt["status"]) == ("canceled", "canceled")


def test_squares_request_names_the_key_and_carries_nothing_of_the_payload() -> None:
    peer = Scripted(answer({}))
    with FaultServer(peer) as server:
        seen = make_absent(adapter("square", SQUARE_URL=server.url, SQUARE_ACCESS_TOKEN="t-1"))
    (asked,) = peer.asked
    assert (asked.method, asked.path) == ("POST", "/v2/payments/cancel")
    assert asked.body == b'{"idempotency_key":"k-01"}'
    assert asked.headers["authorization"] == "Bearer t-1"
    assert dict(seen.exchange.request_headers)["Authorization"] == "[redacted]"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (answer({}), AbsenceKind.ABSENT),
        (answer({"errors": [{"code": "INTERNAL_SERVER_ERROR"}]}), AbsenceKind.UNKNOWN),
        # From whatever stands before the provider.
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n<html>ok!", AbsenceKind.UNKNOWN),
        (answer({}, status="201 Created"), AbsenceKind.UNKNOWN),
        (answer({"errors": [{"code": "NOT_FOUND"}]}, status="404 Not Found"), AbsenceKind.REFUSED),
        (answer({}, status="409 Conflict"), AbsenceKind.UNKNOWN),
        (answer({}, status="429 Too Many"), AbsenceKind.UNKNOWN),
        (answer({}, status="500 Oops"), AbsenceKind.UNKNOWN),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{}", AbsenceKind.UNKNOWN),
        (b"", AbsenceKind.UNKNOWN),
    ],
)
def test_only_a_declared_answer_says_that_it_is_absent(said: bytes, kind: AbsenceKind) -> None:
    with FaultServer(Scripted(said, hangs_up=True)) as server:
        seen = make_absent(adapter("square", SQUARE_URL=server.url, SQUARE_ACCESS_TOKEN="t-1"))
    assert seen.kind is kind, seen.summary


def test_what_could_not_be_connected_to_never_left() -> None:
    seen = make_absent(adapter("square", SQUARE_URL="http://127.0.0.1:9", SQUARE_ACCESS_TOKEN="t-1"))
    assert seen.kind is AbsenceKind.NOT_SENT


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", AbsenceKind.ABSENT),
        (answer({"status": "gone"}, status="404 Not Found"), AbsenceKind.ABSENT),
        # Whatever stands before the provider says "not found" as well, of an address that it doesn't know.
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\n<html>no!", AbsenceKind.UNKNOWN),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 90\r\n\r\n{}", AbsenceKind.UNKNOWN),
        (
            b'HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\nContent-Encoding: br\r\n\r\n{"a":"b"}',
            AbsenceKind.UNKNOWN,
        ),
    ],
)
def test_a_page_of_somebody_else_is_no_proof_where_only_a_status_is_declared(
    tmp_path: Path, said: bytes, kind: AbsenceKind
) -> None:
    source = next(SHIPPED.rglob("square.toml")).read_text()
    head, _, tail = source.partition("absent = [{ statuses = [200] }]")
    path = tmp_path / "square.toml"
    path.write_text(head + "absent = [{ statuses = [404] }]" + tail)
    with FaultServer(Scripted(said, hangs_up=True)) as server:
        environ = {"SQUARE_URL": server.url, "SQUARE_ACCESS_TOKEN": "t-1"}
        seen = make_absent(HttpDeclared(read_file(path, shown_as=path.name, environ=environ)))
    assert seen.kind is kind, seen.summary
