"""Facts, contracts and clocks for tests of the policy: the usual case, and each thing that can differ."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from reconciliation.contracts import (
    AccountPin,
    Contract,
    KeyFormat,
    KeyScope,
    LookupKind,
    MatchField,
    OnInFlight,
    OnOtherPayload,
    Replays,
    WindowKind,
)
from reconciliation.facts import AttemptFacts, Facts, Holder, LookupFacts, SeenReceipt
from reconciliation.providers.base import FindingKind
from reconciliation.states import CaseKind, CaseState
from runs.states import AttemptOutcome, OperationState

SENT_AT = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
TICK = timedelta(microseconds=1)
START_WITHIN = REQUEST_WITHIN = 5 * SECOND
IN_FLIGHT = SECOND
# The first attempt's quiet time, by the contract below.
QUIET_AT = SENT_AT + START_WITHIN + REQUEST_WITHIN + IN_FLIGHT
WINDOW, MARGIN = timedelta(hours=24), timedelta(minutes=5)
KEY_ENDS_AT = SENT_AT + WINDOW - MARGIN
REPEAT_STARTS_BY = KEY_ENDS_AT - START_WITHIN - REQUEST_WITHIN
# Quiet, with the key's window open: nothing but the question itself is left.
CALM = QUIET_AT + timedelta(minutes=1)

PIN = AccountPin(
    adapter="http/1", endpoint="https://supplier.example/orders", region="eu", credential_fingerprint=""
)


def contract(**fields: Any) -> Contract:
    """A supplier that keeps keys for a day and can be looked up by key, where absence proves nothing."""
    usual: dict[str, Any] = {
        "key_field": "Idempotency-Key",
        "key_format": KeyFormat.HEADER_BARE,
        "key_scope": KeyScope.ACCOUNT,
        "dedup_window_ms": WINDOW // timedelta(milliseconds=1),
        "window_kind": WindowKind.DOCUMENTED,
        "window_margin_ms": MARGIN // timedelta(milliseconds=1),
        "on_other_payload": OnOtherPayload.REFUSED,
        "on_in_flight": OnInFlight.REFUSED,
        "replays": Replays.FIRST_ANSWER,
        "rejection_replays": False,
        "proves_existence": (),
        "lookup": LookupKind.BY_KEY,
        "visibility_lag_ms": 0,
        "lookup_retention_ms": None,
        "absence_is_proof": False,
        "match_fields": (MatchField(payload="$.*", answer="$.*"),),
        "success_when": None,
        "rate_limit_per_second": 10.0,
        "in_flight_bound_ms": 1_000,
        "start_within_ms": 5_000,
        "request_within_ms": 5_000,
    }
    return Contract(**{**usual, **fields})


def keyless(**fields: Any) -> Contract:
    """A provider that honours no key."""
    return contract(
        **{
            "key_field": None,
            "key_format": KeyFormat.NONE,
            "key_scope": KeyScope.NONE,
            "dedup_window_ms": None,
            "window_kind": WindowKind.NONE,
            "window_margin_ms": 0,
            "replays": Replays.NOTHING,
            **fields,
        }
    )


def attempt(number: int = 1, **fields: Any) -> AttemptFacts:
    """An attempt whose sender saw no answer and has lost its lease."""
    usual: dict[str, Any] = {
        "outcome": AttemptOutcome.UNKNOWN,
        "minted_at": SENT_AT,
        "quiet_after_at": QUIET_AT,
        "holder": Holder.OUTDATED,
        "worker": "worker-1",
    }
    return AttemptFacts(number=number, **{**usual, **fields})


def sending(**fields: Any) -> AttemptFacts:
    """An attempt that its worker may still be sending, under a lease of ten minutes."""
    return attempt(
        **{
            "outcome": AttemptOutcome.OPEN,
            "holder": Holder.LIVE,
            "lease_ends_at": SENT_AT + timedelta(minutes=10),
            **fields,
        }
    )


def lookup(finding: FindingKind, *, asked_at: datetime = CALM, proof: bool = False) -> LookupFacts:
    return LookupFacts(
        finding=finding, proof=proof, asked_at=asked_at, evidence_id="ev_lookup", summary="It was asked."
    )


def receipt(reference: str = "ord_1", *, matches: bool = True) -> SeenReceipt:
    return SeenReceipt(reference=reference, evidence_id=f"ev_{reference}", matches=matches)


def facts(**fields: Any) -> Facts:
    """One operation, sent once with an unknown outcome; a person is asked about it."""
    usual: dict[str, Any] = {
        "operation_state": OperationState.SENT_UNKNOWN,
        "case_kind": CaseKind.UNKNOWN,
        "case_state": CaseState.NEEDS_DECISION,
        "opened_at": SENT_AT,
        "turn_index": 1,
        "call_id": "c1",
        "attempts": (attempt(),),
        "first_sent_at": SENT_AT,
        "last_quiet_at": QUIET_AT,
        "pinned": PIN,
        "current": PIN,
        "console_can_send": True,
    }
    return Facts(**{**usual, **fields})


def later(known: Facts, now: datetime) -> Facts:
    """The same facts as they are read at `now`: leases end, grants run out, by time alone."""
    attempts = tuple(
        replace(one, holder=Holder.OUTDATED, lease_ends_at=None)
        if one.holder == Holder.LIVE and one.lease_ends_at is not None and one.lease_ends_at <= now
        else one
        for one in known.attempts
    )
    # The sweeper takes in what nobody is expected to report any more.
    attempts = tuple(
        replace(one, outcome=AttemptOutcome.UNREPORTED)
        if one.outcome == AttemptOutcome.OPEN and (one.quiet_after_at <= now or one.holder == Holder.OUTDATED)
        else one
        for one in attempts
    )
    # And gives up what can no longer be answered.
    absences = tuple(replace(one, open=one.open and now < one.quiet_after_at) for one in known.absences)
    moved = replace(known, attempts=attempts, absences=absences)
    if known.grant_open and known.grant_ends_at is not None and known.grant_ends_at < now:
        moved = replace(
            moved,
            grant_open="",
            grant_ends_at=None,
            grant_ended_unused=known.grant_open,
            case_state=CaseState.NEEDS_DECISION,
        )
    return moved
