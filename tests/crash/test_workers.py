"""Workers that are stopped past their lease and woken, with every process real: what they still may do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from console.models import Scope, create_token
from console.sandbox.control import SandboxControl
from console.staged.process import StagedAgent
from reconciliation.accounts import sync_accounts
from reconciliation.models import Case
from runs.models import Attempt, AuditLeaf, Evidence, Operation, Receipt, Run
from tests import factories
from tests.processes import PATIENCE_SECONDS, Process, Server, until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]
Start = Callable[..., StagedAgent]


@pytest.fixture
def control(transactional_db: None, sandbox: Server) -> Iterator[SandboxControl]:
    # The database first: it is then emptied last, when no process holds any of its locks.
    sync_accounts()
    with SandboxControl(sandbox.url) as control:
        yield control


@pytest.fixture
def start(
    request: pytest.FixtureRequest, control: SandboxControl, app_env: dict[str, str], tmp_path: Path
) -> Iterator[Start]:
    """Start an agent; the web server, the Celery worker and the beat of the sweeper are running."""
    app_env |= {"RECOURSE_LOOKUP_BASE_SECONDS": "0.2"}
    servers: dict[str, Any] = {
        name: request.getfixturevalue(name) for name in ("web_server", "celery_worker", "celery_beat")
    }
    web: Server = servers["web_server"]
    made = create_token(
        team=factories.make_team("crash"),
        name="agents",
        scopes=[Scope.JOURNAL, Scope.READ],
        expires_at=timezone.now() + timedelta(hours=1),
    )
    started: list[StagedAgent] = []

    def start_agent(window: str = "") -> StagedAgent:
        name = f"agent-{len(started)}"
        agent = StagedAgent(
            "tests.crash.stopped_agent",
            {
                "url": web.url,
                "token": made.secret,
                "sandbox": control.url,
                "spool": str(tmp_path / name),
                "external_id": "ORD-1",
                "window": window,
            },
            environment=app_env,
            log=tmp_path / f"{name}.log",
            patience_seconds=PATIENCE_SECONDS,
        )
        started.append(agent)
        return agent

    with closing(_Killed(started)):
        yield start_agent


class _Killed:
    def __init__(self, agents: list[StagedAgent]) -> None:
        self.agents = agents

    def close(self) -> None:
        for agent in self.agents:
            agent.kill()


def await_case() -> Case:
    """Wait until the sweeper has taken the operation in; what it leaves is a case that a person is asked."""
    for last in until(PATIENCE_SECONDS):
        case = Case.objects.first()
        if case is not None and case.state == "needs_decision":
            return case
        assert not last, (case, Run.objects.values(), Attempt.objects.values())
    raise AssertionError


def await_state(state: str) -> Operation:
    for last in until(PATIENCE_SECONDS):
        operation = Operation.objects.get()
        if operation.state == state:
            return operation
        assert not last, (operation.state, Evidence.objects.values("kind", "claim", "summary"))
    raise AssertionError


def test_a_worker_woken_after_its_lease_writes_nothing_and_its_reply_counts_as_evidence(
    start: Start, control: SandboxControl
) -> None:
    # Only its own reply can tell: the provider shows the order to nobody who looks it up.
    control.fault("hide_from_lookup", account="supplier")
    agent = start("reply_read")
    agent.wait_for("reply_read")
    agent.freeze()
    case = await_case()
    run = Run.objects.get()
    assert (run.state, run.lease_token, case.need) == ("paused", None, "not_found")
    assert Attempt.objects.get().outcome == "unreported"
    agent.wake()
    agent.go_on()
    agent.wait_for("ended")
    await_state("confirmed")
    late = Evidence.objects.get(claim="receipt")
    assert late.kind == "late_report"
    assert Receipt.objects.get().evidence_id == late.pk
    assert (Case.objects.get().resolution, Case.objects.get().number) == ("confirmed", 1)
    # By policy, not by the worker's word: its own write was refused.
    confirmed = AuditLeaf.objects.get(action="operation.confirmed")
    assert confirmed.actor_kind == "policy"
    assert Attempt.objects.get().outcome == "unreported"
    counts = control.stats("supplier")
    assert (counts.requests, counts.effects) == (1, 1)
    # The successor is told, sends nothing, and completes.
    successor = start()
    assert successor.wait_for("ended")["how"] == "Confirmed"
    assert Run.objects.get().state == "completed"
    assert control.stats("supplier").requests == 1


def test_a_worker_stopped_between_go_and_its_request_does_not_start_it(
    start: Start, control: SandboxControl
) -> None:
    agent = start("go")
    agent.wait_for("go")
    agent.freeze()
    await_case()
    agent.wake()
    agent.go_on()
    agent.wait_for("ended")
    # It says so itself, and that settles that nothing happened.
    await_state("ready")
    assert Evidence.objects.filter(claim="not_sent", kind="late_report").count() == 1
    assert Case.objects.get().resolution == "not_sent"
    counts = control.stats("supplier")
    assert (counts.requests, counts.effects) == (0, 0)
    successor = start()
    assert successor.wait_for("ended")["how"] == "Confirmed"
    counts = control.stats("supplier")
    assert (counts.requests, counts.effects) == (1, 1)
    assert Operation.objects.get().attempts_count == 2


def test_what_a_killed_worker_had_done_is_found_and_its_successor_sends_nothing(
    start: Start, control: SandboxControl, celery_beat: Process
) -> None:
    agent = start("reply_read")
    agent.wait_for("reply_read")
    agent.kill()
    await_state("confirmed")
    assert celery_beat.running()
    assert start().wait_for("ended")["how"] == "Confirmed"
    counts = control.stats("supplier")
    assert (counts.requests, counts.effects) == (1, 1)
