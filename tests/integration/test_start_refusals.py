"""A process that must not serve says why and ends: a forgetful database, the owner's login, no secrets."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from console.checks import unsafe_settings
from console.embedded import EmbeddedServers
from tests.processes import BIN, Process, Spawn, free_port

WEB = [BIN / "granian", "--interface", "wsgi", "--host", "127.0.0.1", "console.wsgi:application", "--port"]
WORKER = [BIN / "celery", "-A", "console", "worker", "--concurrency", "1"]
Start = Callable[..., Process]
BEAT = [BIN / "celery", "-A", "console", "beat", "--pidfile=", "--schedule"]


def with_option(url: str, option: str) -> str:
    return f"{url}&options=-c%20{option}"


@pytest.fixture
def start(spawn: Spawn, app_env: dict[str, str], tmp_path: Path) -> Start:
    """Start one of the application's processes with a changed environment."""
    commands: dict[str, list[str | Path]] = {
        "web": [*WEB, str(free_port())],
        "worker": [*WORKER],
        "beat": [*BEAT, tmp_path / "schedule"],
    }

    def run(name: str = "web", **changed: str) -> Process:
        return spawn(commands[name], env={**app_env, **changed}, name=name)

    return run


def refused(process: Process, sentence: str) -> None:
    assert process.wait() != 0
    assert "Recourse did not start" in process.output()
    assert sentence in process.output()


@pytest.mark.parametrize("name", ["web", "worker", "beat"])
def test_a_database_that_answers_before_commits_are_durable_is_refused_by_each(
    start: Start, app_env: dict[str, str], name: str
) -> None:
    url = with_option(app_env["DATABASE_URL"], "synchronous_commit%3Doff")
    refused(start(name, DATABASE_URL=url), "synchronous_commit is off")


def test_the_owners_login_is_refused(start: Start, owner_url: str) -> None:
    refused(start(DATABASE_URL=owner_url), "may change or delete rows of runs_auditleaf")


def test_a_check_of_a_deployment_refuses_the_owners_login_as_a_start_does(
    spawn: Spawn, app_env: dict[str, str], owner_url: str
) -> None:
    command = ("check", "--deploy", "--database", "default")
    asked = {
        url: spawn.manage(*command, env={**app_env, "DATABASE_URL": url})
        for url in (owner_url, app_env["DATABASE_URL"])
    }
    owners = asked.pop(owner_url)
    assert owners.wait() != 0
    said = owners.output()
    assert f"may change or delete rows of {', '.join(settings.APPEND_ONLY_TABLES)}. " in said
    assert said.count("The database role recourse_owner") == 1
    (members,) = asked.values()
    assert members.wait() == 0, members.output()


def test_missing_secrets_are_refused(start: Start) -> None:
    refused(start(RECOURSE_KEY_SECRET=""), "RECOURSE_KEY_SECRET must be set")


def test_a_database_that_cannot_be_asked_is_refused(start: Start) -> None:
    refused(start(DATABASE_URL="postgresql://nobody@127.0.0.1:1/none"), "could not be asked")


@pytest.mark.parametrize("name", ["web", "worker"])
def test_a_provider_file_that_cannot_be_used_is_refused_with_its_faults(
    start: Start, tmp_path: Path, name: str
) -> None:
    (tmp_path / "broken.toml").write_text('slug = "broken"\ntitle = 3\n')
    process = start(name, RECOURSE_PROVIDERS_DIR=str(tmp_path))
    refused(process, "broken.toml: title: found 3; allowed: text.")
    # Every fault is named, not the first one alone.
    assert "broken.toml: contract: found nothing" in process.output()


@pytest.mark.timeout(180)
def test_a_database_without_fsync_is_refused(spawn: Spawn, app_env: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory(prefix="recourse-fsync-") as folder:
        Path(folder).chmod(0o755)
        with EmbeddedServers(Path(folder) / "state", broker=False) as servers:
            with psycopg.connect(servers.superuser_url, autocommit=True) as administrator:
                administrator.execute("ALTER SYSTEM SET fsync = off")
                administrator.execute("SELECT pg_reload_conf()")
            process = spawn.python(
                "-c", "import console.wsgi", env={**app_env, "DATABASE_URL": servers.database_url}
            )
            refused(process, "fsync off")
            migrating = spawn.manage(
                "migrate",
                env={
                    **app_env,
                    "DATABASE_URL": servers.database_url,
                    "DATABASE_OWNER_URL": servers.owner_url,
                },
            )
            assert migrating.wait() != 0
            assert "fsync off" in migrating.output()


@pytest.mark.django_db(transaction=True)
def test_check_reports_nothing_on_a_sound_database() -> None:
    call_command("check", databases=["default"])


@pytest.mark.django_db(transaction=True)
def test_check_deploy_reports_temporary_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "RECOURSE_SECRETS_ARE_TEMPORARY", True)
    with pytest.raises((CommandError, SystemExit), match=r"recourse\.E002"):
        call_command("check", deploy=True, tags=["security"])


def test_a_secret_that_can_be_guessed_is_refused_outside_debug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "RECOURSE_SECRETS_ARE_TEMPORARY", False)
    # Bytes are counted, not characters.
    for secret, refused_as in (("x" * 31, "is 31"), ("é" * 15, "is 30"), ("x" * 32, ""), ("é" * 16, "")):
        monkeypatch.setattr(settings, "RECOURSE_KEY_SECRET", secret)
        found = " ".join(unsafe_settings())
        assert (refused_as in found and "must be 32 bytes or more" in found) if refused_as else not found
    monkeypatch.setattr(settings, "RECOURSE_KEY_SECRET", "short")
    with pytest.raises((CommandError, SystemExit), match=r"recourse\.E002\) RECOURSE_KEY_SECRET must be"):
        call_command("check", deploy=True, tags=["security"])
    monkeypatch.setattr(settings, "DEBUG", True)
    assert unsafe_settings() == []


@pytest.mark.django_db(transaction=True)
def test_check_reports_each_fault_of_the_provider_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(settings, "RECOURSE_PROVIDERS_DIR", [str(tmp_path / "missing")])
    with pytest.raises(CommandError, match=r"recourse\.E003\).*missing: named in RECOURSE_PROVIDERS_DIR"):
        call_command("check")
