"""Signing in and out, preferences, and the pages that say what went wrong."""

from __future__ import annotations

import re

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import include, path

from console.models import Person, Role
from console.pages import problems
from console.pages.drafts import take_draft
from console.pages.session import signed_in

pytestmark = pytest.mark.django_db

PASSWORD = "a long enough password"
REASON = "Seen at the provider, with our reference & key."


@signed_in
def guarded(request: HttpRequest, case_id: str) -> HttpResponse:
    draft = take_draft(request, path=request.path)
    return HttpResponse(f"{case_id}|{draft.get('reason', '')}")


def broken(_request: HttpRequest) -> HttpResponse:
    raise RuntimeError("a defect")


urlpatterns = [
    path("cases/<str:case_id>/decision/", guarded),
    path("broken/", broken),
    path("", include("console.pages.urls")),
]
handler404 = problems.not_found
handler500 = problems.server_error


@pytest.fixture(autouse=True)
def _addresses(settings: pytest.FixtureRequest) -> None:
    settings.ROOT_URLCONF = __name__  # type: ignore[attr-defined]


@pytest.fixture
def person() -> Person:
    return Person.objects.create_user(
        "sam", password=PASSWORD, first_name="Sam", last_name="Lane", roles=[Role.OPERATOR]
    )


@pytest.fixture
def client() -> Client:
    return Client(enforce_csrf_checks=True)


def token(answer: object) -> str:
    found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', answer.content.decode())  # type: ignore[attr-defined]
    assert found
    return found[1]


def sign_in(client: Client, **fields: str) -> object:
    page = client.get("/login/", secure=True)
    return client.post(
        "/login/",
        {"username": "sam", "password": PASSWORD, "csrfmiddlewaretoken": token(page), **fields},
        secure=True,
        headers={"referer": "https://testserver/login/"},
    )


def test_a_page_asks_a_stranger_to_sign_in_and_brings_them_back(client: Client, person: Person) -> None:
    answer = client.get("/cases/case_1/decision/?a=1", secure=True)
    assert answer.status_code == 302
    assert answer["Location"] == "/login/?next=%2Fcases%2Fcase_1%2Fdecision%2F%3Fa%3D1"
    signed = sign_in(client, next="/cases/case_1/decision/?a=1")
    assert signed["Location"] == "/cases/case_1/decision/?a=1"  # type: ignore[index]


def test_a_sign_in_never_leads_to_another_site(client: Client, person: Person) -> None:
    assert sign_in(client, next="https://elsewhere.example/")["Location"] == "/"  # type: ignore[index]


def test_a_wrong_password_says_so_and_keeps_the_name(client: Client, person: Person) -> None:
    answer = sign_in(client, password="wrong")
    text = answer.content.decode()  # type: ignore[attr-defined]
    assert "That login and password don’t belong together" in text
    assert '<label for="id_username">Login</label>' in text
    assert 'value="sam"' in text


def test_what_was_typed_when_the_session_ended_comes_back_after_the_sign_in(
    client: Client, person: Person
) -> None:
    typed = {"reason": REASON, "action": "confirm", "password": "not a draft", "step": "review"}
    sign_in(client)
    del client.cookies["__Host-recourse_session"]
    page = client.get("/login/", secure=True)
    answer = client.post(
        "/cases/case_1/decision/",
        {**typed, "csrfmiddlewaretoken": token(page)},
        secure=True,
        headers={"referer": "https://testserver/"},
    )
    text = answer.content.decode()
    assert (answer.status_code, answer["Cache-Control"]) == (403, "no-store")
    assert "Your session has ended. Nothing was recorded." in text
    assert "not a draft" not in text
    draft = re.search(r'name="draft" value="([^"]+)"', text)
    assert draft
    signed = sign_in(client, draft=draft[1], next="/cases/case_1/decision/")
    assert signed["Location"] == "/cases/case_1/decision/"  # type: ignore[index]
    assert client.get("/cases/case_2/decision/", secure=True).content.decode() == "case_2|"
    assert client.get("/cases/case_1/decision/", secure=True).content.decode() == f"case_1|{REASON}"
    assert client.get("/cases/case_1/decision/", secure=True).content.decode() == "case_1|", "given back once"


def test_an_altered_draft_is_dropped(client: Client, person: Person) -> None:
    sign_in(client, draft="eyJwYXRoIjoiLyJ9:forged:signature")
    assert "draft" not in client.session


def test_signing_out_takes_a_post(client: Client, person: Person) -> None:
    sign_in(client)
    assert client.get("/logout/", secure=True).status_code == 405
    page = client.get("/preferences/", secure=True)
    client.post(
        "/logout/",
        {"csrfmiddlewaretoken": token(page)},
        secure=True,
        headers={"referer": "https://testserver/"},
    )
    assert client.get("/cases/case_1/decision/", secure=True).status_code == 302


def test_the_frame_names_the_person_and_their_role(client: Client, person: Person) -> None:
    sign_in(client)
    text = client.get("/preferences/", secure=True).content.decode()
    assert "Account: Sam Lane, Operator" in text


def set_preference(client: Client, **fields: str) -> HttpResponse:
    page = client.get("/preferences/", secure=True)
    answer = client.post(
        "/preferences/theme/",
        {"csrfmiddlewaretoken": token(page), **fields},
        secure=True,
        headers={"referer": "https://testserver/"},
    )
    assert isinstance(answer, HttpResponse)
    return answer


def test_a_theme_is_kept_in_a_cookie_that_no_script_reads(client: Client) -> None:
    answer = set_preference(client, theme="dark", next="/preferences/")
    assert answer["Location"] == "/preferences/"
    cookie = answer.cookies["recourse_theme"]
    assert (cookie.value, cookie["httponly"], cookie["samesite"]) == ("dark", True, "Lax")
    assert 'data-theme="dark"' in client.get("/preferences/", secure=True).content.decode()


@pytest.mark.parametrize(
    "target", ["https://elsewhere.example/", "//elsewhere.example/", "javascript:alert(1)", ""]
)
def test_a_preference_never_leads_to_another_site(client: Client, target: str) -> None:
    assert set_preference(client, theme="light", next=target)["Location"] == "/"


def test_an_unknown_theme_is_not_kept(client: Client) -> None:
    assert "recourse_theme" not in set_preference(client, theme='"><script>', next="/").cookies


def test_shortcuts_turned_off_stay_off_wherever_the_person_signs_in(client: Client, person: Person) -> None:
    client.force_login(person)
    set_preference(client, shortcuts="off", next="/preferences/")
    elsewhere = Client()
    assert 'data-shortcuts="on"' in elsewhere.get("/preferences/", secure=True).content.decode()
    elsewhere.force_login(person)
    assert 'data-shortcuts="off"' in elsewhere.get("/preferences/", secure=True).content.decode()
    set_preference(elsewhere, shortcuts="nonsense", next="/preferences/")
    set_preference(Client(), shortcuts="on", next="/preferences/")
    assert 'data-shortcuts="off"' in client.get("/preferences/", secure=True).content.decode()


def test_a_form_of_another_session_gives_back_what_was_typed(client: Client, person: Person) -> None:
    answer = client.post(
        "/cases/case_1/decision/", {"reason": "<b>kept</b>", "action": "confirm"}, secure=True
    )
    text = answer.content.decode()
    assert answer.status_code == 403
    assert "&lt;b&gt;kept&lt;/b&gt;</textarea>" in text
    assert "<b>kept</b>" not in text


def test_a_page_that_isnt_there_is_a_404_that_says_no_more(client: Client) -> None:
    answer = client.get("/nowhere/", secure=True)
    assert answer.status_code == 404
    assert "There is no such page" in answer.content.decode()


def test_a_defect_is_a_500_that_claims_nothing(client: Client) -> None:
    client.raise_request_exception = False
    answer = client.get("/broken/", secure=True)
    assert answer.status_code == 500
    text = answer.content.decode()
    assert "Nothing was asked to change" in text
    assert "try again" not in text.lower()
    assert "RuntimeError" not in text


def test_the_console_can_be_asked_whether_it_is_there_and_whether_a_session_is(
    client: Client, person: Person
) -> None:
    answer = client.head("/live/", secure=True)
    assert (answer.status_code, answer["Cache-Control"]) == (401, "no-store")
    client.force_login(person)
    assert client.head("/live/", secure=True).status_code == 204
