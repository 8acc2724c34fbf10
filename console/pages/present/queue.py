"""The queue as its page shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final
from urllib.parse import urlencode

from django.urls import reverse

from console.pages import wording
from console.pages.present import naming
from console.pages.present.bulk import bar_of
from console.pages.present.marks import (
    FINDINGS,
    NEEDS,
    RESOLUTIONS,
    SOON,
    amount_of,
    answer_shown,
    capped,
    counts_in_row,
    plural,
    window_of,
)
from console.pages.present.queue_filters import Address, chips_of, filters_of
from console.pages.present.queue_frame import TITLES, cleared, empty_of, stats_of, tabs_of, waits_of
from console.pages.shapes import (
    Answer,
    Badge,
    NextPage,
    Phrase,
    QueueGroup,
    QueueNews,
    QueuePage,
    QueueRow,
    SavedViews,
    Tone,
)
from console.queries.backlog import COUNT_MAX, Backlog
from console.queries.queue import Asked, Listed, Row, View
from reconciliation.accounts import is_declared
from reconciliation.bulk_models import BulkDeed
from reconciliation.states import CaseState, Need, Resolution
from runs.canonical import parse
from runs.refusals import Refusal

_ORDERS: Final = {
    CaseState.NEEDS_DECISION: "Ordered by what gets worse first: the sooner of key expiry and time limit",
    CaseState.LOOKING_UP: "Oldest first",
    CaseState.RETRYING: "Oldest first",
    CaseState.RESOLVED: "Newest first",
}

# What a view's cases have in common and what becomes of them; the others say how much waits for a person.
_LEADS: Final = {
    View.SNOOZED: (
        "Cases that somebody put off. Each comes back at its time, and sooner with new evidence. Their runs"
        " stay paused."
    ),
    View.LOOKING_UP: "Their providers are being asked. What lookups can’t settle will wait for a person.",
    View.RETRYING: "One more request under the same key is permitted or on its way; a receipt settles it.",
    View.RESOLVED: "Cases that are settled, by evidence or by a person. Nothing waits in them.",
}


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """What somebody had chosen for several cases at once, kept through a refusal."""

    case_ids: frozenset[str] = frozenset()
    everything: bool = False


NONE_CHOSEN: Final = Chosen()


def queue_page(
    listed: Listed,
    address: Address,
    *,
    saved: SavedViews,
    deeds: Sequence[BulkDeed] = (),
    chosen: Chosen = NONE_CHOSEN,
    may_work: bool = True,
) -> QueuePage:
    """Lay out one page; every link that stays in the queue keeps the filters of the address.

    `deeds` is what the person may do with several cases at once; with what is resolved nothing is done.
    `chosen` are the rows that stay chosen after a refusal. `may_work`: whether the person works on cases.
    """
    asked, backlog = address.asked, listed.backlog
    offered = deeds if listed.rows and asked.view is not View.RESOLVED else ()
    shown = len(listed.rows)
    has_desk = asked.view is not View.RESOLVED
    return QueuePage(
        now=listed.now,
        title=TITLES[asked.view],
        lead=_LEADS.get(asked.view) or _lead(backlog),
        groups=tuple(
            _for_person(one, chosen, may_work=may_work and has_desk) for one in _groups(listed, asked)
        ),
        shown_text=_shown(shown, asked, backlog),
        order_text=_order(asked),
        stats=stats_of(backlog, now=listed.now),
        waits=waits_of(backlog),
        tabs=tabs_of(address, backlog),
        filters=filters_of(listed, address),
        chips=chips_of(address, listed),
        clear_href=cleared(address) if asked.narrowed else "",
        saved=saved,
        poll_href=f"{reverse('queue_news')}?{urlencode({**address.words, 'since': listed.now.isoformat()})}",
        next=_next(listed, address),
        empty=None if shown else empty_of(address, backlog),
        bulk=bar_of(offered, query=address.query, everything=chosen.everything),
        may_work=may_work,
        has_desk=has_desk,
    )


def news_of(count: int, *, href: str) -> QueueNews | None:
    """The pill that says that cases came since the list was read."""
    return QueueNews(text=f"{capped(count, COUNT_MAX)} new: show them", href=href) if count else None


def _lead(backlog: Backlog) -> str:
    if not backlog.waiting:
        return "Nothing waits for a person."
    effects = "side effect" if backlog.waiting == 1 else "side effects"
    return (
        f"{capped(backlog.waiting, COUNT_MAX)} {effects} with an outcome nobody knows yet. "
        f"{'Its run is' if backlog.waiting == 1 else 'Their runs are'} paused until someone decides."
    )


def _shown(shown: int, asked: Asked, backlog: Backlog) -> str:
    totals = {View.NEEDS_DECISION: backlog.waiting, View.SOON: backlog.soon, View.CONFLICT: backlog.conflicts}
    total = totals.get(asked.view)
    if total is None or asked.narrowed or asked.after or total <= shown:
        return f"{plural(shown, 'case')} shown" if shown else "No cases"
    return f"{shown} of {capped(total, COUNT_MAX)} cases"


def _order(asked: Asked) -> str:
    of_waiting = (View.SOON, View.CONFLICT, View.SNOOZED)
    state = CaseState.NEEDS_DECISION if asked.view in of_waiting else CaseState(asked.view)
    return _ORDERS[state]


def _next(listed: Listed, address: Address) -> NextPage | None:
    return NextPage(href=address.href(after=listed.after), label="Load more") if listed.after else None


# --- Rows -----------------------------------------------------------------------------------------------


def _groups(listed: Listed, asked: Asked) -> tuple[QueueGroup, ...]:
    """Rows in their order, under headings where the order has stretches that differ in urgency."""
    rows = listed.rows
    if not rows:
        return ()
    if asked.view not in (View.NEEDS_DECISION, View.SOON, View.CONFLICT):
        return (QueueGroup(rows=tuple(_row(one, listed.now) for one in rows)),)
    groups = []
    for stretch, members in groupby(rows, key=lambda one: _stretch(one.case.worsens_at, listed.now)):
        shown = tuple(_row(one, listed.now) for one in members)
        groups.append(_group(stretch, shown))
    return tuple(groups)


def _for_person(group: QueueGroup, chosen: Chosen, *, may_work: bool) -> QueueGroup:
    """The rows with what this person may do with each, and which of them were chosen."""
    rows = tuple(
        replace(
            row,
            chosen=row.case_id in chosen.case_ids,
            claim_href=reverse("case_claim", args=[row.case_id]) if may_work and not row.claimant else "",
        )
        for row in group.rows
    )
    return replace(group, rows=rows)


def _stretch(worsens_at: datetime, now: datetime) -> str:
    if worsens_at <= now:
        return "over"
    return "soon" if worsens_at <= now + SOON else "later"


def _group(stretch: str, rows: tuple[QueueRow, ...]) -> QueueGroup:
    count = len(rows)
    if stretch == "over":
        title = f"Past the time limit, or the key’s window has closed ({count})"
        return QueueGroup(rows=rows, title=title, icon="triangle-alert", tone="red")
    if stretch == "soon":
        title = f"Key or time limit ends within 1 hour ({count})"
        return QueueGroup(rows=rows, title=title, icon="timer", tone="amber")
    return QueueGroup(rows=rows, title=f"Everything else ({count} shown)")


def _row(row: Row, now: datetime) -> QueueRow:
    case, operation = row.case, row.case.operation
    amount = amount_of(case.at_risk_currency, case.at_risk_minor if case.at_risk_currency else None)
    overview = row.overview
    told = bool(case.finding) and case.finding not in ("unavailable", "inconclusive")
    note, tone = _time_left(row, now)
    return QueueRow(
        case_id=case.pk,
        href=reverse("case", args=[case.pk]),
        title=naming.title_of(case.tool, amount, _payload(row.payload)),
        context=_context(row),
        operation_id=operation.pk,
        shows=shows_of(row),
        counts=counts_in_row(case, operation, told=told, has_lookup=overview.contract.has_lookup),
        answers=_answers(row),
        waiting_since=case.resolved_at or case.opened_at,
        window=window_of(overview.facts, overview.contract, now=now),
        looked_up_at=row.looked_up_at,
        at_risk=amount,
        note=note,
        note_tone=tone,
        claimant=row.claimant,
        given_by=row.given_by,
    )


def _answers(row: Row) -> tuple[Answer, Answer, Answer, Answer, Answer]:
    settled = row.case.state == CaseState.RESOLVED
    first, second, third, fourth, fifth = (answer_shown(one, settled=settled) for one in row.overview.answers)
    return first, second, third, fourth, fifth


def _payload(content: bytes) -> object:
    try:
        return parse(content) if content else None
    except Refusal:
        return None


def _context(row: Row) -> Phrase:
    run, operation = row.case.run, row.case.operation
    version = run.flow_version.version
    return (f"{row.case.flow_name} {version}, turn {operation.turn_index}, {run.external_id}",)


def shows_of(row: Row) -> Badge:
    """What the provider shows, in a few words; for a settled case, how it was settled."""
    case = row.case
    if case.state == CaseState.RESOLVED:
        return RESOLUTIONS[Resolution(case.resolution)]
    if case.kind == "conflict" and case.need == Need.CONFLICT:
        return Badge(word=NEEDS[Need.CONFLICT], icon="git-compare", tone="red")
    if case.finding:
        shown = FINDINGS.get(case.finding)
        if case.finding == "not_found":
            return Badge(
                word=f"Not found in {plural(case.lookups_count, 'lookup')}",
                icon="unknown",
                tone="amber",
                open=True,
            )
        if shown is not None:
            return shown
    if not is_declared(row.overview.account):
        return Badge(word="Account no longer declared", icon="circle-slash", tone="red")
    if case.need == Need.NO_LOOKUP or not row.overview.contract.has_lookup:
        return Badge(word="Provider offers no lookup", icon="circle-slash", tone="grey")
    return Badge(word="Not looked up yet", icon="scan-search", tone="blue", open=True)


def _time_left(row: Row, now: datetime) -> tuple[str, Tone | None]:
    """What is left of the time that the flow gives a person; of one that is put off, when it comes back."""
    case = row.case
    if case.state != CaseState.NEEDS_DECISION:
        return "", None
    if case.snoozed_until_at is not None and case.snoozed_until_at > now:
        return f"back in {wording.span(case.snoozed_until_at - now)}", None
    left = case.decide_by_at - now
    if left <= timedelta():
        return f"{wording.span(left)} over", "red"
    return f"{wording.span(left)} left", "amber" if left <= SOON else None
