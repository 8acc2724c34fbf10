"""What all our stubs have in common: HTTP, a clock that can be moved, keys that are remembered, counters."""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

WAIT_SECONDS = 20.0


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request, read whole."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    # The query as it came: a name may stand in it more than once.
    pairs: tuple[tuple[str, str], ...] = ()

    def each(self, name: str) -> tuple[str, ...]:
        return tuple(value for found, value in self.pairs if found == name)

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, kw_only=True)
class Answered:
    """What goes back: a JSON body with a status."""

    status: int = 200
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Remembered:
    """A key's first request; `answer` is None while it runs."""

    fingerprint: object
    at: float
    answer: Answered | None = None


class Stub(ABC):
    """One provider on a free port of 127.0.0.1; `requests` counts what arrived to have an effect."""

    def __init__(self) -> None:
        self.requests = 0
        self.lookups = 0
        self.lag_ms = 0
        self._ahead_ms = 0
        self._keys: dict[object, Remembered] = {}
        self._lock = threading.RLock()
        self._in_flight: threading.Event | None = None
        self.reached = threading.Event()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                parts = urlsplit(self.path)
                length = int(self.headers.get("Content-Length") or 0)
                pairs = parse_qsl(parts.query, keep_blank_values=True)
                asked = Asked(
                    method=self.command,
                    path=unquote(parts.path),
                    query=dict(pairs),
                    pairs=tuple(pairs),
                    headers={name.lower(): value for name, value in self.headers.items()},
                    body=self.rfile.read(length),
                )
                answered = stub.answer(asked)
                content = json.dumps(answered.body).encode()
                self.send_response(answered.status)
                for name, value in answered.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = answer  # noqa: N815 - the names that the library calls

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
                return

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                # A client that leaves in the middle is what these tests are about.
                return

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            # It looks this often whether it shall end.
            target=lambda: self._server.serve_forever(poll_interval=0.02),
            name="stub",
            daemon=True,
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self.let_go()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(WAIT_SECONDS)

    def __enter__(self) -> Stub:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    # -- what a test does to it --------------------------------------------------------------------------

    def advance_clock(self, by_ms: int) -> None:
        self._ahead_ms += by_ms

    def keep_in_flight(self) -> None:
        """Let the next request with an effect run until `let_go`; `reached` says that it is there."""
        self.reached.clear()
        self._in_flight = threading.Event()

    def let_go(self) -> None:
        if self._in_flight is not None:
            self._in_flight.set()

    # -- what a provider is made of ----------------------------------------------------------------------

    def now(self) -> float:
        """Seconds since 1970 by the stub's clock."""
        return time.time() + self._ahead_ms / 1000

    def shown(self, made_at: float) -> bool:
        """Whether something made then shows in what is subject to the lag."""
        return self.now() >= made_at + self.lag_ms / 1000

    @abstractmethod
    def answer(self, asked: Asked) -> Answered:
        """Answer one request; called from as many threads as there are connections."""

    def once(
        self,
        key: object,
        *,
        fingerprint: object,
        window_seconds: float,
        make: Callable[[], Answered],
        replayed: Callable[[Answered], Answered],
        in_flight: Callable[[], Answered],
        keeps: Callable[[Answered], bool],
        other: Callable[[], Answered] | None = None,
    ) -> Answered:
        """Do `make` once for a key inside its window, and else answer as this provider does.

        Without `other` the provider doesn't compare what is sent, and every fingerprint is the same.
        """
        with self._lock:
            known = self._keys.get(key)
            if known is not None and self.now() >= known.at + window_seconds:
                known = None
            if known is not None and known.fingerprint != fingerprint:
                assert other is not None
                return other()
            if known is not None:
                return in_flight() if known.answer is None else replayed(known.answer)
            self._keys[key] = mine = Remembered(fingerprint=fingerprint, at=self.now())
        self.pass_through()
        with self._lock:
            answer = make()
            if keeps(answer):
                mine.answer = answer
            else:
                del self._keys[key]
            return answer

    def pass_through(self) -> None:
        """Where a request stays while a test keeps it in flight."""
        held = self._in_flight
        if held is not None and not held.is_set() and not self.reached.is_set():
            self.reached.set()
            held.wait(WAIT_SECONDS)
