"""The parts that several pages share: badges, counts, key windows, banners, lists."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from console.pages.shapes.text import Link, Phrase, Tone


@dataclass(frozen=True, kw_only=True, slots=True)
class Badge:
    """A state in the three ways at once: icon (a name in icons.svg), word and tone.

    `open` draws the dashed edge that says: nobody knows yet.
    """

    word: str
    icon: str
    tone: Tone = "grey"
    open: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Actor:
    """Who did something: a person (round initials) or a system part (square initial)."""

    name: str
    is_person: bool = False

    @property
    def initials(self) -> str:
        """At most two letters for a person, one for a system part."""
        words = [word for word in self.name.replace("-", " ").split() if word[:1].isalnum()]
        if not self.is_person:
            return words[0][0].upper() if words else "?"
        return (
            "".join(word[0] for word in (words[:1] + words[-1:] if len(words) > 1 else words)).upper() or "?"
        )

    @property
    def tone(self) -> Tone:
        """A person keeps one tone everywhere; it says nothing but "the same person"."""
        if not self.is_person:
            return "grey"
        tones: tuple[Tone, ...] = ("blue", "green", "amber", "violet")
        return tones[sum(map(ord, self.name)) % len(tones)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """Requests sent and effects seen at the provider: two facts, never one number.

    `effects` is None when they can't be counted, and `uncounted` says why: the provider offers no lookup,
    or none has told anything. `carrying_key` is how many of the effects carry our key or reference, None
    when that can't be told; `alike` is how many records besides may be ours. `on_word`: nothing but two
    people's word says that there is one. `unknown`: how many more there may be, of operations whose outcome
    nobody knows.
    """

    requests: int
    effects: int | None
    carrying_key: int | None = None
    uncounted: str = "can’t be counted"
    on_word: bool = False
    alike: int = 0
    unknown: int = 0

    @property
    def tone(self) -> Tone:
        """Red when there are more effects than the one intended or none of them is ours."""
        if self.effects is None or self.effects == 0:
            return "grey"
        if self.effects > 1 or self.carrying_key == 0:
            return "red"
        return "amber" if self.on_word else "green"


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyWindow:
    """How long the same key protects a repeat.

    `label` is the line before the time ("Same key is safe for", "The key's window has closed"); `note`
    is said instead of a time where there is none ("No key support"). `used_permille` is how much of the
    window has passed, 0 to 1000, or None when its length is unknown.
    """

    label: str
    tone: Tone
    locked: bool = False
    first_sent_at: datetime | None = None
    ends_at: datetime | None = None
    used_permille: int | None = None
    note: str = ""

    @property
    def left_permille(self) -> int:
        """The other part of the bar."""
        return 0 if self.used_permille is None else 1000 - self.used_permille

    @property
    def percent(self) -> int:
        """How much has passed, for the bar's text alternative."""
        return 0 if self.used_permille is None else round(self.used_permille / 10)


@dataclass(frozen=True, kw_only=True, slots=True)
class Consequence:
    """One thing that an action will do, said before the person acts and again in the dialog."""

    text: Phrase
    icon: str
    bad: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """A label over a value, with a second line where one helps."""

    label: str
    value: Phrase
    note: Phrase = ()
    copy: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Banner:
    """A box that changes what the person should do next.

    `quote` is somebody's own words. `kept` says what of the person's work was kept ("Your typed reason
    is kept"). With `focus` the heading takes the focus when the page loads, as after a conflict.
    """

    title: Phrase
    icon: str
    tone: Tone
    text: Phrase = ()
    quote: str = ""
    kept: str = ""
    links: tuple[Link, ...] = ()
    action: Link | None = None
    focus: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class EmptyState:
    """What a list says when nothing is in it."""

    title: str
    text: str
    icon: str = "inbox"
    action: Link | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class NextPage:
    """Keyset pagination: the link to what follows, and how it is called ("Load older entries")."""

    href: str
    label: str


@dataclass(frozen=True, kw_only=True, slots=True)
class JsonView:
    """JSON to look at, as text: already pretty, redacted and cut.

    `bytes_total` is the length of the whole; `cut` says that `text` is not all of it. `href` is its own page,
    with all of it, its bytes, and the way to what is hidden; `notes` say what else the text doesn't show.
    """

    title: str
    text: str
    digest: str = ""
    bytes_total: int = 0
    cut: bool = False
    notes: tuple[str, ...] = ()
    hidden_count: int = 0
    href: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tab:
    """A saved view over a list. `count` may be capped ("99+"), so it is text; `hot` draws it red."""

    label: str
    href: str
    current: bool = False
    count: str = ""
    hot: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """One entry of a select box."""

    value: str
    label: str
    selected: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Filter:
    """One field above a list: a select box with choices, or else an input of this type."""

    name: str
    label: str
    choices: tuple[Choice, ...] = ()
    value: str = ""
    input_type: Literal["search", "date", "text", "hidden"] = "search"
    placeholder: str = ""
    grows: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class TimelineItem:
    """One thing that happened. `gap` marks the time after it in which nobody knew the outcome.

    `quote` is what a person wrote, in full: whoever made the item has bounded it.

    `when_text` replaces the clock for what is still to come ("Now", "Next").
    """

    title: str
    icon: str
    at: datetime | None
    text: Phrase = ()
    actor: Actor | None = None
    tone: Tone | None = None
    gap: bool = False
    next: bool = False
    when_text: str = ""
    elapsed: str = ""
    digest: str = ""
    quote: str = ""
