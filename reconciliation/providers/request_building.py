"""Making a declared request for one operation: its URL, headers and body."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from reconciliation.contracts import KeyFormat
from reconciliation.providers.base import OutgoingOperation
from reconciliation.providers.declaration import Declared
from reconciliation.providers.environment import AuthScheme
from reconciliation.providers.paths import MISSING, Missing
from reconciliation.providers.request_tables import Encoding, RequestTemplate
from reconciliation.providers.templates import Template, Values, ValueUnusable
from reconciliation.providers.transport import Call
from runs.canonical import canonical_bytes

_BRACKET = re.compile(r"[\[\]]")
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
    if template.add:
        body = _laid_over(_members(body), template.add, values, "payload")
    as_it_is = template.body is None and not template.add
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


def build_question(
    declared: Declared,
    template: RequestTemplate,
    values: Values,
    *,
    within_ms: int,
    page: Iterable[tuple[str, str]] = (),
) -> Call:
    """The request that only asks; raises `ValueUnusable` where it can't be put.

    `page` are the parameters that ask for a further page; each replaces the declared one of its name.
    """
    headers = list(declared_headers(declared, template, values))
    content = b""
    pairs = tuple(page)
    if template.method != "GET":
        body = {**_members(_render(template.body or {}, values)), **dict(pairs)}
        pairs = ()
        content, media_type = _encoded(template, body)
        headers.append(("Content-Type", media_type))
    return Call(
        method=template.method,
        url=url_of(declared, template, values, page=pairs),
        headers=tuple(headers),
        content=content,
        within_seconds=within_ms / 1000,
    )


def _encoded(template: RequestTemplate, body: Mapping[str, Any]) -> tuple[bytes, str]:
    """A declared body as it travels, and its media type."""
    if template.encoding is Encoding.FORM:
        return urlencode(list(_form_pairs(body))).encode("ascii"), "application/x-www-form-urlencoded"
    return canonical_bytes(body), "application/json"


def build_absence(
    declared: Declared, template: RequestTemplate, operation: OutgoingOperation, values: Values
) -> Call:
    """The request that makes sure that the effect isn't there; raises `ValueUnusable` where it can't be made.

    Only what is declared is in it, never the payload; without a declared body it has none.
    """
    headers = list(declared_headers(declared, template, values))
    content = b""
    if template.body is not None:
        content, media_type = _encoded(template, _members(_render(template.body, values)))
        headers.append(("Content-Type", media_type))
    return Call(
        method=template.method,
        url=url_of(declared, template, values),
        headers=tuple(headers),
        content=content,
        within_seconds=operation.request_within_ms / 1000,
        start_by=operation.start_by,
    )


def declared_headers(
    declared: Declared, template: RequestTemplate, values: Values
) -> tuple[tuple[str, str], ...]:
    """The account's headers and the request's own, with their values, and who we are where that is simple."""
    headers = [(name, value.header(values)) for name, value in (*declared.http.headers, *template.headers)]
    authorization = declared.http.authorization
    if authorization is not None and authorization.scheme is not AuthScheme.CLIENT_CREDENTIALS:
        headers.append(("Authorization", authorization.header(values)))
    return tuple(headers)


def url_of(
    declared: Declared, template: RequestTemplate, values: Values, *, page: Iterable[tuple[str, str]] = ()
) -> str:
    """The whole URL, every value encoded for its place; a parameter without a value isn't there."""
    further = tuple(page)
    replaced = {name for name, _ in further}
    pairs = [
        (name, value.text(values))
        for name, value in template.query
        if name not in replaced and not value.left_out(values)
    ]
    query = "&".join(
        f"{quote(name, safe='[]')}={quote(value, safe='')}" for name, value in (*pairs, *further)
    )
    url = f"{declared.account.base_url}{template.path.path(values)}"
    return f"{url}?{query}" if query else url


def _laid_over(
    payload: Mapping[str, Any], added: Mapping[str, Any], values: Values, where: str
) -> dict[str, Any]:
    """The payload with the declared members laid over it, table by table; lists are made longer.

    A member that the payload has already is replaced only by a template that takes it up: what was asked for
    must not be lost without a word.
    """
    whole = dict(payload)
    for name, value in added.items():
        here = f"{where}.{name}"
        present = whole.get(name, MISSING)
        if isinstance(value, dict) and isinstance(present, Mapping | Missing):
            inner = {} if isinstance(present, Missing) else present
            whole[name] = _laid_over(inner, value, values, here)
            continue
        if isinstance(value, list) and isinstance(present, list):
            whole[name] = [*present, *_render(value, values)]
            continue
        if isinstance(value, Template) and value.left_out(values):
            continue
        takes_it_up = isinstance(value, Template) and here in value.names
        if not isinstance(present, Missing) and not takes_it_up:
            raise ValueUnusable(f"there is a {here} already, where the declaration puts its own")
        whole[name] = _render(value, values)
    return whole


def _members(body: Any) -> Mapping[str, Any]:
    if not isinstance(body, Mapping):
        raise ValueUnusable("the payload is not an object, and the declared request needs its members")
    return body


def _render(body: Any, values: Values) -> Any:
    match body:
        case Template():
            return body.json(values)
        case dict():
            return {
                name: _render(inner, values)
                for name, inner in body.items()
                if not (isinstance(inner, Template) and inner.left_out(values))
            }
        case list():
            return [_render(inner, values) for inner in body]
        case _:
            return body


def _form_pairs(body: Any, prefix: str = "") -> Iterable[tuple[str, str]]:
    """Name and value of each leaf: `metadata[operation]=op_1`, and `items[0]=a` for lists.

    A member whose own name reads like a part of its neighbour would take that part's place at the provider.
    """
    match body:
        case Mapping():
            for name, inner in body.items():
                whole, bracket, _ = _BRACKET.sub("[", str(name)).partition("[")
                if bracket and whole in body:
                    raise ValueUnusable(
                        f"a form can't tell the member {name[:60]!r} from a part of {whole!r}"
                    )
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
