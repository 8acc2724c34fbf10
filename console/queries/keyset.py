"""Cursors of keyset pages: the sort key of the last row that was shown, opaque in an address."""

from __future__ import annotations

import base64
import binascii
import json
from datetime import UTC, datetime

from runs.ids import could_be_id
from runs.refusals import Invalid

CURSOR_LENGTH_MAX = 400


def pack(*parts: str | int | datetime | None) -> str:
    """Return a cursor of these values for an address."""
    plain = [one.isoformat() if isinstance(one, datetime) else one for one in parts]
    return base64.urlsafe_b64encode(json.dumps(plain).encode()).decode().rstrip("=")


def unpack(cursor: str, *kinds: type) -> tuple[object, ...]:
    """Return the values of a cursor, each of its kind (str, int or datetime); raises `Invalid`."""
    if len(cursor) > CURSOR_LENGTH_MAX:
        raise _unreadable()
    try:
        parts = json.loads(base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4)))
        if not isinstance(parts, list) or len(parts) != len(kinds):
            raise ValueError(cursor)
        return tuple(_read(part, kind) for part, kind in zip(parts, kinds, strict=True))
    except (ValueError, binascii.Error, TypeError, OverflowError, RecursionError) as error:
        raise _unreadable() from error


def _read(part: object, kind: type) -> object:
    if kind is datetime and isinstance(part, str):
        at = datetime.fromisoformat(part)
        if at.tzinfo is None:
            raise ValueError(part)
        # The first and the last day of the calendar have instants that are no dates in UTC.
        return at.astimezone(UTC)
    if kind is int and isinstance(part, int) and not isinstance(part, bool) and abs(part) < 2**63:
        return part
    if kind is str and isinstance(part, str) and could_be_id(part):
        return part
    raise ValueError(part)


def _unreadable() -> Invalid:
    return Invalid("This page's address holds a place in a list that can't be read.", where="after")
