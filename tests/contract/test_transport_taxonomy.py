"""Every way a request can fail, on real sockets, and what may be said of it afterwards.

`not_sent` appears only in the rows where the server got no byte of HTTP; every other failure is `unknown`,
also where the server got nothing, because nothing on our side tells those apart.
"""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from reconciliation.providers.base import (
    ANSWER_BYTES_MAX,
    EVIDENCE_BYTES_MAX,
    NotSentSeen,
    Phase,
    ReceiptSeen,
    SendKind,
    SendOutcome,
    UnknownSeen,
)
from reconciliation.providers.http_declared import HttpDeclared
from reconciliation.providers.transport import Transport
from tests.contract.certificates import certificate
from tests.contract.declaring import declare, operation
from tests.contract.fault_server import Conversation, FaultServer, Script, http_answer

SHORT_MS = 600
BIG = b'{"note":"' + b"x" * 20_000_000 + b'"}'


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the table: what the server does, and what must be said of it."""

    script: Script
    kind: SendKind = SendKind.UNKNOWN
    headers_started: bool = True
    phases: tuple[Phase, ...]
    errors: tuple[str, ...]
    status: int | None = None
    payload_bytes: bytes | None = None
    # How many whole requests the server had read; None where it can't count them.
    requests: int = 1


def closes_before_reading(conversation: Conversation) -> None:
    conversation.sock.close()


def reads_all_then_closes(conversation: Conversation) -> None:
    conversation.read_request()


def reads_all_then_resets(conversation: Conversation) -> None:
    conversation.read_request()
    conversation.reset()


def reads_all_then_hangs(conversation: Conversation) -> None:
    conversation.read_request()
    conversation.hold()


def resets_in_mid_body(conversation: Conversation) -> None:
    while conversation.server.bytes_read < 1_000_000:
        conversation.read_some()
    conversation.reset()


def never_reads(conversation: Conversation) -> None:
    conversation.hold()


def cuts_the_headers(conversation: Conversation) -> None:
    conversation.read_request()
    conversation.send(b"HTTP/1.1 200 OK\r\nContent-Le")


def cuts_the_body(conversation: Conversation) -> None:
    conversation.read_request()
    conversation.send(http_answer()[:-10])


def hangs_in_the_body(conversation: Conversation) -> None:
    conversation.read_request()
    conversation.send(http_answer()[:-10])
    conversation.hold()


def speaks_no_http(conversation: Conversation) -> None:
    conversation.read_request()
    conversation.send(b"SSH-2.0-OpenSSH_9.2\r\n")


ROWS = {
    "closes before reading": Row(
        script=closes_before_reading,
        phases=(Phase.SENDING, Phase.WAITING),
        errors=("RemoteProtocolError", "ReadError"),
        requests=0,
    ),
    "reads all, then closes": Row(
        script=reads_all_then_closes, phases=(Phase.WAITING,), errors=("RemoteProtocolError",)
    ),
    "reads all, then resets": Row(
        script=reads_all_then_resets, phases=(Phase.WAITING,), errors=("ReadError",)
    ),
    "reads all, then hangs": Row(
        script=reads_all_then_hangs, phases=(Phase.WAITING,), errors=("ReadTimeout",)
    ),
    "resets in mid body": Row(
        script=resets_in_mid_body,
        phases=(Phase.SENDING, Phase.WAITING),
        errors=("RemoteProtocolError", "ReadError", "WriteError"),
        payload_bytes=BIG,
        requests=0,
    ),
    "never reads": Row(
        script=never_reads, phases=(Phase.SENDING,), errors=("WriteTimeout",), payload_bytes=BIG, requests=0
    ),
    "headers cut off": Row(script=cuts_the_headers, phases=(Phase.WAITING,), errors=("RemoteProtocolError",)),
    "body cut off after 201": Row(
        script=cuts_the_body, phases=(Phase.READING,), errors=("RemoteProtocolError",), status=201
    ),
    "body hangs after 201": Row(
        script=hangs_in_the_body, phases=(Phase.READING,), errors=("ReadTimeout",), status=201
    ),
    "answers in another protocol": Row(
        script=speaks_no_http, phases=(Phase.WAITING,), errors=("RemoteProtocolError",)
    ),
}


def send(folder: Path, url: str, *, transport: Transport | None = None, **changes: object) -> SendOutcome:
    adapter = HttpDeclared(declare(folder, url), sending=transport)
    try:
        return adapter.send(operation(**changes))  # type: ignore[arg-type]
    finally:
        adapter.close()


@pytest.mark.parametrize("name", ROWS)
def test_a_request_that_may_have_arrived_is_unknown(name: str, tmp_path: Path) -> None:
    row = ROWS[name]
    with FaultServer(row.script) as server:
        outcome = send(tmp_path, server.url, payload_bytes=row.payload_bytes, within_ms=SHORT_MS)
        requests = server.requests
    assert outcome.kind is row.kind
    assert outcome.exchange.headers_started is row.headers_started
    assert outcome.exchange.phase in row.phases
    assert outcome.exchange.error_class in row.errors
    assert outcome.exchange.status == row.status
    assert requests == row.requests
    assert server.connections == 1, "one call is one connection: nothing is retried"


def test_a_name_that_does_not_resolve_is_not_sent(tmp_path: Path) -> None:
    outcome = send(tmp_path, "http://no-such-host.invalid", within_ms=4_000)
    assert isinstance(outcome, NotSentSeen)
    assert outcome.exchange.error_class in ("ConnectError", "ConnectTimeout")
    assert not outcome.exchange.headers_started


def test_a_resolver_that_hangs_is_not_sent_and_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def hang(*_: object, **__: object) -> list[object]:
        over.wait(20)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    started = time.monotonic()
    outcome = send(tmp_path, "http://slow-name.test", within_ms=SHORT_MS)
    over.set()
    assert isinstance(outcome, NotSentSeen)
    assert time.monotonic() - started < 10


def test_a_refused_connection_is_not_sent(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    outcome = send(tmp_path, f"http://127.0.0.1:{port}")
    assert isinstance(outcome, NotSentSeen)
    assert outcome.exchange.error_class == "ConnectError"
    assert outcome.exchange.phase is Phase.CONNECT


def test_a_connect_that_times_out_is_not_sent(tmp_path: Path) -> None:
    # With its queue of pending connections full, Linux drops further requests to connect.
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    pending = []
    for _ in range(4):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(full.getsockname())
        pending.append(one)
    try:
        outcome = send(tmp_path, f"http://127.0.0.1:{full.getsockname()[1]}", within_ms=SHORT_MS)
    finally:
        for one in [*pending, full]:
            one.close()
    assert isinstance(outcome, NotSentSeen)
    assert outcome.exchange.error_class == "ConnectTimeout"
    assert outcome.exchange.phase is Phase.CONNECT


def test_an_exhausted_pool_is_not_sent(tmp_path: Path) -> None:
    transport = Transport(keep_alive=False, connections_max=1)
    with FaultServer(reads_all_then_hangs) as server:
        adapter = HttpDeclared(declare(tmp_path, server.url), sending=transport)
        first: list[SendOutcome] = []
        thread = threading.Thread(
            target=lambda: first.append(adapter.send(operation(within_ms=3 * SHORT_MS)))
        )
        thread.start()
        assert server.request_read.wait(5)
        second = adapter.send(operation(within_ms=SHORT_MS // 2))
        thread.join(10)
        adapter.close()
        assert server.requests == 1
    assert isinstance(second, NotSentSeen)
    assert second.exchange.error_class == "PoolTimeout"
    assert second.exchange.phase is Phase.POOL
    assert isinstance(first[0], UnknownSeen)


def test_a_tls_handshake_that_is_never_answered_is_not_sent(tmp_path: Path) -> None:
    with FaultServer(never_reads) as server:
        outcome = send(tmp_path, server.url.replace("http://", "https://"), within_ms=SHORT_MS)
    assert isinstance(outcome, NotSentSeen)
    assert outcome.exchange.error_class == "ConnectTimeout"
    assert outcome.exchange.phase is Phase.CONNECT


def test_a_tls_handshake_that_fails_is_not_sent(tmp_path: Path) -> None:
    def answers_plainly(conversation: Conversation) -> None:
        conversation.read_some()
        conversation.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with FaultServer(answers_plainly) as server:
        outcome = send(tmp_path, server.url.replace("http://", "https://"))
    assert isinstance(outcome, NotSentSeen)
    assert outcome.exchange.error_class == "ConnectError"


def test_a_certificate_that_is_not_trusted_is_not_sent(tmp_path: Path) -> None:
    with FaultServer(reads_all_then_closes, tls=certificate(tmp_path).server) as server:
        outcome = send(tmp_path, server.url)
        assert server.requests == 0
    assert isinstance(outcome, NotSentSeen)
    assert outcome.exchange.error_class == "ConnectError"


def test_a_kept_connection_that_dies_on_its_second_request_is_unknown(tmp_path: Path) -> None:
    def answers_once(conversation: Conversation) -> None:
        conversation.read_request()
        conversation.send(http_answer())
        conversation.read_request()

    with FaultServer(answers_once) as server:
        adapter = HttpDeclared(declare(tmp_path, server.url), sending=Transport(keep_alive=True))
        first = adapter.send(operation())
        second = adapter.send(operation())
        adapter.close()
        assert (server.connections, server.requests) == (1, 2)
    assert isinstance(first, ReceiptSeen)
    assert isinstance(second, UnknownSeen)
    assert second.exchange.error_class == "RemoteProtocolError"
    assert second.exchange.headers_started


def test_sending_takes_a_connection_of_its_own_each_time(tmp_path: Path) -> None:
    def answers(conversation: Conversation) -> None:
        while True:
            conversation.read_request()
            conversation.send(http_answer())

    with FaultServer(answers) as server:
        adapter = HttpDeclared(declare(tmp_path, server.url))
        outcomes = [adapter.send(operation()) for _ in range(3)]
        adapter.close()
        assert server.connections == 3
    assert all(isinstance(one, ReceiptSeen) for one in outcomes)


# --- the time to start, and the time for all ---------------------------------------------------------------


def test_past_its_start_window_nothing_is_sent(tmp_path: Path) -> None:
    with FaultServer(reads_all_then_closes) as server:
        outcome = send(tmp_path, server.url, start_in_seconds=-0.001)
        assert server.connections == 0
    assert isinstance(outcome, NotSentSeen)
    assert outcome.exchange.error_class == "StartWindowPassed"
    assert outcome.exchange.phase is Phase.NOT_STARTED


def test_a_start_window_that_passes_while_connecting_stops_before_the_first_byte(tmp_path: Path) -> None:
    handshake = threading.Event()
    pair = certificate(tmp_path)
    transport = Transport(keep_alive=False, ssl_context=pair.client)
    with FaultServer(reads_all_then_closes, tls=pair.server, handshake_after=handshake) as server:
        threading.Timer(0.5, handshake.set).start()
        outcome = send(tmp_path, server.url, transport=transport, start_in_seconds=0.2)
        assert server.connections == 1
    assert (server.bytes_read, server.requests) == (0, 0)
    assert isinstance(outcome, NotSentSeen)
    assert outcome.exchange.error_class == "StartWindowPassed"


def test_over_tls_a_receipt_is_read_like_any_other(tmp_path: Path) -> None:
    def answers(conversation: Conversation) -> None:
        conversation.read_request()
        conversation.send(http_answer())

    pair = certificate(tmp_path)
    with FaultServer(answers, tls=pair.server) as server:
        outcome = send(tmp_path, server.url, transport=Transport(keep_alive=False, ssl_context=pair.client))
    assert isinstance(outcome, ReceiptSeen)


@pytest.mark.parametrize("part", ["head", "body"])
def test_a_peer_that_sends_a_byte_now_and_then_is_cut_off_at_the_deadline(part: str, tmp_path: Path) -> None:
    answer = http_answer()
    start = 0 if part == "head" else answer.index(b"\r\n\r\n") + 4

    def dribbles(conversation: Conversation) -> None:
        conversation.read_request()
        conversation.send(answer[:start])
        for at in range(start, len(answer)):
            if conversation.server.over.wait(0.2):
                return
            conversation.send(answer[at : at + 1])

    started = time.monotonic()
    with FaultServer(dribbles) as server:
        outcome = send(tmp_path, server.url, within_ms=SHORT_MS)
    assert isinstance(outcome, UnknownSeen)
    assert outcome.exchange.error_class == "ReadTimeout"
    # Byte by byte the whole answer takes more than half a minute.
    assert time.monotonic() - started < 10


# --- answers that want to do harm ---


def answering(body: bytes, **changes: str) -> Script:
    def answer(conversation: Conversation) -> None:
        conversation.read_request()
        conversation.send(http_answer(body, **changes))

    return answer


HOSTILE = {
    "deep nesting": b"[" * 100_000 + b"]" * 100_000,
    "five thousand digits": b'{"id":' + b"9" * 5000 + b"}",
    "a name twice": b'{"id":"ord_1","id":"ord_2"}',
    "NUL": b'{"id":"ord_1\\u0000"}',
    "lone surrogate": b'{"id":"\\ud800"}',
    "NaN": b'{"id":NaN}',
    "not JSON": b"<html><script>alert(1)</script></html>",
    "empty": b"",
    "not UTF-8": b'{"id":"\xff"}',
    "a list": b"[1,2,3]",
    "null": b"null",
    "id is an object": b'{"id":{"a":1},"status":"succeeded","idempotency_key":"rk-test"}',
    "id is true": b'{"id":true,"status":"succeeded","idempotency_key":"rk-test"}',
    "id is too long": b'{"id":"' + b"a" * 300 + b'","status":"succeeded","idempotency_key":"rk-test"}',
    "id has control characters": b'{"id":"a\\u001b[31m","status":"succeeded","idempotency_key":"rk-test"}',
    "more than a megabyte": b'{"id":"ord_1","note":"' + b"x" * (ANSWER_BYTES_MAX + 1) + b'"}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_answer_that_cannot_be_read_safely_is_unknown_and_kept_bounded(name: str, tmp_path: Path) -> None:
    with FaultServer(answering(HOSTILE[name])) as server:
        outcome = send(tmp_path, server.url)
    assert isinstance(outcome, UnknownSeen)
    assert outcome.receipt is None
    assert outcome.exchange.status == 201
    kept = outcome.exchange.body
    assert len(kept.encode()) <= EVIDENCE_BYTES_MAX
    assert "\x00" not in kept
    assert outcome.exchange.body_length <= ANSWER_BYTES_MAX
    assert outcome.exchange.body_cut == (len(HOSTILE[name]) > EVIDENCE_BYTES_MAX)


def test_a_compressed_answer_that_nobody_asked_for_is_unknown(tmp_path: Path) -> None:
    with FaultServer(answering(b"\x1f\x8b\x08\x00", extra="Content-Encoding: gzip\r\n")) as server:
        outcome = send(tmp_path, server.url)
    assert isinstance(outcome, UnknownSeen)


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent"])
def test_a_redirect_is_unknown_and_never_followed(status: str, tmp_path: Path) -> None:
    with FaultServer(answering(b"{}")) as other:
        moved = f"Location: {other.url}/orders\r\n"
        with FaultServer(answering(b"", status=status, extra=moved)) as server:
            outcome = send(tmp_path, server.url)
            assert server.requests == 1
        assert other.connections == 0
    assert isinstance(outcome, UnknownSeen)


def test_a_proxy_named_in_the_environment_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FaultServer(reads_all_then_closes) as proxy, FaultServer(answering_receipt()) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        outcome = send(tmp_path, server.url)
        assert proxy.connections == 0
    assert isinstance(outcome, ReceiptSeen)


def answering_receipt() -> Script:
    def answer(conversation: Conversation) -> None:
        conversation.read_request()
        conversation.send(http_answer())

    return answer


def test_a_cookie_that_a_provider_sets_is_never_sent_back(tmp_path: Path) -> None:
    heads: list[bytes] = []

    def sets_a_cookie(conversation: Conversation) -> None:
        heads.append(conversation.read_request())
        conversation.send(http_answer(extra="Set-Cookie: session=abc; Path=/\r\n"))

    with FaultServer(sets_a_cookie) as server:
        adapter = HttpDeclared(declare(tmp_path, server.url))
        outcomes = [adapter.send(operation()) for _ in range(2)]
        adapter.close()
    assert len(heads) == 2
    assert b"cookie" not in heads[1].lower()
    assert "abc" not in str(outcomes[0].exchange.as_json())
