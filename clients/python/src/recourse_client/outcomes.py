"""What your sending function is given, what it may answer, and what an effect comes to.

A sending function takes one `Go` and either returns a `Receipt` or raises `Rejected`, `NotSent` or
`Unknown`. Whatever else it does — another exception, a time-out, a return value that is no receipt —
counts as unknown: silence is no proof that nothing happened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol, TypeAlias

from recourse_client.errors import NoReceipt

Json: TypeAlias = Any  # None, bool, int, float, str, and lists and dicts of them


@dataclass(frozen=True)
class Receipt:
    """The provider's proof: its own reference for the effect, and its record of it.

    `body` is matched with the payload and kept for auditors: best the answer's bytes just as they came (they
    are read as JSON where they are JSON), or a value that has a JSON form.
    """

    reference: str
    body: Json | bytes = None


class SendingOutcome(Exception):
    """The root of what a sending function may raise to report something other than a receipt."""


@dataclass(frozen=True)
class Seen:
    """What was seen of the provider's answer; `phase` says how far the request had come."""

    status: int | None = None
    headers: Mapping[str, str] | None = None
    body: Json | bytes = None
    error: str | None = None
    phase: str | None = None


class Rejected(SendingOutcome):
    """The provider definitely refused this request (a 4xx that isn't about timing or load)."""

    def __init__(
        self,
        status: int | None = None,
        body: Json | bytes = None,
        *,
        headers: Mapping[str, str] | None = None,
        error: str | None = None,
    ) -> None:
        super().__init__(error or f"the provider refused with status {status}")
        self.seen = Seen(status=status, headers=headers, body=body, error=error)


class NotSent(SendingOutcome):
    """It is certain that no byte of the request left this process. Silence or a time-out is not that."""

    def __init__(self, reason: str, *, phase: str | None = None) -> None:
        super().__init__(reason)
        self.seen = Seen(error=reason, phase=phase)


class Unknown(SendingOutcome):
    """The request may have arrived; whatever was seen of an answer helps the lookup and the person."""

    def __init__(
        self,
        reason: str,
        *,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        body: Json | bytes = None,
        phase: str | None = None,
    ) -> None:
        super().__init__(reason)
        self.seen = Seen(status=status, headers=headers, body=body, error=reason, phase=phase)


class Startable(Protocol):
    """Says, right now, why a request must not start any more; None if it may."""

    def __call__(self) -> str | None: ...


@dataclass(frozen=True)
class Go:
    """Permission to make one request for one operation, already durable in the journal.

    `payload_bytes` are the canonical bytes that were journaled: send them as they are where the provider
    takes JSON; `payload` is the same, parsed. `key` is the idempotency key, the same for every attempt of
    this operation. `attempt` counts from 1: above 1, an earlier request may have had its effect already,
    so an answer speaks about this request only.
    """

    operation: str
    attempt_id: str
    attempt: int
    call_id: str
    tool: str
    provider: str
    key: str
    payload: Json
    payload_bytes: bytes
    # Finish within this time: afterwards the journal takes it that the request can't arrive any more.
    request_within_seconds: float
    _why_not: Startable = field(repr=False, compare=False)

    def check(self) -> None:
        """Raise `NotSent` if the start window has passed or the lease is lost.

        It was asked right before your function began. Ask again right before the first byte leaves if
        something slow (a connection, a token refresh) came in between.
        """
        reason = self._why_not()
        if reason is not None:
            raise NotSent(reason, phase="before_start")


SendFunction: TypeAlias = Callable[[Go], Receipt]
ReadFunction: TypeAlias = Callable[[Json], Json]


# --- what an effect comes to, now or in the plan of a resumed run -----------------------------------------


@dataclass(frozen=True)
class Confirmed:
    """The effect happened. `proof` is None only where two people confirmed it without a receipt."""

    operation: str
    call_id: str
    proof: Receipt | None
    # True if it was on record already, and nothing was sent now.
    saved: bool

    @property
    def receipt(self) -> Receipt:
        """The receipt; raises `NoReceipt` where people confirmed without one."""
        if self.proof is None:
            _no_receipt(self, "was confirmed by people, without a receipt")
        return self.proof


@dataclass(frozen=True)
class Refused:
    """The provider refused definitely: nothing happened, and nothing will.

    `refusal` is its answer: the JSON value where it was JSON, else bounded text.
    """

    operation: str
    call_id: str
    refusal: Json
    saved: bool

    @property
    def receipt(self) -> Receipt:
        """Raises `NoReceipt`, so that code which needs the effect stops here."""
        _no_receipt(self, f"was refused: {self.refusal!r}"[:500])


@dataclass(frozen=True)
class GivenUp:
    """People gave the effect up and let the run go on; `known` is what is known of it."""

    operation: str
    call_id: str
    known: Json
    saved: bool = True

    @property
    def receipt(self) -> Receipt:
        """Raises `NoReceipt`, so that code which needs the effect stops here."""
        _no_receipt(self, "was given up")


EffectResult: TypeAlias = Confirmed | Refused | GivenUp


def _no_receipt(result: EffectResult, what: str) -> NoReturn:
    raise NoReceipt(
        f"there is no receipt: the effect of call {result.call_id} {what}",
        operation=result.operation,
        call_id=result.call_id,
    )
