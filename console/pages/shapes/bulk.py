"""Many cases at once: the bar over the queue, the list before it starts, its progress and its outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from console.pages.shapes.case import FieldError
from console.pages.shapes.parts import Badge, Banner, Choice, Consequence, EmptyState, Fact, NextPage, Tab
from console.pages.shapes.text import Phrase, Tone
from runs.money import Money


@dataclass(frozen=True, kw_only=True, slots=True)
class BulkDo:
    """One thing that may be done with the cases that are chosen."""

    value: str
    label: str
    icon: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BulkBar:
    """What can be done with chosen rows of the queue; `query` is the list that they are chosen from."""

    query: str
    deeds: tuple[BulkDo, ...]
    hint: str
    # All that match is chosen already: the page came back from a refusal.
    everything: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class BulkCase:
    """One case of a list, with why nothing would be done with it, or what came of it."""

    position: int
    case_id: str
    href: str
    title: str
    provider: str
    note: str = ""
    amount: Money | None = None
    outcome: Badge | None = None
    at: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class BulkKind:
    """Cases of a list that are alike; `value` names them in the form that goes on with these alone."""

    value: str
    provider: str
    verdict: Badge
    actions: str
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class BulkChoice:
    """One decision that may be chosen for all of them."""

    value: str
    label: str
    text: str
    selected: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class BulkForm:
    """What is asked before the start. `seen` is the choice that the preview above shows, "" for none.

    `decides` is the heading over the choices; `asks_why` says whether the reason is asked for already.
    """

    href: str
    choices: tuple[BulkChoice, ...] = ()
    people: tuple[Choice, ...] = ()
    reason_codes: tuple[Choice, ...] = ()
    reason: str = ""
    decides: str = ""
    asks_why: bool = False
    reason_length_min: int = 0
    seen: str = ""
    # The button that starts it, "" where nothing would be done; it names what it does.
    primary: str = ""
    danger: bool = False
    errors: tuple[FieldError, ...] = ()

    @property
    def error_fields(self) -> tuple[str, ...]:
        return tuple(one.field for one in self.errors)


@dataclass(frozen=True, kw_only=True, slots=True)
class BulkForecast:
    """What starting would do, and which cases it would leave as they are."""

    heading: str
    said: tuple[Consequence, ...]
    left: tuple[BulkCase, ...] = ()
    left_heading: str = ""
    left_more: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class BulkProgress:
    """How far it is. `poll_href` is "" once it has ended."""

    done: int
    total: int
    text: str
    tone: Tone
    poll_href: str = ""
    stop_href: str = ""
    # Where the outcomes of a job that has just ended are.
    result_href: str = ""

    @property
    def permille(self) -> int:
        return round(1000 * self.done / self.total) if self.total else 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class BulkPage:
    """`bulk.html`: one list, before, while and after something is done with it."""

    now: datetime
    title: str
    lead: Phrase
    badge: Badge
    facts: tuple[Fact, ...] = ()
    banner: Banner | None = None
    notice: str = ""
    kinds: tuple[BulkKind, ...] = ()
    kinds_text: str = ""
    narrow_href: str = ""
    form: BulkForm | None = None
    # The cases of the list that something would be done with, as far as is known.
    going: tuple[BulkCase, ...] = ()
    going_heading: str = ""
    forecast: BulkForecast | None = None
    progress: BulkProgress | None = None
    tabs: tuple[Tab, ...] = ()
    cases_title: str = ""
    cases: tuple[BulkCase, ...] = ()
    next: NextPage | None = None
    csv_href: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class BulkRow:
    """One list among a person's lists."""

    href: str
    title: str
    badge: Badge
    progress: str
    frozen_at: datetime
    ended_at: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class BulkListPage:
    """`bulk_list.html`: a person's own lists, newest first."""

    now: datetime
    rows: tuple[BulkRow, ...]
    next: NextPage | None = None
    empty: EmptyState | None = None
