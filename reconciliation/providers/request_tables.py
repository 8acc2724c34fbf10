"""The requests of a declared provider: how one is made for a tool, and what its answer means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from reconciliation.contracts import AnswerPattern
from reconciliation.providers.contract_table import read_patterns
from reconciliation.providers.tables import Table, found_text
from reconciliation.providers.templates import Template

LOOKUP_WITHIN_MS = 10_000
# The name under which the request for every other tool is kept.
EVERY_TOOL = ""

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}\Z")
# Headers that belong to the transport, or that would let a request mean something else on its way.
_FORBIDDEN_HEADERS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


class Encoding(StrEnum):
    """How a request's body is written."""

    JSON = "json"  # application/json; the payload's canonical bytes where no body is declared
    FORM = "form"  # application/x-www-form-urlencoded; a nested member is written outer[inner]


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestTemplate:
    """One declared request; `body` is a JSON value whose texts are templates, None for the payload."""

    method: str
    path: Template
    query: tuple[tuple[str, Template], ...] = ()
    headers: tuple[tuple[str, Template], ...] = ()
    encoding: Encoding = Encoding.JSON
    body: Any = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerRules:
    """What an answer to a send means where the default taxonomy doesn't know; the first match counts."""

    unknown: tuple[AnswerPattern, ...] = ()
    rejected: tuple[AnswerPattern, ...] = ()
    receipt: tuple[AnswerPattern, ...] = ()
    receipt_at: str = "$"
    replay_header: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LookupRules:
    """How to read the answer to a question. `items` must be one list or one object, or nothing follows."""

    items: str = "$"
    more: str | None = None
    not_found_statuses: tuple[int, ...] = ()
    within_ms: int = LOOKUP_WITHIN_MS


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpDeclaration:
    """What the declared HTTP adapter needs beyond the account: requests by tool ("" is every other tool)."""

    headers: tuple[tuple[str, Template], ...]
    sends: Mapping[str, RequestTemplate]
    answers: AnswerRules
    lookups: Mapping[str, RequestTemplate]
    lookup: LookupRules
    redact_names: tuple[str, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    def send_for(self, tool: str) -> RequestTemplate | None:
        return self.sends.get(tool) or self.sends.get(EVERY_TOOL)

    def lookup_for(self, tool: str) -> RequestTemplate | None:
        return self.lookups.get(tool) or self.lookups.get(EVERY_TOOL)


def is_free_header(name: str) -> bool:
    """Whether a declaration may set this header."""
    return _HEADER_NAME.match(name) is not None and name.lower() not in _FORBIDDEN_HEADERS


# --- requests --------------------------------------------------------------------------------------------


def read_requests(
    table: Table, secrets: Iterable[str], *, methods: tuple[str, ...], default_method: str
) -> dict[str, RequestTemplate]:
    """`[….request]` for every tool, `[….requests."tool"]` for one."""
    requests = {}
    default = table.table("request")
    if default is not None:
        requests[EVERY_TOOL] = _request(default, secrets, methods=methods, default_method=default_method)
    by_tool = table.table("requests")
    if by_tool is not None:
        for tool, value in by_tool.members().items():
            if not isinstance(value, dict):
                by_tool.fault(tool, found=found_text(value), allowed="a table with path and perhaps more")
                continue
            requests[tool] = _request(
                by_tool.inner(tool, value), secrets, methods=methods, default_method=default_method
            )
    if not requests:
        table.fault("request", found="nothing", allowed="a table with path, or requests by tool")
    return requests


def _request(
    table: Table, secrets: Iterable[str], *, methods: tuple[str, ...], default_method: str
) -> RequestTemplate:
    secrets = tuple(secrets)
    method = table.text("method", default_method)
    if method not in methods:
        table.fault("method", found=found_text(method), allowed=", ".join(methods))
    path = table.template("path", secrets=secrets)
    allowed = "a path that starts with /, without query or fragment"
    if path.source and (not path.source.startswith("/") or set(path.source) & set("?# ")):
        table.fault("path", found=found_text(path.source), allowed=allowed)
    if path.uses_secret:
        table.fault("path", found="a secret", allowed="secrets in headers only: URLs end up in logs")
    sends_body = method != "GET"
    request = RequestTemplate(
        method=method,
        path=path,
        query=_query(table, secrets),
        headers=read_headers(table, "headers", secrets),
        encoding=table.choice("encoding", Encoding, Encoding.JSON) if sends_body else Encoding.JSON,
        body=_body(table, secrets) if sends_body else None,
    )
    table.finish()
    return request


def _query(table: Table, secrets: tuple[str, ...]) -> tuple[tuple[str, Template], ...]:
    inner = table.table("query")
    if inner is None:
        return ()
    pairs = []
    for name, value in inner.members().items():
        if not isinstance(value, str):
            inner.fault(name, found=found_text(value), allowed="text")
            continue
        template = inner.as_template(name, value, secrets=secrets)
        if template.uses_secret:
            inner.fault(name, found="a secret", allowed="secrets in headers only: URLs end up in logs")
        pairs.append((name, template))
    return tuple(pairs)


def read_headers(table: Table, name: str, secrets: Iterable[str]) -> tuple[tuple[str, Template], ...]:
    inner = table.table(name)
    if inner is None:
        return ()
    pairs = []
    for header, value in inner.members().items():
        if not is_free_header(header):
            inner.fault(header, found="this name", allowed="a header that isn't the transport's own")
        elif not isinstance(value, str):
            inner.fault(header, found=found_text(value), allowed="text")
        else:
            pairs.append((header, inner.as_template(header, value, secrets=secrets)))
    return tuple(pairs)


def _body(table: Table, secrets: tuple[str, ...]) -> Any:
    body = table.table("body")
    return None if body is None else _templated(body, dict(body.members()), "body", secrets)


def _templated(table: Table, value: Any, name: str, secrets: tuple[str, ...]) -> Any:
    """The declared body with its texts as templates; everything else stays as it is."""
    match value:
        case dict():
            return {key: _templated(table, inner, key, secrets) for key, inner in value.items()}
        case list():
            return [_templated(table, inner, name, secrets) for inner in value]
        case str():
            return table.as_template(name, value, secrets=secrets)
        case bool() | int() | float():
            return value
        case _:
            table.fault(name, found=found_text(value), allowed="text, number, true, false, list or table")
            return None


def read_answers(send: Table) -> AnswerRules:
    table = send.table("answer")
    if table is None:
        send.finish()
        return AnswerRules()
    rules = AnswerRules(
        unknown=read_patterns(table, "unknown"),
        rejected=read_patterns(table, "rejected"),
        receipt=read_patterns(table, "receipt"),
        receipt_at=table.path("receipt_at", "$") or "$",
        replay_header=table.optional_text("replay_header"),
    )
    table.finish()
    send.finish()
    return rules


def read_lookup_rules(lookup: Table) -> LookupRules:
    table = lookup.table("answer")
    rules = LookupRules()
    if table is not None:
        rules = LookupRules(
            items=table.path("items", "$") or "$",
            more=table.path("more"),
            not_found_statuses=table.statuses("not_found_statuses"),
            within_ms=table.whole("within_ms", LOOKUP_WITHIN_MS, low=100, high=60_000),
        )
        table.finish()
    lookup.finish()
    return rules
