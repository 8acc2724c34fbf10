"""The sandbox's own JSON, fingerprints and instants."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.sandbox.wire import DEPTH_MAX, Fields, Refused, fingerprint, instant, read_object, write_json

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(texts, values, max_size=5))
def test_what_is_written_is_read_again(payload: dict[str, object]) -> None:
    assert read_object(write_json(payload)) == payload


@given(st.binary(max_size=200))
def test_any_bytes_are_an_object_or_refused(body: bytes) -> None:
    with contextlib.suppress(Refused):
        assert isinstance(read_object(body), dict)


def nested(depth: int) -> bytes:
    """An object `depth` levels deep, counting the text in the middle."""
    return b'{"a":' * (depth - 1) + b'"x"' + b"}" * (depth - 1)


def test_nesting_is_taken_to_its_limit_and_not_beyond() -> None:
    read_object(nested(DEPTH_MAX))
    with pytest.raises(Refused, match="deeper"):
        read_object(nested(DEPTH_MAX + 1))


def test_a_fingerprint_is_of_kind_and_content_not_of_the_order_of_keys() -> None:
    one = fingerprint("orders", {"a": 1, "b": {"c": 1, "d": 2}})
    assert one == fingerprint("orders", {"b": {"d": 2, "c": 1}, "a": 1})
    others = [("refunds", {"a": 1, "b": {"c": 1, "d": 2}}), ("orders", {"a": 1, "b": {"c": 1, "d": 3}})]
    assert one not in {fingerprint(kind, payload) for kind, payload in others}
    assert fingerprint("orders", {"a": [1, 2]}) != fingerprint("orders", {"a": [2, 1]})
    assert fingerprint("orders", {"a": 1}) != fingerprint("orders", {"a": "1"})


def test_an_instant_is_utc_with_microseconds() -> None:
    assert instant(0) == "1970-01-01T00:00:00.000000Z"
    assert instant(1_764_451_234_000_007) == "2025-11-29T21:20:34.000007Z"


def test_a_field_nobody_asked_for_is_refused() -> None:
    fields = Fields({"times": 2, "tims": 3})
    assert fields.number("times", low=1, high=5) == 2
    with pytest.raises(Refused, match="tims"):
        fields.done()


@pytest.mark.parametrize("value", [0, 6, True, "2", 2.0, [2]])
def test_a_number_outside_its_range_or_type_is_refused(value: object) -> None:
    with pytest.raises(Refused, match="times"):
        Fields({"times": value}).number("times", low=1, high=5)


def test_an_error_is_an_answer_that_json_reads() -> None:
    answer = Refused(429, "rate_limited", 'Slow\n"down"', headers={"Retry-After": "3"}).answer()
    assert json.loads(answer.body)["error"] == {"code": "rate_limited", "message": 'Slow\n"down"'}
    assert answer.headers == (("Retry-After", "3"),)
