"""What starting over a frozen list would do, case by case: the refusals that each would meet now, and what
would follow where there is none. Nothing is written, and it may be overtaken: each is asked again in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from reconciliation import bulk
from reconciliation.bulk import Wanted
from reconciliation.bulk_models import BulkDeed, BulkItem, BulkJob
from reconciliation.bulk_running import sentence_of
from reconciliation.consequences import Consequences
from reconciliation.decisions import Asked
from reconciliation.foreseeing import Choices, foresee
from reconciliation.gathering import judge_now
from reconciliation.lookups import why_not_looked_up
from reconciliation.models import Case
from reconciliation.reviewing import consider
from reconciliation.states import CaseState
from reconciliation.work_models import CaseClaim
from reconciliation.working import live_claims
from runs.refusals import Refusal


@dataclass(frozen=True, kw_only=True)
class Foreseen:
    """One case of the list. `why_not` says why nothing would be done with it, "" if something would."""

    position: int
    case: Case
    why_not: str = ""
    # A colleague who works on it; a claim warns and keeps nobody from deciding.
    claimant: str = ""
    consequences: Consequences | None = None


def preview(*, job: BulkJob, wanted: Wanted, now: datetime, teams: Sequence[str]) -> tuple[Foreseen, ...]:
    """What would become of each case that these teams have, in the order of the list.

    For a decision each case is judged, some six queries each; for the rest two queries serve all of them.
    """
    items = list(
        BulkItem.objects.filter(job=job, case__team__in=teams)
        .select_related("case__operation__call", "case__run__flow", "case__run__flow_version")
        .defer("case__operation__call__args", "case__operation__call__result", "case__run__input")
        .order_by("position")
    )
    deed = BulkDeed(job.deed)
    if deed is BulkDeed.DECIDE:
        claims = _claims(items, now)
        return tuple(
            replace(_decided(one, wanted, now), claimant=_colleague(claims.get(one.case_id), {job.actor}))
            for one in items
        )
    if deed is BulkDeed.LOOK_UP:
        return tuple(
            Foreseen(position=one.position, case=one.case, why_not=why_not_looked_up(one.case))
            for one in items
        )
    # Whose claim stands in nobody's way: one's own, and that of whoever gets the case.
    welcome = {job.actor, wanted.assignee.actor.id if wanted.assignee is not None else ""}
    return _worked_on(items, welcome if deed is BulkDeed.ASSIGN else {job.actor}, now)


def _worked_on(items: Sequence[BulkItem], welcome: set[str], now: datetime) -> tuple[Foreseen, ...]:
    claims = _claims(items, now)

    def why_not(case: Case) -> str:
        if case.state == CaseState.RESOLVED:
            return "This case is resolved: there is nothing left to work on."
        colleague = _colleague(claims.get(case.pk), welcome)
        return f"{colleague} works on this case." if colleague else ""

    return tuple(Foreseen(position=one.position, case=one.case, why_not=why_not(one.case)) for one in items)


def _claims(items: Sequence[BulkItem], now: datetime) -> dict[str, CaseClaim]:
    claims = live_claims(now).filter(case__in=[one.case_id for one in items])
    return {claim.case_id: claim for claim in claims}


def _colleague(claim: CaseClaim | None, welcome: set[str]) -> str:
    """The name of somebody else who has it, "" for nobody."""
    return claim.actor_name or claim.actor if claim is not None and claim.actor not in welcome else ""


def _decided(item: BulkItem, wanted: Wanted, now: datetime) -> Foreseen:
    case = item.case
    run, operation = case.run, case.operation
    judged = judge_now(run=run, operation=operation, case=case, now=now)
    asked: Asked = bulk.decision_of(wanted, item)
    try:
        reviewed = consider(case=case, operation=operation, judged=judged, asked=asked, may_ask=False)
    except Refusal as refusal:
        return Foreseen(position=item.position, case=case, why_not=sentence_of(refusal))
    done = foresee(
        asked.action,
        run=run,
        operation=operation,
        judged=judged,
        now=now,
        choices=Choices(executor=wanted.executor, then=wanted.then, receipt_amount=reviewed.amount),
    )
    return Foreseen(position=item.position, case=case, consequences=done)
