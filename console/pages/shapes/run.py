"""Runs: the list, and one run with its plan, budget and leases."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from console.pages.shapes.approval import RunAsk
from console.pages.shapes.case import FieldError
from console.pages.shapes.parts import (
    Badge,
    Banner,
    Counts,
    EmptyState,
    Fact,
    Filter,
    JsonView,
    NextPage,
    Tab,
    TimelineItem,
)
from console.pages.shapes.text import Link, Phrase
from runs.money import Money
from runs.states import RUN_ENDED, OperationState, RunState


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRow:
    """One run in the list. `why` says in words what it waits for."""

    run_id: str
    href: str
    title: str
    flow: str
    state: RunState
    progress: str
    counts: Counts
    started_at: datetime
    changed_at: datetime
    why: str = ""
    spent: Money | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunListPage:
    """`run_list.html`."""

    now: datetime
    rows: tuple[RunRow, ...]
    tabs: tuple[Tab, ...] = ()
    filters: tuple[Filter, ...] = ()
    lead: str = ""
    next: NextPage | None = None
    empty: EmptyState | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WaterfallBar:
    """A stretch of time in a step, on the page's scale of 0 to 1000."""

    kind: Literal["think", "ok", "no", "gone", "unknown", "planned"]
    x: int
    width: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Waterfall:
    """One step's bars and its requests (ticks), with the same in words for who can't see it."""

    label: str
    bars: tuple[WaterfallBar, ...] = ()
    requests: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanRow:
    """One call of the run, and what a worker that resumed now would be told to do with it.

    `next` is a value of the plan: skip, read, send, wait or repeat; `next_why` says it in words.
    `state` is None for a read and for a call that was never recorded as an operation.
    """

    number: str
    name: str
    detail: Phrase
    next: Literal["skip", "read", "send", "wait", "repeat"]
    next_why: Phrase
    state: OperationState | None = None
    state_badge: Badge | None = None
    href: str = ""
    waterfall: Waterfall | None = None
    here: bool = False
    todo: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnGroup:
    """The calls of one turn under its heading ("Turn 9, paused here")."""

    title: str
    rows: tuple[PlanRow, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetView:
    """A run's budget. Widths are parts of 1000 of the limit; amounts say the same exactly.

    `held` is reserved for effects given up with their outcome unknown.
    """

    limit: Money
    spent: Money
    reserved: Money
    remaining: Money
    spent_width: int
    reserved_width: int
    held: Money | None = None
    held_width: int = 0
    note: Phrase = ()

    @property
    def reserved_x(self) -> int:
        """Where the reserved part starts: after the spent part and a hairline."""
        return self.spent_width + 2

    @property
    def held_x(self) -> int:
        """Where the held part starts."""
        return self.reserved_x + self.reserved_width + 2


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseRow:
    """One lease: which token, whose, from when to when, why it ended, and whether it can still write."""

    token: str
    worker: str
    taken_at: datetime
    ended_at: datetime | None
    why: str
    can_write: Badge
    note: Phrase = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanCount:
    """How many calls share one next step, and what that means."""

    next: Literal["skip", "read", "send", "wait", "repeat"]
    count: int
    note: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AxisLabel:
    """A word over the time axis at `x` percent of its width; `anchor` is which end of it stands there."""

    x: int
    text: str
    anchor: Literal["start", "end"] = "start"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPage:
    """`run.html`. `axis` labels the scale; `band` is the paused stretch.

    `revoke_href` takes the POST, with `reason`, that takes the lease away; without it `revoke_note` says why
    this person can't, "" where nobody holds the run.
    """

    now: datetime
    run_id: str
    title: str
    flow: str
    state: RunState
    subtitle: Phrase
    facts: tuple[Fact, ...]
    turns: tuple[TurnGroup, ...]
    steps_summary: str
    banner: Banner | None = None
    budget: BudgetView | None = None
    axis: tuple[AxisLabel, ...] = ()
    band: tuple[int, int] | None = None
    plan: tuple[PlanCount, ...] = ()
    plan_note: str = ""
    leases: tuple[LeaseRow, ...] = ()
    timeline: tuple[TimelineItem, ...] = ()
    input: JsonView | None = None
    output: JsonView | None = None
    empty: EmptyState | None = None
    # What a second person may be asked about the run as it stands, and what they are asked already.
    asks: tuple[RunAsk, ...] = ()
    pending: tuple[Link, ...] = ()
    asks_note: str = ""
    revoke_href: str = ""
    revoke_note: str = ""
    revoke_reason: str = ""
    reason_length_min: int = 0
    errors: tuple[FieldError, ...] = ()

    @property
    def ended(self) -> bool:
        """Whether nobody resumes it any more, so that no step has anything to come."""
        return self.state in RUN_ENDED
