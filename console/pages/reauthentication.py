"""Showing again that it is you: what an answer to a request for approval takes, and keeps through it.

It takes what signing in takes, whatever the person has set up (`proving`). What had been typed comes along,
signed and bound to the person and to the form's address, and is in the form again afterwards, which they send
themselves: showing who one is answers nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from allauth.core.internal import ratelimit
from allauth.mfa.base.forms import ReauthenticateForm
from allauth.mfa.models import Authenticator
from allauth.mfa.webauthn.internal import auth as webauthn
from allauth.socialaccount.adapter import get_adapter
from allauth.socialaccount.providers.base.constants import AuthProcess
from django.contrib import messages
from django.contrib.auth import logout
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_http_methods

from console import access, proving
from console.models import Person
from console.pages import drafts, limits, wording
from console.pages.present.account import passkey_options
from console.pages.present.marks import plural
from console.pages.session import SignIn
from console.passkeys import PasskeyAgain
from console.proving import Ways

# In the session: how many wrong answers in a row. Whoever found a screen unlocked gets this many guesses.
FAILURES_KEY: Final = "reauthentication_failures"
FAILURES_MAX: Final = 5
# In the session: what waits while the person is at the identity provider, and from when its word counts.
WAITING_KEY: Final = "reauthentication_elsewhere"
PROVED_KEY: Final = "proved_elsewhere_at"
# In the state of the way there, which is kept here: this isn't a sign-in.
AGAIN: Final = "again"


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """Who is asked, and where they go on with what they had typed."""

    person: Person
    ways: Ways
    target: str
    draft: str


def ask(request: HttpRequest, *, target: str) -> HttpResponse:
    """Answer a form that takes a recent sign-in with the page that asks for one; nothing typed is lost."""
    person = cast("Person", request.user)
    draft = drafts.pack(request, typist=str(person.pk))
    return _show(request, _asked(person, target=target, draft=draft), status=403)


@require_http_methods(["GET", "HEAD", "POST"])
def reauthenticate(request: HttpRequest) -> HttpResponse:
    """Ask again for what signing in takes, and go on where the person was."""
    given = request.POST if request.method == "POST" else request.GET
    target = _inside(request, given.get("next", ""))
    draft = request.POST.get(drafts.KEY, "")
    person = request.user
    if not isinstance(person, Person):
        return _sign_in(request, target=target, draft=draft)
    # So that the navigation counts their cases, as on every page.
    request.teams = access.teams_of(person)  # type: ignore[attr-defined]
    asked = _asked(person, target=target, draft=draft)
    if request.method != "POST":
        return _show(request, asked, status=200)
    # Counted in the database: a session's own count is read by many at once before any of them writes it.
    if not ratelimit.consume(request, app="allauth.account", action="reauthenticate", user=person):
        wrong = "Too much was tried for this account. This one wasn’t looked at; in a minute it is."
        return limits.too_many(_show(request, asked, status=429, wrong=wrong))
    if given.get("way") == "elsewhere" and asked.ways.elsewhere:
        return _go_elsewhere(request, asked)
    wrong = _what_is_wrong(request, asked)
    return _wrong(request, asked, wrong) if wrong else _go_on(request, asked, at=_proved_at(request))


def _what_is_wrong(request: HttpRequest, asked: _Asked) -> str:
    """Why what was given doesn't show who it is; "" if it does. A code comes last, for it is used up."""
    ways, given = asked.ways, request.POST
    if "credential" in given:
        passkey = PasskeyAgain(user=asked.person, data={"credential": given["credential"]})
        if not ways.passkey or not passkey.is_valid():
            return "The passkey isn’t one of this account, or it was asked for another page."
        passkey.save()
        return ""
    if not _first_step(request, asked):
        both = ways.password and ways.takes_code
        return "The password and the code don’t both fit." if both else "That isn’t your password."
    if not ways.second_step:
        return ""
    code = ReauthenticateForm(user=asked.person, data={"code": given.get("code", "").strip()})
    if not code.is_valid():
        if code.has_error("code", "too_many_login_attempts"):
            return "Too many codes were tried for this account. This one wasn’t looked at; in minutes it is."
        # It isn't said which of the two was wrong: whoever guesses learns nothing.
        return "The password and the code don’t both fit." if ways.password else "That code isn’t yours now."
    code.save()
    if code.authenticator.type == Authenticator.Type.RECOVERY_CODES:
        # It is marked as used in the database, under a lock, and not in the row that the form read.
        left = len(Authenticator.objects.get(pk=code.authenticator.pk).wrap().get_unused_codes())
        messages.info(request, f"That recovery code is used up; {left} {'is' if left == 1 else 'are'} left.")
    return ""


def _first_step(request: HttpRequest, asked: _Asked) -> bool:
    """Whether the person gave their password, or has just come back from their identity provider."""
    if _proved_at(request) is not None:
        return True
    return asked.ways.password and asked.person.check_password(request.POST.get("password", ""))


def _proved_at(request: HttpRequest) -> datetime | None:
    """From when the identity provider's word counts, where it waits for a code; None if that is too old."""
    at = request.session.get(PROVED_KEY)
    found = datetime.fromtimestamp(at, UTC) if isinstance(at, int | float) else None
    return found if found is not None and _is_recent(found) else None


def _is_recent(at: datetime) -> bool:
    return datetime.now(UTC) - at <= timedelta(seconds=access.REAUTHENTICATED_SECONDS_MAX)


def _go_on(request: HttpRequest, asked: _Asked, *, at: datetime | None) -> HttpResponse:
    """Note that it is them, from `at` on or now, and lead back; what was typed waits in its form."""
    request.session.pop(FAILURES_KEY, None)
    request.session.pop(PROVED_KEY, None)
    access.note_reauthenticated(request, at=at)
    unpacked = drafts.unpack(asked.draft)
    if drafts.keep_for(request, asked.person, unpacked):
        messages.info(
            request, "It is you. Nothing was recorded yet: what you typed is still here, and you send it."
        )
        return HttpResponseRedirect(str(unpacked["path"]))
    messages.info(request, "It is you. You can go on now.")
    return HttpResponseRedirect(asked.target)


def _wrong(request: HttpRequest, asked: _Asked, wrong: str) -> HttpResponse:
    failures = int(request.session.get(FAILURES_KEY, 0)) + 1
    request.session[FAILURES_KEY] = failures
    if failures < FAILURES_MAX:
        left = plural(FAILURES_MAX - failures, "more wrong one")
        said = f"{wrong} After {left} you are signed out."
        return _show(request, asked, status=422, wrong=said)
    logout(request)
    return _sign_in(request, target=asked.target, draft=asked.draft)


# --- By the identity provider -----------------------------------------------------------------------------


def _go_elsewhere(request: HttpRequest, asked: _Asked) -> HttpResponse:
    """Send the person to their identity provider, which is to ask them and to say when they answered.

    OpenID Connect Core 1.0, section 3.1.2.1: `prompt=login` asks even whoever is signed in there, and with
    `max_age` the answer has to tell `auth_time`.
    """
    request.session[WAITING_KEY] = {"target": asked.target, "draft": asked.draft}
    provider = get_adapter().get_provider(request, proving.PROVIDER_ID)
    answer = provider.redirect(
        request,
        AuthProcess.REDIRECT,
        data={AGAIN: True},
        auth_params={"prompt": "login", "max_age": "0"},
    )
    return cast("HttpResponse", answer)


def came_back(request: HttpRequest, login: Any) -> HttpResponse:
    """Take the identity provider's word for it, if it is about this person and of now. Signs nobody in.

    `login`: allauth's, looked up. It counts from when the person gave something there: a browser that was
    waved through there shows nothing.
    """
    asked = _waited_for(request)
    if asked is None:
        return HttpResponseRedirect(reverse("login"))
    name = asked.ways.elsewhere or "The identity provider"
    own = login.is_existing and login.account.pk is not None and login.user.pk == asked.person.pk
    if not own:
        return _show(request, asked, status=403, wrong=f"{name} answered for somebody else, not for you.")
    now = datetime.now(UTC)
    claims = login.account.extra_data if isinstance(login.account.extra_data, dict) else {}
    at = proving.counted_from(claims, now=now)
    if at is None and proving.signed_in_elsewhere_at(claims) is None and proving.prompt_is_proof():
        at = now
    if at is None:
        wrong = f"{name} doesn’t say when you signed in there, so it doesn’t show that this is you now."
        return _show(request, asked, status=403, wrong=wrong)
    if not _is_recent(at):
        wrong = (
            f"{name} didn’t ask who you are: it says that you signed in there {wording.span(now - at)} ago."
            " Sign out there first, or show it in another way."
        )
        return _show(request, asked, status=403, wrong=wrong)
    if asked.ways.second_step:
        request.session[PROVED_KEY] = at.timestamp()
        return _show(request, asked, status=200)
    return _go_on(request, asked, at=at)


def came_back_without(request: HttpRequest, *, left: bool) -> HttpResponse | None:
    """The page again for whoever comes back with nothing to show; None if this session didn't ask."""
    if WAITING_KEY not in request.session:
        return None
    asked = _waited_for(request)
    if asked is None:
        return None
    wrong = (
        f"You left the sign-in at {asked.ways.elsewhere}."
        if left
        else "Your identity provider’s answer couldn’t be used. The cause is in the log."
    )
    return _show(request, asked, status=403, wrong=wrong)


def _waited_for(request: HttpRequest) -> _Asked | None:
    """What this session went to the identity provider for, once."""
    waiting = request.session.pop(WAITING_KEY, None)
    person = request.user
    if not isinstance(waiting, dict) or not isinstance(person, Person):
        return None
    request.teams = access.teams_of(person)  # type: ignore[attr-defined]
    return _asked(person, target=str(waiting["target"]), draft=str(waiting["draft"]))


# --- Pages ------------------------------------------------------------------------------------------------


def _asked(person: Person, *, target: str, draft: str) -> _Asked:
    return _Asked(person=person, ways=proving.ways_of(person), target=target, draft=draft)


def _sign_in(request: HttpRequest, *, target: str, draft: str) -> HttpResponse:
    """The sign-in form; what was typed goes on through it, and only the same person is given it back."""
    if not draft:
        return HttpResponseRedirect(reverse("login", query={"next": target}))
    ended: dict[str, Any] = {"session_ended": True, "draft": draft, "target": target}
    return cast("HttpResponse", SignIn.as_view()(request, **ended))


def _show(request: HttpRequest, asked: _Asked, *, status: int, wrong: str = "") -> HttpResponse:
    ways = asked.ways
    proved = _proved_at(request) is not None
    first = ways.password and not proved
    code = ways.takes_code and ways.second_step and (ways.password or proved)
    context = {
        "target": asked.target,
        "draft": asked.draft,
        "wrong": wrong,
        "name": str(asked.person),
        "username": asked.person.username,
        "ways": ways,
        "proved": proved,
        "asks_password": first,
        "asks_code": code,
        # A password beside a passkey, and no code that could be given with it: it isn't enough here.
        "has_form": code or (first and not ways.second_step),
        "passkeys": passkey_options("get", webauthn.begin_authentication()) if ways.passkey else None,
        "elsewhere": "" if proved else ways.elsewhere,
        "minutes": access.REAUTHENTICATED_SECONDS_MAX // 60,
        # Whoever comes by themselves, a moment after a sign-in, is told that it is enough.
        "fresh": access.has_just_reauthenticated(request),
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
