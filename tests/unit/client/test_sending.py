"""The ready-made HTTP sender on real sockets: what it may call not sent, refused, a receipt, or unknown."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from recourse_client import Go, HttpSender, NotSent, ProviderAnswer, Receipt, Rejected, Unknown

PAYLOAD = '{"count":2,"name":"Zoë  ","n":1.50}'.encode()
Behave = Callable[[socket.socket, bytes], None]


class Provider:
    """One raw socket that behaves as told and keeps what it received."""

    def __init__(self, behave: Behave, *, reads: bool = True, tls: ssl.SSLContext | None = None) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.received: list[bytes] = []
        self.connections = 0
        self.one_is_over = threading.Event()
        self._behave, self._reads, self._tls = behave, reads, tls
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/orders?x=1"

    def close(self) -> None:
        # Closing alone wouldn't wake the thread that accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                wire, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._one, args=[wire], daemon=True).start()

    def _one(self, wire: socket.socket) -> None:
        try:
            if self._tls is not None:
                wire = self._tls.wrap_socket(wire, server_side=True)
            request = _read_request(wire) if self._reads else b""
            self.received.append(request)
            self._behave(wire, request)
        except OSError:
            pass
        finally:
            wire.close()
            self.one_is_over.set()


def _read_request(wire: socket.socket) -> bytes:
    got = b""
    while b"\r\n\r\n" not in got:
        got += _some(wire)
    head, _, body = got.partition(b"\r\n\r\n")
    length = int(
        next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))[15:]
    )
    while len(body) < length:
        body += _some(wire)
    return head + b"\r\n\r\n" + body


def _some(wire: socket.socket) -> bytes:
    got = wire.recv(65536)
    if not got:
        raise ConnectionError("the client left")
    return got


@contextmanager
def provider(behave: Behave, **options: Any) -> Iterator[Provider]:
    served = Provider(behave, **options)
    try:
        yield served
    finally:
        served.close()


def answers(status: int, body: bytes = b'{"id": "ord_1"}', more: str = "") -> Behave:
    def behave(wire: socket.socket, request: bytes) -> None:
        head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{more}\r\n"
        wire.sendall(head.encode() + body)

    return behave


def go(*, attempt: int = 1, within: float = 5.0, why_not: Callable[[], str | None] = lambda: None) -> Go:
    return Go(
        operation="op_1",
        attempt_id="att_1",
        attempt=attempt,
        call_id="c",
        tool="t",
        provider="p",
        key="op-key-1",
        payload=json.loads(PAYLOAD),
        payload_bytes=PAYLOAD,
        request_within_seconds=within,
        _why_not=why_not,
    )


def order_receipt(answer: ProviderAnswer) -> Receipt:
    body = answer.json()
    return Receipt(body["id"], body)


def sender(url: str, **options: Any) -> HttpSender:
    return HttpSender(url, **{"receipt": order_receipt, **options})


# --- what leaves ------------------------------------------------------------------------------------------


def test_key_and_payload_leave_exactly_as_given_in_one_request() -> None:
    with provider(answers(201)) as served:
        receipt = sender(served.url, headers={"Authorization": "Bearer secret"})(go())
    assert receipt == Receipt("ord_1", {"id": "ord_1"})
    (request,) = served.received
    head, _, body = request.partition(b"\r\n\r\n")
    lines = head.decode().lower().split("\r\n")
    assert body == PAYLOAD
    assert lines[0] == "post /orders?x=1 http/1.1"
    assert "idempotency-key: op-key-1" in lines
    assert "authorization: bearer secret" in lines
    assert "content-type: application/json" in lines
    assert "accept-encoding: identity" in lines


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"key_quoted": True}, 'idempotency-key: "op-key-1"'),
        ({"key_header": "PayPal-Request-Id"}, "paypal-request-id: op-key-1"),
        ({"key_header": None}, ""),
        ({"method": "PUT"}, "put /orders?x=1 http/1.1"),
    ],
)
def test_the_key_goes_where_the_provider_wants_it(options: dict[str, Any], line: str) -> None:
    with provider(answers(200)) as served:
        sender(served.url, **options)(go())
    lines = served.received[0].partition(b"\r\n\r\n")[0].decode().lower().split("\r\n")
    assert line in [*lines, ""]
    assert len([one for one in lines if "op-key-1" in one]) == (options.get("key_header", "x") is not None)


def test_the_address_may_depend_on_the_operation() -> None:
    with provider(answers(200)) as served:
        HttpSender(lambda one: f"http://127.0.0.1:{served.port}/{one.key}", receipt=order_receipt)(go())
    assert served.received[0].startswith(b"POST /op-key-1 ")


def test_nothing_in_the_environment_changes_the_request(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password else\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with provider(answers(200)) as served:
        sender(served.url)(go())
    assert b"authorization" not in served.received[0].lower()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with provider(answers(200)) as other:
        location = f"Location: http://127.0.0.1:{other.port}/\r\n"
        with provider(answers(status, more=location)) as served, pytest.raises(Unknown) as caught:
            sender(served.url)(go())
    assert caught.value.seen.status == status
    assert other.received == []
    assert len(served.received) == 1


def test_each_request_has_its_own_connection_and_no_cookie_comes_back() -> None:
    with provider(answers(200, more="Set-Cookie: s=1\r\n")) as served:
        send = sender(served.url)
        send(go())
        send(go())
    assert served.connections == 2
    assert b"cookie" not in served.received[1].lower()


# --- what the status says ---------------------------------------------------------------------------------


@pytest.mark.parametrize("attempt", [1, 2])
@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 406, 410, 411, 413, 422, 423, 428, 451])
def test_a_definite_4xx_is_a_rejection_of_its_attempt(status: int, attempt: int) -> None:
    with provider(answers(status, b'{"error": "no"}')) as served, pytest.raises(Rejected) as caught:
        sender(served.url)(go(attempt=attempt))
    assert (caught.value.seen.status, caught.value.seen.body) == (status, b'{"error": "no"}')


@pytest.mark.parametrize("status", [407, 408, 409, 421, 425, 429, 500, 501, 502, 503, 504, 520, 599])
def test_any_other_status_leaves_the_outcome_unknown(status: int) -> None:
    with provider(answers(status, b"busy")) as served, pytest.raises(Unknown) as caught:
        sender(served.url)(go())
    assert (caught.value.seen.status, caught.value.seen.body) == (status, b"busy")
    assert len(served.received) == 1


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"{}", b"[]", b'{"id": ', b"\xff", b'{"id": null}', b'{"id": 7}']
)
def test_a_2xx_without_a_receipt_that_can_be_read_is_unknown(body: bytes) -> None:
    def read(answer: ProviderAnswer) -> Receipt:
        found = answer.json()["id"]
        assert isinstance(found, str)
        return Receipt(found, {})

    with provider(answers(200, body)) as served, pytest.raises(Unknown) as caught:
        sender(served.url, receipt=read)(go())
    assert caught.value.seen.status == 200


def test_a_2xx_can_carry_a_refusal_but_never_a_not_sent() -> None:
    def refused(answer: ProviderAnswer) -> Receipt:
        raise Rejected(answer.status, answer.content)

    def not_sent(answer: ProviderAnswer) -> Receipt:
        raise NotSent("the provider says it didn't")

    with provider(answers(200, b'{"errors": ["no"]}')) as served:
        with pytest.raises(Rejected):
            sender(served.url, receipt=refused)(go())
        with pytest.raises(Unknown):
            sender(served.url, receipt=not_sent)(go())
        with pytest.raises(Unknown):
            sender(served.url, receipt=lambda answer: None)(go())


# --- what never left --------------------------------------------------------------------------------------


def test_connection_refused_is_not_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(NotSent) as caught:
        sender(f"http://127.0.0.1:{port}/")(go())
    assert caught.value.seen.phase == "connecting"


def test_a_name_that_does_not_resolve_is_not_sent() -> None:
    with pytest.raises(NotSent):
        sender("http://no-such-host.invalid/")(go())


@pytest.mark.parametrize("url", ["", "orders", "ftp://x/", "http://[::1/"])
def test_a_request_that_cannot_be_built_is_not_sent_or_at_least_not_claimed_sent(url: str) -> None:
    with pytest.raises((NotSent, Unknown)):
        sender(url)(go())


def test_a_tls_handshake_that_never_ends_is_not_sent() -> None:
    stop = threading.Event()

    def stall(wire: socket.socket, request: bytes) -> None:
        stop.wait(20)

    with provider(stall, reads=False) as served:
        with pytest.raises(NotSent):
            sender(f"https://127.0.0.1:{served.port}/", verify=False, connect_seconds=0.3)(go())
        stop.set()


def test_a_certificate_that_is_not_trusted_is_not_sent(tls: ssl.SSLContext) -> None:
    with provider(answers(200), tls=tls) as served, pytest.raises(NotSent):
        sender(served.url)(go())
    assert served.received == []


def test_a_window_that_passes_while_connecting_sends_nothing() -> None:
    asked: list[None] = []

    def why_not() -> str | None:
        asked.append(None)
        return "the start window has passed"

    with provider(answers(200)) as served:
        with pytest.raises(NotSent, match="start window"):
            sender(served.url)(go(why_not=why_not))
        assert served.one_is_over.wait(20)
    assert len(asked) == 1
    assert served.connections == 1
    assert served.received == []


# --- what may have arrived --------------------------------------------------------------------------------


def closes(wire: socket.socket, request: bytes) -> None:
    pass


def resets(wire: socket.socket, request: bytes) -> None:
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def half_headers(wire: socket.socket, request: bytes) -> None:
    wire.sendall(b"HTTP/1.1 200 OK\r\nContent-Le")


def half_body(wire: socket.socket, request: bytes) -> None:
    wire.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"id": "ord_1"}')


def not_http(wire: socket.socket, request: bytes) -> None:
    wire.sendall(b"SSH-2.0-server\r\n")


@pytest.mark.parametrize("behave", [closes, resets, half_headers, half_body, not_http])
def test_a_broken_answer_is_unknown(behave: Behave) -> None:
    with provider(behave) as served, pytest.raises(Unknown):
        sender(served.url)(go())
    assert len(served.received) == 1


def test_a_server_that_closes_before_reading_is_unknown_too() -> None:
    with provider(closes, reads=False) as served, pytest.raises(Unknown):
        sender(served.url)(go())


def test_a_cut_body_keeps_the_status_that_was_seen() -> None:
    with provider(half_body) as served, pytest.raises(Unknown) as caught:
        sender(served.url)(go())
    seen = caught.value.seen
    assert (seen.status, seen.body, seen.phase) == (200, b'{"id": "ord_1"}', "reading_body")


def drips(wire: socket.socket, request: bytes) -> None:
    wire.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    for _ in range(200):
        wire.sendall(b" ")
        time.sleep(0.05)


def drips_headers(wire: socket.socket, request: bytes) -> None:
    wire.sendall(b"HTTP/1.1 200 OK\r\n")
    for number in range(200):
        wire.sendall(f"X-{number}: x\r\n".encode())
        time.sleep(0.05)


def hangs(wire: socket.socket, request: bytes) -> None:
    time.sleep(10)


@pytest.mark.parametrize("behave", [drips, drips_headers, hangs])
def test_the_whole_exchange_ends_when_the_requests_time_is_over(behave: Behave) -> None:
    with provider(behave) as served:
        began = time.monotonic()
        with pytest.raises(Unknown):
            sender(served.url)(go(within=0.5))
        assert time.monotonic() - began < 5


def test_over_tls_the_exchange_ends_in_time_too(tls: ssl.SSLContext) -> None:
    with provider(drips_headers, tls=tls) as served:
        began = time.monotonic()
        with pytest.raises(Unknown):
            sender(served.url, verify=False)(go(within=0.5))
        assert time.monotonic() - began < 5


def test_an_answer_without_an_end_is_given_up() -> None:
    def floods(wire: socket.socket, request: bytes) -> None:
        wire.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            wire.sendall(b" " * 65536)

    with provider(floods) as served, pytest.raises(Unknown, match="longer than"):
        sender(served.url)(go())


def test_over_tls_a_receipt_is_a_receipt(tls: ssl.SSLContext) -> None:
    with provider(answers(200), tls=tls) as served:
        assert sender(served.url, verify=False)(go()).reference == "ord_1"


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """A server's context with a certificate that nobody trusts."""
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    pem = folder / "both.pem"
    encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    pem.write_bytes(
        key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain)
        + certificate.public_bytes(encoding)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context


def test_a_4xx_whose_body_makes_it_no_refusal_is_unknown() -> None:
    def key_reused(answer: ProviderAnswer) -> bool:
        code: str = answer.json()["error"]["code"]
        return code == "key_reused"

    for body, kind in [
        (b'{"error": {"code": "key_reused"}}', Unknown),
        (b'{"error": {"code": "sold_out"}}', Rejected),
        (b"<html>", Unknown),
    ]:
        with provider(answers(422, body)) as served, pytest.raises(kind):
            sender(served.url, undecided=key_reused)(go())
