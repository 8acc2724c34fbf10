"""What a person typed into a form that arrived without a session, kept through the sign-in.

Signed and bounded, in a hidden field of the sign-in form and never in an address; given back once, to whoever
typed it and to nobody else, in a form that they send themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from django.conf import settings
from django.core import signing
from django.http import HttpRequest, HttpResponse, QueryDict

from console.models import Person
from console.pages.shapes import Fact
from reconciliation.providers.redaction import is_secret_shaped

KEY: Final = "draft"
# A sign-in form left open longer than this brings nothing back.
SECONDS_MAX: Final = 12 * 60 * 60
# The longest that a form of the console takes is a provider's declaration, 64 KiB wide at most.
FIELD_LENGTH_MAX: Final = 64 * 1024
TOTAL_LENGTH_MAX: Final = 256 * 1024
FIELDS_MAX: Final = 400

# Who signed in here last, so that their words go to nobody else. It opens nothing: it is only compared.
TYPIST_COOKIE: Final = "__Host-recourse_typist" if settings.SECURE_COOKIES else "recourse_typist"
TYPIST_SECONDS: Final = 30 * 24 * 60 * 60

# What a form carries that nobody typed, or that must not be kept.
_NEVER_KEPT: Final = frozenset(
    {"csrfmiddlewaretoken", "password", "oldpassword", "code", "credential", "next", KEY, "step", "act"}
)
# What a page needs to know of a form, and a person doesn't.
_UNSEEN: Final = frozenset(
    {
        "idempotency_key",
        "seen_version",
        "evidence_digest",
        "content_digest",
        "seen_number",
        "shown_digest",
        "number",
        "query",
        "freeze",
        "counts",
    }
)
# The ids that a form mints for itself begin with it.
FORM_ID_PREFIX: Final = "form_"

_LABELS: Final[Mapping[str, str]] = {
    "reason": "Your reason",
    "comment": "Your comment",
    "reason_code": "Reason code",
    "action": "Action",
    "text": "Your text",
    "given_reference": "Provider’s id",
    "given_body": "Provider’s record",
    "until": "Until",
    "length": "For how long",
    "name": "Name",
    "backup_taken_at": "When the backup was taken",
    "operation": "Operation id or key",
    "payload": "Payload",
}


def pack(request: HttpRequest, *, typist: str = "") -> str:
    """Return this POST's fields, bounded and signed, for a hidden field; "" if nothing worth it was typed.

    `typist` is the id of who typed them where that is known; else this browser says who was last here.
    """
    fields = typed_in(request.POST)
    if not shown_facts(request.POST):
        return ""
    kept = {"path": request.path, "typist": typist or typist_of(request), "fields": fields}
    return signing.dumps(kept, salt=KEY, compress=True)


def unpack(packed: str) -> dict[str, Any]:
    """Return what `pack` signed: `path`, `typist` and `fields`; {} if it is missing, altered or too old."""
    if not packed:
        return {}
    try:
        draft = signing.loads(packed, salt=KEY, max_age=SECONDS_MAX)
    except signing.BadSignature:
        return {}
    return cast("dict[str, Any]", draft)


def keep_for(request: HttpRequest, person: Person, draft: Mapping[str, Any]) -> bool:
    """Keep a draft in the new session of `person`; False, and it is dropped, if somebody else typed it."""
    if not draft or draft.get("typist") != str(person.pk):
        return False
    request.session[KEY] = {"path": draft["path"], "fields": draft["fields"]}
    return True


def take_draft(request: HttpRequest, *, path: str) -> QueryDict:
    """Return the fields typed for `path` before the session ended, once; empty if there are none."""
    given = QueryDict(mutable=True)
    draft = request.session.get(KEY)
    if draft and draft.get("path") == path:
        del request.session[KEY]
        for name, value in draft["fields"]:
            given.appendlist(name, value)
    return given


def typed_in(posted: QueryDict) -> list[tuple[str, str]]:
    """The fields of a form that may be kept, in their order, within the bounds."""
    kept: list[tuple[str, str]] = []
    room = TOTAL_LENGTH_MAX
    for name, values in posted.lists():
        if name in _NEVER_KEPT or name.startswith("password"):
            continue
        for value in values:
            # A field that is too long is left out rather than cut: half a record reads like a whole one.
            fits = len(value) <= min(FIELD_LENGTH_MAX, room) and len(kept) < FIELDS_MAX
            if value.strip() and fits and not is_secret_shaped(value):
                kept.append((name, value))
                room -= len(value)
    return kept


def shown_facts(posted: QueryDict) -> tuple[Fact, ...]:
    """What a person typed or chose in a form, to be given back as text where no form is left for it."""
    return tuple(
        Fact(label=_LABELS.get(name, name.replace("_", " ").capitalize()), value=(value,))
        for name, value in typed_in(posted)
        if name not in _UNSEEN and not value.startswith(FORM_ID_PREFIX)
    )


def carries_own_id(posted: Mapping[str, str]) -> bool:
    """Whether the form minted an id of its own: what it asks for is done once, however often it comes."""
    return any(
        str(posted.get(name, "")).startswith(FORM_ID_PREFIX) for name in ("idempotency_key", "key", "form_id")
    )


# --- Who typed -------------------------------------------------------------------------------------------


def remember_typist(response: HttpResponse, person: Person) -> None:
    """Note in this browser who signed in, for what they type until their session ends."""
    response.set_signed_cookie(
        TYPIST_COOKIE,
        str(person.pk),
        salt=TYPIST_COOKIE,
        max_age=TYPIST_SECONDS,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )


def typist_of(request: HttpRequest) -> str:
    """Whose words these are, as far as this browser knows; "" if it doesn't."""
    return str(request.get_signed_cookie(TYPIST_COOKIE, "", salt=TYPIST_COOKIE, max_age=TYPIST_SECONDS) or "")
