"""Small templates of declared requests: text with `{placeholders}` from a closed list, and nothing else.

Values come from a payload that an agent wrote. Each place they can go to has its own encoding, chosen by the
renderer and not by the template, so that a value can't add a path segment, a query parameter or a header.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from reconciliation.providers.paths import MISSING, Missing
from runs.money import Money, exponent

# What a template may name. `payload.`, `secret.`, `setting.` and `place.` go on with a name.
PLAIN_NAMES = (
    "key",
    "operation",
    "tool",
    "reference",
    "first_sent_at",
    "first_sent_unix",
    "window_start_at",
    "window_start_unix",
    "window_end_at",
    "window_end_unix",
    "amount.minor",
    "amount.decimal",
    "amount.currency",
    "amount.currency_lower",
)
_FREE_PREFIXES = ("payload", "secret", "setting", "place")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_ISO_SECONDS = "%Y-%m-%dT%H:%M:%SZ"
_DOTTED = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*\Z")


class TemplateFault(ValueError):
    """The template itself can't be read: an unknown placeholder, or a lone brace."""


class ValueUnusable(ValueError):
    """The template is right, but this operation has no value for it, or one that can't go there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Values:
    """What a template may draw from."""

    key: str
    operation: str
    tool: str
    payload: Any
    reference: str | None = None
    first_sent_at: datetime | None = None
    # The time in which the effect must have happened, a little wider: for lookups that list.
    window_start_at: datetime | None = None
    window_end_at: datetime | None = None
    amount: Money | None = None
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    settings: Mapping[str, str] = field(default_factory=dict)
    # One of the places that are listed one by one.
    place: Mapping[str, str] = field(default_factory=dict)

    def get(self, name: str) -> Any:
        """The typed value of a placeholder, or `MISSING`."""
        if name.startswith("payload."):
            return _walk(self.payload, name.removeprefix("payload."))
        prefix, dot, rest = name.partition(".")
        named = {"secret": self.secrets, "setting": self.settings, "place": self.place}
        if dot and prefix in named:
            return named[prefix].get(rest, MISSING)
        if name.startswith("amount."):
            return MISSING if self.amount is None else _of_amount(self.amount, name.removeprefix("amount."))
        match name:
            case "key":
                return self.key
            case "operation":
                return self.operation
            case "tool":
                return self.tool
            case "reference":
                return MISSING if self.reference is None else self.reference
            case "first_sent_at" | "first_sent_unix":
                return _instant(self.first_sent_at, name)
            case "window_start_at" | "window_start_unix":
                return _instant(self.window_start_at, name)
            case "window_end_at" | "window_end_unix":
                return _instant(self.window_end_at, name)
            case _:
                return MISSING


def _instant(at: datetime | None, name: str) -> Any:
    if at is None:
        return MISSING
    return int(at.timestamp()) if name.endswith("_unix") else at.astimezone(UTC).strftime(_ISO_SECONDS)


def _of_amount(amount: Money, part: str) -> Any:
    match part:
        case "minor":
            return amount.minor
        case "decimal":
            return decimal_text(amount)
        case "currency":
            return amount.currency
        case "currency_lower":
            return amount.currency.lower()
        case _:
            return MISSING


def decimal_text(amount: Money) -> str:
    """The amount as a plain decimal number with the digits of its currency: "1240.00", JPY "1240"."""
    digits = exponent(amount.currency)
    whole, part = divmod(amount.minor, 10**digits)
    return f"{whole}.{part:0{digits}d}" if digits else str(whole)


def _walk(payload: Any, dotted: str) -> Any:
    here = payload
    for name in dotted.split("."):
        if not isinstance(here, Mapping) or name not in here:
            return MISSING
        here = here[name]
    return here


@dataclass(frozen=True, slots=True)
class Template:
    """Text with placeholders, checked when it is made (`TemplateFault`).

    A placeholder that ends in `?` may have no value: it is then empty text, and a member or parameter that is
    this placeholder and nothing else is left out. Where one that ends in `??` has none, the whole member or
    parameter is left out, whatever else is in it.
    """

    source: str

    def __post_init__(self) -> None:
        for name in self.names:
            prefix, _, rest = name.partition(".")
            dotted = prefix in _FREE_PREFIXES and _DOTTED.match(rest) is not None
            if not dotted and name not in PLAIN_NAMES:
                raise TemplateFault(f"{{{name}}} is not a placeholder")
        if re.search(r"[{}]", _PLACEHOLDER.sub("", self.source)):
            raise TemplateFault("a brace without its other half")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(_bare(name) for name in _PLACEHOLDER.findall(self.source))

    @property
    def alone(self) -> str | None:
        """The placeholder's name, where the template is one and nothing else."""
        found = _PLACEHOLDER.fullmatch(self.source)
        return None if found is None else _bare(found[1])

    def left_out(self, values: Values) -> bool:
        """Whether the member or parameter with this value isn't there at all for this operation."""
        whole = [_bare(name) for name in _PLACEHOLDER.findall(self.source) if name.endswith("??")]
        if self.alone is not None and self.source.endswith("?}"):
            whole.append(self.alone)
        return any(isinstance(values.get(name), Missing) for name in whole)

    @property
    def uses_secret(self) -> bool:
        return any(name.startswith("secret.") for name in self.names)

    def text(self, values: Values) -> str:
        """The text with its values as they are; raises `ValueUnusable`."""
        return _PLACEHOLDER.sub(lambda found: _as_text(values, found[1]), self.source)

    def path(self, values: Values) -> str:
        """A URL path: every value is one segment's text, whatever is in it.

        Raises `ValueUnusable` where a segment comes out as one that a client would resolve away.
        """
        path = _PLACEHOLDER.sub(lambda found: _as_segment(values, found[1]), self.source)
        if any(segment in (".", "..") for segment in path.split("/")):
            raise ValueUnusable(f"the values of {self.source} make a path that leads elsewhere")
        return path

    def header(self, values: Values) -> str:
        """A header's value; raises `ValueUnusable` for characters that a header can't hold."""
        text = self.text(values)
        if not all(" " <= character <= "~" for character in text):
            raise ValueUnusable(f"the value of {self.source} can't go into a header")
        return text

    def json(self, values: Values) -> Any:
        """A JSON value: typed if the template is one placeholder and nothing else, else text."""
        if self.alone is not None:
            value = values.get(self.alone)
            if isinstance(value, Missing):
                raise ValueUnusable(f"there is no value for {self.source}")
            return value
        return self.text(values)


def _bare(name: str) -> str:
    return name.removesuffix("??") if name.endswith("??") else name.removesuffix("?")


def _as_text(values: Values, name: str) -> str:
    optional = name.endswith("?")
    name = _bare(name)
    match values.get(name):
        case str() as value:
            return value
        case bool() as value:
            return "true" if value else "false"
        case int() | float() as value:
            return str(value)
        case Missing() | None if optional:
            return ""
        case Missing():
            raise ValueUnusable(f"there is no value for {{{name}}}")
        case _:
            raise ValueUnusable(f"the value of {{{name}}} is not text or a number")


def _as_segment(values: Values, name: str) -> str:
    text = _as_text(values, name)
    # A client would resolve dot segments away, and ask for another resource than the one declared.
    if text in ("", ".", ".."):
        raise ValueUnusable(f"the value of {{{name}}} can't go into a path")
    return quote(text, safe="")
