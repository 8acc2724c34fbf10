"""The frame around every page, and the pages that say what went wrong."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from console.pages.shapes.case import HiddenField
from console.pages.shapes.parts import Actor, Fact
from console.pages.shapes.text import Link, Phrase, Tone


@dataclass(frozen=True, kw_only=True, slots=True)
class Viewer:
    """The signed-in person, as the top bar shows them."""

    name: str
    role: str

    @property
    def actor(self) -> Actor:
        """The same person, for the round initials."""
        return Actor(name=self.name, is_person=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class FrozenNotice:
    """That sending is frozen, on every page. `href` leads those who can end it there, "" for others."""

    title: str
    text: str
    href: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shell:
    """What `base.html` needs besides the page: who, where, and how they like it.

    `section` is the current entry of the navigation. `open_cases` may be capped ("99+") or unknown ("").
    """

    environment: str
    environment_tone: Tone
    theme: Literal["system", "light", "dark"]
    shortcuts: bool
    path: str
    viewer: Viewer | None = None
    section: Literal["queue", "runs", "approvals", "effects", "providers", ""] = ""
    open_cases: str = ""
    # How many requests wait for this person, who may answer them; capped as well.
    waiting_approvals: str = ""
    # Instants by the UTC clock, or by that of the person's own zone, which only their browser knows.
    times: Literal["utc", "own"] = "utc"
    # Signed in and in no team: every list is empty, whatever there is.
    no_team: bool = False
    # Whether the pages of administration are theirs.
    administers: bool = False
    # What no account, or not every account, sends while sending is frozen; None while all are open.
    frozen: FrozenNotice | None = None
    # This server's clock, for pages that were not read at an instant of the database's.
    now: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SendOnce:
    """The same form again, to be sent by a person: it has an id of its own and counts once."""

    href: str
    button: str
    hidden: tuple[HiddenField, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ProblemPage:
    """`problem.html`: what went wrong, what is known, and what each way on would do.

    `kept` is what the person had typed, given back as text; `again` sends it once more where that is safe.
    """

    code: int
    title: str
    lead: str
    text: Phrase = ()
    links: tuple[Link, ...] = ()
    kept: tuple[Fact, ...] = ()
    again: SendOnce | None = None
