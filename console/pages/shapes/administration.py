"""What the pages of administration take: tables, facts, and forms that change one thing each."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from console.pages.shapes.parts import Banner
from console.pages.shapes.text import Link


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One cell of a table: text, perhaps a link, an id or an instant, with a second line."""

    text: str = ""
    href: str = ""
    sub: str = ""
    is_id: bool = False
    at: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rows under their heads. `empty` says what would appear, and why there is nothing."""

    id: str
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    empty: str
    next_href: str = ""

    @property
    def labelled(self) -> tuple[tuple[tuple[str, Cell], ...], ...]:
        """Each cell with its head, which stands before it where a row is a card."""
        return tuple(tuple(zip(self.heads, row, strict=True)) for row in self.rows)


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """One thing to choose, with what it means."""

    value: str
    label: str
    chosen: bool = False
    hint: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One field of a form, as it was typed."""

    name: str
    label: str
    kind: Literal["text", "email", "number", "long", "several", "one"] = "text"
    value: str = ""
    hint: str = ""
    choices: tuple[Choice, ...] = ()
    required: bool = True
    error: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeForm:
    """A form that changes one thing. `seen` is what it was shown with."""

    id: str
    title: str
    note: str
    href: str
    button: str
    entries: tuple[Entry, ...] = ()
    seen: str = ""
    danger: bool = False
    open: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Once:
    """Something that is shown this once and stored nowhere."""

    title: str
    text: str
    secret: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AdministrationPage:
    """One page of administration."""

    title: str
    lead: str
    section: Literal["people", "teams", "access", "tokens", "flows"]
    facts: tuple[tuple[str, str], ...] = ()
    tables: tuple[Table, ...] = ()
    forms: tuple[ChangeForm, ...] = ()
    links: tuple[Link, ...] = ()
    banner: Banner | None = None
    once: Once | None = None
    back: Link | None = None
