"""The pages of one's own account, worded."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from allauth.mfa.models import Authenticator
from django.urls import reverse
from qrcode.main import QRCode

from console.models import Person, Role
from console.pages.present.marks import plural
from console.pages.shapes import FieldError, HiddenField, Link
from console.pages.shapes.account import (
    AccountForm,
    AccountPage,
    Entry,
    Passkeys,
    QrCode,
    SessionRow,
    SessionsPage,
    Way,
)
from console.sessions import SignedIn

ACCOUNT: Final = Link("Back to your account", "/account/")
CODE: Final = Entry(
    name="code",
    label="Code",
    autocomplete="one-time-code",
    hint="Six digits of your authenticator app, or one of your recovery codes.",
)
NEW_PASSWORD: Final = (
    Entry(
        name="password1",
        label="New password",
        type="password",
        autocomplete="new-password",
        hint="At least 12 characters, and not one of the common ones.",
    ),
    Entry(name="password2", label="New password once more", type="password", autocomplete="new-password"),
)
# What allauth's forms find wrong, in our words; the code is the form's own.
_WRONG: Final[Mapping[str, str]] = {
    "required": "Fill this in",
    "incorrect_code": "That code doesn’t fit, or it was used already",
    "too_many_login_attempts": "Too many wrong codes. Nothing was looked at; in five minutes it is",
    "rate_limited": "Too many wrong codes. Nothing was looked at; in five minutes it is",
    "incorrect_password": "That isn’t your password",
    "enter_current_password": "That isn’t your password",
}
_BROWSERS: Final = (("Edg/", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"))
_SYSTEMS: Final = (
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
)


def errors_of(form: Any) -> tuple[FieldError, ...]:
    """What is wrong with a form that came back, field by field."""
    return tuple(
        FieldError(
            field="" if name == "__all__" else f"id_{name}",
            sentence=_WRONG.get(str(error.code), " ".join(str(message) for message in error.messages)),
        )
        for name, found in form.errors.as_data().items()
        for error in found
    )


def passkey_options(act: str, options: Mapping[str, Any]) -> Passkeys:
    """What the browser is asked with, as our script takes it."""
    return Passkeys(act=act, options=json.dumps(options))


def second_step_page(form: Any, passkey_form: Any, *, passkeys: Passkeys) -> AccountForm:
    errors = errors_of(form) + tuple(
        FieldError(
            field="", sentence="The passkey isn’t one of this account, or it was asked for another page"
        )
        for _ in passkey_form.errors
    )
    return AccountForm(
        title="Show that it is you",
        lead=("Your password fits. One more step and you are signed in.",),
        button="Sign in",
        entries=(CODE,),
        errors=errors,
        passkeys=passkeys,
    )


def invitation_page(person: Person, *, wrong: str) -> AccountForm:
    return AccountForm(
        title=f"Choose a password, {person}",
        lead=(f"Your login is {person.username}. Sign in with it afterwards.",),
        button="Set the password",
        entries=NEW_PASSWORD,
        errors=(FieldError(field="id_password1", sentence=wrong),) if wrong else (),
    )


def account_page(
    person: Person, *, teams: Sequence[str], factors: Sequence[Authenticator], sessions: int, linked: str
) -> AccountPage:
    """Who one is here, and each way to sign in with what can be done about it."""
    kinds: dict[str, list[Authenticator]] = {}
    for one in factors:
        kinds.setdefault(one.type, []).append(one)
    roles = ", ".join(str(Role(role).label) for role in person.roles) or "none"
    ways = [_password(person), _totp(kinds), _passkeys(kinds)]
    if kinds.get("recovery_codes"):
        ways.append(_recovery(kinds["recovery_codes"][0]))
    if linked:
        ways.append(
            Way(title=linked.capitalize(), state="Linked", text="You sign in with it on the sign-in page.")
        )
    return AccountPage(
        name=str(person),
        username=person.username,
        roles=roles,
        teams=", ".join(teams) or "none",
        ways=tuple(ways),
        sessions=sessions,
    )


def _password(person: Person) -> Way:
    if not person.has_usable_password():
        return Way(title="Password", state="None", text="Your account has none here.")
    links = (Link("Change it", reverse("account_change_password")),)
    return Way(title="Password", state="Set", text="Changing it ends your other sessions.", links=links)


def _totp(kinds: Mapping[str, list[Authenticator]]) -> Way:
    if kinds.get("totp"):
        return Way(
            title="Authenticator app",
            state="On",
            text="After your password a code is asked for.",
            links=(Link("Turn it off", reverse("mfa_deactivate_totp")),),
        )
    return Way(
        title="Authenticator app",
        state="Off",
        text="A code from your telephone after the password: somebody who has only your password stays out.",
        links=(Link("Turn it on", reverse("mfa_activate_totp")),),
    )


def _passkeys(kinds: Mapping[str, list[Authenticator]]) -> Way:
    kept = kinds.get("webauthn", [])
    removals = tuple(
        Link(f"Remove “{one.wrap().name}”", reverse("mfa_remove_webauthn", args=[one.pk])) for one in kept
    )
    return Way(
        title="Passkeys",
        state=str(len(kept)) if kept else "None",
        text="Sign in by fingerprint, face or PIN of this device, without a password. It can’t be phished.",
        links=(Link("Add a passkey", reverse("mfa_add_webauthn")), *removals),
    )


def _recovery(kept: Authenticator) -> Way:
    left = len(kept.wrap().get_unused_codes())
    return Way(
        title="Recovery codes",
        state=f"{left} left",
        text="Each works once instead of the app or the passkey.",
        links=(Link("Make new ones", reverse("mfa_generate_recovery_codes")),),
    )


def qr_code(text: str) -> QrCode:
    """The text as a QR code (ISO/IEC 18004), with the four quiet squares around it."""
    code = QRCode(border=4)
    code.add_data(text)
    code.make(fit=True)
    rows = code.get_matrix()
    path = "".join(
        f"M{x},{y}h1v1h-1z" for y, row in enumerate(rows) for x, filled in enumerate(row) if filled
    )
    return QrCode(path=path, size=len(rows))


def spaced(secret: str) -> str:
    """The app's secret in groups of four, for whoever types it."""
    return " ".join(re.findall(".{1,4}", secret))


def device_of(user_agent: str) -> str:
    """Browser and system as far as its name says, which it says of itself."""
    browser = next((name for mark, name in _BROWSERS if mark in user_agent), "")
    if not browser and "Safari/" in user_agent:
        browser = "Safari"
    system = next((name for mark, name in _SYSTEMS if mark in user_agent), "")
    if browser and system:
        return f"{browser} on {system}"
    return browser or system or "A browser that doesn’t say which"


def sessions_page(found: Sequence[SignedIn]) -> SessionsPage:
    rows = tuple(
        SessionRow(
            id=one.id,
            device=device_of(one.device),
            device_full=one.device[:200],
            address=one.address,
            began_at=one.began_at,
            seen_at=one.seen_at,
            current=one.current,
        )
        for one in found
    )
    return SessionsPage(rows=rows, others=sum(not row.current for row in rows))


def hidden(**fields: str) -> tuple[HiddenField, ...]:
    return tuple(HiddenField(name=name, value=value) for name, value in fields.items())


def said_sessions(ended: int) -> str:
    """What to say after ending sessions."""
    return f"{plural(ended, 'session')} ended." if ended else "There was no other session to end."
