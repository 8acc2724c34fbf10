"""How instants, durations and other people's text are written on a page. Pure; the script mirrors `span`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

# What changes how the text around it reads, or shows nothing at all: controls (line feed and tab apart),
# bidirectional marks and overrides, zero-width characters, tags, and lone surrogates. Source: Unicode's
# UTS 39 and the "Trojan Source" paper, on text that reads otherwise than it is.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
# A value longer than this is no longer read but scrolled past; evidence is bounded where it is stored.
TEXT_LENGTH_MAX = 2_000
# What a report may hold (64 KiB), pretty-printed.
BODY_LENGTH_MAX = 200_000

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def inert(text: str, *, length_max: int = TEXT_LENGTH_MAX) -> str:
    """Return somebody else's text with what can't be seen made visible (`⟨U+202E⟩`) and cut at a length.

    Cutting comes first, so that a megabyte costs no more than a page.
    """
    cut = len(text) > length_max
    shown = _UNSEEN.sub(lambda found: f"⟨U+{ord(found.group()):04X}⟩", text[:length_max])
    return f"{shown}… ({len(text):,} characters)" if cut else shown


def span(duration: timedelta, *, fine: bool = False) -> str:
    """Return a duration in at most two units: "40 s", "12 min", "3 h 12 min", "4 d 2 h".

    A negative one is written as its size: the words around it say which way. `fine` keeps the seconds
    below ten minutes ("2 min 41 s"), for what runs out.
    """
    seconds = abs(int(duration.total_seconds()))
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if seconds < 60:
        return f"{second} s"
    if minutes < 60:
        return f"{minute} min {second:02d} s" if fine and minutes < 10 else f"{minute} min"
    if hours < 48:
        return f"{hours} h {minute:02d} min"
    return f"{days:,} d {hour} h"


def clock(at: datetime, *, now: datetime) -> str:
    """Return an instant in UTC as a page shows it: "18:39:52Z" today, "28 Nov 21:54:08Z" before or after."""
    at, now = at.astimezone(UTC), now.astimezone(UTC)
    time = f"{at:%H:%M:%S}Z"
    if at.date() == now.date():
        return time
    day = f"{at.day} {_MONTHS[at.month - 1]}"
    return f"{day} {time}" if at.year == now.year else f"{day} {at.year} {time}"


def full(at: datetime) -> str:
    """Return an instant in UTC in full, for a tooltip or for paper: "28 Nov 2026, 21:54:08 UTC"."""
    at = at.astimezone(UTC)
    return f"{at.day} {_MONTHS[at.month - 1]} {at.year}, {at:%H:%M:%S} UTC"


def machine(at: datetime) -> str:
    """Return the form that a `<time>` element's datetime attribute takes."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S}Z"
