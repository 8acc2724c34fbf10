"""What shows that a person is who they are: the ways that they have set up, and which of them are enough.

Showing it again takes what signing in takes. Whoever turned codes or passkeys on isn't shown to be themselves
by a password alone, which somebody beside them may have read; and a sign-in at an identity provider counts
from when the person gave something there, not from when their browser was waved through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.conf import settings

from console.models import Person

PROVIDER_ID: Final = "sso"
# An identity provider's clock may be this much ahead of ours.
CLOCK_AHEAD_MAX: Final = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True)
class Ways:
    """How one person can show that it is them. `elsewhere`: the identity provider's name, or ""."""

    password: bool
    codes: bool
    recovery_codes: bool
    passkey: bool
    elsewhere: str

    @property
    def second_step(self) -> bool:
        """Whether a password, or a sign-in elsewhere, takes a code beside it. A passkey never does."""
        return self.codes or self.passkey

    @property
    def takes_code(self) -> bool:
        """Whether there is a code that could be given."""
        return self.codes or self.recovery_codes


def ways_of(person: Person) -> Ways:
    """What this person has set up, as it is now."""
    kinds = set(Authenticator.objects.filter(user=person).values_list("type", flat=True))
    provider = settings.RECOURSE_IDENTITY_PROVIDER
    linked = bool(provider) and SocialAccount.objects.filter(user=person, provider=PROVIDER_ID).exists()
    return Ways(
        password=person.has_usable_password(),
        codes=Authenticator.Type.TOTP in kinds,
        recovery_codes=Authenticator.Type.RECOVERY_CODES in kinds,
        passkey=Authenticator.Type.WEBAUTHN in kinds,
        elsewhere=str(provider["name"]) if linked else "",
    )


def signed_in_elsewhere_at(claims: Mapping[str, Any]) -> datetime | None:
    """When the person last gave something at the identity provider, by its `auth_time`; None if untold.

    OpenID Connect Core 1.0, section 2: seconds since 1970, and required where `max_age` was asked for.
    """
    told = claims.get("id_token")
    seconds = told.get("auth_time") if isinstance(told, Mapping) else None
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def counted_from(claims: Mapping[str, Any], *, now: datetime) -> datetime | None:
    """From when a sign-in at the identity provider counts; None if it doesn't: untold, or from the future."""
    at = signed_in_elsewhere_at(claims)
    return None if at is None or at > now + CLOCK_AHEAD_MAX else min(at, now)


def prompt_is_proof() -> bool:
    """Whether this deployment takes a provider's word that it asked, where it doesn't tell when.

    RECOURSE_OIDC_WITHOUT_AUTH_TIME; see docs/decisions/0022.
    """
    return not settings.RECOURSE_IDENTITY_PROVIDER.get("settings", {}).get("auth_time_required", True)
