"""The API over real sockets: bodies in chunks, bodies too long to be read, and urllib as a client."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from runs.canonical import BYTES_MAX
from tests.integration.api.world import (
    Reply,
    World,
    claim_body,
    effect,
    read_reply,
    rows,
    run_body,
)
from tests.processes import Server

JSON = {"Content-Type": "application/json"}


class Connection:
    """One connection to the server, with a token on every request."""

    def __init__(self, server: Server, secret: str) -> None:
        address = urlsplit(server.url)
        self.http = http.client.HTTPConnection(str(address.hostname), address.port, timeout=30)
        self.head = {"Authorization": f"Bearer {secret}", **JSON}

    def post(self, path: str, body: Any, *, chunked: bool = False, **head: str) -> Reply:
        self.http.request(
            "POST", f"/api/v1{path}", body=body, headers={**self.head, **head}, encode_chunked=chunked
        )
        answer = self.http.getresponse()
        return read_reply(answer.status, answer.read(), dict(answer.getheaders()))


@pytest.fixture
def connection(world: World, web_server: Server) -> Iterator[Connection]:
    made = Connection(web_server, world.worker.secret)
    yield made
    made.http.close()


def chunks(content: bytes, size: int = 7) -> Iterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


def test_a_body_in_chunks_is_read_whole(connection: Connection) -> None:
    content = json.dumps(run_body()).encode()
    reply = connection.post("/runs", chunks(content), chunked=True, **{"Transfer-Encoding": "chunked"})
    assert reply.status == 201, reply


def test_chunks_without_end_are_cut_off_at_the_limit(connection: Connection) -> None:
    before = rows()
    content = b'{"a":"' + b"x" * (BYTES_MAX + 10) + b'"}'
    reply = connection.post(
        "/runs", chunks(content, 65_536), chunked=True, **{"Transfer-Encoding": "chunked"}
    )
    assert (reply.status, reply.word, reply.body["bytes_max"]) == (413, "too_large", BYTES_MAX)
    assert rows() == before


def test_a_length_beyond_the_limit_is_refused_before_the_body_comes(world: World, web_server: Server) -> None:
    address = urlsplit(web_server.url)
    with socket.create_connection((str(address.hostname), address.port or 80), timeout=30) as wire:
        wire.sendall(
            b"POST /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Authorization: Bearer " + world.worker.secret.encode() + b"\r\nContent-Length: 10485760\r\n\r\n"
        )
        # Not one byte of the body is sent. Head and body of the answer may come in pieces.
        answer = b""
        while b'"word":"too_large"' not in answer:
            piece = wire.recv(65_536)
            assert piece, answer
            answer += piece
    assert answer.startswith(b"HTTP/1.1 413"), answer


def test_ten_megabytes_are_refused_and_the_server_goes_on(connection: Connection) -> None:
    try:
        reply = connection.post("/runs", b'{"a":"' + b"x" * 10 * BYTES_MAX + b'"}')
        assert (reply.status, reply.word) == (413, "too_large")
    except (BrokenPipeError, ConnectionResetError):
        # The server answered and closed while we were still sending: that is a refusal too.
        connection.http.close()
    connection.http.close()
    assert connection.post("/runs", json.dumps(run_body()).encode()).status == 201


def test_a_body_at_the_limit_is_taken(connection: Connection) -> None:
    body = run_body(input="")
    body["input"] = "x" * (BYTES_MAX - len(json.dumps(body)))
    content = json.dumps(body).encode()
    assert len(content) == BYTES_MAX
    assert connection.post("/runs", content).status == 201


def test_waiting_callers_leave_room_for_others(
    world: World, web_server: Server, connection: Connection
) -> None:
    """More callers wait than the server has threads; one who reports is answered all the same."""
    secret = world.worker.secret
    waiting = []

    def wait() -> None:
        request = urllib.request.Request(
            f"{web_server.url}/api/v1/runs?claimable=1&flow=nobody&wait=6",
            headers={"Authorization": f"Bearer {secret}"},
        )
        before = time.monotonic()
        with urllib.request.urlopen(request, timeout=30) as answer:
            waiting.append((answer.status, time.monotonic() - before))

    callers = [threading.Thread(target=wait) for _ in range(12)]
    for caller in callers:
        caller.start()
    before = time.monotonic()
    reply = connection.post("/runs", json.dumps(run_body()).encode())
    assert reply.status == 201
    assert time.monotonic() - before < 5
    for caller in callers:
        caller.join()
    assert [status for status, _ in waiting] == [200] * 12
    assert sum(seconds > 5 for _, seconds in waiting) == 4


def test_urllib_takes_an_effect_from_run_to_complete(world: World, web_server: Server) -> None:
    """A client that isn't ours, with the standard library alone."""

    def call(path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{web_server.url}/api/v1{path}",
            data=json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {world.worker.secret}", **JSON},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    run = call("/runs", run_body())["run"]["id"]
    token = call(f"/runs/{run}/claim", claim_body())["token"]
    turn = call(f"/runs/{run}/turns", {"token": token, "index": 1, "decision": "order", "calls": [effect()]})[
        "turn"
    ]
    operation = turn["calls"][0]["operation"]["id"]
    go = call(f"/operations/{operation}/send", {"token": token, "attempt_id": "a1"})
    record = {"id": "ord_1", "status": "succeeded", "idempotency_key": go["idempotency_key"]}
    report = {"token": token, "attempt_id": "a1", "reference": "ord_1", "body": {**record, **go["payload"]}}
    assert call(f"/operations/{operation}/receipt", report)["operation"]["state"] == "confirmed"
    assert call(f"/runs/{run}/complete", {"token": token, "output": {}})["run"]["state"] == "completed"
    with pytest.raises(urllib.error.HTTPError) as refused:
        call(f"/runs/{run}/claim", claim_body())
    with refused.value as answer:
        assert read_reply(answer.code, answer.read(), dict(answer.headers)).word == "run_ended"
