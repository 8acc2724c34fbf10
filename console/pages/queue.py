"""The queue of cases."""

from __future__ import annotations

from datetime import UTC, datetime

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from console.pages.guards import Viewer, page
from console.pages.present.queue import news_of, queue_page
from console.pages.present.queue_filters import read_address
from console.queries.queue import count_new, list_cases
from runs.refusals import Invalid


@page("GET", "HEAD")
def queue(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """List the cases of a view; filters and place are in the address."""
    address = read_address(request.GET)
    listed = list_cases(teams=viewer.teams, asked=address.asked)
    return render(request, "queue.html", {"page": queue_page(listed, address)})


@page("GET", "HEAD")
def queue_news(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """The pill that says how many cases came into this list since it was read; it moves no row."""
    address = read_address(request.GET)
    count = count_new(teams=viewer.teams, asked=address.asked, since=_since(request.GET.get("since", "")))
    return render(request, "queue.html#news", {"page": {"news": news_of(count, href=address.href())}})


def _since(text: str) -> datetime:
    try:
        since = datetime.fromisoformat(text)
        if since.tzinfo is None:
            raise ValueError(since)
        # The first and the last day of the calendar have instants that are no dates in UTC.
        return since.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise Invalid("The time since which to look can't be read.", where="since") from error
