"""Tokens as people make and revoke them, each with its leaf in the audit log."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from django.db import transaction
from django.db.models.functions import Now

from console.models import ApiToken, NewToken, Person, Scope, create_token
from runs import audit
from runs.actors import Actor
from runs.journal.evidence import storable_text
from runs.locking import database_now
from runs.models import NAME_LENGTH, Team
from runs.refusals import Invalid, NotFound

if TYPE_CHECKING:
    # It revokes whose account it closes, so it needs this module.
    from console.people import By

# A token that nobody has thought about for a year should stop working.
DAYS_MAX: Final = 366
DAYS_DEFAULT: Final = 90


def make_token(
    *,
    by: By,
    team: str,
    name: str,
    scopes: Collection[Scope],
    days: int,
    person_id: int | None = None,
) -> NewToken:
    """Make a token of a team. Owns its transaction. Its secret is in the answer and stored nowhere.

    Raises `NotFound` for a team or person that there isn't, `Invalid`, `NotAnAdministrator`.
    """
    from console.people import require_still

    said = " ".join(storable_text(name).split())
    if not 1 <= len(said) <= NAME_LENGTH or not said.isprintable():
        raise Invalid(f"A token needs a name of 1 to {NAME_LENGTH} characters.", where="name")
    if not 1 <= days <= DAYS_MAX:
        raise Invalid(f"A token lasts 1 to {DAYS_MAX} days.", where="days")
    with transaction.atomic():
        found = Team.objects.filter(pk=team).first()
        if found is None:
            raise NotFound("There is no such team.", where="team")
        person = None
        if person_id is not None:
            # Held, so that closing the person finds every token of theirs.
            rows = Person.objects.select_for_update(no_key=True, of=("self",))
            person = rows.filter(pk=person_id, is_active=True, teams=found).first()
            if person is None:
                raise NotFound("There is no such person in the token’s team.", where="person")
        # After the lock: whoever was closed while they waited makes no token.
        require_still(by)
        until = database_now() + timedelta(days=days)
        made = create_token(team=found, name=said, scopes=scopes, expires_at=until, person=person)
        note_made(made.token, actor=by.actor)
    return made


def note_made(token: ApiToken, *, actor: Actor) -> None:
    """Note in the caller's transaction that a token was made, and what it may do."""
    audit.append(
        audit.Event(
            action="token.made",
            actor=actor,
            team=token.team_id,
            subject=token.pk,
            after={
                "name": token.name,
                "scopes": list(token.scopes),
                "expires_at": token.expires_at.isoformat(),
                **({"person": f"person:{token.person_id}"} if token.person_id else {}),
            },
        )
    )


def revoke_token(*, by: By, token_id: str, reason: str = "") -> ApiToken:
    """Revoke a token; one that is revoked stays as it is. Owns its transaction.

    Raises `NotFound`, `NotAnAdministrator`.
    """
    from console.people import require_still

    with transaction.atomic():
        token = ApiToken.objects.select_for_update().filter(pk=token_id).first()
        require_still(by)
        if token is None:
            raise NotFound("There is no such token.")
        if token.revoked_at is None:
            _revoke([token], actor=by.actor, reason=reason)
    token.refresh_from_db()
    return token


def revoke_all_of(*, person: Person, actor: Actor, reason: str) -> int:
    """Revoke every token that is the person's, in the caller's transaction; returns how many."""
    found = list(ApiToken.objects.select_for_update().filter(person=person, revoked_at__isnull=True))
    _revoke(found, actor=actor, reason=reason)
    return len(found)


def _revoke(found: list[ApiToken], *, actor: Actor, reason: str) -> None:
    ApiToken.objects.filter(pk__in=[token.pk for token in found]).update(revoked_at=Now())
    for token in found:
        audit.append(
            audit.Event(
                action="token.revoked", actor=actor, team=token.team_id, subject=token.pk, reason=reason
            )
        )
