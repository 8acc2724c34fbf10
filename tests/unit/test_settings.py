"""Settings come from the environment, import without one, and refuse what they can't mean."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from console.variables import database
from tests.processes import ROOT

SHOW = """
import json
from console import settings as s
print(json.dumps({name: getattr(s, name) for name in dir(s) if name.isupper()}, default=str))
"""


def imported(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", SHOW],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PATH": os.defpath, **environment},
    )


def values(**environment: str) -> dict[str, object]:
    done = imported(**environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_an_empty_environment_imports_and_is_strict() -> None:
    found = values()
    assert found["DEBUG"] is False
    assert found["SESSION_COOKIE_SECURE"] is True
    assert found["CSRF_COOKIE_SECURE"] is True
    assert found["SESSION_COOKIE_NAME"] == "__Host-recourse_session"
    assert found["RECOURSE_SECRETS_ARE_TEMPORARY"] is True
    assert found["ALLOWED_HOSTS"] == ["127.0.0.1", "localhost", "[::1]"]
    assert found["RECOURSE_DATABASE_OWNER_URL"] == ""


def test_each_variable_reaches_its_setting() -> None:
    found = values(
        RECOURSE_SECRET_KEY="a",
        RECOURSE_KEY_SECRET="b",
        RECOURSE_DEBUG="yes",
        RECOURSE_ALLOWED_HOSTS="one.example, two.example",
        RECOURSE_PROVIDERS="stripe-refunds, slack",
        RECOURSE_PROVIDERS_DIR=os.pathsep.join(["/one", "/two"]),
        RECOURSE_SWEEP_SECONDS="0.5",
        RECOURSE_ENVIRONMENT="Staging",
        BROKER_URL="amqp://broker.example//",
        SANDBOX_URL="http://127.0.0.1:1",
    )
    assert (found["SECRET_KEY"], found["RECOURSE_KEY_SECRET"]) == ("a", "b")
    assert found["RECOURSE_SECRETS_ARE_TEMPORARY"] is False
    assert found["DEBUG"] is True
    assert found["ALLOWED_HOSTS"] == ["one.example", "two.example"]
    assert found["RECOURSE_PROVIDERS"] == ["stripe-refunds", "slack"]
    assert found["RECOURSE_PROVIDERS_DIR"] == ["/one", "/two"]
    assert found["RECOURSE_ENVIRONMENT"] == "Staging"
    assert found["CELERY_BROKER_URL"] == "amqp://broker.example//"
    assert found["SANDBOX_URL"] == "http://127.0.0.1:1"
    sweep = found["BEAT"]["sweep"]  # type: ignore[index]
    assert (sweep["task"], sweep["schedule"]) == ("console.tasks.sweep", 0.5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RECOURSE_DEBUG", "maybe"),
        ("RECOURSE_SECURE_COOKIES", "2"),
        ("RECOURSE_SWEEP_SECONDS", "soon"),
        ("RECOURSE_SWEEP_SECONDS", "0"),
        ("RECOURSE_SWEEP_SECONDS", "nan"),
        ("RECOURSE_LOG_FORMAT", "xml"),
        ("RECOURSE_LOG_LEVEL", "LOUD"),
        ("RECOURSE_ALLOWED_PROVIDER_HOSTS", "https://shop.example"),
        ("RECOURSE_ALLOWED_PROVIDER_HOSTS", "shop.example=everything"),
        ("RECOURSE_MAIL_URL", "imap://mail.example"),
        ("RECOURSE_PUBLIC_URL", "recourse.example/console"),
        ("RECOURSE_METRICS_DIR", "/nowhere/at/all"),
        ("NOTIFY_OPS__URL", "https://hooks.example/without-a-secret"),
        ("DATABASE_URL", "sqlite:///file"),
    ],
)
def test_a_value_that_means_nothing_stops_the_start_and_is_named(name: str, value: str) -> None:
    done = imported(**{name: value})
    assert done.returncode != 0
    said = {"DATABASE_URL": "postgresql://", "NOTIFY_OPS__URL": "NOTIFY_OPS__SECRET"}
    assert said.get(name, name) in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (
            "postgresql://me:p%40ss@db.example:6432/journal?sslmode=verify-full",
            {"NAME": "journal", "USER": "me", "PASSWORD": "p@ss", "HOST": "db.example", "PORT": "6432"},
        ),
        (
            "postgres://me@/journal?host=%2Frun%2Fpostgresql&port=5433",
            {"NAME": "journal", "USER": "me", "PASSWORD": "", "HOST": "/run/postgresql", "PORT": "5433"},
        ),
    ],
)
def test_a_database_url_is_read_as_libpq_reads_it(url: str, expected: dict[str, str]) -> None:
    read = database(url)
    assert {name: read[name] for name in expected} == expected
    assert read["OPTIONS"].get("sslmode", "verify-full") == "verify-full"
    assert "host" not in read["OPTIONS"]
    assert "port" not in read["OPTIONS"]


def test_another_database_than_postgresql_is_refused() -> None:
    with pytest.raises(ImproperlyConfigured, match="PostgreSQL only"):
        database("mysql://me@localhost/journal")


def test_no_page_may_run_inline_code_or_load_from_elsewhere() -> None:
    directives = settings.CONTENT_SECURITY_POLICY["DIRECTIVES"]
    sources = {source for allowed in directives.values() for source in allowed}
    assert sources == {"'self'", "'none'"}
    assert directives["default-src"] == ["'self'"]


def test_tasks_are_json_acknowledged_early_and_bounded() -> None:
    assert settings.CELERY_ACCEPT_CONTENT == ["json"]
    assert settings.CELERY_TASK_ACKS_LATE is False
    assert settings.CELERY_RESULT_BACKEND is None
    assert settings.CELERY_TASK_SOFT_TIME_LIMIT < settings.CELERY_TASK_TIME_LIMIT


def test_the_log_of_a_failure_has_no_values_of_variables() -> None:
    """Among them are passwords, payloads and what providers answered."""
    program = (
        "import django, structlog; django.setup(); password = 'hunter2'\n"
        "try: 1 / 0\n"
        "except ZeroDivisionError: structlog.get_logger('x').exception('boom')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PATH": os.defpath, "DJANGO_SETTINGS_MODULE": "console.settings"},
    )
    assert "ZeroDivisionError" in done.stderr
    assert "hunter2" not in done.stderr + done.stdout
