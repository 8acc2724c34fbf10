"""How receipts of real providers carry our reference, and how their values are compared with ours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciliation.contracts import (
    AmountForm,
    CompareAs,
    Contract,
    MatchField,
    ReceiptPaths,
    ReferenceForm,
    ReplyShows,
)
from reconciliation.providers.base import MatchedBy, ReceiptMatch
from reconciliation.providers.matching import Subject, match_receipt, read_record
from reconciliation.providers.redaction import Redactor
from reconciliation.providers.templates import Template, TemplateFault, Values, decimal_text
from runs.canonical import INTEGER_MAX
from runs.ids import new_id
from runs.money import Money, exponent
from tests.unit.providers.test_matching import CONTRACT

MARKED = ReceiptPaths(
    reference="$.text", reference_form=ReferenceForm.WITHIN, our_reference="<!-- op:{operation} -->"
)
FREE = replace(CONTRACT, match_fields=(), success_when=None)


def match(
    body: object, *, contract: Contract, payload: Any = None, amount: Money | None = None, **how: Any
) -> ReceiptMatch:
    return match_receipt(
        contract=contract,
        operation_id="op_1",
        payload=payload or {},
        key="rk-one",
        amount=amount,
        reference=None,
        body=body,
        named_by_reply=how.get("named_by_reply", False),
    )


def marked(text: object) -> ReceiptMatch:
    return match({"id": "1", "text": text}, contract=replace(FREE, receipt=MARKED))


@pytest.mark.parametrize(
    "text", ["<!-- op:op_1 -->", "Hello\n\n<!-- op:op_1 -->\r\n", "a <!-- op:op_2 --> <!-- op:op_1 -->"]
)
def test_our_marker_names_the_record_wherever_it_stands_in_the_text(text: str) -> None:
    assert marked(text).matched_by is MatchedBy.REFERENCE


@pytest.mark.parametrize("text", ["<!-- op:op_2 -->", "x <!-- op:op_10 --> y", "<!-- op:op_1x -->"])
def test_a_marker_of_another_operation_makes_the_record_anothers(text: str) -> None:
    found = marked(text)
    assert not found.matches
    assert "another key or reference" in found.problems[0]


@pytest.mark.parametrize("text", ["", "op_1", "<!-- op: -->", "<!-- op:op_1", None, 7])
def test_a_text_without_any_marker_names_nobody(text: object) -> None:
    found = marked(text)
    assert found.matched_by is None
    assert "neither this operation's key nor its reference" in found.problems[0]


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=50)


@settings(max_examples=50)
@given(TEXT, TEXT)
def test_only_our_own_marker_ever_names_the_record(before: str, after: str) -> None:
    assert marked(f"{before}<!-- op:{new_id('op')} -->{after}").matched_by is None
    assert marked(f"{before}<!-- op:op_1 -->{after}").matched_by is MatchedBy.REFERENCE


# --- replies ---

PART = replace(CONTRACT, receipt=replace(CONTRACT.receipt, reply=ReplyShows.PART))


def test_a_partial_reply_needs_the_attempt_that_it_answers() -> None:
    payload = {"order": "A-1"}
    assert match({"id": "1"}, contract=PART, payload=payload, named_by_reply=True).matches
    assert not match({"id": "1"}, contract=PART, payload=payload).matches
    assert not match({"id": "1"}, contract=CONTRACT, payload=payload, named_by_reply=True).matches


def test_a_record_may_be_submitted_in_its_answer_or_by_itself() -> None:
    inside = replace(
        FREE, receipt=ReceiptPaths(reference="$.ref", our_reference="{operation}", answer_at="$.ticket")
    )
    record = {"id": 35, "ref": "op_1"}
    for body in (record, {"ticket": record}, {"ticket": record, "audit": {"id": 9}}):
        found = match(body, contract=inside)
        assert found.matches, found.problems
        assert found.receipt.reference == "35"
    assert not match({"ticket": {**record, "ref": "op_2"}}, contract=inside).matches


def test_the_key_of_the_request_beside_an_event_names_its_record_and_never_takes_it_away() -> None:
    def named(record: dict[str, Any], key: str | None) -> MatchedBy | None:
        reading = read_record(
            {"id": "1", **record},
            contract=replace(FREE, receipt=ReceiptPaths(reference="$.ref", our_reference="{operation}")),
            subject=Subject(operation_id="op_1", key="rk-one", tool="", payload={}, amount=None),
            named_by_reply=False,
            redactor=Redactor(),
            key_beside=key,
        )
        assert reading is not None
        return reading.receipt.matched_by

    assert named({}, "rk-one") is MatchedBy.KEY
    assert named({}, "rk-two") is None
    assert named({}, None) is None
    assert named({"ref": "op_1"}, "rk-two") is MatchedBy.REFERENCE
    assert named({"ref": "op_2"}, "rk-two") is None


# --- comparing ---


def compared(compare: CompareAs, ours: object, theirs: object) -> bool:
    contract = replace(
        FREE, match_fields=(MatchField(payload="$.a", answer="$.b", compare=compare),), receipt=ReceiptPaths()
    )
    return match(
        {"id": "1", "b": theirs}, contract=contract, payload={"a": ours}, named_by_reply=True
    ).matches


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ("Hello", "Hello\n\n<!-- x -->", True),
        ("a\r\nb", "a\nb", True),
        ("  Hello \n", "> Hello", True),
        ("Hello", "hello", False),
        ("Hello", "Hell", False),
        ("Hello", None, False),
        ("Hello", ["Hello"], False),
        (7, "7", False),
    ],
)
def test_a_text_within_another(ours: object, theirs: object, same: bool) -> None:
    assert compared(CompareAs.TEXT_WITHIN, ours, theirs) is same


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ({"order": "1"}, {"order": "1", "recourse_operation": "op_1"}, True),
        ({}, {}, True),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, True),
        ({"a": [1, 2]}, {"a": [1, 2]}, True),
        ({"order": "1"}, {"order": "2"}, False),
        ({"order": "1"}, {}, False),
        ({"a": {"b": 1}}, {"a": 1}, False),
        ({"a": [1]}, {"a": [1, 2]}, False),
        ({"a": 1}, {"a": "1"}, False),
        ({"a": 1}, None, False),
    ],
)
def test_every_member_of_ours_and_whatever_else(ours: object, theirs: object, same: bool) -> None:
    assert compared(CompareAs.MEMBERS, ours, theirs) is same


@pytest.mark.parametrize(
    ("written", "minor"),
    [
        ("-12.00", 1200),
        ("-0.05", 5),
        ("12.00", None),
        ("--12.00", None),
        ("-", None),
        ("-1.234", None),
        (-12.5, 1250),
    ],
)
def test_money_that_left_is_read_without_its_minus_and_only_with_it(
    written: object, minor: int | None
) -> None:
    receipt = ReceiptPaths(amount="$.v", amount_form=AmountForm.DECIMAL_NEGATIVE)
    contract = replace(FREE, receipt=receipt)
    found = match(
        {"id": "1", "v": written}, contract=contract, amount=Money("EUR", 1200), named_by_reply=True
    )
    assert (found.receipt.amount.minor if found.receipt.amount else None) == minor
    assert found.matches == (minor == 1200)


# --- templates ---


@settings(max_examples=50)
@given(st.sampled_from(["EUR", "JPY", "KWD", "CLF"]), st.integers(0, INTEGER_MAX))
def test_an_amount_written_as_a_decimal_is_the_same_amount(currency: str, minor: int) -> None:
    written = decimal_text(Money(currency, minor))
    whole, _, part = written.partition(".")
    assert len(part) == exponent(currency)
    assert int(whole + part) == minor
    contract = replace(FREE, receipt=ReceiptPaths(amount="$.v", amount_form=AmountForm.DECIMAL))
    assert match(
        {"id": "1", "v": written}, contract=contract, amount=Money(currency, minor), named_by_reply=True
    ).matches


VALUES = Values(key="k", operation="op_1", tool="t", payload={"a": 1, "none": None}, settings={"w": "w 1"})


def test_a_placeholder_that_may_be_missing_is_empty_text_or_nothing_at_all() -> None:
    assert Template("{payload.b?}").left_out(VALUES)
    assert not Template("{payload.a?}").left_out(VALUES)
    assert not Template("{payload.b}").left_out(VALUES)
    assert not Template("x{payload.b?}").left_out(VALUES)
    assert Template("x{payload.b?}y{payload.none?}").text(VALUES) == "xy"
    assert Template("{payload.a?}").json(VALUES) == 1
    assert Template("{payload.b??}?of={operation}").left_out(VALUES)
    assert not Template("{payload.a??}?of={operation}").left_out(VALUES)
    assert Template("{payload.a??}?of={operation}").text(VALUES) == "1?of=op_1"


def test_a_setting_in_a_path_stays_one_segment() -> None:
    assert Template("/w/{setting.w}").path(VALUES) == "/w/w%201"


@pytest.mark.parametrize("source", ["{amount}", "{amount.major}", "{setting}", "{window}", "{payload.a???}"])
def test_what_isnt_a_placeholder_is_refused(source: str) -> None:
    with pytest.raises(TemplateFault):
        Template(source)
