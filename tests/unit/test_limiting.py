"""The token bucket: evenly spaced slots, a few saved up, and never more in a second than the limit."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.drill.lab import most_in_window
from reconciliation.limiting import SPREAD, START_WITHIN, level, rate_of, take

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def slots(per_second: float, asks: list[timedelta]) -> list[datetime]:
    """The slots that askers get who come so long after one another."""
    rate, at, next_slot_at, given_out = rate_of(per_second), NOW, None, []
    for pause in asks:
        at += pause
        slot_at, next_slot_at = take(next_slot_at, rate=rate, now=at)
        given_out.append(slot_at)
    return given_out


def test_the_first_slot_is_now_and_the_next_ones_are_as_far_apart_as_the_rate_says() -> None:
    rate = rate_of(2.0)
    first, next_at = take(None, rate=rate, now=NOW)
    second, _ = take(next_at, rate=rate, now=NOW)
    assert (first, second) == (NOW, NOW + rate.interval)
    assert rate.interval == timedelta(seconds=0.6)


def test_what_was_saved_up_is_given_at_once_and_no_more_than_the_burst() -> None:
    rate = rate_of(100.0)
    assert rate.burst == 5
    later = NOW + timedelta(hours=1)
    _, next_at = take(None, rate=rate, now=NOW)
    at_once = 0
    while True:
        slot_at, next_at = take(next_at, rate=rate, now=later)
        if slot_at > later:
            break
        at_once += 1
    assert at_once == rate.burst


@given(
    per_second=st.floats(0.2, 200),
    asks=st.lists(st.timedeltas(timedelta(0), timedelta(seconds=3)), min_size=1, max_size=300),
    late=st.lists(
        st.timedeltas(timedelta(0), SPREAD - timedelta(microseconds=1)), min_size=300, max_size=300
    ),
)
def test_no_second_sees_more_than_the_limit_however_late_each_request_arrives(
    per_second: float, asks: list[timedelta], late: list[timedelta]
) -> None:
    arrived = [slot_at + delay for slot_at, delay in zip(slots(per_second, asks), late, strict=False)]
    assert most_in_window(arrived, timedelta(seconds=1)) <= math.ceil(per_second)


@given(per_second=st.floats(0.2, 500))
def test_a_limit_that_is_asked_for_without_a_pause_is_used_to_at_least_three_quarters(
    per_second: float,
) -> None:
    rate = rate_of(per_second)
    assert timedelta(seconds=1) / rate.interval >= 0.75 * per_second
    assert START_WITHIN < SPREAD


def test_the_level_falls_with_each_slot_and_comes_back_with_time() -> None:
    rate = rate_of(100.0)
    assert level(None, rate=rate, now=NOW) == rate.burst
    next_at = None
    for _ in range(rate.burst + 2):
        _, next_at = take(next_at, rate=rate, now=NOW)
    # Two more than there were are taken ahead.
    assert level(next_at, rate=rate, now=NOW) == pytest.approx(-2, abs=0.01)
    assert level(next_at, rate=rate, now=NOW + 2 * rate.interval) == pytest.approx(0, abs=0.01)
    assert level(next_at, rate=rate, now=NOW + timedelta(minutes=1)) == rate.burst
