"""The sandbox's HTTP: hostile requests get an answer that says why, and the next caller gets served."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest

from console.sandbox.control import SandboxControl
from console.sandbox.process import SandboxProcess
from tests.corpus.hostile_bodies import HOSTILE_BODIES, HostileBody
from tests.processes import until
from tests.sandbox_client import ORDER, Sender


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxControl]:
    folder = tmp_path_factory.mktemp("sandbox")
    process = SandboxProcess.start(store=folder / "store.sqlite3", log=folder / "stderr")
    with process.control() as control:
        yield control
        # Whatever the tests of this module sent, it still serves and it never had to report a defect.
        assert httpx.get(f"{control.url}/healthz").json()["status"] == "ok"
    assert process.stop() == 0
    assert (folder / "stderr").read_text() == ""


@pytest.fixture
def sender(control: SandboxControl, unique: str) -> Iterator[Sender]:
    with closing(Sender(control, unique)) as sender:
        yield sender


def talk(sender: Sender, said: bytes) -> bytes:
    """Send bytes on a connection of their own, then read to its end."""
    heard = b""
    with closing(sender.connect()) as connection:
        connection.sendall(said)
        while chunk := connection.recv(65536):
            heard += chunk
    return heard


def post(sender: Sender, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"POST /acct/{sender.account}/orders HTTP/1.1", "Host: sandbox", "Idempotency-Key: k", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


@pytest.mark.parametrize("hostile", HOSTILE_BODIES, ids=str)
def test_a_hostile_body_is_refused_with_a_reason_and_makes_nothing(
    sender: Sender, hostile: HostileBody
) -> None:
    headers = {"Idempotency-Key": "k", "Content-Type": "application/json"}
    answer = sender.http.post("/orders", content=hostile.body, headers=headers)
    if answer.status_code == 201:
        # Readable after all: any object is a payload here.
        assert json.loads(hostile.body).items() <= answer.json().items()
    else:
        assert 400 <= answer.status_code < 500
        assert answer.json()["error"]["message"]
        assert sender.control.stats(sender.account).effects == 0
    for path in ("/admin/faults", "/admin/effects", f"/admin/accounts/{sender.account}"):
        answer = sender.http.post(sender.control.url + path, content=hostile.body, headers=headers)
        if answer.status_code != 200:  # an account's settings may all stay as they are
            assert 400 <= answer.status_code < 500
            assert answer.json()["error"]["message"]
    assert sender.control.faults() == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1, "a": 1}', "same key twice"),
        ('{"a": {"b": 1, "b": 2}}', "same key twice"),
        ('{"a": NaN}', "NaN"),
        ('{"a": -Infinity}', "Infinity"),
        ('{"a": 1e999}', "too large"),
        ('{"a": "\\u0000"}', "NUL"),
        ('{"a": "\\ud800"}', "surrogate"),
        ('{"\\udfff": 1}', "surrogate"),
        ("[1]", "not an object"),
        ('"text"', "not an object"),
        ('{"a": ' + "9" * 5000 + "}", "digits"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "deeper"),
        ('{"a": ' + "[" * 70 + "]" * 70 + "}", "deeper"),
        ("", "Expecting value"),
        ('{"a": 1', "delimiter"),
    ],
    ids=lambda value: value[:24],
)
def test_a_body_that_is_not_strict_json_is_counted_and_refused(
    sender: Sender, text: str, reason: str
) -> None:
    url = f"{sender.control.account_url(sender.account)}/orders"
    answer = sender.http.post(url, content=text.encode(), headers={"Idempotency-Key": "k"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")
    assert reason in answer.json()["error"]["message"]
    stats = sender.control.stats(sender.account)
    assert (stats.requests, stats.effects) == (1, 0)


def test_a_body_at_the_limit_is_taken_and_one_byte_more_is_not(sender: Sender) -> None:
    limit = 1024 * 1024
    url = f"{sender.control.account_url(sender.account)}/orders"
    frame = len('{"a":""}')
    fits = '{"a":"' + "x" * (limit - frame) + '"}'
    assert sender.http.post(url, content=fits, headers={"Idempotency-Key": "fits"}).status_code == 201
    answer = sender.http.post(url, content=fits + " ", headers={"Idempotency-Key": "over"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")


def test_who_sends_ten_megabytes_can_send_them_all_and_reads_why_they_were_refused(sender: Sender) -> None:
    heard = talk(sender, post(sender, "Content-Length: 10000000", body=b" " * 10_000_000))
    assert heard.startswith(b"HTTP/1.1 413 ")
    assert b'"too_large"' in heard
    assert sender.control.stats(sender.account).requests == 1


def test_a_body_that_stops_in_the_middle_is_an_incomplete_request(sender: Sender) -> None:
    with closing(sender.connect()) as connection:
        connection.sendall(post(sender, "Content-Length: 100", body=b'{"a":'))
    found = None
    for is_last in until(10):
        rows = sender.control.requests(sender.account)
        found = rows[-1].outcome if rows else None
        if found or is_last:
            break
    assert found == "incomplete"
    assert sender.control.stats(sender.account).effects == 0


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (["Content-Length: -1"], 400),
        (["Content-Length: 2x"], 400),
        (["Content-Length: 99999999999999999999"], 400),
        (["Content-Length: 2", "Content-Length: 3"], 400),
        (["Transfer-Encoding: chunked"], 411),
        (["Transfer-Encoding: chunked", "Content-Length: 2"], 411),
        (["Content-Length: 2000000"], 413),
        (["Content-Length: 2", "Content-Type: text/plain"], 415),
        (["Content-Length: 2", "Content-Type: application/x-www-form-urlencoded"], 415),
    ],
)
def test_a_body_that_can_not_be_framed_is_refused_and_its_connection_closed(
    sender: Sender, headers: list[str], status: int
) -> None:
    heard = talk(sender, post(sender, *headers, "Connection: close", body=b"{}"))
    assert heard.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"Connection: close\r\n" in heard
    stats = sender.control.stats(sender.account)
    assert (stats.requests, stats.effects) == (1, 0)


def test_a_json_media_type_with_a_parameter_is_json(sender: Sender) -> None:
    answer = sender.send("k", headers={"Content-Type": "Application/JSON; charset=utf-8"})
    assert answer.status_code == 201


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"\r\n", None),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /healthz HTTP/9.9\r\n\r\n", 505),
        (b"GET /healthz HTTP/x\r\n\r\n", 400),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET /healthz HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", 431),
        (b"GET /healthz HTTP/1.1\r\nA: " + b"b" * 70_000 + b"\r\n\r\n", 431),
        (b"BREW /orders HTTP/1.1\r\n\r\n", 501),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_a_head_that_can_not_be_read_gets_a_json_answer_or_none(
    sender: Sender, said: bytes, status: int | None
) -> None:
    with closing(sender.connect()) as connection:
        connection.sendall(said)
        connection.shutdown(1)
        heard = b""
        while chunk := connection.recv(65536):
            heard += chunk
    if status is None:
        assert heard == b""
    else:
        assert heard.startswith(f"HTTP/1.1 {status} ".encode())
        assert b'{"error":{' in heard


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "//",
        "//[/orders",
        "/nothing",
        "/orders/",
        "/orders/../admin/reset",
        "/acct//orders",
        "/acct/a%2Fb/orders",
        "/acct/" + "a" * 65 + "/orders",
        "/acct/a/cars",
        "/acct/a/orders/ord_1/x",
        "/acct/a/orders/%00",
        "/acct/\xe9/orders",
        "/admin",
        "/admin/holds/x/y",
        "/admin/faults/-1",
        "/admin/faults/99999999999999999999",
    ],
)
def test_a_path_that_is_not_there_is_a_404_and_counts_nothing(sender: Sender, path: str) -> None:
    before = sender.control.stats()
    said = f"GET {path} HTTP/1.1\r\nHost: sandbox\r\nConnection: close\r\n\r\n".encode("latin-1")
    assert talk(sender, said).startswith(b"HTTP/1.1 404 ")
    assert sender.control.stats() == before


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/orders", "GET, POST"),
        ("DELETE", "/acct/a/orders", "GET, POST"),
        ("HEAD", "/orders", "GET, POST"),
        ("OPTIONS", "/admin/reset", "POST"),
        ("POST", "/stats", "GET"),
        ("POST", "/acct/a/orders/ord_1", "GET"),
        ("PATCH", "/admin/faults", "DELETE, GET, POST"),
        ("GET", "/admin/holds/hold_1/release", "POST"),
    ],
)
def test_a_method_that_a_path_does_not_have_is_a_405_that_names_those_it_has(
    sender: Sender, method: str, path: str, allowed: str
) -> None:
    answer = sender.http.request(method, sender.control.url + path)
    assert (answer.status_code, answer.headers["Allow"]) == (405, allowed)


@pytest.mark.parametrize(
    "query",
    [
        "idempotency_key=a&idempotency_key=b",
        "idempotency_key=%ff",
        "idempotency_key=a%20b",
        "idempotency_key=",
        "idempotency_key=" + "k" * 256,
        "&".join(f"a{number}=1" for number in range(30)),
    ],
)
def test_a_query_that_can_not_be_read_is_refused(sender: Sender, query: str) -> None:
    assert sender.http.get(f"{sender.control.account_url(sender.account)}/orders?{query}").status_code == 400


@pytest.mark.parametrize("query", ["after=-1", "after=x", "limit=1001", "limit=1e2", "key=%00"])
def test_a_page_that_can_not_be_is_refused(sender: Sender, query: str) -> None:
    assert sender.http.get(f"{sender.control.account_url(sender.account)}/effects?{query}").status_code == 400


def test_requests_on_one_connection_are_answered_in_turn(sender: Sender) -> None:
    first = post(sender, "Content-Length: 2", body=b"{}")
    second = post(sender, "Content-Length: 2", "Connection: close", body=b"{}")
    heard = talk(sender, first + second)
    assert heard.count(b"HTTP/1.1 201 ") == 2
    assert heard.count(b"Idempotent-Replayed: true") == 1


def test_a_client_that_asks_before_it_sends_is_told_to_go_on(sender: Sender) -> None:
    with closing(sender.connect()) as connection:
        connection.sendall(post(sender, "Content-Length: 2", "Expect: 100-continue", "Connection: close"))
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"{}")
        assert connection.recv(65536).startswith(b"HTTP/1.1 201 ")


def test_markup_in_a_payload_comes_back_as_the_text_it_was(sender: Sender) -> None:
    text = "<script>alert(1)</script>\u2028 ünï 🜁"
    assert sender.send("k", {**ORDER, "note": text}).json()["note"] == text
    assert sender.found("k")[0]["note"] == text
