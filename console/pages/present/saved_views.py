"""The saved views beside the queue's own, and the form that keeps another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.urls import reverse

from console.models import VIEW_NAME_LENGTH, Person, Role, SavedView, ViewReach
from console.pages.present.queue_filters import Address
from console.pages.shapes import Choice, SavedViewRow, SavedViews

# What the form's choice says before a team's name.
SHARED_PREFIX = "shared:"


@dataclass(frozen=True, kw_only=True)
class Typed:
    """What somebody had typed into the form, and why it was refused."""

    name: str = ""
    reach: str = ""
    refusal: str = ""

    def refused(self, sentence: str) -> Typed:
        return replace(self, refusal=sentence)


def saved_views_of(
    views: Sequence[SavedView], address: Address, *, person: Person, teams: Sequence[str], typed: Typed
) -> SavedViews:
    """Lay out the person's views; a list that is narrowed by nothing offers nothing to save."""
    may_remove_any = person.has_role(Role.ADMINISTRATOR)
    rows = tuple(
        SavedViewRow(
            name=view.name,
            href=f"{reverse('queue')}?{view.query}",
            current=view.query == address.query,
            note="only you"
            if view.reach == ViewReach.PRIVATE
            else f"shared in {view.team_id} by {view.owner}",
            remove_href=reverse("view_remove", args=[view.pk])
            if view.owner_id == person.pk or may_remove_any
            else "",
        )
        for view in views
    )
    offered = [(str(ViewReach.PRIVATE.value), "Only me")]
    offered += [(f"{SHARED_PREFIX}{team}", f"Everybody in {team}") for team in teams]
    return SavedViews(
        rows=rows,
        save_href=reverse("view_save") if address.query or typed.refusal else "",
        query=address.query,
        name=typed.name,
        name_length_max=VIEW_NAME_LENGTH,
        reaches=tuple(
            Choice(value=value, label=label, selected=value == typed.reach) for value, label in offered
        ),
        refusal=typed.refusal,
    )
