"""The effect history, and what a search found."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from console.pages.shapes.case import QuestionView
from console.pages.shapes.parts import (
    Actor,
    Badge,
    Banner,
    EmptyState,
    Fact,
    Filter,
    JsonView,
    NextPage,
    Tab,
)
from console.pages.shapes.text import Link, Phrase, Tone


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
    what the list lacks. `export_href` takes the form that exports what `export_query` lets through.
    """

    now: datetime
    entries: tuple[EffectEntry, ...]
    lead: str
    summary: str
    filters: tuple[Filter, ...] = ()
    chips: tuple[Tab, ...] = ()
    exceptions: str = ""
    printed: str = ""
    proof: str = ""
    means: str = ""
    notice: str = ""
    export_href: str = ""
    export_query: str = ""
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Moved:
    """One value that an entry holds, as it was before and after; "" where there is none."""

    name: str
    before: str = ""
    after: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryItem:
    """One entry of an operation's history, whole. `href` leads to it wherever it stands, for ever.

    `known_href` is the page of what was known when this was decided.
    """

    number: int
    href: str
    title: str
    icon: str
    at: datetime
    actor: Actor
    digest: str
    tone: Tone | None = None
    elapsed: str = ""
    role: str = ""
    text: Phrase = ()
    reason: str = ""
    evidence: str = ""
    moved: tuple[Moved, ...] = ()
    known_href: str = ""
    current: bool = False
    gap: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class OperationPage:
    """`effect.html`: everything that happened to one operation, in order."""

    now: datetime
    title: str
    operation_id: str
    state: str
    facts: tuple[Fact, ...]
    items: tuple[HistoryItem, ...]
    note: str
    proof: str
    printed: str
    payload: JsonView | None = None
    earlier: Link | None = None
    later: Link | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownEvidence:
    """A piece of evidence that was on record, without its body."""

    evidence_id: str
    title: str
    icon: str
    at: datetime
    text: Phrase
    digest: str
    href: str
    tone: Tone | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """An action as it was offered then: its title, a sentence, and whether it was the one taken."""

    title: str
    standing: Badge
    text: str
    taken: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownPage:
    """`effect_known.html`: what was known when somebody decided, and whether that is proved."""

    now: datetime
    title: str
    operation_id: str
    operation_href: str
    proof: Banner
    decided: tuple[Fact, ...]
    reason: str
    verdict_title: str
    verdict_icon: str
    verdict_tone: Tone
    verdict_open: bool
    verdict_text: Phrase
    questions: tuple[QuestionView, ...]
    questions_summary: str
    offers: tuple[Offer, ...]
    evidence: tuple[KnownEvidence, ...]
    attempts: tuple[Fact, ...]
    later: str
    payload: JsonView | None = None
