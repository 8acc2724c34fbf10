"""Strict JSON in, canonical bytes and their digest out.

What the journal stores, compares and hashes is the canonical form of RFC 8785, kept as bytes. Two values
are the same if their canonical bytes are the same, so 1, 1.0 and 10e-1 are one value. For that to mean
anything, reading must lose nothing silently: whatever two readers could understand differently, or
PostgreSQL could not hold, is refused with its place. `docs/decisions/0001-strict-json.md` has the why.

Everything here is linear in the size of its input, and no input reaches a recursive step deeper than
`depth_max` levels.
"""

from __future__ import annotations

import builtins
import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, cast

import rfc8785

from runs.refusals import Refusal

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

# A report carries at most 64 KiB that we keep, twice as much when it is sent as base64 with its headers;
# a turn may plan some dozens of payloads. Beyond this, a body is a mistake or an attack.
BYTES_MAX = 1024 * 1024
# Payloads of real tools nest below 20. The reader and the writer recurse once per level, so this also
# keeps both far from Python's recursion limit of 1,000 frames.
DEPTH_MAX = 64
# The largest integer that every double-based reader (all of RFC 8785) tells from its neighbours: 2^53 - 1.
INTEGER_MAX = 2**53 - 1
INTEGER_DIGITS_MAX = len(str(INTEGER_MAX))
# The shortest exact spelling of any double has at most 24 characters, and a decimal printed with all its
# digits some 60. Python refuses to read integers of more than 4,300 digits, and reads long ones in
# quadratic time, so longer numbers are refused before anyone converts them.
NUMBER_LENGTH_MAX = 128
# A pointer is shown to people and stored with refusals; its keys are the sender's.
POINTER_LENGTH_MAX = 200

WHOLE_BODY = "the whole body"


class UnreadableJson(Refusal):
    """The body is not JSON that everyone reads alike; `where` and `reason` say what stands in the way.

    `where` is a JSON pointer (RFC 6901), "line L, column C" or "the whole body". Where the grammar is
    broken there are also `line` and `column` (from 1, in characters) and `offset` (from 0, in bytes).
    """

    word: ClassVar[str] = "unreadable_json"


class TooLarge(Refusal):
    """The body, or the canonical form of a value, has more bytes than `bytes_max`."""

    word: ClassVar[str] = "too_large"


@dataclass(frozen=True, slots=True)
class Canonical:
    """A value as it is stored and compared: RFC 8785 bytes, and their SHA-256 in lower-case hex."""

    bytes: builtins.bytes
    digest: str


def parse(body: bytes, *, bytes_max: int = BYTES_MAX, depth_max: int = DEPTH_MAX) -> JsonValue:
    """Read one JSON document and return its value, the same value for every spelling of it.

    Numbers with an integer value come back as `int`, whether written 1, 1.0, 1e0 or, for zero, -0; all
    others as `float`. A lone `[]` has depth 1. Raises `TooLarge`, or `UnreadableJson` for anything that
    is not UTF-8, not RFC 8259, or not safe to store and compare: a byte order mark, a name used twice in
    an object, NaN and infinities, U+0000, a surrogate without its other half, a number beyond
    ±(2^53 - 1) or longer than `NUMBER_LENGTH_MAX` characters, and more than `depth_max` levels.
    """
    if len(body) > bytes_max:
        raise _too_large(bytes_max=bytes_max, bytes_seen=len(body))
    text = _decode_text(body)
    _check_depth(text, depth_max=depth_max)
    reader = _Reader()
    try:
        value = reader.read(text)
    except json.JSONDecodeError as error:
        raise _broken_at(text, error.pos, f"not JSON: {error.msg}") from None
    # The text can hold a bad character only as an escape: UTF-8 has no surrogates, and the reader refuses
    # a raw U+0000. Without such an escape and without a fault there is nothing to look for.
    if reader.found_fault or _SUSPICIOUS_ESCAPE.search(text):
        _check_value(value, bytes_max=bytes_max, depth_max=depth_max)
    return value


def canonical_bytes(value: object, *, bytes_max: int = BYTES_MAX, depth_max: int = DEPTH_MAX) -> bytes:
    """Return the RFC 8785 form of a value made of None, bool, int, float, str, list, tuple and dict.

    Refuses what `parse` refuses, with the same errors, and whatever has no JSON form at all; so whatever
    it returns can be read by `parse` with the same limits, and gives the same bytes again.
    """
    _check_value(value, bytes_max=bytes_max, depth_max=depth_max)
    written = rfc8785.dumps(cast(Any, value))
    if len(written) > bytes_max:
        raise _too_large(bytes_max=bytes_max, bytes_seen=len(written))
    return written


def digest(content: bytes) -> str:
    """Return the SHA-256 of these bytes as 64 lower-case hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def canonicalise(value: object, *, bytes_max: int = BYTES_MAX, depth_max: int = DEPTH_MAX) -> Canonical:
    """Return the canonical bytes of a value together with their digest; raises as `canonical_bytes`."""
    content = canonical_bytes(value, bytes_max=bytes_max, depth_max=depth_max)
    return Canonical(bytes=content, digest=digest(content))


# --- from bytes to text ---------------------------------------------------------------------------------

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def _decode_text(body: bytes) -> str:
    if not body.strip(b" \t\r\n"):
        raise _unreadable(WHOLE_BODY, "the body is empty")
    if body.startswith(_BYTE_ORDER_MARK):
        raise _unreadable(WHOLE_BODY, "the body starts with a byte order mark", offset=0, line=1, column=1)
    # Every JSON text begins with an ASCII character, which UTF-16 and UTF-32 write with zero bytes.
    if body.startswith((b"\xff\xfe", b"\xfe\xff")) or 0 in body[:2]:
        raise _unreadable(WHOLE_BODY, "the body is UTF-16 or UTF-32, not UTF-8", offset=0, line=1, column=1)
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        text = body[: error.start].decode("utf-8")
        raise _broken_at(text, len(text), "the body is not UTF-8") from None


# --- depth, before anything recursive sees the text -----------------------------------------------------

# A whole string, or a bracket outside of one. The closing quote is optional and nothing backtracks, so an
# unterminated string is consumed once instead of being searched again from each quote inside it.
_STRING_OR_BRACKET = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)


def _check_depth(text: str, *, depth_max: int) -> None:
    if text.count("[") + text.count("{") <= depth_max:
        return
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        first = text[match.start()]
        if first in "[{":
            depth += 1
            if depth > depth_max:
                raise _broken_at(text, match.start(), _too_deep(depth_max))
        elif first in "]}":
            depth -= 1


def _too_deep(depth_max: int) -> str:
    return f"nested more than {depth_max} levels deep"


# --- from text to a value -------------------------------------------------------------------------------

_SUSPICIOUS_ESCAPE = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")


@dataclass(frozen=True, slots=True)
class _Fault:
    """Stands in the parsed value where something can't be accepted, so that its place is known."""

    reason: str
    member: str | None = None


class _Reader:
    """The standard library's reader with its lenient habits turned into faults.

    Its hooks don't know where they are called, so they leave a `_Fault` in the value, and the check of
    the whole value names the place.
    """

    def __init__(self) -> None:
        self.found_fault = False
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._object,
            parse_int=self._integer,
            parse_float=self._float,
            parse_constant=self._constant,
        )

    def read(self, text: str) -> JsonValue:
        return cast(JsonValue, self._decoder.decode(text))

    def _fault(self, reason: str, member: str | None = None) -> _Fault:
        self.found_fault = True
        return _Fault(reason, member)

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Fault:
        members = dict(pairs)
        if len(members) == len(pairs):
            return members
        return self._fault("this name is used twice in one object", _first_repeated(key for key, _ in pairs))

    def _integer(self, literal: str) -> int | _Fault:
        if len(literal) > INTEGER_DIGITS_MAX + 1:  # a minus sign
            return self._fault(_BEYOND_INTEGER_MAX)
        number = int(literal)
        return number if -INTEGER_MAX <= number <= INTEGER_MAX else self._fault(_BEYOND_INTEGER_MAX)

    def _float(self, literal: str) -> int | float | _Fault:
        if len(literal) > NUMBER_LENGTH_MAX:
            return self._fault(f"a number of more than {NUMBER_LENGTH_MAX} characters")
        number = float(literal)
        # No fraction exists up there: each such double is an integer that we refuse when written plainly.
        if not -INTEGER_MAX <= number <= INTEGER_MAX:
            return self._fault(_BEYOND_INTEGER_MAX)
        return int(number) if number.is_integer() else number

    def _constant(self, literal: str) -> _Fault:
        return self._fault(f"{literal} is not JSON")


def _first_repeated(keys: Iterable[str]) -> str:
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            return key
        seen.add(key)
    raise AssertionError("called only when a key is repeated")


# --- checking a value, wherever it came from ------------------------------------------------------------

_BEYOND_INTEGER_MAX = "a number beyond ±(2^53 - 1)"
_BAD_CHARACTER = re.compile("[\x00\ud800-\udfff]")

_Step: TypeAlias = "tuple[object, object]"


def _check_value(value: object, *, bytes_max: int, depth_max: int) -> None:
    """Refuse the first thing, in document order, that canonical JSON can't hold.

    Walks with a list of its own instead of recursing, so depth is checked before it can hurt. Each value
    takes at least one byte of output; counting them bounds the walk over values that share parts.
    """
    levels: list[Iterator[_Step]] = [iter([("", value)])]
    path: list[object] = [""]
    values_seen = 0
    while levels:
        step = next(levels[-1], None)
        if step is None:
            levels.pop()
            path.pop()
            continue
        path[-1], child = step
        values_seen += 1
        if values_seen > bytes_max:
            raise _too_large(bytes_max=bytes_max)
        if reason := _key_fault(path[-1]) or _value_fault(child):
            member = child.member if isinstance(child, _Fault) else None
            raise _unreadable(_pointer([*path, member] if member is not None else path), reason)
        inner: Iterator[_Step]
        if isinstance(child, dict):
            inner = iter(child.items())
        elif isinstance(child, (list, tuple)):
            inner = iter(enumerate(child))
        else:
            continue
        if len(levels) > depth_max:
            raise _unreadable(_pointer(path), _too_deep(depth_max))
        levels.append(inner)
        path.append("")


def _key_fault(key: object) -> str | None:
    # Positions in arrays are our own integers; a bool or an integer as a name can come only from Python.
    return _text_fault(key) if isinstance(key, str) else None


def _value_fault(value: object) -> str | None:
    match value:
        case str():
            return _text_fault(value)
        case None | bool() | list() | tuple():
            return None
        case int():
            return None if -INTEGER_MAX <= value <= INTEGER_MAX else _BEYOND_INTEGER_MAX
        case float():
            if not math.isfinite(value):
                return "not a finite number"
            return None if -INTEGER_MAX <= value <= INTEGER_MAX else _BEYOND_INTEGER_MAX
        case dict():
            return None if all(isinstance(key, str) for key in value) else "a name that is not text"
        case _Fault():
            return value.reason
        case _:
            return f"{type(value).__name__} has no JSON form"


def _text_fault(text: str) -> str | None:
    found = _BAD_CHARACTER.search(text)
    if found is None:
        return None
    return "the character U+0000" if found.group() == "\x00" else "a surrogate without its other half"


def _pointer(path: list[Any]) -> str:
    """Write a path as a JSON pointer, cut to length, with nothing in it that could act where it is shown."""
    pointer = ""
    for key in path[1:]:
        token = str(key)[:POINTER_LENGTH_MAX].replace("~", "~0").replace("/", "~1")
        pointer += "/" + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in token)
        if len(pointer) > POINTER_LENGTH_MAX:
            return pointer[:POINTER_LENGTH_MAX] + "…"
    return pointer or WHOLE_BODY


# --- the refusals' sentences ----------------------------------------------------------------------------


def _unreadable(where: str, reason: str, **place: int) -> UnreadableJson:
    return UnreadableJson(
        f"This JSON can't be read safely: {reason} ({where}).", where=where, reason=reason, **place
    )


def _broken_at(text: str, position: int, reason: str) -> UnreadableJson:
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    offset = len(text[:position].encode("utf-8"))
    return _unreadable(f"line {line}, column {column}", reason, offset=offset, line=line, column=column)


def _too_large(*, bytes_max: int, bytes_seen: int | None = None) -> TooLarge:
    size = "" if bytes_seen is None else f" and this has {bytes_seen:,}"
    seen = {} if bytes_seen is None else {"bytes_seen": bytes_seen}
    return TooLarge(f"At most {bytes_max:,} bytes of JSON are taken{size}.", bytes_max=bytes_max, **seen)
