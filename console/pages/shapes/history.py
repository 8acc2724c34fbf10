"""The effect history, and what a search found."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from console.pages.shapes.parts import Actor, Badge, EmptyState, Fact, Filter, JsonView, NextPage, Tab
from console.pages.shapes.text import Link, Phrase


@dataclass(frozen=True, kw_only=True, slots=True)
class EffectEntry:
    """One entry of the history. With `facts` or `body` it is shown open; `href` opens or closes it."""

    entry_id: str
    href: str
    at: datetime
    event: Badge
    actor: Actor
    # The history of whoever did it.
    actor_href: str = ""
    note: str = ""
    subject: str = ""
    subject_id: str = ""
    subject_href: str = ""
    digest: str = ""
    open: bool = False
    facts: tuple[Fact, ...] = ()
    body: JsonView | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class EffectsPage:
    """`effects.html`: who did what, when and why, newest first, append only.

    `proof` says what is proved of the log and what isn't yet; `means` what the chosen exception is; `notice`
    what the list lacks.
    """

    now: datetime
    entries: tuple[EffectEntry, ...]
    lead: str
    summary: str
    filters: tuple[Filter, ...] = ()
    chips: tuple[Tab, ...] = ()
    printed: str = ""
    proof: str = ""
    means: str = ""
    notice: str = ""
    next: NextPage | None = None
    newer: Link | None = None
    empty: EmptyState | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchHit:
    """Something found by its id, key, reference or external id; `badge` is its state."""

    title: str
    href: str
    kind: str
    badge: Badge | None = None
    detail: Phrase = ()
    # Why it is here ("Idempotency key begins with it"), and the name in three: before, what matched, after.
    why: str = ""
    marked: tuple[str, str, str] = ("", "", "")


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchPage:
    """`search.html`. One exact hit is a redirect, so this shows none or several.

    `through_at` is until when names are known by their parts, where those were looked for; `notice` says what
    the list lacks.
    """

    now: datetime
    query: str
    hits: tuple[SearchHit, ...] = ()
    empty: EmptyState | None = None
    next: NextPage | None = None
    through_at: datetime | None = None
    notice: str = ""
