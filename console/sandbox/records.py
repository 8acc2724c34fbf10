"""What the sandbox keeps and shows: accounts' settings, requests, effects, counts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from console.sandbox.wire import Fields, JsonObject, instant, invalid

DEFAULT_ACCOUNT = "default"
# A rule or a hold for whichever account the request names.
ANY_ACCOUNT = "*"
# The kinds of effect, with the prefix of their receipts' ids.
KINDS = {"orders": "ord", "tickets": "tkt", "emails": "eml", "refunds": "rfd"}

WINDOW_MS_MAX = 10 * 365 * 24 * 3600 * 1000


class Lookup(StrEnum):
    """What an account offers to someone who wants to know whether an effect exists."""

    BY_KEY = "by_key"
    NONE = "none"


class Status(StrEnum):
    """The state of an effect as the provider tells it."""

    SUCCEEDED = "succeeded"
    PENDING = "pending"  # taken, not final; an admin call settles it
    FAILED = "failed"  # exists as a record and changed nothing, so it isn't counted as an effect
    CANCELED = "canceled"  # made, and undone by its key: still counted as made, and as undone beside it


@dataclass(frozen=True)
class AccountSettings:
    """How one account of the provider behaves; each account has its own."""

    honours_keys: bool = True  # the same key is one effect; without it a key is only noted
    echoes_key: bool = True  # receipts show the key they were asked under
    key_window_ms: int | None = None  # a key is forgotten so long after its first request; None is never
    lookup: Lookup = Lookup.BY_KEY
    lookup_lag_ms: int = 0  # a new effect shows in lookups only after this
    requires_auth: str | None = None  # the bearer token without which requests get 401

    def changed(self, fields: Fields) -> AccountSettings:
        """These settings with the fields that a caller named; raises `Refused` for what it can't be."""
        lookup = fields.text("lookup", self.lookup)
        if lookup not in set(Lookup):
            raise invalid(f"lookup must be one of: {', '.join(Lookup)}")
        lag_ms = fields.number("lookup_lag_ms", self.lookup_lag_ms, low=0, high=WINDOW_MS_MAX)
        return AccountSettings(
            honours_keys=fields.flag("honours_keys", self.honours_keys),
            echoes_key=fields.flag("echoes_key", self.echoes_key),
            key_window_ms=fields.number("key_window_ms", self.key_window_ms, low=0, high=WINDOW_MS_MAX),
            lookup=Lookup(lookup),
            lookup_lag_ms=lag_ms or 0,
            requires_auth=fields.text("requires_auth", self.requires_auth),
        )

    def shown(self) -> JsonObject:
        return asdict(self)


@dataclass(frozen=True)
class Arrival:
    """Who asks for what, as the head of the request says it."""

    account: str
    kind: str
    key: str | None


@dataclass(frozen=True)
class Window:
    """One page of a list by time: when the effects were made, in microseconds, and after which number."""

    from_us: int
    to_us: int
    after: int
    limit: int


@dataclass(frozen=True)
class Scope:
    """Which requests a rule or a hold is for; None is any."""

    account: str
    kind: str | None = None
    key: str | None = None

    def covers(self, arrival: Arrival) -> bool:
        return (
            self.account in (ANY_ACCOUNT, arrival.account)
            and self.kind in (None, arrival.kind)
            and self.key in (None, arrival.key)
        )


@dataclass(frozen=True)
class NewEffect:
    """An effect about to be committed. `visible_after_ms`: None hides it from lookups for good."""

    kind: str
    key: str | None
    payload: JsonObject
    status: Status = Status.SUCCEEDED
    visible_after_ms: int | None = 0
    echoes_key: bool = True


@dataclass(frozen=True)
class Remembered:
    """The first answer under a key, with the fingerprint of the request it answered."""

    fingerprint: str
    status: int
    body: bytes


@dataclass(frozen=True)
class Counts:
    """Requests that arrived, effects that were made, lookups asked: three different facts. And of effects
    that were made, how many were undone by requests to cancel whatever a key has made.
    """

    requests: int = 0
    effects: int = 0
    lookups: int = 0
    cancels: int = 0
    undone: int = 0


@dataclass(frozen=True)
class RequestRow:
    """One request as it is on record. `outcome` is None while it is being handled, or was when we died."""

    id: int
    method: str
    account: str
    kind: str
    key: str | None
    faults: str
    outcome: str | None
    fingerprint: str | None
    received_at_us: int
    ended_at_us: int | None

    def shown(self) -> JsonObject:
        ended_at = instant(self.ended_at_us) if self.ended_at_us is not None else None
        return {
            "id": self.id,
            "method": self.method,
            "account": self.account,
            "kind": self.kind,
            "key": self.key,
            "faults": self.faults,
            "outcome": self.outcome,
            "fingerprint": self.fingerprint,
            "received_at": instant(self.received_at_us),
            "ended_at": ended_at,
        }


@dataclass(frozen=True)
class EffectRow:
    """One effect as it is on record; `request_id` is None when it was made by hand."""

    number: int
    id: str
    account: str
    kind: str
    key: str | None
    request_id: int | None
    status: Status
    made_at_us: int
    visible_at_us: int | None
    receipt: dict[str, Any]

    def shown(self) -> JsonObject:
        visible_at = instant(self.visible_at_us) if self.visible_at_us is not None else None
        return {
            "number": self.number,
            "id": self.id,
            "account": self.account,
            "kind": self.kind,
            "key": self.key,
            "request_id": self.request_id,
            "source": "by_hand" if self.request_id is None else "request",
            "status": self.status,
            "made_at": instant(self.made_at_us),
            "visible_at": visible_at,
            "receipt": self.receipt,
        }
