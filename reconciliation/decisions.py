"""Decisions: the only write door for people. Confirm, retry with the same key, abandon; for conflicts after
the fact, accept or compensate.

A decision names the case version and the digest of the evidence that the person saw. Under the lock the
policy is asked again; if anything moved, the decision is refused with what changed, and nothing is written.
Where it takes a second person, it becomes a request for their consent, and is carried out when they give it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from django.db import transaction

from reconciliation import approvals, carrying_out, decision_approvals
from reconciliation.approval_models import ApprovalRequest
from reconciliation.asked import (
    KEY_LENGTH_MAX,
    REASON_LENGTH_MAX,
    REASON_LENGTH_MIN,
    ActionLocked,
    Asked,
    GivenReceipt,
    check_words,
    locked_refusal,
    needs_second_person,
    why_two,
)
from reconciliation.gathering import Judged, judge_now
from reconciliation.models import Case, Decision
from reconciliation.persons import Forbidden, KeyReused, Worker
from reconciliation.states import CaseState, Permission
from runs.actors import Actor, ActorKind
from runs.locking import lock_operation
from runs.models import Evidence
from runs.refusals import NotFound, Refusal

__all__ = [
    "KEY_LENGTH_MAX",
    "REASON_LENGTH_MAX",
    "REASON_LENGTH_MIN",
    "ActionLocked",
    "Asked",
    "Decided",
    "DecisionStale",
    "Forbidden",
    "GivenReceipt",
    "KeyReused",
    "decide",
    "find_case",
    "refuse_stale",
]


class DecisionStale(Refusal):
    """The case or its evidence moved since the person looked; details say what, and by whom."""

    word: ClassVar[str] = "decision_stale"


@dataclass(frozen=True)
class Decided:
    """What came of it. `approval`: the request to a second person, "" if one person was enough."""

    answer: dict[str, Any]
    replayed: bool
    approval: str = ""


def find_case(*, case_id: str, team: str | None) -> Case:
    """Return a case of the team without a lock; raises `NotFound`, also for another team's."""
    rows = Case.objects.filter(pk=case_id)
    if team is not None:
        rows = rows.filter(team=team)
    case = rows.first()
    if case is None:
        raise NotFound(f"There is no case {case_id} that you can see.", case=case_id)
    return case


def decide(
    *,
    case_id: str,
    team: str | None,
    actor: Actor,
    asked: Asked,
    actor_name: str = "",
    may_ask: bool = True,
) -> Decided:
    """Decide an open case, ask a second person to, or refuse having changed nothing. Owns its transaction.

    Refuses in this order (API.md): `KeyReused`, `NotFound`, `Forbidden`, `Invalid`, `DecisionStale`,
    `ActionLocked`; and `Forbidden` to ask for somebody who isn't an operator of the team any more. The same
    content under the same key returns the first answer, `replayed`. `may_ask` False: what takes two is
    refused instead.
    """
    content = asked.content_digest(case_id)
    person = Worker(actor=actor, name=actor_name)
    with transaction.atomic():
        again = _before(person, asked, content)
        if again is not None:
            return again
        found = find_case(case_id=case_id, team=team)
        if actor.kind is not ActorKind.PERSON:
            raise Forbidden("Only a person decides a case.", actor=str(actor.kind))
        check_words(asked)
        locked = lock_operation(operation_id=found.operation_id, team=team)
        case = Case.objects.select_for_update().get(pk=case_id)
        # The same request may have been answered while we waited for the lock.
        again = _before(person, asked, content)
        if again is not None:
            return again
        judged = judge_now(run=locked.run, operation=locked.operation, case=case, now=locked.now)
        refuse_stale(case, judged, asked)
        status = judged.assessment.action(asked.action)
        if status is None or status.permission is Permission.LOCKED:
            raise locked_refusal(asked.action, status)
        deciding = carrying_out.Deciding(
            locked=locked,
            case=case,
            judged=judged,
            status=status,
            person=person,
            asked=asked,
            content_digest=content,
        )
        why = why_two(locked.operation, judged, status, asked)
        if why and not may_ask:
            raise needs_second_person(asked.action, why)
        if why:
            approval = decision_approvals.ask_second_person(deciding, why=why)
            return Decided(answer=approval.answer, replayed=False, approval=approval.pk)
        decision = carrying_out.carry_out(deciding)
        return Decided(answer=carrying_out.answer_of(locked, case, decision), replayed=False)


def _before(person: Worker, asked: Asked, content: str) -> Decided | None:
    """What this person was answered when they asked under this key before; None if they didn't."""
    key = asked.idempotency_key
    # First the request: the decision that came of it later has the same key.
    request: ApprovalRequest | None = approvals.asked_before(worker=person, key=key, asked_digest=content)
    if request is not None:
        return Decided(answer=request.answer, replayed=True, approval=request.pk)
    again = Decision.objects.filter(actor=person.actor.id, idempotency_key=key).first()
    if again is None:
        return None
    if again.content_digest != content:
        raise KeyReused("This Idempotency-Key was used for another decision.", decision=again.pk)
    return Decided(answer=again.answer, replayed=True)


def refuse_stale(case: Case, judged: Judged, asked: Asked) -> None:
    """Raise `DecisionStale` if the case or its evidence isn't what the person saw; it says what changed."""
    moved = case.version != asked.seen_version
    if not moved and judged.evidence_digest == asked.evidence_digest:
        return
    # Decided on this version or a later one: it can't be what the person had before them.
    since = Decision.objects.filter(case=case, seen_version__gte=asked.seen_version)
    latest = since.order_by("-made_at", "-id").first() if moved else None
    details: dict[str, Any] = {
        "case": case.pk,
        "version": case.version,
        "seen_version": asked.seen_version,
        "evidence_digest": judged.evidence_digest,
        "state": str(case.state),
        "changed": _what_changed(case, latest, moved),
    }
    if latest is not None:
        details |= {
            "by": latest.actor_name or latest.actor,
            "at": latest.made_at.isoformat(),
            "action": latest.action,
            "their_reason": latest.reason,
        }
    elif moved:
        newest = Evidence.objects.filter(operation=case.operation_id).order_by("-recorded_at", "-id").first()
        if newest is not None:
            details |= {"by": newest.actor, "at": newest.recorded_at.isoformat(), "evidence": newest.summary}
    raise DecisionStale("This case changed since you opened it. Your decision was not saved.", **details)


def _what_changed(case: Case, latest: Decision | None, moved: bool) -> list[str]:
    if not moved:
        return ["An answer to one of the five questions, or what is allowed, changed with time."]
    changes = []
    if latest is not None:
        changes.append(f"{latest.actor_name or latest.actor} decided: {latest.action}.")
    if case.state == CaseState.RESOLVED:
        changes.append(f"The case is resolved as {case.resolution}.")
    elif latest is None:
        summaries = Evidence.objects.filter(operation=case.operation_id).order_by("-recorded_at", "-id")
        changes.append(summaries.values_list("summary", flat=True).first() or "The case was moved on.")
    return changes
