"""HTTP/1.1 on a local port: one thread per connection, bounded, and never a crash for what is sent to it."""

from __future__ import annotations

import re
import socket
import struct
import sys
import threading
import time
import traceback
from email.utils import formatdate
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, assert_never

from console.sandbox.holds import Holds
from console.sandbox.provider import Provider
from console.sandbox.routes import Routes
from console.sandbox.store import Store
from console.sandbox.wire import (
    BODY_BYTES_MAX,
    Answer,
    ClientLeft,
    CutShort,
    Dropped,
    Refused,
    Reply,
    Reset,
)

HOST = "127.0.0.1"
# Each connection is a thread, and a held one stays: enough for any race here, few enough for a small machine.
CONNECTIONS_MAX = 512
# A client that says nothing for so long is gone. Longer than the pools of common HTTP clients keep an idle
# connection, so that we are not the one that closes it just as they send.
IDLE_SECONDS = 75.0
# What a client may still send after we refused its body: closing at once would reset the connection, and
# the client would lose the answer that says why.
LINGER_BYTES_MAX = 32 * 1024 * 1024
LINGER_SECONDS = 5.0
_LENGTH = re.compile(r"[0-9]{1,12}\Z")


class SandboxServer(ThreadingMixIn, TCPServer):
    """The listening socket and everything behind it."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self, store: Store, *, port: int) -> None:
        """Bind 127.0.0.1 at `port` (0: any free one); raises OSError where it is taken."""
        holds = Holds()
        self._provider = Provider(store, holds)
        self.routes = Routes(store, holds, self._provider)
        self._slots = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._stopping = threading.Event()
        super().__init__((HOST, port), _Connection)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.socket.getsockname()[1]}"

    def stop(self) -> None:
        """Take no more connections; what is held or hangs ends with the process and commits nothing."""
        self._stopping.set()
        self._provider.stop()
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say on stderr what went wrong, unless a client went away or we are ending."""
        if not isinstance(sys.exc_info()[1], OSError) and not self._stopping.is_set():
            traceback.print_exc(file=sys.stderr)


class _Exchange:
    """One request of a connection, as `routes.Question` wants it."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._socket: socket.socket = connection.connection
        self.method = connection.command
        self.path, _, self.query = connection.path.partition("?")
        self.body_is_read = not (self.headers("Content-Length") or self.headers("Transfer-Encoding"))

    def headers(self, name: str) -> list[str]:
        return self._connection.headers.get_all(name, [])

    def fileno(self) -> int:
        return self._socket.fileno()

    def has_left(self) -> bool:
        try:
            return self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def read_body(self) -> bytes:
        """The whole body; raises `Refused` for what can't be taken, `ClientLeft` for what never came."""
        length = self._body_length()
        if length > BODY_BYTES_MAX:
            raise Refused(413, "too_large", f"A body has at most {BODY_BYTES_MAX} bytes.")
        try:
            body = self._connection.rfile.read(length)
        except OSError:
            raise ClientLeft from None
        if len(body) < length:
            raise ClientLeft
        self.body_is_read = True
        for media_type in self.headers("Content-Type"):
            # A form or plain text is what any web page can make a browser send here without asking.
            if media_type.partition(";")[0].strip().lower() != "application/json":
                raise Refused(415, "not_json", "The body's Content-Type must be application/json.")
        return body

    def _body_length(self) -> int:
        if self.headers("Transfer-Encoding"):
            raise Refused(411, "length_required", "Send the body with a Content-Length.")
        lengths = set(self.headers("Content-Length"))
        if not lengths:
            return 0
        text = lengths.pop()
        if lengths or not _LENGTH.match(text):
            raise Refused(400, "length_invalid", "Content-Length must be one whole number.")
        return int(text)


class _Connection(BaseHTTPRequestHandler):
    """One connection: reads heads, and writes each reply, or its failure, in one go."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = IDLE_SECONDS
    server: SandboxServer

    def serve(self) -> None:
        """Answer the request whose head has just been read."""
        exchange = _Exchange(self)
        try:
            reply = self.server.routes.answer(exchange)
        except ClientLeft:
            reply = Dropped()
        except Exception:  # noqa: BLE001 - whatever it is, the caller gets an answer and stderr the trace
            self.server.handle_error(self.request, self.client_address)
            reply = Refused(500, "failed", "Something went wrong here.").answer()
        self.carry_out(reply, body_is_read=exchange.body_is_read)

    # The names under which the standard library looks for a method's handler.
    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = serve  # noqa: N815

    def carry_out(self, reply: Reply, *, body_is_read: bool) -> None:
        match reply:
            case Answer():
                self.close_connection = self.close_connection or not body_is_read
                self.write(reply, body_bytes=len(reply.body))
                if not body_is_read:
                    self.linger()
            case CutShort(answer):
                self.close_connection = True
                self.write(answer, body_bytes=len(answer.body) // 2)
            case Dropped():
                self.close_connection = True
            case Reset():
                self.close_connection = True
                # On, with zero seconds: the kernel sends RST instead of FIN when the socket is closed, which
                # is now, but for the buffered reader that `finish` closes next.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
            case never:
                assert_never(never)

    def write(self, answer: Answer, *, body_bytes: int) -> None:
        """Send the head of a whole answer and the first `body_bytes` of its body."""
        fields = [
            ("Date", formatdate(usegmt=True)),
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            *answer.headers,
        ]
        if self.close_connection:
            fields.append(("Connection", "close"))
        phrase = HTTPStatus(answer.status).phrase
        head = f"HTTP/1.1 {answer.status} {phrase}\r\n" + "".join(
            f"{name}: {value}\r\n" for name, value in fields
        )
        body = b"" if self.command == "HEAD" else answer.body[:body_bytes]
        try:
            self.wfile.write(head.encode("latin-1") + b"\r\n" + body)
        except OSError:
            self.close_connection = True

    def linger(self) -> None:
        """Read on for a while, into nothing, so that the client gets to read the answer."""
        end_at = time.monotonic() + LINGER_SECONDS
        left = LINGER_BYTES_MAX
        try:
            self.connection.shutdown(socket.SHUT_WR)
            while left > 0 and (seconds := end_at - time.monotonic()) > 0:
                self.connection.settimeout(seconds)
                chunk = self.connection.recv(65536)
                if not chunk:
                    return
                left -= len(chunk)
        except OSError:
            return

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the standard library answers to a head that it can't read, in this provider's form."""
        self.close_connection = True
        sentence = message or HTTPStatus(code).phrase
        self.write_refusal(Refused(code, "bad_request", f"The request can't be read: {sentence}"))

    def write_refusal(self, refused: Refused) -> None:
        answer = refused.answer()
        self.write(answer, body_bytes=len(answer.body))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Keep quiet: `/requests` says what arrived, and it says it after a crash too."""
