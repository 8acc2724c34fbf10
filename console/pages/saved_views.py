"""Keep the queue's filters under a name, and take such a name away."""

from __future__ import annotations

from urllib.parse import parse_qsl

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from console import saved_views
from console.models import Role, ViewReach
from console.pages.forms import clean
from console.pages.guards import Viewer, is_given_back, page
from console.pages.present.queue_filters import read_address
from console.pages.present.saved_views import SHARED_PREFIX, Typed
from console.pages.queue import show_queue
from runs.refusals import Invalid, NotFound

# The query string of a form that nobody made by hand is far shorter.
QUERY_TAKEN_MAX = 4_000


@page("POST", gives_back=True)
def view_save(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Save the list that the form was shown over; a refusal keeps the name that was typed."""
    words = dict(parse_qsl(clean(request.POST.get("query", ""))[:QUERY_TAKEN_MAX]))
    # A view has no place in its list: it starts at the top.
    address = read_address({**words, "after": ""}, me=viewer.actor.id)
    typed = Typed(name=clean(request.POST.get("name", ""))[:200], reach=request.POST.get("reach", ""))
    if is_given_back(request):
        return show_queue(request, viewer, address, typed=typed)
    shared = typed.reach.startswith(SHARED_PREFIX)
    try:
        view = saved_views.save_view(
            person=viewer.person,
            teams=viewer.teams,
            name=typed.name,
            query=address.query,
            reach=ViewReach.SHARED if shared else ViewReach.PRIVATE,
            team=typed.reach.removeprefix(SHARED_PREFIX) if shared else "",
        )
    except (saved_views.ViewNameTaken, saved_views.TooManyViews) as refusal:
        return show_queue(request, viewer, address, typed=typed.refused(refusal.sentence), status=409)
    except (Invalid, NotFound) as refusal:
        return show_queue(request, viewer, address, typed=typed.refused(refusal.sentence), status=422)
    messages.success(request, f"Saved as “{view.name}”.")
    return HttpResponseRedirect(address.href())


@page("POST")
def view_remove(request: HttpRequest, viewer: Viewer, view_id: str) -> HttpResponse:
    """Take a saved view away; the cases that it lists stay as they are."""
    try:
        view = saved_views.remove_view(
            person=viewer.person,
            teams=viewer.teams,
            view_id=view_id,
            may_remove_any=viewer.person.has_role(Role.ADMINISTRATOR),
        )
    except saved_views.NotYourView as refusal:
        address = read_address({}, me=viewer.actor.id)
        return show_queue(request, viewer, address, typed=Typed().refused(refusal.sentence), status=403)
    messages.success(request, f"The view “{view.name}” is gone. Its cases are as they were.")
    return HttpResponseRedirect(read_address({}, me=viewer.actor.id).href())
