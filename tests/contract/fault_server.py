"""A TCP server that does one wrong thing, and knows how much of the request it got."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable
from types import TracebackType

RECEIPT = b'{"id":"ord_1","status":"succeeded","idempotency_key":"rk-test","sku":"A-1","quantity":2}'
WAIT_SECONDS = 20.0


def http_answer(body: bytes = RECEIPT, *, status: str = "201 Created", extra: str = "") -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    )
    return head.encode() + body


class Conversation:
    """One connection, as the server's script sees it."""

    def __init__(self, server: FaultServer, sock: socket.socket) -> None:
        self.server = server
        self.sock = sock

    def read_request(self) -> bytes:
        """Read one whole request: head, and as much body as its Content-Length says."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += self.read_some()
        head, _, body = data.partition(b"\r\n\r\n")
        length = 0
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        while len(body) < length:
            body += self.read_some()
        self.server.requests += 1
        self.server.request_read.set()
        return head + b"\r\n\r\n" + body

    def read_some(self, at_most: int = 65536) -> bytes:
        piece = self.sock.recv(at_most)
        if not piece:
            raise ConnectionError("the client left")
        self.server.bytes_read += len(piece)
        return piece

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def hold(self) -> None:
        """Keep the connection open and silent until the test is over."""
        self.server.over.wait(WAIT_SECONDS)


Script = Callable[[Conversation], None]


class FaultServer:
    """Listens on a free port of 127.0.0.1 and plays `script` on every connection.

    With `tls` the script starts after the handshake; `handshake_after` delays that handshake until set.
    """

    def __init__(
        self,
        script: Script,
        *,
        tls: ssl.SSLContext | None = None,
        handshake_after: threading.Event | None = None,
    ) -> None:
        self._script = script
        self._tls = tls
        self._handshake_after = handshake_after
        self.bytes_read = 0
        self.requests = 0
        self.connections = 0
        self.request_read = threading.Event()
        self.connected = threading.Event()
        self.over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def __enter__(self) -> FaultServer:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.over.set()
        if self._handshake_after is not None:
            self._handshake_after.set()
        # A blocked accept doesn't notice a close; a shutdown wakes it.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(WAIT_SECONDS)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self.connected.set()
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        sock.settimeout(WAIT_SECONDS)
        try:
            if self._tls is not None:
                if self._handshake_after is not None:
                    self._handshake_after.wait(WAIT_SECONDS)
                sock = self._tls.wrap_socket(sock, server_side=True)
            self._script(Conversation(self, sock))
        except OSError:
            return
        finally:
            sock.close()
