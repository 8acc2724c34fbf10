"""Cursors come back from anywhere: what we didn’t write is refused, whatever it would do further down."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime

import pytest

from console.api.listing import read_cursor
from console.queries import keyset
from runs.refusals import Invalid

AT = datetime(2026, 11, 29, 21, 54, 9, 123456, UTC)
PLACES = {
    "half of a surrogate pair": ["2026-01-01T00:00:00+00:00", "\ud800"],
    "NUL": ["2026-01-01T00:00:00+00:00", "\x00"],
    "no id": ["2026-01-01T00:00:00+00:00", "run 1"],
    "before the calendar, in UTC": ["0001-01-01T00:00:00+23:59", "run_1"],
    "after the calendar, in UTC": ["9999-12-31T23:59:59-23:59", "run_1"],
    "without an offset": ["2026-01-01T00:00:00", "run_1"],
    "no time": ["", "run_1"],
    "numbers": [1, 2],
    "nothing": [],
}


def packed(place: list[object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def test_a_cursor_of_ours_is_read_as_it_was_written() -> None:
    assert read_cursor(keyset.pack(AT, "run_1")) == (AT, "run_1")
    assert keyset.unpack(keyset.pack(AT, "run_1"), datetime, str) == (AT, "run_1")


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_any_other_is_refused(place: list[object]) -> None:
    with pytest.raises(Invalid):
        read_cursor(packed(place))
    with pytest.raises(Invalid):
        keyset.unpack(packed(place), datetime, str)
