"""Whether a lookup may go out to a provider account now; the only writer of its gate and its counts.

One row per account holds the limiter, the breaker and the pause that the provider asked for. Whoever wants to
ask locks that row, reads the database's clock after it, and decides; so the limits hold over any number of
workers on any number of machines, and a broker that is lost changes nothing.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_never

from django.conf import settings
from django.db import transaction
from django.db.models import F, QuerySet

from reconciliation import breaking, limiting
from reconciliation.breaking import Breaker, BreakerState, Verdict
from reconciliation.contracts import Contract
from reconciliation.gate_models import BECAUSE_LENGTH_MAX, AccountGate, LookupTally
from reconciliation.models import Case
from reconciliation.providers.base import elapsed_seconds
from runs import audit
from runs.actors import Actor, ActorKind
from runs.journal.evidence import storable_text
from runs.locking import database_now

# How many lookups of one account are made at once. A provider that answers in 150 ms gives this many 50
# answers a second; one that takes longer is under load, and more at once would only add to it.
LOOKUPS_AT_ONCE_MAX = 8
# A provider may ask for a pause; longer than this we ask again anyway, a person can't be kept waiting.
RETRY_AFTER_MAX = timedelta(minutes=15)
# How long a lookup that is under way waits for the slot of its next request.
ANOTHER_SLOT_WITHIN = timedelta(seconds=20)
# Whoever misses slot after slot is on a machine that has no time for it.
SLOTS_MAX = 5
# Nobody looks at a minute's counts for longer; what was asked and answered is on record with each case.
TALLIES_KEPT = timedelta(days=2)
BREAKER_OPENED = "account.breaker_opened"
BREAKER = Actor(ActorKind.SYSTEM, "breaker")
# The least share of its ceiling that a breaker's pause lasts.
PAUSE_SHARE_MIN = 0.5


@dataclass(frozen=True, kw_only=True)
class Admitted:
    """One lookup may go out, not before `start_from` and not after `start_by` (of `elapsed_seconds()`)."""

    start_at: datetime
    start_from: float
    start_by: float
    probe: bool


@dataclass(frozen=True, kw_only=True)
class Limited:
    """Our own limit: the next free slot is too far away to wait for it."""

    until_at: datetime
    per_second: float

    @property
    def sentence(self) -> str:
        return (
            f"Waiting for the provider's limit of {self.per_second:g} lookups a second"
            f" until {_utc(self.until_at)}."
        )


@dataclass(frozen=True, kw_only=True)
class Resting:
    """The provider asked to be left alone (Retry-After)."""

    until_at: datetime
    because: str

    @property
    def sentence(self) -> str:
        return f"The provider asked to be left alone until {_utc(self.until_at)}. {self.because}".strip()


@dataclass(frozen=True, kw_only=True)
class BreakerOpen:
    """Too many lookups in a row got no usable answer; nobody asks before the probe."""

    since_at: datetime
    until_at: datetime
    because: str

    @property
    def sentence(self) -> str:
        return (
            f"Breaker open since {_utc(self.since_at)}, next probe at {_utc(self.until_at)}."
            f" {self.because}".rstrip()
        )


@dataclass(frozen=True, kw_only=True)
class Probing:
    """One lookup is out to find out whether the provider answers again; the others wait for it."""

    since_at: datetime
    until_at: datetime

    @property
    def sentence(self) -> str:
        return (
            f"Breaker open since {_utc(self.since_at)}: one lookup is finding out whether the provider"
            f" answers again, and the others wait for it, until {_utc(self.until_at)} at most."
        )


@dataclass(frozen=True, kw_only=True)
class Crowded:
    """As many lookups are being made as may be at once; the next goes out when one of them ends."""

    at_once: int
    at_once_max: int

    @property
    def sentence(self) -> str:
        return (
            f"As many lookups as may be made at once ({self.at_once_max}) are under way; the next one goes"
            " out when one of them ends."
        )


Held = Limited | Resting | BreakerOpen | Probing | Crowded
Admission = Admitted | Held


def gate_of(slug: str) -> AccountGate:
    """The account's gate as it is now, without a lock; one that has never been used if there is none."""
    return AccountGate.objects.filter(pk=slug).first() or AccountGate(account_id=slug)


def lock_gate(slug: str) -> AccountGate:
    """The account's gate, held until the transaction ends. Whoever holds it takes no other lock after it."""
    gate = AccountGate.objects.select_for_update().filter(pk=slug).first()
    if gate is None:
        AccountGate.objects.bulk_create([AccountGate(account_id=slug)], ignore_conflicts=True)
        gate = AccountGate.objects.select_for_update().get(pk=slug)
    return gate


def next_wave(slug: str) -> int:
    """Begin a new wave of workers at the account, which ends the one before. Owns its transaction."""
    with transaction.atomic():
        gate = lock_gate(slug)
        gate.wave += 1
        gate.save(update_fields=["wave"])
        return gate.wave


def breaker_of(gate: AccountGate) -> Breaker:
    return Breaker(
        state=BreakerState(gate.breaker_state),
        failures_count=gate.breaker_failures_count,
        openings_count=gate.breaker_openings_count,
        since_at=gate.breaker_since_at,
        probe_at=gate.breaker_probe_at,
        probe=gate.breaker_probe,
        probe_until_at=gate.breaker_probe_until_at,
    )


def _keep_breaker(gate: AccountGate, breaker: Breaker) -> None:
    gate.breaker_state = breaker.state
    gate.breaker_failures_count = breaker.failures_count
    gate.breaker_openings_count = breaker.openings_count
    gate.breaker_since_at = breaker.since_at
    gate.breaker_probe_at = breaker.probe_at
    gate.breaker_probe = breaker.probe
    gate.breaker_probe_until_at = breaker.probe_until_at


def under_way(slug: str, *, now: datetime, besides: str = "") -> int:
    """How many lookups of the account are being made: claims whose time isn't up, without one case's."""
    return claimed_at(slug, now=now).exclude(pk=besides).count()


def claimed_at(slug: str, *, now: datetime) -> QuerySet[Case]:
    """The cases of the account that are being looked up."""
    claimed = Case.objects.filter(provider_slug=slug, lookup_claimed_until_at__gt=now)
    return claimed.exclude(lookup_claim="")


def standing(gate: AccountGate, *, contract: Contract, at_once: int, now: datetime) -> Held | None:
    """What holds lookups of the account back now; None if one may go out."""
    if gate.paused_until_at is not None and now < gate.paused_until_at:
        return Resting(until_at=gate.paused_until_at, because=gate.paused_because)
    match breaking.passage(breaker_of(gate), claim="", now=now, probe_within=timedelta()):
        case breaking.Open(since_at=since_at, probe_at=probe_at):
            return BreakerOpen(since_at=since_at, until_at=probe_at, because=gate.failed_because)
        case breaking.Probing(since_at=since_at, until_at=until_at):
            return Probing(since_at=since_at, until_at=until_at)
        case breaking.Closed() | breaking.Probe():
            pass
    if at_once >= LOOKUPS_AT_ONCE_MAX:
        return Crowded(at_once=at_once, at_once_max=LOOKUPS_AT_ONCE_MAX)
    rate = limiting.rate_of(contract.rate_limit_per_second)
    slot_at, _ = limiting.take(gate.next_slot_at, rate=rate, now=now)
    if slot_at - now > rate.wait_max:
        return Limited(until_at=slot_at, per_second=rate.per_second)
    return None


def admit(*, slug: str, contract: Contract, case_id: str, claim: str, claim_within: timedelta) -> Admission:
    """Let one lookup through, or say what holds it back, in which case nothing is changed.

    `claim` is the claim on the case, which this transaction has made already; until it ends, or
    `claim_within` is over, it counts as under way. Needs a transaction, and locks the account's gate in it.
    """
    gate = lock_gate(slug)
    before = elapsed_seconds()
    now = database_now()
    after = elapsed_seconds()
    at_once = under_way(slug, now=now, besides=case_id)
    held = standing(gate, contract=contract, at_once=at_once, now=now)
    if held is not None:
        return held
    rate = limiting.rate_of(contract.rate_limit_per_second)
    slot_at, gate.next_slot_at = limiting.take(gate.next_slot_at, rate=rate, now=now)
    passage = breaking.passage(breaker_of(gate), claim=claim, now=now, probe_within=claim_within)
    probe = isinstance(passage, breaking.Probe)
    if isinstance(passage, breaking.Probe):
        _keep_breaker(gate, passage.breaker)
    gate.save()
    return _admitted(slot_at, now=now, before=before, after=after, probe=probe)


def _admitted(slot_at: datetime, *, now: datetime, before: float, after: float, probe: bool) -> Admitted:
    wait_seconds = (slot_at - now).total_seconds()
    return Admitted(
        start_at=slot_at,
        # The database read its clock between these two: one can't start before the slot, the other is strict.
        start_from=after + wait_seconds,
        start_by=before + wait_seconds + limiting.START_WITHIN.total_seconds(),
        probe=probe,
    )


def another_slot(*, slug: str, contract: Contract) -> Admitted | Limited:
    """A new slot for a lookup that missed its own. Owns its transaction."""
    rate = limiting.rate_of(contract.rate_limit_per_second)
    with transaction.atomic():
        gate = lock_gate(slug)
        before = elapsed_seconds()
        now = database_now()
        after = elapsed_seconds()
        slot_at, next_slot_at = limiting.take(gate.next_slot_at, rate=rate, now=now)
        if slot_at - now > rate.wait_max:
            return Limited(until_at=slot_at, per_second=rate.per_second)
        gate.next_slot_at = next_slot_at
        gate.save(update_fields=["next_slot_at"])
    return _admitted(slot_at, now=now, before=before, after=after, probe=False)


def wait_for_slot(admitted: Admitted, *, slug: str, contract: Contract) -> bool:
    """Wait until the slot has come, or one after it. False if every slot was missed: nobody may be asked now.

    Owns its transactions, and holds none while it waits.
    """
    for _ in range(SLOTS_MAX):
        time.sleep(max(0.0, admitted.start_from - elapsed_seconds()))
        if elapsed_seconds() <= admitted.start_by:
            return True
        # Late, so it would arrive together with those after it.
        another = another_slot(slug=slug, contract=contract)
        if not isinstance(another, Admitted):
            return False
        admitted = another
    return False


def wait_for_another_slot(*, slug: str, contract: Contract, within: timedelta) -> bool:
    """Wait for a slot for one more request of a lookup that is under way. False if none came in that time.

    What is under way is worth more patience than what hasn't begun: half a list proves nothing. Owns its
    transactions, and holds none while it waits.
    """
    rate = limiting.rate_of(contract.rate_limit_per_second)
    until = elapsed_seconds() + within.total_seconds()
    while True:
        slot = another_slot(slug=slug, contract=contract)
        if isinstance(slot, Admitted):
            time.sleep(max(0.0, slot.start_from - elapsed_seconds()))
            # A slot is only good for a moment, and this machine may have been busy with something else.
            if elapsed_seconds() <= slot.start_by:
                return True
        else:
            time.sleep(min(rate.interval.total_seconds(), max(0.0, until - elapsed_seconds())))
        if elapsed_seconds() >= until:
            return False


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a lookup, as far as its account is concerned; `because` is the finding's sentence."""

    verdict: Verdict
    because: str = ""
    retry_after: timedelta | None = None
    duration_ms: int = 0
    settled: bool = False
    handed_over: bool = False


def note(*, slug: str, claim: str, outcome: Outcome) -> None:
    """Let the breaker, the pause and the counts know what came of a lookup. Owns its transaction."""
    with transaction.atomic():
        gate = lock_gate(slug)
        now = database_now()
        rest_until_at = None
        if outcome.retry_after is not None:
            rest_until_at = now + min(outcome.retry_after, RETRY_AFTER_MAX)
            if gate.paused_until_at is None or rest_until_at > gate.paused_until_at:
                gate.paused_until_at = rest_until_at
                gate.paused_because = storable_text(outcome.because)[:BECAUSE_LENGTH_MAX]
        before = breaker_of(gate)
        breaker = breaking.after(
            before,
            claim=claim,
            verdict=outcome.verdict,
            now=now,
            first_pause=first_pause(),
            share=random.uniform(PAUSE_SHARE_MIN, 1.0),  # noqa: S311 - jitter, not a secret
            rest_until_at=rest_until_at,
        )
        _keep_breaker(gate, breaker)
        if (before.state, breaker.state) == (BreakerState.CLOSED, BreakerState.OPEN):
            # Once for each outage: a probe that fails opens nothing that wasn't open.
            after = {"failures": breaker.failures_count}
            audit.append(audit.Event(action=BREAKER_OPENED, actor=BREAKER, subject=slug, after=after))
        if outcome.verdict is Verdict.FAILED:
            gate.failed_because = storable_text(outcome.because)[:BECAUSE_LENGTH_MAX]
            gate.failed_at = now
        gate.save()
        if outcome.verdict is not Verdict.NOT_ASKED:
            _count(slug, outcome, now)


def first_pause() -> timedelta:
    """How long the breaker first leaves a provider alone, at most."""
    return timedelta(seconds=settings.RECOURSE_LOOKUP_BASE_SECONDS * breaking.PAUSE_FACTOR)


def _count(slug: str, outcome: Outcome, now: datetime) -> None:
    """Add to the minute's counts. The gate is held, so nobody else adds to them."""
    minute_at = now.replace(second=0, microsecond=0)
    counted: dict[str, int] = {
        "asked_count": 1,
        "told_to_wait_count": int(outcome.retry_after is not None),
        "settled_count": int(outcome.settled),
        "handed_over_count": int(outcome.handed_over),
        "duration_ms_sum": outcome.duration_ms,
    }
    match outcome.verdict:
        case Verdict.ANSWERED:
            counted["answered_count"] = 1
        case Verdict.FAILED:
            counted["failed_count"] = 1
        case Verdict.NOT_ASKED:
            return
        case _:
            assert_never(outcome.verdict)
    added = LookupTally.objects.filter(account=slug, minute_at=minute_at).update(
        **{name: F(name) + value for name, value in counted.items()}
    )
    if not added:
        LookupTally.objects.create(account_id=slug, minute_at=minute_at, **counted)
        LookupTally.objects.filter(account=slug, minute_at__lt=minute_at - TALLIES_KEPT).delete()


def _utc(at: datetime) -> str:
    return at.strftime("%-d %b %H:%M:%S") + "Z"
