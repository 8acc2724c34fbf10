"""What the demo's operator asks a second person for, so that the approver's login opens on real work."""

from __future__ import annotations

from typing import Final

from console import access
from console.demoagents.stories import OVER_BUDGET
from console.models import Person
from reconciliation import approvals
from reconciliation.approval_models import ApprovalKind, ApprovalRequest
from reconciliation.approval_refusals import ApprovalPending
from reconciliation.persons import Worker
from reconciliation.run_approvals import raise_parameters, waiting_operations
from runs.ids import new_id
from runs.models import Run
from runs.money import Money
from runs.states import PauseReason

REASON: Final = "The torque wrenches are on offer until Friday, and the workshop needs them in December."
# What is asked for beyond the order that waits, in minor units: a round sum, as people ask for one.
ROUND_MINOR: Final = 10_000


def ask_to_raise(*, team: str, person: Person) -> ApprovalRequest | None:
    """Ask to raise the limit of the demo's run that its budget stopped; None if there is nothing to ask.

    One request at a time: an earlier start's that is still open stands.
    """
    stopped = Run.objects.filter(
        team=team, flow__name=OVER_BUDGET.flow, paused_reasons__contains=[str(PauseReason.BUDGET)]
    )
    run = stopped.order_by("-created_at", "-id").first()
    if run is None:
        return None
    needed = run.budget_spent_minor + run.budget_reserved_minor + run.budget_held_minor
    needed += sum(minor for _, minor in waiting_operations(run))
    limit = Money(run.budget_currency, -(-needed // ROUND_MINOR) * ROUND_MINOR)
    try:
        return approvals.request(
            kind=ApprovalKind.BUDGET_RAISE,
            worker=Worker(actor=access.person_actor(person), name=str(person)),
            team=team,
            parameters=raise_parameters(limit=limit),
            reason=REASON,
            key=new_id("form"),
            run_id=run.pk,
        ).approval
    except ApprovalPending:
        return None
