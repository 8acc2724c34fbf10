"""The effect history."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from console.pages.guards import Viewer, page
from console.pages.present.effects import effects_page
from console.pages.present.history_address import read_history
from console.queries.effects import list_entries


@page("GET", "HEAD")
def effects(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """List what was recorded, newest first; filters, place and the open entry are in the address."""
    address = read_history(request.GET)
    teams = () if address.unread else viewer.teams
    entries = list_entries(teams=teams, asked=address.asked)
    shown = effects_page(entries, address, viewer_name=viewer.name)
    return render(request, "effects.html", {"page": shown})
