"""The environment page: which database this is, what sends, and what was forgotten."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from console.pages.shapes.case import FieldError
from console.pages.shapes.parts import Badge, Banner
from console.pages.shapes.text import Phrase
from runs.money import Money


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerChoice:
    """One thing that the database may be, and what saying so does."""

    value: str
    label: str
    text: str
    selected: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerForm:
    """What an administrator says; `closed` is why this person can't, else ""."""

    freeze: str
    choices: tuple[AnswerChoice, ...]
    backup_taken_at: str
    reason: str
    errors: tuple[FieldError, ...] = ()
    closed: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class SendingRow:
    """One account: whether it sends, how far it is, and whether this person may open it now."""

    slug: str
    title: str
    standing: Badge
    marked: str
    listed: str
    notes: tuple[str, ...]
    may_open: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class OrphanRow:
    """An effect that the journal doesn't know; text from the provider, to be shown inert."""

    account: str
    reference: str
    key: str
    amount: Money | None
    state_there: str
    found_at: datetime
    known: str
    body: str
    run_href: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentPage:
    now: datetime
    lead: str
    facts: tuple[tuple[str, str], ...]
    banner: Banner
    said: Phrase
    form: AnswerForm | None
    rows: tuple[SendingRow, ...]
    orphans: tuple[OrphanRow, ...]
    orphans_note: str
    orphans_closed: str
