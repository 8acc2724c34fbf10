"""The README's API example, run as it stands: by bash and curl, whole, and cut off where it hurts."""

from __future__ import annotations

import re
import shutil

import pytest

from console.models import Scope, create_token
from console.sandbox.control import SandboxControl
from reconciliation.accounts import sync_accounts
from reconciliation.models import Case
from reconciliation.providers import registry
from runs.models import Operation, Run
from tests.factories import make_team
from tests.processes import ROOT, Process, Server, Spawn, until


@pytest.fixture
def example() -> str:
    """The shell block of the README's API example."""
    found = re.search(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found, "the README has no bash block"
    return found.group(1)


@pytest.fixture
def shell_env(sandbox: Server, web_server: Server, app_env: dict[str, str]) -> dict[str, str]:
    from datetime import timedelta

    from django.utils import timezone

    registry.reload()
    sync_accounts()
    made = create_token(
        team=make_team(),
        name="curl",
        scopes=[Scope.JOURNAL, Scope.READ],
        expires_at=timezone.now() + timedelta(hours=1),
        person=None,
    )
    return {
        **app_env,
        "RECOURSE_URL": web_server.url,
        "RECOURSE_TOKEN": made.secret,
        "SANDBOX_URL": sandbox.url,
        "ORDER": "ORD-1",
    }


def run_shell(spawn: Spawn, script: str, env: dict[str, str]) -> Process:
    shell = spawn(
        [shutil.which("bash") or "/bin/bash", "-euo", "pipefail", "-c", script], env=env, name="bash"
    )
    shell.wait(timeout_seconds=60)
    return shell


def killed_at(script: str, line: str) -> str:
    before, found, after = script.partition(line)
    assert found, line
    return f"{before}kill -KILL $$\n{found}{after}"


def test_the_readme_example_cut_off_after_its_report_completes_and_sends_nothing(
    spawn: Spawn, example: str, shell_env: dict[str, str], sandbox: Server
) -> None:
    died = run_shell(spawn, killed_at(example, "api /runs/$RUN/complete"), shell_env)
    assert (died.returncode, died.output().split()) == (-9, ["confirmed"])
    Run.objects.update(lease_expires_at="2020-01-01T00:00:00Z")
    again = run_shell(spawn, example, shell_env)
    assert (again.returncode, again.output().split()) == (0, ["completed"])
    with SandboxControl(sandbox.url) as control:
        counts = control.stats("supplier", key=Operation.objects.get().key)
    assert (counts.requests, counts.effects) == (1, 1)


def test_the_readme_example_takes_an_effect_from_run_to_complete(
    spawn: Spawn, example: str, shell_env: dict[str, str], sandbox: Server
) -> None:
    shell = run_shell(spawn, example, shell_env)
    assert shell.output().split() == ["confirmed", "completed"]
    with SandboxControl(sandbox.url) as control:
        counts = control.stats("supplier", key=Operation.objects.get().key)
    assert (counts.requests, counts.effects) == (1, 1)


def test_the_readme_example_cut_off_after_its_effect_is_found_and_goes_on_without_a_second(
    spawn: Spawn,
    example: str,
    shell_env: dict[str, str],
    sandbox: Server,
    celery_worker: Process,
    celery_beat: Process,
) -> None:
    # The shell dies with the provider's receipt in its hand: nothing is reported.
    died = run_shell(spawn, killed_at(example, "# What came of it."), shell_env)
    assert died.returncode == -9
    operation = Operation.objects.get()
    assert operation.state == "sent_unknown"

    # Its lease lapses; the sweeper takes the operation in and the lookup finds it.
    Run.objects.update(lease_expires_at="2020-01-01T00:00:00Z")
    for last in until(30):
        operation.refresh_from_db()
        if operation.state == "confirmed":
            break
        assert not last, f"it stays {operation.state}; case: {list(Case.objects.values())}"

    # Run again, the example meets its own order settled, asks for no "go", and completes the run.
    again = run_shell(spawn, example, shell_env)
    assert (again.returncode, again.output().split()) == (0, ["completed"])
    with SandboxControl(sandbox.url) as control:
        counts = control.stats("supplier", key=operation.key)
    assert (counts.requests, counts.effects) == (1, 1)
