"""How allauth signs people in here: its adapters, with what Recourse decides otherwise.

Nobody makes an account for themselves: an administrator makes it, and an identity provider's login is linked
to it. Nothing of allauth's own pages or words is shown.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, cast

import structlog
from allauth.account.adapter import DefaultAccountAdapter
from allauth.core import context
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialAccount
from allauth.socialaccount.providers.base import AuthError
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from console import access, proving, sessions
from console.models import Person
from console.pages import drafts

log = structlog.get_logger(__name__)

# In the session between the steps of one sign-in: what had been typed before it, still packed.
WAITING_DRAFT: Final = "sign_in_draft"
# As long as the secret of an authenticator app (RFC 4226, section 4, R6).
_SECRET_BYTES: Final = 20

# What of allauth's messages is said, in our words; the pages themselves say the rest.
_SAID: Final[Mapping[str, str]] = {
    "account/messages/password_changed.txt": "Your password is changed. Other sessions of yours are ended.",
    "mfa/messages/totp_activated.txt": "Signing in takes a code of your authenticator app from now on.",
    "mfa/messages/totp_deactivated.txt": "Signing in takes no code of an authenticator app any more.",
    "mfa/messages/webauthn_added.txt": "The passkey is kept. You can sign in with it.",
    "mfa/messages/webauthn_removed.txt": "The passkey is removed. Nobody signs in with it any more.",
}


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc] # allauth is untyped
    """Accounts without sign-up or confirmed e-mail, and what belongs to the end of each sign-in."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def get_login_stages(self) -> list[str]:
        # E-mail isn't confirmed here, and there are no codes by mail or telephone.
        return ["allauth.mfa.stages.AuthenticateStage"]

    def get_client_ip(self, request: HttpRequest) -> str:
        """The address that limits and sessions count by; a socket without one is everybody's."""
        return str(super().get_client_ip(request)) if request.META.get("REMOTE_ADDR") else "0.0.0.0"  # noqa: S104

    def add_message(
        self, request: HttpRequest, level: int, message_template: str = "", *_: Any, **__: Any
    ) -> None:
        said = _SAID.get(message_template)
        if said is not None:
            messages.add_message(request, level, said)

    def get_login_redirect_url(self, request: HttpRequest) -> str:
        return reverse(access.landing_of(cast("Person", request.user)))

    def get_password_change_redirect_url(self, request: HttpRequest) -> str:
        return reverse("account")

    def send_notification_mail(self, *_: Any, **__: Any) -> None:
        """Changes of an account are in the audit log; allauth's mail would be in words of its own."""

    def post_login(self, request: HttpRequest, user: Person, **hooks: Any) -> HttpResponse:
        response = cast("HttpResponse", super().post_login(request, user, **hooks))
        drafts.remember_typist(response, user)
        _count_from(request, (hooks.get("signal_kwargs") or {}).get("sociallogin"))
        sessions.begin(request)
        draft = drafts.unpack(request.session.pop(WAITING_DRAFT, ""))
        if drafts.keep_for(request, user, draft):
            messages.info(
                request,
                "You are signed in again. Nothing was recorded; what you had typed is still here.",
            )
        elif draft:
            messages.info(request, "Somebody else had typed in that form. It isn’t shown to you.")
        return response

    def is_reauthentication_required(self, *, app: str, **_: Any) -> bool:
        # Whoever has nothing that allauth would ask for is asked by our page, which knows identity providers.
        request = context.request
        asked_here = request.user.is_authenticated and not super().get_reauthentication_methods(request.user)
        return not (asked_here and access.has_just_reauthenticated(request))

    def get_reauthentication_methods(self, user: Any) -> list[dict[str, Any]]:
        found = cast("list[dict[str, Any]]", super().get_reauthentication_methods(user))
        # Else whoever has read a password could turn the second step off, and would need no more.
        beyond = [one for one in found if one["id"] != "reauthenticate"]
        here = {"id": "elsewhere", "description": "", "url": reverse("reauthenticate")}
        return beyond or found or [here]


def _count_from(request: HttpRequest, elsewhere: Any) -> None:
    """Note from when a sign-in counts as showing who one is: now, or from when they gave something elsewhere.

    An identity provider lets a browser through that it knows, and nobody has to be there for it.
    """
    request.session.pop(access.REAUTHENTICATED_KEY, None)
    if elsewhere is None:
        access.note_reauthenticated(request)
        return
    claims = elsewhere.account.extra_data
    at = proving.counted_from(claims if isinstance(claims, dict) else {}, now=datetime.now(UTC))
    if at is not None:
        access.note_reauthenticated(request, at=at)


class SecondFactors(DefaultMFAAdapter):  # type: ignore[misc]
    """Second factors, their secrets encrypted with the deployment's own secret."""

    def encrypt(self, text: str) -> str:
        return _cipher().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        try:
            return _cipher().decrypt(encrypted_text.encode()).decode()
        except InvalidToken:
            # The secret was replaced since: no code fits, until an administrator takes the factor away. An
            # empty text would be a secret like any other, and everybody could work its codes out.
            return base64.b32encode(secrets.token_bytes(_SECRET_BYTES)).decode()

    def get_totp_label(self, user: Person) -> str:
        return user.username

    def _get_site_name(self) -> str:
        return "Recourse"

    def generate_authenticator_name(self, user: Person, type: Any) -> str:  # noqa: A002 - allauth's name
        return "Passkey"


def _cipher() -> MultiFernet:
    keys: list[str] = [settings.SECRET_KEY, *map(str, settings.SECRET_KEY_FALLBACKS)]
    return MultiFernet(
        [
            Fernet(base64.urlsafe_b64encode(hashlib.sha256(b"second factors:" + key.encode()).digest()))
            for key in keys
        ]
    )


class Identities(DefaultSocialAccountAdapter):  # type: ignore[misc]
    """Logins of an identity provider: linked to a person who exists, never made into a new one."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        return False

    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        """Refuse whoever is linked to nobody: by subject first, then, where it is on, by verified e-mail.

        Whoever came by their address is linked to the subject from then on. An address that somebody else got
        since, with a subject of their own, opens nothing.
        """
        # Asked late: pages need this module.
        from console.pages import reauthentication

        if (sociallogin.state.get("data") or {}).get(reauthentication.AGAIN):
            # Nobody is signed in: whoever is, shows again that it is them.
            raise ImmediateHttpResponse(reauthentication.came_back(request, sociallogin))
        by_address = sociallogin.is_existing and sociallogin.account.pk is None
        person = sociallogin.user if by_address else None
        # allauth would take the password away, for it never saw the address confirmed here.
        sociallogin._did_authenticate_by_email = None
        if person is not None and person.is_active and not _is_linked(person):
            # Asked late: it changes accounts, and they are made of what signs in.
            from console import people

            people.link(
                by=people.IDENTITY_PROVIDER,
                person_id=person.pk,
                subject=str(sociallogin.account.uid),
                reason="The identity provider says that it verified the person's e-mail address.",
            )
            sociallogin.account = SocialAccount.objects.get(user=person, provider=people.SINGLE_SIGN_ON)
        elif not sociallogin.is_existing or (person is not None and person.is_active):
            log.info("sign_in_unknown", provider=sociallogin.account.provider)
            # Asked late: what shows a problem needs the sign-in page, which needs this module.
            from console.pages import problems

            raise ImmediateHttpResponse(
                problems.not_signed_in(
                    request,
                    "Nobody here is linked to this login of your identity provider. An administrator makes"
                    " the account and links it.",
                )
            )

    def on_authentication_error(
        self, request: HttpRequest, provider: Any, error: Any = None, exception: Any = None, **_: Any
    ) -> None:
        from console.pages import problems, reauthentication

        log.warning("sign_in_elsewhere_failed", error=str(error), exception=type(exception).__name__)
        again = reauthentication.came_back_without(request, left=error == AuthError.CANCELLED)
        if again is not None:
            raise ImmediateHttpResponse(again)
        sentence = "Your identity provider’s answer couldn’t be used. The cause is in the log."
        raise ImmediateHttpResponse(problems.not_signed_in(request, sentence))


def _is_linked(person: Person) -> bool:
    return bool(SocialAccount.objects.filter(user=person, provider="sso").exists())
