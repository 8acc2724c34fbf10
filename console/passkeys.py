"""Forms that take a passkey's answer: one that can't be read is refused, and isn't a failure of ours.

allauth's forms, named in `MFA_FORMS`. What they read comes from a browser, or from whoever plays one.
"""

from __future__ import annotations

from typing import Any

from allauth.mfa.adapter import get_adapter
from allauth.mfa.webauthn import forms


class _Readable:
    def clean_credential(self) -> Any:
        try:
            return super().clean_credential()  # type: ignore[misc]
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            # The library names what it misses by whatever exception comes of it.
            raise get_adapter().validation_error("incorrect_code") from error


class SecondStepPasskey(_Readable, forms.AuthenticateWebAuthnForm):  # type: ignore[misc] # allauth is untyped
    """After a password."""


class SignInPasskey(_Readable, forms.LoginWebAuthnForm):  # type: ignore[misc]
    """Without a password."""


class AccountPasskey(_Readable, forms.ReauthenticateWebAuthnForm):  # type: ignore[misc]
    """Before a change of the account."""


class PasskeyAgain(_Readable, forms.ReauthenticateWebAuthnForm):  # type: ignore[misc]
    """For an answer: by finger, face or PIN, for it is asked for alone, and touching it isn't enough."""

    passwordless = True
