"""The fields of the form that declares a provider, and the TOML declaration that they make.

Each field names the places of the declaration that it fills, so that a fault that the reader finds is shown
beside what was typed. What the fields can't say is written as the declaration's text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, Literal

from console.pages.shapes import FieldError
from reconciliation.contracts import (
    KeyFormat,
    KeyScope,
    LookupKind,
    OnInFlight,
    OnOtherPayload,
    Replays,
    WindowKind,
)

Kind = Literal["text", "choice", "lines", "switch"]
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*(ms|s|min|h|d)\Z")
_NUMBER: Final = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,4})?\Z")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+\Z")


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """One field: `places` are dotted names of the declaration, `words` the values of a choice."""

    name: str
    label: str
    hint: str = ""
    kind: Kind = "text"
    places: tuple[str, ...] = ()
    default: str = ""
    words: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """Fields about one matter. `sourced` are the contract's fields whose source and day it asks for."""

    name: str
    title: str
    text: str
    fields: tuple[Field, ...]
    sourced: tuple[str, ...] = ()


def _words(kind: type[StrEnum], said: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((one.value, said.get(one.value, one.value.replace("_", " "))) for one in kind)


def _sources(section: str) -> tuple[Field, ...]:
    return (
        Field(
            name=f"{section}_source",
            label="Where this is promised",
            hint="An address, or who said so. Shown beside every line of this part.",
        ),
        Field(name=f"{section}_read_on", label="Read on", hint="Such as 2026-11-30."),
    )


SECTIONS: Final[tuple[Section, ...]] = (
    Section(
        name="account",
        title="The account",
        text="How operations name it, and where it is. Requests go to this host and nowhere else.",
        fields=(
            Field(
                name="slug", label="Slug", hint="a-z, 0-9 and hyphens. It can’t be changed.", places=("slug",)
            ),
            Field(name="title", label="Name", hint="As people know it.", places=("title",)),
            Field(
                name="base_url",
                label="Base URL",
                hint="Such as https://api.shop.internal/v1. Whoever runs this installation lists its host in"
                " RECOURSE_ALLOWED_PROVIDER_HOSTS.",
                places=("base_url",),
            ),
            Field(name="documentation_url", label="Its documentation", places=("documentation_url",)),
        ),
    ),
    Section(
        name="identity",
        title="Who we are",
        text="A secret is never typed here: name the environment variable that holds it.",
        fields=(
            Field(
                name="auth",
                label="How we sign in",
                kind="choice",
                default="none",
                words=(
                    ("none", "Not at all"),
                    ("bearer", "Bearer token"),
                    ("basic", "User and password"),
                    ("header", "A header of its own"),
                ),
                places=("authorization",),
            ),
            Field(
                name="variable",
                label="Variable of the secret",
                hint="In capitals, such as SHOP_TOKEN. SHOP_TOKEN_FILE may hold a file’s path instead.",
                places=("credentials",),
            ),
            Field(
                name="user", label="User", hint="Only with user and password.", places=("authorization.user",)
            ),
            Field(
                name="auth_header", label="Header", hint="Only with a header of its own.", places=("headers",)
            ),
        ),
    ),
    Section(
        name="key",
        title="The idempotency key",
        text="Write down only what is promised: a wrong promise here is a second effect later.",
        fields=(
            Field(
                name="key_format",
                label="How the key travels",
                kind="choice",
                default="header_bare",
                words=_words(
                    KeyFormat,
                    {
                        "none": "No key is honoured",
                        "header_bare": "In a header",
                        "header_quoted": "In a header, in double quotes",
                        "body_field": "In a member of the body",
                    },
                ),
                places=("contract.key_format",),
            ),
            Field(
                name="key_field",
                label="Header or member",
                hint="Such as Idempotency-Key; empty without a key.",
                default="Idempotency-Key",
                places=("contract.key_field",),
            ),
            Field(
                name="key_scope",
                label="Inside what it is recognised",
                kind="choice",
                default="account",
                words=_words(KeyScope, {"none": "nothing (no key)"}),
                places=("contract.key_scope",),
            ),
            Field(
                name="window_kind",
                label="How long it is recognised",
                kind="choice",
                default="documented",
                words=_words(
                    WindowKind,
                    {
                        "documented": "for a documented time",
                        "minimum": "at least for a time",
                        "none": "no key",
                    },
                ),
                places=("contract.window_kind",),
            ),
            Field(
                name="dedup_window",
                label="That time, from the first send",
                hint="With its unit: 24 h, 7 d.",
                places=("contract.dedup_window_ms",),
            ),
            Field(
                name="window_margin",
                label="Taken off its end",
                hint="For clocks and travel.",
                default="5 min",
                places=("contract.window_margin_ms",),
            ),
            Field(
                name="on_other_payload",
                label="The same key with other content is",
                kind="choice",
                default="unknown",
                words=_words(OnOtherPayload, {}),
                places=("contract.on_other_payload",),
            ),
            Field(
                name="on_in_flight",
                label="The same key while the first runs",
                kind="choice",
                default="unknown",
                words=_words(OnInFlight, {}),
                places=("contract.on_in_flight",),
            ),
            Field(
                name="replays",
                label="The same key afterwards gets",
                kind="choice",
                default="unknown",
                words=_words(Replays, {"nothing": "nothing (no key)"}),
                places=("contract.replays", "contract.rejection_replays"),
            ),
            *_sources("key"),
        ),
        sourced=(
            "key_field",
            "key_format",
            "key_scope",
            "dedup_window_ms",
            "window_kind",
            "window_margin_ms",
            "on_other_payload",
            "on_in_flight",
            "replays",
        ),
    ),
    Section(
        name="send",
        title="Sending",
        text="The request that asks for the effect. The operation’s payload is its body.",
        fields=(
            Field(
                name="send_method",
                label="Method",
                kind="choice",
                default="POST",
                words=(("POST", "POST"), ("PUT", "PUT"), ("PATCH", "PATCH")),
                places=("send.request.method",),
            ),
            Field(
                name="send_path",
                label="Path",
                hint="Below the base URL, such as /orders or /orders/{payload.order}/refund.",
                places=("send.request.path", "send.request"),
            ),
            Field(
                name="reference_at",
                label="Member for our id",
                hint="Where the operation’s id is added, such as external_id or metadata.operation.",
                places=("send.request.add",),
            ),
            Field(
                name="encoding",
                label="Body as",
                kind="choice",
                default="json",
                words=(("json", "JSON"), ("form", "a form")),
                places=("send.request.encoding",),
            ),
            Field(
                name="console_sends",
                label="The console may carry out a retry",
                kind="switch",
                places=("console_sends",),
            ),
            Field(
                name="worker_sends",
                label="What a worker puts into its own request",
                hint="A sentence for the people who write one.",
                places=("worker_sends",),
            ),
        ),
    ),
    Section(
        name="answers",
        title="What an answer says",
        text="JSONPaths, such as $.id. What the provider doesn’t show stays empty.",
        fields=(
            Field(
                name="receipt_at",
                label="The record, in the reply",
                hint="$ where the reply is the record.",
                default="$",
                places=("send.answer.receipt_at",),
            ),
            Field(name="receipt_id", label="Its id", default="$.id", places=("contract.receipt.id",)),
            Field(name="receipt_key", label="Our key", places=("contract.receipt.key",)),
            Field(
                name="receipt_reference",
                label="Our id",
                hint="As it was sent.",
                places=("contract.receipt.reference", "contract.receipt.our_reference"),
            ),
            Field(name="amount_at", label="Amount, in minor units", places=("contract.receipt.amount",)),
            Field(name="currency_at", label="Currency", places=("contract.receipt.currency",)),
            Field(
                name="status_at",
                label="Status",
                hint="Empty where a record is always success.",
                places=("contract.success_when.path", "contract.success_when"),
            ),
            Field(
                name="succeeded",
                label="Values that mean success",
                hint="Separated by commas.",
                places=("contract.success_when.succeeded",),
            ),
            Field(
                name="refused",
                label="Values that mean: ended without effect",
                hint="Separated by commas. Every other value is not final.",
                places=("contract.success_when.refused",),
            ),
            Field(
                name="match_fields",
                label="What must be equal",
                kind="lines",
                hint="One a line: the payload’s path = the record’s, such as $.quantity = $.quantity.",
                places=("contract.match_fields",),
            ),
            Field(
                name="exists_statuses",
                label="Error answers that prove that it exists",
                hint="Status codes, separated by commas, such as 409. Empty: none.",
                places=("contract.proves_existence",),
            ),
            Field(
                name="exists_at",
                label="… only where",
                hint="A JSONPath into the error, such as $.error.code.",
            ),
            Field(name="exists_values", label="… has one of", hint="Separated by commas."),
            *_sources("answers"),
        ),
        sourced=("proves_existence", "match_fields", "success_when", "receipt"),
    ),
    Section(
        name="lookup",
        title="Looking it up",
        text="One GET request that only reads. Without it a person has to find out.",
        fields=(
            Field(
                name="lookup",
                label="How it is found",
                kind="choice",
                default="by_reference",
                words=_words(
                    LookupKind,
                    {
                        "none": "It can’t be looked up",
                        "by_key": "by our key, exactly",
                        "by_reference": "by our id, exactly",
                        "by_listing": "in a list over a period",
                        "by_search": "by a search that lags or ranks",
                        "by_resemblance": "by likeness alone",
                    },
                ),
                places=("contract.lookup", "lookup"),
            ),
            Field(
                name="lookup_path",
                label="Path",
                hint="Such as /orders or /orders/by-key/{key}.",
                places=("lookup.request.path", "lookup.request"),
            ),
            Field(
                name="lookup_query",
                label="Parameters",
                kind="lines",
                hint="One a line, such as external_id = {operation} or key = {key}.",
                places=("lookup.request.query",),
            ),
            Field(
                name="items",
                label="The records, in the answer",
                hint="The list itself: $.data. $ where the answer is one record or the list.",
                default="$",
                places=("lookup.answer.items",),
            ),
            Field(
                name="more",
                label="Where it says that there are more",
                hint="Such as $.has_more.",
                places=("lookup.answer.more",),
            ),
            Field(
                name="not_found_statuses",
                label="Statuses that mean “not found”",
                hint="Separated by commas, such as 404.",
                places=("lookup.answer.not_found_statuses",),
            ),
            Field(
                name="visibility_lag",
                label="How late an effect may appear",
                hint="With its unit: 5 s. Empty where nobody states it.",
                places=("contract.visibility_lag_ms",),
            ),
            Field(
                name="lookup_retention",
                label="How long it can be asked",
                hint="With its unit: 30 d. Empty where nobody states it.",
                places=("contract.lookup_retention_ms",),
            ),
            Field(
                name="absence_is_proof",
                label="“Not found” proves absence",
                kind="switch",
                hint="Almost never. A wrong yes is a second effect.",
                places=("contract.absence_is_proof",),
            ),
            *_sources("lookup"),
        ),
        sourced=("lookup", "visibility_lag_ms", "lookup_retention_ms", "absence_is_proof"),
    ),
    Section(
        name="limits",
        title="Limits",
        text="Together the last three make the quiet time, before which no retry starts.",
        fields=(
            Field(
                name="rate",
                label="Lookups a second",
                default="5",
                places=("contract.rate_limit_per_second",),
            ),
            Field(
                name="start_within",
                label="A sender starts within",
                default="10 s",
                places=("contract.start_within_ms",),
            ),
            Field(
                name="request_within",
                label="A request takes at most",
                default="20 s",
                places=("contract.request_within_ms",),
            ),
            Field(
                name="in_flight_bound",
                label="It may still take effect for",
                hint="After the request has ended.",
                default="30 s",
                places=("contract.in_flight_bound_ms",),
            ),
            *_sources("limits"),
        ),
        sourced=("rate_limit_per_second", "start_within_ms", "request_within_ms", "in_flight_bound_ms"),
    ),
)
FIELDS: Final[tuple[Field, ...]] = tuple(one for section in SECTIONS for one in section.fields)
BY_NAME: Final[dict[str, Field]] = {one.name: one for one in FIELDS}


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
            inner += ["", f"[{'.'.join(here)}]", *_table(value, here)]
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
