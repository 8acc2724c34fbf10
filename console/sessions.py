"""Sessions of people: where each is signed in, and ending them. The only writer of `UserSession`.

A session is listed from its sign-in on. Ending one deletes it in the database, so that its next request, in
whatever process, meets none.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import structlog
from allauth.usersessions.models import UserSession
from django.contrib.sessions.models import Session
from django.db import DatabaseError, transaction
from django.db.models.functions import Now
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from console.models import Person
from runs import audit
from runs.actors import Actor
from runs.refusals import NotFound

log = structlog.get_logger(__name__)

# In a session that is listed: those of commands and tests aren't.
LISTED: Final = "listed"
# A session's last use is written at most so often by each process; a page then costs no write.
SEEN_EVERY_SECONDS: Final = 60.0
# Far more sessions than one process meets in a minute; beyond it all are written once more.
SEEN_MAX: Final = 10_000
# More sessions of one person than anybody looks through; the newest are shown.
SHOWN_MAX: Final = 50


@dataclass(frozen=True, kw_only=True)
class SignedIn:
    """One session of a person, as it is listed."""

    id: int
    address: str
    device: str
    began_at: datetime
    seen_at: datetime
    current: bool


def begin(request: HttpRequest) -> None:
    """Mark the session of a sign-in as listed; allauth has just made its row."""
    request.session[LISTED] = True


def sessions_of(person: Person, *, current_key: str | None) -> tuple[SignedIn, ...]:
    """The person's sessions that are still open, the last used first."""
    alive = Session.objects.filter(expire_date__gt=Now()).values("session_key")
    found = UserSession.objects.filter(user=person, session_key__in=alive).order_by("-last_seen_at", "-id")
    return tuple(
        SignedIn(
            id=one.pk,
            address=str(one.ip),
            device=one.user_agent,
            began_at=one.created_at,
            seen_at=one.last_seen_at,
            current=one.session_key == current_key,
        )
        for one in found[:SHOWN_MAX]
    )


def end_session(*, person: Person, session_id: int, actor: Actor) -> None:
    """End one session of the person. Owns its transaction. Raises `NotFound` for one that isn't theirs."""
    with transaction.atomic():
        found = UserSession.objects.select_for_update().filter(user=person, pk=session_id).first()
        if found is None:
            raise NotFound("There is no such session; it may have ended already.")
        _end(person, [found], actor=actor, reason="")


def end_sessions(*, person: Person, actor: Actor, but_key: str | None = None, reason: str = "") -> int:
    """End every session of the person but the one of `but_key`. Owns its transaction; returns how many."""
    with transaction.atomic():
        found = list(
            UserSession.objects.select_for_update().filter(user=person).exclude(session_key=but_key or "")
        )
        if found:
            _end(person, found, actor=actor, reason=reason)
    return len(found)


def _end(person: Person, found: list[UserSession], *, actor: Actor, reason: str) -> None:
    keys = [one.session_key for one in found]
    ended, _ = Session.objects.filter(session_key__in=keys).delete()
    UserSession.objects.filter(pk__in=[one.pk for one in found]).delete()
    audit.append(
        audit.Event(
            action="person.sessions_ended",
            actor=actor,
            subject=f"person:{person.pk}",
            after={"ended": ended},
            reason=reason,
        )
    )


# --- Last use -------------------------------------------------------------------------------------------


class _Seen:
    """When this process last wrote that a session is in use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at: dict[str, float] = {}

    def is_due(self, key: str) -> bool:
        now = time.monotonic()
        with self._lock:
            if now - self._at.get(key, -SEEN_EVERY_SECONDS) < SEEN_EVERY_SECONDS:
                return False
            if len(self._at) >= SEEN_MAX:
                self._at.clear()
            self._at[key] = now
            return True


_seen = _Seen()


def note_use(get_response: Callable[[HttpRequest], HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Middleware: note that a listed session is in use, after its request and at most once a minute."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        session = request.session
        # A session that nobody looked into has no person either.
        if session.accessed and session.session_key and session.get(LISTED):
            key = str(session.session_key)
            if _seen.is_due(key):
                _note_use(key)
        return response

    return middleware


def _note_use(key: str) -> None:
    try:
        UserSession.objects.filter(session_key=key).update(last_seen_at=Now())
    except DatabaseError as error:
        log.warning("session_use_not_noted", error=type(error).__name__)
