"""The parts of a contract in a few words: keys, windows, absence, durations, kinds of answers."""

from __future__ import annotations

from typing import Final, assert_never

from reconciliation.contracts import (
    AnswerPattern,
    AskedAgain,
    Contract,
    KeyAfter,
    KeyFormat,
    LateSend,
    LookupKind,
    MakeAbsent,
    WindowKind,
)

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


def make_absent_in_words(way: MakeAbsent) -> tuple[str, ...]:
    """What follows from a request that makes an effect absent, and what stays open, in sentences."""
    proves = (
        "Its success is evidence for people and proves nothing."
        if way.proves_within_ms is None
        else f"Its success is taken as proof if it arrives within {duration(way.proves_within_ms)} of the "
        "first send, and every request had ended by then; later it is evidence and no more."
    )
    late = {
        LateSend.MAY_LAND: "A first request that still arrives afterwards can make the effect.",
        LateSend.REFUSED: "A first request that arrives afterwards is refused.",
    }
    key = {
        KeyAfter.BURNT: "The key is burnt.",
        KeyAfter.FREE: "The same key is taken as new.",
        KeyAfter.UNKNOWN: "Nobody says what the same key gets then.",
    }
    again = {
        AskedAgain.HARMLESS: "The same request again does nothing more.",
        AskedAgain.UNKNOWN: "Nobody says what the same request does a second time.",
    }
    never = "Whatever it answers, Recourse sends nothing more with that key."
    return (proves, late[way.late_send], key[way.key_after], again[way.again], never)


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
