"""How asking one provider account goes: limiter, breaker, what waits and how fast it gets less.

A read model: nothing here locks or changes anything, every count is bounded, and the figures of the last hour
are sums of at most sixty rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import assert_never

from django.db.models import Q, QuerySet

from reconciliation import admission, claiming, limiting
from reconciliation.accounts import account_of
from reconciliation.admission import BreakerOpen, Crowded, Held, Limited, Probing, Resting
from reconciliation.breaking import BreakerState
from reconciliation.gate_models import AccountGate, LookupTally
from reconciliation.models import Case
from reconciliation.states import CaseState

# Counts of cases stop here; "50,000+" says all that an operator can act on.
BACKLOG_MAX = 50_000
# How many cases before one in the line are counted.
IN_LINE_MAX = 1_000
HOUR = timedelta(hours=1)
# Over how many whole minutes, beside the running one, the speed is taken.
SPEED_MINUTES = 1
# While one of these holds, what is due doesn't get less.
STANDING_STILL = (BreakerOpen, Probing, Resting)


@dataclass(frozen=True, kw_only=True)
class MinuteHealth:
    """One minute's counts of lookups; `mean_ms` is None where none was made."""

    minute_at: datetime
    asked: int
    answered: int
    failed: int
    told_to_wait: int
    settled: int
    handed_over: int
    mean_ms: float | None


@dataclass(frozen=True, kw_only=True)
class LookupsHealth:
    """The lookups of the last hour: made, answered, failed; cases settled by one, and put to a person.

    `told_to_wait` of those that failed came with a time to come back at. `minutes` has the minutes in which
    there were any, oldest first.
    """

    asked: int
    answered: int
    failed: int
    told_to_wait: int
    settled: int
    handed_over: int
    mean_ms: float | None
    last_failure: str
    last_failed_at: datetime | None
    minutes: tuple[MinuteHealth, ...]


@dataclass(frozen=True, kw_only=True)
class LimiterHealth:
    """The token bucket: `tokens` of at most `burst` are there now (below zero: slots taken ahead).

    `paused_until_at` is set while the provider has asked to be left alone.
    """

    per_second: float
    burst: int
    tokens: float
    next_slot_at: datetime | None
    at_once: int
    at_once_max: int
    paused_until_at: datetime | None
    paused_because: str


@dataclass(frozen=True, kw_only=True)
class BreakerHealth:
    """The breaker; `since_at` is when it got into its state, None if it was never open."""

    state: BreakerState
    failures_in_a_row: int
    since_at: datetime | None
    probe_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class BacklogHealth:
    """The cases that wait to be looked up here; counts up to `count_max`.

    `due` could be asked about now, the oldest since `oldest_due_at`; `later` are due later by their own
    backoff, the next at `next_due_at`. `looked_up_per_second` and `settled_per_second` are those of the last
    minutes; `seconds_left` is how long the due ones take at that speed, None where nothing goes out now.
    """

    due: int
    oldest_due_at: datetime | None
    later: int
    next_due_at: datetime | None
    count_max: int
    looked_up_per_second: float
    settled_per_second: float
    seconds_left: float | None


@dataclass(frozen=True, kw_only=True)
class AccountHealth:
    """Everything about asking one account, as it was at `at`. `held` says why no lookup may go out now."""

    slug: str
    at: datetime
    lookups: LookupsHealth
    limiter: LimiterHealth
    breaker: BreakerHealth
    backlog: BacklogHealth
    held: Held | None

    @property
    def sentence(self) -> str:
        """Why nothing goes out, in words; "" if a lookup may go out now."""
        return self.held.sentence if self.held is not None else ""


class WaitReason(StrEnum):
    """Why a case isn't being looked up this instant."""

    # Settled, or nothing more is planned: only a person asks.
    NOT_PLANNED = "not_planned"
    # It is: a worker holds its claim.
    UNDER_WAY = "under_way"
    # Its own wait between two lookups isn't over.
    OWN_WAIT = "own_wait"
    # Its account may not be asked: our limit, Retry-After, the breaker, its probe, the cap at once.
    LIMIT = "limit"
    RETRY_AFTER = "retry_after"
    BREAKER_OPEN = "breaker_open"
    PROBE_OUT = "probe_out"
    AT_ONCE = "at_once"
    # It is due, nothing holds its account back, and others have waited longer.
    IN_LINE = "in_line"


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Why a case waits, in words, and until when where that is known."""

    reason: WaitReason
    sentence: str
    until_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Line:
    """What decides when a lookup that is due goes out: the account's gate, and who is before it."""

    gate: AccountGate
    # Lookups of the account that are being made, and its cases that have been due longer, up to a bound.
    at_once: int
    ahead: int


def is_due(case: Case, now: datetime) -> bool:
    """Whether the case's next lookup is due and isn't being made: then `why_waiting` needs the line."""
    due_at, until_at = case.next_lookup_at, case.lookup_claimed_until_at
    if case.state == CaseState.RESOLVED or due_at is None or due_at > now:
        return False
    return not case.lookup_claim or until_at is None or until_at <= now


def ahead_of(case: Case, now: datetime) -> QuerySet[Case]:
    """The cases of the same account that have been due longer, the longest first, as many as are counted."""
    before = claiming.due(now=now).filter(
        provider_slug=case.provider_slug, next_lookup_at__lt=case.next_lookup_at
    )
    return before.order_by("next_lookup_at")[: IN_LINE_MAX + 1]


def _line_of(case: Case, now: datetime) -> Line:
    slug = case.provider_slug
    return Line(
        gate=admission.gate_of(slug),
        at_once=admission.under_way(slug, now=now),
        ahead=ahead_of(case, now).count(),
    )


def why_waiting(case: Case, now: datetime, *, line: Line | None = None) -> Waiting:
    """Why this case isn't being looked up now, and until when: at most three queries, none given the line."""
    if case.state == CaseState.RESOLVED or case.next_lookup_at is None:
        return Waiting(reason=WaitReason.NOT_PLANNED, sentence="No further lookup is planned.")
    until_at = case.lookup_claimed_until_at
    if case.lookup_claim and until_at is not None and until_at > now:
        return Waiting(
            reason=WaitReason.UNDER_WAY, sentence="It is being looked up right now.", until_at=until_at
        )
    if case.next_lookup_at > now:
        return Waiting(
            reason=WaitReason.OWN_WAIT,
            sentence=f"Its next lookup is due at {case.next_lookup_at:%-d %b %H:%M:%S}Z.",
            until_at=case.next_lookup_at,
        )
    line = line or _line_of(case, now)
    contract = account_of(case.provider_slug).contract
    held = admission.standing(line.gate, contract=contract, at_once=line.at_once, now=now)
    return _held(held) if held is not None else _in_line(line.ahead)


def _held(held: Held) -> Waiting:
    match held:
        case Limited(until_at=until_at):
            return Waiting(reason=WaitReason.LIMIT, sentence=held.sentence, until_at=until_at)
        case Resting(until_at=until_at):
            return Waiting(reason=WaitReason.RETRY_AFTER, sentence=held.sentence, until_at=until_at)
        case BreakerOpen(until_at=until_at):
            return Waiting(reason=WaitReason.BREAKER_OPEN, sentence=held.sentence, until_at=until_at)
        case Probing(until_at=until_at):
            return Waiting(reason=WaitReason.PROBE_OUT, sentence=held.sentence, until_at=until_at)
        case Crowded():
            return Waiting(reason=WaitReason.AT_ONCE, sentence=held.sentence)
    assert_never(held)


def _in_line(ahead: int) -> Waiting:
    match ahead:
        case 0:
            sentence = "A lookup is due now and runs by itself."
        case 1:
            sentence = "A lookup is due and runs by itself; one other case of this account has waited longer."
        case _:
            count = f"{IN_LINE_MAX:,}+" if ahead > IN_LINE_MAX else f"{ahead:,}"
            sentence = (
                f"A lookup is due and runs by itself; {count} other cases of this account have waited longer."
            )
    return Waiting(reason=WaitReason.IN_LINE, sentence=sentence)


def account_health(slug: str, now: datetime) -> AccountHealth:
    """How asking the account goes, at `now` of the database's clock: six queries, whatever the backlog."""
    contract = account_of(slug).contract
    gate = admission.gate_of(slug)
    at_once = admission.under_way(slug, now=now)
    rate = limiting.rate_of(contract.rate_limit_per_second)
    minutes = _minutes(slug, now)
    breaker = admission.breaker_of(gate)
    paused = gate.paused_until_at is not None and now < gate.paused_until_at
    held = admission.standing(gate, contract=contract, at_once=at_once, now=now)
    return AccountHealth(
        slug=slug,
        at=now,
        lookups=LookupsHealth(
            asked=sum(one.asked for one in minutes),
            answered=sum(one.answered for one in minutes),
            failed=sum(one.failed for one in minutes),
            told_to_wait=sum(one.told_to_wait for one in minutes),
            settled=sum(one.settled for one in minutes),
            handed_over=sum(one.handed_over for one in minutes),
            mean_ms=_mean([(one.mean_ms or 0.0, one.asked) for one in minutes]),
            last_failure=gate.failed_because,
            last_failed_at=gate.failed_at,
            minutes=minutes,
        ),
        limiter=LimiterHealth(
            per_second=rate.per_second,
            burst=rate.burst,
            tokens=limiting.level(gate.next_slot_at, rate=rate, now=now),
            next_slot_at=gate.next_slot_at,
            at_once=at_once,
            at_once_max=admission.LOOKUPS_AT_ONCE_MAX,
            paused_until_at=gate.paused_until_at if paused else None,
            paused_because=gate.paused_because if paused else "",
        ),
        breaker=BreakerHealth(
            state=breaker.state,
            failures_in_a_row=breaker.failures_count,
            since_at=breaker.since_at,
            probe_at=breaker.probe_at,
        ),
        backlog=_backlog(slug, minutes, now, stands_still=isinstance(held, STANDING_STILL)),
        held=held,
    )


def _minutes(slug: str, now: datetime) -> tuple[MinuteHealth, ...]:
    rows = LookupTally.objects.filter(account=slug, minute_at__gt=now - HOUR, minute_at__lte=now)
    return tuple(
        MinuteHealth(
            minute_at=row.minute_at,
            asked=row.asked_count,
            answered=row.answered_count,
            failed=row.failed_count,
            told_to_wait=row.told_to_wait_count,
            settled=row.settled_count,
            handed_over=row.handed_over_count,
            mean_ms=row.duration_ms_sum / row.asked_count if row.asked_count else None,
        )
        for row in rows.order_by("minute_at")
    )


def _mean(weighted: list[tuple[float, int]]) -> float | None:
    total = sum(weight for _, weight in weighted)
    return sum(value * weight for value, weight in weighted) / total if total else None


def _backlog(
    slug: str, minutes: tuple[MinuteHealth, ...], now: datetime, *, stands_still: bool
) -> BacklogHealth:
    # Those without a planned lookup aren't in the index that this reads.
    planned = Case.objects.filter(provider_slug=slug, next_lookup_at__isnull=False).exclude(
        state=CaseState.RESOLVED
    )
    unclaimed = planned.filter(Q(lookup_claim="") | Q(lookup_claimed_until_at__lte=now))
    due = unclaimed.filter(next_lookup_at__lte=now).order_by("next_lookup_at", "id")
    later = planned.filter(next_lookup_at__gt=now).order_by("next_lookup_at", "id")
    due_count = due[:BACKLOG_MAX].count()
    looked_up, settled = _speed(minutes, now)
    return BacklogHealth(
        due=due_count,
        oldest_due_at=due.values_list("next_lookup_at", flat=True).first(),
        later=later[:BACKLOG_MAX].count(),
        next_due_at=later.values_list("next_lookup_at", flat=True).first(),
        count_max=BACKLOG_MAX,
        looked_up_per_second=looked_up,
        settled_per_second=settled,
        seconds_left=due_count / looked_up if due_count and looked_up and not stands_still else None,
    )


def _speed(minutes: tuple[MinuteHealth, ...], now: datetime) -> tuple[float, float]:
    """Lookups and settled cases a second, of this minute and the one before."""
    since = now.replace(second=0, microsecond=0) - timedelta(minutes=SPEED_MINUTES)
    recent = [one for one in minutes if one.minute_at >= since]
    if not recent:
        return 0.0, 0.0
    seconds = max(1.0, (now - recent[0].minute_at).total_seconds())
    return sum(one.asked for one in recent) / seconds, sum(one.settled for one in recent) / seconds
