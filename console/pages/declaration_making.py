"""The TOML declaration that the form's fields make, and what of them can't be read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Final

from console.pages.declaration_fields import SECTIONS
from console.pages.shapes import FieldError

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*(ms|s|min|h|d)\Z")
_NUMBER: Final = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,4})?\Z")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+\Z")


@dataclass(frozen=True, kw_only=True)
class Made:
    """The declaration that the fields make, what can't be read of them, and where its facts come from."""

    text: str
    errors: tuple[FieldError, ...]
    # From a place of the declaration that depends on what was typed to the field that it came from.
    places: Mapping[str, str]


class _Reader:
    """Takes the typed values one by one and notes those that can't be read."""

    def __init__(self, typed: Callable[[str], str]) -> None:
        self._typed = typed
        self.errors: list[FieldError] = []

    def text(self, name: str) -> str:
        return self._typed(name).strip()

    def texts(self, name: str) -> list[str]:
        return [one.strip() for one in self.text(name).split(",") if one.strip()]

    def duration(self, name: str) -> int | None:
        said = self.text(name)
        if not said:
            return None
        found = _DURATION.match(said)
        span = Decimal(found[1]) * _UNITS_MS[found[2]] if found else None
        if span is None or span != int(span):
            self.note(name, "Write a duration with its unit: 250 ms, 30 s, 5 min, 12 h or 7 d")
            return None
        return int(span)

    def statuses(self, name: str) -> list[int | str]:
        return [int(one) if one.isascii() and one.isdecimal() else one for one in self.texts(name)]

    def number(self, name: str) -> int | float | None:
        said = self.text(name)
        if said and not _NUMBER.match(said):
            self.note(name, "Write a number, such as 0.5")
            return None
        return (float(said) if "." in said else int(said)) if said else None

    def pairs(self, name: str) -> list[tuple[str, str]]:
        """The lines `left = right`; a line without either is noted."""
        made = []
        for line in self.text(name).splitlines():
            left, equals, right = (part.strip() for part in line.partition("="))
            if line.strip() and not (left and equals and right):
                self.note(name, "Write one a line, as left = right")
            elif line.strip():
                made.append((left, right))
        return made

    def day(self, name: str) -> date | None:
        said = self.text(name)
        try:
            return date.fromisoformat(said) if said else None
        except ValueError:
            self.note(name, "Write a day as 2026-11-30")
            return None

    def note(self, name: str, sentence: str) -> None:
        if all(one.field != name for one in self.errors):
            self.errors.append(FieldError(field=name, sentence=sentence))


def make(typed: Callable[[str], str]) -> Made:
    """Write the declaration that these fields say; what is empty is left out, for the reader to judge."""
    read = _Reader(typed)
    facts, places = _facts(read)
    whole: dict[str, Any] = {
        "slug": read.text("slug"),
        "title": read.text("title"),
        "base_url": read.text("base_url"),
        "documentation_url": read.text("documentation_url"),
        "console_sends": read.text("console_sends") == "yes",
        "worker_sends": read.text("worker_sends"),
        **_identity(read),
        "contract": _contract(read),
        "send": _send(read),
        "lookup": _lookup(read),
        "facts": facts,
    }
    return Made(text=written(_without_empty(whole)), errors=tuple(read.errors), places=places)


def _identity(read: _Reader) -> dict[str, Any]:
    how = read.text("auth")
    if how not in ("bearer", "basic", "header"):
        return {}
    made: dict[str, Any] = {"credentials": {"secret": {"env": read.text("variable")}}}
    match how:
        case "bearer":
            made["authorization"] = {"scheme": "bearer", "token": "{secret.secret}"}
        case "basic":
            user = read.text("user")
            made["authorization"] = {"scheme": "basic", "user": user, "password": "{secret.secret}"}
        case _:
            made["headers"] = {read.text("auth_header") or "X-Api-Key": "{secret.secret}"}
    return made


def _contract(read: _Reader) -> dict[str, Any]:
    reference = read.text("receipt_reference")
    exists = {
        "statuses": read.statuses("exists_statuses"),
        "path": read.text("exists_at"),
        "values": read.texts("exists_values"),
    }
    status_at, succeeded = read.text("status_at"), read.texts("succeeded")
    success = {"path": status_at, "succeeded": succeeded, "refused": read.texts("refused")}
    return {
        "key_field": read.text("key_field"),
        "key_format": read.text("key_format"),
        "key_scope": read.text("key_scope"),
        "dedup_window_ms": read.duration("dedup_window"),
        "window_kind": read.text("window_kind"),
        "window_margin_ms": read.duration("window_margin"),
        "on_other_payload": read.text("on_other_payload"),
        "on_in_flight": read.text("on_in_flight"),
        "replays": read.text("replays"),
        "lookup": read.text("lookup"),
        "visibility_lag_ms": read.duration("visibility_lag"),
        "lookup_retention_ms": read.duration("lookup_retention"),
        "absence_is_proof": read.text("absence_is_proof") == "yes",
        "rate_limit_per_second": read.number("rate"),
        "in_flight_bound_ms": read.duration("in_flight_bound"),
        "start_within_ms": read.duration("start_within"),
        "request_within_ms": read.duration("request_within"),
        "match_fields": [{"payload": ours, "answer": own} for ours, own in read.pairs("match_fields")],
        "proves_existence": [exists] if any(exists.values()) else [],
        "success_when": success if status_at or succeeded else {},
        "receipt": {
            "id": read.text("receipt_id"),
            "key": read.text("receipt_key"),
            "reference": reference,
            "our_reference": "{operation}" if reference else "",
            "amount": read.text("amount_at"),
            "currency": read.text("currency_at"),
        },
    }


def _send(read: _Reader) -> dict[str, Any]:
    added: Any = "{operation}"
    for name in reversed([one for one in read.text("reference_at").split(".") if one]):
        added = {name: added}
    return {
        "request": {
            "method": read.text("send_method"),
            "path": read.text("send_path"),
            "encoding": read.text("encoding"),
            "add": added if isinstance(added, dict) else {},
        },
        "answer": {"receipt_at": read.text("receipt_at")},
    }


def _lookup(read: _Reader) -> dict[str, Any]:
    if read.text("lookup") in ("", "none"):
        return {}
    query: dict[str, Any] = {}
    for name, value in read.pairs("lookup_query"):
        # A parameter may stand there more than once.
        query.setdefault(name, []).append(value)
    query = {name: values[0] if len(values) == 1 else values for name, values in query.items()}
    return {
        "request": {"path": read.text("lookup_path"), "query": query},
        "answer": {
            "items": read.text("items"),
            "more": read.text("more"),
            "not_found_statuses": read.statuses("not_found_statuses"),
        },
    }


def _facts(read: _Reader) -> tuple[list[dict[str, Any]], dict[str, str]]:
    facts: list[dict[str, Any]] = []
    places = {}
    for section in SECTIONS:
        if not section.sourced:
            continue
        source, read_on = read.text(f"{section.name}_source"), read.day(f"{section.name}_read_on")
        if source or read_on:
            facts.append({"fields": list(section.sourced), "source": source, "read_on": read_on})
            places[f"facts #{len(facts)}"] = f"{section.name}_source"
            places[f"facts #{len(facts)}.read_on"] = f"{section.name}_read_on"
    return facts, places


def _without_empty(value: Any) -> Any:
    """The same without what was left empty, tables that are then empty too; `false` says something."""
    match value:
        case dict():
            kept = {name: _without_empty(inner) for name, inner in value.items()}
            return {name: inner for name, inner in kept.items() if inner not in ("", None, [], {})}
        case list():
            return [_without_empty(inner) for inner in value]
        case _:
            return value


# --- TOML ------------------------------------------------------------------------------------------------


def written(data: Mapping[str, Any]) -> str:
    """The tables as TOML: texts, whole numbers, yes and no, days, lists, and tables inside."""
    return "\n".join(_table(data, ())).strip() + "\n"


def _table(data: Mapping[str, Any], path: Sequence[str]) -> list[str]:
    lines, inner = [], []
    for name, value in data.items():
        here = (*path, _name(name))
        if isinstance(value, dict):
            below = _table(value, here)
            # A table of nothing but tables needs no line of its own.
            inner += below if below and not below[0] else ["", f"[{'.'.join(here)}]", *below]
        elif isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            for one in value:
                inner += ["", f"[[{'.'.join(here)}]]", *_table(one, here)]
        else:
            lines.append(f"{_name(name)} = {_value(value)}")
    return [*lines, *inner]


def _name(name: str) -> str:
    return name if _BARE.match(name) else _text(name)


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case date():
            return value.isoformat()
        case list():
            return f"[{', '.join(_value(one) for one in value)}]"
        case _:
            return _text(str(value))


def _text(text: str) -> str:
    """A basic string of TOML: JSON's escapes, and DEL, which TOML doesn't allow as it is."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
