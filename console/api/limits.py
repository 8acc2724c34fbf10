"""How many calls a token may make: counted in the database, so that every process counts the same.

Time is cut into windows of ten seconds by the database's clock. A process takes calls out of a token's window
a few at a time, in one statement, and hands them out without asking again. So the limit holds however many
processes serve and however many calls come at once, and few calls cost a statement. What a process took and
didn't hand out is lost with the window, which errs towards fewer.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import ClassVar, Final

from django.conf import settings
from django.db import connection

from runs.refusals import Refusal

WINDOW_SECONDS: Final = 10
# Into how many portions a window is cut: fewer cost more statements, more leave more calls in a process.
PORTIONS: Final = 50
# Far more tokens than one process meets in a window; beyond it every portion is taken anew.
TOKENS_MAX: Final = 10_000

_TAKE = """
    INSERT INTO console_tokencalls AS known (token_id, window_number, given)
    SELECT %(token)s, clock.number, %(portion)s
    FROM (SELECT floor(extract(epoch FROM clock_timestamp()) / %(seconds)s)::bigint AS number) AS clock
    ON CONFLICT (token_id) DO UPDATE SET
        window_number = greatest(known.window_number, excluded.window_number),
        given = %(portion)s
            + CASE WHEN known.window_number >= excluded.window_number THEN known.given ELSE 0 END
    WHERE known.window_number < excluded.window_number OR known.given + %(portion)s <= %(limit)s
    RETURNING token_id
"""
_LEFT = "SELECT %(seconds)s - mod(extract(epoch FROM clock_timestamp()), %(seconds)s)"


class RateLimited(Refusal):
    """The token made as many calls in these ten seconds as it may; the details say when the next are due."""

    word: ClassVar[str] = "rate_limited"


@dataclass
class _Portion:
    left: int
    until: float


class _Portions:
    """The calls that this process may still hand out, by token, until their window ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_token: dict[str, _Portion] = {}

    def spend(self, token_id: str) -> bool:
        with self._lock:
            found = self._by_token.get(token_id)
            if found is None or found.left < 1 or time.monotonic() >= found.until:
                return False
            found.left -= 1
            return True

    def put(self, token_id: str, *, calls: int, until: float) -> None:
        with self._lock:
            if len(self._by_token) >= TOKENS_MAX:
                self._by_token.clear()
            known = self._by_token.get(token_id)
            if known is not None and time.monotonic() < known.until:
                # Another thread took one in the same moment; both end with the earlier, which errs to fewer.
                calls, until = calls + known.left, min(until, known.until)
            self._by_token[token_id] = _Portion(left=calls, until=until)

    def forget(self) -> None:
        with self._lock:
            self._by_token.clear()


portions = _Portions()


def count_call(token_id: str) -> None:
    """Count one call of the token. Raises `RateLimited`, with `retry_after_ms`, when its window is spent."""
    if portions.spend(token_id):
        return
    limit = max(1, round(settings.RECOURSE_API_CALLS_PER_MINUTE * WINDOW_SECONDS / 60))
    portion = max(1, limit // PORTIONS)
    asked: dict[str, str | int] = {
        "token": token_id,
        "portion": portion,
        "limit": limit,
        "seconds": WINDOW_SECONDS,
    }
    # Before the statement: the window that it is taken from ends no earlier than this says.
    began = time.monotonic()
    with connection.cursor() as cursor:
        cursor.execute(_LEFT, asked)
        left_seconds = float(cursor.fetchone()[0])
        cursor.execute(_TAKE, asked)
        taken = cursor.fetchone() is not None
    if not taken:
        raise RateLimited(
            f"This token may make {limit} calls in {WINDOW_SECONDS} seconds, and it made them.",
            retry_after_ms=max(1, round(left_seconds * 1000)),
            calls_max=limit,
            window_seconds=WINDOW_SECONDS,
        )
    portions.put(token_id, calls=portion - 1, until=began + left_seconds)
