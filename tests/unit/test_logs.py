"""What a log line says of an exception and of secrets, through the logging set-up that every process has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from console.logs import TEXT_LENGTH_MAX, Redacted
from tests.processes import ROOT

PASSWORD = "db-password-9f2c"
KEY = "key-secret-of-this-deployment"
# What a process may come across, each in a way of its own.
RUN = """
import logging
import django
django.setup()
import structlog
from console import settings


class Held:
    def __repr__(self):
        return "token=held-in-an-object-77"
    __str__ = __repr__


def inner(payload, credential):
    local_secret = "local-and-secret-" + "31"
    raise ValueError("the answer was Bearer abcdefgh12345678 for 4242424242424242")


try:
    inner({"patient": "payload-of-a-patient"}, "credential-as-an-argument")
except ValueError:
    structlog.get_logger("ours").exception("it_failed", api_key="under-its-name", held=Held())
    logging.getLogger("celery.app.trace").exception("Task failed", extra={"note": "x"})
said = "password=in-a-sentence-5 " + settings.RECOURSE_KEY_SECRET
logging.getLogger("django.request").warning("Bad: %s", said)
structlog.get_logger("ours").warning("plain", body=b"body-as-bytes", url="https://x.test/?token=in-a-url-88")
"""
SECRETS = (
    "local-and-secret-31",
    "payload-of-a-patient",
    "credential-as-an-argument",
    "abcdefgh12345678",
    "4242424242424242",
    "under-its-name",
    "held-in-an-object-77",
    "in-a-sentence-5",
    "body-as-bytes",
    "in-a-url-88",
    PASSWORD,
    KEY,
)


def logged(form: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={
            "PATH": os.defpath,
            "DJANGO_SETTINGS_MODULE": "console.settings",
            "RECOURSE_LOG_FORMAT": form,
            "RECOURSE_KEY_SECRET": KEY,
            "DATABASE_URL": f"postgresql://me:{PASSWORD}@127.0.0.1/recourse",
        },
    )
    return done.stderr


def test_json_says_where_it_failed_and_shows_no_local_and_no_secret() -> None:
    out = logged("json")
    lines: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    assert [line["event"] for line in lines[:2]] == ["it_failed", "Task failed"]
    for line in lines[:2]:
        (failed,) = line["exception"]
        assert failed["exc_type"] == "ValueError"
        assert failed["exc_value"].startswith("the answer was")
        assert [frame["name"] for frame in failed["frames"]] == ["<module>", "inner"]
        assert all(not frame.get("locals") for frame in failed["frames"])
    for secret in SECRETS:
        assert secret not in out


def test_text_says_where_it_failed_and_shows_no_local_and_no_secret() -> None:
    out = logged("text")
    assert "in inner" in out
    assert "ValueError" in out
    for secret in SECRETS:
        assert secret not in out


def test_what_is_no_secret_stays_readable() -> None:
    line = {"event": "webhook_taken", "account": "shop", "count": 3, "ratio": 0.5, "none": None, "on": True}
    assert Redacted()(None, "info", dict(line)) == line


def test_a_long_text_is_cut() -> None:
    said = Redacted()(None, "info", {"event": "x" * (TEXT_LENGTH_MAX + 1)})["event"]
    assert len(said) == TEXT_LENGTH_MAX + 1
    assert said.endswith("…")


@pytest.mark.parametrize(
    "value", [{"a": {"password": "hunter2-hunter2"}}, [("x", {"token": "hunter2-hunter2"})]]
)
def test_a_secret_inside_other_values_is_found(value: Any) -> None:
    assert "hunter2" not in str(Redacted()(None, "info", {"event": "e", "value": value}))


def test_an_invitation_that_could_be_used_is_in_no_line() -> None:
    path = "/login/invitation/MTI/cxyz12-0123456789abcdef0123456789abcdef/"
    said = Redacted()(
        None, "", {"event": f"Unprocessable Entity: {path}", "args": [path], "level": "warning"}
    )
    assert "0123456789abcdef" not in str(said)
    assert said["event"] == "Unprocessable Entity: /login/invitation/MTI/[redacted]/"
