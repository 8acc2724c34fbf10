"""The queue of cases."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import cast

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import get_conditional_response

from console.access import DEEDS_IN_BULK, Deed
from console.pages.drafts import shown_facts
from console.pages.guards import Viewer, page
from console.pages.present.queue import NONE_CHOSEN, Chosen, news_of, queue_page
from console.pages.present.queue_filters import Address, read_address
from console.pages.present.queue_frame import stats_of, waits_of
from console.pages.present.saved_views import Typed, saved_views_of
from console.queries.backlog import backlog_of
from console.queries.queue import count_new, list_cases
from console.saved_views import views_of
from runs.refusals import Invalid


@page("GET", "HEAD")
def queue(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """List the cases of a view; filters and place are in the address."""
    return show_queue(request, viewer, read_address(request.GET, me=viewer.actor.id))


def show_queue(
    request: HttpRequest,
    viewer: Viewer,
    address: Address,
    *,
    typed: Typed | None = None,
    chosen: Chosen = NONE_CHOSEN,
    status: int = 200,
) -> HttpResponse:
    """The whole page; after a refusal with what was typed about saved views, or with the rows chosen."""
    listed = list_cases(teams=viewer.teams, asked=address.asked)
    saved = saved_views_of(
        views_of(viewer.person, teams=viewer.teams),
        address,
        person=viewer.person,
        teams=viewer.teams,
        typed=typed or Typed(),
    )
    typed_kept = shown_facts(request.POST) if typed is not None and not saved.save_href else ()
    deeds = [deed for deed, needed in DEEDS_IN_BULK.items() if not viewer.why_not(needed)]
    shown = queue_page(
        listed,
        address,
        saved=saved,
        deeds=deeds,
        chosen=chosen,
        may_work=not viewer.why_not(Deed.WORK),
    )
    return render(request, "queue.html", {"page": shown, "typed_kept": typed_kept}, status=status)


@page("GET", "HEAD")
def queue_news(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """The pill that says how many cases came since the list was read, and the counts; neither moves a row."""
    address = read_address(request.GET, me=viewer.actor.id)
    count = count_new(teams=viewer.teams, asked=address.asked, since=_since(request.GET.get("since", "")))
    backlog = backlog_of(teams=viewer.teams)
    page = {
        "news": news_of(count, href=address.href()),
        "stats": stats_of(backlog, now=datetime.now(UTC)),
        "waits": waits_of(backlog),
    }
    response = render(request, "partials/queue_news.html", {"page": page})
    # Most of the time nothing has changed: the browser keeps the last answer, and asks only whether it holds.
    response["Cache-Control"] = "private, no-cache"
    etag = f'"{hashlib.sha256(response.content).hexdigest()}"'
    response["ETag"] = etag
    unchanged = get_conditional_response(request, etag=etag, response=response)
    return cast("HttpResponse", unchanged)


def _since(text: str) -> datetime:
    try:
        since = datetime.fromisoformat(text)
        if since.tzinfo is None:
            raise ValueError(since)
        # The first and the last day of the calendar have instants that are no dates in UTC.
        return since.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise Invalid("The time since which to look can't be read.", where="since") from error
