"""Making a declared request for one operation: its URL, headers and body."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from reconciliation.contracts import KeyFormat
from reconciliation.providers.base import OutgoingOperation
from reconciliation.providers.declaration import Declared
from reconciliation.providers.request_tables import Encoding, RequestTemplate
from reconciliation.providers.templates import Template, Values, ValueUnusable
from reconciliation.providers.transport import Call
from runs.canonical import canonical_bytes

_ESCAPED_IN_STRING = re.compile(r'[\\"]')


def build_send(
    declared: Declared, template: RequestTemplate, operation: OutgoingOperation, values: Values
) -> Call:
    """The request that asks for the effect; raises `ValueUnusable` or a refusal where it can't be made.

    The same operation gives the same bytes every time: nothing in it depends on the attempt or the clock.
    """
    headers = [*declared_headers(declared, template, values)]
    contract = declared.account.contract
    name = contract.key_field or ""
    body = operation.payload if template.body is None else _render(template.body, values)
    as_it_is = template.body is None
    match contract.key_format:
        case KeyFormat.HEADER_BARE:
            headers.append((name, Template("{key}").header(values)))
        case KeyFormat.HEADER_QUOTED:
            # RFC 8941, section 3.3.3: a string in double quotes, with both of these escaped.
            escaped = _ESCAPED_IN_STRING.sub(r"\\\g<0>", Template("{key}").header(values))
            headers.append((name, f'"{escaped}"'))
        case KeyFormat.BODY_FIELD:
            body = {**_members(body), name: operation.idempotency_key}
            as_it_is = False
        case KeyFormat.NONE:
            pass
    if template.encoding is Encoding.FORM:
        content = urlencode(list(_form_pairs(_members(body)))).encode("ascii")
        headers.append(("Content-Type", "application/x-www-form-urlencoded"))
    else:
        content = operation.payload_bytes if as_it_is else canonical_bytes(body)
        headers.append(("Content-Type", "application/json"))
    return Call(
        method=template.method,
        url=url_of(declared, template, values),
        headers=tuple(headers),
        content=content,
        within_seconds=operation.request_within_ms / 1000,
        start_by=operation.start_by,
    )


def build_question(declared: Declared, template: RequestTemplate, values: Values) -> Call:
    """The request that only asks; raises `ValueUnusable` where it can't be put."""
    return Call(
        method=template.method,
        url=url_of(declared, template, values),
        headers=declared_headers(declared, template, values),
        content=b"",
        within_seconds=declared.http.lookup.within_ms / 1000,
    )


def declared_headers(
    declared: Declared, template: RequestTemplate, values: Values
) -> tuple[tuple[str, str], ...]:
    """The account's headers and the request's own, with their values."""
    return tuple((name, value.header(values)) for name, value in (*declared.http.headers, *template.headers))


def url_of(declared: Declared, template: RequestTemplate, values: Values) -> str:
    """The whole URL, every value encoded for its place."""
    query = "&".join(
        f"{quote(name, safe='[]')}={quote(value.text(values), safe='')}" for name, value in template.query
    )
    url = f"{declared.account.base_url}{template.path.path(values)}"
    return f"{url}?{query}" if query else url


def _members(body: Any) -> Mapping[str, Any]:
    if not isinstance(body, Mapping):
        raise ValueUnusable("the payload is not an object, and the declared request needs its members")
    return body


def _render(body: Any, values: Values) -> Any:
    match body:
        case Template():
            return body.json(values)
        case dict():
            return {name: _render(inner, values) for name, inner in body.items()}
        case list():
            return [_render(inner, values) for inner in body]
        case _:
            return body


def _form_pairs(body: Any, prefix: str = "") -> Iterable[tuple[str, str]]:
    """Name and value of each leaf: `metadata[operation]=op_1`, and `items[0]=a` for lists."""
    match body:
        case Mapping():
            for name, inner in body.items():
                yield from _form_pairs(inner, f"{prefix}[{name}]" if prefix else str(name))
        case list():
            for number, inner in enumerate(body):
                yield from _form_pairs(inner, f"{prefix}[{number}]")
        case None:
            return
        case bool():
            yield prefix, "true" if body else "false"
        case _:
            yield prefix, str(body)
