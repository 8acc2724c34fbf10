"""What every answer is sent with, at every address; and a start with production settings."""

from __future__ import annotations

import os
import subprocess
import sys
from http.cookies import SimpleCookie
from typing import Any

import pytest
from django.conf import settings as live
from django.test import Client
from django.urls import reverse

from console.models import Person, Role
from tests import factories
from tests.integration.test_access_matrix import PAGES, addresses, browser, ids_of
from tests.processes import ROOT

# Counts and sums alone, asked again each time.
REVALIDATED = {"queue_news": "private, no-cache", "approval_news": "private, no-cache"}
PRODUCTION = {
    "RECOURSE_SECRET_KEY": "4f9a" * 16 + "rest-of-it",
    "RECOURSE_KEY_SECRET": "8c1d" * 16,
    "RECOURSE_ALLOWED_HOSTS": "recourse.example",
    "RECOURSE_BEHIND_TLS_PROXY": "1",
    "RECOURSE_SSL_REDIRECT": "1",
    "RECOURSE_PUBLIC_URL": "https://recourse.example",
    "RECOURSE_MAIL_URL": "smtp://recourse@mail.example:587",
    "RECOURSE_MAIL_PASSWORD": "of the mail server",
}


@pytest.mark.django_db
def test_every_address_is_answered_with_every_header_and_kept_nowhere(settings: Any) -> None:
    settings.SECURE_SSL_REDIRECT = False
    ids = ids_of(factories.TEAM)
    person = Person.objects.create(username="everything", roles=[str(role) for role in Role])
    person.teams.add(factories.make_team(factories.TEAM))
    client = browser(person)
    # What names nothing real is answered too, and with the same headers.
    named = {"account": "sandbox-payments", "word": "invalid", **ids}
    paths = {}
    for one in addresses():
        query = f"?{PAGES[one.name].query}" if one.name in PAGES else ""
        paths[one.name] = one.route.format(**{**dict.fromkeys(one.names, "x"), **named}) + query
    paths["call of the API"] = f"/api/v1/runs/{ids['run_id']}"
    paths["nowhere"] = "/nowhere/"
    for name, path in paths.items():
        # Signing out would end the walk.
        answer = client.get(path, secure=True) if name != "logout" else client.options(path, secure=True)
        sent = answer.headers
        # Neither a sweeper nor a worker is at work here.
        assert answer.status_code < 500 or name == "readyz", name
        assert "frame-ancestors 'none'" in sent["Content-Security-Policy"], name
        assert "'unsafe" not in sent["Content-Security-Policy"], name
        assert sent["X-Frame-Options"] == "DENY", name
        assert sent["X-Content-Type-Options"] == "nosniff", name
        assert sent["Referrer-Policy"] == "same-origin", name
        assert sent["Cross-Origin-Opener-Policy"] == "same-origin", name
        assert sent["Strict-Transport-Security"] == f"max-age={live.SECURE_HSTS_SECONDS}", name
        kept = REVALIDATED.get(name, "no-store")
        assert kept in sent.get("Cache-Control", ""), (name, sent.get("Cache-Control"))
    assert len(paths) > 60


@pytest.mark.django_db
def test_cookies_are_of_this_host_alone_and_unseen_by_scripts(settings: Any) -> None:
    settings.SECURE_SSL_REDIRECT = False
    Person.objects.create_user("maya", password="a password for tests only", roles=["operator"])
    client = Client()
    client.get(reverse("login"), secure=True)
    sent = {"username": "maya", "password": "a password for tests only", "login": "maya"}
    client.post(reverse("login"), sent, secure=True)
    client.post(reverse("theme"), {"theme": "dark"}, secure=True)
    cookies: SimpleCookie = client.cookies
    assert {"__Host-recourse_session", "__Host-recourse_csrf", "recourse_theme"} <= set(cookies)
    for name, cookie in cookies.items():
        assert cookie["secure"], name
        assert cookie["httponly"], name
        assert cookie["samesite"] in {"Lax", "Strict"}, name
        assert (cookie["path"], cookie["domain"]) == ("/", ""), name


def checked(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PATH": os.defpath, **environment},
    )


def test_a_deployment_with_production_settings_has_nothing_to_be_warned_of() -> None:
    done = checked(**PRODUCTION)
    assert done.returncode == 0, done.stderr
    assert "no issues" in done.stdout


def test_settings_that_should_not_be_in_production_are_each_warned_of() -> None:
    careless = {
        "RECOURSE_SECRET_KEY": "",
        "RECOURSE_SSL_REDIRECT": "0",
        "RECOURSE_SECURE_COOKIES": "0",
        "RECOURSE_DEBUG": "1",
        "RECOURSE_PUBLIC_URL": "",
    }
    done = checked(**{**PRODUCTION, **careless})
    assert done.returncode != 0
    wanted = ("recourse.E002", "security.W008", "security.W012", "security.W018", "recourse.W001")
    assert [one for one in wanted if one not in done.stderr] == []
