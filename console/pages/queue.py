"""The queue of cases."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from console.pages.guards import Viewer, page
from console.pages.present.queue import AGES, news_of, queue_page
from console.queries.backlog import new_since
from console.queries.finding import clean
from console.queries.queue import Asked, View, list_cases
from runs.refusals import Invalid

AMOUNT_LENGTH_MAX = 16


@page("GET", "HEAD")
def queue(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """List the cases of a view; filters and place are in the address."""
    asked = _asked(request)
    listed = list_cases(teams=viewer.teams, asked=asked)
    query = {name: str(value) for name, value in request.GET.items() if name != "after" and value}
    shown = queue_page(
        listed,
        asked,
        age=request.GET.get("age", ""),
        minimum=request.GET.get("min", ""),
        query=query,
        read_until=listed.now.isoformat(),
    )
    return render(request, "queue.html", {"page": shown})


@page("GET", "HEAD")
def queue_news(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """The pill that says how many cases came since the list was read; it moves no row."""
    try:
        since = datetime.fromisoformat(request.GET.get("since", ""))
        if since.tzinfo is None:
            raise ValueError(since)
        # The first and the last day of the calendar have instants that are no dates in UTC.
        since = since.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise Invalid("The time since which to look can't be read.", where="since") from error
    count = new_since(teams=viewer.teams, since=since)
    news = news_of(count, href=reverse("queue"))
    return render(request, "queue.html#news", {"page": {"news": news}})


def _asked(request: HttpRequest) -> Asked:
    """What the address asks for; a filter that can't be read asks for nothing."""
    get = request.GET.get
    view = get("view", "")
    return Asked(
        view=View(view) if view in set(View) else View.NEEDS_DECISION,
        text=clean(get("q", "")),
        provider=clean(get("provider", "")),
        flow=clean(get("flow", "")),
        shows=clean(get("shows", "")),
        amount_min=_amount(get("min", "")),
        waiting_min=AGES.get(get("age", "")),
        after=get("after", ""),
    )


def _amount(text: str) -> Decimal | None:
    """ "1,240.00" or "€ 1240" as a number of major units."""
    plain = "".join(one for one in text[:AMOUNT_LENGTH_MAX] if one in "0123456789.")
    try:
        return Decimal(plain) if plain else None
    except InvalidOperation:
        return None
