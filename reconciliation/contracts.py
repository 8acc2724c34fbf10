"""What a provider promises, as typed data: the contract, and the account that it holds for.

Nothing here reads a file or the network. `providers/registry.py` builds these from TOML; `policy.py`
concludes from them. Every instant is an aware `datetime` of the database's clock, handed in by the caller.
A promise that nobody published is `None` or `unknown`, never a hopeful default.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from enum import StrEnum

# The shortest key that one of the surveyed providers accepts (Square), so one form of key serves them all.
KEY_LENGTH_MAX = 45
# How much of a digest names a credential: enough to tell two apart, and useless as a password.
FINGERPRINT_LENGTH = 16


class KeyFormat(StrEnum):
    """In what form the provider takes our idempotency key."""

    NONE = "none"  # no key is honoured; nothing is sent in its place
    HEADER_BARE = "header_bare"  # a request header with the key as it is, as most providers read it
    HEADER_QUOTED = "header_quoted"  # a request header holding an RFC 8941 string: "key" in double quotes
    BODY_FIELD = "body_field"  # a member of the request's JSON body


class KeyScope(StrEnum):
    """Inside what the same key is recognised; leaving it ends the protection."""

    NONE = "none"  # no key is honoured
    ACCOUNT = "account"  # the provider's account, whatever credential or endpoint is used
    API_KEY = "api_key"  # one credential: rotating it forgets every key
    REGION = "region"  # one region or regional endpoint
    ENDPOINT = "endpoint"  # one path and method
    QUEUE = "queue"  # one queue or topic


class WindowKind(StrEnum):
    """How far `dedup_window_ms` can be relied on."""

    DOCUMENTED = "documented"  # the provider publishes this duration
    MINIMUM = "minimum"  # the provider promises at least this long
    UNPUBLISHED = "unpublished"  # honoured for a time that nobody states: no instant can be relied on
    NONE = "none"  # no key is honoured


class OnOtherPayload(StrEnum):
    """What the same key gets with another payload, inside the window."""

    REFUSED = "refused"  # an error, and no effect
    REPLAYED = "replayed"  # the first answer, with no word about the difference
    PERFORMED = "performed"  # a second effect
    UNKNOWN = "unknown"  # not published


class OnInFlight(StrEnum):
    """What the same key gets while its first request is still running."""

    REFUSED = "refused"  # an error, and no second effect
    WAITS = "waits"  # the answer comes when the first request has ended
    PERFORMED = "performed"  # a second effect is possible
    UNKNOWN = "unknown"  # not published


class Replays(StrEnum):
    """What the same key and payload get after the first request has ended, inside the window."""

    FIRST_ANSWER = "first_answer"  # the first answer, success or error, as it was
    FIRST_SUCCESS = "first_success"  # the first success; an error is not kept and the work runs again
    LATEST_STATUS = "latest_status"  # the same effect in the state it has now
    NOTHING = "nothing"  # no key is honoured: the work runs again
    UNKNOWN = "unknown"  # not published


class LookupKind(StrEnum):
    """By what the provider lets us look for an effect without changing anything."""

    NONE = "none"  # it doesn't
    BY_KEY = "by_key"  # an exact filter on our idempotency key
    BY_REFERENCE = "by_reference"  # an exact filter on a reference of ours that travels in the payload
    BY_LISTING = "by_listing"  # a consistent list over a period, compared by us
    BY_SEARCH = "by_search"  # a search index that lags or ranks: a hint, never a reliable answer
    BY_RESEMBLANCE = "by_resemblance"  # records carry nothing of ours: at best one looks alike


class CompareAs(StrEnum):
    """How a field of the payload is compared with the provider's answer."""

    EXACT = "exact"  # the same JSON value of the same type; 1 and 1.0 are the same number
    TEXT = "text"  # the same text once both are written out, for providers that turn numbers into strings
    TEXT_CASELESS = "text_caseless"  # the same text whatever its case, as for currency codes
    DECIMAL_MINOR = "decimal_minor"  # ours in minor units, theirs a decimal string of the same currency
    TEXT_WITHIN = "text_within"  # theirs contains ours, for texts that we or the provider add to
    MEMBERS = "members"  # every member of ours, whatever else theirs has beside them
    MD5 = "md5"  # theirs is the MD5, in hex, of our text in UTF-8
    JSON_TEXT = "json_text"  # theirs is JSON text of the same value as ours


class VerifiedWith(StrEnum):
    """What this adapter's behaviour has been seen against."""

    INDEPENDENT_PEER = "independent_peer"  # a server that somebody else wrote
    OWN_STUB = "own_stub"  # only a server of ours, which can share our misreading
    NOTHING = "nothing"  # never run


class AmountForm(StrEnum):
    """How the provider writes an amount."""

    MINOR = "minor"  # an integer of minor units: 124000
    DECIMAL = "decimal"  # a decimal number, usually as a string: "1240.00"
    DECIMAL_NEGATIVE = "decimal_negative"  # the same, written as money that leaves: "-1240.00"


class ReferenceForm(StrEnum):
    """How the place where our reference is holds it."""

    WHOLE = "whole"  # the reference and nothing else
    WITHIN = "within"  # somewhere in a text: a marker of ours that the template describes


class ReplyShows(StrEnum):
    """How much of the record a direct reply shows."""

    RECORD = "record"  # what a lookup shows as well: what is missing there is a difference
    PART = "part"  # an id and perhaps more: what it doesn't show is neither compared nor expected


class AmountMust(StrEnum):
    """How the receipt's amount must stand to the operation's, where both are known."""

    EQUAL = "equal"  # the same currency and the same amount
    NOT_EXCEED = "not_exceed"  # the same currency and at most the amount, as for "up to" orders
    SAME_CURRENCY = "same_currency"  # only the currency: the amount is what the provider made of it


@dataclass(frozen=True, kw_only=True, slots=True)
class MatchField:
    """One comparison between the payload that we sent and the receipt that we were shown (both JSONPath)."""

    payload: str
    answer: str
    compare: CompareAs = CompareAs.EXACT


@dataclass(frozen=True, kw_only=True, slots=True)
class ReceiptPaths:
    """Where a receipt says what it is: JSONPaths in the receipt; None where it doesn't say.

    `key` is where our idempotency key is echoed, `reference` where a reference of ours that travelled in the
    request is; `our_reference` is the template of that reference (`{operation}`, `{key}`, `{payload.name}`).
    A receipt of a provider that echoes the key must carry it, in a direct reply too, unless the reply shows
    only a part. `answer_at` is where the record is inside the answer to a send ("$.ticket"); a receipt that
    is submitted may be that answer or the record itself.
    """

    id: str = "$.id"
    key: str | None = None
    reference: str | None = None
    our_reference: str | None = None
    amount: str | None = None
    currency: str | None = None
    amount_form: AmountForm = AmountForm.MINOR
    amount_must: AmountMust = AmountMust.EQUAL
    reference_form: ReferenceForm = ReferenceForm.WHOLE
    reply: ReplyShows = ReplyShows.RECORD
    answer_at: str = "$"


@dataclass(frozen=True, kw_only=True, slots=True)
class SuccessWhen:
    """Which states of a receipt mean that the effect has happened: found is not yet succeeded.

    `path` is a JSONPath in the receipt. A value in `succeeded` is success, one in `refused` ended without
    effect, anything else (also a missing or odd value) is still pending.
    """

    path: str
    succeeded: tuple[str, ...]
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerPattern:
    """A kind of answer: status codes, and optionally a header, and a JSONPath in the body.

    `statuses` holds single codes; an empty tuple means any. With a `path` and no `values`, presence counts;
    with `values`, one of the values at the path is among them. The same for `header` and `header_values`,
    whatever their case.
    """

    statuses: tuple[int, ...] = ()
    path: str | None = None
    values: tuple[str, ...] = ()
    header: str | None = None
    header_values: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Contract:
    """What one provider account promises about keys, windows, lookups and absence (DESIGN §5).

    Durations are milliseconds. `None` for a duration means that no bound is published.
    """

    # Where the key goes: a header's name or a body member; None where no key is honoured.
    key_field: str | None
    key_format: KeyFormat
    key_scope: KeyScope
    # How long the same key is recognised, counted from the FIRST send; None when unpublished or no key.
    dedup_window_ms: int | None
    window_kind: WindowKind
    # Taken off the window's end, for clocks that differ and requests that travel.
    window_margin_ms: int
    on_other_payload: OnOtherPayload
    on_in_flight: OnInFlight
    replays: Replays
    # Whether a definite refusal of a later attempt with the same key also speaks for the first attempt.
    rejection_replays: bool
    # Error answers that prove the effect exists ("already exists", "duplicate invoice").
    proves_existence: tuple[AnswerPattern, ...]
    lookup: LookupKind
    # How late a committed effect may appear in a lookup.
    visibility_lag_ms: int | None
    # How long after it happened an effect can still be looked up; None when it isn't stated.
    lookup_retention_ms: int | None
    # Whether "not found", after lag and quiet time and inside retention, proves that nothing happened.
    absence_is_proof: bool
    match_fields: tuple[MatchField, ...]
    # None: a receipt that is found has succeeded.
    success_when: SuccessWhen | None
    # Lookups per second that we allow ourselves.
    rate_limit_per_second: float
    # How long a request that we no longer wait for may still take effect inside the provider.
    in_flight_bound_ms: int
    # How long after "go" was first asked for a sender may still start.
    start_within_ms: int
    # The longest that one request may take from its first byte to the end of the answer.
    request_within_ms: int
    receipt: ReceiptPaths = ReceiptPaths()

    @property
    def honours_key(self) -> bool:
        """Whether the same key, sent again in its scope, is recognised for some time, stated or not."""
        return self.key_format is not KeyFormat.NONE and self.window_kind is not WindowKind.NONE

    @property
    def has_lookup(self) -> bool:
        """Whether the effect can be asked for at all without another change (question 3)."""
        return self.lookup is not LookupKind.NONE

    @property
    def has_reliable_lookup(self) -> bool:
        """Whether a lookup is exact and shows an effect within a stated time (question 2).

        A search index, or a lookup whose lag nobody states, can still find an effect; it can't be relied on
        to have shown it.
        """
        exact = self.lookup in (LookupKind.BY_KEY, LookupKind.BY_REFERENCE, LookupKind.BY_LISTING)
        return exact and self.visibility_lag_ms is not None

    def quiet_at(self, attempt_at: datetime) -> datetime:
        """When an attempt that was allowed at `attempt_at` can no longer take effect at the provider."""
        span_ms = self.start_within_ms + self.request_within_ms + self.in_flight_bound_ms
        return attempt_at + timedelta(milliseconds=span_ms)

    def key_ends_at(self, first_sent_at: datetime) -> datetime | None:
        """When the key stops protecting: the first send plus the window less its margin.

        None means that no instant can be relied on: no key, or a window that nobody published.
        """
        if not self.honours_key or self.dedup_window_ms is None:
            return None
        return first_sent_at + timedelta(milliseconds=self.dedup_window_ms - self.window_margin_ms)

    def repeat_starts_by(self, first_sent_at: datetime) -> datetime | None:
        """The latest permission for a repeat that still arrives inside the window (a grant's not_after).

        The window's end less start_within and the longest request, so that even the slowest start arrives
        in time. None as in `key_ends_at`; an instant before `first_sent_at` means never.
        """
        ends_at = self.key_ends_at(first_sent_at)
        if ends_at is None:
            return None
        return ends_at - timedelta(milliseconds=self.start_within_ms + self.request_within_ms)

    def absence_provable_at(self, last_quiet_at: datetime) -> datetime | None:
        """From when "not found" proves absence: all attempts quiet, and the visibility lag after that.

        None means never: the contract doesn't let absence be proved, or no lookup is exact enough for it.
        """
        if not self.absence_is_proof or not self.has_reliable_lookup or self.visibility_lag_ms is None:
            return None
        return last_quiet_at + timedelta(milliseconds=self.visibility_lag_ms)

    def lookup_speaks_until(self, first_sent_at: datetime) -> datetime | None:
        """Until when a lookup still shows an effect of the first attempt; None when no end is stated.

        After it "not found" proves nothing, because the provider may have forgotten.
        """
        if self.lookup_retention_ms is None:
            return None
        return first_sent_at + timedelta(milliseconds=self.lookup_retention_ms)

    def absence_is_proved(
        self, *, first_sent_at: datetime, last_quiet_at: datetime, asked_at: datetime
    ) -> bool:
        """Whether "not found", answered to a question asked at `asked_at`, proves that nothing happened."""
        since_at = self.absence_provable_at(last_quiet_at)
        until_at = self.lookup_speaks_until(first_sent_at)
        return since_at is not None and asked_at >= since_at and (until_at is None or asked_at < until_at)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """Where one of the contract's fields comes from: a source that a person can open, read on that day."""

    field: str
    source: str
    read_on: date
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verification:
    """Against what, and when, the account's adapter was last seen to behave as declared."""

    kind: VerifiedWith
    peer: str = ""
    tested_on: date | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CredentialReference:
    """A secret that lives in the environment: its name, never its value.

    `fingerprint` is the first 16 hex digits of the secret's SHA-256, or None while the variable isn't set.
    """

    name: str
    env: str
    fingerprint: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class LookupWay:
    """One declared way to ask, the strongest first; a `hint` proves nothing, whatever it shows or doesn't."""

    name: str
    kind: LookupKind
    hint: bool
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ListingWay:
    """Whether everything that was made in a span of time can be listed, as is asked after a restore.

    Where it can't, `why_not` is a sentence. Where it can, `leaves_out` says what isn't in such a list ("" is
    nothing that we know of), and an effect shows in it `lag_ms` after it was made.
    """

    offered: bool = False
    why_not: str = ""
    leaves_out: str = ""
    lag_ms: int = 0


class LateSend(StrEnum):
    """What becomes of a first request that arrives after the effect was made absent."""

    MAY_LAND = "may_land"  # nothing keeps it out: the proof rests on every request having ended before
    REFUSED = "refused"  # the key is burnt, and the provider refuses what comes late


class KeyAfter(StrEnum):
    """What the same key gets once its effect was made absent."""

    BURNT = "burnt"  # refused, or answered from memory
    FREE = "free"  # taken as new
    UNKNOWN = "unknown"  # nobody says


class AskedAgain(StrEnum):
    """What the same request to make it absent does a second time."""

    HARMLESS = "harmless"  # nothing more, by the provider's word
    UNKNOWN = "unknown"  # nobody says


@dataclass(frozen=True, kw_only=True, slots=True)
class MakeAbsent:
    """A request that makes sure that an effect isn't there. Two people decide on it; it is no way to look.

    `request` is its method and path, `says` what it does and doesn't do. `proves_within_ms`: how long after
    the first send the answer "absent" is taken as proof, the request's own longest way there included; later
    the provider may have forgotten what the key names. None is never: the answer is then evidence for people,
    and nothing follows from it.
    """

    title: str
    request: str
    says: str
    late_send: LateSend
    key_after: KeyAfter
    again: AskedAgain
    proves_within_ms: int | None
    documentation_url: str = ""

    def proves_until(self, first_sent_at: datetime) -> datetime | None:
        """Until when a request that takes effect there can prove absence; None is never."""
        if self.proves_within_ms is None:
            return None
        return first_sent_at + timedelta(milliseconds=self.proves_within_ms)


@dataclass(frozen=True, kw_only=True, slots=True)
class AccountPin:
    """What the first send of an operation fixes; where one of these has changed, the key protects nothing."""

    adapter: str
    endpoint: str
    region: str
    credential_fingerprint: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ProviderAccount:
    """One account at one provider, as declared, with its environment references looked up.

    `missing` names the environment variables that it needs and that aren't set: the account is then listed
    as not configured and can neither send nor be asked. `declaration_digest` is the SHA-256 of the file.
    """

    slug: str
    title: str
    adapter: str
    # Changes with the adapter's code and with what the declaration says about sending.
    adapter_version: str
    base_url: str | None
    # Where effects are asked for, relative to base_url.
    endpoint: str
    region: str
    credentials: tuple[CredentialReference, ...]
    missing: tuple[str, ...]
    # Whether the declaration lets the console itself carry out a retry here.
    console_sends: bool
    contract: Contract
    tested: Verification
    facts: tuple[Fact, ...]
    documentation_url: str = ""
    declaration_digest: str = ""
    declared_in: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    lookups: tuple[LookupWay, ...] = ()
    listing: ListingWay = ListingWay()
    make_absent: MakeAbsent | None = None
    # What a worker that sends by itself has to put into its request, so that the effect can be found.
    worker_sends: str = ""

    @property
    def configured(self) -> bool:
        """Whether everything that it needs from the environment is there."""
        return not self.missing

    @property
    def console_can_send(self) -> bool:
        """Whether the console's own worker can carry out a retry: allowed, and configured."""
        return self.console_sends and self.configured

    @property
    def credential_fingerprint(self) -> str:
        """One name for the set of secrets in use; empty when the account has none."""
        parts = [f"{one.name}={one.fingerprint or ''}" for one in self.credentials]
        return fingerprint("\n".join(sorted(parts))) if parts else ""

    @property
    def pin(self) -> AccountPin:
        """What a first send through this account fixes (law 5)."""
        return AccountPin(
            adapter=f"{self.adapter}/{self.adapter_version}",
            endpoint=f"{self.base_url or ''}{self.endpoint}",
            region=self.region,
            credential_fingerprint=self.credential_fingerprint,
        )


def fingerprint(secret: str) -> str:
    """The first 16 hex digits of the secret's SHA-256: it tells two secrets apart and gives neither away."""
    return hashlib.sha256(secret.encode()).hexdigest()[:FINGERPRINT_LENGTH]


def key_still_protects(contract: Contract, *, pinned: AccountPin, current: AccountPin) -> bool:
    """Whether a key first sent under `pinned` is still in its scope under `current` (law 5).

    Anything that differs ends the protection, also where the scope is the whole account: nothing tells us
    that another credential or endpoint still belongs to the same account, and a wrong yes costs a second
    effect.
    """
    return contract.honours_key and contract.key_scope is not KeyScope.NONE and pinned == current
