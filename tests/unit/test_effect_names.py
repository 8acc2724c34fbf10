"""How an effect is called, and JSON that is laid out without being changed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.pages.present.jsons import laid_out
from console.pages.present.naming import noun_of, question_of, title_of
from runs.canonical import canonical_bytes
from runs.money import Money

EUR = Money("EUR", 124_000)


@pytest.mark.parametrize(
    ("tool", "amount", "payload", "title", "question"),
    [
        ("create_refund", EUR, {}, "Refund €1,240.00", "Did the refund of €1,240.00 happen?"),
        ("refunds.create", EUR, None, "Refunds €1,240.00", "Was the refunds of €1,240.00 created?"),
        (
            "place_order",
            Money("EUR", 48_600),
            {"sku": "FC-20", "quantity": 40},
            "Order 40 × FC-20",
            "Was the order of 40 × FC-20 for €486.00 placed?",
        ),
        (
            "sendEmail",
            None,
            {"subject": "Your refund", "to": "x"},
            "E-mail “Your refund”",
            "Was the e-mail “Your refund” sent?",
        ),
        ("refund", None, [1], "Refund", "Did the refund happen?"),
        ("frobnicate", None, {}, "Frobnicate", "Did the frobnicate happen?"),
        ("日本", None, None, "日本", "Did the 日本 happen?"),
    ],
)
def test_an_effect_is_named_for_people(
    tool: str, amount: Money | None, payload: object, title: str, question: str
) -> None:
    assert title_of(tool, amount, payload) == title
    assert question_of(tool, amount, payload) == question


@given(st.text(min_size=1, max_size=100), st.recursive(st.none() | st.text() | st.integers(), st.lists))
def test_any_tool_and_payload_has_a_name(tool: str, payload: object) -> None:
    assert title_of(tool, None, {"title": payload, "quantity": payload})
    assert question_of(tool, EUR, payload).endswith("?")
    assert noun_of(tool)


def test_laying_out_keeps_every_digit_and_every_blank_in_a_string() -> None:
    text = '{"a":[],"b":{},"c":[1e3,1.0,{"x":"y, {\\"}  z"}],"d":123456789012345678901234567890}'
    shown = laid_out(text)
    assert "123456789012345678901234567890" in shown
    assert '"y, {\\"}  z"' in shown
    assert "1e3" in shown
    assert shown.startswith('{\n  "a": [],\n  "b": {},')


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.text(st.characters(codec="utf-8", exclude_characters="\x00")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=5), inner, max_size=4
        )
    ),
    max_leaves=20,
)


@given(json_values)
def test_what_is_laid_out_reads_as_what_it_was(value: object) -> None:
    text = canonical_bytes(value).decode()  # type: ignore[arg-type]
    assert json.loads(laid_out(text)) == json.loads(text)


@pytest.mark.parametrize("text", ['{"a', "[1,2", "]", "{hello world}", "", "[" * 100_000, '{"a":1 b}'])
def test_what_isnt_json_stays_as_it_came(text: str) -> None:
    assert laid_out(text) == text
