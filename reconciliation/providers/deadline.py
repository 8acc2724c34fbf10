"""A total time limit for a request: each step on the socket gets what is left of it, at most.

A client's own limits are for one step each, so a peer that sends a byte now and then keeps a request alive
for as long as it likes, and the system's resolver has no limit at all.
"""

from __future__ import annotations

import math
import socket
import ssl
import threading
from collections.abc import Iterable
from typing import Any

import httpcore

from reconciliation.providers.base import elapsed_seconds
from reconciliation.providers.reach import Reach

# The longest wait for one step where the caller sets none.
IDLE_SECONDS_MAX = 30.0
# Writes are cut up so that the deadline is looked at between pieces.
WRITE_PIECE_BYTES = 16 * 1024


class _Deadline(threading.local):
    """The instant of `elapsed_seconds()` by which this thread's request must be over."""

    at: float = math.inf


deadline = _Deadline()

_SocketOption = tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]


def _left(timeout: float | None, late: type[httpcore.TimeoutException]) -> float:
    left = deadline.at - elapsed_seconds()
    if left <= 0:
        raise late("the time for the whole request ran out")
    return min(left, IDLE_SECONDS_MAX if timeout is None else timeout)


class DeadlineBackend(httpcore.NetworkBackend):
    """Resolves and connects inside the deadline, and only as far as `reach` goes.

    The system's resolver has no time limit of its own. The socket goes to the address that was judged, and
    no name is resolved twice; TLS and the Host header keep the name.
    """

    def __init__(self, reach: Reach) -> None:
        self._sockets = httpcore.SyncBackend()
        self._reach = reach

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[_SocketOption] | None = None,
    ) -> httpcore.NetworkStream:
        ends_at = elapsed_seconds() + _left(timeout, httpcore.ConnectTimeout)
        # Before anybody is asked where an unlisted name leads.
        self._reach.require_listed(host, port)
        addresses = _resolve(host, port, within=ends_at - elapsed_seconds())
        self._reach.require_reachable(host, port, addresses)
        last: Exception | None = None
        for address in addresses:
            left = ends_at - elapsed_seconds()
            if left <= 0:
                raise httpcore.ConnectTimeout("connecting took too long")
            try:
                stream = self._sockets.connect_tcp(
                    address, port, timeout=left, local_address=local_address, socket_options=socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                last = error
            else:
                return _DeadlineStream(stream)
        raise last or httpcore.ConnectError(f"{host} has no address")


def _resolve(host: str, port: int, *, within: float) -> list[str]:
    """The host's addresses in the system's order; in a thread, since getaddrinfo can't be stopped."""
    found: list[str] = []
    failed: list[OSError] = []

    def ask() -> None:
        try:
            answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.extend(dict.fromkeys(str(answer[4][0]) for answer in answers))
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=ask, name="resolve", daemon=True)
    thread.start()
    thread.join(within)
    if thread.is_alive():
        raise httpcore.ConnectTimeout(f"the name {host} didn't resolve in time")
    if failed:
        raise httpcore.ConnectError(str(failed[0])) from failed[0]
    return found


class _DeadlineStream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, timeout=_left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), WRITE_PIECE_BYTES):
            piece = buffer[start : start + WRITE_PIECE_BYTES]
            self._stream.write(piece, timeout=_left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        return _DeadlineStream(
            self._stream.start_tls(ssl_context, server_hostname=server_hostname, timeout=left)
        )

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
