"""The parts of a contract in a few words: keys, windows, absence, durations, kinds of answers."""

from __future__ import annotations

from typing import Final, assert_never

from reconciliation.contracts import AnswerPattern, Contract, KeyFormat, LookupKind, WindowKind

LOOKUPS: Final[dict[LookupKind, str]] = {
    LookupKind.NONE: "None",
    LookupKind.BY_KEY: "By our key, exactly",
    LookupKind.BY_REFERENCE: "By our reference, exactly",
    LookupKind.BY_LISTING: "By a list over a period, compared by us",
    LookupKind.BY_SEARCH: "By a search that lags or ranks: a hint",
    LookupKind.BY_RESEMBLANCE: "By likeness alone: a hint for a person",
}
# From how many of a unit on a duration is said in it: two days are 48 h, three are 3 d.
_UNITS: Final = (("d", 86_400_000, 3), ("h", 3_600_000, 2), ("min", 60_000, 2), ("s", 1_000, 1))


def key_in_words(contract: Contract) -> str:
    """Where the key goes, in a few words."""
    match contract.key_format:
        case KeyFormat.NONE:
            return "No key is honoured"
        case KeyFormat.HEADER_BARE:
            return f"Header {contract.key_field}"
        case KeyFormat.HEADER_QUOTED:
            return f"Header {contract.key_field}, in double quotes"
        case KeyFormat.BODY_FIELD:
            return f"Body member {contract.key_field}"
    assert_never(contract.key_format)


def window_in_words(contract: Contract) -> str:
    """How long the key is recognised, in a few words."""
    span = duration(contract.dedup_window_ms) if contract.dedup_window_ms is not None else ""
    match contract.window_kind:
        case WindowKind.NONE:
            return "No window"
        case WindowKind.UNPUBLISHED:
            return "For a time that nobody states"
        case WindowKind.DOCUMENTED:
            return f"{span} from the first send"
        case WindowKind.MINIMUM:
            return f"At least {span} from the first send"
    assert_never(contract.window_kind)


def absence_in_words(contract: Contract) -> str:
    """What "not found" says."""
    if not contract.has_lookup:
        return "It can’t be asked"
    if not contract.absence_is_proof:
        return "Proves nothing"
    if not contract.visibility_lag_ms:
        return "Proves absence, once every request is quiet"
    return f"Proves absence, {duration(contract.visibility_lag_ms)} after every request is quiet"


def duration(milliseconds: int) -> str:
    """A duration as people say it, exactly: "24 h", "7 d", "23 h 55 min", "90 min", "1.5 s", "250 ms"."""
    for unit, size, whole_from in _UNITS:
        if unit == "s" and milliseconds > 120_000:
            break
        if milliseconds % size == 0 and milliseconds // size >= whole_from:
            if unit == "min" and milliseconds > 2 * 3_600_000:
                hours, rest = divmod(milliseconds, 3_600_000)
                return f"{hours:,} h {rest // size} min"
            return f"{milliseconds // size:,} {unit}"
    if milliseconds >= 120_000 and milliseconds % 1_000 == 0:
        minutes, rest = divmod(milliseconds, 60_000)
        return f"{minutes:,} min {rest // 1_000} s"
    if milliseconds >= 1_000:
        return f"{milliseconds / 1000:,.3f}".rstrip("0").rstrip(".") + " s"
    return f"{milliseconds} ms"


def pattern_in_words(pattern: AnswerPattern) -> str:
    """A kind of answer: "409 where $.error.code is duplicate_invoice"."""
    parts = [_statuses(pattern.statuses)] if pattern.statuses else []
    for place, values in (
        (pattern.header and f"header {pattern.header}", pattern.header_values),
        (pattern.path, pattern.values),
    ):
        if place:
            says = f"is {' or '.join(values)}" if values else "is there"
            parts.append(f"where {place} {says}")
    return " ".join(parts) or "any answer"


def _statuses(statuses: tuple[int, ...]) -> str:
    for first in range(100, 600, 100):
        if set(statuses) == set(range(first, first + 100)):
            return f"any {first // 100}xx"
    return " or ".join(str(one) for one in statuses)
