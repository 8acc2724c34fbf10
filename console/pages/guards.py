"""Who may open a page: a signed-in person with a role, who sees their teams' things and no others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, cast

from django.core.exceptions import BadRequest, PermissionDenied
from django.db import connection, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import Resolver404, resolve
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_http_methods
from django_htmx.http import HttpResponseClientRedirect

from console import access
from console.access import Deed
from console.models import Person
from console.pages import problems
from console.pages.drafts import take_draft
from console.pages.session import signed_in
from reconciliation.working import Worker
from runs.actors import Actor
from runs.refusals import Invalid, NotFound, Refusal

P = ParamSpec("P")


@dataclass(frozen=True)
class Viewer:
    """The signed-in person and the teams whose things they see."""

    person: Person
    teams: tuple[str, ...]

    @property
    def actor(self) -> Actor:
        return access.person_actor(self.person)

    @property
    def name(self) -> str:
        return str(self.person)

    @property
    def worker(self) -> Worker:
        return Worker(actor=self.actor, name=self.name)

    def why_not(self, deed: Deed) -> str:
        """ "" if they may, else the sentence that says why not."""
        return access.why_not(self.person, deed)


def page(
    *methods: str,
    gives_back: bool = False,
) -> Callable[[Callable[Concatenate[HttpRequest, Viewer, P], HttpResponse]], Callable[..., HttpResponseBase]]:
    """Make a view a page of the console: signed in, with a role, refusals as pages, one Vary for all.

    A refusal that the view doesn't word itself becomes the page for its kind: nothing visible of that id is
    404, an address that can't be read 400, and every other one the refusal's own sentence under its status.

    A view for POST alone answers a GET too: it leads to the page whose form it is, or, after a sign-in, gives
    back what had been typed into it. With `gives_back` the view itself shows its form again, for which it
    asks `is_given_back`; it then runs in a transaction that can write nothing.
    """

    def decorate(
        view: Callable[Concatenate[HttpRequest, Viewer, P], HttpResponse],
    ) -> Callable[..., HttpResponseBase]:
        def given_back(
            request: HttpRequest, viewer: Viewer, /, *args: P.args, **kwargs: P.kwargs
        ) -> HttpResponse:
            draft = take_draft(request, path=request.path) if request.method == "GET" else None
            if not draft:
                return HttpResponseRedirect(page_above(request.path))
            if not gives_back:
                return problems.given_back(request, draft, page=page_above(request.path))
            request.POST = draft  # type: ignore[assignment]
            request.given_back = True  # type: ignore[attr-defined]
            with transaction.atomic():
                with connection.cursor() as cursor:
                    # A form is sent by a person; coming back from a sign-in sends none.
                    cursor.execute("SET TRANSACTION READ ONLY")
                return view(request, viewer, *args, **kwargs)

        @wraps(view)
        def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            person = cast("Person", request.user)
            if not access.may(person, Deed.VIEW):
                raise PermissionDenied
            viewer = Viewer(person=person, teams=access.teams_of(person))
            # For the frame around the page.
            request.teams = viewer.teams  # type: ignore[attr-defined]
            asked = view if request.method in methods else given_back
            try:
                response = asked(request, viewer, *args, **kwargs)
            except NotFound as refusal:
                raise Http404(refusal.sentence) from refusal
            except Invalid as refusal:
                raise BadRequest(refusal.sentence) from refusal
            except Refusal as refusal:
                response = problems.refused(request, refusal, page=page_above(request.path))
            if request.method == "POST" and response.status_code == 302 and wants_partial(request):
                # A script would follow the redirection by itself and show the page it leads to half.
                response = HttpResponseClientRedirect(response["Location"])
            # Fragments and whole pages share their addresses.
            patch_vary_headers(response, ["HX-Request"])
            response.headers.setdefault("Cache-Control", "no-store")
            return response

        answered = methods if "GET" in methods else (*methods, "GET", "HEAD")
        made = require_http_methods(list(answered))(signed_in(guarded))
        made.page_methods = methods  # type: ignore[attr-defined]
        return made

    return decorate


def is_given_back(request: HttpRequest) -> bool:
    """Whether this is a form that came back from a sign-in, to be shown and not to be carried out."""
    return bool(getattr(request, "given_back", False))


def page_above(path: str) -> str:
    """The nearest page over an address that can be opened: the one that has its form."""
    at = path.rstrip("/")
    while at := at.rpartition("/")[0]:
        try:
            match = resolve(f"{at}/")
        except Resolver404:
            continue
        if "GET" in getattr(match.func, "page_methods", ()):
            return f"{at}/"
    return "/"


def wants_partial(request: HttpRequest) -> bool:
    """Whether htmx asks for a piece of this page; a boosted or restored page is whole."""
    htmx: Any = getattr(request, "htmx", None)
    return bool(htmx) and not (htmx.boosted or htmx.history_restore_request)
