"""Saved views of the queue: a name for filters, kept for oneself or shared with a team.

What is kept is the address's own words, as the queue writes them; whoever follows a view sees the cases of
their own teams, never more, whatever the view's author sees.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction
from django.db.models import Q, QuerySet

from console.models import VIEW_NAME_LENGTH, VIEW_QUERY_LENGTH, Person, SavedView, ViewReach
from runs.ids import new_id
from runs.models import Team
from runs.refusals import Invalid, NotFound, Refusal

# More would be a list to search through, not a row of tabs.
PRIVATE_MAX = 20
SHARED_MAX = 20


class ViewNameTaken(Refusal):
    """Another view of the same reach has this name, so that nobody could tell the two apart."""

    word = "view_name_taken"


class TooManyViews(Refusal):
    """A person or a team keeps as many views as are listed; one has to go before another comes."""

    word = "too_many_views"


class NotYourView(Refusal):
    """A shared view is taken away by whoever shared it, or by an administrator."""

    word = "not_your_view"


def views_of(person: Person, *, teams: Sequence[str]) -> tuple[SavedView, ...]:
    """The person's own views and those shared in their teams, by name: one query, bounded by the limits."""
    seen = Q(owner=person, reach=ViewReach.PRIVATE) | Q(team__in=teams, reach=ViewReach.SHARED)
    limit = PRIVATE_MAX + SHARED_MAX * len(teams)
    return tuple(SavedView.objects.filter(seen).select_related("owner").order_by("name", "id")[:limit])


def save_view(
    *, person: Person, teams: Sequence[str], name: str, query: str, reach: ViewReach, team: str = ""
) -> SavedView:
    """Keep these filters under a name. Owns its transaction, and locks the person's or the team's row.

    Raises `Invalid` for a name or filters of another form, `NotFound` for a team that isn't the person's,
    `ViewNameTaken` and `TooManyViews`.
    """
    name = " ".join(name.split())
    if not name or len(name) > VIEW_NAME_LENGTH or not name.isprintable():
        raise Invalid(f"A view needs a name of 1 to {VIEW_NAME_LENGTH} characters.", where="name")
    if not query or len(query) > VIEW_QUERY_LENGTH:
        raise Invalid("Only a narrowed list can be saved: choose a filter or a view first.", where="query")
    if reach is ViewReach.SHARED and team not in teams:
        raise NotFound("There is no such team among yours.")
    with transaction.atomic():
        views = _siblings(person, reach, team)
        if views.filter(name__iexact=name).exists():
            whose = f"Team {team} has" if reach is ViewReach.SHARED else "You have"
            raise ViewNameTaken(f"{whose} a view named “{name}” already. Give this one another name.")
        most = SHARED_MAX if reach is ViewReach.SHARED else PRIVATE_MAX
        if views.count() >= most:
            whose = f"Team {team} keeps" if reach is ViewReach.SHARED else "You keep"
            raise TooManyViews(f"{whose} {most} views, as many as there may be. Take one away first.")
        return SavedView.objects.create(
            id=new_id("view"),
            owner=person,
            team_id=team if reach is ViewReach.SHARED else None,
            name=name,
            query=query,
            reach=reach,
        )


def remove_view(*, person: Person, teams: Sequence[str], view_id: str, may_remove_any: bool) -> SavedView:
    """Take a view away. Raises `NotFound` for one that the person can't see, `NotYourView` for another's."""
    view = next((one for one in views_of(person, teams=teams) if one.pk == view_id), None)
    if view is None:
        raise NotFound("There is no such view that you can see.")
    if view.owner_id != person.pk and not may_remove_any:
        raise NotYourView(
            f"“{view.name}” was shared by {view.owner}. They or an administrator can take it away; "
            "nothing was changed."
        )
    SavedView.objects.filter(pk=view.pk).delete()
    return view


def _siblings(person: Person, reach: ViewReach, team: str) -> QuerySet[SavedView]:
    """The views that a new one is counted among; their keeper's row is locked, so that two can't both fit."""
    match reach:
        case ViewReach.PRIVATE:
            Person.objects.select_for_update(no_key=True).values_list("pk").get(pk=person.pk)
            return SavedView.objects.filter(owner=person, reach=reach)
        case ViewReach.SHARED:
            Team.objects.select_for_update(no_key=True).values_list("pk").get(pk=team)
            return SavedView.objects.filter(team=team, reach=reach)
