"""Providers: the list of accounts, and one with its contract, its health, and the two forms."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from console.pages.shapes.administration import ChangeForm
from console.pages.shapes.case import FieldError
from console.pages.shapes.parts import (
    Actor,
    Badge,
    Banner,
    Choice,
    EmptyState,
    Fact,
    JsonView,
)
from console.pages.shapes.text import Phrase


@dataclass(frozen=True, kw_only=True, slots=True)
class ProviderRow:
    """One account in the list: what it promises in a few words, how that was tested, what is open there."""

    slug: str
    href: str
    title: str
    key: str
    window: str
    lookup: str
    absence: str
    tested: Badge
    tested_note: str
    standing: Badge
    standing_note: str
    open_cases: str
    open_note: str = ""
    cases_href: str = ""
    tightened: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ProviderListPage:
    """`provider_list.html`. `declares` says whether this person may declare another."""

    now: datetime
    lead: str
    rows: tuple[ProviderRow, ...]
    offered: tuple[ProviderRow, ...] = ()
    summary: str = ""
    problems: tuple[str, ...] = ()
    problems_text: str = ""
    empty: EmptyState | None = None
    declares: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceView:
    """Where one promise comes from; `href` only where it can be opened."""

    text: str
    read_on: str
    href: str = ""
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PromiseRow:
    """One line of the contract; `built_in` is what is declared where something tighter is in force."""

    field: str
    label: str
    value: str
    meaning: str
    sources: tuple[SourceView, ...] = ()
    built_in: str = ""
    # What is said where no source is on record.
    unsourced: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PromiseSection:
    """Lines about one matter."""

    title: str
    rows: tuple[PromiseRow, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialForm:
    """The form that puts one question to the provider. `closed` says why there is none."""

    href: str
    closed: str = ""
    operation: str = ""
    key: str = ""
    tool: str = ""
    payload: str = ""
    reference: str = ""
    first_sent_at: str = ""
    errors: tuple[FieldError, ...] = ()
    # Whether the part for something typed by hand is open.
    by_hand: bool = False

    @property
    def error_fields(self) -> tuple[str, ...]:
        return tuple(one.field for one in self.errors)


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """One action, as it would stand after the answer."""

    title: str
    badge: Badge
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialResult:
    """What came back, and what would be concluded from it."""

    finding: Badge
    summary: str
    about: Phrase
    asked_at: datetime
    concluded: str
    why: str
    actions: tuple[Standing, ...]
    receipts: tuple[tuple[Fact, ...], ...] = ()
    bodies: tuple[JsonView, ...] = ()
    # Why less than everything is shown, "" where it is everything.
    withheld: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TightenField:
    """One field of the form: its value in force, and what is typed instead."""

    name: str
    label: str
    kind: Literal["number", "switch"]
    in_force: str
    hint: str
    unit: str = ""
    value: str = ""
    choices: tuple[Choice, ...] = ()
    error: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TightenForm:
    """The administrator's form; `number` is the tightening that is in force while it is filled in."""

    href: str
    number: int
    fields: tuple[TightenField, ...]
    reason: str = ""
    reason_length_min: int = 0
    closed: str = ""
    open: bool = False
    errors: tuple[FieldError, ...] = ()

    @property
    def error_fields(self) -> tuple[str, ...]:
        return tuple(one.field for one in self.errors)


@dataclass(frozen=True, kw_only=True, slots=True)
class TightenedView:
    """One entry of what was tightened."""

    number: int
    at: datetime
    by: Actor
    reason: str
    changes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProviderPage:
    """`provider.html`."""

    now: datetime
    slug: str
    title: str
    badges: tuple[Badge, ...]
    facts: tuple[Fact, ...]
    sections: tuple[PromiseSection, ...]
    contract_summary: str
    tested: Badge
    tested_text: str
    tested_facts: tuple[Fact, ...]
    setup: tuple[Fact, ...]
    health: tuple[Fact, ...]
    health_badge: Badge
    trial: TrialForm
    tighten: TightenForm
    health_note: str = ""
    tightened: tuple[TightenedView, ...] = ()
    result: TrialResult | None = None
    banners: tuple[Banner, ...] = ()
    banner: Banner | None = None
    documentation_url: str = ""
    ways: tuple[Fact, ...] = ()
    make_absent: Banner | None = None
    notices: tuple[Fact, ...] = ()
    # For administrators.
    access: ChangeForm | None = None
