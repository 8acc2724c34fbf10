"""A run's steps: what a worker that resumed now would be told, beside what happened when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, Final, assert_never

from django.urls import reverse

from console.pages import timescale, wording
from console.pages.present import naming
from console.pages.present.marks import amount_of, plural
from console.pages.shapes import (
    AxisLabel,
    Badge,
    Code,
    Phrase,
    PlanCount,
    PlanRow,
    TurnGroup,
    Waterfall,
    WaterfallBar,
)
from console.queries.runs import RunRead
from reconciliation.states import CaseState
from runs.models import Attempt, Call, Operation
from runs.states import RUN_ENDED, OperationState

# Room at the right for what isn't sent yet.
AHEAD = timedelta(minutes=1)
BAR_WIDTH_MIN = 6
# Of the axis's width, in its thousandths to a percent; and the share that a clock or a word takes, which at
# the table's usual width is the "21:51:30Z" of the monospaced digits.
PERCENT = timescale.WIDTH / 100
LABEL_PERCENT = 22
# By whether its result is saved: what a resuming worker does with a call that only reads, and, of a run that
# has ended, what came of it.
_READ: Final[dict[bool, Phrase]] = {
    True: ("the saved result is reused",),
    False: ("nothing is saved yet; reading is free",),
}
_READ_ENDED: Final[dict[bool, Phrase]] = {True: ("Its result was saved",), False: ("Never read",)}
_COUNT_NOTES: Final = {
    "skip": "settled, results reused",
    "read": "only read, at no risk",
    "send": "never sent before",
    "wait": "until a case is decided",
    "repeat": "same key, granted once",
}


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The table of steps with its axis, and the counts of what is next."""

    turns: tuple[TurnGroup, ...]
    axis: tuple[AxisLabel, ...]
    band: tuple[int, int] | None
    plan: tuple[PlanCount, ...]
    summary: str


def steps_of(read: RunRead) -> Steps:
    """Lay out the run's calls. The plan is the API's own, so a page promises what a worker is told."""
    attempts: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in read.attempts:
        attempts[attempt.operation_id].append(attempt)
    planned = {(turn["index"], call["call_id"]): call for turn in read.plan for call in turn["calls"]}
    index_of = {turn.pk: turn.index for turn in read.turns}
    scale = _scale(read)
    rows: list[tuple[int, PlanRow]] = []
    for number, call in enumerate(read.calls, start=1):
        turn = index_of[call.turn_id]
        step = planned.get((turn, call.call_id), {})
        operation = read.operations.get(call.pk)
        sent = attempts[operation.pk] if operation is not None else []
        rows.append((turn, _row(read, number, call, operation, step, sent, scale)))
    groups = tuple(
        TurnGroup(title=_turn_title(read, turn), rows=tuple(row for _, row in members))
        for turn, members in groupby(rows, key=lambda one: one[0])
    )
    listed = [row for _, row in rows]
    band = _band(read, scale)
    return Steps(
        turns=groups,
        axis=axis_of(scale.axis(now=read.now), band),
        band=band,
        plan=_counts(listed),
        summary=_summary(read, listed),
    )


def _summary(read: RunRead, rows: list[PlanRow]) -> str:
    done = sum(1 for row in rows if row.next == "skip")
    cut = ", the first ones only" if read.steps_more else ""
    return f"{done} of {plural(len(rows), 'step')} done{cut}"


def _turn_title(read: RunRead, turn: int) -> str:
    if read.run.state == "paused" and turn == read.run.turn_index:
        return f"Turn {turn}, paused here"
    parallel = (
        " (in parallel)" if turn == read.run.turn_index and read.run.turn_parallel == "parallel" else ""
    )
    return f"Turn {turn}{parallel}"


# --- One step -------------------------------------------------------------------------------------------


def _row(
    read: RunRead,
    number: int,
    call: Call,
    operation: Operation | None,
    step: dict[str, Any],
    sent: list[Attempt],
    scale: timescale.Scale,
) -> PlanRow:
    following = str(step.get("next", "wait"))
    ended = read.run.state in RUN_ENDED
    if operation is None:
        saved = call.result_at is not None
        return PlanRow(
            number=str(number),
            name=" ".join(naming.words_of(call.tool)).capitalize() or call.tool,
            detail=("read only, ", Code(call.call_id)),
            next=following,  # type: ignore[arg-type]
            next_why=(_READ_ENDED if ended else _READ)[saved],
            state_badge=Badge(word="Saved", icon="check", tone="green")
            if saved
            else Badge(word="Not read", icon="circle-dashed", tone="grey"),
            waterfall=_read_fall(read, call, scale),
            todo=not saved,
        )
    amount = amount_of(operation.amount_currency, operation.amount_minor)
    return PlanRow(
        number=str(number),
        name=naming.title_of(operation.tool, amount, step.get("args")),
        detail=(f"{operation.provider_id} · ", Code(operation.pk)),
        next=following,  # type: ignore[arg-type]
        next_why=_why(following, operation, step, ended=ended),
        state=OperationState(operation.state),
        href=_href(read, operation),
        waterfall=_effect_fall(read, call, operation, sent, scale),
        here=operation.state == OperationState.SENT_UNKNOWN,
        todo=operation.state == OperationState.READY,
    )


def _href(read: RunRead, operation: Operation) -> str:
    """The operation's case: the open one, else the latest; without one, its history."""
    cases = [one for one in read.cases if one.operation_id == operation.pk]
    waiting = [one for one in cases if one.state != CaseState.RESOLVED]
    if cases:
        return reverse("case", args=[(waiting or cases)[-1].pk])
    return f"{reverse('effects')}?q={operation.pk}"


def _why(following: str, operation: Operation, step: dict[str, Any], *, ended: bool) -> Phrase:
    """What a resuming worker is told of it; of a run that `ended`, what came of it."""
    match OperationState(operation.state):
        case OperationState.READY:
            again = operation.attempts_count
            return ("sent anew: nothing of it arrived" if again else "first request, with the stored key",)
        case OperationState.SENT_UNKNOWN:
            if ended:
                return ("Unknown until its case is decided",)
            return ("granted: same key, once" if following == "repeat" else "until its case is decided",)
        case OperationState.CONFIRMED:
            receipt = step.get("receipt")
            reference = str(receipt["reference"]) if isinstance(receipt, dict) else "on record"
            return ("Receipt " if ended else "receipt ", Code(reference))
        case OperationState.REJECTED:
            return ("Refused by the provider" if ended else "the provider’s refusal is reused",)
        case OperationState.ABANDONED:
            if ended:
                return (f"Given up. {operation.known_effect or 'What became of it is unknown.'}",)
            return ("given up; the plan says what is known",)
        case never:
            assert_never(never)


# --- When -----------------------------------------------------------------------------------------------


def _scale(read: RunRead) -> timescale.Scale:
    run = read.run
    instants: list[datetime | None] = [run.created_at, run.paused_at, run.ended_at]
    instants += [turn.saved_at for turn in read.turns]
    instants += [call.result_at for call in read.calls]
    instants += [one.settled_at for one in read.operations.values()]
    for attempt in read.attempts:
        instants += [attempt.minted_at, attempt.ended_at]
    if run.ended_at is None:
        instants.append(read.now)
        if any(one.state == OperationState.READY for one in read.operations.values()):
            instants.append(read.now + AHEAD)
    return timescale.scale(at for at in instants if at is not None)


def _band(read: RunRead, scale: timescale.Scale) -> tuple[int, int] | None:
    if read.run.paused_at is None:
        return None
    start = scale.x(read.run.paused_at)
    return start, max(2, scale.x(read.now) - start)


def axis_of(clocks: tuple[str, ...], band: tuple[int, int] | None) -> tuple[AxisLabel, ...]:
    """The clock at equal steps, and over the paused stretch what it is, and that what follows is to come.

    A clock gives way to a word: two of them in one place could both not be read.
    """
    words: list[AxisLabel] = []
    if band is not None:
        start, end = (round(one / PERCENT) for one in (band[0], band[0] + band[1]))
        narrow = end - start < LABEL_PERCENT
        words.append(AxisLabel(x=start, text="paused", anchor="end" if narrow and start > 0 else "start"))
        if end <= 100 - LABEL_PERCENT:
            words.append(AxisLabel(x=end, text="next"))
    starts = [one.x - LABEL_PERCENT if one.anchor == "end" else one.x for one in words]
    shown = [
        AxisLabel(x=x, text=text)
        for x, text in ((round(100 * place / len(clocks)), text) for place, text in enumerate(clocks))
        if all(abs(x - start) >= LABEL_PERCENT for start in starts)
    ]
    return tuple(sorted([*shown, *words], key=lambda one: one.x))


def _bar(kind: str, start: int, end: int) -> WaterfallBar:
    width = max(BAR_WIDTH_MIN, end - start)
    x = min(start, timescale.WIDTH - width)
    return WaterfallBar(kind=kind, x=x, width=width)  # type: ignore[arg-type]


def _decided_at(read: RunRead, call: Call) -> datetime:
    return next(turn.saved_at for turn in read.turns if turn.pk == call.turn_id)


def _read_fall(read: RunRead, call: Call, scale: timescale.Scale) -> Waterfall | None:
    if call.result_at is None:
        return None
    saved = _decided_at(read, call)
    bars = (_bar("ok", scale.x(saved), scale.x(call.result_at)),)
    return Waterfall(label=f"Read at {wording.clock(call.result_at, now=read.now)}", bars=bars)


def _effect_fall(
    read: RunRead, call: Call, operation: Operation, sent: list[Attempt], scale: timescale.Scale
) -> Waterfall:
    decided = scale.x(_decided_at(read, call))
    first = operation.first_sent_at
    if first is None:
        if operation.state == OperationState.ABANDONED and operation.settled_at is not None:
            at = scale.x(operation.settled_at)
            return Waterfall(label="given up, never sent", bars=(_bar("gone", at, at),))
        ahead = scale.x(read.now)
        return Waterfall(label="not sent yet", bars=(_bar("planned", ahead, timescale.WIDTH),))
    start = scale.x(first)
    end = scale.x(operation.settled_at or read.now)
    state = OperationState(operation.state)
    kind = {
        OperationState.CONFIRMED: "ok",
        OperationState.REJECTED: "no",
        OperationState.ABANDONED: "gone",
        OperationState.SENT_UNKNOWN: "unknown",
        OperationState.READY: "gone",
    }[state]
    bars = [_bar(kind, start, end)]
    if decided < start:
        bars.insert(0, _bar("think", decided, start))
    if state is OperationState.READY:
        bars.append(_bar("planned", scale.x(read.now), timescale.WIDTH))
    times = plural(operation.attempts_count, "request")
    words = str(state).replace("_", " ")
    return Waterfall(
        label=f"{times} since {wording.clock(first, now=read.now)}, {words}",
        bars=tuple(bars),
        requests=tuple(min(scale.x(one.minted_at), timescale.WIDTH - 3) for one in sent[:40]),
    )


def _counts(rows: Iterable[PlanRow]) -> tuple[PlanCount, ...]:
    counts: dict[str, int] = defaultdict(int)
    for row in rows:
        counts[row.next] += 1
    return tuple(
        PlanCount(next=following, count=counts[following], note=note)  # type: ignore[arg-type]
        for following, note in _COUNT_NOTES.items()
        if counts[following]
    )
