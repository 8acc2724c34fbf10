"""The faults a request can be given, their parameters, and which of them fit together.

One request suffers at most one *ending* (how it is answered, or isn't) and any number of different
*modifiers* (what is done and what is shown). A name is followed by its parameter after a semicolon:
`slow;250`, `other_payload;amount_minor=999`. A header may hold several, separated by commas.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from console.sandbox.wire import JsonObject, invalid

PARAM_LENGTH_MAX = 200
FAULTS_PER_HEADER_MAX = 8
SLOW_MS_MAX = 60_000
RETRY_AFTER_SECONDS_MAX = 86_400
HIDE_MS_MAX = 365 * 24 * 3600 * 1000


class Name(StrEnum):
    """Every fault there is. Endings first, then modifiers, then those of lookups."""

    RESET = "reset"  # TCP reset: with the head read (`before`, the default) or after the commit (`after`)
    REFUSE = "refuse"  # 422 `refused`, no effect; `remember` keeps the refusal under the key
    RATE_LIMITED = "rate_limited"  # 429 with Retry-After (seconds), no effect
    REDIRECT = "redirect"  # 307 to the parameter, by default the same kind at the account `redirected`
    ERROR_500_BEFORE_COMMIT = "error_500_before_commit"  # 500, no effect
    HANG_BEFORE_COMMIT = "hang_before_commit"  # silence until released (goes on) or the client leaves (ends)
    GARBAGE_WITHOUT_COMMIT = "garbage_without_commit"  # 201 with bytes that aren't JSON, no effect
    DROP_REPLY = "drop_reply"  # effect made, connection closed without an answer
    ERROR_500_AFTER_COMMIT = "error_500_after_commit"  # effect made, 500
    HANG_AFTER_COMMIT = "hang_after_commit"  # effect made, silence until released or the client leaves
    GARBAGE = "garbage"  # effect made, 201 with bytes that aren't JSON
    TRUNCATE = "truncate"  # effect made, the answer's body stops in the middle

    SLOW = "slow"  # waits so many milliseconds before it does anything
    IGNORE_KEY = "ignore_key"  # takes the request as if its key had never been seen, and remembers nothing
    OTHER_PAYLOAD = "other_payload"  # applies and echoes something else: `field=value`, or its own choice
    TWICE = "twice"  # applies it twice; the answer shows the first
    STATUS = "status"  # the receipt says `pending` or `failed` instead of `succeeded`
    HIDE_FROM_LOOKUP = "hide_from_lookup"  # lookups don't show the effect, ever or for so many milliseconds

    LOOKUP_500 = "lookup_500"
    LOOKUP_429 = "lookup_429"  # with Retry-After (seconds)
    LOOKUP_HANG = "lookup_hang"
    LOOKUP_GARBAGE = "lookup_garbage"
    LOOKUP_DROP = "lookup_drop"  # connection closed without an answer
    LOOKUP_SLOW = "lookup_slow"


MODIFIERS = frozenset(
    {
        Name.SLOW,
        Name.IGNORE_KEY,
        Name.OTHER_PAYLOAD,
        Name.TWICE,
        Name.STATUS,
        Name.HIDE_FROM_LOOKUP,
        Name.LOOKUP_SLOW,
    }
)
_WHOLE_NUMBERS = {
    Name.SLOW: (True, SLOW_MS_MAX),
    Name.LOOKUP_SLOW: (True, SLOW_MS_MAX),
    Name.RATE_LIMITED: (False, RETRY_AFTER_SECONDS_MAX),
    Name.LOOKUP_429: (False, RETRY_AFTER_SECONDS_MAX),
    Name.HIDE_FROM_LOOKUP: (False, HIDE_MS_MAX),
}  # name: (the number is required, its largest value)
_WORDS = {
    Name.RESET: ("", "before", "after"),
    Name.REFUSE: ("", "remember"),
    Name.STATUS: ("pending", "failed"),
}
# Where a redirect may point: a path of ours or a web address, without anything that could end a header.
_LOCATION = re.compile(r"(/|https?://)[!-~]*\Z")
_OTHER_PAYLOAD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}=[^\0-\x1f]*\Z")


@dataclass(frozen=True)
class Fault:
    """One fault with its parameter (empty when there is none)."""

    name: Name
    param: str = ""

    def __str__(self) -> str:
        return f"{self.name};{self.param}" if self.param else str(self.name)

    @property
    def slot(self) -> str:
        """Two faults of one slot exclude each other: all endings share one, each modifier has its own."""
        return str(self.name) if self.name in MODIFIERS else "ending"

    @property
    def for_lookups(self) -> bool:
        return self.name.startswith("lookup_")

    def number(self, default: int) -> int:
        return int(self.param) if self.param else default


@dataclass(frozen=True)
class FaultSet:
    """What one request suffers: at most one fault per slot."""

    faults: tuple[Fault, ...] = ()

    @property
    def ending(self) -> Fault | None:
        return next((fault for fault in self.faults if fault.slot == "ending"), None)

    def get(self, name: Name) -> Fault | None:
        return next((fault for fault in self.faults if fault.name == name), None)

    def __str__(self) -> str:
        return ", ".join(str(fault) for fault in self.faults)


def parse(text: str) -> Fault:
    """Read `name` or `name;param`, or raise `Refused` 422 that says what is wrong with it."""
    word, _, param = text.strip().partition(";")
    word, param = word.strip(), param.strip()
    try:
        name = Name(word)
    except ValueError:
        raise invalid(f"there is no fault {word[:40]!r}") from None
    if len(param) > PARAM_LENGTH_MAX:
        raise invalid(f"the parameter of {name} is longer than {PARAM_LENGTH_MAX} characters")
    _check_param(name, param)
    return Fault(name, param)


def _check_param(name: Name, param: str) -> None:
    if name in _WHOLE_NUMBERS:
        required, largest = _WHOLE_NUMBERS[name]
        plain = param.isascii() and param.isdigit() and int(param) <= largest
        if not plain and (required or param):
            raise invalid(f"{name} takes a whole number up to {largest}")
    elif name in _WORDS:
        if param not in _WORDS[name]:
            raise invalid(f"{name} takes one of: {', '.join(word for word in _WORDS[name] if word)}")
    elif name is Name.REDIRECT:
        if param and not _LOCATION.match(param):
            raise invalid("redirect takes a path or a web address")
    elif name is Name.OTHER_PAYLOAD:
        if param and not _OTHER_PAYLOAD.match(param):
            raise invalid("other_payload takes field=value")
    elif param:
        raise invalid(f"{name} takes no parameter")


def parse_header(values: Iterable[str], *, for_lookups: bool) -> tuple[Fault, ...]:
    """Read `Sandbox-Fault` headers: a comma between faults, no two of one slot, all fit for the request."""
    faults = [parse(part) for value in values for part in value.split(",") if part.strip()]
    if len(faults) > FAULTS_PER_HEADER_MAX:
        raise invalid(f"more than {FAULTS_PER_HEADER_MAX} faults for one request")
    slots = [fault.slot for fault in faults]
    if len(set(slots)) != len(slots):
        raise invalid(f"these faults exclude each other: {', '.join(map(str, faults))}")
    if strange := [str(fault.name) for fault in faults if fault.for_lookups != for_lookups]:
        raise invalid(f"{', '.join(strange)} can't happen to {'a lookup' if for_lookups else 'a request'}")
    return tuple(faults)


def altered(payload: JsonObject, param: str) -> JsonObject:
    """The payload that `other_payload` applies instead: the field named, else an amount, else a text."""
    if param:
        field, _, text = param.partition("=")
        return {**payload, field: _value(text)}
    for field in ("amount_minor", "quantity"):
        if type(payload.get(field)) is int:
            return {**payload, field: payload[field] + 1}
    for field, value in payload.items():
        if isinstance(value, str):
            return {**payload, field: f"{value} (altered)"}
    return {**payload, "altered": True}


def _value(text: str) -> Any:
    """A JSON scalar where the text is one, else the text itself."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if type(value) in (int, bool, str) else text
