"""Repeated lookups of a timeline as one entry: what nobody learned anything from twice is said once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby

from console.pages.present.marks import plural
from console.pages.shapes import TimelineItem

# What a lookup's entry looks like, and how many in a row are worth a fold.
LOOKUP_ICON = "scan-search"
FOLDED_MIN = 2


def folded(entries: Iterable[tuple[str, TimelineItem]]) -> tuple[TimelineItem, ...]:
    """Of lookups in a row about one operation with one answer, keep the first, and say when the last came.

    Each entry comes with the id of its operation, "" for none.
    """
    shown: list[TimelineItem] = []
    for _, members in groupby(entries, key=lambda one: (one[0], one[1].title, one[1].icon, one[1].actor)):
        alike = [item for _, item in members]
        if alike[0].icon != LOOKUP_ICON or len(alike) < FOLDED_MIN:
            shown += alike
            continue
        title = f"{plural(len(alike) - 1, 'more lookup')}, the same answer"
        shown += [alike[0], replace(alike[-1], title=title, icon="history")]
    return tuple(shown)
