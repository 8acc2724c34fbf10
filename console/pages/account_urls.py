"""The addresses of signing in and of one's own account, under the names that allauth looks for them."""

from __future__ import annotations

from typing import Any

from django.urls import URLPattern, path

from console.pages import account, entrance, session
from console.pages.account import own


def _own(view: Any, *methods: str) -> Any:
    return own(*(methods or ("GET", "HEAD", "POST")))(view.as_view())


urlpatterns: list[URLPattern] = [
    path("login/", session.SignIn.as_view(), name="account_login"),
    path("login/second-step/", entrance.SecondStep.as_view(), name="mfa_authenticate"),
    path("login/second-step/leaving/", entrance.second_step_left, name="second_step_left"),
    path("login/passkey/", entrance.PasskeySignIn.as_view(), name="mfa_login_webauthn"),
    path("login/elsewhere/", entrance.sign_in_elsewhere, name="sign_in_elsewhere"),
    path("login/elsewhere/left/", entrance.sign_in_given_up, name="socialaccount_login_cancelled"),
    path("login/elsewhere/<slug:provider_id>/back/", entrance.came_back, name="openid_connect_callback"),
    path("login/closed/", entrance.login_closed, name="account_inactive"),
    path("account/", account.account, name="account"),
    # allauth's name for it.
    path("account/", account.account, name="mfa_index"),
    path("account/password/", _own(account.ChangePassword), name="account_change_password"),
    path("account/codes/on/", _own(account.TurnOnCodes), name="mfa_activate_totp"),
    path("account/codes/off/", _own(account.TurnOffCodes), name="mfa_deactivate_totp"),
    path(
        "account/recovery-codes/", _own(account.RecoveryCodes, "GET", "HEAD"), name="mfa_view_recovery_codes"
    ),
    path("account/recovery-codes/new/", _own(account.NewRecoveryCodes), name="mfa_generate_recovery_codes"),
    path("account/passkeys/new/", _own(account.AddPasskey), name="mfa_add_webauthn"),
    path("account/passkeys/<int:pk>/removal/", _own(account.RemovePasskey), name="mfa_remove_webauthn"),
    path("account/again/", _own(account.AgainByPassword), name="account_reauthenticate"),
    path("account/again/code/", _own(account.AgainByCode), name="mfa_reauthenticate"),
    path("account/again/passkey/", _own(account.AgainByPasskey), name="mfa_reauthenticate_webauthn"),
    path("account/sessions/", account.session_list, name="session_list"),
    path("account/sessions/others/end/", account.session_end_others, name="session_end_others"),
    path("account/sessions/<int:session_id>/end/", account.session_end, name="session_end"),
]
