"""Showing again that it is you: what it opens for how long, and that nothing typed is lost on the way."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import (
    TOTP,
    format_hotp_value,
    generate_totp_secret,
    hotp_value,
    yield_hotp_counters_from_time,
)
from django.contrib.messages.storage.fallback import FallbackStorage
from django.contrib.sessions.backends.db import SessionStore
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory

from console import access
from console.models import Person, Role
from console.pages.reauthentication import FAILURES_MAX, WAITING_KEY, came_back
from tests.integration.pages.conftest import Login

pytestmark = pytest.mark.django_db

PASSWORD = "a-long-enough-one"


@pytest.fixture
def client(login: Login, settings: Any) -> Client:
    # What is asked for is tested here, and not how long a password takes.
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    made = login(Role.APPROVER, name="ines")
    person = Person.objects.get(username="ines")
    person.set_password(PASSWORD)
    person.save()
    made.force_login(person)
    return made


def at_session(seconds_ago: float | None) -> HttpRequest:
    request = HttpRequest()
    request.session = {}  # type: ignore[assignment]
    if seconds_ago is not None:
        at = datetime.now(UTC) - timedelta(seconds=seconds_ago)
        request.session[access.REAUTHENTICATED_KEY] = at.timestamp()
    return request


@pytest.mark.parametrize(
    ("seconds_ago", "recent"), [(0, True), (299, True), (301, False), (90_000, False), (None, False)]
)
def test_five_minutes_is_how_long_it_counts(seconds_ago: float | None, recent: bool) -> None:
    assert access.has_just_reauthenticated(at_session(seconds_ago)) is recent


def test_the_right_password_counts_from_now_and_leads_back(client: Client) -> None:
    assert access.REAUTHENTICATED_KEY not in client.session
    answer = client.post("/reauthentication/", {"password": PASSWORD, "next": "/runs/?view=paused"})
    assert (answer.status_code, answer["Location"]) == (302, "/runs/?view=paused")
    ago = datetime.now(UTC).timestamp() - client.session[access.REAUTHENTICATED_KEY]
    assert 0 <= ago < 60


@pytest.mark.parametrize("target", ["https://elsewhere.example/", "//elsewhere.example/", "javascript:1", ""])
def test_it_leads_nowhere_outside(client: Client, target: str) -> None:
    answer = client.post("/reauthentication/", {"password": PASSWORD, "next": target})
    assert answer["Location"] == "/"


def test_signing_in_counts_as_well(client: Client) -> None:
    client.logout()
    client.post("/login/", {"username": "ines", "password": PASSWORD})
    assert access.REAUTHENTICATED_KEY in client.session


def test_a_wrong_password_opens_nothing_and_says_how_many_are_left(client: Client) -> None:
    answer = client.post("/reauthentication/", {"password": "wrong", "next": "/runs/"})
    assert answer.status_code == 422
    assert f"After {FAILURES_MAX - 1} more wrong ones you are signed out" in answer.content.decode()
    assert access.REAUTHENTICATED_KEY not in client.session


def test_too_many_wrong_passwords_end_the_session(client: Client) -> None:
    for _ in range(FAILURES_MAX):
        answer = client.post("/reauthentication/", {"password": "wrong", "next": "/runs/"})
    assert answer["Location"] == "/login/?next=%2Fruns%2F"
    assert client.get("/runs/").status_code == 302


def test_passwords_are_counted_by_the_person_in_whatever_session_they_are_tried(client: Client) -> None:
    person = Person.objects.get(username="ines")
    for _ in range(10):
        # What many requests at once are to a session's own count.
        stolen = Client()
        stolen.force_login(person)
        assert stolen.post("/reauthentication/", {"password": "wrong"}).status_code == 422
    typed = {"password": PASSWORD, "next": "/runs/", "draft": "kept"}
    answer = client.post("/reauthentication/", typed)
    assert (answer.status_code, answer["Retry-After"]) == (429, "60")
    assert 'value="kept"' in answer.content.decode()
    assert access.REAUTHENTICATED_KEY not in client.session


def test_a_right_password_begins_the_counting_of_wrong_ones_anew(client: Client) -> None:
    for _ in range(FAILURES_MAX - 1):
        client.post("/reauthentication/", {"password": "wrong"})
    client.post("/reauthentication/", {"password": PASSWORD})
    assert client.post("/reauthentication/", {"password": "wrong"}).status_code == 422


def test_an_account_without_a_password_is_told_another_way(client: Client) -> None:
    person = Person.objects.get(username="ines")
    person.set_unusable_password()
    person.save()
    client.force_login(person)
    assert "has nothing that this page could ask for" in client.get("/reauthentication/").content.decode()
    assert client.post("/reauthentication/", {"password": ""}).status_code == 422


def test_a_fresh_sign_in_is_said_to_be_enough_and_an_old_one_isnt(client: Client) -> None:
    for seconds, enough in ((10, True), (access.REAUTHENTICATED_SECONDS_MAX + 10, False)):
        session = client.session
        session[access.REAUTHENTICATED_KEY] = datetime.now(UTC).timestamp() - seconds
        session.save()
        text = client.get("/reauthentication/?next=/runs/").content.decode()
        assert ('<a href="/runs/">Go on without</a>' in text) is enough
        assert ("Nothing was recorded." in text) is not enough


def test_somebody_without_a_session_is_asked_to_sign_in(client: Client) -> None:
    client.logout()
    assert client.get("/reauthentication/").status_code == 302


# --- Whatever somebody has set up -------------------------------------------------------------------------


def code_now(secret: str) -> str:
    return str(format_hotp_value(hotp_value(secret, next(iter(yield_hotp_counters_from_time())))))


@pytest.fixture
def with_codes(client: Client) -> tuple[Client, str, list[str]]:
    """Somebody with an authenticator app: client, the app's secret, recovery codes."""
    person = Person.objects.get(username="ines")
    secret = generate_totp_secret()
    TOTP.activate(person, secret)
    codes = RecoveryCodes.activate(person).get_unused_codes()
    return client, secret, codes


def test_with_codes_on_a_password_alone_is_not_enough(with_codes: tuple[Client, str, list[str]]) -> None:
    client, secret, _ = with_codes
    asked = client.get("/reauthentication/").content.decode()
    assert "Code of your authenticator app" in asked
    for given in (
        {"password": PASSWORD},
        {"code": code_now(secret)},
        {"password": PASSWORD, "code": "000000"},
    ):
        answer = client.post("/reauthentication/", given)
        assert (answer.status_code, "don’t both fit" in answer.content.decode()) == (422, True), given
        assert access.REAUTHENTICATED_KEY not in client.session
    both = {"password": PASSWORD, "code": code_now(secret), "next": "/approvals/"}
    assert client.post("/reauthentication/", both)["Location"] == "/approvals/"
    assert access.REAUTHENTICATED_KEY in client.session


def test_a_recovery_code_does_once_and_a_wrong_password_leaves_it_unused(
    with_codes: tuple[Client, str, list[str]],
) -> None:
    client, _, (code, *_) = with_codes
    assert client.post("/reauthentication/", {"password": "wrong", "code": code}).status_code == 422
    given = {"password": PASSWORD, "code": code, "next": "/approvals/"}
    shown = client.post("/reauthentication/", given, follow=True).content.decode()
    assert "That recovery code is used up; 9 are left." in shown
    assert client.post("/reauthentication/", given).status_code == 422


def test_codes_tried_are_limited_by_the_person(with_codes: tuple[Client, str, list[str]]) -> None:
    client, secret, _ = with_codes
    person = Person.objects.get(username="ines")
    for _ in range(5):
        other = Client()
        other.force_login(person)
        assert other.post("/reauthentication/", {"password": PASSWORD, "code": "000000"}).status_code == 422
    right = client.post("/reauthentication/", {"password": PASSWORD, "code": code_now(secret)})
    assert "This one wasn’t looked at" in right.content.decode()
    assert access.REAUTHENTICATED_KEY not in client.session


def test_a_password_alone_changes_nothing_of_how_somebody_with_codes_signs_in(
    with_codes: tuple[Client, str, list[str]],
) -> None:
    client, *_ = with_codes
    assert client.get("/account/codes/off/")["Location"].startswith("/account/again/code/")
    assert client.post("/account/again/", {"password": PASSWORD}).status_code == 302
    assert client.get("/account/codes/off/").status_code == 302
    assert access.REAUTHENTICATED_KEY not in client.session


def test_a_passkey_is_offered_and_said_to_need_a_script_and_another_ones_opens_nothing(
    client: Client,
) -> None:
    person = Person.objects.get(username="ines")
    Authenticator.objects.create(user=person, type=Authenticator.Type.WEBAUTHN, data={"name": "Key"})
    asked = client.get("/reauthentication/").content.decode()
    assert "Use your passkey" in asked
    assert "Your passkey needs JavaScript" in asked
    assert 'name="password"' not in asked, "a password beside a passkey isn't enough"
    for credential in ("", "{", "[]", "null", '{"id": 1}', '{"rawId": "x", "response": {}}'):
        assert client.post("/reauthentication/", {"credential": credential}).status_code in {422, 302}
        client.force_login(person)
        # Nor is anything of it a failure of ours where it signs in.
        assert Client().post("/login/passkey/", {"credential": credential}).status_code < 500
    assert access.REAUTHENTICATED_KEY not in client.session


def login_of(person: Person, claims: dict[str, object]) -> SimpleNamespace:
    account = SimpleNamespace(pk=1, extra_data=claims)
    return SimpleNamespace(is_existing=True, account=account, user=person)


def elsewhere(
    person: Person, claims: dict[str, object], *, waits: bool = True
) -> tuple[HttpRequest, HttpResponse]:
    """What the console does with an identity provider's word about the person."""
    request = RequestFactory().get("/login/elsewhere/sso/back/")
    request.user = person
    request.session = SessionStore()
    request._messages = FallbackStorage(request)  # type: ignore[attr-defined]
    if waits:
        request.session[WAITING_KEY] = {"target": "/approvals/", "draft": ""}
    return request, came_back(request, login_of(person, claims))


def told(seconds_ago: float) -> dict[str, object]:
    return {"id_token": {"auth_time": int((datetime.now(UTC) - timedelta(seconds=seconds_ago)).timestamp())}}


# The claims are made when a test runs: a time told while tests are collected is long past by then.
@pytest.mark.parametrize(
    ("claims", "status"),
    [
        (lambda: told(2), 302),
        (lambda: told(-30), 302),
        (lambda: told(400), 403),
        (lambda: told(-300), 403),
        (lambda: {"id_token": {"auth_time": "soon"}}, 403),
        (lambda: {"id_token": {}}, 403),
        (dict, 403),
    ],
)
def test_an_identity_provider_counts_only_if_it_says_that_it_asked_just_now(
    client: Client, claims: Callable[[], dict[str, object]], status: int
) -> None:
    request, answer = elsewhere(Person.objects.get(username="ines"), claims())
    assert answer.status_code == status
    assert access.has_just_reauthenticated(request) is (status == 302)


def test_where_a_provider_never_tells_when_an_installation_may_take_its_word(
    client: Client, settings: Any
) -> None:
    settings.RECOURSE_IDENTITY_PROVIDER = {"name": "Sign-on", "settings": {"auth_time_required": False}}
    request, answer = elsewhere(Person.objects.get(username="ines"), {"id_token": {}})
    assert (answer.status_code, access.has_just_reauthenticated(request)) == (302, True)
    request, answer = elsewhere(Person.objects.get(username="ines"), told(400))
    assert answer.status_code == 403, "what it does tell counts"


def test_an_answer_about_somebody_else_or_that_nobody_waits_for_shows_nothing(
    client: Client, login: Login
) -> None:
    ines = Person.objects.get(username="ines")
    login(Role.APPROVER, name="eve")
    request, answer = elsewhere(ines, told(1), waits=False)
    assert not access.has_just_reauthenticated(request)
    request = RequestFactory().get("/")
    request.user, request.session = ines, SessionStore()
    request.session[WAITING_KEY] = {"target": "/approvals/", "draft": ""}
    answer = came_back(request, login_of(Person.objects.get(username="eve"), told(1)))
    assert (answer.status_code, access.has_just_reauthenticated(request)) == (403, False)
