"""The steps of a sign-in beside login and password: the second factor, a passkey, an identity provider."""

from __future__ import annotations

from typing import Any, cast

from allauth.account.internal.stagekit import clear_login
from allauth.mfa.base.views import AuthenticateView
from allauth.mfa.webauthn.views import LoginWebAuthnView
from allauth.socialaccount.providers.openid_connect import views as openid
from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST, require_safe

from console import people
from console.pages import limits, problems
from console.pages.present.account import invitation_page, passkey_options, second_step_page
from console.pages.session import stash_draft
from runs.refusals import Invalid, NotFound


class SecondStep(AuthenticateView):  # type: ignore[misc] # allauth is untyped
    """After the password: a code of the authenticator app, a passkey, or a recovery code."""

    template_name = "account_form.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        found = super().get_context_data(**kwargs)
        passkeys = passkey_options("get", found["js_data"]["request_options"])
        page = second_step_page(found["form"], found["webauthn_form"], passkeys=passkeys)
        return {"page": page}

    def form_invalid(self, form: Any) -> HttpResponse:
        response = cast("HttpResponse", super().form_invalid(form))
        limited = any(form.has_error(name, "too_many_login_attempts") for name in ("code", "credential"))
        return limits.too_many(response) if limited else response


@require_POST
def second_step_left(request: HttpRequest) -> HttpResponse:
    """Give the sign-in up before its second step."""
    clear_login(request)
    return HttpResponseRedirect(reverse("login"))


class PasskeySignIn(LoginWebAuthnView):  # type: ignore[misc]
    """Sign-in by passkey alone: GET, for our script, what to ask the browser with; POST what it said."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        stash_draft(request)
        return cast("HttpResponseBase", super().post(request, *args, **kwargs))

    def form_invalid(self, form: Any) -> HttpResponse:
        return problems.not_signed_in(
            self.request,
            "The passkey isn’t known here, or it was asked for another page. Nobody was signed in.",
        )


@never_cache
@require_POST
def sign_in_elsewhere(request: HttpRequest) -> HttpResponseBase:
    """Send the person to the identity provider; what had been typed waits here."""
    if not settings.RECOURSE_IDENTITY_PROVIDER:
        raise Http404
    stash_draft(request)
    return cast("HttpResponseBase", openid.login(request, "sso"))


@never_cache
@require_GET
def came_back(request: HttpRequest, provider_id: str) -> HttpResponseBase:
    """The identity provider's answer."""
    return cast("HttpResponseBase", openid.callback(request, provider_id))


@require_safe
def sign_in_given_up(request: HttpRequest) -> HttpResponse:
    """The person said no at the identity provider."""
    return problems.not_signed_in(request, "You left the sign-in at your identity provider.")


@require_http_methods(["GET", "HEAD", "POST"])
def invitation(request: HttpRequest, uid: str, token: str) -> HttpResponse:
    """Choose a password by the link that an administrator made; then sign in with it."""
    try:
        person = people.invited(uid=uid, token=token)
    except NotFound as refusal:
        return problems.not_signed_in(request, refusal.sentence)
    wrong = ""
    if request.method == "POST":
        password = request.POST.get("password1", "")
        if password != request.POST.get("password2", ""):
            wrong = "The two passwords differ"
        else:
            try:
                people.accept_invitation(uid=uid, token=token, password=password)
            except Invalid as refusal:
                wrong = refusal.sentence.rstrip(".")
            except NotFound as refusal:
                return problems.not_signed_in(request, refusal.sentence)
            else:
                messages.success(request, "Your password is set. Sign in with it.")
                return HttpResponseRedirect(reverse("login"))
    shown = render(request, "account_form.html", {"page": invitation_page(person, wrong=wrong)})
    if wrong:
        shown.status_code = 422
    shown["Cache-Control"] = "no-store"
    return shown


@require_safe
def login_closed(request: HttpRequest) -> HttpResponse:
    """The account is there, and an administrator closed it."""
    return problems.not_signed_in(request, "This login is closed. An administrator can open it.")
