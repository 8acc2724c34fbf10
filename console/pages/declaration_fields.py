"""The fields of the form that declares a provider.

Each field names the places of the declaration that it fills, so that a fault that the reader finds is shown
beside what was typed. What the fields can't say is written as the declaration's text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

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
        Field(name=f"{section}_read_on", label="Date it was read", hint="Such as 2026-11-30."),
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
        text="A secret is never typed here: name the environment variable that holds it, one of this"
        " account’s own.",
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
                hint="INHOUSE_, the slug in capitals with _ for -, __ and a name: INHOUSE_SHOP__TOKEN."
                " INHOUSE_SHOP__TOKEN_FILE may hold a file’s path instead.",
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
                label="Those errors: where to look",
                hint="A JSONPath into the error, such as $.error.code.",
            ),
            Field(
                name="exists_values", label="Those errors: values that prove it", hint="Separated by commas."
            ),
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
