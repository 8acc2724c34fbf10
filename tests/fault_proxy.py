"""A TCP proxy that stands between an adapter and its peer and does one wrong thing.

It knows nothing of what it carries, except where a request or an answer of HTTP has its body. The peer is
real and counts for itself; the proxy says how much it passed on.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import assert_never
from urllib.parse import urlsplit

PIECE_BYTES = 65536
# Longer than any limit under test; only a failing test waits for it.
WAIT_SECONDS = 20.0
_HEAD_END = b"\r\n\r\n"


class Where(StrEnum):
    """At which point the fault strikes."""

    CONNECT = "connect"  # as soon as the connection is there; the peer never sees it
    REQUEST = "request"  # after `after_bytes` of the request were passed on
    REPLY = "reply"  # the request was passed on whole; after `after_bytes` of the peer's answer were


class How(StrEnum):
    """What then happens to both connections."""

    CLOSE = "close"  # an orderly end
    RESET = "reset"  # RST
    HANG = "hang"  # nothing, until the proxy is closed
    DELAY = "delay"  # nothing, until `release()`; then everything goes on


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault, for one connection.

    `in_body` counts `after_bytes` from the end of the answer's head. With `once_sent` answers pass freely
    until the client has sent these bytes: for protocols that talk before they act.
    """

    where: Where
    how: How
    after_bytes: int = 0
    in_body: bool = False
    once_sent: bytes = b""


class FaultProxy:
    """Listens on a free port of 127.0.0.1 and carries every connection to the peer.

    `fault` is for the next connection that is made. Counted: `connections` made to the proxy, bytes passed on
    `to_peer`, bytes that came back `from_peer`, passed on or not.
    """

    def __init__(self, peer_url: str) -> None:
        address = urlsplit(peer_url)
        assert address.hostname is not None
        assert address.port is not None
        self._peer = (address.hostname, address.port)
        self._scheme = address.scheme
        self._faults: deque[Fault] = deque()
        self._lock = threading.Lock()
        self._open: set[_Connection] = set()
        self._over = threading.Event()
        self._released = threading.Event()
        self.struck = threading.Event()
        self.connections = 0
        self.to_peer = 0
        self.from_peer = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._accepting = threading.Thread(target=self._accept, name="fault proxy", daemon=True)
        self._accepting.start()

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}"

    def fault(self, fault: Fault) -> None:
        """Let this happen to the next new connection; several wait for one connection each."""
        self.struck.clear()
        self._released.clear()
        self._faults.append(fault)

    def fault_open(self, fault: Fault) -> None:
        """Let this happen to the connections that are open now, from their next answer on."""
        self.struck.clear()
        with self._lock:
            for one in self._open:
                one.expect(fault)

    def clear(self) -> None:
        """Forget faults that found no connection, and end what waits."""
        self._faults.clear()
        self._released.set()

    def release(self) -> None:
        """Let what was delayed go on."""
        self._released.set()

    def sever(self) -> None:
        """Close every open connection, so that the next request needs a new one."""
        with self._lock:
            connections = list(self._open)
        for one in connections:
            one.leave()
        for one in connections:
            one.join()

    def close(self) -> None:
        self._over.set()
        self._released.set()
        # A blocked accept doesn't notice a close; a shutdown wakes it.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(WAIT_SECONDS)
        self.sever()

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def wait(self, how: How) -> None:
        """Hold a thread as a hanging or delaying fault does."""
        (self._over if how is How.HANG else self._released).wait(WAIT_SECONDS)

    def count(self, *, to_peer: int = 0, from_peer: int = 0) -> None:
        with self._lock:
            self.to_peer += to_peer
            self.from_peer += from_peer

    def forget(self, connection: _Connection) -> None:
        with self._lock:
            self._open.discard(connection)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.connections += 1
                fault = self._faults.popleft() if self._faults else None
                connection = _Connection(self, client, self._peer, fault)
                self._open.add(connection)
            connection.start()


class _Connection:
    """Two sockets and one thread, so that nobody waits on a socket while it is closed."""

    def __init__(
        self, proxy: FaultProxy, client: socket.socket, peer: tuple[str, int], fault: Fault | None
    ) -> None:
        self._proxy = proxy
        self._client = client
        self._address = peer
        self._peer: socket.socket | None = None
        self._fault = fault
        self._passed = 0
        self._sent = b""
        self._replied = 0
        self._body_from: int | None = None
        self._thread = threading.Thread(target=self._run, name="fault proxy: carry", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join(WAIT_SECONDS)

    def expect(self, fault: Fault) -> None:
        """From the next answer on."""
        self._sent, self._replied, self._body_from = b"", 0, None
        self._fault = fault

    def leave(self) -> None:
        """Wake the thread, which then ends; a close from here wouldn't wake it."""
        with suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        try:
            if self._fault is not None and self._fault.where is Where.CONNECT and not self._strike():
                return
            self._peer = socket.create_connection(self._address, timeout=WAIT_SECONDS)
            self._client.settimeout(WAIT_SECONDS)
            with selectors.DefaultSelector() as selector:
                selector.register(self._client, selectors.EVENT_READ, self._carry_on)
                selector.register(self._peer, selectors.EVENT_READ, self._carry_back)
                self._carry(selector)
        except OSError:
            return
        finally:
            self._client.close()
            if self._peer is not None:
                self._peer.close()
            self._proxy.forget(self)

    def _carry(self, selector: selectors.BaseSelector) -> None:
        """Both ways, until both sides have said all or the fault ends it."""
        while selector.get_map():
            for key, _ in selector.select():
                goes_on: bool | None = key.data()
                if goes_on is None:
                    selector.unregister(key.fileobj)
                elif not goes_on:
                    return

    def _carry_on(self) -> bool | None:
        """A piece from client to peer: whether it goes on, None at the client's end."""
        assert self._peer is not None
        limit = PIECE_BYTES
        fault = self._fault
        if fault is not None and fault.where is Where.REQUEST:
            limit = min(limit, fault.after_bytes - self._passed)
            if limit <= 0:
                if not self._strike():
                    return False
                limit = PIECE_BYTES
        piece = self._client.recv(limit)
        if not piece:
            self._peer.shutdown(socket.SHUT_WR)
            return None
        self._passed += len(piece)
        self._sent = (self._sent + piece)[-PIECE_BYTES:]
        self._proxy.count(to_peer=len(piece))
        self._peer.sendall(piece)
        return True

    def _carry_back(self) -> bool | None:
        """A piece from peer to client: whether it goes on, None at the peer's end."""
        assert self._peer is not None
        piece = self._peer.recv(PIECE_BYTES)
        if not piece:
            self._client.shutdown(socket.SHUT_WR)
            return None
        self._proxy.count(from_peer=len(piece))
        fault = self._fault
        if fault is not None and fault.where is Where.REPLY and fault.once_sent in self._sent:
            cut = self._cut(fault, piece)
            if cut is not None:
                self._client.sendall(piece[:cut])
                if not self._strike():
                    return False
                piece = piece[cut:]
        self._client.sendall(piece)
        return True

    def _cut(self, fault: Fault, piece: bytes) -> int | None:
        """How much of this piece still goes to the client before the fault; None: all of it, and no fault."""
        start = self._replied
        self._replied += len(piece)
        at = fault.after_bytes
        if fault.in_body:
            if self._body_from is None:
                end = piece.find(_HEAD_END)
                if end < 0:
                    return None
                self._body_from = start + end + len(_HEAD_END)
            at += self._body_from
        return max(0, at - start) if self._replied > at else None

    def _strike(self) -> bool:
        """Let the fault happen; whether the connection goes on afterwards."""
        fault, self._fault = self._fault, None
        assert fault is not None
        self._proxy.struck.set()
        match fault.how:
            case How.CLOSE:
                return False
            case How.RESET:
                # Closing with this option sends RST instead of FIN.
                self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return False
            case How.HANG:
                self._proxy.wait(fault.how)
                return False
            case How.DELAY:
                self._proxy.wait(fault.how)
                return True
            case _:
                assert_never(fault.how)
