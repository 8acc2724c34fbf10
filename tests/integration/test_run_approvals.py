"""What is asked about a run: each kind, answered by another human being, and void when anything changed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from console import access
from console.demoagents.asking import ask_to_raise
from console.demoagents.stories import OVER_BUDGET
from console.models import Person, Role
from reconciliation import approvals
from reconciliation.approval_kinds import title_of
from reconciliation.approval_models import ApprovalKind, ApprovalRequest
from reconciliation.approval_refusals import ApprovalPending, ApprovalVoid, OwnApproval
from reconciliation.approvals import Requested
from reconciliation.approving import approve
from reconciliation.persons import Worker
from reconciliation.run_approvals import (
    HeldInQuestion,
    free_parameters,
    keep_parameters,
    move_parameters,
    raise_parameters,
    renewal_parameters,
)
from runs.journal.consenting import LimitNotRaised, NothingHeld, VersionInFlight
from runs.journal.pausing import add_pause_reason
from runs.locking import database_now, lock_run
from runs.models import AuditLeaf, Flow, FlowVersion, Run
from runs.money import Money
from runs.refusals import Invalid
from runs.states import PauseReason
from tests.factories import TEAM, Claimed, doubt, fresh, held, make_claimed, make_team, send
from tests.integration.test_journal_consenting import given_up, run_under_approval, stopped_by_budget

pytestmark = pytest.mark.django_db(transaction=True)

WHY = "The supplier's offer ends today."


def person(name: str, *roles: Role) -> Worker:
    made, _ = Person.objects.get_or_create(username=name, defaults={"roles": [str(role) for role in roles]})
    made.teams.add(make_team(TEAM))
    return Worker(actor=access.person_actor(made), name=name)


@pytest.fixture
def jonas() -> Worker:
    return person("jonas", Role.OPERATOR)


@pytest.fixture
def ines() -> Worker:
    return person("ines", Role.APPROVER)


def ask(worker: Worker, kind: ApprovalKind, claimed: Claimed, parameters: Any, **more: Any) -> Requested:
    return approvals.request(
        kind=kind,
        worker=worker,
        team=TEAM,
        parameters=parameters,
        reason=WHY,
        key=f"form_{kind}",
        **{"run_id": claimed.run.pk, **more},
    )


def say_yes(worker: Worker, asked: Requested) -> ApprovalRequest:
    made = asked.approval
    return approve(
        approval_id=made.pk,
        teams=[TEAM],
        worker=worker,
        content_digest=made.content_digest,
        comment="Agreed with finance.",
    ).approval


def paused_for(claimed: Claimed, reason: PauseReason) -> None:
    from django.db import transaction

    with transaction.atomic():
        add_pause_reason(lock_run(run_id=claimed.run.pk, team=TEAM), reason)


def raised(minor: int) -> dict[str, Any]:
    return raise_parameters(limit=Money("EUR", minor))


# --- Each kind, asked and approved -------------------------------------------------------------------------


def test_a_raise_is_the_approvers_act_on_both_peoples_words(jonas: Worker, ines: Worker) -> None:
    claimed = stopped_by_budget()
    asked = ask(jonas, ApprovalKind.BUDGET_RAISE, claimed, raised(3_000))
    assert title_of(asked.approval) == "Raise the budget limit to €30.00"
    assert fresh(claimed.run).paused_reasons == ["budget"]
    assert say_yes(ines, asked).state == "carried_out"
    assert (fresh(claimed.run).state, fresh(claimed.run).budget_limit_minor) == ("open", 3_000)
    leaf = AuditLeaf.objects.get(action="run.limit_raised")
    assert leaf.actor == ines.actor.id
    assert b"jonas asked: The supplier" in bytes(leaf.body)
    assert b"ines approved: Agreed with finance." in bytes(leaf.body)


def test_a_renewal_makes_an_approval_of_the_approver(jonas: Worker, ines: Worker) -> None:
    claimed = run_under_approval(ends_in=timedelta(seconds=-1))
    paused_for(claimed, PauseReason.APPROVAL)
    until_at = database_now() + timedelta(hours=4)
    asked = ask(jonas, ApprovalKind.APPROVAL_RENEWAL, claimed, renewal_parameters(expires_at=until_at))
    say_yes(ines, asked)
    run = Run.objects.select_related("approval").get(pk=claimed.run.pk)
    assert run.approval is not None
    assert (run.state, run.approval.made_by, run.approval_until_at) == ("open", ines.actor.id, until_at)


@pytest.mark.parametrize("move", [False, True])
def test_a_version_is_kept_or_the_run_moved(jonas: Worker, ines: Worker, move: bool) -> None:
    claimed = make_claimed()
    paused_for(claimed, PauseReason.FLOW_VERSION)
    FlowVersion.objects.create(flow=claimed.run.flow, version="7", digest="a" * 64)
    wanted = move_parameters(version="7", digest="a" * 64) if move else keep_parameters(wait_seconds=3_600)
    asked = ask(jonas, ApprovalKind.FLOW_VERSION, claimed, wanted)
    say_yes(ines, asked)
    run = Run.objects.select_related("flow_version").get(pk=claimed.run.pk)
    assert run.state == "open"
    assert (run.flow_version.version == "7", run.version_awaited_until_at is None) == (move, move)
    assert title_of(asked.approval) == (
        "Move the run to version 7" if move else "Keep the run's flow version, and wait 1 hour for its worker"
    )


def test_a_held_amount_is_freed(jonas: Worker, ines: Worker) -> None:
    claimed = given_up()
    wanted = free_parameters(amount=Money("EUR", 700))
    asked = ask(jonas, ApprovalKind.HELD_FREED, claimed, wanted, operation_id=claimed.operation.pk)
    say_yes(ines, asked)
    assert (fresh(claimed.run).budget_held_minor, fresh(claimed.operation).reservation) == (0, "released")


# --- What can't be asked for -------------------------------------------------------------------------------


def test_what_cannot_be_done_cannot_be_asked_for(jonas: Worker) -> None:
    claimed = stopped_by_budget()
    with pytest.raises(LimitNotRaised):
        ask(jonas, ApprovalKind.BUDGET_RAISE, claimed, raised(1_000))
    with pytest.raises(Invalid):
        ask(jonas, ApprovalKind.BUDGET_RAISE, claimed, {"limit": {"currency": "EUR", "minor": 1.5}})
    with pytest.raises(Invalid):
        ask(jonas, ApprovalKind.APPROVAL_RENEWAL, claimed, {"expires_at": "soon"})
    with pytest.raises(Invalid):
        ask(jonas, ApprovalKind.FLOW_VERSION, claimed, {"do": "fork"})
    with pytest.raises(NothingHeld):
        ask(
            jonas, ApprovalKind.HELD_FREED, claimed, free_parameters(amount=Money("EUR", 1)),
            operation_id=claimed.operation.pk,
        )  # fmt: skip
    assert not ApprovalRequest.objects.exists()


def test_a_run_with_something_in_flight_is_not_asked_to_be_moved(jonas: Worker) -> None:
    claimed = make_claimed()
    send(claimed)
    doubt(claimed.operation)
    paused_for(claimed, PauseReason.FLOW_VERSION)
    FlowVersion.objects.create(flow=claimed.run.flow, version="7")
    with pytest.raises(VersionInFlight):
        ask(jonas, ApprovalKind.FLOW_VERSION, claimed, move_parameters(version="7", digest=""))


def test_what_an_open_case_asks_about_is_not_freed_beside_it(jonas: Worker) -> None:
    from reconciliation import cases
    from reconciliation.states import CaseKind
    from tests.cases_world import declare

    declare()
    claimed = given_up()
    with held(claimed.operation) as locked:
        cases.open_case(locked, kind=CaseKind.CONFLICT, because="A receipt came late.")
    with pytest.raises(HeldInQuestion):
        ask(
            jonas, ApprovalKind.HELD_FREED, claimed, free_parameters(amount=Money("EUR", 700)),
            operation_id=claimed.operation.pk,
        )  # fmt: skip


def test_the_same_is_asked_for_once_at_a_time(jonas: Worker, ines: Worker) -> None:
    claimed = stopped_by_budget()
    ask(jonas, ApprovalKind.BUDGET_RAISE, claimed, raised(3_000))
    with pytest.raises(ApprovalPending):
        ask(ines, ApprovalKind.BUDGET_RAISE, claimed, raised(9_000))
    assert ApprovalRequest.objects.count() == 1


def test_the_demo_asks_for_a_round_sum_that_lets_everything_through_and_once(
    jonas: Worker, ines: Worker
) -> None:
    claimed = stopped_by_budget()
    asker = Person.objects.get(username="jonas")
    assert ask_to_raise(team=TEAM, person=asker) is None, "no run of the demo's"
    Flow.objects.update(name=OVER_BUDGET.flow)
    made = ask_to_raise(team=TEAM, person=asker)
    assert made is not None
    assert title_of(made) == "Raise the budget limit to €100.00"
    assert ask_to_raise(team=TEAM, person=asker) is None
    say_yes(ines, Requested(approval=made, replayed=False))
    assert fresh(claimed.run).state == "open"


# --- What voids it ----------------------------------------------------------------------------------------


def test_nobody_approves_their_own_request_under_another_account(ines: Worker) -> None:
    claimed = stopped_by_budget()
    asked = ask(ines, ApprovalKind.BUDGET_RAISE, claimed, raised(3_000))
    other = person("ines-2", Role.APPROVER)
    Person.objects.update(principal="hum_ines")
    for worker in (ines, other):
        with pytest.raises(OwnApproval):
            say_yes(worker, asked)
    assert fresh(claimed.run).budget_limit_minor == 1_000


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"budget_limit_minor": 1_500}, "The limit in minor units changed from 1000 to 1500."),
        ({"budget_spent_minor": 10}, "What was spent in minor units changed from 0 to 10."),
    ],
)
def test_a_changed_budget_voids_the_request_and_says_what_changed(
    jonas: Worker, ines: Worker, change: dict[str, int], said: str
) -> None:
    claimed = stopped_by_budget()
    asked = ask(jonas, ApprovalKind.BUDGET_RAISE, claimed, raised(3_000))
    Run.objects.filter(pk=claimed.run.pk).update(**change)
    with pytest.raises(ApprovalVoid) as refused:
        say_yes(ines, asked)
    assert said in refused.value.details["changed"]
    assert fresh(claimed.run).budget_limit_minor != 3_000
    assert fresh(asked.approval).state == "voided"


def test_a_worker_that_came_for_its_version_voids_the_request(jonas: Worker, ines: Worker) -> None:
    from django.db import transaction

    from runs.journal.pausing import drop_pause_reason

    claimed = make_claimed()
    paused_for(claimed, PauseReason.FLOW_VERSION)
    asked = ask(jonas, ApprovalKind.FLOW_VERSION, claimed, keep_parameters(wait_seconds=3_600))
    with transaction.atomic():
        drop_pause_reason(lock_run(run_id=claimed.run.pk, team=TEAM), PauseReason.FLOW_VERSION)
    with pytest.raises(ApprovalVoid, match="doesn't wait for a worker"):
        say_yes(ines, asked)
    assert fresh(claimed.run).version_awaited_until_at is None


def test_a_request_about_a_run_that_was_given_up_is_void(jonas: Worker, ines: Worker) -> None:
    from runs.journal.ending import abandon_run

    claimed = stopped_by_budget()
    asked = ask(jonas, ApprovalKind.BUDGET_RAISE, claimed, raised(3_000))
    abandon_run(team=TEAM, run_id=claimed.run.pk, actor=jonas.actor, reason=WHY)
    with pytest.raises(ApprovalVoid, match="abandoned"):
        say_yes(ines, asked)
    assert fresh(claimed.run).budget_limit_minor == 1_000
