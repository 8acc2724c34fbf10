"""The circuit breaker of one provider account, without a database: when to leave a provider in peace.

A lookup that gets no usable answer says more about the provider than about its case. After a few of them in a
row nobody asks any more; after a pause one lookup is let through, and what becomes of it decides for all.
The instants are the database's, handed in by the caller, who holds the account's row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import assert_never

from reconciliation.providers.base import (
    Candidate,
    Finding,
    Found,
    Inconclusive,
    Mismatch,
    NotFound,
    Pending,
    Refused,
    Several,
    Unavailable,
)

# One or two failures are a hiccup of the network; this many in a row, with no answer between them, are an
# outage, and each further lookup would only wait for its time limit.
FAILURES_TO_OPEN = 5
# The first pause is so many times the first wait between two lookups of a case; each further one is twice as
# long, up to the longest, which is the longest wait between two lookups of a case as well.
PAUSE_FACTOR = 5.0
PAUSE_MAX = timedelta(minutes=5)


class BreakerState(StrEnum):
    # Enters: at the beginning, and when a probe was answered. Leaves: failures in a row.
    CLOSED = "closed"
    # Enters: failures in a row, or a probe that failed. Leaves: its pause is over and somebody asks.
    OPEN = "open"
    # Enters: the pause is over and one lookup is let through. Leaves: what becomes of that one.
    HALF_OPEN = "half_open"


class Verdict(StrEnum):
    """What a lookup's answer says about its provider account."""

    # The provider answered, whatever it said: "not found" is a lookup that succeeded.
    ANSWERED = "answered"
    # No answer, or one that says it can't answer now: time-outs, 5xx, 408, 425, 429, credentials refused.
    FAILED = "failed"
    # No question was put, so nothing was learnt.
    NOT_ASKED = "not_asked"


@dataclass(frozen=True, kw_only=True)
class Breaker:
    """A breaker's memory. `probe` is the claim of the lookup that was let through, "" if none is out."""

    state: BreakerState = BreakerState.CLOSED
    failures_count: int = 0
    openings_count: int = 0
    since_at: datetime | None = None
    probe_at: datetime | None = None
    probe: str = ""
    probe_until_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Closed:
    """Ask."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Ask, as the one lookup that decides for all; `breaker` remembers that it is out."""

    breaker: Breaker


@dataclass(frozen=True, kw_only=True)
class Open:
    """Don't ask before `probe_at`."""

    since_at: datetime
    probe_at: datetime


@dataclass(frozen=True, kw_only=True)
class Probing:
    """Don't ask: one lookup is out to find out. It is taken to be lost at `until_at`."""

    since_at: datetime
    until_at: datetime


Passage = Closed | Probe | Open | Probing


def passage(breaker: Breaker, *, claim: str, now: datetime, probe_within: timedelta) -> Passage:
    """Whether a lookup may go out now; exactly one may while the breaker finds out.

    `probe_within` is how long the probe may take before another is let through in its place.
    """
    match breaker.state:
        case BreakerState.CLOSED:
            return Closed()
        case BreakerState.OPEN:
            if breaker.probe_at is not None and now < breaker.probe_at:
                return Open(since_at=breaker.since_at or now, probe_at=breaker.probe_at)
        case BreakerState.HALF_OPEN:
            if breaker.probe and breaker.probe_until_at is not None and now < breaker.probe_until_at:
                return Probing(since_at=breaker.since_at or now, until_at=breaker.probe_until_at)
        case _:
            assert_never(breaker.state)
    half_open = replace(
        breaker,
        state=BreakerState.HALF_OPEN,
        probe_at=None,
        probe=claim,
        probe_until_at=now + probe_within,
    )
    return Probe(breaker=half_open)


def after(
    breaker: Breaker,
    *,
    claim: str,
    verdict: Verdict,
    now: datetime,
    first_pause: timedelta,
    share: float,
    rest_until_at: datetime | None = None,
) -> Breaker:
    """The breaker after a lookup's answer.

    `share` (above 0, up to 1) of the ceiling is the pause, so that accounts that fell together don't get up
    together. `rest_until_at` is when the provider said that it may be asked again: no probe goes before.
    While the breaker isn't closed only its probe counts: others were asked before it opened.
    """
    match breaker.state:
        case BreakerState.CLOSED:
            return _after_any(breaker, verdict, now, first_pause, share, rest_until_at)
        case BreakerState.OPEN:
            return breaker
        case BreakerState.HALF_OPEN:
            if claim != breaker.probe:
                return breaker
            return _after_probe(breaker, verdict, now, first_pause, share, rest_until_at)
    assert_never(breaker.state)


def _after_any(
    breaker: Breaker,
    verdict: Verdict,
    now: datetime,
    first_pause: timedelta,
    share: float,
    rest_until_at: datetime | None,
) -> Breaker:
    match verdict:
        case Verdict.ANSWERED:
            return replace(breaker, failures_count=0)
        case Verdict.NOT_ASKED:
            return breaker
        case Verdict.FAILED:
            failed = replace(breaker, failures_count=breaker.failures_count + 1)
            if failed.failures_count < FAILURES_TO_OPEN:
                return failed
            return _opened(failed, now, first_pause, share, rest_until_at)
    assert_never(verdict)


def _after_probe(
    breaker: Breaker,
    verdict: Verdict,
    now: datetime,
    first_pause: timedelta,
    share: float,
    rest_until_at: datetime | None,
) -> Breaker:
    match verdict:
        case Verdict.ANSWERED:
            return Breaker(since_at=now)
        case Verdict.NOT_ASKED:
            # It found nothing out; the next one that asks is the probe.
            return replace(breaker, probe="", probe_until_at=None)
        case Verdict.FAILED:
            failed = replace(breaker, failures_count=breaker.failures_count + 1)
            return _opened(failed, now, first_pause, share, rest_until_at)
    assert_never(verdict)


def _opened(
    breaker: Breaker, now: datetime, first_pause: timedelta, share: float, rest_until_at: datetime | None
) -> Breaker:
    # The exponent is bounded, for a provider may be away for weeks.
    ceiling = min(PAUSE_MAX, first_pause * 2 ** min(breaker.openings_count, 16))
    probe_at = now + ceiling * share
    # A provider that stays away is away since it was first found to be.
    since_at = breaker.since_at if breaker.openings_count and breaker.since_at else now
    return replace(
        breaker,
        state=BreakerState.OPEN,
        openings_count=breaker.openings_count + 1,
        since_at=since_at,
        probe_at=max(probe_at, rest_until_at) if rest_until_at else probe_at,
        probe="",
        probe_until_at=None,
    )


def verdict_of(finding: Finding) -> Verdict:
    """What a finding says about the provider account, whatever it says about the case."""
    match finding:
        case Found() | Candidate() | Pending() | Refused() | Mismatch() | Several() | NotFound():
            return Verdict.ANSWERED
        case Inconclusive():
            # There was an answer that settles nothing; or the question couldn't even be put.
            answered = finding.exchange is not None and finding.exchange.status is not None
            return Verdict.ANSWERED if answered else Verdict.NOT_ASKED
        case Unavailable():
            return Verdict.NOT_ASKED if finding.reason == "not_configured" else Verdict.FAILED
    assert_never(finding)
