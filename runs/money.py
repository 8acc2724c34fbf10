"""Money: an integer of minor units and an ISO 4217 code. No float ever holds an amount."""

from __future__ import annotations

from dataclasses import dataclass

from runs.canonical import INTEGER_MAX, JsonValue
from runs.refusals import Invalid

# The current codes that have a minor unit, by its number of decimal digits. Source: ISO 4217 list one as
# published on 2026-01-01 by SIX, the standard's maintenance agency. Codes without a minor unit (metals,
# bond units, special drawing rights, testing, "no currency") are left out: no effect is paid in them.
# When a code leaves the list, amounts in it may be on record: move it to a second table that is still
# shown but no longer accepted, instead of deleting it.
_CODES_BY_EXPONENT: dict[int, str] = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    2: """
        AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD
        CDF CHE CHF CHW CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS
        GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD
        LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB
        PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP
        SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XAD XCD XCG YER ZAR ZMW
        ZWG
    """,
    3: "BHD IQD JOD KWD LYD OMR TND",
    4: "CLF UYW",
}

_EXPONENTS = {code: digits for digits, codes in _CODES_BY_EXPONENT.items() for code in codes.split()}

_FIELDS = frozenset({"currency", "minor"})


@dataclass(frozen=True, slots=True)
class Money:
    """An amount that can exist: a current currency, and 0 to 2^53 - 1 of its minor units.

    Raises `Invalid` with `where` ("/currency" or "/minor") and `reason` otherwise.
    """

    currency: str
    minor: int

    def __post_init__(self) -> None:
        _check_currency(self.currency, where="/currency")
        _check_minor(self.minor, where="/minor")

    def as_json(self) -> dict[str, JsonValue]:
        """Return the form that `parse_money` reads: `{"currency": "EUR", "minor": 124000}`."""
        return {"currency": self.currency, "minor": self.minor}


def parse_money(value: object, *, where: str = "") -> Money:
    """Return the amount in `{"currency": "EUR", "minor": 124000}`, as it comes out of `canonical.parse`.

    `where` is the JSON pointer of the value in its document ("" for the document itself); the details of
    `Invalid` continue it. Exactly the two members are taken: a third could be one that changes the
    meaning, such as an exponent, and is refused rather than ignored.
    """
    if not isinstance(value, dict):
        raise _invalid(where, 'an amount is an object such as {"currency": "EUR", "minor": 124000}')
    for field in sorted(_FIELDS):
        if field not in value:
            raise _invalid(f"{where}/{field}", "this member is missing")
    if len(value) > len(_FIELDS):
        raise _invalid(where, "an amount has no members but currency and minor")
    _check_currency(value["currency"], where=f"{where}/currency")
    _check_minor(value["minor"], where=f"{where}/minor")
    return Money(currency=value["currency"], minor=value["minor"])


def exponent(currency: str) -> int:
    """Return how many decimal digits the minor unit has: 2 for EUR, 0 for JPY, 3 for KWD."""
    _check_currency(currency, where="/currency")
    return _EXPONENTS[currency]


def codes_with_digits(digits: int) -> tuple[str, ...]:
    """Return the current codes whose minor unit has so many decimal digits, for a question over amounts."""
    return tuple(_CODES_BY_EXPONENT.get(digits, "").split())


def format_money(money: Money) -> str:
    """Return the exact amount for people: "€1,240.00"; otherwise by code, "JPY 1,240" or "KWD 1.240"."""
    digits = exponent(money.currency)
    whole, part = divmod(money.minor, 10**digits)
    fraction = f".{part:0{digits}d}" if digits else ""
    # Of the common signs only this one names a single currency; $, £, ¥ and kr are each shared by several.
    sign = "€" if money.currency == "EUR" else f"{money.currency} "
    return f"{sign}{whole:,}{fraction}"


def _check_currency(currency: object, *, where: str) -> None:
    if not isinstance(currency, str) or currency not in _EXPONENTS:
        raise _invalid(where, "not a current ISO 4217 code of three capital letters with a minor unit")


def _check_minor(minor: object, *, where: str) -> None:
    # bool is an int to Python; a float may already have lost the cents.
    if not isinstance(minor, int) or isinstance(minor, bool):
        raise _invalid(where, "not an integer of minor units")
    if not 0 <= minor <= INTEGER_MAX:
        raise _invalid(where, "not between 0 and 2^53 - 1 minor units")


def _invalid(where: str, reason: str) -> Invalid:
    place = f" ({where})" if where else ""
    return Invalid(f"This amount can't be taken: {reason}{place}.", where=where, reason=reason)
