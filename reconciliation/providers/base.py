"""The closed types that every adapter speaks: what goes in, what may come out, and what was seen on the way.

An adapter never raises for what a provider did: whatever came back, or didn't, is one of these. Text that
came from outside is bounded and redacted before it gets into one of them, and stays text.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, Protocol

from reconciliation.contracts import Contract, ProviderAccount
from runs.money import Money

# What is kept of an answer as evidence (API.md, reports) and the most that is read of one at all.
EVIDENCE_BYTES_MAX = 64 * 1024
ANSWER_BYTES_MAX = 1024 * 1024


def elapsed_seconds() -> float:
    """Read a clock for durations that nobody can set, and that goes on while the machine sleeps if it can."""
    boot_time = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot_time is None else time.clock_gettime(boot_time)


class Phase(StrEnum):
    """How far a request came; the last one that was reached."""

    NOT_STARTED = "not_started"  # we didn't try: not configured, start window passed
    POOL = "pool"  # waiting for one of our own connections
    CONNECT = "connect"  # name, TCP, TLS
    SENDING = "sending"  # headers or body were on their way
    WAITING = "waiting"  # all was handed to the system, no answer yet
    READING = "reading"  # the answer's head was read, its body wasn't whole
    DONE = "done"  # the answer was read to its end, or to our limit


class MatchedBy(StrEnum):
    """What ties a receipt to the operation."""

    KEY = "key"  # the receipt carries our idempotency key
    REFERENCE = "reference"  # it carries a reference of ours that travelled in the payload
    REPLY_ONLY = "reply_only"  # only the attempt that it answers: the provider offers nothing more


@dataclass(frozen=True, kw_only=True, slots=True)
class OutgoingOperation:
    """One permitted attempt; `payload_bytes` are the canonical bytes, `payload` the same JSON value, parsed.

    `start_by` is an instant of `elapsed_seconds()`, counted from before "go" was first asked: past it the
    adapter must not start. `request_within_ms` bounds the whole request.
    """

    operation_id: str
    idempotency_key: str
    tool: str
    payload_bytes: bytes
    payload: Any
    amount: Money | None
    attempt_id: str
    attempt_number: int
    start_by: float
    request_within_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """One read-only question about one operation.

    `last_quiet_at` is when its last attempt becomes quiet, None where that isn't known; `asked_at` is the
    database's clock just before the question. With `first_sent_at` they decide whether "not found" is a
    proof. `reference` is the provider's own, where one is known. A lookup that takes more than one request
    calls `permit` before each further one, which waits for the account's limit; False: ask no more now.
    """

    operation_id: str
    idempotency_key: str
    tool: str
    payload: Any
    amount: Money | None
    first_sent_at: datetime
    last_quiet_at: datetime | None
    asked_at: datetime
    reference: str | None = None
    permit: Callable[[], bool] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """What was seen of one request, redacted and bounded; safe to store and to show as inert text.

    `body` holds at most 64 KiB; `body_length` and `body_sha256` are of all that was read (at most 1 MiB), and
    `body_whole` says whether that was the whole answer. `headers_started` is True once the first byte of a
    request head may have left, under any HTTP version.
    """

    method: str
    url: str
    request_headers: tuple[tuple[str, str], ...] = ()
    request_length: int = 0
    request_sha256: str = ""
    status: int | None = None
    response_headers: tuple[tuple[str, str], ...] = ()
    body: str = ""
    body_cut: bool = False
    body_whole: bool = False
    body_length: int = 0
    body_sha256: str = ""
    duration_ms: int = 0
    error_class: str = ""
    error: str = ""
    headers_started: bool = False
    phase: Phase = Phase.NOT_STARTED

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values, for a database column or a page."""
        return {
            "request": {
                "method": self.method,
                "url": self.url,
                "headers": [list(pair) for pair in self.request_headers],
                "length": self.request_length,
                "sha256": self.request_sha256,
            },
            "status": self.status,
            "headers": [list(pair) for pair in self.response_headers],
            "body": self.body,
            "body_cut": self.body_cut,
            "body_whole": self.body_whole,
            "body_length": self.body_length,
            "body_sha256": self.body_sha256,
            "duration_ms": self.duration_ms,
            "error_class": self.error_class,
            "error": self.error,
            "headers_started": self.headers_started,
            "phase": self.phase.value,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldComparison:
    """One field of the payload beside the receipt's; both short, redacted JSON text, None where absent."""

    path: str
    answer_path: str
    intended: str | None
    seen: str | None
    same: bool

    def as_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "answer_path": self.answer_path,
            "intended": self.intended,
            "seen": self.seen,
            "same": self.same,
        }


class ReceiptState(StrEnum):
    """What the receipt says about its own effect, by the contract's success_when."""

    SUCCEEDED = "succeeded"  # the effect has happened
    PENDING = "pending"  # it exists and isn't final
    REFUSED = "refused"  # it ended without effect


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """A provider's record as seen by us, redacted, with how it compares to the payload.

    `matched_by` says what ties it to the operation: our key, our reference or, in a direct reply, the attempt
    that it answers; None is nothing. `same` says that every match field, and the amount where both are known,
    is equal.
    """

    reference: str
    body: Mapping[str, Any]
    amount: Money | None
    state: ReceiptState
    status: str
    matched_by: MatchedBy | None
    comparisons: tuple[FieldComparison, ...] = ()

    @property
    def named(self) -> bool:
        return self.matched_by is not None

    @property
    def same(self) -> bool:
        return all(one.same for one in self.comparisons)

    @property
    def differences(self) -> tuple[FieldComparison, ...]:
        return tuple(one for one in self.comparisons if not one.same)

    def facts(self) -> dict[str, Any]:
        """What a conclusion rests on, without what changes between two looks (times, counters, ETags)."""
        return {
            "reference": self.reference,
            "amount": None if self.amount is None else [self.amount.currency, str(self.amount.minor)],
            "state": self.state.value,
            "status": self.status,
            "matched_by": None if self.matched_by is None else self.matched_by.value,
            "comparisons": [one.as_json() for one in self.comparisons],
        }

    def as_json(self) -> dict[str, Any]:
        return {**self.facts(), "named": self.named, "same": self.same, "body": dict(self.body)}


class SendKind(StrEnum):
    """The sending outcomes, a closed set."""

    RECEIPT = "receipt"
    REJECTED = "rejected"
    NOT_SENT = "not_sent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class ReceiptSeen:
    """A receipt that names this operation, matches its payload and has succeeded."""

    kind: ClassVar[SendKind] = SendKind.RECEIPT
    receipt: Receipt
    exchange: Exchange
    summary: str
    # The provider said that it answered from the memory of an earlier request.
    replayed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class RejectedSeen:
    """A definite refusal of this request; `speaks_for_first`: whether also of every earlier attempt."""

    kind: ClassVar[SendKind] = SendKind.REJECTED
    exchange: Exchange
    summary: str
    speaks_for_first: bool
    receipt: Receipt | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class NotSentSeen:
    """A positive sign that no byte of the request left; silence is never one."""

    kind: ClassVar[SendKind] = SendKind.NOT_SENT
    exchange: Exchange
    summary: str


@dataclass(frozen=True, kw_only=True, slots=True)
class UnknownSeen:
    """Anything else. `receipt` is one that was read but can't confirm (other payload, still pending)."""

    kind: ClassVar[SendKind] = SendKind.UNKNOWN
    exchange: Exchange
    summary: str
    receipt: Receipt | None = None
    # The answer proves that the effect exists, although it isn't a receipt ("already exists").
    effect_exists: bool = False
    retry_after_ms: int | None = None


SendOutcome = ReceiptSeen | RejectedSeen | NotSentSeen | UnknownSeen


class AbsenceKind(StrEnum):
    """What a request to make an effect absent came to, a closed set."""

    ABSENT = "absent"  # the provider says that it isn't there, by an answer that the declaration names
    REFUSED = "refused"  # the provider says that it did nothing
    NOT_SENT = "not_sent"  # a positive sign that no byte of the request left
    UNKNOWN = "unknown"  # anything else: it may or may not have been undone


@dataclass(frozen=True, kw_only=True, slots=True)
class AbsenceSeen:
    """What was seen of a request to make an effect absent; whether that proves anything, the policy says."""

    kind: AbsenceKind
    exchange: Exchange
    summary: str


class FindingKind(StrEnum):
    """The findings, a closed set."""

    FOUND = "found"
    CANDIDATE = "candidate"
    PENDING = "pending"
    REFUSED = "refused"
    MISMATCH = "mismatch"
    SEVERAL = "several"
    NOT_FOUND = "not_found"
    INCONCLUSIVE = "inconclusive"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Finding:
    kind: ClassVar[FindingKind]
    # One sentence for an operator: what is known, and what isn't.
    summary: str
    # None where no question was put: the provider offers no lookup, or isn't configured.
    exchange: Exchange | None = None
    receipts: tuple[Receipt, ...] = ()
    # What was asked before, for the same finding: other ways to look, and the pages before the last.
    earlier: tuple[Exchange, ...] = ()

    @property
    def evidence_digest(self) -> str:
        """SHA-256 over what was found; not over when, how long it took, or how often we looked."""
        return _digest({"kind": self.kind.value, **self._digested()})

    def _digested(self) -> dict[str, Any]:
        facts = [one.facts() for one in self.receipts]
        return {"receipts": sorted(facts, key=lambda one: json.dumps(one, sort_keys=True))}


@dataclass(frozen=True, kw_only=True, slots=True)
class Found(_Finding):
    """Exactly one record carries our key or reference, equals the payload and has succeeded."""

    kind: ClassVar[FindingKind] = FindingKind.FOUND


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate(_Finding):
    """Records that look alike and carry nothing of ours, or that only a hint showed: a person has to tell."""

    kind: ClassVar[FindingKind] = FindingKind.CANDIDATE


@dataclass(frozen=True, kw_only=True, slots=True)
class Pending(_Finding):
    """Ours, equal to the payload, and not final."""

    kind: ClassVar[FindingKind] = FindingKind.PENDING


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused(_Finding):
    """Ours, and it ended without effect."""

    kind: ClassVar[FindingKind] = FindingKind.REFUSED


@dataclass(frozen=True, kw_only=True, slots=True)
class Mismatch(_Finding):
    """Ours by key or reference, with other content than we sent."""

    kind: ClassVar[FindingKind] = FindingKind.MISMATCH


@dataclass(frozen=True, kw_only=True, slots=True)
class Several(_Finding):
    """More than one record of ours that took effect or may still do so."""

    kind: ClassVar[FindingKind] = FindingKind.SEVERAL


@dataclass(frozen=True, kw_only=True, slots=True)
class NotFound(_Finding):
    """A complete and readable answer without any record of ours; `proof` by the contract and the clock."""

    kind: ClassVar[FindingKind] = FindingKind.NOT_FOUND
    proof: bool = False

    def _digested(self) -> dict[str, Any]:
        return {"proof": self.proof}


@dataclass(frozen=True, kw_only=True, slots=True)
class Inconclusive(_Finding):
    """Nothing follows: the answer is unreadable, incomplete or of an odd form, or there is no lookup."""

    kind: ClassVar[FindingKind] = FindingKind.INCONCLUSIVE
    # A short stable word for why; it is part of the digest.
    reason: str = "unreadable"

    def _digested(self) -> dict[str, Any]:
        return {"reason": self.reason}


@dataclass(frozen=True, kw_only=True, slots=True)
class Unavailable(_Finding):
    """No usable answer for now: unreachable, overloaded, refusing us, or not configured."""

    kind: ClassVar[FindingKind] = FindingKind.UNAVAILABLE
    reason: str = "unreachable"
    retry_after_ms: int | None = None

    def _digested(self) -> dict[str, Any]:
        return {"reason": self.reason}


Finding = Found | Candidate | Pending | Refused | Mismatch | Several | NotFound | Inconclusive | Unavailable


def _digest(value: dict[str, Any]) -> str:
    # Only text, booleans and None get here, so sorted ASCII JSON has one form for one value.
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class ReceiptMatch:
    """How a submitted receipt compares to the operation; `problems` are sentences, empty when it holds.

    `matches` is True only if it names the operation (`matched_by`), every comparison is the same and the
    contract's success_when is met.
    """

    receipt: Receipt
    problems: tuple[str, ...] = field(default=())

    @property
    def matches(self) -> bool:
        return not self.problems

    @property
    def matched_by(self) -> MatchedBy | None:
        return self.receipt.matched_by


class Adapter(Protocol):
    """One account's way of sending and asking; both block, bounded, and raise nothing for what happened."""

    @property
    def account(self) -> ProviderAccount: ...

    @property
    def contract(self) -> Contract: ...

    def send(self, operation: OutgoingOperation) -> SendOutcome:
        """Send one attempt. The caller has committed sent_unknown and holds no database transaction."""
        ...

    def look_up(self, question: Question) -> Finding:
        """Ask one question that changes nothing at the provider."""
        ...
