"""HTTP/1.1 on a local port: one thread per connection, bounded, and never a crash for what is sent to it."""

from __future__ import annotations

import json
import re
import socket
import struct
import sys
import threading
import time
import traceback
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

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
# connection, so that we are never the one that closes it just as they send.
IDLE_SECONDS = 75.0
# What a refused body may still send before we close: closing at once would reset the connection, and the
# client would lose the answer that says why.
LINGER_BYTES_MAX = 32 * 1024 * 1024
LINGER_SECONDS = 5.0
_LENGTH = re.compile(r"[0-9]{1,12}\Z")


class SandboxServer(ThreadingHTTPServer):
    """The listening socket and everything behind it."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self, store: Store, *, port: int) -> None:
        """Bind 127.0.0.1 at `port` (0: any free one); raises OSError where it is taken."""
        waiting = Holds()
        self.provider = Provider(store, waiting)
        self.routes = Routes(store, waiting, self.provider)
        self._slots = threading.BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__((HOST, port), _Handler)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}"

    def server_bind(self) -> None:
        # HTTPServer would look the host's name up here, which can take seconds and is used for nothing.
        socket_server_bind = super(ThreadingHTTPServer, self).__class__.__mro__
        del socket_server_bind
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

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
        """Say on stderr what went wrong, unless it is only that a client went away."""
        if not isinstance(sys.exc_info()[1], OSError):
            traceback.print_exc(file=sys.stderr)


class _Handler(BaseHTTPRequestHandler):
    """One connection. Reads requests strictly and writes each reply, or its failure, in one go."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = IDLE_SECONDS
    server: SandboxServer

    # -- the request, as `routes.Question` ---------------------------------------------------------------

    method = ""
    query = ""

    def fileno(self) -> int:
        return self.connection.fileno()

    def has_left(self) -> bool:
        try:
            return self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def header_values(self, name: str) -> list[str]:
        return self.headers.get_all(name, [])

    def read_body(self) -> bytes:
        """The whole body; raises `Refused` for what can't be read and `ClientLeft` for what never came."""
        length = self._body_length()
        if length > BODY_BYTES_MAX:
            raise Refused(413, "too_large", f"A body has at most {BODY_BYTES_MAX} bytes.")
        content_types = self.header_values("Content-Type")
        if any(kind.split(";")[0].strip().lower() != "application/json" for kind in content_types):
            # A form or plain text is what a web page could make a browser send here without asking.
            raise Refused(415, "not_json", "The body's Content-Type must be application/json.")
        try:
            body = self.rfile.read(length)
        except OSError:
            raise ClientLeft from None
        self._unread = 0
        if len(body) < length:
            raise ClientLeft
        return body

    def _body_length(self) -> int:
        if self.header_values("Transfer-Encoding"):
            raise Refused(411, "length_required", "Send the body with a Content-Length.")
        lengths = set(self.header_values("Content-Length"))
        if not lengths:
            return 0
        if len(lengths) > 1 or not _LENGTH.match(text := lengths.pop()):
            raise Refused(400, "length_invalid", "Content-Length must be one whole number.")
        return int(text)
