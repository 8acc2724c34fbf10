"""Calls to the journal's HTTP API: every one can be repeated identically, and is, within bounds.

A lost answer, a 5xx, 408, 425 or 429 is followed by the same bytes to the same address, after a pause that
grows. Nothing else is repeated, no redirect is followed, and no call here ever makes an effect: that is
your function's, which is called once.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from recourse_client.clock import Clock, boot_seconds
from recourse_client.errors import (
    JournalUnreachable,
    NotConfigured,
    NotJson,
    RateLimited,
    Refusal,
    SendingFrozen,
    refusal_from,
)
from recourse_client.outcomes import Json

API_ROOT = "/api/v1"
# The same call again may find the journal well after any of these; after other statuses it would not.
_REPEATABLE_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
# A call that is written in one statement and answered in some ms; a journal that needs longer is in
# trouble, and the repeat is safe.
_SECONDS_PER_TRY = 10.0
_CONNECT_SECONDS = 5.0


@dataclass(frozen=True)
class Patience:
    """How long one call is repeated: whichever bound is met first ends it. Pauses are jittered."""

    tries_max: int = 6
    total_seconds: float = 30.0
    first_pause_seconds: float = 0.2
    # Also the cap on a Retry-After that the journal asks for.
    pause_seconds_max: float = 5.0

    def pause_seconds(self, *, tries: int, asked_for: float | None) -> float:
        """Return the pause after this many tries: growing, jittered by half, at least what was asked for."""
        full: float = min(self.pause_seconds_max, self.first_pause_seconds * 2 ** min(tries - 1, 16))
        pause = full * random.uniform(0.5, 1.0)  # noqa: S311 (spreads load, guards nothing)
        return max(pause, min(asked_for or 0.0, self.pause_seconds_max))


ONCE = Patience(tries_max=1)


@dataclass(frozen=True)
class Answer:
    """A 2xx answer. `asked_at` is the clock's time before the *first* try left."""

    status: int
    body: dict[str, Any]
    asked_at: float
    tries: int


def encode(body: Json) -> bytes:
    """Return compact JSON in UTF-8; raises `NotJson` for what strict JSON can't hold."""
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:  # ValueError includes lone surrogates
        raise NotJson(f"this has no strict JSON form: {error}") from error


class Journal:
    """The journal at one address, asked with one bearer token. Safe to use from several threads."""

    def __init__(
        self,
        *,
        url: str,
        token: str,
        user_agent: str,
        patience: Patience | None = None,
        seconds_per_try: float = _SECONDS_PER_TRY,
        clock: Clock = boot_seconds,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = _root(url)
        self.clock = clock
        self._patience = patience or Patience()
        self._pause = pause
        self._seconds_per_try = seconds_per_try
        if not token.isascii() or not token.isprintable() or not token:
            raise NotConfigured("the bearer token is empty or has characters that no header can carry")
        self._http = httpx.Client(
            headers={
                "Authorization": f"Bearer {token}",
                "Accept": "application/json, application/problem+json",
                "User-Agent": user_agent,
            },
            follow_redirects=False,
        )

    def close(self) -> None:
        self._http.close()

    def post(
        self,
        path: str,
        body: Json,
        *,
        patience: Patience | None = None,
        seconds_per_try: float | None = None,
        until: float | None = None,
    ) -> Answer:
        """POST a JSON body and return the answer; see `ask` for `patience` and `until`."""
        return self.ask(
            "POST",
            path,
            content=encode(body),
            patience=patience,
            seconds_per_try=seconds_per_try,
            until=until,
        )

    def get(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        patience: Patience | None = None,
        seconds_per_try: float | None = None,
    ) -> Answer:
        return self.ask("GET", path, query=query, patience=patience, seconds_per_try=seconds_per_try)

    def ask(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        query: Mapping[str, str] | None = None,
        patience: Patience | None = None,
        seconds_per_try: float | None = None,
        until: float | None = None,
    ) -> Answer:
        """Ask, repeating identically while that can help, until patience ends or the clock shows `until`.

        Raises a `Refusal` for what the journal refused, `JournalUnreachable` when no usable answer came.
        """
        patience = patience or self._patience
        per_try = seconds_per_try or self._seconds_per_try
        asked_at = self.clock()
        gives_up_at = asked_at + patience.total_seconds
        if until is not None:
            gives_up_at = min(gives_up_at, until)
        tries = 0
        while True:
            tries += 1
            left = gives_up_at - self.clock()
            limit = max(0.05, min(per_try, left)) if until is not None else per_try
            try:
                outcome = self._try(method, path, content=content, query=query, limit=limit)
            except Refusal as refusal:
                refusal.tries = tries
                raise
            if isinstance(outcome, tuple):
                status, body = outcome
                return Answer(status=status, body=body, asked_at=asked_at, tries=tries)
            pause = patience.pause_seconds(tries=tries, asked_for=outcome.retry_after)
            if tries >= patience.tries_max or self.clock() + pause >= gives_up_at:
                spent = self.clock() - asked_at
                raise JournalUnreachable(
                    f"{method} {path}: no usable answer after {tries} tries in {spent:.1f} s;"
                    f" the last was: {outcome.what}",
                    tries=tries,
                    status=outcome.status,
                ) from outcome.cause
            self._pause(pause)

    def _try(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None,
        query: Mapping[str, str] | None,
        limit: float,
    ) -> tuple[int, dict[str, Any]] | _Unusable:
        headers = {"Content-Type": "application/json"} if content is not None else {}
        timeout = httpx.Timeout(limit, connect=min(limit, _CONNECT_SECONDS))
        try:
            response = self._http.request(
                method, self.url + path, content=content, params=query, headers=headers, timeout=timeout
            )
        except httpx.RequestError as error:
            return _Unusable(what=f"{type(error).__name__}: {error}", cause=error)
        return _read(response)


@dataclass(frozen=True)
class _Unusable:
    """A try that gave no verdict."""

    what: str
    status: int | None = None
    cause: Exception | None = None
    retry_after: float | None = None


def _read(response: httpx.Response) -> tuple[int, dict[str, Any]] | _Unusable:
    status = response.status_code
    try:
        body = json.loads(response.content)
    except (ValueError, RecursionError):
        body = None
    document: dict[str, Any] | None = body if isinstance(body, dict) else None
    retry_after = _seconds(response.headers.get("Retry-After"))
    if 200 <= status < 300:
        if document is not None:
            return status, document
        return _Unusable(what=f"a {status} that isn't the journal's JSON", status=status)
    if retry_after is not None and document is not None:
        document.setdefault("retry_after_seconds", retry_after)
    refusal = refusal_from(status=status, problem=document or {})
    if _final(refusal, status=status):
        raise refusal
    return _Unusable(what=str(refusal), status=status, cause=refusal, retry_after=retry_after)


def _final(refusal: Refusal, *, status: int) -> bool:
    if isinstance(refusal, SendingFrozen):
        return True
    if isinstance(refusal, RateLimited):
        return False
    return status not in _REPEATABLE_STATUSES and status < 500


def _seconds(retry_after: str | None) -> float | None:
    """Return a Retry-After in seconds; its other form, a date, would need a clock that agrees with theirs."""
    if retry_after is None or not retry_after.isdecimal() or len(retry_after) > 9:
        return None
    return float(retry_after)


def _root(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError) as error:
        raise NotConfigured(f"the journal's address is no URL: {error}") from error
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise NotConfigured("the journal's address must begin with http:// or https:// and name a host")
    if parsed.userinfo or parsed.query or parsed.fragment:
        raise NotConfigured("the journal's address takes no user, query or fragment: the token stands apart")
    bare = url.rstrip("/")
    return bare if bare.endswith(API_ROOT) else bare + API_ROOT
