"""The time axis of a run's page: hours of waiting beside milliseconds of work, both still to be seen.

Between two instants that matter the axis runs evenly; how much room such a stretch gets grows with the
logarithm of its length. So order and overlap are exact, and lengths are comparable only inside a stretch.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from console.pages import wording

WIDTH = 1000
# Even a stretch of no time gets this much, so that what happened at its two ends is told apart.
ROOM_MIN = 0.4


@dataclass(frozen=True, slots=True)
class Scale:
    """Instants and where they lie, both ascending, from 0 to `WIDTH`."""

    instants: tuple[datetime, ...]
    places: tuple[float, ...]

    def x(self, at: datetime) -> int:
        """Return where an instant lies; before the first it is 0, after the last `WIDTH`."""
        if at <= self.instants[0]:
            return 0
        if at >= self.instants[-1]:
            return WIDTH
        index = bisect_right(self.instants, at) - 1
        start, end = self.instants[index], self.instants[index + 1]
        part = (at - start) / (end - start)
        return round(self.places[index] + part * (self.places[index + 1] - self.places[index]))

    def at(self, place: float) -> datetime:
        """Return the instant that lies at a place: the reverse of `x`."""
        index = min(max(bisect_right(self.places, place) - 1, 0), len(self.places) - 2)
        start, end = self.places[index], self.places[index + 1]
        part = 0.0 if end == start else min(max((place - start) / (end - start), 0.0), 1.0)
        return self.instants[index] + part * (self.instants[index + 1] - self.instants[index])

    def axis(self, *, now: datetime, labels: int = 4) -> tuple[str, ...]:
        """Return a label for the start of each of `labels` equal parts, as the UTC clock shows it."""
        return tuple(wording.clock(self.at(WIDTH * part / labels), now=now) for part in range(labels))


def scale(instants: Iterable[datetime]) -> Scale:
    """Return the axis over these instants: starts, requests, ends, pauses, now. At least one is needed."""
    ordered = sorted(set(instants))
    if not ordered:
        raise ValueError("A time axis needs at least one instant.")
    if len(ordered) == 1:
        ordered.append(ordered[0] + timedelta(seconds=1))
    rooms = [ROOM_MIN + math.log1p((end - start).total_seconds()) for start, end in pairwise(ordered)]
    total = sum(rooms)
    places = [0.0]
    for room in rooms:
        places.append(places[-1] + WIDTH * room / total)
    places[-1] = float(WIDTH)
    return Scale(instants=tuple(ordered), places=tuple(places))
