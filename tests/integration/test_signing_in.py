"""Signing in beyond the password: codes, recovery codes, limits, sessions, and being out at once."""

from __future__ import annotations

import hashlib
import hmac
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value, yield_hotp_counters_from_time
from django.core.cache import cache
from django.db import connections
from django.test import Client

from console.models import Person, Role
from console.sign_in import SecondFactors
from runs.models import AuditLeaf
from tests import cases, factories

pytestmark = pytest.mark.django_db

PASSWORD = "a long enough password"
REASON = "Seen at the provider, with our reference."


@pytest.fixture
def sam() -> Person:
    made: Person = Person.objects.create_user("sam", password=PASSWORD, roles=[Role.OPERATOR])
    made.teams.add(factories.make_team())
    return made


def sign_in(client: Client | None = None, **fields: str) -> tuple[Client, Any]:
    client = client or Client(headers={"user-agent": "Mozilla/5.0 (X11; Linux) Firefox/140.0"})
    return client, client.post("/login/", {"username": "sam", "password": PASSWORD, **fields})


def again(client: Client) -> None:
    """Show the password once more, which changes of an account take."""
    answer = client.post("/account/again/", {"password": PASSWORD, "next": "/account/"})
    assert answer.status_code == 302, answer.content


def code_now(secret: str, *, steps: int = 0) -> str:
    counter = next(iter(yield_hotp_counters_from_time()))
    return str(format_hotp_value(hotp_value(secret, counter + steps)))


def turn_on_codes(client: Client) -> tuple[str, list[str]]:
    """Turn codes on as a person does; returns the app's secret and the recovery codes."""
    again(client)
    page = client.get("/account/codes/on/").context["page"]
    secret = page.secret.replace(" ", "")
    answer = client.post("/account/codes/on/", {"code": code_now(secret)})
    assert answer.status_code == 302, answer.context["page"].errors
    shown = client.get(answer["Location"]).context["page"]
    return secret, list(shown.codes)


def forget_used_codes() -> None:
    """A code counts once; let the same half minute serve a test's next sign-in."""
    cache.clear()


# --- Codes --------------------------------------------------------------------------------------------------


def test_with_codes_on_a_password_alone_signs_nobody_in(sam: Person) -> None:
    client, _ = sign_in()
    secret, recovery = turn_on_codes(client)
    assert len(recovery) == 10
    forget_used_codes()
    stranger, answer = sign_in()
    assert answer["Location"] == "/login/second-step/"
    assert stranger.get("/").status_code == 302
    wrong = stranger.post("/login/second-step/", {"code": "000000"})
    assert "That code doesn’t fit" in wrong.content.decode()
    assert stranger.get("/").status_code == 302
    right = stranger.post("/login/second-step/", {"code": code_now(secret)})
    assert right["Location"] == "/"
    assert stranger.get("/").status_code == 200


def test_a_code_that_was_used_signs_nobody_in_again(sam: Person) -> None:
    client, _ = sign_in()
    secret, _ = turn_on_codes(client)
    forget_used_codes()
    code = code_now(secret)
    first, _ = sign_in()
    assert first.post("/login/second-step/", {"code": code}).status_code == 302
    second, _ = sign_in()
    assert second.post("/login/second-step/", {"code": code}).status_code == 200
    assert second.get("/").status_code == 302


def test_a_recovery_code_signs_in_once(sam: Person) -> None:
    client, _ = sign_in()
    _, [code, *_] = turn_on_codes(client)
    first, _ = sign_in()
    assert first.post("/login/second-step/", {"code": code})["Location"] == "/"
    second, _ = sign_in()
    assert second.post("/login/second-step/", {"code": code}).status_code == 200
    assert second.get("/").status_code == 302
    assert not client.get("/account/recovery-codes/").context["page"].codes, "shown once"


def test_the_secret_of_the_codes_is_not_readable_in_the_database(sam: Person) -> None:
    client, _ = sign_in()
    secret, _ = turn_on_codes(client)
    stored = Authenticator.objects.get(type="totp").data["secret"]
    assert secret not in stored
    assert SecondFactors().decrypt(stored) == secret


def test_once_the_deployments_secret_is_replaced_no_code_fits_that_anybody_could_work_out(
    sam: Person, settings: Any
) -> None:
    """What can't be read any more mustn't be taken for an empty secret, whose codes are everybody's."""
    client, _ = sign_in()
    turn_on_codes(client)
    forget_used_codes()
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another secret of the deployment", []
    of_nothing = hmac.new(b"", b"  0,", hashlib.sha1).digest()[:4]
    recovery = f"{int.from_bytes(of_nothing) % 10**8:08}"
    for code in (code_now(""), code_now("", steps=1), recovery):
        stranger, answer = sign_in()
        assert answer["Location"] == "/login/second-step/"
        assert stranger.post("/login/second-step/", {"code": code}).status_code == 200, code
        assert stranger.get("/").status_code == 302


def test_how_one_signs_in_is_changed_only_after_showing_who_one_is(sam: Person) -> None:
    client, _ = sign_in()
    for path in ("/account/codes/on/", "/account/passkeys/new/", "/account/recovery-codes/new/"):
        answer = client.get(path)
        assert answer["Location"].startswith("/account/again/"), path
    wrong = client.post("/account/again/", {"password": "wrong"})
    assert "That isn’t your password" in wrong.content.decode()
    assert client.get("/account/codes/on/").status_code == 302


def test_what_was_typed_comes_back_after_the_second_step_too(sam: Person) -> None:
    opened = cases.needs_decision()
    client, _ = sign_in()
    secret, _ = turn_on_codes(client)
    forget_used_codes()
    client.cookies.pop("__Host-recourse_session")
    path = f"/cases/{opened.case_id}/note/"
    page = client.post(path, {"text": REASON, "key": "form_1"})
    draft = re.search(r'name="draft" value="([^"]+)"', page.content.decode())
    assert draft
    _, answer = sign_in(client, draft=draft[1], next=path)
    assert answer["Location"] == "/login/second-step/"
    done = client.post("/login/second-step/", {"code": code_now(secret)})
    assert done["Location"] == path
    assert REASON in client.get(path).content.decode()


# --- Limits -------------------------------------------------------------------------------------------------


def test_after_five_wrong_passwords_the_right_one_is_not_looked_at_either(sam: Person) -> None:
    client = Client()
    for _ in range(5):
        assert sign_in(client, password="wrong")[1].status_code == 200
    _, answer = sign_in(client, draft="kept", next="/runs/")
    assert (answer.status_code, answer["Retry-After"]) == (429, "60")
    text = answer.content.decode()
    assert "Nothing was looked at" in text
    assert 'name="draft" value="kept"' in text
    assert client.get("/").status_code == 302
    other = Client(REMOTE_ADDR="192.0.2.7")
    assert sign_in(other)[1].status_code == 429, "the name counts, wherever it comes from"


@pytest.mark.django_db(transaction=True)
def test_a_burst_of_wrong_passwords_at_once_gets_no_more_tries_than_a_row_of_them(sam: Person) -> None:
    answers: list[int] = []

    def one() -> None:
        try:
            answers.append(sign_in(Client(), password="wrong")[1].status_code)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=one) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers.count(200) <= 5, answers
    assert answers.count(429) >= 7, answers
    assert len(answers) == 12


def test_wrong_codes_are_limited_by_the_person(sam: Person) -> None:
    client, _ = sign_in()
    secret, _ = turn_on_codes(client)
    forget_used_codes()
    stranger, _ = sign_in()
    for _ in range(5):
        assert stranger.post("/login/second-step/", {"code": "000000"}).status_code == 200
    assert stranger.post("/login/second-step/", {"code": code_now(secret)}).status_code == 429
    assert stranger.get("/").status_code == 302


# --- Sessions -----------------------------------------------------------------------------------------------


def test_sessions_are_listed_and_one_of_them_is_ended(sam: Person) -> None:
    here, _ = sign_in()
    there, _ = sign_in(Client(REMOTE_ADDR="192.0.2.7", headers={"user-agent": "iPhone Safari/604.1"}))
    rows = here.get("/account/sessions/").context["page"].rows
    assert {(row.device, row.address, row.current) for row in rows} == {
        ("Firefox on Linux", "127.0.0.1", True),
        ("Safari on iPhone", "192.0.2.7", False),
    }
    [other] = [row.id for row in rows if not row.current]
    assert here.post(f"/account/sessions/{other}/end/").status_code == 302
    assert there.get("/").status_code == 302
    assert here.get("/").status_code == 200
    assert AuditLeaf.objects.get(action="person.sessions_ended").actor == f"person:{sam.pk}"


def test_nobody_ends_a_session_of_another(sam: Person) -> None:
    theirs, _ = sign_in()
    [row] = theirs.get("/account/sessions/").context["page"].rows
    Person.objects.create_user("eve", password=PASSWORD, roles=[Role.ADMINISTRATOR])
    eve, _ = sign_in(username="eve")
    eve.post(f"/account/sessions/{row.id}/end/")
    assert theirs.get("/").status_code == 200


def test_all_other_sessions_are_ended_and_this_one_stays(sam: Person) -> None:
    clients = [sign_in()[0] for _ in range(3)]
    assert clients[0].post("/account/sessions/others/end/").status_code == 302
    assert [client.get("/").status_code for client in clients] == [200, 302, 302]


def test_a_new_password_ends_the_other_sessions(sam: Person) -> None:
    here, _ = sign_in()
    there, _ = sign_in()
    new = "another long password"
    typed = {"oldpassword": PASSWORD, "password1": new, "password2": new}
    assert here.post("/account/password/", typed).status_code == 302
    assert here.get("/").status_code == 200
    assert there.get("/").status_code == 302
    assert sign_in()[1].status_code == 200, "the old one doesn’t fit any more"
    assert sign_in(password=new)[1].status_code == 302


@pytest.mark.parametrize("path", ["/account/", "/account/sessions/", "/account/codes/on/", "/login/"])
def test_nothing_about_an_account_is_kept_by_a_cache(sam: Person, path: str) -> None:
    client, _ = sign_in()
    again(client)
    assert "no-store" in client.get(path).headers.get("Cache-Control", "no-store")


Step = Callable[[Client], Any]


def test_a_login_that_is_closed_is_out_at_once_and_does_not_come_in(sam: Person) -> None:
    client, _ = sign_in()
    assert client.get("/").status_code == 200
    Person.objects.filter(pk=sam.pk).update(is_active=False)
    assert client.get("/").status_code == 302
    _, answer = sign_in()
    assert answer.status_code == 200
    assert "don’t belong together" in answer.content.decode()
