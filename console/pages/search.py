"""Search by exact id, key or reference."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.utils import timezone

from console.pages.guards import Viewer, page, wants_partial
from console.pages.present.search import only_hit, search_page
from console.queries.finding import clean
from console.queries.search import search as find


@page("GET", "HEAD")
def search(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Go to what was named; list it if several things have that name."""
    query = clean(request.GET.get("q", ""))
    hits = find(query, teams=viewer.teams)
    if wants_partial(request):
        shown = search_page(hits, query, now=timezone.now())
        return render(request, "search.html#hits", {"page": shown}) if query else HttpResponse()
    target = only_hit(hits)
    if target:
        return HttpResponseRedirect(target)
    return render(request, "search.html", {"page": search_page(hits, query, now=timezone.now())})
