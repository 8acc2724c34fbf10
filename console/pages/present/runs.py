"""The list of runs, and the page of one."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

from django.urls import reverse

from console.pages.present.asking_two import AskTyped, asks_of, pending_of
from console.pages.present.folding import folded
from console.pages.present.jsons import payload_view
from console.pages.present.marks import PAUSED_WHY, amount_of, plural
from console.pages.present.naming import noun_of
from console.pages.present.steps import steps_of
from console.pages.present.timeline import event_of, item_of, with_elapsed
from console.pages.shapes import (
    Badge,
    Banner,
    BudgetView,
    Code,
    Counts,
    EmptyState,
    Fact,
    FieldError,
    Filter,
    LeaseRow,
    Link,
    NextPage,
    Phrase,
    RunListPage,
    RunPage,
    RunRow,
    Since,
    Tab,
)
from console.queries.runs import Asked, Listed, Row, RunRead, View
from reconciliation.decisions import REASON_LENGTH_MIN
from reconciliation.states import Resolution
from runs.models import Attempt, Lease
from runs.money import Money, format_money
from runs.states import (
    RUN_ENDED,
    AttemptOutcome,
    Executor,
    LeaseEnd,
    OperationState,
    PauseReason,
    RunState,
)

_TABS: Final = {
    View.ALL: "All",
    View.PAUSED: "Paused",
    View.OPEN: "Open",
    View.COMPLETED: "Completed",
    View.ABANDONED: "Abandoned",
}
_LEASE_ENDS: Final[dict[str, str]] = {
    LeaseEnd.RELEASED: "Given back by the worker",
    LeaseEnd.EXPIRED: "Its time ran out",
    LeaseEnd.REVOKED: "Revoked by a person",
    LeaseEnd.PAUSED: "The run was paused",
    LeaseEnd.ENDED: "The run ended",
}


# --- The list -------------------------------------------------------------------------------------------


def run_list_page(listed: Listed, asked: Asked, *, query: dict[str, str]) -> RunListPage:
    """One page of runs; `query` are the address's own words, so that links keep the filters."""
    path = reverse("run_list")
    tabs = tuple(
        Tab(label=label, href=path if view is View.ALL else f"{path}?view={view}", current=view is asked.view)
        for view, label in _TABS.items()
    )
    next_page = None
    if listed.after:
        next_page = NextPage(href=f"?{urlencode({**query, 'after': listed.after})}", label="Load older runs")
    narrowed = bool(asked.text or asked.flow or asked.after)
    return RunListPage(
        now=listed.now,
        lead="Newest first. A run is one execution of a flow; it pauses while an outcome is unknown.",
        rows=tuple(_row(one) for one in listed.rows),
        tabs=tabs,
        filters=(
            Filter(name="view", label="View", value=str(asked.view), input_type="hidden"),
            Filter(
                name="q",
                label="Run id or external id",
                value=asked.text,
                placeholder="run_… or the external id",
                grows=True,
            ),
            Filter(name="flow", label="Flow", value=asked.flow, input_type="text"),
        ),
        next=next_page,
        empty=None if listed.rows else _empty(narrowed),
    )


def _empty(narrowed: bool) -> EmptyState:
    if narrowed:
        return EmptyState(
            title="No run matches",
            text="Runs with all of this would be listed here; none that you can see has it.",
            icon="list-filter",
            action=Link("Show all runs", reverse("run_list")),
        )
    return EmptyState(
        title="No runs here", text="A run shows here as soon as a worker starts one through the API."
    )


def _row(row: Row) -> RunRow:
    run = row.run
    spent = amount_of(run.budget_currency, run.budget_spent_minor if run.budget_currency else None)
    return RunRow(
        run_id=run.pk,
        href=reverse("run", args=[run.pk]),
        title=run.external_id,
        flow=f"{run.flow.name} {run.flow_version.version}",
        state=RunState(run.state),
        why="; ".join(PAUSED_WHY.get(one, one) for one in run.paused_reasons),
        progress=f"{row.calls_settled} of {plural(row.calls, 'step')}" if row.calls else "no step yet",
        counts=_counts(row.requests, confirmed=row.confirmed, unknown=row.unknown, given_up=row.given_up),
        started_at=run.created_at,
        changed_at=run.ended_at or run.paused_at or run.created_at,
        spent=spent,
    )


def _counts(requests: int, *, confirmed: int, unknown: int, given_up: int) -> Counts:
    """Effects that are confirmed; beside those that nobody knows about they are never the whole number."""
    if confirmed or not (unknown or given_up):
        return Counts(requests=requests, effects=confirmed, unknown=unknown + given_up)
    return Counts(requests=requests, effects=None, uncounted="not known yet" if unknown else "not known")


# --- One run --------------------------------------------------------------------------------------------


def run_page(
    read: RunRead,
    *,
    revoke_why_not: str,
    ask_why_not: str = "",
    banner: Banner | None = None,
    reason: str = "",
    errors: tuple[FieldError, ...] = (),
    typed: AskTyped | None = None,
) -> RunPage:
    """The page of a run; `revoke_why_not` is "" if this person may take the lease away.

    `ask_why_not` likewise for asking a second person; `typed` is what they had typed into a form that asks.
    """
    run = read.run
    steps = steps_of(read)
    live = _live(read)
    return RunPage(
        now=read.now,
        run_id=run.pk,
        title=run.external_id,
        flow=run.flow.name,
        state=RunState(run.state),
        subtitle=_subtitle(read),
        facts=_facts(read),
        turns=steps.turns,
        steps_summary=steps.summary,
        banner=banner or _banner(read),
        budget=_budget(read),
        axis=steps.axis,
        band=steps.band,
        plan=steps.plan if run.state not in RUN_ENDED else (),
        plan_note="What a worker would be told now. Nothing is sent by looking.",
        leases=tuple(_lease(read, one) for one in read.leases),
        timeline=tuple(
            with_elapsed(
                folded(
                    (leaf.operation_ref, item_of(leaf, event_of(leaf), read.names, links=False))
                    for leaf in read.leaves
                )
            )
        ),
        input=payload_view("Input", bytes(run.input), run.input_digest),
        output=payload_view("Output", bytes(run.output), run.output_digest) if run.output else None,
        empty=None
        if steps.turns
        else EmptyState(title="No step yet", text="The agent has saved no decision for this run."),
        asks=asks_of(read, typed=typed) if not ask_why_not else (),
        pending=pending_of(read),
        asks_note=ask_why_not if ask_why_not and asks_of(read, typed=None) else "",
        revoke_href=reverse("run_revoke", args=[run.pk]) if live and not revoke_why_not else "",
        revoke_note=revoke_why_not if live else "",
        revoke_reason=reason,
        reason_length_min=REASON_LENGTH_MIN,
        errors=errors,
    )


def _live(read: RunRead) -> bool:
    run = read.run
    return (
        run.lease_token is not None and run.lease_expires_at is not None and run.lease_expires_at > read.now
    )


def _subtitle(read: RunRead) -> Phrase:
    run = read.run
    parts: Phrase = ("started ", run.created_at)
    if run.ended_at is not None:
        parts = (*parts, f", {run.state} ", run.ended_at)
    if run.goal:
        parts = (*parts, f" · {run.goal}")
    return parts


def _banner(read: RunRead) -> Banner | None:
    run, case = read.run, read.open_case
    if run.state != RunState.PAUSED:
        if run.state in RUN_ENDED and case is not None:
            return Banner(
                title=("This run has ended, and a case of it is still open",),
                icon="flag",
                tone="amber",
                action=Link("Open the case", reverse("case", args=[case.pk])),
            )
        return None
    reasons = list(run.paused_reasons)
    where, first = _unknown(read) if PauseReason.OUTCOME in reasons else ("", "")
    others = "; ".join(PAUSED_WHY.get(one, one) for one in reasons if one != PauseReason.OUTCOME)
    title = " and ".join(part for part in (first, others) if part)
    since: Phrase = ()
    if run.paused_at is not None:
        since = ("Since ", run.paused_at, ", ", Since(run.paused_at), ". ")
    text: Phrase = (*since, *_way_out(read))
    action = Link("Open the case", reverse("case", args=[case.pk])) if case is not None else None
    return Banner(
        title=(f"Paused{where}: {title}",),
        icon="circle-pause",
        tone="violet",
        text=text,
        action=action,
    )


def _unknown(read: RunRead) -> tuple[str, str]:
    """At which step the run is paused over an unknown outcome, and which effect's that is."""
    case = read.open_case
    for number, call in enumerate(read.calls, start=1):
        operation = read.operations.get(call.pk)
        if case is not None and operation is not None and operation.pk == case.operation_id:
            amount = amount_of(operation.amount_currency, operation.amount_minor)
            money = f"{format_money(amount)} " if amount is not None else ""
            return f" at step {number}", f"the outcome of the {money}{noun_of(operation.tool)} is unknown"
    return "", "the outcome of an effect is unknown"


def _way_out(read: RunRead) -> Phrase:
    case = read.open_case
    reasons = read.run.paused_reasons
    if PauseReason.OUTCOME in reasons and case is not None:
        return (
            "The run can be claimed again when ",
            Link(case.pk, reverse("case", args=[case.pk])),
            " is settled.",
        )
    if PauseReason.FLOW_VERSION in reasons:
        version = read.run.flow_version.version
        return (
            f"It goes on as soon as a worker of version {version} claims it, or two people say otherwise.",
        )
    if PauseReason.BUDGET in reasons:
        return (
            "That effect was not sent. The budget’s limit has to be raised for it to go on, by two people.",
        )
    if PauseReason.APPROVAL in reasons:
        return ("Nothing is sent meanwhile. The approval has to be renewed for it to go on, by two people.",)
    return ("Nothing is sent until that is settled.",)


def _facts(read: RunRead) -> tuple[Fact, ...]:
    run = read.run
    newer = (
        f"also running: {', '.join(read.other_versions)}. This run stays on its own."
        if read.other_versions
        else ""
    )
    last = read.leases[0] if read.leases else None
    holder: Phrase = ("Nobody",)
    note: Phrase = ()
    if _live(read) and run.lease_expires_at is not None:
        holder, note = (run.lease_holder,), ("until ", run.lease_expires_at)
    elif last is not None:
        note = (f"last: {last.worker}",)
    number = run.lease_number
    approval: Phrase = ("none needed",)
    if run.approval_id is not None:
        approval = (Code(run.approval_id),)
    return (
        Fact(
            label="Flow, pinned version",
            value=(f"{run.flow.name} {run.flow_version.version}",),
            note=(newer,) if newer else (),
        ),
        Fact(label="Lease holder", value=holder, note=note),
        Fact(
            label="Fencing token",
            value=(f"{number}" if number else "none yet",),
            note=(f"writes with {number - 1} or lower are refused",) if number > 1 else (),
        ),
        _effects(read),
        Fact(
            label="Approval",
            value=approval,
            note=("valid until ", run.approval_until_at) if run.approval_until_at is not None else (),
        ),
    )


def _effects(read: RunRead) -> Fact:
    """Requests beside effects, as the list counts them: what a person gave up may have happened."""
    states = [one.state for one in read.operations.values()]
    given_up = {one.operation_id for one in read.cases if one.resolution == Resolution.ABANDONED}
    counts = _counts(
        sum(one.attempts_count for one in read.operations.values()),
        confirmed=states.count(OperationState.CONFIRMED),
        unknown=states.count(OperationState.SENT_UNKNOWN),
        given_up=len(given_up),
    )
    effects = f"effects {counts.uncounted}" if counts.effects is None else plural(counts.effects, "effect")
    return Fact(
        label="Requests, effects",
        value=(f"{plural(counts.requests, 'request')}, {effects}",),
        note=(f"{counts.unknown} more may have happened",) if counts.unknown else (),
    )


def _budget(read: RunRead) -> BudgetView | None:
    run = read.run
    limit = amount_of(run.budget_currency, run.budget_limit_minor)
    if limit is None or limit.minor == 0:
        return None
    currency = limit.currency
    used = run.budget_spent_minor + run.budget_reserved_minor + run.budget_held_minor
    held = run.budget_held_minor
    return BudgetView(
        limit=limit,
        spent=Money(currency, run.budget_spent_minor),
        reserved=Money(currency, run.budget_reserved_minor),
        remaining=Money(currency, max(0, limit.minor - used)),
        held=Money(currency, held) if held else None,
        spent_width=_width(run.budget_spent_minor, limit.minor),
        reserved_width=_width(run.budget_reserved_minor, limit.minor),
        held_width=_width(held, limit.minor),
        note=("over the limit by ", Money(currency, used - limit.minor)) if used > limit.minor else (),
    )


def _width(minor: int, limit: int) -> int:
    return min(1000, round(minor * 1000 / limit))


def _lease(read: RunRead, lease: Lease) -> LeaseRow:
    ended = lease.ended_at
    over = ended is None and lease.expires_at <= read.now
    why = _LEASE_ENDS.get(lease.ended_by, "Its time ran out" if over else "Held now")
    badge, note = _can_write(read, lease)
    return LeaseRow(
        token=str(lease.number),
        worker=lease.worker,
        taken_at=lease.claimed_at,
        ended_at=ended or (lease.expires_at if over else None),
        why=why,
        can_write=badge,
        note=note,
    )


def _can_write(read: RunRead, lease: Lease) -> tuple[Badge, Phrase]:
    """The journal refuses an outdated token; the provider knows no tokens, so quiet time counts there."""
    if lease.ended_at is None and lease.expires_at > read.now and lease.token == read.run.lease_token:
        return Badge(word="Yes", icon="user-check", tone="blue"), ("it holds the run",)
    loud = [one for one in read.attempts if _still_loud(one, lease, read)]
    if loud:
        until = max(one.quiet_after_at for one in loud)
        return (
            Badge(word="To the provider, yes", icon="x", tone="red"),
            ("until ", until, "; the journal refuses it"),
        )
    return Badge(word="No", icon="check", tone="green"), ()


def _still_loud(attempt: Attempt, lease: Lease, read: RunRead) -> bool:
    return (
        attempt.executor == Executor.AGENT
        and attempt.lease_number == lease.number
        and attempt.outcome in (AttemptOutcome.OPEN, AttemptOutcome.UNREPORTED, AttemptOutcome.UNKNOWN)
        and attempt.quiet_after_at > read.now
    )
