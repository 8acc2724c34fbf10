"""A worker that is killed around the request that makes an effect absent, counted at the provider."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from console.sandbox.control import SandboxControl
from console.sandbox.records import Counts
from reconciliation import making_absent, sweeping
from reconciliation.approval_models import ApprovalRequest
from reconciliation.approving import approve
from reconciliation.making_absent_models import AbsenceRequest
from reconciliation.models import Case
from reconciliation.states import Action
from runs.models import Evidence
from tests.cases_world import PAYMENTS, decide, declare, in_doubt
from tests.factories import TEAM, Claimed, fresh
from tests.people import approver, end_absence_request, operator
from tests.processes import Process, Server, Spawn
from tests.sandbox_client import new_client

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]


@pytest.fixture
def control(transactional_db: None, sandbox: Server) -> Iterator[SandboxControl]:
    with SandboxControl(sandbox.url) as control:
        declare()
        yield control


def approved(case: Case) -> ApprovalRequest:
    asked = decide(case, Action.MAKE_ABSENT, actor=operator().actor, then="continue")
    approval = ApprovalRequest.objects.get(pk=asked.approval)
    approve(
        approval_id=approval.pk,
        teams=[TEAM],
        worker=approver(),
        content_digest=approval.content_digest,
        comment="Agreed, by telephone.",
    )
    return approval


def happened(control: SandboxControl, claimed: Claimed) -> None:
    """The effect is there, and nobody's answer says so."""
    key = fresh(claimed.operation).key
    with new_client() as client:
        url = f"{control.account_url('payments')}/refunds"
        assert client.post(url, json={"amount_minor": 500}, headers={"Idempotency-Key": key}).is_success


def counted(control: SandboxControl) -> Counts:
    return control.stats("payments")


def unanswered(case: Case) -> None:
    """The request is open until it can no longer take effect; then people are asked again."""
    request = AbsenceRequest.objects.get()
    assert (request.state, fresh(case).state) == ("sent", "looking_up")
    assert sweeping.sweep().absences_given_up == 0
    end_absence_request(request)
    assert sweeping.sweep().absences_given_up == 1
    assert (fresh(request).state, fresh(case).state) == ("unanswered", "needs_decision")
    assert "is unknown" in Evidence.objects.get(kind="make_absent").summary


@pytest.mark.parametrize("window", ["recorded", "after_commit"])
def test_a_worker_that_is_killed_leaves_a_record_that_says_unknown_and_it_is_asked_for_anew(
    control: SandboxControl, spawn: Spawn, app_env: dict[str, str], window: str
) -> None:
    claimed, case = in_doubt(PAYMENTS, minor=500)
    happened(control, claimed)
    approval = approved(case)
    left = window != "recorded"
    hold = control.hold("after_commit", account="payments") if left else None
    worker: Process = spawn.python(
        "-m", "tests.crash.absent_sender", approval.pk, "" if left else window, env=app_env, name="sender"
    )
    if hold is not None:
        hold.wait()
    else:
        worker.wait_for("recorded")
    # Its record was there first, whatever became of the request.
    assert AbsenceRequest.objects.get().state == "sent"
    worker.kill()
    if hold is not None:
        hold.release()
    assert (counted(control).cancels, counted(control).undone) == (int(left), int(left))
    # Nobody sends it a second time by itself: the approval is used.
    assert making_absent.send(approval_id=approval.pk) == ""
    unanswered(case)
    assert making_absent.send(approval_id=approved(case).pk) == "absent"
    assert fresh(claimed.operation).state == "abandoned"
    assert counted(control) == Counts(requests=1, effects=1, lookups=0, cancels=1 + int(left), undone=1)
