"""One adapter at one peer: what it sends and asks goes through the fault proxy, what happened the peer says.

A bench never takes the adapter's word for an effect. It counts at the peer, past the proxy: by the peer's own
counters where it has some, else by listing what the peer holds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from reconciliation.contracts import Contract
from reconciliation.providers.base import (
    Adapter,
    Finding,
    OutgoingOperation,
    Question,
    Receipt,
    ReceiptSeen,
    ReceiptState,
    SendOutcome,
    UnknownSeen,
    elapsed_seconds,
)
from reconciliation.providers.declaration import read_file
from reconciliation.providers.http_declared import HttpDeclared
from reconciliation.providers.listing import Listing, Lists
from reconciliation.providers.registry import SHIPPED
from reconciliation.providers.transport import Transport
from runs.canonical import canonical_bytes
from runs.ids import new_id
from runs.money import Money
from tests.contract.stub.server import Stub
from tests.fault_proxy import FaultProxy
from tests.sandbox_client import new_client

WITHIN_MS = 10_000


@dataclass(frozen=True, kw_only=True)
class Order:
    """One operation in a place of its own at the peer, so that its effects can be counted there."""

    tool: str
    payload: dict[str, Any]
    # The same place and effect, other content: what a changed payload under the same key would be.
    other: dict[str, Any]
    # A request that the peer is known to refuse, in the same place.
    refused: dict[str, Any] = field(default_factory=dict)
    amount: Money | None = None
    other_amount: Money | None = None
    # Where the peer holds the effects of this order and of no other.
    place: str = ""
    operation_id: str = field(default_factory=lambda: new_id("op"))
    key: str = field(default_factory=lambda: f"rk-{new_id('t').lower().replace('_', '-')}")
    # The peer's clock is the machine's.
    first_sent_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def changed(self) -> Order:
        """The same key for other content."""
        return replace(self, payload=self.other, amount=self.other_amount or self.amount)

    def impossible(self) -> Order:
        """The same key for what the peer refuses."""
        assert self.refused, "this order can't be refused"
        return replace(self, payload=self.refused)


class Bench(ABC):
    """An adapter, its peer and the proxy between them; close it after the test."""

    # How many effects the peer makes of one key that is sent again; 2 where it ignores keys.
    effects_of_a_repeat = 1
    # Whether the peer says of an answer that it is one played back.
    marks_replays = False
    # How many first sends at once the concurrent case makes.
    at_once = 5
    # Whether what a lookup shows carries our key or reference at this peer, where the contract reads one.
    shows_our_mark = True
    # Whether the peer leaves everything that it makes pending.
    stays_pending = False

    def __init__(self, peer_url: str) -> None:
        self.peer_url = peer_url
        self.proxy = FaultProxy(peer_url)
        self.adapter = self.adapter_at(self.proxy.url)

    def close(self) -> None:
        self.close_adapter()
        self.proxy.close()

    def close_adapter(self) -> None:
        if isinstance(self.adapter, HttpDeclared):
            self.adapter.close()

    def move(self, url: str, *, sending: Transport | None = None) -> None:
        """Let the adapter believe that the provider is elsewhere, or send over a transport of the test's."""
        self.close_adapter()
        self.adapter = self.adapter_at(url, sending=sending)

    @property
    def contract(self) -> Contract:
        return self.adapter.contract

    @abstractmethod
    def adapter_at(self, url: str, *, sending: Transport | None = None) -> Adapter:
        """The adapter as it is shipped, with this for the provider's address."""

    @abstractmethod
    def order(self) -> Order:
        """A fresh operation in a place of its own."""

    @abstractmethod
    def held(self, order: Order) -> list[str]:
        """The references of the effects that the peer holds in the order's place, counted there."""

    def requests(self) -> int | None:
        """How many requests to have an effect the peer says it got; None where it doesn't count them."""
        return None

    def send(
        self,
        order: Order,
        *,
        attempt: int = 1,
        within_ms: int = WITHIN_MS,
        payload_bytes: bytes | None = None,
    ) -> SendOutcome:
        return self.adapter.send(
            OutgoingOperation(
                operation_id=order.operation_id,
                idempotency_key=order.key,
                tool=order.tool,
                payload_bytes=payload_bytes or canonical_bytes(order.payload),
                payload=order.payload,
                amount=order.amount,
                attempt_id=f"attempt-{attempt}",
                attempt_number=attempt,
                start_by=elapsed_seconds() + WITHIN_MS / 1000,
                request_within_ms=within_ms,
            )
        )

    def is_receipt(self, outcome: SendOutcome) -> bool:
        """Whether the answer shows the effect that was asked for, as final as this peer makes it."""
        if self.stays_pending:
            return (
                isinstance(outcome, UnknownSeen)
                and outcome.receipt is not None
                and outcome.receipt.named
                and outcome.receipt.same
                and outcome.receipt.state is ReceiptState.PENDING
            )
        return isinstance(outcome, ReceiptSeen)

    def receipt(self, outcome: SendOutcome) -> Receipt:
        """The receipt of a send that must have brought one."""
        assert self.is_receipt(outcome), f"{outcome.summary} {outcome.exchange.body[:500]}"
        assert isinstance(outcome, ReceiptSeen | UnknownSeen)
        assert outcome.receipt is not None
        return outcome.receipt

    def send_refused(self, order: Order) -> SendOutcome:
        """A first send that the peer refuses."""
        return self.send(order.impossible())

    def send_duplicate(self, order: Order) -> SendOutcome:
        """A second effect for the same operation, as one made past the key's protection would be."""
        return self.send(replace(order, key=f"{order.key}-2"), attempt=2)

    def list_made(self, since_at: datetime) -> Listing:
        """List what was made since then, as after a restore."""
        assert isinstance(self.adapter, Lists)
        # A second more than now: some peers count whole seconds.
        until_at = self.now() + timedelta(seconds=1)
        return self.adapter.list_made(since_at=since_at, until_at=until_at, permit=lambda: True)

    def now(self) -> datetime:
        """The peer's clock."""
        return datetime.now(UTC)

    def look_up(self, order: Order, *, asked_after_ms: int = 60_000, reference: str | None = None) -> Finding:
        """Ask, as if it were that long after the first send; by then every attempt is quiet."""
        return self.adapter.look_up(
            Question(
                operation_id=order.operation_id,
                idempotency_key=order.key,
                tool=order.tool,
                payload=order.payload,
                amount=order.amount,
                first_sent_at=order.first_sent_at,
                last_quiet_at=self.contract.quiet_at(order.first_sent_at),
                asked_at=order.first_sent_at + timedelta(milliseconds=asked_after_ms),
                reference=reference,
            )
        )


class DeclaredBench(Bench):
    """A shipped TOML file at a peer that speaks HTTP."""

    slug: str
    # The variable that names the provider's address, and what follows the peer's address in it.
    url_name: str
    url_path = ""
    environ: Mapping[str, str] = {}

    def __init__(self, peer_url: str) -> None:
        self.http = new_client(peer_url)
        super().__init__(peer_url)

    def close(self) -> None:
        super().close()
        self.http.close()

    def adapter_at(self, url: str, *, sending: Transport | None = None) -> Adapter:
        name = f"{self.slug}.toml"
        (path,) = SHIPPED.rglob(name)
        declared = read_file(
            path,
            shown_as=name,
            environ={**self.environ, self.url_name: f"{url}{self.url_path}"},
        )
        assert declared.account.configured, f"{name} wants {declared.account.missing}"
        return HttpDeclared(declared, sending=sending)

    def peer(self, method: str, path: str, **how: Any) -> Any:
        """Ask the peer itself, past the proxy, in no way of the adapter's; its answer as JSON."""
        answer = self.http.request(method, path, **how)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text[:500]}"
        return answer.json()


class StubBench(DeclaredBench):
    """A shipped file at a stub of ours, which lives as long as the bench."""

    def __init__(self, stub: Stub) -> None:
        self.stub = stub
        super().__init__(stub.url)

    def close(self) -> None:
        self.stub.let_go()
        super().close()
        self.stub.close()

    def requests(self) -> int | None:
        return self.stub.requests

    def list_made(self, since_at: datetime) -> Listing:
        """Once everything shows in the list, as the account's file says."""
        self.stub.advance_clock(self.adapter.account.listing.lag_ms)
        return super().list_made(since_at)

    def now(self) -> datetime:
        """The stub's clock, which tests move."""
        return datetime.fromtimestamp(self.stub.now(), UTC)


def basic(user: str, password: str = "") -> httpx.BasicAuth:
    return httpx.BasicAuth(user, password)
