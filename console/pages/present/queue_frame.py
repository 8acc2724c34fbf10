"""Around the list of cases: the backlog over it, its views and filters, and what an empty one says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from django.urls import reverse

from console.pages.present.marks import NEEDS, amount_of, capped, plural
from console.pages.shapes import Choice, EmptyState, Filter, Link, Stat, Tab, WaitBucket
from console.queries.backlog import COUNT_MAX, Backlog
from console.queries.queue import Asked, Listed, View
from runs.money import format_money

TITLES: Final = {
    View.NEEDS_DECISION: "Needs a decision",
    View.SOON: "Key or time limit ends soon",
    View.CONFLICT: "More effects than intended",
    View.LOOKING_UP: "Looking up",
    View.RETRYING: "Retry under way",
    View.RESOLVED: "Resolved",
}
_AGE_LABELS: Final = {"15min": "Over 15 min", "1h": "Over 1 h", "4h": "Over 4 h", "24h": "Over 24 h"}
_WAIT_LABELS: Final = ("< 5 min", "5–15 min", "15–60 min", "1–4 h", "4–24 h", "> 24 h")
_WAIT_TONES: Final[tuple[str, ...]] = ("grey", "grey", "grey", "grey", "amber", "red")


def waits_of(backlog: Backlog) -> tuple[WaitBucket, ...]:
    """How long the cases have waited, in bars; none where nothing waits."""
    if not backlog.waiting:
        return ()
    return tuple(
        WaitBucket(label=label, count=count, tone=tone)  # type: ignore[arg-type]
        for label, count, tone in zip(_WAIT_LABELS, backlog.waits, _WAIT_TONES, strict=True)
    )


def stats_of(backlog: Backlog) -> tuple[Stat, ...]:
    queue = reverse("queue")
    oldest = f"oldest since {backlog.retrying_since:%H:%M}Z" if backlog.retrying_since else "none now"
    overdue = (
        f"{capped(backlog.overdue, COUNT_MAX)} past the time limit" if backlog.overdue else "all in time"
    )
    return (
        Stat(
            label="Needs a decision",
            number=capped(backlog.waiting, COUNT_MAX),
            icon="unknown",
            note=overdue if backlog.waiting else "nothing waits",
            tone="amber" if backlog.waiting else None,
            href=queue,
        ),
        Stat(
            label="Looking up",
            number=capped(backlog.looking_up, COUNT_MAX),
            icon="scan-search",
            note="may settle without you" if backlog.looking_up else "none now",
            tone="blue",
            href=f"{queue}?view=looking_up",
        ),
        Stat(
            label="Retry under way",
            number=capped(backlog.retrying, COUNT_MAX),
            icon="rotate-ccw",
            note=oldest,
            tone="blue",
            href=f"{queue}?view=retrying",
        ),
        Stat(
            label="Settled, last 24 h",
            number=capped(backlog.settled, COUNT_MAX),
            icon="circle-check",
            note=f"{capped(backlog.settled_alone, COUNT_MAX)} without a person",
            tone="green",
            href=f"{queue}?view=resolved",
        ),
        _at_risk(backlog.at_risk),
    )


def _at_risk(amounts: Iterable[tuple[str, int, int]]) -> Stat:
    """The largest sum as the number, the other currencies under it: sums of different money don't add up."""
    shown = [
        (money, count)
        for currency, minor, count in amounts
        if (money := amount_of(currency, minor)) is not None
    ]
    if not shown:
        return Stat(label="At risk now", number="–", icon="wallet", note="no amounts in doubt")
    others = ", ".join(f"{format_money(money)} in {plural(count, 'case')}" for money, count in shown[1:3])
    first, count = shown[0]
    return Stat(
        label="At risk now",
        number=format_money(first),
        icon="wallet",
        note=f"and {others}" if others else f"in {plural(count, 'case')}",
    )


def tabs_of(asked: Asked, backlog: Backlog) -> tuple[Tab, ...]:
    counts = {
        View.NEEDS_DECISION: backlog.waiting,
        View.SOON: backlog.soon,
        View.CONFLICT: backlog.conflicts,
        View.LOOKING_UP: backlog.looking_up,
        View.RETRYING: backlog.retrying,
    }
    queue = reverse("queue")
    return tuple(
        Tab(
            label=label,
            href=queue if view is View.NEEDS_DECISION else f"{queue}?view={view}",
            current=view is asked.view,
            count=capped(counts[view], COUNT_MAX) if counts.get(view) else "",
            hot=view in (View.SOON, View.CONFLICT),
        )
        for view, label in TITLES.items()
    )


def filters_of(listed: Listed, asked: Asked, *, age: str, minimum: str) -> tuple[Filter, ...]:
    shows = [(str(need), label) for need, label in NEEDS.items()]
    return (
        Filter(name="view", label="View", value=str(asked.view), input_type="hidden"),
        Filter(
            name="q",
            label="Operation id, key, run, external id or receipt",
            value=asked.text,
            placeholder="op_…, key or run_…",
            grows=True,
        ),
        Filter(
            name="provider",
            label="Provider",
            choices=_choices("Any provider", [(one, one) for one in listed.providers], asked.provider),
        ),
        Filter(
            name="flow",
            label="Flow",
            choices=_choices("Any flow", [(one, one) for one in listed.flows], asked.flow),
        ),
        Filter(name="shows", label="Asked because", choices=_choices("Any reason", shows, asked.shows)),
        Filter(name="age", label="Waiting", choices=_choices("Any time", list(_AGE_LABELS.items()), age)),
        Filter(
            name="min",
            label="At risk, at least",
            value=minimum,
            placeholder="0.00",
            input_type="text",
        ),
    )


def _choices(any_label: str, offered: Iterable[tuple[str, str]], chosen: str) -> tuple[Choice, ...]:
    listed = [Choice(value="", label=any_label)]
    listed += [Choice(value=value, label=label, selected=value == chosen) for value, label in offered]
    return tuple(listed)


def empty_of(asked: Asked, backlog: Backlog) -> EmptyState:
    if asked.narrowed or asked.after:
        return EmptyState(
            title="No case here matches",
            text="None of the cases that you can see has all of this. Take a filter away to see more.",
            icon="list-filter",
            action=Link("Show all of this view", f"{reverse('queue')}?view={asked.view}"),
        )
    if asked.view is View.NEEDS_DECISION:
        one = backlog.looking_up == 1
        looking = f"{capped(backlog.looking_up, COUNT_MAX)} {'operation is' if one else 'operations are'}"
        return EmptyState(
            title="Nothing needs a decision",
            text=f"{looking} being looked up. A case comes here only if lookups can’t settle it.",
            action=Link("See what is being looked up", f"{reverse('queue')}?view=looking_up"),
        )
    return EmptyState(title="No cases", text="Nothing is in this state now.")
