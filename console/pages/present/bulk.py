"""Lists of cases as their pages show them: before the start, under way, and with what came of each case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from django.urls import reverse

from console.models import Person
from console.pages.bulk_forms import CHOICES, BulkDraft, choice_of
from console.pages.present.bulk_forecast import case_row
from console.pages.present.marks import FINDINGS, plural
from console.pages.shapes import (
    Badge,
    Banner,
    Choice,
    EmptyState,
    Fact,
    FieldError,
    Link,
    NextPage,
    Part,
    Tab,
    Tone,
)
from console.pages.shapes.bulk import (
    BulkBar,
    BulkCase,
    BulkChoice,
    BulkDo,
    BulkForecast,
    BulkForm,
    BulkKind,
    BulkListPage,
    BulkPage,
    BulkProgress,
    BulkRow,
)
from console.queries.bulk import Counts
from reconciliation.accounts import account_of, is_declared
from reconciliation.bulk import DECIDED_MAX, Kind, differences, list_max, listed_in_words
from reconciliation.bulk_models import ITEMS_MAX, BulkDeed, BulkItem, BulkJob, BulkState, ItemResult
from reconciliation.decisions import REASON_LENGTH_MIN
from reconciliation.states import REASON_LABELS, Action, ReasonCode

DEEDS: Final[dict[BulkDeed, BulkDo]] = {
    BulkDeed.CLAIM: BulkDo(value="claim", label="Claim…", icon="user-check"),
    BulkDeed.ASSIGN: BulkDo(value="assign", label="Assign…", icon="users"),
    BulkDeed.LOOK_UP: BulkDo(value="look_up", label="Look up now…", icon="scan-search"),
    BulkDeed.DECIDE: BulkDo(value="decide", label="Decide together…", icon="gavel"),
}
_VERBS: Final[dict[str, str]] = {
    "claim": "Claim",
    "assign": "Assign",
    "look_up": "Look up",
    "decide": "Decide",
    "confirm": "Confirm",
    "retry": "Retry",
    "abandon": "Abandon",
}
_STATES: Final[dict[BulkState, Badge]] = {
    BulkState.FROZEN: Badge(word="Not started", icon="circle-dashed", open=True),
    BulkState.RUNNING: Badge(word="Under way", icon="play", tone="blue"),
    # Every case was seen to; what came of each is on the list's own page.
    BulkState.DONE: Badge(word="Ended", icon="circle-check", tone="grey"),
    BulkState.STOPPED: Badge(word="Stopped", icon="circle-pause", tone="amber"),
}
_RESULTS: Final[dict[str, Badge]] = {
    ItemResult.DONE: Badge(word="Done", icon="circle-check", tone="green"),
    ItemResult.REFUSED: Badge(word="Refused", icon="lock", tone="amber"),
    ItemResult.FAILED: Badge(word="Failed", icon="triangle-alert", tone="red"),
}
_WAITING: Final = Badge(word="Waiting", icon="hourglass", open=True)
_LEFT: Final = Badge(word="Left as it was", icon="minus", tone="grey")
_CHOICES: Final[dict[str, tuple[str, str]]] = {
    "confirm": ("Confirm they happened", "Each by the matching receipt that is on record for it."),
    "retry-agent": ("Retry with the same keys, sent by the agents", "Each run is claimed again for it."),
    "retry-console": ("Retry with the same keys, sent by the console", "With the console’s own credentials."),
    "abandon-continue": ("Abandon, and the runs go on without", "Whether they happened stays unknown."),
    "abandon-end": ("Abandon, and the runs end", "Whether they happened stays unknown."),
}
_ACTION_WORDS: Final[dict[Action, str]] = {
    Action.CONFIRM: "confirm",
    Action.RETRY: "retry",
    Action.ABANDON: "abandon",
}


def bar_of(deeds: Iterable[BulkDeed], *, query: str, everything: bool = False) -> BulkBar | None:
    """The bar over the queue, for what this person may do; None if that is nothing."""
    offered = tuple(DEEDS[one] for one in deeds)
    hint = f"All that match: the first {ITEMS_MAX:,} in this order, the first {DECIDED_MAX:,} to decide."
    return BulkBar(query=query, deeds=offered, hint=hint, everything=everything) if offered else None


def title_of(job: BulkJob) -> str:
    """What a list is for, as a heading."""
    verb = _VERBS[job.action or job.deed]
    together = " together" if verb == "Decide" and job.items_count > 1 else ""
    return f"{verb} {plural(job.items_count, 'case')}{together}"


# --- The page of one list -----------------------------------------------------------------------------------


def preview_page(
    job: BulkJob,
    *,
    now: datetime,
    draft: BulkDraft,
    kinds: Sequence[Kind],
    people: Sequence[Person],
    forecast: BulkForecast | None,
    going: Sequence[BulkCase],
    banner: Banner | None = None,
    errors: tuple[FieldError, ...] = (),
) -> BulkPage:
    """A list that hasn't started: what it would do, and the form; of cases that differ, in what.

    `going` is what something would be done with: without a forecast, the whole list.
    """
    page = BulkPage(
        now=now,
        title=f"{title_of(job)}?",
        lead=_lead(job),
        badge=_STATES[BulkState(job.state)],
        notice=_cut(job),
        banner=banner,
    )
    if len(kinds) > 1:
        differs = listed_in_words(differences(kinds))
        return replace(
            page,
            kinds=tuple(_kind(number, one) for number, one in enumerate(kinds)),
            kinds_text=f"They differ in {differs}, so no one decision fits them all. Go on with one kind:"
            " it becomes a list of its own.",
            narrow_href=reverse("bulk_narrow", args=[job.pk]),
        )
    return replace(
        page,
        forecast=forecast,
        going=tuple(going),
        going_heading=plural(len(going), "case"),
        form=_form(job, draft, kinds, people, len(going) if forecast is not None else 0, errors),
    )


def _lead(job: BulkJob) -> tuple[Part, ...]:
    return (
        "The list was frozen at ",
        job.frozen_at,
        ": what comes into the queue later isn’t in it. Nothing happens before you start it.",
    )


def _cut(job: BulkJob) -> str:
    if job.matched_count <= job.items_count:
        return ""
    most = list_max(BulkDeed(job.deed))
    return (
        f"More than {most:,} cases match. This list holds the first {most:,} in the queue’s order: a longer"
        " one can’t be looked through before it starts. The rest can follow in another."
    )


def _kind(number: int, kind: Kind) -> BulkKind:
    actions = ", ".join(_ACTION_WORDS[one] for one in kind.actions)
    return BulkKind(
        value=str(number),
        provider=kind.provider,
        verdict=verdict_of(kind),
        actions=actions or "none by one person",
        count=kind.count,
    )


def verdict_of(kind: Kind) -> Badge:
    """What these cases show, in a few words."""
    if kind.kind == "conflict":
        return Badge(word="The evidence contradicts itself", icon="git-compare", tone="red")
    shown = FINDINGS.get(kind.finding)
    if shown is not None:
        return shown
    account = account_of(kind.provider)
    if is_declared(account) and account.contract.has_lookup:
        return Badge(word="Not looked up yet", icon="scan-search", tone="blue", open=True)
    word = "Provider offers no lookup" if is_declared(account) else "Account no longer declared"
    return Badge(word=word, icon="circle-slash", tone="grey")


def _form(
    job: BulkJob,
    draft: BulkDraft,
    kinds: Sequence[Kind],
    people: Sequence[Person],
    going: int,
    errors: tuple[FieldError, ...],
) -> BulkForm:
    deed = BulkDeed(job.deed)
    seen = draft.choice if deed is not BulkDeed.DECIDE or draft.choice in CHOICES else ""
    decides = deed is BulkDeed.DECIDE
    actions = {action for kind in kinds for action in kind.actions}
    return BulkForm(
        href=reverse("bulk_start", args=[job.pk]),
        choices=tuple(
            BulkChoice(value=value, label=label, text=text, selected=value == draft.choice)
            for value, (label, text) in _CHOICES.items()
            if CHOICES[value][0] in actions
        )
        if decides
        else (),
        people=tuple(
            Choice(value=f"person:{one.pk}", label=str(one), selected=draft.assignee == f"person:{one.pk}")
            for one in people
        ),
        reason_codes=tuple(
            Choice(value=str(code), label=label, selected=draft.reason_code == code)
            for code, label in REASON_LABELS.items()
        )
        if decides
        else (),
        reason=draft.reason,
        decides="Your decision" if job.items_count == 1 else "One decision for all of them",
        # Asked for once it is seen what it is for; what was typed before is never out of sight.
        asks_why=bool(seen or errors or draft.reason or draft.reason_code),
        reason_length_min=REASON_LENGTH_MIN,
        seen=seen,
        primary=_primary(job, draft, going) if going and (seen or not decides) else "",
        danger=draft.choice.startswith("abandon"),
        errors=errors,
    )


def _primary(job: BulkJob, draft: BulkDraft, going: int) -> str:
    action = CHOICES[draft.choice][0] if draft.choice in CHOICES else job.deed
    return f"{_VERBS[str(action)]} {plural(going, 'case')}"


def running_page(
    job: BulkJob,
    counts: Counts,
    *,
    now: datetime,
    items: Sequence[BulkItem],
    show: str,
    more: int,
    banner: Banner | None = None,
) -> BulkPage:
    """A list that was started: how far it is, and what came of each case."""
    shown = tuple(_outcome(job, item) for item in items)
    here = reverse("bulk", args=[job.pk])
    return BulkPage(
        now=now,
        title=title_of(job),
        lead=_started(job),
        badge=_ended(job, counts),
        facts=_facts(job),
        banner=banner,
        notice=_cut(job),
        progress=progress_of(job, counts),
        tabs=_tabs(counts, here, show, ended=job.state != BulkState.RUNNING),
        cases_title=f"{plural(len(shown), 'case')} shown" if shown else "No such case",
        cases=shown,
        next=NextPage(href=f"{here}?show={show}&after={more}", label="Load more") if more else None,
        csv_href=reverse("bulk_csv", args=[job.pk]),
    )


def _ended(job: BulkJob, counts: Counts) -> Badge:
    """Whether it did what was asked: a list of which every case was refused did nothing."""
    if job.state != BulkState.DONE:
        return _STATES[BulkState(job.state)]
    if not counts.refused and not counts.failed:
        return Badge(word="Done", icon="circle-check", tone="green")
    tone: Tone = "red" if counts.failed else "amber"
    word = "Done in part" if counts.done else "Nothing was done"
    return Badge(word=word, icon="triangle-alert" if counts.failed else "lock", tone=tone)


def _started(job: BulkJob) -> tuple[Part, ...]:
    started = job.started_at or job.frozen_at
    said: tuple[Part, ...] = (
        "Started at ",
        started,
        " over the list that was frozen at ",
        job.frozen_at,
        ".",
    )
    return (*said, " Ended at ", job.ended_at, ".") if job.ended_at else said


def _facts(job: BulkJob) -> tuple[Fact, ...]:
    if job.deed == BulkDeed.ASSIGN:
        return (Fact(label="Given to", value=(job.assignee_name,)),)
    if job.deed != BulkDeed.DECIDE:
        return ()
    choice = _CHOICES.get(choice_of(job.action, job.executor, job.then))
    code = ReasonCode(job.reason_code)
    return (
        Fact(label="Decision", value=(choice[0] if choice else job.action,)),
        Fact(label="Reason code", value=(REASON_LABELS[code],)),
        Fact(label="Reason", value=(job.reason,)),
    )


def progress_of(job: BulkJob, counts: Counts) -> BulkProgress:
    """How far it is, in one line."""
    done = job.items_count - counts.left
    parts = [f"{done:,} of {plural(job.items_count, 'case')} seen to", f"{counts.done:,} done"]
    if counts.refused:
        parts.append(f"{counts.refused:,} refused")
    if counts.failed:
        parts.append(f"{counts.failed:,} failed")
    running = job.state == BulkState.RUNNING
    if job.state == BulkState.STOPPED:
        parts.append(f"{counts.left:,} left as they were")
    tone: Tone = "blue" if running else "amber" if counts.refused or counts.left else "green"
    return BulkProgress(
        done=done,
        total=job.items_count,
        text=", ".join(parts),
        tone="red" if counts.failed else tone,
        poll_href=reverse("bulk_progress", args=[job.pk]) if running else "",
        stop_href=reverse("bulk_stop", args=[job.pk]) if running else "",
        result_href="" if running else reverse("bulk", args=[job.pk]),
    )


def _tabs(counts: Counts, here: str, show: str, *, ended: bool) -> tuple[Tab, ...]:
    total = counts.done + counts.refused + counts.failed + counts.left
    left = "Left as they were" if ended else "Waiting"
    listed = [("", "All", total), ("done", "Done", counts.done), ("refused", "Refused", counts.refused)]
    listed += [("failed", "Failed", counts.failed)] if counts.failed else []
    listed += [("left", left, counts.left)] if counts.left else []
    return tuple(
        Tab(
            label=label,
            href=f"{here}?show={value}" if value else here,
            count=f"{count:,}",
            current=value == show,
            hot=value == "failed",
        )
        for value, label, count in listed
    )


def _outcome(job: BulkJob, item: BulkItem) -> BulkCase:
    outcome = getattr(item, "outcome", None)
    row = case_row(item.position, item.case)
    if outcome is None:
        return replace(row, outcome=_WAITING if job.state == BulkState.RUNNING else _LEFT)
    return replace(row, outcome=_RESULTS[outcome.result], note=outcome.sentence, at=outcome.made_at)


# --- A person's lists ---------------------------------------------------------------------------------------


def list_page(
    jobs: Sequence[BulkJob], counts: Mapping[str, Counts], *, now: datetime, before: str
) -> BulkListPage:
    """The person's lists, newest first; `counts` has what came of each of those that ended."""
    rows = tuple(
        BulkRow(
            href=reverse("bulk", args=[job.pk]),
            title=title_of(job),
            badge=_ended(job, counts[job.pk]) if job.pk in counts else _STATES[BulkState(job.state)],
            progress=f"{job.next_position - 1:,} of {job.items_count:,}",
            frozen_at=job.frozen_at,
            ended_at=job.ended_at,
        )
        for job in jobs
    )
    empty = EmptyState(
        title="You have no lists",
        text="Choose cases in the queue, or all that match its filters, and say what to do with them: the"
        " list and what came of each case is kept here.",
        action=Link("To the queue", reverse("queue")),
    )
    return BulkListPage(
        now=now,
        rows=rows,
        next=NextPage(href=f"{reverse('bulk_list')}?before={before}", label="Load more") if before else None,
        empty=None if rows else empty,
    )
