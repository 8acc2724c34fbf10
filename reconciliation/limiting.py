"""How often a provider account is asked: a token bucket over one instant, without a database.

A token is a slot: an instant at which one lookup may go out. Slots are spaced evenly, and a few of them are
saved up while nobody asks. Whoever wants one takes the next free slot and waits for it, or comes back later.
Kept as the one instant of the next free slot (the generic cell rate algorithm), a bucket that several
processes share is one column of one row.

No second, wherever it begins, sees more than the limit at the provider. Requests that leave evenly may arrive
closer together, so a slot is only good for a moment (`START_WITHIN`), and slots are spaced as if a second
were longer by `SPREAD`: with a burst of b and slots every i seconds, the requests of one second are at most
(b - 1) + (1 + SPREAD) / i, and i is chosen so that this is the limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

# How much closer together two requests may arrive than their slots are apart.
SPREAD = timedelta(milliseconds=200)
# How long after its slot a lookup may still start; the rest of the spread is the network's.
START_WITHIN = timedelta(milliseconds=150)
# The share of the limit that is saved up while nobody asks. Every token of it makes the spacing wider.
BURST_SHARE = 0.05
# A worker waits for its slot so long at least, rather than come back for it, and at most; in between, as long
# as the next slot but one is away, so that a slow account holds one worker or two and not all.
WAIT_SECONDS_MIN = 0.5
WAIT_SECONDS_MAX = 5.0


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A limit in lookups per second, the tokens that may be saved up, and the distance of the slots."""

    per_second: float
    burst: int
    interval: timedelta

    @property
    def wait_max(self) -> timedelta:
        """How long a worker waits for its slot; further away than this, it has better things to do."""
        seconds = self.interval.total_seconds() * 1.5
        return timedelta(seconds=min(max(seconds, WAIT_SECONDS_MIN), WAIT_SECONDS_MAX))


def rate_of(per_second: float) -> Rate:
    """The bucket of an account that may be asked so many times a second (above zero)."""
    burst = max(1, math.floor(per_second * BURST_SHARE))
    window_seconds = 1 + SPREAD.total_seconds()
    return Rate(
        per_second=per_second,
        burst=burst,
        # Rounded up to the clock's microsecond: rounded down, a slot would be gained in time.
        interval=timedelta(microseconds=math.ceil(window_seconds / (per_second - burst + 1) * 1_000_000)),
    )


def take(next_slot_at: datetime | None, *, rate: Rate, now: datetime) -> tuple[datetime, datetime]:
    """The slot to use, now or later, and the next free one after it."""
    saved_up_at = now - rate.interval * (rate.burst - 1)
    free_at = saved_up_at if next_slot_at is None else max(next_slot_at, saved_up_at)
    return max(free_at, now), free_at + rate.interval


def level(next_slot_at: datetime | None, *, rate: Rate, now: datetime) -> float:
    """How many lookups may go out this instant, up to the burst; below zero: slots that are taken ahead."""
    if next_slot_at is None:
        return float(rate.burst)
    return min(float(rate.burst), 1 + (now - next_slot_at) / rate.interval)
