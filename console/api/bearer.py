"""Who calls: a bearer token, looked up by its hash, and what its scopes let it do.

A browser's session never authenticates the API, so no forged form can. Tokens that only journal and read
are remembered for a few seconds in each process, because a worker's every call would ask the same; one that
can decide, or that is a person's, is looked up at each call, so that revoking it, its person or their role
counts at once.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import structlog
from django.db import DatabaseError, connection
from django.db.models import Exists, F, OuterRef
from django.db.models.functions import Now
from django.http import HttpRequest
from ninja.security import HttpBearer

from console import access
from console.access import Deed
from console.api import limits
from console.models import ApiToken, Person, Scope, hash_secret
from runs.actors import Actor, ActorKind
from runs.refusals import Refusal

log = structlog.get_logger(__name__)

# A revoked worker's token works for at most this long in a process that has just seen it.
REMEMBERED_SECONDS = 5.0
# Far more than one process meets; beyond it everything is forgotten and looked up again.
REMEMBERED_MAX = 10_000
# Longer than any secret that we make; longer ones aren't hashed.
SECRET_LENGTH_MAX = 200
USED_EVERY_SECONDS = 60


class Unauthorized(Refusal):
    """The bearer token is missing, unknown, expired or revoked."""

    word: ClassVar[str] = "unauthorized"


class ScopeMissing(Refusal):
    """The token, or the role of its person, doesn't include this call."""

    word: ClassVar[str] = "forbidden"


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Whose call it is: a token of one team; with scope `decide`, the person behind it."""

    token_id: str
    team: str
    scopes: frozenset[str]
    person: Person | None = None

    @property
    def actor(self) -> Actor:
        """The person for a token that decides, the token otherwise."""
        if self.person is not None and Scope.DECIDE in self.scopes:
            return access.person_actor(self.person)
        return Actor(ActorKind.TOKEN, self.token_id)

    @property
    def name(self) -> str:
        return str(self.person) if self.person is not None else ""


class Bearer(HttpBearer):
    """Lets a call pass for tokens that hold at least one of `scopes`; sets `request.auth` to the `Caller`.

    A token that decides acts in its person's name, so their roles must include the `deed` as well.
    """

    def __init__(self, *scopes: Scope, deed: Deed) -> None:
        super().__init__()
        self.scopes = frozenset(str(scope) for scope in scopes)
        self.deed = deed

    def __call__(self, request: HttpRequest) -> Caller:
        kind, _, secret = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() != "bearer" or not secret.strip():
            raise Unauthorized("This call needs a bearer token: Authorization: Bearer rec_…")
        return self.authenticate(request, secret.strip())

    def authenticate(self, request: HttpRequest, token: str) -> Caller:
        caller = _find(token)
        limits.count_call(caller.token_id)
        if self.scopes.isdisjoint(caller.scopes):
            needed = " or ".join(sorted(self.scopes))
            raise ScopeMissing(
                f"This call needs a token with scope {needed}; this one has "
                f"{', '.join(sorted(caller.scopes))}.",
                needed=sorted(self.scopes),
                held=sorted(caller.scopes),
            )
        if Scope.DECIDE in caller.scopes:
            self._require_role(caller, self.deed)
        elif caller.person is not None:
            # Whoever may open no page reads nothing by a token of theirs either.
            self._require_role(caller, Deed.VIEW)
        return caller

    def _require_role(self, caller: Caller, deed: Deed) -> None:
        person = caller.person
        if person is None or not access.may(person, deed):
            roles = sorted(access.ROLES_BY_DEED[deed])
            raise ScopeMissing(
                f"This call is for people with the role {' or '.join(roles)}.", needed_roles=roles
            )


def caller_of(request: HttpRequest) -> Caller:
    """The caller that `Bearer` let pass."""
    caller = getattr(request, "auth", None)
    if not isinstance(caller, Caller):
        raise AssertionError("a call without Bearer")
    return caller


# --- looking a token up ---------------------------------------------------------------------------------


class _Remembered:
    """Callers of tokens that can't decide, by hash, each until an instant of the process's own clock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callers: dict[str, tuple[Caller, float]] = {}

    def get(self, digest: str) -> Caller | None:
        found = self._callers.get(digest)
        return found[0] if found is not None and time.monotonic() < found[1] else None

    def put(self, digest: str, caller: Caller, *, seconds: float) -> None:
        with self._lock:
            if len(self._callers) >= REMEMBERED_MAX:
                self._callers.clear()
            self._callers[digest] = (caller, time.monotonic() + seconds)

    def forget(self) -> None:
        with self._lock:
            self._callers.clear()


remembered = _Remembered()


def _find(secret: str) -> Caller:
    digest = hash_secret(secret) if len(secret) <= SECRET_LENGTH_MAX else ""
    caller = remembered.get(digest)
    if caller is not None:
        return caller
    row: Any = (
        ApiToken.objects.usable()
        .filter(secret_sha256=digest)
        .annotate(
            left=F("expires_at") - Now(),
            lately=F("last_used_at") + timedelta(seconds=USED_EVERY_SECONDS) - Now(),
            # A person who left the team, or may not log in any more, decides nothing with an old token.
            in_team=Exists(
                Person.objects.filter(pk=OuterRef("person"), is_active=True, teams=OuterRef("team"))
            ),
        )
        .select_related("person")
        .first()
    )
    if row is None or (row.person is not None and not row.in_team):
        raise Unauthorized("This token is unknown, expired or revoked.")
    caller = Caller(token_id=row.pk, team=row.team_id, scopes=frozenset(row.scopes), person=row.person)
    if row.lately is None or row.lately <= timedelta():
        _note_used(row.pk)
    # A person's token ends with them at once, whatever it may do.
    if Scope.DECIDE not in caller.scopes and caller.person is None:
        remembered.put(digest, caller, seconds=min(REMEMBERED_SECONDS, row.left.total_seconds()))
    return caller


def _note_used(token_id: str) -> None:
    """Note that the token is in use, at most once a minute; whoever finds the row locked leaves it."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE console_apitoken SET last_used_at = clock_timestamp() WHERE id IN"
                " (SELECT id FROM console_apitoken WHERE id = %s FOR UPDATE SKIP LOCKED)",
                [token_id],
            )
    except DatabaseError as error:
        log.warning("token_use_not_noted", token=token_id, error=type(error).__name__)
