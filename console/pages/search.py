"""Search by a whole id, key or reference, or by a part of it."""

from __future__ import annotations

from typing import Final

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.utils import timezone

from console.pages.guards import Viewer, page, wants_partial
from console.pages.present.search import only_hit, search_page
from console.queries.finding import clean
from console.queries.parts import PAGE_ROWS
from console.queries.search import search as find

# As many as the palette shows without scrolling.
PALETTE_ROWS: Final = 8


@page("GET", "HEAD")
def search(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Go to what was named; list it if several things have that name, or have it as a part of theirs."""
    query = clean(request.GET.get("q", ""))
    after = request.GET.get("after", "")
    partial = wants_partial(request)
    rows_max = PALETTE_ROWS if partial else PAGE_ROWS
    hits = find(query, teams=viewer.teams, after=after, rows_max=rows_max, sole=not partial)
    if partial and not after:
        shown = search_page(hits, query, now=timezone.now())
        return render(request, "search.html#hits", {"page": shown}) if query else HttpResponse()
    target = "" if after else only_hit(hits)
    if target:
        return HttpResponseRedirect(target)
    shown = search_page(hits, query, now=timezone.now(), after=after)
    return render(request, "search.html", {"page": shown})
