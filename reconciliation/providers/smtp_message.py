"""An e-mail as bytes, made from an operation's payload: the same bytes for every attempt.

Nothing in them comes from the clock of the attempt or from chance: Message-ID and MIME boundary follow from
the operation's key, and the date is when the operation was minted.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email import policy
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Any

from runs.ids import ALPHABET, RANDOM_BITS, ULID_LENGTH

# What RFC 5321 (section 4.5.3.1.8) makes every server take.
RECIPIENTS_MAX = 100
# Long headers are folded; this is only there so that nobody sends a book as a subject.
HEADER_LENGTH_MAX = 998

# A longer boundary would be folded in a way that old readers don't understand.
BOUNDARY_LENGTH = 32

_LISTS = ("to", "cc", "bcc", "reply_to")
_MEMBERS = ("from", *_LISTS, "subject", "text", "html")
# One address without quotes, comments or routes. What isn't ASCII needs SMTPUTF8, which few relays pass on.
_ADDRESS = re.compile(
    r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?\Z"
)
_NAMED = re.compile(r'\s*(?:"(?P<quoted>[^"\\]*)"|(?P<name>[^<>",;@]*?))\s*<(?P<address>[^<>\s]+)>\s*\Z')
# Bodies are sent in seven bits whatever they hold, so that no server has to offer more.
_POLICY = policy.SMTP.clone(cte_type="7bit")


class MessageUnusable(ValueError):
    """The payload is no e-mail that can be sent; the text says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mail:
    """What goes over the wire: the envelope, and the message with CRLF line ends, not yet dot-stuffed."""

    sender: str
    recipients: tuple[str, ...]
    message_id: str
    content: bytes


def message_id_of(key: str, domain: str) -> str:
    """The Message-ID of the operation with this key (RFC 5322, section 3.6.4)."""
    return f"<{key}@{domain}>"


def compose(payload: object, *, key: str, operation_id: str, domain: str, envelope_from: str = "") -> Mail:
    """Make the mail; raises `MessageUnusable`.

    The payload has `from`, `to`, `subject` and `text` or `html` or both; perhaps `cc`, `bcc` and `reply_to`.
    Addresses are texts such as `ada@example.com` or `Ada <ada@example.com>`, lists of them where there may be
    several. Another member is refused: it would be silently left out of what was asked for.
    """
    if not isinstance(payload, Mapping):
        raise MessageUnusable("the payload is not an object")
    if unknown := [name for name in payload if name not in _MEMBERS]:
        raise MessageUnusable(
            f"the payload has {unknown[0][:60]!r}, and only {', '.join(_MEMBERS)} are known"
        )
    sender = _addresses(payload, "from", required=True)
    if len(sender) != 1:
        raise MessageUnusable("from is not one address")
    lists = {name: _addresses(payload, name, required=name == "to") for name in _LISTS}
    recipients = tuple(dict.fromkeys(one.addr_spec for name in ("to", "cc", "bcc") for one in lists[name]))
    if len(recipients) > RECIPIENTS_MAX:
        raise MessageUnusable(f"more than {RECIPIENTS_MAX} recipients")
    message_id = message_id_of(key, domain)
    message = EmailMessage(policy=_POLICY)
    try:
        message["From"] = sender
        message["To"] = lists["to"]
        for name, header in (("cc", "Cc"), ("reply_to", "Reply-To")):
            if lists[name]:
                message[header] = lists[name]
        message["Subject"] = _text(payload, "subject", required=True, length_max=HEADER_LENGTH_MAX)
        message["Message-ID"] = message_id
        if (minted_at := _minted_at(operation_id)) is not None:
            message["Date"] = format_datetime(minted_at)
        _fill(message, payload, key)
        content = message.as_bytes(policy=_POLICY)
    except (ValueError, MessageError, UnicodeError, LookupError) as error:
        if isinstance(error, MessageUnusable):
            raise
        raise MessageUnusable(f"it can't be written as an e-mail: {error}") from None
    return Mail(
        sender=envelope_from or sender[0].addr_spec,
        recipients=recipients,
        message_id=message_id,
        content=content,
    )


def _fill(message: EmailMessage, payload: Mapping[str, Any], key: str) -> None:
    text = _text(payload, "text", required="html" not in payload)
    html = _text(payload, "html", required=False)
    if text is not None:
        message.set_content(text)
        if html is not None:
            message.add_alternative(html, subtype="html")
            # The library would draw one by chance; a line of the body can't hold this one but on purpose.
            digest = hashlib.sha256(f"boundary {key}".encode()).hexdigest()
            message.set_boundary(f"=_{digest[:BOUNDARY_LENGTH]}")
    elif html is not None:
        message.set_content(html, subtype="html")


def _addresses(payload: Mapping[str, Any], name: str, *, required: bool) -> list[Address]:
    written = payload.get(name)
    if written is None and not required:
        return []
    several = written if isinstance(written, list) and name != "from" else [written]
    found = [_address(one, name) for one in several]
    if not found and required:
        raise MessageUnusable(f"{name} is empty")
    return found


def _address(written: object, name: str) -> Address:
    if not isinstance(written, str):
        raise MessageUnusable(f"{name} is not an address in text")
    named = _NAMED.match(written)
    bare = named["address"] if named else written.strip()
    if not _ADDRESS.match(bare) or ".." in bare:
        raise MessageUnusable(f"{name} has {written[:80]!r}, which is not a plain address")
    shown = (named["quoted"] or named["name"] or "").strip() if named else ""
    if not shown.isprintable():
        raise MessageUnusable(f"{name} has a name with characters that can't be shown")
    return Address(display_name=shown, addr_spec=bare)


def _text(payload: Mapping[str, Any], name: str, *, required: bool, length_max: int = 0) -> str | None:
    value = payload.get(name)
    if value is None and not required:
        return None
    if not isinstance(value, str):
        raise MessageUnusable(f"{name} is not text")
    if length_max and len(value) > length_max:
        raise MessageUnusable(f"{name} is longer than {length_max} characters")
    return value


def _minted_at(operation_id: str) -> datetime | None:
    """When the operation was minted, which its id says; None for an id of another form."""
    ulid = operation_id.rpartition("_")[2]
    if len(ulid) != ULID_LENGTH or not set(ulid) <= set(ALPHABET):
        return None
    number = 0
    for character in ulid:
        number = number * 32 + ALPHABET.index(character)
    try:
        return datetime.fromtimestamp((number >> RANDOM_BITS) // 1000, tz=UTC)
    except (OverflowError, OSError, ValueError):
        return None
