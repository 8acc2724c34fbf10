"""Whether a value of ours and one of a provider are the same, in each way that a contract may name."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, assert_never

from reconciliation.contracts import CompareAs
from runs.canonical import canonical_bytes, parse
from runs.money import Money, exponent
from runs.refusals import Refusal


def same(compare: CompareAs, intended: Any, seen: Any, amount: Money | None) -> bool:
    """Whether what was sent and what is seen are the same; `amount` is the operation's, for its currency."""
    match compare:
        case CompareAs.EXACT:
            # Text and whole numbers, as strict JSON reads them, are equal exactly when their bytes are.
            if type(intended) is type(seen) and type(seen) in {str, int}:
                return bool(intended == seen)
            return _canonical(intended) == _canonical(seen)
        case CompareAs.TEXT:
            return scalar(intended) is not None and scalar(intended) == scalar(seen)
        case CompareAs.TEXT_CASELESS:
            ours, theirs = scalar(intended), scalar(seen)
            return ours is not None and theirs is not None and ours.casefold() == theirs.casefold()
        case CompareAs.TEXT_WITHIN:
            return isinstance(intended, str) and isinstance(seen, str) and _lines(intended) in _lines(seen)
        case CompareAs.MEMBERS:
            return _has_members(seen, intended)
        case CompareAs.MD5:
            return isinstance(intended, str) and isinstance(seen, str) and _md5(intended) == seen.lower()
        case CompareAs.JSON_TEXT:
            return isinstance(seen, str) and _canonical_of_text(seen) == canonical_bytes(intended)
        case CompareAs.DECIMAL_MINOR:
            if amount is None or not isinstance(intended, int) or isinstance(intended, bool):
                return False
            return minor_of_decimal(seen, amount.currency) == intended
        case _:
            assert_never(compare)


def _lines(text: str) -> str:
    """The text with one kind of line end and none around it: providers normalise both."""
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()


def _has_members(seen: Any, intended: Any) -> bool:
    """Whether every member of ours is in theirs with the same value; objects inside are compared likewise."""
    if isinstance(intended, Mapping):
        return isinstance(seen, Mapping) and all(
            name in seen and _has_members(seen[name], inner) for name, inner in intended.items()
        )
    return _canonical(seen) is not None and _canonical(seen) == _canonical(intended)


def _md5(text: str) -> str:
    """A check sum that a provider chose; nothing secret or signed rests on it."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _canonical_of_text(text: str) -> bytes | None:
    try:
        return canonical_bytes(parse(text.encode()))
    except (Refusal, UnicodeEncodeError):
        return None


def _canonical(value: Any) -> bytes | None:
    try:
        return canonical_bytes(value)
    except Refusal:
        return None


def scalar(value: Any) -> str | None:
    """A text, number or truth value as text; None for anything else."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            written = _canonical(value)
            return None if written is None else written.decode()
        case _:
            return None


def minor_of_decimal(written: Any, currency: str) -> int | None:
    """The minor units of "1240.00"; None if it isn't a plain decimal, or says more than the currency has."""
    text = scalar(written)
    if text is None or isinstance(written, bool) or len(text) > 32 or not set(text) <= set("0123456789."):
        return None
    try:
        scaled = Decimal(text).scaleb(exponent(currency))
    except (InvalidOperation, Refusal):
        return None
    return int(scaled) if scaled == scaled.to_integral_value() else None
