"""What a second person's consent changes about a run, and what it can't: limit, holds, approval, version."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.db.models import F

from reconciliation import sweeping
from runs.actors import Actor, ActorKind
from runs.journal.consenting import (
    APPROVAL_DAYS_MAX,
    WAIT_SECONDS_MAX,
    WAIT_SECONDS_MIN,
    ApprovalNotRenewed,
    LimitNotRaised,
    NothingHeld,
    VersionInFlight,
    VersionNotAwaited,
    VersionUnknown,
    free_held,
    keep_version,
    move_to_version,
    raise_limit,
    renew_approval,
)
from runs.journal.ending import abandon_run
from runs.journal.pausing import add_pause_reason
from runs.journal.settling import abandon, book_conflict
from runs.leases import RunPaused, claim
from runs.locking import Locked, database_now, lock_run
from runs.models import Approval, AuditLeaf, FlowVersion, Operation, Run
from runs.refusals import Invalid
from runs.states import PauseReason
from tests import factories
from tests.factories import (
    FLOW,
    TEAM,
    Claimed,
    doubt,
    effect,
    fresh,
    grant,
    held,
    make_claimed,
    make_run,
    make_team,
    send,
)

pytestmark = pytest.mark.django_db(transaction=True)

APPROVER = Actor(ActorKind.PERSON, "person:ines", "approver")
WHY = "The supplier's offer ends today."


def on(run: Run, act: Callable[..., Any], **words: Any) -> Any:
    with transaction.atomic():
        locked: Locked = lock_run(run_id=run.pk, team=TEAM)
        return act(locked, actor=APPROVER, reason=WHY, **words)


def stopped_by_budget() -> Claimed:
    """A run of EUR 10.00 whose next effect costs EUR 25.00."""
    claimed = make_claimed(effect(minor=2_500), budget_minor=1_000)
    with pytest.raises(RunPaused):
        send(claimed)
    assert fresh(claimed.run).paused_reasons == ["budget"]
    return claimed


def leaf(action: str) -> dict[str, Any]:
    body = json.loads(bytes(AuditLeaf.objects.get(action=action).body))
    event: dict[str, Any] = body["event"]
    return event


# --- The limit -------------------------------------------------------------------------------------------


def test_a_raised_limit_lets_the_run_be_claimed_and_send_what_waited() -> None:
    claimed = stopped_by_budget()
    on(claimed.run, raise_limit, limit_minor=2_500, currency="EUR")
    run = fresh(claimed.run)
    assert (run.state, run.paused_reasons, run.budget_limit_minor) == ("open", [], 2_500)
    token = factories.claim(run)
    assert send(Claimed(run, token, claimed.operations)).number == 1
    event = leaf("run.limit_raised")
    assert event["actor"] == {"id": "person:ines", "kind": "person", "role": "approver"}
    assert (event["before"]["limit_minor"], event["after"]["limit_minor"]) == (1_000, 2_500)
    assert event["reason"] == WHY


def test_a_raise_that_is_still_too_small_leaves_the_run_paused() -> None:
    claimed = stopped_by_budget()
    on(claimed.run, raise_limit, limit_minor=2_499, currency="EUR")
    assert fresh(claimed.run).paused_reasons == ["budget"]


def test_a_run_that_is_paused_for_more_than_its_budget_stays_paused_for_that() -> None:
    claimed = stopped_by_budget()
    with transaction.atomic():
        add_pause_reason(lock_run(run_id=claimed.run.pk, team=TEAM), PauseReason.APPROVAL)
    on(claimed.run, raise_limit, limit_minor=9_000, currency="EUR")
    assert (fresh(claimed.run).state, fresh(claimed.run).paused_reasons) == ("paused", ["approval"])


@pytest.mark.parametrize(
    ("limit_minor", "currency"),
    [(1_000, "EUR"), (999, "EUR"), (0, "EUR"), (2**53, "EUR"), (2_500, "USD")],
)
def test_a_limit_goes_up_only_and_in_its_own_currency(limit_minor: int, currency: str) -> None:
    claimed = stopped_by_budget()
    with pytest.raises(LimitNotRaised):
        on(claimed.run, raise_limit, limit_minor=limit_minor, currency=currency)
    assert fresh(claimed.run).budget_limit_minor == 1_000
    assert not AuditLeaf.objects.filter(action="run.limit_raised").exists()


def test_a_run_without_a_limit_and_one_that_has_ended_have_none_to_raise() -> None:
    with pytest.raises(LimitNotRaised, match="has no limit"):
        on(make_run(), raise_limit, limit_minor=2_500, currency="EUR")
    claimed = stopped_by_budget()
    abandon_run(team=TEAM, run_id=claimed.run.pk, actor=APPROVER, reason=WHY)
    with pytest.raises(LimitNotRaised, match="abandoned"):
        on(claimed.run, raise_limit, limit_minor=2_500, currency="EUR")


# --- What is held ----------------------------------------------------------------------------------------


def given_up(*, minor: int = 700, budget_minor: int = 1_000) -> Claimed:
    """An effect that was sent and given up with its outcome unknown; the run goes on to a second one."""
    claimed = make_claimed(
        effect("c1", minor=minor), effect("c2", minor=600), budget_minor=budget_minor, parallel=True
    )
    send(claimed)
    doubt(claimed.operation)
    with held(claimed.operation) as locked:
        abandon(locked, actor=APPROVER, known_effect="Nobody knows.", reason=WHY)
    return claimed


def test_a_freed_amount_can_be_spent_again_and_ends_the_pause_for_the_budget() -> None:
    claimed = given_up()
    token = factories.claim(fresh(claimed.run))
    with pytest.raises(RunPaused):
        send(
            Claimed(claimed.run, token, claimed.operations), operation=claimed.operations[1], attempt_id="b1"
        )
    with held(claimed.operation) as locked:
        assert free_held(locked, actor=APPROVER, reason=WHY) == 700
    run = fresh(claimed.run)
    assert (run.state, run.budget_held_minor, fresh(claimed.operation).reservation) == ("open", 0, "released")
    event = leaf("operation.held_freed")
    assert (event["before"], event["operation"]) == (
        {"held_minor": 700, "currency": "EUR"},
        claimed.operation.pk,
    )


def test_what_was_freed_is_spent_after_all_when_its_effect_turns_up_and_stands() -> None:
    claimed = given_up()
    with held(claimed.operation) as locked:
        free_held(locked, actor=APPROVER, reason=WHY)
    with held(claimed.operation) as locked:
        book_conflict(locked, minor=700, stands=True, actor=APPROVER, reason=WHY)
    assert (fresh(claimed.run).budget_spent_minor, fresh(claimed.run).budget_held_minor) == (700, 0)


def test_an_amount_is_freed_once() -> None:
    claimed = given_up()
    with held(claimed.operation) as locked:
        free_held(locked, actor=APPROVER, reason=WHY)
    with held(claimed.operation) as locked, pytest.raises(NothingHeld):
        free_held(locked, actor=APPROVER, reason=WHY)
    assert AuditLeaf.objects.filter(action="operation.held_freed").count() == 1


# --- The approval ----------------------------------------------------------------------------------------


def run_under_approval(*, ends_in: timedelta) -> Claimed:
    make_team()
    approval = Approval.objects.create(
        id="appr_1",
        team_id=TEAM,
        subject="Restock",
        made_by="person:ines",
        expires_at=database_now() + ends_in,
    )
    return make_claimed(approval_id=approval.pk)


def test_a_renewed_approval_takes_the_place_of_the_one_that_ended_and_the_run_goes_on() -> None:
    claimed = run_under_approval(ends_in=timedelta(seconds=-1))
    with pytest.raises(RunPaused):
        send(claimed)
    until_at = database_now() + timedelta(hours=2)
    made = on(claimed.run, renew_approval, expires_at=until_at, subject="Restock again")
    run = fresh(claimed.run)
    assert (run.state, run.approval_id, run.approval_until_at) == ("open", made.pk, until_at)
    assert (made.made_by, Approval.objects.get(pk="appr_1").withdrawn_at) == ("person:ines", None)
    assert send(Claimed(run, factories.claim(run), claimed.operations)).number == 1
    assert leaf("run.approval_renewed")["before"]["approval"] == "appr_1"


@pytest.mark.parametrize(
    "until",
    [timedelta(minutes=30), timedelta(hours=-1), timedelta(days=APPROVAL_DAYS_MAX, minutes=1)],
)
def test_a_renewal_ends_after_the_present_one_and_within_a_month(until: timedelta) -> None:
    claimed = run_under_approval(ends_in=timedelta(minutes=31))
    with pytest.raises(ApprovalNotRenewed):
        on(claimed.run, renew_approval, expires_at=database_now() + until, subject="Restock")
    assert Approval.objects.count() == 1


def test_a_run_without_an_approval_and_one_that_has_ended_have_none_to_renew() -> None:
    later = database_now() + timedelta(hours=1)
    with pytest.raises(ApprovalNotRenewed, match="no approval"):
        on(make_run(), renew_approval, expires_at=later, subject="Restock")
    claimed = run_under_approval(ends_in=timedelta(minutes=1))
    abandon_run(team=TEAM, run_id=claimed.run.pk, actor=APPROVER, reason=WHY)
    with pytest.raises(ApprovalNotRenewed, match="abandoned"):
        on(claimed.run, renew_approval, expires_at=later, subject="Restock")


# --- The flow version ------------------------------------------------------------------------------------


def unserved() -> Run:
    """A run whose version nobody runs any more, while another is at work; the sweeper has said so."""
    run = make_run()
    other = make_run(flow_version="7", flow_digest="a" * 64)
    FlowVersion.objects.filter(version="7").update(last_worker_at=database_now())
    Run.objects.update(created_at=F("created_at") - timedelta(hours=1))
    sweeping.sweep()
    assert fresh(run).paused_reasons == ["flow_version"]
    assert fresh(other).state == "open"
    return run


def test_a_kept_version_is_waited_for_until_the_time_that_was_given() -> None:
    run = unserved()
    until_at = on(run, keep_version, wait_seconds=3_600)
    assert (fresh(run).state, fresh(run).version_awaited_until_at) == ("open", until_at)
    assert sweeping.sweep()
    assert fresh(run).state == "open"
    Run.objects.filter(pk=run.pk).update(version_awaited_until_at=database_now())
    sweeping.sweep()
    assert fresh(run).paused_reasons == ["flow_version"]
    assert leaf("run.version_kept")["after"]["waits_until"] == until_at.isoformat()


@pytest.mark.parametrize("seconds", [WAIT_SECONDS_MIN - 1, WAIT_SECONDS_MAX + 1])
def test_a_kept_version_is_waited_for_from_a_minute_to_a_week(seconds: int) -> None:
    with pytest.raises(Invalid):
        on(unserved(), keep_version, wait_seconds=seconds)


def test_a_moved_run_is_claimed_by_a_worker_of_the_other_version_and_keeps_what_is_decided() -> None:
    claimed = make_claimed(effect("c1"), effect("c2"))
    send(claimed)
    assert factories.reply(claimed) == 1
    with transaction.atomic():
        add_pause_reason(lock_run(run_id=claimed.run.pk, team=TEAM), PauseReason.FLOW_VERSION)
    FlowVersion.objects.create(flow=claimed.run.flow, version="7", digest="a" * 64)
    on(claimed.run, move_to_version, version="7", digest="a" * 64)
    run = fresh(claimed.run)
    assert (run.state, run.flow_version.version) == ("open", "7")
    claim(
        team=TEAM, run_id=run.pk, claim_id="k7", worker="w7", flow_version="7", lease_seconds=60,
        flow_digest="a" * 64,
    )  # fmt: skip
    assert [fresh(one).state for one in claimed.operations] == ["confirmed", "ready"]
    event = leaf("run.version_moved")
    assert (event["before"]["flow_version"], event["after"]["flow_version"]) == (factories.VERSION, "7")


@pytest.mark.parametrize(
    ("version", "digest"),
    [("8", ""), ("7", ""), ("7", "b" * 64), (factories.VERSION, ""), ("", ""), ("7\x00", "a" * 64)],
)
def test_a_run_moves_only_to_another_version_that_is_on_record_with_its_digest(
    version: str, digest: str
) -> None:
    run = unserved()
    with pytest.raises(VersionUnknown):
        on(run, move_to_version, version=version, digest=digest)
    assert fresh(run).flow_version.version == factories.VERSION


def test_a_version_of_another_flow_is_unknown() -> None:
    run = unserved()
    make_run(flow=f"{FLOW}-2", flow_version="9")
    with pytest.raises(VersionUnknown):
        on(run, move_to_version, version="9", digest="")


@pytest.mark.parametrize("granted", [False, True])
def test_a_run_is_not_moved_while_something_was_sent_under_the_old_version(granted: bool) -> None:
    claimed = make_claimed()
    send(claimed)
    doubt(claimed.operation)
    if granted:
        grant(claimed.operation)
    with transaction.atomic():
        add_pause_reason(lock_run(run_id=claimed.run.pk, team=TEAM), PauseReason.FLOW_VERSION)
    FlowVersion.objects.create(flow=claimed.run.flow, version="7")
    with pytest.raises(VersionInFlight) as refused:
        on(claimed.run, move_to_version, version="7", digest="")
    assert refused.value.details["operations"] == [claimed.operation.pk]
    assert fresh(claimed.run).flow_version.version == factories.VERSION


def test_the_pin_of_a_run_that_waits_for_no_worker_is_nobodys_question() -> None:
    run = make_run()
    FlowVersion.objects.create(flow=run.flow, version="7")
    with pytest.raises(VersionNotAwaited):
        on(run, keep_version, wait_seconds=3_600)
    with pytest.raises(VersionNotAwaited):
        on(run, move_to_version, version="7", digest="")
    assert Operation.objects.count() == 0
