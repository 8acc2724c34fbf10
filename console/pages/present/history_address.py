"""The effect history's address: what it asks for, and its own words, so that links keep the filters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final
from urllib.parse import urlencode

from django.urls import reverse

from console.history_models import Mark
from console.queries.effects import Asked
from console.queries.finding import clean
from runs.models import NAME_LENGTH

# The names that the address has for what the history is narrowed to, in the order of the fields.
NARROWING: Final = ("q", "action", "provider", "actor", "from", "until", "show")
_TIME_LENGTH_MAX: Final = 32
_TEXTS: Final = ("q", "action", "provider", "actor")


@dataclass(frozen=True, kw_only=True)
class HistoryAddress:
    """What is asked, in the words that were understood; `unread` are fields that couldn't be.

    What can't be read isn't left out silently: the list would then answer another question.
    """

    asked: Asked
    words: dict[str, str]
    unread: tuple[str, ...] = ()

    def href(self, **changes: str) -> str:
        """The history under these filters, with some of them changed; "" takes one away. Never the place."""
        words = {name: value for name, value in {**self.words, **changes}.items() if value}
        return f"{reverse('effects')}?{urlencode(words)}" if words else reverse("effects")

    @property
    def query(self) -> str:
        """The filters as one text, always in the same order."""
        return urlencode(self.words)


def read_history(given: Mapping[str, str]) -> HistoryAddress:
    """Read what an address asks for."""
    show = given.get("show", "")
    words = {name: clean(given.get(name, ""))[:NAME_LENGTH] for name in ("action", "provider", "actor")}
    words |= {"q": clean(given.get("q", "")), "show": show if show in set(Mark) else ""}
    unread = ["show"] if show and not words["show"] else []
    # Cut, or without what the database can't hold, it would be another question too.
    unread += [name for name in _TEXTS if words[name] != given.get(name, "").strip()]
    times: dict[str, datetime | None] = {}
    for name in ("from", "until"):
        text = clean(given.get(name, ""))[:_TIME_LENGTH_MAX]
        words[name] = text
        times[name] = instant(text, whole=name == "until")
        if text != given.get(name, "").strip() or (text and times[name] is None):
            unread.append(name)
    asked = Asked(
        text=words["q"],
        action=words["action"],
        provider=words["provider"],
        actor=words["actor"],
        mark=Mark(show) if words["show"] else None,
        from_at=times["from"],
        until_at=times["until"],
        after=given.get("after", ""),
        before=given.get("before", ""),
        entry=given.get("entry", "")[:20],
    )
    kept = {name: words[name] for name in NARROWING if words[name]}
    return HistoryAddress(asked=asked, words=kept, unread=tuple(unread))


def instant(text: str, *, whole: bool) -> datetime | None:
    """A day or a minute in UTC: its beginning, or with `whole` its end; None if it is neither."""
    try:
        if len(text) == len("2026-11-29"):
            day = datetime.combine(date.fromisoformat(text), time(), UTC)
            return day + timedelta(days=1) if whole else day
        at = datetime.fromisoformat(text)
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        is_minute = at.second == 0 and at.microsecond == 0 and text.count(":") == 1
        return at + timedelta(minutes=1) if whole and is_minute else at
    except (ValueError, OverflowError):
        return None
