"""What the pages of administration read: accounts, teams, tokens, flows and who may use which
provider account, a page at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.db.models import Count, Prefetch, Q

from console.models import ApiToken, Person
from reconciliation.models import Case
from reconciliation.states import CaseState
from runs.models import AccountTeam, Flow, ProviderAccount, Team

T = TypeVar("T")
ROWS: Final = 50
# More teams than anybody ticks boxes for.
TEAMS_MAX: Final = 500
# Open cases of one account are looked through up to so many.
CASES_MAX: Final = 10_000
_OPEN: Final = tuple(str(state) for state in CaseState if state is not CaseState.RESOLVED)


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


@dataclass(frozen=True, kw_only=True)
class AccountRead:
    """A provider account and the teams that are named for it; none where every team may use it.

    `open_cases` counts those of each team that has some, up to `CASES_MAX` in all; only for one account.
    """

    account: ProviderAccount
    named: tuple[AccountTeam, ...]
    open_cases: Mapping[str, int]

    @property
    def teams(self) -> tuple[str, ...]:
        return tuple(one.team_id for one in self.named)


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


def accounts(*, after: str) -> Listed[AccountRead]:
    """The journal's provider accounts by their ids, with who may use each."""
    found = ProviderAccount.objects.prefetch_related(
        Prefetch("named", AccountTeam.objects.order_by("team_id"))
    ).order_by("pk")
    rows = list(found.filter(pk__gt=after)[: ROWS + 1])
    return Listed(
        rows=tuple(
            AccountRead(account=one, named=tuple(one.named.all()), open_cases={}) for one in rows[:ROWS]
        ),
        after=rows[ROWS - 1].pk if len(rows) > ROWS else "",
    )


def account(slug: str) -> AccountRead | None:
    """One account, with how many open cases each team has there."""
    found = ProviderAccount.objects.filter(pk=slug).first()
    if found is None:
        return None
    # By an index that begins with the team.
    cases = Case.objects.filter(
        team__in=list(Team.objects.values_list("pk", flat=True)), provider_slug=slug, state__in=_OPEN
    )
    return AccountRead(
        account=found,
        named=tuple(AccountTeam.objects.filter(account=found).order_by("team_id")),
        open_cases=Counter(cases.order_by().values_list("team_id", flat=True)[:CASES_MAX]),
    )


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
