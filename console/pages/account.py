"""One's own account: password, authenticator app, passkeys, recovery codes, and where one is signed in.

allauth does the work; its views are shown in our page, and only to whoever is signed in. A change of how one
signs in takes a password, code or passkey that is at most five minutes old.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, cast

from allauth.account.views import PasswordChangeView, ReauthenticateView
from allauth.mfa.base.views import ReauthenticateView as CodeReauthenticateView
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.views import GenerateRecoveryCodesView, ViewRecoveryCodesView
from allauth.mfa.totp.views import ActivateTOTPView, DeactivateTOTPView
from allauth.mfa.webauthn.internal import auth as webauthn
from allauth.mfa.webauthn.views import AddWebAuthnView, ReauthenticateWebAuthnView, RemoveWebAuthnView
from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse, reverse_lazy
from django.views.decorators.http import require_http_methods

from console import access, sessions
from console.models import Person
from console.pages.present import account as present
from console.pages.session import signed_in
from console.pages.shapes import Link
from console.pages.shapes.account import AccountForm, Entry
from runs.refusals import NotFound

View = Callable[..., HttpResponseBase]
PASSWORD = Entry(name="password", label="Your password", type="password", autocomplete="current-password")


def own(*methods: str) -> Callable[[View], View]:
    """A page about the account of whoever is signed in, with a role or without."""

    def decorate(view: View) -> View:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            # For the frame around the page.
            request.teams = access.teams_of(cast("Person", request.user))  # type: ignore[attr-defined]
            response = view(request, *args, **kwargs)
            response.headers["Cache-Control"] = "no-store"
            return response

        # What is typed here, passwords and codes, is never kept through a sign-in.
        made: View = require_http_methods(list(methods))(signed_in(guarded))
        return made

    return decorate


class _Shown:
    """A view of allauth in our page: `page` says what it shows, `form` is allauth's."""

    template_name = "account_form.html"
    success_url: Any = reverse_lazy("account")

    def page(self, form: Any, found: dict[str, Any]) -> AccountForm:
        raise NotImplementedError

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        found = super().get_context_data(**kwargs)  # type: ignore[misc]
        return {"page": self.page(found.get("form"), found)}


# --- The account ------------------------------------------------------------------------------------------


@own("GET", "HEAD")
def account(request: HttpRequest) -> HttpResponse:
    """Who one is here and how one signs in."""
    person = cast("Person", request.user)
    elsewhere = settings.RECOURSE_IDENTITY_PROVIDER.get("name", "")
    linked = elsewhere and SocialAccount.objects.filter(user=person, provider="sso").exists()
    key = request.session.session_key
    page = present.account_page(
        person,
        teams=tuple(person.teams.order_by("name").values_list("name", flat=True)),
        factors=list(Authenticator.objects.filter(user=person).order_by("pk")),
        sessions=len(sessions.sessions_of(person, current_key=key)),
        linked=elsewhere if linked else "",
    )
    return render(request, "account.html", {"page": page})


class ChangePassword(_Shown, PasswordChangeView):  # type: ignore[misc] # allauth is untyped
    """Another password, which ends the other sessions."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not cast("Person", request.user).has_usable_password():
            return HttpResponseRedirect(reverse("account"))
        return cast("HttpResponseBase", super().dispatch(request, *args, **kwargs))

    def page(self, form: Any, found: dict[str, Any]) -> AccountForm:
        return AccountForm(
            title="Change your password",
            lead=("Your other sessions end with it.",),
            button="Change password",
            back=present.ACCOUNT,
            errors=present.errors_of(form),
            entries=(
                Entry(
                    name="oldpassword",
                    label="Your password now",
                    type="password",
                    autocomplete="current-password",
                ),
                *present.NEW_PASSWORD,
            ),
        )

    def form_valid(self, form: Any) -> HttpResponse:
        response = super().form_valid(form)
        person = cast("Person", self.request.user)
        actor = access.person_actor(person)
        sessions.end_sessions(
            person=person, actor=actor, but_key=self.request.session.session_key, reason="New password."
        )
        sessions.begin(self.request)
        return cast("HttpResponse", response)


# --- Authenticator app and recovery codes -----------------------------------------------------------------


class TurnOnCodes(_Shown, ActivateTOTPView):  # type: ignore[misc]
    def page(self, form: Any, found: dict[str, Any]) -> AccountForm:
        return AccountForm(
            title="Turn on codes of an authenticator app",
            lead=(
                "Scan the square with the app, or type the secret into it, then give the code that it shows.",
            ),
            button="Turn on",
            back=present.ACCOUNT,
            errors=present.errors_of(form),
            qr=present.qr_code(found["totp_url"]),
            secret=present.spaced(form.secret),
            entries=(
                Entry(
                    name="code", label="Code", autocomplete="one-time-code", numeric=True, hint="Six digits."
                ),
            ),
        )

    def get_success_url(self) -> str:
        return reverse("mfa_view_recovery_codes" if self.did_generate_recovery_codes else "account")


class TurnOffCodes(_Shown, DeactivateTOTPView):  # type: ignore[misc]
    def page(self, form: Any, found: dict[str, Any]) -> AccountForm:
        return AccountForm(
            title="Turn off codes of the authenticator app",
            lead=("Signing in then takes your password alone, unless you have a passkey.",),
            button="Turn off",
            back=present.ACCOUNT,
            errors=present.errors_of(form),
            danger=True,
        )


class RecoveryCodes(_Shown, ViewRecoveryCodesView):  # type: ignore[misc]
    """The codes, shown right after they were made and never again."""

    def page(self, form: Any, found: dict[str, Any]) -> AccountForm:
        shown = bool(found["can_view_codes"])
        return AccountForm(
            title="Your recovery codes",
            lead=(
                "Each works once instead of the app or the passkey. They are shown this once: keep them where"
                " your telephone isn’t."
                if shown
                else "They were shown when they were made, and never again. New ones replace them.",
            ),
            button="",
            back=present.ACCOUNT,
            codes=tuple(found["unused_codes"]) if shown else (),
            others=() if shown else (Link("Make new ones", reverse("mfa_generate_recovery_codes")),),
        )


class NewRecoveryCodes(_Shown, GenerateRecoveryCodesView):  # type: ignore[misc]
    success_url = reverse_lazy("mfa_view_recovery_codes")

    def page(self, form: Any, found: dict[str, Any]) -> AccountForm:
        return AccountForm(
            title="Make new recovery codes",
            lead=("Those that you have stop working.",),
            button="Make new codes",
            back=present.ACCOUNT,
            errors=present.errors_of(form),
            danger=True,
        )


# --- Passkeys ---------------------------------------------------------------------------------------------


class AddPasskey(_Shown, AddWebAuthnView):  # type: ignore[misc]
    """A passkey that signs in by itself: the device asks for finger, face or PIN."""

    def page(self, form: Any, found: dict[str, Any]) -> AccountForm:
        options = webauthn.begin_registration(self.request.user, True)
        return AccountForm(
            title="Add a passkey",
            lead=("Your browser asks where to keep it. Sign in with it afterwards, without a password.",),
            button="Choose where to keep it",
            back=present.ACCOUNT,
            errors=present.errors_of(form),
            entries=(Entry(name="name", label="What to call it", value="Passkey", hint="As “Work laptop”."),),
            hidden=present.hidden(passwordless="on"),
            passkeys=present.passkey_options("make", options),
        )

    def get_success_url(self) -> str:
        return reverse("mfa_view_recovery_codes" if self.did_generate_recovery_codes else "account")


class RemovePasskey(_Shown, RemoveWebAuthnView):  # type: ignore[misc]
    def page(self, form: Any, found: dict[str, Any]) -> AccountForm:
        return AccountForm(
            title=f"Remove the passkey “{self.object.wrap().name}”",
            lead=("Nobody can sign in with it any more. Delete it on the device as well.",),
            button="Remove",
            back=present.ACCOUNT,
            danger=True,
        )


# --- Showing that it is you -------------------------------------------------------------------------------


class _Again(_Shown):
    lead = ("How you sign in is changed only by somebody who has just shown that it is them.",)

    def others(self) -> tuple[Link, ...]:
        person = cast("Person", self.request.user)  # type: ignore[attr-defined]
        kinds = set(Authenticator.objects.filter(user=person).values_list("type", flat=True))
        ways = (
            (person.has_usable_password() and not kinds, "With your password", "account_reauthenticate"),
            ("totp" in kinds, "With a code", "mfa_reauthenticate"),
            ("webauthn" in kinds, "With a passkey", "mfa_reauthenticate_webauthn"),
        )
        here = self.request.path  # type: ignore[attr-defined]
        following = self.request.GET.get("next") or self.request.POST.get("next", "")  # type: ignore[attr-defined]
        return tuple(
            Link(text, reverse(name, query={"next": following} if following else None))
            for has, text, name in ways
            if has and reverse(name) != here
        )

    def following(self) -> str:
        return str(self.request.GET.get("next") or self.request.POST.get("next", ""))  # type: ignore[attr-defined]

    def again(self, form: Any, **more: Any) -> AccountForm:
        return AccountForm(
            title="Show that it is you",
            lead=self.lead,
            back=present.ACCOUNT,
            errors=present.errors_of(form),
            others=self.others(),
            hidden=present.hidden(next=self.following()) if self.following() else (),
            **more,
        )


class AgainByPassword(_Again, ReauthenticateView):  # type: ignore[misc]
    def page(self, form: Any, found: dict[str, Any]) -> AccountForm:
        return self.again(form, button="Go on", entries=(PASSWORD,))


class AgainByCode(_Again, CodeReauthenticateView):  # type: ignore[misc]
    def page(self, form: Any, found: dict[str, Any]) -> AccountForm:
        return self.again(form, button="Go on", entries=(present.CODE,))


class AgainByPasskey(_Again, ReauthenticateWebAuthnView):  # type: ignore[misc]
    def page(self, form: Any, found: dict[str, Any]) -> AccountForm:
        passkeys = present.passkey_options("get", found["js_data"]["request_options"])
        return self.again(form, button="Use your passkey", passkeys=passkeys)

    def form_invalid(self, form: Any) -> HttpResponse:
        return cast("HttpResponse", self.render_to_response(self.get_context_data(form=form)))


# --- Sessions ---------------------------------------------------------------------------------------------


@own("GET", "HEAD")
def session_list(request: HttpRequest) -> HttpResponse:
    """Where one is signed in."""
    found = sessions.sessions_of(cast("Person", request.user), current_key=request.session.session_key)
    return render(request, "sessions.html", {"page": present.sessions_page(found)})


@own("POST")
def session_end(request: HttpRequest, session_id: int) -> HttpResponse:
    """End one session of one's own."""
    person = cast("Person", request.user)
    try:
        sessions.end_session(person=person, session_id=session_id, actor=access.person_actor(person))
    except NotFound as refusal:
        messages.info(request, refusal.sentence)
    else:
        messages.success(request, "That session is ended.")
    return HttpResponseRedirect(reverse("session_list"))


@own("POST")
def session_end_others(request: HttpRequest) -> HttpResponse:
    """End every session of one's own but this one."""
    person = cast("Person", request.user)
    ended = sessions.end_sessions(
        person=person, actor=access.person_actor(person), but_key=request.session.session_key
    )
    messages.success(request, present.said_sessions(ended))
    return HttpResponseRedirect(reverse("session_list"))
