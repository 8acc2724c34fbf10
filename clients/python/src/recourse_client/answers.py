"""A provider's answer as the journal's plan shows it, so that a fresh run sees what a resumed one would.

The journal reads JSON strictly: what two readers could understand differently is shown as the text that it
is. This is the same reading, on this side.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

# The journal's limits for one document.
_INTEGER_MAX = 2**53 - 1
_NUMBER_LENGTH_MAX = 128
_DEPTH_MAX = 64
_TEXT_SHOWN_MAX = 2_000


def shown(content: bytes) -> Any:
    """Return strictly readable JSON as its value, anything else as bounded text."""
    try:
        value = _read(content.decode("utf-8"))
    except (ValueError, RecursionError):
        return content.decode("utf-8", "replace")[:_TEXT_SHOWN_MAX]
    return value


def _read(text: str) -> Any:
    value = json.loads(
        text, object_pairs_hook=_members, parse_int=_integer, parse_float=_float, parse_constant=_refuse
    )
    _check(value)
    return value


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is used twice")
    return found


def _integer(literal: str) -> int:
    number = int(literal) if len(literal) <= _NUMBER_LENGTH_MAX else _INTEGER_MAX + 1
    if abs(number) > _INTEGER_MAX:
        _refuse(literal)
    return number


def _float(literal: str) -> int | float:
    number = float(literal)
    if len(literal) > _NUMBER_LENGTH_MAX or not abs(number) <= _INTEGER_MAX:
        _refuse(literal)
    return int(number) if number.is_integer() else number


def _refuse(literal: str) -> NoReturn:
    raise ValueError(f"{literal[:40]} is no number that every reader tells from its neighbours")


def _check(value: Any) -> None:
    """Refuse depth, U+0000 and half surrogate pairs; walks level by level, so depth can't hurt it."""
    level = [value]
    for _ in range(_DEPTH_MAX + 1):
        inner: list[Any] = []
        for one in level:
            texts = list(one) if isinstance(one, dict) else [one] if isinstance(one, str) else []
            if any("\x00" in text or not _is_whole(text) for text in texts):
                raise ValueError("a character that can't be stored")
            inner += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        if not any(isinstance(one, (dict, list)) for one in level):
            return
        level = inner
    raise ValueError("nested too deep")


def _is_whole(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
