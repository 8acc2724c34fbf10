"""A case as JSON: the policy's answers and permissions as they are now, and the evidence behind them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from console.api.showing import ahead, amount, content_shown, passed
from reconciliation.decisions import find_case
from reconciliation.gathering import judge_now
from reconciliation.models import Case, Decision, Lookup
from reconciliation.permissions import ActionStatus
from reconciliation.questions import Answer
from runs.locking import database_now
from runs.models import Evidence, Operation

# One operation rarely has ten of each; the newest are shown.
LISTED_MAX = 50
# Enough of a body to read; its whole length and digest stand beside it.
BODY_SHOWN_MAX = 4 * 1024


def case_short(case: Case, now: datetime) -> dict[str, Any]:
    return {
        "id": case.pk,
        "operation": case.operation_id,
        "run": case.run_id,
        "number": case.number,
        "kind": str(case.kind),
        "state": str(case.state),
        "need": str(case.need) or None,
        "parked_because": case.parked_because or None,
        "resolution": str(case.resolution) or None,
        "version": case.version,
        "opened_because": case.opened_because,
        "finding": case.finding or None,
        "finding_summary": case.finding_summary or None,
        "provider": case.provider_slug,
        "tool": case.tool,
        "flow": case.flow_name,
        "at_risk": amount(case.at_risk_currency, case.at_risk_minor),
        **passed("opened", case.opened_at, now),
        **ahead("decide_by", case.decide_by_at, now),
    }


def case_moved(case: Case) -> dict[str, Any]:
    return {
        "id": case.pk,
        "state": str(case.state),
        "version": case.version,
        "resolution": str(case.resolution) or None,
    }


def case_full(*, team: str, case_id: str) -> dict[str, Any]:
    """One case of the team, judged now; raises `NotFound`. What it shows, a decision is asked about again."""
    case = find_case(case_id=case_id, team=team)
    operation = Operation.objects.select_related("call", "run__flow", "run__flow_version").get(
        pk=case.operation_id
    )
    now = database_now()
    judged = judge_now(run=operation.run, operation=operation, case=case, now=now)
    evidence = Evidence.objects.filter(operation=operation).order_by("-recorded_at", "-id")[:LISTED_MAX]
    lookups = Lookup.objects.filter(case=case).order_by("-number")[:LISTED_MAX]
    decisions = Decision.objects.filter(case=case).order_by("-made_at", "-id")[:LISTED_MAX]
    return {
        **case_short(case, now),
        "evidence_digest": judged.evidence_digest,
        "answers": [_answer(one, now) for one in judged.assessment.answers],
        "actions": [_action(one, now) for one in judged.assessment.actions],
        "evidence": [_evidence(one, now) for one in evidence],
        "lookups": [_lookup(one, now) for one in lookups],
        "decisions": [_decision(one, now) for one in decisions],
        **ahead("next_lookup", case.next_lookup_at, now),
    }


def _answer(answer: Answer, now: datetime) -> dict[str, Any]:
    return {
        "number": answer.number,
        "question": answer.question,
        "answer": str(answer.truth),
        "sentence": answer.sentence,
        **ahead("until", answer.until_at, now),
    }


def _action(status: ActionStatus, now: datetime) -> dict[str, Any]:
    return {
        "action": str(status.action),
        "permission": str(status.permission),
        "sentence": status.sentence,
        "question": status.question or None,
        **ahead("unlocks", status.unlocks_at, now),
        **ahead("closes", status.closes_at, now),
    }


def _evidence(evidence: Evidence, now: datetime) -> dict[str, Any]:
    content = bytes(evidence.body or b"")
    return {
        "id": evidence.pk,
        "kind": evidence.kind,
        "claim": evidence.claim,
        "finding": evidence.finding or None,
        "summary": evidence.summary,
        "reference": evidence.reference or None,
        "actor": evidence.actor,
        **passed("recorded", evidence.recorded_at, now),
        "seen": evidence.seen,
        **content_shown(content, length_max=BODY_SHOWN_MAX),
        "body_length": evidence.body_length,
        "body_sha256": evidence.body_digest or None,
        "body_cut": evidence.body_length > min(len(content), BODY_SHOWN_MAX),
    }


def _lookup(lookup: Lookup, now: datetime) -> dict[str, Any]:
    return {
        "number": lookup.number,
        "finding": lookup.finding,
        "summary": lookup.summary,
        "proof": lookup.proof,
        "asked_by": lookup.asked_by,
        **passed("asked", lookup.asked_at, now),
        "duration_ms": lookup.duration_ms,
        "evidence": lookup.evidence_id,
        "used": lookup.used,
    }


def _decision(decision: Decision, now: datetime) -> dict[str, Any]:
    return {
        "id": decision.pk,
        "action": decision.action,
        "actor": decision.actor,
        "actor_name": decision.actor_name,
        "role": decision.actor_role,
        "reason_code": decision.reason_code,
        "reason": decision.reason,
        "seen_version": decision.seen_version,
        **passed("made", decision.made_at, now),
    }
