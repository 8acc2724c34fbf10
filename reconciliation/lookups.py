"""Lookups: claim a due case, ask its provider outside any transaction, record the answer, ask the policy.

A lookup never changes the provider, and its answer is never thrown away: when the case moved while it ran,
it becomes evidence and overwrites nothing.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import OperationalError, transaction
from django.db.models import Q

from reconciliation import cases, effective, retries
from reconciliation.accounts import account_of
from reconciliation.gathering import INFORMATIVE
from reconciliation.models import Case, Lookup
from reconciliation.providers import registry
from reconciliation.providers.base import Finding, Inconclusive, NotFound, Question, Several
from reconciliation.states import CaseState, Need
from runs.actors import Actor, ActorKind
from runs.journal.evidence import record_evidence, storable_text
from runs.locking import LockedOperation, database_now, lock_operation
from runs.models import Evidence, Operation
from runs.money import Money
from runs.states import Claim, EvidenceKind, OperationState

log = structlog.get_logger(__name__)

# Longer than any lookup's own time limits, so that a claim outlives its lookup unless the worker died.
CLAIM_SECONDS = 90
LOOKUP_ACTOR = Actor(ActorKind.SYSTEM, "lookup")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A claimed case and the question to put; plain values, so that no row is held while we wait."""

    case_id: str
    claim: str
    version: int
    provider: str
    question: Question


def look_up(*, case_id: str, asked_by: str = "policy") -> str:
    """Look one due case up and act on the answer; returns the finding, or "" if it wasn't ours to look up.

    Two workers never look up the same case at once: the claim is one conditional update. Owns its
    transactions; none is open while the provider is asked.
    """
    asked = claim_due(case_id=case_id)
    if asked is None:
        return ""
    finding = _ask(asked)
    record_finding(asked=asked, finding=finding, asked_by=asked_by)
    return finding.kind.value


def _ask(asked: Asked) -> Finding:
    try:
        return effective.adapter(asked.provider).look_up(asked.question)
    except registry.UnknownProvider:
        return Inconclusive(
            reason="undeclared", summary="Its provider account is no longer declared: it can't be asked."
        )
    except Exception as error:
        # An answer that our own code fails on must not keep its case from a person for ever.
        log.exception("lookup_failed", case=asked.case_id, provider=asked.provider)
        return Inconclusive(
            reason="failed", summary=f"The lookup failed inside Recourse ({type(error).__name__})."
        )


def claim_due(*, case_id: str) -> Asked | None:
    """Claim a case whose lookup is due and isn't being made; None if there is nothing to do."""
    now = database_now()
    claim = secrets.token_hex(8)
    claimed = (
        Case.objects.filter(pk=case_id, next_lookup_at__lte=now)
        .exclude(state=CaseState.RESOLVED)
        .filter(Q(lookup_claim="") | Q(lookup_claimed_until_at__lte=now))
        .update(lookup_claim=claim, lookup_claimed_until_at=now + timedelta(seconds=CLAIM_SECONDS))
    )
    if not claimed:
        return None
    case = Case.objects.select_related("operation").get(pk=case_id)
    operation = case.operation
    return Asked(
        case_id=case_id,
        claim=claim,
        version=case.version,
        provider=operation.provider_id,
        question=_question(operation, now),
    )


def _question(operation: Operation, now: datetime) -> Question:
    amount = None
    if operation.amount_minor is not None:
        amount = Money(operation.amount_currency, operation.amount_minor)
    return Question(
        operation_id=operation.pk,
        idempotency_key=operation.key,
        tool=operation.tool,
        payload=json.loads(bytes(operation.payload)),
        amount=amount,
        first_sent_at=operation.first_sent_at or now,
        last_quiet_at=operation.last_quiet_at,
        asked_at=now,
    )


def record_finding(*, asked: Asked, finding: Finding, asked_by: str) -> None:
    """Keep the answer as evidence and let the policy judge it, unless the case moved meanwhile."""
    with transaction.atomic():
        operation_id = Case.objects.values_list("operation_id", flat=True).get(pk=asked.case_id)
        locked = lock_operation(operation_id=operation_id, team=None)
        case = Case.objects.select_for_update().get(pk=asked.case_id)
        ours = case.lookup_claim == asked.claim
        open_question = case.state != CaseState.RESOLVED
        known = Evidence.objects.filter(operation=locked.operation, digest=finding.evidence_digest).exists()
        lookup = _insert(locked, case, asked, finding, asked_by, judged=ours and open_question)
        if ours:
            case.lookup_claim, case.lookup_claimed_until_at = "", None
        if open_question and not known:
            cases.note_new_evidence(case)
        if not (ours and open_question):
            case.save(update_fields=["lookup_claim", "lookup_claimed_until_at"])
            return
        _count(case, finding)
        if case.next_lookup_at is not None and case.next_lookup_at <= asked.question.asked_at:
            # This was the lookup that was due; what follows says when the next is, if there is to be one.
            case.next_lookup_at = None
            case.save(update_fields=["next_lookup_at"])
        if locked.operation.state == OperationState.SENT_UNKNOWN:
            _act_on(locked, case, finding, lookup, known=known)


def _act_on(locked: LockedOperation, case: Case, finding: Finding, lookup: Lookup, *, known: bool) -> None:
    try:
        # A savepoint: the answer is kept whatever comes of acting on it.
        with transaction.atomic():
            cases.judge(locked, case)
            # Settling and conflicts may have moved the row by another hand than this one.
            case.refresh_from_db()
            if case.state != CaseState.RESOLVED:
                _obey_retry_after(locked, case, finding)
                retries.after_lookup(locked, case, lookup, known=known)
    except OperationalError:
        # A deadlock, or a connection that is gone: nothing is wrong with the case, and it is due again.
        raise
    except Exception:
        log.exception("lookup_not_acted_on", case=case.pk, finding=finding.kind.value)
        locked = lock_operation(operation_id=locked.operation.pk, team=None)
        cases.hand_to_person(
            locked, Case.objects.get(pk=case.pk), Need.PARKED, why="acting on the lookup failed"
        )


def _insert(
    locked: LockedOperation, case: Case, asked: Asked, finding: Finding, asked_by: str, *, judged: bool
) -> Lookup:
    receipts = [receipt.as_json() for receipt in finding.receipts]
    exchange: dict[str, Any] | None = finding.exchange.as_json() if finding.exchange else None
    earlier = [one.as_json() for one in finding.earlier]
    evidence = record_evidence(
        locked,
        kind=EvidenceKind.LOOKUP,
        claim=Claim.FINDING,
        summary=finding.summary,
        actor=LOOKUP_ACTOR,
        finding=finding.kind.value,
        reference=finding.receipts[0].reference if len(finding.receipts) == 1 else "",
        # Further pages and ways to look, where there were any: without their bodies.
        seen={"receipts": receipts, "exchange": exchange, **({"earlier": earlier} if earlier else {})},
        body=finding.exchange.body.encode(errors="replace") if finding.exchange else b"",
        says_digest=finding.evidence_digest,
    )
    number = Lookup.objects.filter(case=case).count() + 1
    return Lookup.objects.create(
        case=case,
        operation=locked.operation,
        number=number,
        evidence=evidence,
        asked_by=asked_by,
        asked_at=asked.question.asked_at,
        duration_ms=finding.exchange.duration_ms if finding.exchange else 0,
        finding=finding.kind.value,
        proof="absence" if isinstance(finding, NotFound) and finding.proof else "none",
        # As evidence holds them: without what the database's text and JSON can't.
        summary=evidence.summary,
        exchange=evidence.seen["exchange"],
        receipts=evidence.seen["receipts"],
        digest=finding.evidence_digest,
        used="judged" if judged else "evidence_only",
    )


def _count(case: Case, finding: Finding) -> None:
    case.lookups_count += 1
    informative = finding.kind.value in INFORMATIVE
    case.lookups_failed_count = 0 if informative else case.lookups_failed_count + 1
    case.finding, case.finding_summary = finding.kind.value, storable_text(finding.summary)[:500]
    if informative:
        named = sum(1 for receipt in finding.receipts if receipt.named)
        case.effects_seen = max(named, 2) if isinstance(finding, Several) else named
    case.save()


# A provider may ask for a pause; longer than this we ask again anyway, a person can't be kept waiting.
RETRY_AFTER_MAX = timedelta(minutes=15)


def _obey_retry_after(locked: LockedOperation, case: Case, finding: Finding) -> None:
    wait_ms: int | None = getattr(finding, "retry_after_ms", None)
    if wait_ms is None or case.next_lookup_at is None:
        return
    until = locked.now + min(timedelta(milliseconds=wait_ms), RETRY_AFTER_MAX)
    if until > case.next_lookup_at:
        case.next_lookup_at = until
        case.save(update_fields=["next_lookup_at"])


def ask_again(*, case_id: str, team: str | None, actor: Actor) -> Case:
    """Let a case be looked up now because a person asked; writes nothing else and moves no version."""
    from reconciliation.decisions import find_case

    found = find_case(case_id=case_id, team=team)
    with transaction.atomic():
        locked = lock_operation(operation_id=found.operation_id, team=team)
        case = Case.objects.select_for_update().get(pk=case_id)
        contract = account_of(locked.operation.provider_id).contract
        if case.state != CaseState.RESOLVED and contract.has_lookup:
            cases.look_again_now(locked, case)
        log.info("lookup_asked", case=case_id, by=actor.id)
        return case
