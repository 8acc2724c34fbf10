"""Reading faults, and the payload that is applied instead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.sandbox.faults import MODIFIERS, Fault, FaultSet, Name, altered, parse, parse_header
from console.sandbox.wire import Refused


@pytest.mark.parametrize(
    "text",
    [
        "drop_reply",
        "slow;0",
        "slow;60000",
        "rate_limited",
        "rate_limited;86400",
        "reset;after",
        "status;pending",
        "refuse;remember",
        "redirect;/a?b=c",
        "other_payload;note=a;b",
        "other_payload;note=",
        "hide_from_lookup;5",
    ],
)
def test_a_fault_is_written_as_it_is_read(text: str) -> None:
    assert str(parse(text)) == text


def test_spaces_around_a_fault_and_its_parameter_say_nothing() -> None:
    assert parse(" slow ; 5 ") == Fault(Name.SLOW, "5")


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        "Drop_Reply",
        "slow;",
        "slow;٣",
        "slow;60001",
        "rate_limited;86401",
        "status",
        "twice;1",
        "redirect;http://a b",
        "redirect;http://a\r\nX: y",
        "redirect;//\nx",
        "other_payload;a",
        "other_payload;a=\nb",
        "other_payload;a=" + "x" * 200,
    ],
)
def test_what_is_no_fault_is_refused(text: str) -> None:
    with pytest.raises(Refused) as refused:
        parse(text)
    assert refused.value.code == "invalid"


@given(st.text(max_size=300))
def test_any_text_is_a_fault_or_refused(text: str) -> None:
    try:
        fault = parse(text)
    except Refused:
        return
    assert parse(str(fault)) == fault


def test_every_ending_excludes_every_other_and_no_modifier() -> None:
    endings = [Fault(name) for name in Name if name not in MODIFIERS]
    assert {fault.slot for fault in endings} == {"ending"}
    assert len({Fault(name).slot for name in MODIFIERS}) == len(MODIFIERS)


def test_a_header_is_read_whole_or_refused() -> None:
    read = parse_header(["twice, drop_reply", " ", "slow;1,"], for_lookups=False)
    assert [str(fault) for fault in read] == ["twice", "drop_reply", "slow;1"]
    for values in (["twice", "twice"], ["drop_reply, reset"], ["lookup_500"]):
        with pytest.raises(Refused):
            parse_header(values, for_lookups=False)
    with pytest.raises(Refused):
        parse_header(["twice"], for_lookups=True)


def test_the_ending_is_told_apart_from_the_modifiers() -> None:
    suffered = FaultSet((Fault(Name.TWICE), Fault(Name.DROP_REPLY), Fault(Name.SLOW, "1")))
    assert suffered.ending == Fault(Name.DROP_REPLY)
    assert suffered.get(Name.SLOW) == Fault(Name.SLOW, "1")
    assert suffered.get(Name.STATUS) is None
    assert FaultSet().ending is None


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("a=5", 5),
        ("a=true", True),
        ('a="5"', "5"),
        ("a=x", "x"),
        ("a=", ""),
        ("a=[1]", "[1]"),
        ("a=NaN", "NaN"),
    ],
)
def test_a_named_field_takes_a_scalar_where_the_text_is_one(param: str, value: object) -> None:
    assert altered({"b": 1}, param) == {"b": 1, "a": value}


@pytest.mark.parametrize(
    "payload", [{"amount_minor": 5, "quantity": 1}, {"amount_minor": True, "to": "x"}, {"a": [1]}, {}]
)
def test_an_altered_payload_differs_and_the_asked_one_is_untouched(payload: dict[str, object]) -> None:
    before = dict(payload)
    assert altered(payload, "") != payload
    assert payload == before
