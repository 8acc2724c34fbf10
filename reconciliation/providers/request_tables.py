"""The requests of a declared provider: how one is made for a tool, and what its answer means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import unquote

from reconciliation.contracts import AnswerPattern
from reconciliation.providers.contract_table import read_patterns
from reconciliation.providers.tables import Table, found_text
from reconciliation.providers.templates import Template

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
    """One declared request; `body` is a JSON value whose texts are templates, None for the payload.

    A parameter may stand in `query` more than once, as lists of values do.
    """

    method: str
    path: Template
    query: tuple[tuple[str, Template], ...] = ()
    headers: tuple[tuple[str, Template], ...] = ()
    encoding: Encoding = Encoding.JSON
    body: Any = None
    # Members that are laid over the payload, for what of ours has to travel with it.
    add: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerRules:
    """What an answer to a send means where the default taxonomy doesn't know; the first match counts."""

    unknown: tuple[AnswerPattern, ...] = ()
    rejected: tuple[AnswerPattern, ...] = ()
    receipt: tuple[AnswerPattern, ...] = ()
    receipt_at: str = "$"
    # The header that marks an answer from memory; with `replay_values`, only where it holds one of them.
    replay_header: str | None = None
    replay_values: tuple[str, ...] = ()


def is_free_header(name: str) -> bool:
    """Whether a declaration may set this header."""
    return _HEADER_NAME.match(name) is not None and name.lower() not in _FORBIDDEN_HEADERS


# --- requests --------------------------------------------------------------------------------------------


def read_requests(
    table: Table, known: Iterable[str], *, methods: tuple[str, ...], default_method: str
) -> dict[str, RequestTemplate]:
    """`[….request]` for every tool, `[….requests."tool"]` for one; `known` are the file's placeholders."""
    known = tuple(known)
    requests = {}
    default = table.table("request")
    if default is not None:
        requests[EVERY_TOOL] = _request(default, known, methods=methods, default_method=default_method)
    by_tool = table.table("requests")
    if by_tool is not None:
        for tool, value in by_tool.members().items():
            if not isinstance(value, dict):
                by_tool.fault(tool, found=found_text(value), allowed="a table with path and perhaps more")
                continue
            requests[tool] = _request(
                by_tool.inner(tool, value), known, methods=methods, default_method=default_method
            )
    if not requests:
        table.fault("request", found="nothing", allowed="a table with path, or requests by tool")
    return requests


def _request(
    table: Table, known: tuple[str, ...], *, methods: tuple[str, ...], default_method: str
) -> RequestTemplate:
    method = table.text("method", default_method)
    if method not in methods:
        table.fault("method", found=found_text(method), allowed=", ".join(methods))
    if default_method == "GET" and table.flag("only_reads", False) != (method != "GET"):
        table.fault(
            "only_reads",
            found=f"{'nothing' if method != 'GET' else 'true'} beside method {method}",
            allowed="true for a question that is put by POST and changes nothing, and only there",
        )
    path = table.template("path", known=known)
    allowed = "a path that starts with /, without query or fragment"
    if path.source and (not path.source.startswith("/") or set(_literal(path)) & set("?# ")):
        table.fault("path", found=found_text(path.source), allowed=allowed)
    elif any(unquote(segment) in (".", "..") for segment in path.source.split("/")):
        allowed = "a path without . and .. segments, which clients resolve away"
        table.fault("path", found=found_text(path.source), allowed=allowed)
    if path.uses_secret:
        table.fault("path", found="a secret", allowed="secrets in headers only: URLs end up in logs")
    sends_body = method != "GET"
    request = RequestTemplate(
        method=method,
        path=path,
        query=_query(table, known),
        headers=read_headers(table, "headers", known),
        encoding=table.choice("encoding", Encoding, Encoding.JSON) if sends_body else Encoding.JSON,
        body=_body(table, "body", known) if sends_body else None,
        add=_body(table, "add", known) or {} if sends_body and default_method != "GET" else {},
    )
    if request.add and request.body is not None:
        table.fault(
            "add",
            found="add beside body",
            allowed="one of them: body is the whole, add goes with the payload",
        )
    if default_method == "GET" and sends_body and request.body is None:
        table.fault("body", found="nothing", allowed="the body of the question: the payload is never sent")
    table.finish()
    return request


def _literal(template: Template) -> str:
    return re.sub(r"\{[^{}]*\}", "", template.source)


def _query(table: Table, known: tuple[str, ...]) -> tuple[tuple[str, Template], ...]:
    inner = table.table("query")
    if inner is None:
        return ()
    pairs = []
    for name, value in inner.members().items():
        for one in value if isinstance(value, list) else [value]:
            if not isinstance(one, str):
                inner.fault(name, found=found_text(one), allowed="text, or a list of texts")
                continue
            template = inner.as_template(name, one, known=known)
            if template.uses_secret:
                inner.fault(name, found="a secret", allowed="secrets in headers only: URLs end up in logs")
            pairs.append((name, template))
    return tuple(pairs)


def read_headers(table: Table, name: str, known: Iterable[str]) -> tuple[tuple[str, Template], ...]:
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
            pairs.append((header, inner.as_template(header, value, known=known)))
    return tuple(pairs)


def _body(table: Table, name: str, known: tuple[str, ...]) -> Any:
    body = table.table(name)
    return None if body is None else _templated(body, dict(body.members()), name, known)


def _templated(table: Table, value: Any, name: str, known: tuple[str, ...]) -> Any:
    """The declared body with its texts as templates; everything else stays as it is."""
    match value:
        case dict():
            return {key: _templated(table, inner, key, known) for key, inner in value.items()}
        case list():
            return [_templated(table, inner, name, known) for inner in value]
        case str():
            return table.as_template(name, value, known=known)
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
        replay_values=table.words("replay_values"),
    )
    if rules.replay_values and rules.replay_header is None:
        table.fault("replay_values", found="values without replay_header", allowed="the header they are in")
    table.finish()
    send.finish()
    return rules
