"""Who may open a page: a signed-in person with a role, who sees their teams' things and no others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, cast

from django.core.exceptions import BadRequest, PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_http_methods

from console import access
from console.access import Deed
from console.models import Person
from console.pages.session import signed_in
from reconciliation.working import Worker
from runs.actors import Actor
from runs.refusals import Invalid, NotFound

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
) -> Callable[[Callable[Concatenate[HttpRequest, Viewer, P], HttpResponse]], Callable[..., HttpResponseBase]]:
    """Make a view a page of the console: signed in, with a role, refusals as pages, one Vary for all.

    A refusal that the view doesn't word itself becomes the page for its kind: nothing visible of that id is
    404, an address that can't be read 400.
    """

    def decorate(
        view: Callable[Concatenate[HttpRequest, Viewer, P], HttpResponse],
    ) -> Callable[..., HttpResponseBase]:
        @wraps(view)
        def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            person = cast("Person", request.user)
            if not access.may(person, Deed.VIEW):
                raise PermissionDenied
            viewer = Viewer(person=person, teams=access.teams_of(person))
            # For the frame around the page.
            request.teams = viewer.teams  # type: ignore[attr-defined]
            try:
                response = view(request, viewer, *args, **kwargs)
            except NotFound as refusal:
                raise Http404(refusal.sentence) from refusal
            except Invalid as refusal:
                raise BadRequest(refusal.sentence) from refusal
            # Fragments and whole pages share their addresses.
            patch_vary_headers(response, ["HX-Request"])
            response.headers.setdefault("Cache-Control", "no-store")
            return response

        return require_http_methods(list(methods))(signed_in(guarded))

    return decorate


def wants_partial(request: HttpRequest) -> bool:
    """Whether htmx asks for a piece of this page; a boosted or restored page is whole."""
    htmx: Any = getattr(request, "htmx", None)
    return bool(htmx) and not (htmx.boosted or htmx.history_restore_request)
