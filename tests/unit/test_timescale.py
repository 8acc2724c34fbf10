"""The time axis of a run's page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.pages.timescale import WIDTH, scale

START = datetime(2026, 11, 28, 21, 51, 30, tzinfo=UTC)
SECONDS = st.floats(min_value=0, max_value=10_000_000)


@given(st.lists(SECONDS, min_size=1, max_size=40), SECONDS, SECONDS)
def test_earlier_never_lies_right_of_later(events: list[float], one: float, other: float) -> None:
    axis = scale(START + timedelta(seconds=second) for second in events)
    first, second = sorted((one, other))
    left = axis.x(START + timedelta(seconds=first))
    right = axis.x(START + timedelta(seconds=second))
    assert 0 <= left <= right <= WIDTH


def test_a_night_of_waiting_leaves_room_for_a_second_of_work() -> None:
    night = START + timedelta(hours=20)
    axis = scale([START, START + timedelta(seconds=1), night, night + timedelta(seconds=1)])
    assert axis.x(START) == 0
    assert axis.x(START + timedelta(seconds=1)) > 50
    assert axis.x(night) < WIDTH - 50
    assert axis.x(night + timedelta(seconds=1)) == WIDTH


def test_labels_are_the_times_that_lie_there() -> None:
    axis = scale([START, START + timedelta(seconds=100)])
    assert axis.axis(now=START) == ("21:51:30Z", "21:51:55Z", "21:52:20Z", "21:52:45Z")


def test_a_single_instant_is_an_axis_and_none_is_refused() -> None:
    assert scale([START]).x(START) == 0
    with pytest.raises(ValueError, match="at least one"):
        scale([])
