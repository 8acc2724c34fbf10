"""What an answer says: its body as strict JSON, whether it is of a declared kind, how long we are to wait."""

from __future__ import annotations

import email.utils
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from reconciliation.contracts import AnswerPattern
from reconciliation.providers.paths import values_at
from reconciliation.providers.transport import Answer
from runs.canonical import parse
from runs.refusals import Refusal

# A provider that asks for more than this is not obeyed to the letter.
RETRY_AFTER_MS_MAX = 24 * 3600 * 1000
# 4xx that don't say "this request had no effect": time-out, conflict (in flight, or it exists), too early or
# misdirected, too many requests, and nginx's "the client left" (RFC 9110, RFC 8470, RFC 6585).
NOT_DEFINITE = frozenset({408, 409, 421, 425, 429, 499})


@dataclass(frozen=True, kw_only=True, slots=True)
class Body:
    """An answer's body as JSON; `readable` False where it isn't whole, plain and strict JSON."""

    value: Any
    readable: bool


def read_body(answer: Answer) -> Body:
    if not answer.readable:
        return Body(value=None, readable=False)
    try:
        return Body(value=parse(answer.content), readable=True)
    except Refusal:
        return Body(value=None, readable=False)


def matches_any(
    patterns: Iterable[AnswerPattern],
    status: int,
    body: Body,
    *,
    unreadable: bool,
    headers: Mapping[str, str] | None = None,
) -> bool:
    """Whether the answer is of one of these kinds; `unreadable` is what to say where the body would tell.

    `headers` are looked up as they are: give a mapping that knows no case, or lower-case names.
    """
    return any(_matches(one, status, body, headers or {}, unreadable=unreadable) for one in patterns)


def _matches(
    pattern: AnswerPattern, status: int, body: Body, headers: Mapping[str, str], *, unreadable: bool
) -> bool:
    if pattern.statuses and status not in pattern.statuses:
        return False
    if pattern.header is not None and not has_header(headers, pattern.header, pattern.header_values):
        return False
    if pattern.path is None:
        return True
    if not body.readable:
        return unreadable
    found = values_at(pattern.path, body.value)
    if not pattern.values:
        return bool(found)
    return any(_text(value) in pattern.values for value in found if not isinstance(value, dict | list))


def has_header(headers: Mapping[str, str], name: str, values: Iterable[str]) -> bool:
    """Whether the header is there and, where `values` are named, holds one of them, whatever its case."""
    said = headers.get(name.lower())
    wanted = {one.casefold() for one in values}
    return said is not None and (not wanted or said.strip().casefold() in wanted)


def _text(value: Any) -> str:
    return "true" if value is True else "false" if value is False else str(value)


def retry_after_ms(answer: Answer) -> int | None:
    """What the provider asks us to wait, bounded; None where it says nothing that can be understood."""
    said = answer.headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,9}", said):
        return min(int(said) * 1000, RETRY_AFTER_MS_MAX)
    try:
        at = email.utils.parsedate_to_datetime(said)
    except (ValueError, TypeError, OverflowError):
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    wait_ms = int((at - datetime.now(UTC)).total_seconds() * 1000)
    return min(max(wait_ms, 0), RETRY_AFTER_MS_MAX)
