"""One HTTP request, with proof of how far it came. No redirects, no retries, no proxy from the environment,
and no host that an administrator hasn't listed (`reach`).

Why our own: whether a request was *not sent* decides whether an operation may go back to ready, and an
exception's class doesn't tell. "Refused" and "took it and died" can share one, a write error is swallowed so
that an early answer can be read, and a body handed to the kernel may never have been read. The one reliable
sign is negative: the trace says that no request head was started (seen over 14 ways to fail with httpx 0.28
and httpcore 1.0; `tests/contract/test_transport_taxonomy.py` repeats them).

The clock is checked a last time in that same trace, just before the first byte: past `start_by`, nothing
leaves. A total deadline holds beside the limits of each phase, so a peer that sends a byte now and then
can't keep a request alive.
"""

from __future__ import annotations

import hashlib
import math
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from types import TracebackType
from typing import Any

import httpcore
import httpx

from reconciliation.providers.base import (
    ANSWER_BYTES_MAX,
    EVIDENCE_BYTES_MAX,
    Exchange,
    Phase,
    elapsed_seconds,
)
from reconciliation.providers.deadline import IDLE_SECONDS_MAX, DeadlineBackend, deadline
from reconciliation.providers.reach import Reach, environment_reach
from reconciliation.providers.redaction import Redactor

# Limits of each phase; the request's total deadline cuts them shorter.
POOL_SECONDS_MAX = 2.0
CONNECT_SECONDS_MAX = 5.0
# Connections to one account at once. Lookups are limited before they come here; this is the backstop.
CONNECTIONS_MAX = 16
ERROR_LENGTH_MAX = 500
# Redaction looks a little beyond the cut, so that a secret across it is recognised.
REDACTION_SLACK = 8 * 1024

_HEADERS_STARTED = ".send_request_headers.started"


class StartWindowPassed(Exception):
    """The permission to start had run out just before the first byte; nothing was sent."""


class AnswerTooLong(Exception):
    """The answer went on beyond what is read of one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """What to send; `start_by` is an instant of `elapsed_seconds()`, None for what may start anytime."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    content: bytes
    within_seconds: float
    start_by: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What came of a call; `content` is the raw body as far as it was read: judge it, keep the exchange."""

    exchange: Exchange
    content: bytes
    headers: httpx.Headers
    not_sent: bool

    @property
    def status(self) -> int | None:
        return self.exchange.status

    @property
    def readable(self) -> bool:
        """Whether a status and a whole body in plain encoding are there."""
        encoding = self.headers.get("content-encoding", "identity").strip().lower()
        return self.status is not None and self.exchange.body_whole and encoding in ("", "identity")


class _Progress:
    """How far one call came; written by the trace, read afterwards."""

    def __init__(self, start_by: float | None) -> None:
        self.headers_started = False
        self.phase = Phase.POOL
        self._start_by = start_by

    def trace(self, name: str, info: dict[str, Any]) -> None:
        if name.endswith(_HEADERS_STARTED):
            if self._start_by is not None and elapsed_seconds() > self._start_by:
                raise StartWindowPassed("the time to start ran out before the first byte")
            self.headers_started = True
            self.phase = Phase.SENDING
        elif name.endswith((".connect_tcp.started", ".start_tls.started")):
            self.phase = Phase.CONNECT
        elif name.endswith(".receive_response_headers.started"):
            self.phase = Phase.WAITING
        elif name.endswith(".receive_response_headers.complete"):
            self.phase = Phase.READING


class Transport:
    """The connections to one account. Safe to share between threads; not across a fork."""

    def __init__(
        self,
        *,
        keep_alive: bool,
        reach: Reach | None = None,
        connections_max: int = CONNECTIONS_MAX,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """`keep_alive` reuses connections: right for questions. A send takes a fresh one, because a peer that
        dies as an old connection is reused turns into an unknown outcome. `reach` is how far requests may go;
        without one, to the hosts that the environment lists.
        """
        self._pool = httpcore.ConnectionPool(
            ssl_context=ssl_context or _trusted_certificates(),
            max_connections=connections_max,
            max_keepalive_connections=connections_max if keep_alive else 0,
            keepalive_expiry=10.0 if keep_alive else 0.0,
            retries=0,
            http1=True,
            http2=False,
            network_backend=DeadlineBackend(environment_reach() if reach is None else reach),
        )
        self._client = httpx.Client(
            transport=_PoolTransport(self._pool),
            follow_redirects=False,
            trust_env=False,
            headers={"User-Agent": "Recourse", "Accept": "application/json"},
            cookies=CookieJar(policy=DefaultCookiePolicy(allowed_domains=[])),
        )

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Transport:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def call(self, call: Call, *, redactor: Redactor) -> Answer:
        """Make one request and say what was seen; raises nothing for what the network or the peer does."""
        started_at = elapsed_seconds()
        progress = _Progress(call.start_by)
        deadline.at = started_at + call.within_seconds
        body = bytearray()
        response: httpx.Response | None = None
        whole = False
        error: Exception | None = None
        try:
            if call.start_by is not None and started_at > call.start_by:
                progress.phase = Phase.NOT_STARTED
                raise StartWindowPassed("the time to start had run out")
            request = self._client.build_request(
                call.method,
                call.url,
                headers=[*call.headers, ("Accept-Encoding", "identity")],
                content=call.content or None,
                timeout=httpx.Timeout(
                    connect=CONNECT_SECONDS_MAX,
                    read=IDLE_SECONDS_MAX,
                    write=IDLE_SECONDS_MAX,
                    pool=min(POOL_SECONDS_MAX, call.within_seconds),
                ),
                extensions={"trace": progress.trace},
            )
            response = self._client.send(request, stream=True)
            progress.phase = Phase.READING
            _read(response, into=body)
            whole = True
            progress.phase = Phase.DONE
        except Exception as seen:  # noqa: BLE001 - whatever happened is a fact to be recorded, not a crash
            error = seen
        finally:
            if response is not None:
                _close(response)
            deadline.at = math.inf
        exchange = _exchange(
            call,
            progress=progress,
            response=response,
            body=bytes(body),
            whole=whole,
            error=error,
            duration_ms=int((elapsed_seconds() - started_at) * 1000),
            redactor=redactor,
        )
        return Answer(
            exchange=exchange,
            content=bytes(body),
            headers=response.headers if response is not None else httpx.Headers(),
            not_sent=_is_proof_of_not_sent(error, progress),
        )


@lru_cache(maxsize=1)
def _trusted_certificates() -> ssl.SSLContext:
    """The certificates that every account trusts; reading them takes longer than many a request."""
    return httpx.create_ssl_context(trust_env=False)


_NOT_SENT_SIGNS = (
    httpcore.ConnectError,
    httpcore.ConnectTimeout,
    httpcore.PoolTimeout,
    StartWindowPassed,
)


def _is_proof_of_not_sent(error: Exception | None, progress: _Progress) -> bool:
    """A positive sign, and no request head started; any other error proves nothing by its silence."""
    return isinstance(error, _NOT_SENT_SIGNS) and not progress.headers_started


def _read(response: httpx.Response, *, into: bytearray) -> None:
    for piece in response.iter_raw():
        room = ANSWER_BYTES_MAX - len(into)
        into += piece[:room]
        if len(piece) > room:
            raise AnswerTooLong(f"the answer is longer than {ANSWER_BYTES_MAX} bytes")
        if elapsed_seconds() > deadline.at:
            raise httpcore.ReadTimeout("the time for the whole request ran out")


def _close(response: httpx.Response) -> None:
    try:
        response.close()
    except Exception:  # noqa: BLE001 - closing says nothing about the effect
        return


def _exchange(
    call: Call,
    *,
    progress: _Progress,
    response: httpx.Response | None,
    body: bytes,
    whole: bool,
    error: Exception | None,
    duration_ms: int,
    redactor: Redactor,
) -> Exchange:
    text, cut = evidence_text(body, redactor=redactor)
    return Exchange(
        method=call.method,
        url=redactor.url(call.url),
        request_headers=redactor.headers(call.headers),
        request_length=len(call.content),
        request_sha256=hashlib.sha256(call.content).hexdigest(),
        status=None if response is None else response.status_code,
        response_headers=() if response is None else redactor.headers(response.headers.multi_items()),
        body=text,
        body_cut=cut,
        body_whole=whole,
        body_length=len(body),
        body_sha256=hashlib.sha256(body).hexdigest(),
        duration_ms=duration_ms,
        error_class="" if error is None else type(error).__name__,
        error=""
        if error is None
        else evidence_text(str(error).encode(), redactor=redactor)[0][:ERROR_LENGTH_MAX],
        headers_started=progress.headers_started,
        phase=progress.phase,
    )


def evidence_text(body: bytes, *, redactor: Redactor) -> tuple[str, bool]:
    """The first 64 KiB of a body as redacted text that PostgreSQL can hold, and whether more was there."""
    text = body[: EVIDENCE_BYTES_MAX + REDACTION_SLACK].decode("utf-8", errors="replace")
    text = redactor.text(text.replace("\x00", "\ufffd"))
    kept = text.encode()[:EVIDENCE_BYTES_MAX].decode("utf-8", errors="ignore")
    return kept, len(body) > EVIDENCE_BYTES_MAX or len(kept) < len(text)


class _PoolTransport(httpx.BaseTransport):
    """httpx over our pool; errors stay httpcore's, because their classes are judged right here."""

    def __init__(self, pool: httpcore.ConnectionPool) -> None:
        self._pool = pool

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        answer = self._pool.handle_request(
            httpcore.Request(
                method=request.method,
                url=url,
                headers=request.headers.raw,
                content=request.read(),
                extensions=request.extensions,
            )
        )
        return httpx.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=_AnswerStream(answer),
            extensions=answer.extensions,
        )

    def close(self) -> None:
        self._pool.close()


class _AnswerStream(httpx.SyncByteStream):
    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        return self._answer.iter_stream()

    def close(self) -> None:
        self._answer.close()
