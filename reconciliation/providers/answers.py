"""What an answer says: its body as strict JSON, whether it is of a declared kind, how long we are to wait."""

from __future__ import annotations

import email.utils
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from reconciliation.contracts import AnswerPattern
from reconciliation.providers.paths import Missing, value_at
from reconciliation.providers.transport import Answer
from runs.canonical import parse
from runs.refusals import Refusal

# A provider that asks for more than this is not obeyed to the letter.
RETRY_AFTER_MS_MAX = 24 * 3600 * 1000


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


def matches_any(patterns: Iterable[AnswerPattern], status: int, body: Body, *, unreadable: bool) -> bool:
    """Whether the answer is of one of these kinds; `unreadable` is what to say where the body would tell."""
    return any(_matches(one, status, body, unreadable=unreadable) for one in patterns)


def _matches(pattern: AnswerPattern, status: int, body: Body, *, unreadable: bool) -> bool:
    if pattern.statuses and status not in pattern.statuses:
        return False
    if pattern.path is None:
        return True
    if not body.readable:
        return unreadable
    value = value_at(pattern.path, body.value)
    if isinstance(value, Missing):
        return False
    if not pattern.values:
        return True
    text = "true" if value is True else "false" if value is False else str(value)
    return not isinstance(value, dict | list) and text in pattern.values


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
