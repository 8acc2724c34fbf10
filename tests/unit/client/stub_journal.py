"""A STUB of the journal, for testing the client against faults that a real journal doesn't make on demand.

It is not the journal and proves nothing about it: a small state machine behind a real socket that answers
in the agreed shapes, keeps everything in memory, and can drop, delay or spoil any answer. What the real
journal does with the client is tested against the real journal.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "stub-bearer-token"
RUN_FIELDS = ("id", "state", "flow", "flow_version", "external_id", "paused_reasons")


@dataclass
class Fault:
    """What goes wrong with the next `times` requests whose "METHOD /path" matches."""

    pattern: str
    # drop: nothing is done, the connection ends. drop_answer: it is done, and the connection ends.
    # status: nothing is done, `status` is answered. spoil: it is done, and a page is answered.
    # stall: nothing is done, and no answer comes before `release`.
    # hold: it is done, and the answer waits for `release` (and `reached` is set).
    kind: str
    times: int = 1
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    reached: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)


@dataclass
class Operation:
    id: str
    call_id: str
    payload: bytes
    state: str = "ready"
    receipt: dict[str, Any] | None = None
    refusal: dict[str, Any] | None = None
    abandoned: dict[str, Any] | None = None
    attempts: dict[str, dict[str, Any]] = field(default_factory=dict)
    case: str | None = None
    granted: bool = False


class Problem(Exception):
    def __init__(self, status: int, word: str, **members: Any) -> None:
        super().__init__(word)
        self.status, self.word, self.members = status, word, members


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    body: dict[str, Any]
    content: bytes
    headers: dict[str, str]


class StubJournal:
    def __init__(self, *, start_within_ms: int = 5_000, request_within_ms: int = 5_000) -> None:
        self.start_within_ms = start_within_ms
        self.request_within_ms = request_within_ms
        self.runs: dict[str, dict[str, Any]] = {}
        self.operations: dict[str, Operation] = {}
        self.evidence: list[dict[str, Any]] = []
        self.asked: list[Asked] = []
        self.faults: list[Fault] = []
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.url = ""

    # --- what tests ask and do ----------------------------------------------------------------------------

    def fault(self, pattern: str, kind: str, **options: Any) -> Fault:
        made = Fault(pattern, kind, **options)
        with self.lock:
            self.faults.append(made)
        return made

    def calls(self, pattern: str) -> list[Asked]:
        with self.lock:
            return [asked for asked in self.asked if re.search(pattern, f"{asked.method} {asked.path}")]

    def wait_for(self, pattern: str, *, count: int = 1, seconds: float = 20.0) -> list[Asked]:
        ends_at = time.monotonic() + seconds
        with self.changed:
            while len(found := self.calls(pattern)) < count:
                left = ends_at - time.monotonic()
                assert left > 0, f"no {pattern} in {seconds} s; asked: {[asked.path for asked in self.asked]}"
                self.changed.wait(left)
        return found

    def only_run(self) -> dict[str, Any]:
        assert len(self.runs) == 1
        return next(iter(self.runs.values()))

    def only_operation(self) -> Operation:
        assert len(self.operations) == 1
        return next(iter(self.operations.values()))

    def end_lease(self) -> None:
        with self.lock:
            for run in self.runs.values():
                run["lease"] = None

    def settle(self, state: str, **members: Any) -> None:
        """As a lookup or a person would: settle the one operation and let its run go on."""
        with self.changed:
            operation = self.only_operation()
            operation.state, operation.case = state, None
            for name, value in members.items():
                setattr(operation, name, value)
            self._unpause(self.only_run())

    def grant(self) -> None:
        with self.changed:
            self.only_operation().granted = True
            self._unpause(self.only_run())

    def _unpause(self, run: dict[str, Any]) -> None:
        run["state"], run["paused_reasons"] = "open", []
        self.changed.notify_all()

    # --- the calls ----------------------------------------------------------------------------------------

    def answer(self, asked: Asked, query: dict[str, list[str]]) -> tuple[int, dict[str, Any], dict[str, str]]:
        if asked.headers.get("authorization") != f"Bearer {TOKEN}":
            raise Problem(401, "unauthorized", detail="unknown token")
        routes: list[tuple[str, Any]] = [
            (r"POST /runs", self._start),
            (r"GET /runs", lambda body: self._claimable(query)),
            (r"GET /runs/([^/]+)", lambda body, run: (200, self._show(self._run(run)))),
            (r"GET /runs/([^/]+)/plan", lambda body, run: (200, self._plan(self._run(run)))),
            (r"POST /runs/([^/]+)/claim", self._claim),
            (r"POST /runs/([^/]+)/(renew|release|complete)", self._lease_call),
            (r"POST /runs/([^/]+)/turns", self._turn),
            (r"POST /runs/([^/]+)/turns/(\d+)/calls/([^/]+)/result", self._result),
            (r"POST /operations/([^/]+)/send", self._send),
            (r"POST /operations/([^/]+)/(receipt|rejection|not-sent|unknown)", self._report),
        ]
        for pattern, call in routes:
            if found := re.fullmatch(pattern, f"{asked.method} {asked.path}"):
                answer = call(asked.body, *found.groups())
                return (*answer, {}) if len(answer) == 2 else answer
        raise Problem(404, "not_found", detail=asked.path)

    def _run(self, run_id: str) -> dict[str, Any]:
        if run_id not in self.runs:
            raise Problem(404, "not_found")
        return self.runs[run_id]

    def _show(self, run: dict[str, Any]) -> dict[str, Any]:
        return {"run": {name: run[name] for name in RUN_FIELDS}}

    def _start(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        for run in self.runs.values():
            if (run["flow"], run["external_id"]) == (body["flow"], body["external_id"]):
                if run["input"] != body["input"]:
                    raise Problem(409, "external_id_reused", detail="another input")
                return 200, {**self._show(run), "replayed": True}
        run = {
            "id": f"run_{len(self.runs) + 1}",
            "state": "open",
            "paused_reasons": [],
            "turns": [],
            "lease": None,
            "released": None,
            "tokens": 0,
            **{name: body[name] for name in ("flow", "flow_version", "external_id", "input")},
        }
        self.runs[run["id"]] = run
        return 201, {**self._show(run), "replayed": False}

    def _claimable(self, query: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        ends_at = time.monotonic() + float(query.get("wait", ["0"])[0])
        while True:
            found = [
                {name: run[name] for name in RUN_FIELDS[:5]}
                for run in self.runs.values()
                if run["flow"] == query["flow"][0] and run["state"] == "open" and not self._held(run)
            ]
            left = ends_at - time.monotonic()
            if found or left <= 0:
                return 200, {"runs": found, "next": None}
            self.changed.wait(min(left, 0.05))

    def _held(self, run: dict[str, Any]) -> bool:
        return run["lease"] is not None and time.monotonic() < run["lease"]["ends_at"]

    def _claim(self, body: dict[str, Any], run_id: str) -> tuple[Any, ...]:
        run = self._run(run_id)
        lease = run["lease"]
        if self._held(run) and lease["claim_id"] == body["claim_id"]:
            return 200, self._leased(run, replayed=True)
        if run["state"] in {"completed", "abandoned"}:
            raise Problem(409, "run_ended")
        if run["state"] == "paused":
            plan = self._plan(run)
            raise Problem(409, "run_paused", reasons=run["paused_reasons"], plan=plan, retry_after=30)
        if body["flow_version"] != run["flow_version"]:
            raise Problem(409, "flow_version_mismatch", pinned=run["flow_version"])
        if self._held(run):
            left = int((lease["ends_at"] - time.monotonic()) * 1000)
            raise Problem(409, "already_claimed", holder=lease["worker"], expires_in_ms=left)
        run["tokens"] += 1
        run["lease"] = {
            "token": f"tok_{run['tokens']}",
            "worker": body["worker"],
            "claim_id": body["claim_id"],
            "seconds": body["lease_seconds"],
            "ends_at": time.monotonic() + body["lease_seconds"],
        }
        return 200, self._leased(run, replayed=False)

    def _leased(self, run: dict[str, Any], *, replayed: bool) -> dict[str, Any]:
        lease = run["lease"]
        return {
            "token": lease["token"],
            "claim_id": lease["claim_id"],
            "expires_at": "2026-01-01T00:00:00Z",
            "expires_in_ms": int((lease["ends_at"] - time.monotonic()) * 1000),
            "plan": self._plan(run),
            "replayed": replayed,
        }

    def _fence(self, run: dict[str, Any], token: str) -> None:
        if run["state"] == "paused":
            raise Problem(409, "run_paused", reasons=run["paused_reasons"])
        if not self._held(run) or run["lease"]["token"] != token:
            raise Problem(409, "stale_token", detail="the lease is over")

    def _lease_call(self, body: dict[str, Any], run_id: str, what: str) -> tuple[int, dict[str, Any]]:
        run = self._run(run_id)
        if what == "complete" and run["state"] == "completed" and run["output"] == body["output"]:
            return 200, {**self._show(run), "replayed": True}
        if what == "release" and run["released"] == body["token"]:
            return 200, {**self._show(run), "replayed": True}
        self._fence(run, body["token"])
        if what == "renew":
            run["lease"]["ends_at"] = time.monotonic() + run["lease"]["seconds"]
            milliseconds = run["lease"]["seconds"] * 1000
            return 200, {"expires_at": "2026-01-01T00:00:00Z", "expires_in_ms": milliseconds}
        if what == "complete":
            if any(operation.state in {"ready", "sent_unknown"} for operation in self.operations.values()):
                raise Problem(409, "operations_open")
            run["state"], run["output"] = "completed", body["output"]
        run["lease"], run["released"] = None, body["token"]
        return 200, {**self._show(run), "replayed": False}

    def _turn(self, body: dict[str, Any], run_id: str) -> tuple[int, dict[str, Any]]:
        run = self._run(run_id)
        self._fence(run, body["token"])
        content = {name: body[name] for name in ("decision", "parallel", "calls")}
        if body["index"] > len(run["turns"]) + 1 or body["index"] < 1:
            raise Problem(422, "invalid", where="/index")
        for turn in run["turns"]:
            if turn["index"] == body["index"]:
                if turn["content"] != content:
                    raise Problem(409, "turn_already_decided")
                return 200, {"turn": self._plan_turn(turn), "replayed": True}
        turn = {"index": body["index"], "content": content, "results": {}, "operations": {}}
        for call in body["calls"]:
            if call["effect"]:
                made = Operation(
                    id=f"op_{len(self.operations) + 1}",
                    call_id=call["call_id"],
                    payload=json.dumps(call["args"], sort_keys=True, separators=(",", ":")).encode(),
                )
                self.operations[made.id] = made
                turn["operations"][call["call_id"]] = made
        run["turns"].append(turn)
        return 201, {"turn": self._plan_turn(turn), "replayed": False}

    def _result(
        self, body: dict[str, Any], run_id: str, index: str, call_id: str
    ) -> tuple[int, dict[str, Any]]:
        run = self._run(run_id)
        self._fence(run, body["token"])
        run["turns"][int(index) - 1]["results"][call_id] = body["result"]
        return 200, {"call_id": call_id, "digest": "", "replayed": False}

    def _plan(self, run: dict[str, Any]) -> dict[str, Any]:
        return {
            "run_id": run["id"],
            "state": run["state"],
            "paused_reasons": run["paused_reasons"],
            "goal": "",
            "input": run["input"],
            "turns": [self._plan_turn(turn) for turn in run["turns"]],
            "open_evidence": [],
            "known_failures": [],
        }

    def _plan_turn(self, turn: dict[str, Any]) -> dict[str, Any]:
        content = turn["content"]
        calls = [self._plan_call(turn, call) for call in content["calls"]]
        return {
            "index": turn["index"],
            "decision": content["decision"],
            "parallel": content["parallel"],
            "calls": calls,
        }

    def _plan_call(self, turn: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
        plan = {"provider": None, "amount": None, **call}
        if not call["effect"]:
            saved = call["call_id"] in turn["results"]
            result = {"result": turn["results"][call["call_id"]]} if saved else {}
            return {**plan, "next": "skip" if saved else "read", **result}
        operation: Operation = turn["operations"][call["call_id"]]
        step = {"ready": "send", "sent_unknown": "repeat" if operation.granted else "wait"}
        plan["next"] = step.get(operation.state, "skip")
        for name in ("receipt", "refusal", "abandoned", "case"):
            if (value := getattr(operation, name)) is not None:
                plan[name] = value
        plan["operation"] = {
            "id": operation.id,
            "state": operation.state,
            "idempotency_key": f"key-{operation.id}",
            "digest": hashlib.sha256(operation.payload).hexdigest(),
        }
        return plan

    def _send(self, body: dict[str, Any], operation_id: str) -> tuple[int, dict[str, Any]]:
        run, operation = self._find(operation_id)
        self._fence(run, body["token"])
        attempt = operation.attempts.get(body["attempt_id"])
        if attempt is None:
            if operation.state != "ready" and not operation.granted:
                raise Problem(409, "not_sendable", reason=operation.state)
            attempt = {
                "number": len(operation.attempts) + 1,
                "token": body["token"],
                "at": time.monotonic(),
                "end": None,
            }
            operation.attempts[body["attempt_id"]] = attempt
            operation.state, operation.granted = "sent_unknown", False
            replayed = False
        else:
            if attempt["end"] is not None:
                raise Problem(409, "attempt_ended")
            replayed = True
        left = self.start_within_ms - int((time.monotonic() - attempt["at"]) * 1000)
        if left <= 0:
            raise Problem(409, "start_window_passed")
        return 200, {
            "idempotency_key": f"key-{operation.id}",
            "payload": json.loads(operation.payload),
            "payload_base64": base64.b64encode(operation.payload).decode(),
            "provider": "stub",
            "attempt": attempt["number"],
            "start_within_ms": left,
            "request_within_ms": self.request_within_ms,
            "replayed": replayed,
        }

    def _find(self, operation_id: str) -> tuple[dict[str, Any], Operation]:
        for run in self.runs.values():
            for turn in run["turns"]:
                for operation in turn["operations"].values():
                    if operation.id == operation_id:
                        return run, operation
        raise Problem(404, "not_found")

    def _report(self, body: dict[str, Any], operation_id: str, outcome: str) -> tuple[int, dict[str, Any]]:
        run, operation = self._find(operation_id)
        attempt = operation.attempts.get(body["attempt_id"])
        if outcome == "receipt" and not isinstance(body.get("body", body.get("body_base64")), (dict, str)):
            raise Problem(422, "invalid", where="/body")
        end = {"outcome": outcome, "body": body}
        if attempt is not None and attempt["end"] == end:
            answer: dict[str, Any] = {**attempt["answer"], "replayed": True}
            return 200, answer
        leased = self._held(run) and run["lease"]["token"] == body["token"]
        late = attempt is None or not leased or attempt["end"] is not None
        if late:
            self.evidence.append({"operation": operation_id, "outcome": outcome, **body})
        self._apply(run, operation, attempt, outcome, body, late=late)
        answer = {
            "operation": {"id": operation.id, "state": operation.state},
            "attempt": {"attempt_id": body["attempt_id"], "number": 1, "outcome": outcome},
            "next": "stop" if late or operation.state == "sent_unknown" else "continue",
            "case": operation.case,
            "recorded_as_evidence": late,
            "replayed": False,
        }
        if attempt is not None:
            attempt["end"], attempt["answer"] = end, answer
        return (202 if late else 200), answer

    def _apply(
        self,
        run: dict[str, Any],
        operation: Operation,
        attempt: dict[str, Any] | None,
        outcome: str,
        body: dict[str, Any],
        *,
        late: bool,
    ) -> None:
        if attempt is None or operation.state != "sent_unknown":
            return
        others = [other["end"] for other in operation.attempts.values() if other is not attempt]
        proved = all(end is not None and end["outcome"] == "not-sent" for end in others)
        if outcome == "receipt":
            operation.state, operation.case = "confirmed", None
            operation.receipt = {"reference": body["reference"], "body": _value(body)}
        elif outcome == "rejection" and proved:
            operation.state = "rejected"
            operation.refusal = json.loads(body.get("body", "null"))
        elif outcome == "not-sent" and proved:
            operation.state = "ready"
        if operation.state == "sent_unknown" or late:
            if operation.state == "sent_unknown":
                operation.case = operation.case or f"case_{operation.id}"
                run["state"], run["paused_reasons"] = "paused", ["outcome"]
            run["lease"] = None if not late else run["lease"]


def _value(body: dict[str, Any]) -> Any:
    """What the journal shows of a record: an object as it is, a text as JSON where it is JSON."""
    record = body.get("body", "")
    try:
        return record if isinstance(record, dict) else json.loads(record)
    except ValueError:
        return record


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stub: StubJournal

    def do_GET(self) -> None:
        self._handle("GET")

    def do_POST(self) -> None:
        self._handle("POST")

    def log_message(self, *args: Any) -> None:
        pass

    def _handle(self, method: str) -> None:
        parts = urlsplit(self.path)
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        path = parts.path.removeprefix("/api/v1")
        asked = Asked(method, path, json.loads(content) if content else {}, content, headers)
        fault = self._next_fault(asked)
        kind = fault.kind if fault is not None else "none"
        if fault is not None and kind == "stall":
            fault.reached.set()
            fault.release.wait(60)
        if kind in {"stall", "drop"}:
            return self._hang_up()
        if fault is not None and kind == "status":
            return self._write(fault.status, b'{"detail": "the stub was told to fail"}', fault.headers)
        status, body, more = self._answer(asked, parse_qs(parts.query))
        if kind == "drop_answer":
            return self._hang_up()
        if kind == "spoil":
            return self._write(200, b"<html>not the journal</html>", {})
        if fault is not None and kind == "hold":
            fault.reached.set()
            fault.release.wait(60)
        return self._write(status, json.dumps(body).encode(), more)

    def _next_fault(self, asked: Asked) -> Fault | None:
        stub, line = self.stub, f"{asked.method} {asked.path}"
        with stub.changed:
            stub.asked.append(asked)
            stub.changed.notify_all()
            fault = next((one for one in stub.faults if re.search(one.pattern, line)), None)
            if fault is not None:
                fault.times -= 1
                if fault.times <= 0:
                    stub.faults.remove(fault)
            return fault

    def _answer(
        self, asked: Asked, query: dict[str, list[str]]
    ) -> tuple[int, dict[str, Any], dict[str, str]]:
        with self.stub.changed:
            try:
                return self.stub.answer(asked, query)
            except Problem as problem:
                more = {}
                if "retry_after" in problem.members:
                    more = {"Retry-After": str(problem.members.pop("retry_after"))}
                body = {"type": f"/problems/{problem.word}", "word": problem.word, **problem.members}
                return problem.status, body, more

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _write(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)
        except OSError:
            self.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


@contextmanager
def stub_journal(**options: int) -> Iterator[StubJournal]:
    """Serve a stub on a free port of this machine until the block ends."""
    stub = StubJournal(**options)
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"stub": stub}))
    stub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        for fault in stub.faults:
            fault.release.set()
        server.shutdown()
        server.server_close()
        thread.join()
