"""How asking a provider goes, in words: lookups, errors, limiter, breaker, and what waits."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_never

from console.pages.present.marks import capped, plural
from console.pages.shapes import Badge, Fact, Phrase, Since, Strong
from console.pages.wording import span
from console.queries.providers import Listed, ProviderRead
from reconciliation.breaking import BreakerState
from reconciliation.contracts import LookupKind, ProviderAccount
from reconciliation.health import AccountHealth, BacklogHealth


def health_facts(read: ProviderRead) -> tuple[Fact, ...]:
    """How asking goes: what was asked, what waits, what holds it back."""
    health = read.health
    if health is None:
        return ()
    lookups, limiter, backlog = health.lookups, health.limiter, health.backlog
    asked: Phrase = ("none in the last hour",)
    if lookups.asked:
        asked = (
            f"{lookups.asked:,} in the last hour: {lookups.answered:,} answered, {lookups.failed:,} failed",
        )
    facts = [Fact(label="Lookups", value=asked)]
    if lookups.mean_ms is not None:
        facts.append(Fact(label="One takes", value=(f"{lookups.mean_ms:,.0f} ms on average",)))
    if lookups.settled or lookups.handed_over:
        facts.append(
            Fact(
                label="What came of them",
                value=(f"{lookups.settled:,} settled, {lookups.handed_over:,} put to a person",),
            )
        )
    if lookups.last_failed_at is not None:
        facts.append(
            Fact(label="Last error", value=(lookups.last_failure, " ", Since(lookups.last_failed_at)))
        )
    facts.append(
        Fact(
            label="Limiter",
            value=(f"{limiter.per_second:g} a second; {limiter.at_once} of {limiter.at_once_max} under way",),
            note=("The provider asked for a pause until ", limiter.paused_until_at, ".")
            if limiter.paused_until_at
            else (),
        )
    )
    facts.append(Fact(label="Breaker", value=_breaker(health)))
    facts.append(Fact(label="Waiting to be asked", value=_backlog(backlog)))
    return tuple(facts)


def _breaker(health: AccountHealth) -> Phrase:
    breaker = health.breaker
    match breaker.state:
        case BreakerState.CLOSED:
            row = breaker.failures_in_a_row
            return (f"closed, {plural(row, 'failure')} in a row" if row else "closed",)
        case BreakerState.OPEN:
            probe: Phrase = (", next probe at ", breaker.probe_at) if breaker.probe_at is not None else ()
            return (Strong("open"), *probe)
        case BreakerState.HALF_OPEN:
            return (Strong("finding out"), " by one lookup whether the provider answers again")
    assert_never(breaker.state)


def _backlog(backlog: BacklogHealth) -> Phrase:
    if not backlog.due and not backlog.later:
        return ("nothing",)
    parts: Phrase = (f"{capped(backlog.due, backlog.count_max - 1)} due",)
    if backlog.oldest_due_at is not None:
        parts = (*parts, ", the oldest ", Since(backlog.oldest_due_at))
    if backlog.later:
        parts = (*parts, f"; {capped(backlog.later, backlog.count_max - 1)} later")
    if backlog.seconds_left is not None:
        left = span(timedelta(seconds=backlog.seconds_left))
        parts = (*parts, f"; about {left} at {_pace(backlog.looked_up_per_second)}")
    return parts


def _pace(per_second: float) -> str:
    """How fast lookups go, by the minute where a second has hardly one: "3.4 a second", "2 a minute"."""
    return f"{per_second:.1f} a second" if per_second >= 0.5 else f"{per_second * 60:.0f} a minute"


def held_badge(listed: Listed, account: ProviderAccount) -> tuple[Badge, str] | None:
    """What the list says of an account that isn't asked as usual; None where nothing holds lookups back."""
    gate = listed.held.get(account.slug)
    if gate is None or not account.configured:
        return None
    if gate.breaker_state != BreakerState.CLOSED:
        failed = f"Last error: {gate.failed_because}" if gate.failed_because else "It didn’t answer"
        return Badge(word="Breaker open", icon="unplug", tone="red", open=True), failed
    return (
        Badge(word="Left alone", icon="hourglass", tone="amber", open=True),
        "The provider asked for a pause",
    )


def health_badge(read: ProviderRead) -> Badge:
    health = read.health
    if read.account.contract.lookup is LookupKind.NONE or health is None:
        return Badge(word="Nothing is asked here", icon="circle-slash", tone="grey")
    if not read.account.configured:
        return Badge(word="Not configured", icon="unplug", tone="grey")
    if health.breaker.state is not BreakerState.CLOSED:
        return Badge(word="Breaker open", icon="unplug", tone="red", open=True)
    if health.held is not None:
        return Badge(word="Held back", icon="hourglass", tone="amber", open=True)
    if health.lookups.failed and not health.lookups.answered:
        return Badge(word="Not answering", icon="triangle-alert", tone="amber", open=True)
    if health.lookups.answered:
        return Badge(word="Answering", icon="circle-check", tone="green")
    return Badge(word="Not asked in the last hour", icon="circle-dashed", tone="grey")
