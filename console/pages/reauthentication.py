"""Showing again that it is you: what an answer to a request for approval takes, and keeps through it.

What had been typed comes along, signed and bound to the person and to the form's address, and is in the form
again afterwards, which they send themselves: showing who one is answers nothing.
"""

from __future__ import annotations

from typing import Any, Final, cast

from allauth.core.internal import ratelimit
from django.contrib import messages
from django.contrib.auth import logout
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_http_methods

from console import access
from console.models import Person
from console.pages import drafts, limits
from console.pages.present.marks import plural
from console.pages.session import SignIn

# In the session: how many wrong passwords in a row. Whoever found a screen unlocked gets this many guesses.
FAILURES_KEY: Final = "reauthentication_failures"
FAILURES_MAX: Final = 5


def ask(request: HttpRequest, *, target: str) -> HttpResponse:
    """Answer a form that takes a recent sign-in with the page that asks for one; nothing typed is lost."""
    person = cast("Person", request.user)
    draft = drafts.pack(request, typist=str(person.pk))
    return _show(request, person, target=target, draft=draft, status=403)


@require_http_methods(["GET", "HEAD", "POST"])
def reauthenticate(request: HttpRequest) -> HttpResponse:
    """Ask for the password again, and go on where the person was."""
    asked = request.POST if request.method == "POST" else request.GET
    target = _inside(request, asked.get("next", ""))
    person = request.user
    if not isinstance(person, Person):
        return _sign_in(request, target=target, draft=request.POST.get(drafts.KEY, ""))
    # So that the navigation counts their cases, as on every page.
    request.teams = access.teams_of(person)  # type: ignore[attr-defined]
    if request.method != "POST":
        return _show(request, person, target=target, draft="", status=200)
    draft = request.POST.get(drafts.KEY, "")
    # Counted in the database: a session's own count is read by many at once before any of them writes it.
    if not ratelimit.consume(request, app="allauth.account", action="reauthenticate", user=person):
        wrong = (
            "Too many passwords were tried for this account. This one wasn’t looked at; in a minute it is."
        )
        return limits.too_many(_show(request, person, target=target, draft=draft, status=429, wrong=wrong))
    if not person.check_password(request.POST.get("password", "")):
        return _wrong(request, person, target=target, draft=draft)
    request.session.pop(FAILURES_KEY, None)
    access.note_reauthenticated(request)
    unpacked = drafts.unpack(draft)
    if drafts.keep_for(request, person, unpacked):
        messages.info(
            request, "It is you. Nothing was answered yet: what you typed is still here, and you send it."
        )
        return HttpResponseRedirect(str(unpacked["path"]))
    messages.info(request, "It is you. You can answer now.")
    return HttpResponseRedirect(target)


def _wrong(request: HttpRequest, person: Person, *, target: str, draft: str) -> HttpResponse:
    failures = int(request.session.get(FAILURES_KEY, 0)) + 1
    request.session[FAILURES_KEY] = failures
    if failures < FAILURES_MAX:
        left = plural(FAILURES_MAX - failures, "more wrong one")
        wrong = f"That isn’t your password. After {left} you are signed out."
        return _show(request, person, target=target, draft=draft, status=422, wrong=wrong)
    logout(request)
    return _sign_in(request, target=target, draft=draft)


def _sign_in(request: HttpRequest, *, target: str, draft: str) -> HttpResponse:
    """The sign-in form; what was typed goes on through it, and only the same person is given it back."""
    if not draft:
        return HttpResponseRedirect(reverse("login", query={"next": target}))
    ended: dict[str, Any] = {"session_ended": True, "draft": draft, "target": target}
    return cast("HttpResponse", SignIn.as_view()(request, **ended))


def _show(
    request: HttpRequest, person: Person, *, target: str, draft: str, status: int, wrong: str = ""
) -> HttpResponse:
    context = {
        "target": target,
        "draft": draft,
        "wrong": wrong,
        "name": str(person),
        "username": person.username,
        "has_password": person.has_usable_password(),
        "minutes": access.REAUTHENTICATED_SECONDS_MAX // 60,
        "since_at": access.reauthenticated_at(request),
    }
    response = render(request, "reauthenticate.html", context, status=status)
    # It holds what somebody typed.
    response["Cache-Control"] = "no-store"
    return response


def _inside(request: HttpRequest, target: str) -> str:
    safe = url_has_allowed_host_and_scheme(
        target, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return target if safe and target.startswith("/") else reverse("queue")
