"""The bodies that the calls take: strict types, no further members, nothing coerced.

What a value may be beyond its type is the domain's to say; the lengths here only keep what no call could
use from going further. Longer sightings in reports are taken whole and cut where they are kept.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from reconciliation.decisions import REASON_LENGTH_MAX, GivenReceipt
from reconciliation.reports import SeenReply
from runs.canonical import canonical_bytes
from runs.journal.turns import CallChosen
from runs.money import Money, parse_money
from runs.refusals import Invalid

# Fencing tokens have some 25 characters; ids of ours 40 at most, those of clients 64.
FencingToken = Annotated[str, StringConstraints(min_length=1, max_length=100)]
ClientId = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Reason = Annotated[str, StringConstraints(min_length=1, max_length=REASON_LENGTH_MAX)]
# HTTP statuses have three digits, whatever they mean.
STATUS_MIN, STATUS_MAX = 100, 999


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class MoneyBody(Body):
    """An amount in minor units of a current ISO 4217 currency: `{"currency": "EUR", "minor": 124000}`."""

    currency: str
    minor: int

    def money(self, *, where: str) -> Money:
        return parse_money({"currency": self.currency, "minor": self.minor}, where=where)


class Budget(Body):
    """What the run's effects may cost in all."""

    limit: MoneyBody


class StartRun(Body):
    """A run: a flow, pinned to a version, and what is to be done, under an id of the caller's."""

    flow: str = Field(description="1 to 100 characters.")
    flow_version: str = Field(description="1 to 100 characters.")
    external_id: str = Field(description="1 to 200 characters; with the flow, the run's identity.")
    input: Any = Field(description="Any JSON; the same again must be equal to it.")
    goal: str | None = Field(default=None, description="A sentence for people, at most 500 characters.")
    flow_digest: str | None = Field(default=None, description="SHA-256 of the version, 64 hex digits.")
    budget: Budget | None = None
    approval: str | None = Field(default=None, description="The id of a record that an approver made.")

    def limit(self) -> Money | None:
        return self.budget.limit.money(where="/budget/limit") if self.budget else None


class Claim(Body):
    """A worker asks for the run's lease. The same claim id again gets the same lease."""

    claim_id: ClientId
    worker: ClientId
    flow_version: str
    lease_seconds: int = Field(description="5 to 3600.")
    flow_digest: str | None = None


class Renew(Body):
    token: FencingToken
    lease_seconds: int | None = Field(default=None, description="5 to 3600; as claimed if left out.")


class Release(Body):
    token: FencingToken


class Complete(Body):
    token: FencingToken
    output: Any = Field(description="Any JSON.")


class GiveUp(Body):
    reason: Reason


class Revoke(Body):
    """Names the lease that the person saw, so that a repeat can't end the one after it."""

    lease: int = Field(description="The number of the lease, as GET /runs/{id} shows it.")
    reason: Reason


class ChosenCall(Body):
    """One tool call of a turn; an effect names its provider account, a read has none."""

    call_id: ClientId
    tool: str = Field(description="1 to 100 characters.")
    effect: bool
    provider: str | None = None
    args: Any = Field(description="The payload, whole.")
    amount: MoneyBody | None = None

    def chosen(self, position: int) -> CallChosen:
        amount = self.amount.money(where=f"/calls/{position}/amount") if self.amount else None
        return CallChosen(
            call_id=self.call_id,
            tool=self.tool,
            effect=self.effect,
            args=self.args,
            provider=self.provider or "",
            amount=amount,
        )


class SaveTurn(Body):
    """What the model decided, before any of it starts."""

    token: FencingToken
    index: int = Field(ge=1, description="From 1, without gaps.")
    decision: Any = Field(description="Any JSON.")
    parallel: bool = False
    calls: list[ChosenCall]

    def chosen(self) -> tuple[CallChosen, ...]:
        return tuple(call.chosen(position) for position, call in enumerate(self.calls))


class SaveResult(Body):
    token: FencingToken
    result: Any = Field(description="Any JSON.")


class Send(Body):
    token: FencingToken
    attempt_id: ClientId = Field(description="Minted by the caller, so that a lost go can be asked again.")


class Sighting(Body):
    """What the sender saw of one attempt."""

    token: FencingToken
    attempt_id: ClientId
    status: int | None = Field(default=None, ge=STATUS_MIN, le=STATUS_MAX)
    headers: dict[str, str] | list[Annotated[list[str], Field(min_length=2, max_length=2)]] | None = None
    body: str | None = Field(default=None, description="The answer's body, where it is text.")
    body_base64: str | None = Field(default=None, description="The answer's body, where it isn't.")
    error: str | None = None
    phase: str | None = None

    def seen(self) -> SeenReply:
        return SeenReply(
            status=self.status,
            headers=_pairs(self.headers),
            body=_content(self.body, self.body_base64),
            error=self.error or "",
            phase=self.phase or "",
        )


class GiveReceipt(Body):
    """The provider's proof: its id for the effect, and its record as a JSON object or as text."""

    token: FencingToken
    attempt_id: ClientId
    reference: str = Field(description="The provider's id, 1 to 300 characters.")
    body: dict[str, Any] | str | None = None
    body_base64: str | None = None
    status: int | None = Field(default=None, ge=STATUS_MIN, le=STATUS_MAX)
    headers: dict[str, str] | list[Annotated[list[str], Field(min_length=2, max_length=2)]] | None = None

    def seen(self) -> SeenReply:
        if self.body is None and self.body_base64 is None:
            raise Invalid("Give the provider's record as body or body_base64.", where="/body")
        return SeenReply(
            status=self.status, headers=_pairs(self.headers), body=_content(self.body, self.body_base64)
        )


class Decision(Body):
    """What every decision says: which case and evidence the person saw, and why they decide so."""

    seen_version: int
    evidence_digest: str
    reason_code: str
    reason: str


class ReceiptGiven(Body):
    """A receipt on record (`evidence_id`, `reference`), or the provider's record in full (`body`)."""

    evidence_id: str | None = None
    reference: str | None = Field(default=None, max_length=300)
    body: dict[str, Any] | str | None = None

    def given(self) -> GivenReceipt:
        if self.evidence_id is not None and self.body is not None:
            raise Invalid("Name evidence on record or give a record, not both.", where="/receipt")
        return GivenReceipt(
            evidence_id=self.evidence_id or "",
            reference=self.reference or "",
            body=b"" if self.body is None else _content(self.body, None),
        )


class Confirm(Decision):
    receipt: ReceiptGiven | None = None


class Retry(Decision):
    executor: Literal["agent", "console"]


class Abandon(Decision):
    then: Literal["end", "continue"]


class MakeAbsent(Abandon):
    """As an abandonment: the obligation is given up, with the provider's word that nothing is there."""


class Withdraw(Body):
    reason: Reason


class Comment(Body):
    comment: str = Field(description="Why, in 3 to 4,000 characters.")


class Approve(Comment):
    """Names the content that the person saw, as GET /approvals/{id} shows it."""

    content_digest: str


class Message(Body):
    text: str = Field(description="3 to 4,000 characters.")


class Attach(Body):
    """Something that a person found out: a provider's letter, a screenshot's text, an export."""

    summary: str = Field(description="One sentence, 1 to 500 characters.")
    reference: str | None = Field(default=None, description="The provider's id, if it has one.")
    body: dict[str, Any] | str | None = None
    body_base64: str | None = None

    def content(self) -> bytes:
        return _content(self.body, self.body_base64)


class Nothing(Body):
    """A call that needs no words: `{}`."""


def _pairs(headers: dict[str, str] | list[list[str]] | None) -> tuple[tuple[str, str], ...]:
    if headers is None:
        return ()
    if isinstance(headers, dict):
        return tuple(headers.items())
    return tuple((name, value) for name, value in headers)


def _content(body: dict[str, Any] | str | None, body_base64: str | None) -> bytes:
    """Return what was seen as bytes; an object as its canonical form, so that it is the same each time."""
    if body is not None and body_base64 is not None:
        raise Invalid("Give body or body_base64, not both.", where="/body_base64")
    if body_base64 is not None:
        try:
            return base64.b64decode(body_base64, validate=True)
        except (binascii.Error, ValueError):
            raise Invalid("body_base64 is not base64 (RFC 4648).", where="/body_base64") from None
    if body is None:
        return b""
    return body.encode() if isinstance(body, str) else canonical_bytes(body)
