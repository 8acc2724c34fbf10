"""Showing again that it is you: what it opens for how long, and that nothing typed is lost on the way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.http import HttpRequest
from django.test import Client

from console import access
from console.models import Person, Role
from console.pages.reauthentication import FAILURES_MAX
from tests.integration.pages.conftest import Login

pytestmark = pytest.mark.django_db

PASSWORD = "a-long-enough-one"


@pytest.fixture
def client(login: Login) -> Client:
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
    assert "has no password here" in client.get("/reauthentication/").content.decode()
    assert client.post("/reauthentication/", {"password": ""}).status_code == 422


def test_somebody_without_a_session_is_asked_to_sign_in(client: Client) -> None:
    client.logout()
    assert client.get("/reauthentication/").status_code == 302
