"""Around the list of cases: the backlog over it, its views and filters, and what an empty one says."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from django.urls import reverse

from console.pages import wording
from console.pages.present.marks import amount_of, capped, plural
from console.pages.present.queue_filters import NARROWING, Address
from console.pages.shapes import EmptyState, Link, Stat, Tab, WaitBucket
from console.queries.backlog import COUNT_MAX, Backlog
from console.queries.queue import View
from runs.money import format_money

TITLES: Final = {
    View.NEEDS_DECISION: "Needs a decision",
    View.SOON: "Key or time limit ends soon",
    View.CONFLICT: "More effects than intended",
    View.SNOOZED: "Put off",
    View.LOOKING_UP: "Looking up",
    View.RETRYING: "Retry under way",
    View.RESOLVED: "Resolved",
}
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


def stats_of(backlog: Backlog, *, now: datetime) -> tuple[Stat, ...]:
    queue = reverse("queue")
    since = backlog.retrying_since
    oldest = f"oldest since {wording.clock(since, now=now)}" if since else "none now"
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


def tabs_of(address: Address, backlog: Backlog) -> tuple[Tab, ...]:
    """The views, under the same filters. Counts are those of whole views: none beside a narrowed one."""
    counts = {
        View.NEEDS_DECISION: backlog.waiting,
        View.SOON: backlog.soon,
        View.CONFLICT: backlog.conflicts,
        View.LOOKING_UP: backlog.looking_up,
        View.RETRYING: backlog.retrying,
    }
    asked = address.asked
    return tuple(
        Tab(
            label=label,
            href=address.href(view="" if view is View.NEEDS_DECISION else str(view)),
            current=view is asked.view,
            count=capped(counts[view], COUNT_MAX) if counts.get(view) and not asked.narrowed else "",
            hot=view in (View.SOON, View.CONFLICT),
        )
        for view, label in TITLES.items()
    )


# What would be listed in a view, and why it may be empty.
_EMPTY: Final = {
    View.SOON: (
        "No key or time limit ends within an hour",
        "A case comes here when less than an hour is left to repeat it under its key, or to decide it.",
    ),
    View.CONFLICT: (
        "No effects beyond what was intended",
        "A case comes here when its provider shows more effects than one, or evidence contradicts itself.",
    ),
    View.SNOOZED: (
        "Nothing is put off",
        "A case comes here when somebody puts it off until a time; new evidence brings it back before.",
    ),
    View.LOOKING_UP: (
        "Nothing is being looked up",
        "A case comes here while its provider is asked; every case is settled, or waits for a person.",
    ),
    View.RETRYING: (
        "No retry is under way",
        "A case comes here when one more request under the same key was granted, until its outcome is known.",
    ),
    View.RESOLVED: (
        "Nothing has been settled yet",
        "Cases stay here after they are settled, by evidence or by a person, newest first.",
    ),
}


def empty_of(address: Address, backlog: Backlog) -> EmptyState:
    """Say what would appear in this list and why there is nothing."""
    asked = address.asked
    if asked.narrowed:
        filters = plural(len(address.words) - ("view" in address.words), "filter")
        return EmptyState(
            title="No case here matches",
            text=f"Cases of “{TITLES[asked.view]}” that match {filters} would be listed here; "
            "none that you can see does. Take a filter away to see more.",
            icon="list-filter",
            action=Link("Show all of this view", cleared(address)),
        )
    if asked.after:
        return EmptyState(
            title="The list ends here",
            text="The cases that stood here have moved on or were settled since the page before was read.",
            action=Link("Back to the start of the list", address.href()),
        )
    if asked.view is View.NEEDS_DECISION:
        one = backlog.looking_up == 1
        looking = f"{capped(backlog.looking_up, COUNT_MAX)} {'operation is' if one else 'operations are'}"
        return EmptyState(
            title="Nothing needs a decision",
            text=f"{looking} being looked up. A case comes here only if lookups can’t settle it.",
            action=Link("See what is being looked up", f"{reverse('queue')}?view=looking_up"),
        )
    title, text = _EMPTY[asked.view]
    return EmptyState(title=title, text=text)


def cleared(address: Address) -> str:
    """The same view under no filter."""
    return address.href(**dict.fromkeys(NARROWING, ""))
