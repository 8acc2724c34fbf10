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

# What a template may name. `payload.` and `secret.` go on with a name.
PLAIN_NAMES = ("key", "operation", "tool", "reference", "first_sent_at", "first_sent_unix")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
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
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    def get(self, name: str) -> Any:
        """The typed value of a placeholder, or `MISSING`."""
        if name.startswith("payload."):
            return _walk(self.payload, name.removeprefix("payload."))
        if name.startswith("secret."):
            return self.secrets.get(name.removeprefix("secret."), MISSING)
        match name:
            case "key":
                return self.key
            case "operation":
                return self.operation
            case "tool":
                return self.tool
            case "reference":
                return MISSING if self.reference is None else self.reference
            case "first_sent_at" if self.first_sent_at is not None:
                return self.first_sent_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            case "first_sent_unix" if self.first_sent_at is not None:
                return int(self.first_sent_at.timestamp())
            case _:
                return MISSING


def _walk(payload: Any, dotted: str) -> Any:
    here = payload
    for name in dotted.split("."):
        if not isinstance(here, Mapping) or name not in here:
            return MISSING
        here = here[name]
    return here


@dataclass(frozen=True, slots=True)
class Template:
    """Text with placeholders, checked when it is made (`TemplateFault`)."""

    source: str

    def __post_init__(self) -> None:
        for name in self.names:
            prefix, _, rest = name.partition(".")
            dotted = prefix in ("payload", "secret") and _DOTTED.match(rest) is not None
            if not dotted and name not in PLAIN_NAMES:
                raise TemplateFault(f"{{{name}}} is not a placeholder")
        if re.search(r"[{}]", _PLACEHOLDER.sub("", self.source)):
            raise TemplateFault("a brace without its other half")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(_PLACEHOLDER.findall(self.source))

    @property
    def uses_secret(self) -> bool:
        return any(name.startswith("secret.") for name in self.names)

    def text(self, values: Values) -> str:
        """The text with its values as they are; raises `ValueUnusable`."""
        return _PLACEHOLDER.sub(lambda found: _as_text(values, found[1]), self.source)

    def path(self, values: Values) -> str:
        """A URL path: every value is one segment's text, whatever is in it."""
        return _PLACEHOLDER.sub(lambda found: _as_segment(values, found[1]), self.source)

    def header(self, values: Values) -> str:
        """A header's value; raises `ValueUnusable` for characters that a header can't hold."""
        text = self.text(values)
        if not all(" " <= character <= "~" for character in text):
            raise ValueUnusable(f"the value of {self.source} can't go into a header")
        return text

    def json(self, values: Values) -> Any:
        """A JSON value: typed if the template is one placeholder and nothing else, else text."""
        if len(self.names) == 1 and self.source == f"{{{self.names[0]}}}":
            value = values.get(self.names[0])
            if isinstance(value, Missing):
                raise ValueUnusable(f"there is no value for {self.source}")
            return value
        return self.text(values)


def _as_text(values: Values, name: str) -> str:
    match values.get(name):
        case str() as value:
            return value
        case bool() as value:
            return "true" if value else "false"
        case int() | float() as value:
            return str(value)
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
