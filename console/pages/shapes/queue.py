"""The queue of cases."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from console.pages.shapes.bulk import BulkBar
from console.pages.shapes.parts import Badge, Choice, Counts, EmptyState, Filter, KeyWindow, NextPage, Tab
from console.pages.shapes.text import Answer, Phrase, Tone
from runs.money import Money


@dataclass(frozen=True, kw_only=True, slots=True)
class Stat:
    """One number of the backlog. `number` is text: a capped count or an amount."""

    label: str
    number: str
    icon: str
    note: str = ""
    tone: Tone | None = None
    href: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitBucket:
    """How many cases have waited this long ("5–15 min")."""

    label: str
    count: int
    tone: Literal["grey", "amber", "red"] = "grey"


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueRow:
    """One case in the queue.

    `title` is the intended effect ("Refund €1,240.00"). `shows` is the latest verdict in a few words.
    `note` under the waiting time says the time limit ("41 min left") with its tone.
    """

    case_id: str
    href: str
    title: str
    context: Phrase
    operation_id: str
    shows: Badge
    counts: Counts
    answers: tuple[Answer, Answer, Answer, Answer, Answer]
    waiting_since: datetime
    window: KeyWindow
    looked_up_at: datetime | None = None
    at_risk: Money | None = None
    note: str = ""
    note_tone: Tone | None = None
    # The name of whoever works on it now.
    claimant: str = ""
    # Who gave it to them, while they haven't looked at it.
    given_by: str = ""
    # Where a click claims it and opens it; "" where it can't be, or somebody has it.
    claim_href: str = ""
    # It was chosen when something was refused.
    chosen: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueGroup:
    """Rows under one heading, or under none: what gets worse first comes first."""

    rows: tuple[QueueRow, ...]
    title: str = ""
    icon: str = ""
    tone: Tone | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Chip:
    """One filter that narrows the list; `href` is the same list without it."""

    name: str
    value: str
    href: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedViewRow:
    """One saved view; `note` says who sees it, `remove_href` is "" where it isn't the viewer's to remove."""

    name: str
    href: str
    current: bool
    note: str
    remove_href: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedViews:
    """The saved views, and the form over the list as it is narrowed now; `save_href` "" offers none.

    `name` and the chosen reach are what somebody had typed, `refusal` why it wasn't kept.
    """

    rows: tuple[SavedViewRow, ...]
    save_href: str
    query: str
    name: str
    name_length_max: int
    reaches: tuple[Choice, ...]
    refusal: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueNews:
    """What changed since the list was read; shown as a pill that moves no row."""

    text: str
    href: str


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuePage:
    """`queue.html`. `poll_href` answers with the partial `queue.html#news`."""

    now: datetime
    title: str
    lead: str
    groups: tuple[QueueGroup, ...]
    shown_text: str
    order_text: str
    stats: tuple[Stat, ...] = ()
    waits: tuple[WaitBucket, ...] = ()
    tabs: tuple[Tab, ...] = ()
    filters: tuple[Filter, ...] = ()
    chips: tuple[Chip, ...] = ()
    clear_href: str = ""
    saved: SavedViews | None = None
    news: QueueNews | None = None
    poll_href: str = ""
    next: NextPage | None = None
    empty: EmptyState | None = None
    # What may be done with chosen rows; None where nothing is chosen.
    bulk: BulkBar | None = None
    # Whether this person works on cases, so that the most urgent can be theirs.
    may_work: bool = True
    # Whether somebody can be at work on what is listed: on what is settled nobody is.
    has_desk: bool = True

    @property
    def columns(self) -> int:
        """How many columns the table has."""
        return 6 + self.has_desk + (self.bulk is not None)
