"""What people of the seeded console ask a second person for: one request of each kind, made as people do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import transaction

from console import access
from console.models import Person
from reconciliation import approvals
from reconciliation.approval_models import ApprovalKind, ApprovalRequest
from reconciliation.persons import Worker
from reconciliation.run_approvals import (
    free_parameters,
    keep_parameters,
    move_parameters,
    raise_parameters,
    renewal_parameters,
)
from reconciliation.states import Action
from runs.journal.pausing import add_pause_reason
from runs.leases import RunPaused
from runs.locking import database_now, lock_run
from runs.models import Approval, FlowVersion, Run
from runs.money import Money
from runs.states import PauseReason
from tests import cases, factories
from tests.factories import Claimed


def seed_requests(*, team: str, operator: Person, approver: Person) -> dict[str, str]:
    """Ask for one thing of each kind; what it is about → the request's id."""
    return {
        "budget": _budget(team, operator, external_id="WS-2026-49").pk,
        "version": _version(team, operator, move_parameters(version="15", digest="b7" * 32)).pk,
        "keep": _version(team, operator, keep_parameters(wait_seconds=4 * 3_600)).pk,
        "renewal": _renewal(team, operator).pk,
        "held": _held(team, operator).pk,
        "own": _budget(team, approver, external_id="WS-2026-50").pk,
        "answered": _answered(team, operator, approver).pk,
    }


def _worker(person: Person) -> Worker:
    return Worker(actor=access.person_actor(person), name=str(person))


def _ask(person: Person, kind: ApprovalKind, run: Run, reason: str, **words: Any) -> ApprovalRequest:
    made = approvals.request(
        kind=kind,
        worker=_worker(person),
        team=run.team_id,
        reason=reason,
        key=f"form_{run.pk}",
        run_id=run.pk,
        **words,
    )
    return made.approval


def _order(call_id: str, minor: int) -> Any:
    args = {"sku": "TW-60", "quantity": 2, "amount_minor": minor, "currency": "EUR"}
    return factories.effect(call_id, minor=minor, args=args)


def _paused(claimed: Claimed, reason: PauseReason) -> None:
    with transaction.atomic():
        add_pause_reason(lock_run(run_id=claimed.run.pk, team=claimed.run.team_id), reason)


def _stopped(team: str, external_id: str) -> Claimed:
    """Its first order is paid, and its second doesn't fit."""
    claimed = factories.make_claimed(
        _order("consumables", 38_000),
        _order("wrenches", 24_000),
        team=team,
        flow="workshop-supply-agent",
        external_id=external_id,
        budget_minor=50_000,
    )
    factories.send(claimed)
    factories.reply(claimed, f"ord_{external_id}", minor=38_000)
    try:
        factories.send(claimed, operation=claimed.operations[1], attempt_id="a2")
    except RunPaused:
        return claimed
    raise AssertionError("the budget stops it")


def _budget(team: str, person: Person, *, external_id: str) -> ApprovalRequest:
    claimed = _stopped(team, external_id)
    return _ask(
        person,
        ApprovalKind.BUDGET_RAISE,
        claimed.run,
        "The torque wrenches are on offer until Friday, and the workshop needs them in December.",
        parameters=raise_parameters(limit=Money("EUR", 70_000)),
    )


def _version(team: str, person: Person, wanted: dict[str, Any]) -> ApprovalRequest:
    claimed = factories.make_claimed(
        _order("order", 12_900), factories.read("stock"), team=team, flow="contract-agent"
    )
    _paused(claimed, PauseReason.FLOW_VERSION)
    FlowVersion.objects.get_or_create(
        flow=claimed.run.flow, version="15", defaults={"digest": "b7" * 32, "last_worker_at": database_now()}
    )
    return _ask(
        person,
        ApprovalKind.FLOW_VERSION,
        claimed.run,
        "The old workers were switched off on Friday; version 15 does the same with a new supplier address.",
        parameters=wanted,
    )


def _renewal(team: str, person: Person) -> ApprovalRequest:
    now = database_now()
    ended = Approval.objects.create(
        id="appr_week48",
        team_id=team,
        subject="Payouts of week 48",
        made_by=_worker(person).actor.id,
        made_at=now - timedelta(days=2),
        expires_at=now - timedelta(hours=1),
    )
    claimed = factories.make_claimed(
        _order("payout", 88_000), team=team, flow="payout-weekly", approval_id=ended.pk
    )
    _paused(claimed, PauseReason.APPROVAL)
    return _ask(
        person,
        ApprovalKind.APPROVAL_RENEWAL,
        claimed.run,
        "The bank's holiday held the payout up past Friday.",
        parameters=renewal_parameters(expires_at=now + timedelta(hours=4)),
        until_at=now + timedelta(minutes=40),
    )


def _held(team: str, person: Person) -> ApprovalRequest:
    opened = cases.needs_decision(team=team, flow="refund-agent", budget_minor=500_000)
    from tests.browser.seeding import decided

    decided(opened, person, Action.ABANDON, then="continue", reason="The customer was refunded in the shop.")
    operation = opened.operation
    return _ask(
        person,
        ApprovalKind.HELD_FREED,
        opened.run,
        "The provider's statement for the month is closed and shows no refund to this customer.",
        parameters=free_parameters(amount=Money("EUR", operation.settled_minor)),
        operation_id=operation.pk,
    )


def _answered(team: str, person: Person, approver: Person) -> ApprovalRequest:
    made = _budget(team, person, external_id="WS-2026-47")
    approvals.refuse(
        approval_id=made.pk,
        teams=[team],
        worker=_worker(approver),
        comment="Not before the December budget is settled.",
    )
    return ApprovalRequest.objects.get(pk=made.pk)
