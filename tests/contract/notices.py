"""Where a peer's notices come in, and the rows that rest on them."""

from __future__ import annotations

import queue
from dataclasses import dataclass
from urllib.parse import urlencode

from tests.contract.matrix import NOTICE, Row
from tests.contract.stub.server import WAIT_SECONDS, Answered, Asked, Stub

EMULATE = "emulate 0.11.2"


def _row(adapter: str) -> Row:
    return Row(adapter=adapter, peer=EMULATE, independent=True, case=NOTICE)


GITHUB = _row("github-issues")
STRIPE = _row("stripe-payments")
TWILIO = _row("twilio")
ROWS = (GITHUB, STRIPE, TWILIO)


@dataclass(frozen=True, kw_only=True)
class Told:
    """One notice as it came."""

    headers: dict[str, str]
    body: bytes
    query: str


class Receiver(Stub):
    """Takes every notice and says yes."""

    def __init__(self) -> None:
        self._told: queue.SimpleQueue[Told] = queue.SimpleQueue()
        super().__init__()

    def answer(self, asked: Asked) -> Answered:
        self._told.put(Told(headers=dict(asked.headers), body=asked.body, query=urlencode(asked.pairs)))
        return Answered(body={})

    def next(self) -> Told:
        return self._told.get(timeout=WAIT_SECONDS)
