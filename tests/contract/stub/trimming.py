"""An independent peer with its answers cut down to what the provider documents."""

from __future__ import annotations

from typing import Any

from tests.contract.stub.server import Answered, Asked, Stub
from tests.sandbox_client import new_client

# As resend.com/changelog/list-sent-emails-endpoint shows a mail in the list, read on 2026-11-30.
LISTED = frozenset(
    {
        "id",
        "object",
        "to",
        "from",
        "created_at",
        "subject",
        "bcc",
        "cc",
        "reply_to",
        "last_event",
        "scheduled_at",
    }
)
PASSED_ON = ("authorization", "content-type", "idempotency-key")


class TrimmedResend(Stub):
    """Passes everything on to a Resend whose list says more than the real one's, newest first."""

    def __init__(self, peer_url: str) -> None:
        self._peer = new_client(peer_url)
        super().__init__()

    def close(self) -> None:
        super().close()
        self._peer.close()

    def answer(self, asked: Asked) -> Answered:
        headers = {name: asked.headers[name] for name in PASSED_ON if name in asked.headers}
        with self._lock:
            answer = self._peer.request(
                asked.method, asked.path, params=dict(asked.query), headers=headers, content=asked.body
            )
        body: Any = answer.json()
        if asked.method == "GET" and asked.path == "/emails" and answer.is_success:
            body["data"] = [
                {name: value for name, value in one.items() if name in LISTED}
                for one in reversed(body["data"])
            ]
            body["has_more"] = False
        return Answered(status=answer.status_code, body=body)
