"""An in-house API that knows nothing of Recourse: orders by HTTP, in a process of its own.

It honours an Idempotency-Key for ever, shows an order by our reference, and closes the connection without a
reply to the first request whose payload says `lose_reply`, after it has carried it out. Prints its port, and
one line for each request.
"""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

ORDERS: dict[str, dict[str, Any]] = {}
TOKEN = "Bearer in-house-secret"


class Orders(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        payload = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers.get("Idempotency-Key", "")
        if not self._may():
            return
        again = key in ORDERS
        order = ORDERS.setdefault(key, {**payload, "number": f"N-{len(ORDERS) + 1}", "state": "placed"})
        self._tell("POST", key, again)
        if payload.get("lose_reply") and not again:
            self.close_connection = True
            return
        self._say(200 if again else 201, order)

    def do_GET(self) -> None:
        if not self._may():
            return
        asked = parse_qs(urlsplit(self.path).query).get("ref", [""])[0]
        self._tell("GET", asked, False)
        self._say(200, {"orders": [one for one in ORDERS.values() if one.get("ref") == asked]})

    def _may(self) -> bool:
        if self.headers.get("Authorization") == TOKEN:
            return True
        self._say(401, {"error": "who are you"})
        return False

    def _say(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _tell(self, method: str, about: str, again: bool) -> None:
        print(json.dumps({"method": method, "about": about, "again": again}), flush=True)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing: what matters is told."""


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), Orders) as server:
        print(f"listening on {server.server_address[1]}", flush=True)
        server.serve_forever()
