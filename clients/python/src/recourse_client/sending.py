"""A ready-made sending function over HTTP that knows the difference between "not sent" and "no answer".

The class of an exception is not enough for that: "connection refused" and "the server took it and died"
can look alike. So the transport is ours, and its trace says whether the request's headers were ever begun.
One request per call, on a fresh connection: no redirects, no retries, no cookies, no `.netrc`, no proxy
from the environment, nothing that could make a second request or another one.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import httpx

from recourse_client.clock import boot_seconds
from recourse_client.outcomes import Go, Json, NotSent, Receipt, Rejected, SendingOutcome, Unknown

# 4xx answers that speak about timing, load or the way, not about the request: it may still be carried out,
# or may have been. 407 comes from a proxy, 409 can mean "exists already" or "in flight".
UNDECIDED_STATUSES = frozenset({407, 408, 409, 421, 425, 429})
# More of an answer than any receipt needs.
ANSWER_BYTES_MAX = 1024 * 1024
_NEVER_BEGUN = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass(frozen=True)
class ProviderAnswer:
    """What the provider answered, read whole."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    def json(self) -> Json:
        """Return the body as JSON; raises ValueError if it is none."""
        return json.loads(self.content)


ReadReceipt: TypeAlias = Callable[[ProviderAnswer], Receipt]


class HttpSender:
    """Sends an operation's payload bytes with its key in a header, and classifies the answer.

    `receipt` reads a 2xx answer and returns a `Receipt`, or raises: `Rejected` where a 2xx can carry a
    definite refusal (GraphQL), anything else for an answer that proves nothing (the outcome is unknown).
    `undecided` says of a 4xx that its body makes it no refusal of this request, such as "this key was used
    with another payload": somebody has sent under our key, so nothing says that nothing happened.
    `url` may be a function of the `Go`. `key_header=None` is for providers that know no key;
    `key_quoted` writes the key as a structured-field string, in double quotes.
    """

    def __init__(
        self,
        url: str | Callable[[Go], str],
        *,
        receipt: ReadReceipt,
        undecided: Callable[[ProviderAnswer], bool] | None = None,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        key_header: str | None = "Idempotency-Key",
        key_quoted: bool = False,
        content_type: str = "application/json",
        connect_seconds: float = 5.0,
        verify: ssl.SSLContext | bool = True,
        proxy: str | None = None,
        http2: bool = False,
    ) -> None:
        self._url = url
        self._read_receipt = receipt
        self._undecided = undecided
        self._method = method
        self._headers = dict(headers or {})
        self._key_header = key_header
        self._key_quoted = key_quoted
        self._content_type = content_type
        self._connect_seconds = connect_seconds
        # Loading certificates takes longer than a request; the context is shared, connections are not.
        self._verify = httpx.create_ssl_context(verify=verify, trust_env=False)
        self._proxy = proxy
        self._http2 = http2

    def __call__(self, go: Go) -> Receipt:
        """Make the one request; returns a `Receipt` or raises `Rejected`, `NotSent` or `Unknown`."""
        ends_at = boot_seconds() + go.request_within_seconds
        wire = _Wire(go, ends_at=ends_at)
        transport = httpx.HTTPTransport(
            verify=self._verify, http2=self._http2, retries=0, proxy=self._proxy, trust_env=False
        )
        with httpx.Client(transport=transport, follow_redirects=False, trust_env=False) as client:
            request = self._build(client, go, wire)
            with wire.cut_after(go.request_within_seconds):
                answer = self._exchange(client, request, wire, ends_at=ends_at)
        return self._classify(answer)

    def _build(self, client: httpx.Client, go: Go, wire: _Wire) -> httpx.Request:
        headers = {
            "Content-Type": self._content_type,
            # What is signed for is what was read: no decompression between the two.
            "Accept-Encoding": "identity",
            **self._headers,
        }
        if self._key_header is not None:
            headers[self._key_header] = f'"{go.key}"' if self._key_quoted else go.key
        seconds = go.request_within_seconds
        try:
            return client.build_request(
                self._method,
                self._url if isinstance(self._url, str) else self._url(go),
                content=go.payload_bytes,
                headers=headers,
                timeout=httpx.Timeout(seconds, connect=min(self._connect_seconds, seconds)),
                extensions={"trace": wire.trace},
            )
        except Exception as error:
            raise NotSent(f"the request could not be built: {_named(error)}", phase="build") from error

    def _exchange(
        self, client: httpx.Client, request: httpx.Request, wire: _Wire, *, ends_at: float
    ) -> ProviderAnswer:
        status: int | None = None
        headers: Mapping[str, str] | None = None
        content = bytearray()
        try:
            response = client.send(request, stream=True)
            with contextlib.closing(response):
                status, headers = response.status_code, dict(response.headers)
                wire.phase = "reading_body"
                for chunk in response.iter_bytes():
                    content += chunk
                    if len(content) > ANSWER_BYTES_MAX:
                        raise _Unfinished(f"the answer is longer than {ANSWER_BYTES_MAX} bytes")
                    if boot_seconds() >= ends_at:
                        raise _Unfinished("the answer wasn't finished in time")
        except SendingOutcome:
            raise
        except Exception as error:
            if isinstance(error, _NEVER_BEGUN) and not wire.begun:
                raise NotSent(_named(error), phase=wire.phase) from error
            late = "; the connection was cut because the request's time was over" if wire.was_cut else ""
            raise Unknown(
                f"{_named(error)}{late}",
                status=status,
                headers=headers,
                body=bytes(content) or None,
                phase=wire.phase,
            ) from error
        return ProviderAnswer(status=status, headers=headers, content=bytes(content))

    def _classify(self, answer: ProviderAnswer) -> Receipt:
        status = answer.status
        if 200 <= status < 300:
            return self._receipt(answer)
        if 400 <= status < 500 and status not in UNDECIDED_STATUSES and not self._proves_nothing(answer):
            raise Rejected(status, answer.content, headers=answer.headers)
        raise Unknown(
            f"status {status} doesn't say what became of the request",
            status=status,
            headers=answer.headers,
            body=answer.content,
            phase="after_reply",
        )

    def _proves_nothing(self, answer: ProviderAnswer) -> bool:
        """Ask `undecided`; if it fails, the answer could not be read, and so proves nothing."""
        if self._undecided is None:
            return False
        try:
            return self._undecided(answer)
        except Exception:  # noqa: BLE001 (whatever it was, the answer isn't understood)
            return True

    def _receipt(self, answer: ProviderAnswer) -> Receipt:
        try:
            receipt = self._read_receipt(answer)
        except Rejected:
            raise
        # NotSent too: whatever the answer says, the request has left.
        except Exception as error:
            raise Unknown(
                f"status {answer.status} without a receipt that can be read: {_named(error)}",
                status=answer.status,
                headers=answer.headers,
                body=answer.content,
                phase="after_reply",
            ) from error
        if not isinstance(receipt, Receipt):
            raise Unknown(
                f"the receipt function returned {type(receipt).__name__}",
                status=answer.status,
                headers=answer.headers,
                body=answer.content,
                phase="after_reply",
            )
        return receipt


class _Unfinished(Exception):
    """The answer began and was given up."""


class _Wire:
    """Watches one request on its way: whether it was begun, and on which socket."""

    def __init__(self, go: Go, *, ends_at: float) -> None:
        self._go = go
        self._ends_at = ends_at
        self._stream: Any = None
        self.begun = False
        self.was_cut = False
        self.phase = "connecting"

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Called by httpcore at each step, under `connection.`, `http11.`, `http2.` or a proxy's prefix."""
        if event.endswith(("connect_tcp.complete", "connect_unix_socket.complete", "start_tls.complete")):
            self._stream = info.get("return_value")
        elif event.endswith(".send_request_headers.started"):
            if not self.begun:
                # Name resolution and handshakes take time, and a process can be stopped in them. This is
                # the last moment at which "not sent" is still certain.
                self._go.check()
                if boot_seconds() >= self._ends_at:
                    raise NotSent("the request's time was over before it began", phase=self.phase)
            self.begun = True
            self.phase = "sending"
        elif event.endswith(".receive_response_headers.started"):
            self.phase = "waiting_for_reply"

    @contextlib.contextmanager
    def cut_after(self, seconds: float) -> Iterator[None]:
        """Shut the socket when the time is over: httpx's limits are per read and write, not for the whole."""
        timer = threading.Timer(seconds, self._cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _cut(self) -> None:
        self.was_cut = True
        wire = self._stream.get_extra_info("socket") if self._stream is not None else None
        if isinstance(wire, socket.socket):
            with contextlib.suppress(OSError):
                # Not `wire.shutdown`, which on a TLS socket changes state that the reader is using.
                socket.socket.shutdown(wire, socket.SHUT_RDWR)


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:1_000]
