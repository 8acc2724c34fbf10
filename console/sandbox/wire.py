"""What goes over the wire: strict JSON in, answers out, and the ways in which a provider fails to answer.

The parser is the sandbox's own, on purpose: a provider that read JSON with the journal's code would agree
with the journal's mistakes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn

# 1 MiB: far above any order or e-mail here, far below what would let one caller fill the machine.
BODY_BYTES_MAX = 1024 * 1024
# Deeper than any payload that means something; shallow enough that no recursion gets near its limit.
DEPTH_MAX = 64

JsonObject = dict[str, Any]


class Refused(Exception):
    """An answer that is an error: the HTTP status, a code for machines and a sentence for people."""

    def __init__(
        self, status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})

    def answer(self) -> Answer:
        return Answer.of({"error": {"code": self.code, "message": self.message}}, self.status, self.headers)


class ClientLeft(Exception):
    """The caller closed the connection before its request was complete: there is nobody to answer."""


@dataclass(frozen=True)
class Answer:
    """A complete HTTP answer."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = "application/json"

    @classmethod
    def of(cls, value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
        return cls(status, write_json(value), tuple((headers or {}).items()))


@dataclass(frozen=True)
class CutShort:
    """An answer whose head promises the whole body and whose body stops in the middle."""

    answer: Answer


@dataclass(frozen=True)
class Dropped:
    """The connection is closed in good order without a byte of answer."""


@dataclass(frozen=True)
class Reset:
    """The connection is torn down by TCP reset without a byte of answer."""


Reply = Answer | CutShort | Dropped | Reset


def write_json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def fingerprint(kind: str, payload: JsonObject) -> str:
    """The SHA-256 by which two requests under one key are the same: kind and payload, key order aside."""
    text = json.dumps([kind, payload], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_object(body: bytes) -> JsonObject:
    """Parse a JSON object strictly, or raise `Refused` 400 `invalid_json` with the reason.

    Refused: anything but UTF-8, duplicate keys, NaN and infinities (also as 1e999), lone surrogates, NUL,
    nesting deeper than `DEPTH_MAX`, integers too long for Python to read, anything but an object.
    """
    try:
        value = json.loads(
            body.decode("utf-8", errors="strict"),
            object_pairs_hook=_object_without_duplicates,
            parse_constant=_refuse_constant,
            parse_float=_finite_float,
        )
    except RecursionError:
        raise _unreadable(f"it is nested deeper than {DEPTH_MAX} levels") from None
    except UnicodeDecodeError:
        raise _unreadable("it is not UTF-8") from None
    except ValueError as error:
        raise _unreadable(str(error)) from None
    if not isinstance(value, dict):
        raise _unreadable("it is not an object")
    _check_texts_and_depth(value)
    return value


def _unreadable(reason: str) -> Refused:
    return Refused(400, "invalid_json", f"The body can't be taken: {reason}.")


def _object_without_duplicates(pairs: list[tuple[str, Any]]) -> JsonObject:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has the same key twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _check_texts_and_depth(root: JsonObject) -> None:
    waiting: list[tuple[Any, int]] = [(root, 1)]
    while waiting:
        value, depth = waiting.pop()
        if depth > DEPTH_MAX:
            raise _unreadable(f"it is nested deeper than {DEPTH_MAX} levels")
        if isinstance(value, str):
            if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
                raise _unreadable("a text contains NUL or half a surrogate pair")
        elif isinstance(value, dict):
            waiting += [(key, depth + 1) for key in value]
            waiting += [(item, depth + 1) for item in value.values()]
        elif isinstance(value, list):
            waiting += [(item, depth + 1) for item in value]


def instant(at_us: int) -> str:
    """Microseconds since 1970 as RFC 3339 in UTC."""
    seconds, micros = divmod(at_us, 1_000_000)
    whole = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{micros:06d}Z"


class Fields:
    """Reads an admin request's fields by name and type, and refuses what it does not know.

    Call `done()` at the end: a field that nobody asked for is a spelling mistake, and a fault that was
    never set makes a test pass for the wrong reason.
    """

    def __init__(self, values: JsonObject) -> None:
        self._values = dict(values)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str, default: str | None = None) -> str | None:
        value = self._values.pop(name, default)
        if value is not None and not isinstance(value, str):
            raise invalid(f"{name} must be a text")
        return value

    def number(self, name: str, default: int | None = None, *, low: int, high: int) -> int | None:
        value = self._values.pop(name, default)
        if value is None:
            return None
        if type(value) is not int or not low <= value <= high:
            raise invalid(f"{name} must be a whole number from {low} to {high}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self._values.pop(name, default)
        if not isinstance(value, bool):
            raise invalid(f"{name} must be true or false")
        return value

    def object(self, name: str) -> JsonObject:
        value = self._values.pop(name, None)
        if not isinstance(value, dict):
            raise invalid(f"{name} must be an object")
        return value

    def done(self) -> None:
        if self._values:
            raise invalid("unknown field " + ", ".join(sorted(self._values)))


def invalid(message: str) -> Refused:
    return Refused(422, "invalid", f"This call can't be taken: {message}.")
