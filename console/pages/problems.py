"""What a page says when it can't be shown: what is known, what isn't, and which ways lead on.

The root's urls module names these as handlers, the settings name `csrf_failure`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse, QueryDict
from django.middleware.csrf import get_token
from django.shortcuts import render
from django.template.loader import render_to_string

from console.api.problems import WORDS
from console.pages import limits
from console.pages.drafts import carries_own_id, shown_facts, typed_in
from console.pages.session import viewer_of
from console.pages.shapes import Code, Fact, HiddenField, Link, Phrase, ProblemPage, Shell
from console.pages.shapes.frame import SendOnce
from runs.refusals import Refusal

_QUEUE: Final = Link("Go to the queue", "/")
# What a status says of a refusal whose page has no words of its own for it.
_TITLES: Final[Mapping[int, str]] = {
    409: "This can’t be done as things stand",
    422: "Something in this form can’t be taken",
    423: "This is locked now",
    429: "Too many requests for now",
    503: "Recourse can’t reach what it needs for this",
}


def _problem(request: HttpRequest, page: ProblemPage) -> HttpResponse:
    response = render(request, "problem.html", {"page": page}, status=page.code)
    # It holds what was typed and who is signed in, and a browser may keep a 404 without being told to.
    response["Cache-Control"] = "no-store"
    return response


def _typed(request: HttpRequest) -> tuple[Fact, ...]:
    """What was typed into the form that this request brought, as far as it can be read."""
    return shown_facts(posted) if (posted := _posted(request)) else ()


def _posted(request: HttpRequest) -> QueryDict | None:
    if request.method != "POST":
        return None
    try:
        return request.POST
    except Exception:  # noqa: BLE001 - the body itself may be the fault, and this only tells of it
        return None


def refused(request: HttpRequest, refusal: Refusal, *, page: str) -> HttpResponse:
    """A refusal that its page doesn't word itself: its own sentence, its status, and what was typed."""
    status = WORDS[refusal.word].status if refusal.word in WORDS else 409
    wait_ms = refusal.details.get("retry_after_ms")
    retry_after_seconds = math.ceil(wait_ms / 1000) if isinstance(wait_ms, int) else 0
    text: Phrase = (
        (f"It can be asked for again in {retry_after_seconds} s; asked earlier, it is refused like this.",)
        if retry_after_seconds
        else ()
    )
    shown = ProblemPage(
        code=status,
        title=_TITLES.get(status, HTTPStatus(status).phrase),
        lead=f"{refusal.sentence} Nothing was changed and nothing was sent.",
        text=text,
        links=(Link("Back to the page", page), _QUEUE),
        kept=_typed(request),
    )
    response = _problem(request, shown)
    if retry_after_seconds:
        response["Retry-After"] = str(retry_after_seconds)
    return response


def given_back(request: HttpRequest, draft: QueryDict, *, page: str) -> HttpResponse:
    """After a sign-in: what had been typed into a form whose page can't fill it in again by itself."""
    return _problem(
        request,
        ProblemPage(
            code=200,
            title="You are signed in again",
            lead="Your session had ended, so nothing was recorded and nothing was sent.",
            text=("What you had typed is below. Copy it into the form on its page, and send it from there.",),
            links=(Link("Open the page with the form", page), _QUEUE),
            kept=shown_facts(draft),
        ),
    )


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """400: the address or the form couldn't be read; 413 where it was too much to read."""
    if isinstance(exception, RequestDataTooBig):
        most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE // (1024 * 1024)
        return _problem(
            request,
            ProblemPage(
                code=413,
                title="This is more than a form may hold",
                lead="Nothing was changed and nothing was sent.",
                text=(
                    f"One form takes at most {most} MiB. Your browser’s Back shows it as you filled it in.",
                ),
                links=(_QUEUE,),
            ),
        )
    return _problem(
        request,
        ProblemPage(
            code=400,
            title="This request can't be read",
            lead="Nothing was changed and nothing was sent.",
            text=("Part of the address or of the form isn't in a form that Recourse knows.",),
            links=(_QUEUE,),
            kept=_typed(request),
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
            kept=_typed(request),
        ),
    )


def not_signed_in(request: HttpRequest, sentence: str) -> HttpResponse:
    """403: a sign-in that came to nothing, and why as far as whoever tried may know."""
    return _problem(
        request,
        ProblemPage(
            code=403,
            title="You aren’t signed in",
            lead=sentence,
            text=(),
            links=(Link("Go to the sign-in", "/login/"),),
        ),
    )


def too_many_requests(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """429: this person, address or token asked more often than is answered."""
    page = ProblemPage(
        code=429,
        title=_TITLES[429],
        lead="Nothing was changed and nothing was sent.",
        text=("In a minute this is answered; asked earlier, it is refused like this.",),
        links=(Link("Open the page anew", request.path), _QUEUE),
        kept=_typed(request),
    )
    return limits.too_many(_problem(request, page))


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
            kept=_typed(request),
        ),
    )


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """403: the form's token doesn't belong to this session. What was typed is given back."""
    kept = _typed(request)
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
    return _problem(request, page)


def server_error(request: HttpRequest) -> HttpResponse:
    """500: a defect of ours. Made without database, session or person, for any of them may be the cause."""
    page = _server_error(request)
    frame = Shell(environment="", environment_tone="grey", theme="system", shortcuts=False, path="/")
    context = {"page": page, "shell": frame, "csrf_token": get_token(request) if page.again else ""}
    return HttpResponse(
        render_to_string("problem.html", context), status=500, headers={"Cache-Control": "no-store"}
    )


def _server_error(request: HttpRequest) -> ProblemPage:
    """What is known of a request that failed, what isn't, and what each way on would do."""
    title = "Recourse failed on this page"
    posted = _posted(request)
    if request.method != "POST":
        return ProblemPage(
            code=500,
            title=title,
            lead="Nothing was asked to change, so nothing was changed. What was saved before is still saved.",
            text=("The failure is in the log with its cause; whoever runs Recourse finds it there.",),
            links=(_QUEUE,),
        )
    if posted is not None and posted.get("step") == "review":
        return ProblemPage(
            code=500,
            title=title,
            lead="Nothing was recorded and nothing was sent: a review only shows what would happen.",
            text=("What you had typed is below.",),
            links=(Link("Open the page anew", _above(request)), _QUEUE),
            kept=_typed(request),
        )
    again = (
        SendOnce(
            href=request.path,
            button="Send the same form once more",
            hidden=tuple(
                HiddenField(name=name, value=value) for name, value in (*typed_in(posted), *_steps(posted))
            ),
        )
        if posted is not None and carries_own_id(posted)
        else None
    )
    what_each_does = "Opening the page changes nothing and shows what is on record, with who did it. "
    what_each_does += (
        "Sending the same form once more is safe: it has an id of its own and counts once, however often it"
        " arrives."
        if again
        else "If it isn’t there, what you had typed is below."
    )
    return ProblemPage(
        code=500,
        title=title,
        lead="It is not known whether this was recorded. What was saved before is still saved.",
        text=(what_each_does,),
        links=(Link("Open the page and see", _above(request)), _QUEUE),
        kept=_typed(request),
        again=again,
    )


def _steps(posted: QueryDict) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(posted[name])) for name in ("step", "act") if posted.get(name))


def _above(request: HttpRequest) -> str:
    # Asked late: the guards make pages, and some of those pages are made here.
    from console.pages.guards import page_above

    return page_above(request.path)
