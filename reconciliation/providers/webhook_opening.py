"""What a signed notice holds, and nothing that its signature doesn't vouch for.

A body is read whole where the whole was signed. Of Adyen's items only the signed fields are: whoever recorded
one notice could write anything into the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, assert_never

from reconciliation.providers.paths import MISSING
from reconciliation.providers.webhook_schemes import Carrier
from reconciliation.providers.webhook_signing import (
    Signed,
    WebhookForged,
    check_ready,
    form_pairs,
    signed_by_any,
    verify,
)
from reconciliation.providers.webhook_table import WebhookRules
from runs.canonical import parse
from runs.refusals import Refusal

# Adyen sends one in JSON and up to six in its other forms.
ITEMS_MAX = 50
# In this order, joined by colons: Adyen's own libraries, and
# https://docs.adyen.com/development-resources/webhooks/secure-webhooks/verify-hmac-signatures
_FIELDS = (
    ("pspReference",),
    ("originalReference",),
    ("merchantAccountCode",),
    ("merchantReference",),
    ("amount", "value"),
    ("amount", "currency"),
    ("eventCode",),
    ("success",),
)
_CHOSEN_BY_THE_MERCHANT = ("merchantReference",)


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One notice of those that came together.

    `document` is what may be read, `MISSING` where it isn't strict JSON. `content` tells the same notice
    again from another one: the body, or what was signed of it. `id` is the provider's id of it where that is
    made of signed fields; else it is looked for in the document and the headers.
    """

    signed: Signed
    document: Any
    content: bytes
    id: str | None = None
    # Whether the document's and the headers' ids may be taken for it.
    id_elsewhere: bool = True


def open_notice(
    rules: WebhookRules,
    *,
    headers: Mapping[str, str],
    body: bytes,
    query: str,
    now: datetime,
    bytes_max: int,
) -> tuple[Part, ...]:
    """Check what came and take it apart: one or more, all of them signed.

    Raises `WebhookNotReady`, `WebhookForged`, `WebhookStale`; one forged item makes the whole forged.
    """
    carrier = rules.signing.carrier
    match carrier:
        case Carrier.BODY:
            signed = verify(rules, headers=headers, body=body, query=query, now=now)
            return (Part(signed=signed, document=_document(body, bytes_max), content=body),)
        case Carrier.FORM:
            signed = verify(rules, headers=headers, body=body, query=query, now=now)
            document = {
                "form": _members(form_pairs(body)),
                "query": _members(form_pairs(query.encode("latin-1", "replace"))),
            }
            # The same fields in another order, or cut elsewhere, have the same signature: they are the same.
            return (Part(signed=signed, document=document, content=signed.content, id_elsewhere=False),)
        case Carrier.ITEMS:
            check_ready(rules, now)
            return tuple(_item(rules, one, now) for one in _items(_document(body, bytes_max)))
        case _:
            assert_never(carrier)


def signed_text(item: Mapping[str, Any]) -> str | None:
    """What Adyen signs of a notification item; None where a field is neither text nor a whole number."""
    told = [_field(item, path) for path in _FIELDS]
    return None if None in told else ":".join(one for one in told if one is not None)


def _document(body: bytes, bytes_max: int) -> Any:
    try:
        return parse(body, bytes_max=bytes_max)
    except Refusal:
        return MISSING


def _members(pairs: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    """A form as an object; a name with several values has a list of them, which no path takes for a text."""
    told: dict[str, list[str]] = {}
    for name, value in pairs:
        told.setdefault(name.decode(errors="replace"), []).append(value.decode(errors="replace"))
    return {name: values[0] if len(values) == 1 else values for name, values in told.items()}


def _items(document: Any) -> Iterator[Mapping[str, Any]]:
    listed = document.get("notificationItems") if isinstance(document, dict) else None
    if not isinstance(listed, list) or not 1 <= len(listed) <= ITEMS_MAX:
        raise WebhookForged(f"The notice holds no signed items, or more than {ITEMS_MAX}.")
    for one in listed:
        item = one.get("NotificationRequestItem") if isinstance(one, dict) else None
        yield item if isinstance(item, dict) else {}


def _item(rules: WebhookRules, item: Mapping[str, Any], now: datetime) -> Part:
    beside = item.get("additionalData")
    given = beside.get("hmacSignature") if isinstance(beside, dict) else None
    text = signed_text(item)
    if text is None or not isinstance(given, str) or not given or _is_cut_elsewhere(item):
        raise WebhookForged(f"An item of the notice carries no signature in {rules.signing.header}.")
    content = text.encode(errors="replace")
    if not signed_by_any(rules, [given], content, now):
        raise WebhookForged(f"An item of the notice carries no valid signature in {rules.signing.header}.")
    document: dict[str, Any] = {}
    for path in _FIELDS:
        *within, name = path
        if (value := _field(item, path)) != "":
            place = document.setdefault(within[0], {}) if within else document
            place[name] = _value(item, path) if within else value
    named = (document.get(name, "") for name in ("pspReference", "eventCode", "success"))
    return Part(
        signed=Signed(signed_at=None, content=content),
        document=document,
        content=content,
        id=":".join(named),
        id_elsewhere=False,
    )


def _is_cut_elsewhere(item: Mapping[str, Any]) -> bool:
    """Whether the signed text could be cut in another way than this: nothing escapes the colons in it.

    What the merchant chose may hold some. None of Adyen's own parts does, and so there is one way only.
    """
    return any(":" in (_field(item, path) or "") for path in _FIELDS if path != _CHOSEN_BY_THE_MERCHANT)


def _value(item: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = item
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _field(item: Mapping[str, Any], path: tuple[str, ...]) -> str | None:
    match _value(item, path):
        case None:
            return ""
        case bool() as value:
            return "true" if value else "false"
        case int() as value:
            return str(value)
        case str() as value:
            return value
        case _:
            return None
