"""Sentences in parts: what a template may set as an id, an instant, an amount or a link."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from reconciliation.states import Truth
from runs.money import Money

Tone = Literal["grey", "blue", "amber", "green", "red", "violet"]
# The answers to the five questions; "settled" where the case is, so that the question bears on nothing more.
Answer = Truth | Literal["settled"]


@dataclass(frozen=True, slots=True)
class Strong:
    """Words that carry the sentence."""

    text: str


@dataclass(frozen=True, slots=True)
class Code:
    """An id, a key, a digest or a provider's reference: set in the fixed-width face."""

    text: str


@dataclass(frozen=True, slots=True)
class Link:
    """A link to another page of the console."""

    text: str
    href: str


@dataclass(frozen=True, slots=True)
class Until:
    """A time still to come, shown as "in 13 min" and counting down where a script runs."""

    at: datetime


@dataclass(frozen=True, slots=True)
class Since:
    """A time that has passed, shown as "2 min ago"."""

    at: datetime


# A bare datetime is shown as its UTC time. A bare string is plain text.
Part = str | Strong | Code | Link | Until | Since | datetime | Money
Phrase = tuple[Part, ...]
