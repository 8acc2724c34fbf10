"""docs/api.md: its tables are the API's, and its example runs as it stands, on real processes."""

from __future__ import annotations

import re
import shutil
from datetime import timedelta

import pytest
from django.utils import timezone

from console.api import reference
from console.api.assembly import api
from console.models import Person, Role, Scope, create_token
from console.sandbox.control import SandboxControl
from reconciliation.accounts import sync_accounts
from reconciliation.models import Decision
from reconciliation.providers import registry
from runs.models import Operation
from tests.factories import make_team
from tests.processes import ROOT, Process, Server, Spawn

PAGE = ROOT / "docs" / "api.md"


def test_the_pages_tables_are_those_of_the_api() -> None:
    page = PAGE.read_text()
    assert page == reference.renewed(page, api.get_openapi_schema()), "run manage.py api_reference"


def secret(scopes: list[Scope], person: Person | None = None) -> str:
    return create_token(
        team=make_team(),
        name="shell",
        scopes=scopes,
        expires_at=timezone.now() + timedelta(hours=1),
        person=person,
    ).secret


@pytest.mark.timeout(180)
def test_the_example_goes_through_a_crash_and_a_decision_without_a_second_order(
    spawn: Spawn,
    app_env: dict[str, str],
    sandbox: Server,
    web_server: Server,
    celery_worker: Process,
    celery_beat: Process,
) -> None:
    found = re.search(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found, "the page has no bash block"
    registry.reload()
    sync_accounts()
    maya = Person.objects.create(username="maya", roles=[Role.OPERATOR.value])
    maya.teams.add(make_team())
    env = {
        **app_env,
        "RECOURSE_URL": web_server.url,
        "RECOURSE_TOKEN": secret([Scope.JOURNAL, Scope.READ]),
        "DECIDING_TOKEN": secret([Scope.DECIDE], maya),
        "SANDBOX_URL": sandbox.url,
        "ORDER": "ORD-1",
    }
    bash = shutil.which("bash") or "/bin/bash"
    shell = spawn([bash, "-euo", "pipefail", "-c", found.group(1)], env=env, name="bash")
    assert shell.wait(timeout_seconds=120) == 0, shell.output()
    printed = re.search(r"It prints (.*?)\. No order", PAGE.read_text(), re.DOTALL)
    assert printed
    assert shell.output().split() == re.findall(r"`(\w+)`", printed.group(1))
    supplied, couriered = Operation.objects.order_by("created_at")
    with SandboxControl(sandbox.url) as control:
        order = control.stats("supplier", key=supplied.key)
        courier = control.stats("courier")
    assert (order.requests, order.effects) == (1, 1)
    assert (courier.requests, courier.effects) == (0, 0)
    assert (supplied.state, couriered.state) == ("confirmed", "abandoned")
    assert Decision.objects.get().actor == f"person:{maya.pk}"
