"""The effect history."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from console.pages.guards import Viewer, page
from console.pages.present.effects import effects_page
from console.queries.effects import Asked, Kind, list_entries
from console.queries.finding import clean


@page("GET", "HEAD")
def effects(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """List what was recorded, newest first; filters, place and the open entry are in the address."""
    get = request.GET.get
    kind = get("kind", "")
    asked = Asked(
        kind=Kind(kind) if kind in set(Kind) else Kind.EVERYTHING,
        text=clean(get("q", "")),
        actor=clean(get("actor", "")),
        after=get("after", ""),
        entry=get("entry", "")[:20],
    )
    entries = list_entries(teams=viewer.teams, asked=asked)
    query = {name: str(value) for name, value in request.GET.items() if value}
    shown = effects_page(entries, asked, query=query, viewer_name=viewer.name)
    return render(request, "effects.html", {"page": shown})
