"""Amounts are exact, in a currency that exists, and shown without a float."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs import money
from runs.canonical import INTEGER_MAX, canonical_bytes, parse
from runs.money import Money, exponent, format_money, parse_money
from runs.refusals import Invalid

AMOUNTS = st.builds(Money, st.sampled_from(sorted(money._EXPONENTS)), st.integers(0, INTEGER_MAX))

WRONG_MINORS: list[Any] = [-1, INTEGER_MAX + 1, 1.0, 1.5, True, "5", None, [5], Decimal(5)]
# The last text starts with the Greek letter; BGN left the list when Bulgaria took the euro in 2026.
WRONG_CURRENCIES: list[Any] = [
    *("eur", "EU", "EURO", "EUR ", "EUR\n", "", "ZZZ", "XXX", "XAU", "XTS", "BGN", "\u0395UR"),
    *(978, None, ["EUR"], {}),
]


@pytest.mark.parametrize("minor", [0, 1, 124000, INTEGER_MAX])
def test_an_amount_is_read(minor: int) -> None:
    assert parse_money({"currency": "EUR", "minor": minor}) == Money(currency="EUR", minor=minor)


def test_an_amount_written_with_a_fraction_of_zero_is_the_same_amount() -> None:
    assert parse_money(parse(b'{"minor":124000.0,"currency":"EUR"}')) == Money("EUR", 124000)


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (None, "/amount"),
        (5, "/amount"),
        ("EUR 5", "/amount"),
        ([], "/amount"),
        ({}, "/amount/currency"),
        ({"currency": "EUR"}, "/amount/minor"),
        ({"minor": 5}, "/amount/currency"),
        ({"currency": "EUR", "minor": 5, "exponent": 3}, "/amount"),
        *(({"currency": "EUR", "minor": wrong}, "/amount/minor") for wrong in WRONG_MINORS),
        *(({"currency": wrong, "minor": 5}, "/amount/currency") for wrong in WRONG_CURRENCIES),
    ],
)
def test_what_is_no_amount_is_refused_with_its_place(value: Any, where: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_money(value, where="/amount")
    assert caught.value.word == "invalid"
    assert caught.value.details["where"] == where
    assert caught.value.details["reason"] in caught.value.sentence


@pytest.mark.parametrize(("currency", "minor"), [("ZZZ", 1), ("EUR", -1), ("EUR", True), ("EUR", 2**53)])
def test_an_amount_that_cannot_exist_cannot_be_made(currency: str, minor: int) -> None:
    with pytest.raises(Invalid):
        Money(currency=currency, minor=minor)


def test_an_amount_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Money("EUR", 1).minor = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("currency", "digits"),
    [("EUR", 2), ("USD", 2), ("JPY", 0), ("KRW", 0), ("ISK", 0), ("KWD", 3), ("TND", 3), ("CLF", 4)],
)
def test_the_minor_unit_has_the_digits_of_the_standard(currency: str, digits: int) -> None:
    assert exponent(currency) == digits


def test_an_unknown_currency_has_no_exponent() -> None:
    with pytest.raises(Invalid):
        exponent("ZZZ")


def test_each_code_is_listed_once_and_has_three_capitals() -> None:
    codes = " ".join(money._CODES_BY_EXPONENT.values()).split()
    assert len(codes) == len(set(codes)) == 165
    assert all(re.fullmatch("[A-Z]{3}", code) for code in codes)


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (Money("EUR", 124000), "€1,240.00"),
        (Money("EUR", 7), "€0.07"),
        (Money("EUR", 0), "€0.00"),
        (Money("USD", 124000), "USD 1,240.00"),
        (Money("JPY", 1240), "JPY 1,240"),
        (Money("KWD", 5), "KWD 0.005"),
        (Money("CLF", 10001), "CLF 1.0001"),
        (Money("EUR", INTEGER_MAX), "€90,071,992,547,409.91"),
    ],
)
def test_an_amount_is_shown_exactly(amount: Money, shown: str) -> None:
    assert format_money(amount) == shown


@given(AMOUNTS)
def test_an_amount_survives_being_written_and_read(amount: Money) -> None:
    assert parse_money(parse(canonical_bytes(amount.as_json()))) == amount


@given(AMOUNTS)
def test_what_is_shown_is_the_amount_to_the_last_digit(amount: Money) -> None:
    digits = format_money(amount).removeprefix("€").removeprefix(f"{amount.currency} ").replace(",", "")
    assert Decimal(digits).scaleb(exponent(amount.currency)) == amount.minor
