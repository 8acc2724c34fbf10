"""A caller of the sandbox provider as the tests need one: it sends effects, in the background too."""

from __future__ import annotations

import json
import socket
import ssl
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import httpx

from console.sandbox.control import SandboxControl

ORDER = {"sku": "PUMP-7", "quantity": 2, "amount_minor": 124_000, "currency": "EUR"}

# Plain HTTP on this machine: no certificates, which take longer to read than the request takes.
_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def new_client(base_url: str = "") -> httpx.Client:
    return httpx.Client(base_url=base_url, timeout=60, trust_env=False, verify=_NO_CERTIFICATES)


class Sender:
    """Sends to one account of a sandbox; `background` sends from a thread that `close` waits for."""

    def __init__(self, control: SandboxControl, account: str) -> None:
        self.control = control
        self.account = account
        self.http = new_client(control.account_url(account))
        self.threads = ThreadPoolExecutor(64)

    def close(self) -> None:
        self.threads.shutdown(wait=True, cancel_futures=True)
        self.http.close()

    def send(
        self,
        key: str | None = None,
        body: dict[str, Any] | None = None,
        *,
        kind: str = "orders",
        fault: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        every = dict(headers or {})
        if key is not None:
            every["Idempotency-Key"] = key
        if fault is not None:
            every["Sandbox-Fault"] = fault
        return self.http.post(f"/{kind}", json=ORDER if body is None else body, headers=every)

    def background(self, *args: Any, **kwargs: Any) -> Future[httpx.Response]:
        return self.threads.submit(self.send, *args, **kwargs)

    def find(self, key: str, *, kind: str = "orders", fault: str | None = None) -> httpx.Response:
        headers = {"Sandbox-Fault": fault} if fault else {}
        return self.http.get(f"/{kind}", params={"idempotency_key": key}, headers=headers)

    def found(self, key: str, *, kind: str = "orders") -> list[dict[str, Any]]:
        answer = self.find(key, kind=kind)
        assert answer.status_code == 200, answer.text
        receipts: list[dict[str, Any]] = answer.json()["data"]
        return receipts

    def open_request(self, key: str) -> socket.socket:
        """Send an order on a connection of its own and don't read the answer; the caller closes it."""
        body = json.dumps(ORDER).encode()
        connection = self.connect()
        connection.sendall(
            f"POST /acct/{self.account}/orders HTTP/1.1\r\nHost: sandbox\r\nIdempotency-Key: {key}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        return connection

    def connect(self) -> socket.socket:
        address = urlsplit(self.control.url)
        assert address.hostname is not None
        return socket.create_connection((address.hostname, address.port or 0), timeout=20)
