"""What a page says when it can't be shown: what is known, what isn't, and which ways lead on.

The root's urls module names these as handlers, the settings name `csrf_failure`.
"""

from __future__ import annotations

from typing import Final

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string

from console.pages.session import viewer_of
from console.pages.shapes import Code, Fact, Link, ProblemPage, Shell

# A reason is far shorter; a page that gives back more has no reader.
KEPT_LENGTH_MAX: Final = 8_000
_QUEUE: Final = Link("Go to the queue", "/")


def _problem(request: HttpRequest, page: ProblemPage) -> HttpResponse:
    return render(request, f"{page.code}.html", {"page": page}, status=page.code)


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """400: the address or the form couldn't be read."""
    return _problem(
        request,
        ProblemPage(
            code=400,
            title="This request can't be read",
            lead="Nothing was changed and nothing was sent.",
            text=("Part of the address or of the form isn't in a form that Recourse knows.",),
            links=(_QUEUE,),
        ),
    )


def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """403: the person is known and may not do this."""
    viewer = viewer_of(request)
    role = f" You are signed in as {viewer.name} ({viewer.role.lower()})." if viewer else ""
    return _problem(
        request,
        ProblemPage(
            code=403,
            title="You may not do this",
            lead="Nothing was changed and nothing was sent.",
            text=(f"Your role doesn't allow it.{role} An administrator can give you another role.",),
            links=(_QUEUE,),
        ),
    )


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """404: there is no such thing, or it belongs to another team; the page doesn't say which."""
    return _problem(
        request,
        ProblemPage(
            code=404,
            title="There is no such page",
            lead="It doesn't exist, or it belongs to a team that you aren't in.",
            text=(
                "Nothing at ",
                Code(request.path),
                " that you can see. Search finds what you can see by its id.",
            ),
            links=(_QUEUE, Link("Search", "/search/")),
        ),
    )


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """403: the form's token doesn't belong to this session. What was typed is given back."""
    kept = tuple(
        Fact(label=label, value=(request.POST[name][:KEPT_LENGTH_MAX],))
        for name, label in (("reason", "Your reason"), ("reason_code", "Reason code"), ("action", "Action"))
        if request.POST.get(name, "").strip()
    )
    page = ProblemPage(
        code=403,
        title="This form is from another session",
        lead="Nothing was changed and nothing was sent.",
        text=(
            "You signed in or out since the page was opened, or the browser keeps no cookies for this site. ",
            "Open the page anew and fill the form in there.",
        ),
        links=(Link("Open the page anew", request.path if kept else "/"), _QUEUE),
        kept=kept,
    )
    return render(request, "403_csrf.html", {"page": page}, status=403)


def server_error(_request: HttpRequest) -> HttpResponse:
    """500: a defect of ours. Made without database, session or person, for any of them may be the cause."""
    page = ProblemPage(
        code=500,
        title="Recourse failed on this page",
        lead="Whatever was saved before is still saved. What you just asked for may or may not be.",
        text=(
            "Open the case again to see its state before you decide anything: if your decision was saved, ",
            "it is there with your name. A decision is saved once, however often its form arrives.",
        ),
        links=(_QUEUE,),
    )
    frame = Shell(environment="", environment_tone="grey", theme="system", shortcuts=False, path="/")
    return HttpResponse(render_to_string("500.html", {"page": page, "shell": frame}), status=500)
