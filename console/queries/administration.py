"""What the pages of administration read: accounts, teams, tokens and flows, a page at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.db.models import Count, Q

from console.models import ApiToken, Person
from runs.models import Flow, Team

T = TypeVar("T")
ROWS: Final = 50
# More teams than anybody ticks boxes for.
TEAMS_MAX: Final = 500


@dataclass(frozen=True, kw_only=True)
class Listed(Generic[T]):
    """One page of rows, and the place after which the next begins; "" where there is none."""

    rows: tuple[T, ...]
    after: str


@dataclass(frozen=True, kw_only=True)
class PersonRead:
    """An account with what is read beside it."""

    person: Person
    teams: tuple[str, ...]
    factors: tuple[str, ...]
    subject: str
    twins: tuple[Person, ...]
    tokens: tuple[ApiToken, ...]


def people(*, after: str) -> Listed[Person]:
    """Accounts by login."""
    found = Person.objects.prefetch_related("teams").order_by("username")
    rows = list(found.filter(username__gt=after)[: ROWS + 1])
    return Listed(rows=tuple(rows[:ROWS]), after=rows[ROWS - 1].username if len(rows) > ROWS else "")


def person(person_id: int) -> PersonRead | None:
    found = Person.objects.filter(pk=person_id).first()
    if found is None:
        return None
    subject = SocialAccount.objects.filter(user=found).values_list("uid", flat=True).first()
    return PersonRead(
        person=found,
        teams=tuple(found.teams.order_by("slug").values_list("slug", flat=True)),
        factors=tuple(Authenticator.objects.filter(user=found).order_by("pk").values_list("type", flat=True)),
        subject=subject or "",
        twins=tuple(
            Person.objects.filter(principal=found.principal).exclude(pk=found.pk).order_by("pk")[:ROWS]
        ),
        tokens=tuple(
            ApiToken.objects.filter(person=found, revoked_at__isnull=True).order_by("-created_at")[:ROWS]
        ),
    )


def teams() -> tuple[Team, ...]:
    """Every team by its id, with how many people and flows it has."""
    counted = Team.objects.annotate(
        people_count=Count("people", distinct=True, filter=Q(people__is_active=True)),
        flow_count=Count("flows", distinct=True),
    )
    return tuple(counted.order_by("slug")[:TEAMS_MAX])


def tokens(*, after: str) -> Listed[ApiToken]:
    """Tokens, the newest first: their ids are in the order of making."""
    found = ApiToken.objects.select_related("person").order_by("-pk")
    rows = list((found.filter(pk__lt=after) if after else found)[: ROWS + 1])
    return Listed(rows=tuple(rows[:ROWS]), after=rows[ROWS - 1].pk if len(rows) > ROWS else "")


def flows(*, after: str) -> Listed[Flow]:
    """Flows of every team, in the order in which they were first seen."""
    found = Flow.objects.order_by("pk")
    rows = list((found.filter(pk__gt=after) if after else found)[: ROWS + 1])
    return Listed(rows=tuple(rows[:ROWS]), after=rows[ROWS - 1].pk if len(rows) > ROWS else "")
