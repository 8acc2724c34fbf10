"""The effect history, one operation's history, and what was known when somebody decided."""

from __future__ import annotations

from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse

from console import access
from console.access import Deed
from console.pages.guards import Viewer, page
from console.pages.present.effects import effects_page
from console.pages.present.history_address import read_history
from console.pages.present.operation import known_page, operation_page
from console.queries import keyset
from console.queries.administered import ACTIONS, Administered, read_by
from console.queries.effects import Asked, list_entries
from console.queries.operation import find_entry, read_known, read_operation
from console.queries.people import Names
from console.queries.runs import external_ids_of

# No entry has a longer number.
NUMBER_DIGITS_MAX = 18


@page("GET", "HEAD")
def effects(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """List what was recorded, newest first; filters, place and the open entry are in the address."""
    address = read_history(request.GET)
    teams = () if address.unread else viewer.teams
    entries = list_entries(teams=teams, asked=address.asked, beyond=_beyond(viewer, address.asked))
    may_export = not viewer.why_not(Deed.EXPORT)
    runs = external_ids_of({one.run_ref for one in entries.leaves if one.run_ref and not one.operation_ref})
    shown = effects_page(entries, address, runs=runs, viewer_name=viewer.name, may_export=may_export)
    return render(request, "effects.html", {"page": shown})


@page("GET", "HEAD")
def effect_entry(request: HttpRequest, viewer: Viewer, number: int) -> HttpResponse:
    """Lead to where an entry stands: in its operation's history, or else in that of everything."""
    leaf = find_entry(number, teams=viewer.teams, beyond=_beyond(viewer))
    if leaf.operation_ref:
        path = reverse("effect", args=[leaf.operation_ref])
        return HttpResponseRedirect(f"{path}?entry={leaf.pk}#entry-{leaf.pk}")
    # What belongs to no team stands only where its event is asked for.
    event = {} if leaf.team_slug else {"action": leaf.action}
    beginning = urlencode({**event, "after": keyset.pack(leaf.at, leaf.pk + 1), "entry": leaf.pk})
    return HttpResponseRedirect(f"{reverse('effects')}?{beginning}#entry-{leaf.pk}")


def _beyond(viewer: Viewer, asked: Asked | None = None) -> Administered | None:
    """What this person reads of the entries of no team; None where that is nothing, or isn't asked for."""
    if not access.reads_administration(viewer.person):
        return None
    if asked is not None and not set(asked.actions) & set(ACTIONS):
        return None
    return read_by(teams=viewer.teams, everything=access.administers(viewer.person))


@page("GET", "HEAD")
def effect(request: HttpRequest, viewer: Viewer, operation_id: str) -> HttpResponse:
    """Show everything that happened to one operation, in order."""
    entry = _number(request.GET.get("entry", ""))
    begins = _number(request.GET.get("from", ""))
    read = read_operation(operation_id, teams=viewer.teams, from_leaf=begins)
    if entry and not begins and entry not in {leaf.pk for leaf in read.leaves}:
        # It stands on a later page: begin with it.
        read = read_operation(operation_id, teams=viewer.teams, from_leaf=entry)
    shown = operation_page(
        read, entry=entry, viewer_name=viewer.name, may_export=not viewer.why_not(Deed.EXPORT)
    )
    return render(request, "effect.html", {"page": shown})


@page("GET", "HEAD")
def effect_known(request: HttpRequest, viewer: Viewer, operation_id: str, decision_id: str) -> HttpResponse:
    """Show what was known when somebody decided about an operation."""
    known, now = read_known(operation_id, decision_id=decision_id, teams=viewer.teams)
    shown = known_page(known, names=Names({known.decision.actor}), now=now)
    return render(request, "effect_known.html", {"page": shown})


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= NUMBER_DIGITS_MAX else 0
