"""Record a decision and carry it out: one person's at once, two people's when the second has consented.

Everything here needs a transaction that holds the run, the operation and the case, and comes after the policy
was asked; `decisions` and `decision_approvals` do that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError, transaction

from reconciliation import cases, extra_effects, moves, retries
from reconciliation.approval_models import ApprovalRequest
from reconciliation.asked import (
    THEN_IS_SAID,
    ActionLocked,
    Asked,
    GivenReceipt,
    match_given,
    receipt_named,
    receipt_on_record,
    require_console_may_send,
)
from reconciliation.gathering import Judged
from reconciliation.models import Case, Decision
from reconciliation.permissions import ActionStatus
from reconciliation.persons import KeyReused, Worker
from reconciliation.policy import POLICY
from reconciliation.states import Action, CaseKind, Resolution, Then
from reconciliation.waking import wake_after_commit
from runs import audit
from runs.actors import Actor
from runs.canonical import canonical_bytes
from runs.ids import new_id
from runs.journal import settling
from runs.journal.ending import abandon_locked_run
from runs.journal.evidence import record_evidence
from runs.locking import LockedOperation
from runs.models import Evidence
from runs.states import RUN_ENDED, Claim, EvidenceKind, Executor, MatchedBy

# Before the id of the approval, where two people confirm without a receipt: no provider gives such a one.
WITHOUT_RECEIPT = "without-receipt:"


@dataclass(frozen=True, kw_only=True)
class Approved:
    """The request that a second person consented to, and that person."""

    request: ApprovalRequest
    approver: Worker


@dataclass(frozen=True, kw_only=True)
class Deciding:
    """One decision under the lock: what it is about, what the policy says now, who asked for what."""

    locked: LockedOperation
    case: Case
    judged: Judged
    status: ActionStatus
    person: Worker
    asked: Asked
    content_digest: str
    # Where it takes two.
    approved: Approved | None = None

    @property
    def actor(self) -> Actor:
        return self.person.actor


def carry_out(deciding: Deciding) -> Decision:
    """Record the decision and do what it says. Raises `KeyReused`, `Invalid`, `ActionLocked`."""
    decision = _record(deciding)
    match deciding.asked.action:
        case Action.CONFIRM:
            _confirm(deciding, decision)
        case Action.RETRY:
            _retry(deciding, decision)
        case Action.ABANDON:
            _abandon(deciding)
        case Action.ACCEPT | Action.COMPENSATE:
            _close_conflict(deciding)
        case Action.MAKE_ABSENT:
            # A worker of ours sends it, once its record is on disk: never whoever approves.
            wake_after_commit("make_absent", _approval_of(deciding).pk)
    return decision


def _approval_of(deciding: Deciding) -> ApprovalRequest:
    if deciding.approved is None:
        raise AssertionError("one person never makes an effect absent")
    return deciding.approved.request


def _record(deciding: Deciding) -> Decision:
    case, asked, actor, approved = deciding.case, deciding.asked, deciding.actor, deciding.approved
    two: dict[str, Any] = (
        {
            "approval": approved.request,
            "approver": approved.approver.actor.id,
            "approver_name": approved.request.answerer_name,
        }
        if approved is not None
        else {}
    )
    decision = _insert(
        id=new_id("dec"),
        case=case,
        operation=deciding.locked.operation,
        action=asked.action,
        actor_kind=str(actor.kind),
        actor=actor.id,
        actor_name=deciding.person.name,
        actor_role=actor.role,
        policy=POLICY,
        reason_code=asked.reason_code,
        reason=asked.reason,
        seen_version=asked.seen_version,
        evidence_digest=asked.evidence_digest,
        executor=asked.executor if asked.action == Action.RETRY else "",
        then=asked.then if asked.action in THEN_IS_SAID else "",
        reference=asked.receipt.reference if asked.receipt else "",
        idempotency_key=asked.idempotency_key,
        content_digest=deciding.content_digest,
        made_at=deciding.locked.now,
        **two,
    )
    audit.append(
        audit.Event(
            action=f"case.decided.{asked.action}",
            actor=actor,
            team=case.team_id,
            run=case.run_id,
            operation=case.operation_id,
            subject=case.pk,
            before={"state": str(case.state), "version": case.version},
            after={
                "decision": decision.pk,
                "policy": decision.policy,
                "reason_code": asked.reason_code,
                **({"executor": asked.executor} if decision.executor else {}),
                **({"then": asked.then} if decision.then else {}),
                **({"approval": approved.request.pk, "approver": decision.approver} if approved else {}),
            },
            reason=asked.reason,
            evidence=asked.evidence_digest,
        )
    )
    return decision


def _insert(**fields: Any) -> Decision:
    try:
        with transaction.atomic():
            return Decision.objects.create(**fields)
    except IntegrityError as error:
        # Under the lock of another case, the same key can only have come for that one.
        if "decision_key_once_per_actor" not in str(error):
            raise
        raise KeyReused("This Idempotency-Key was used for another decision.") from error


def _confirm(deciding: Deciding, decision: Decision) -> None:
    locked, actor = deciding.locked, deciding.actor
    approved = deciding.approved
    evidence, receipt = _receipt_of_one(deciding) if approved is None else _receipt_of_two(deciding, approved)
    try:
        settling.confirm(
            locked,
            receipt=receipt,
            actor=actor,
            attempt=evidence.attempt if evidence is not None else None,
            evidence=evidence,
            reason=deciding.asked.reason,
        )
    except settling.ReceiptReused as reused:
        raise ActionLocked(
            reused.sentence + " One receipt confirms one operation.",
            action=str(Action.CONFIRM),
            reasons=[reused.sentence],
            question=None,
            unlocks_at=None,
        ) from reused
    Decision.objects.filter(pk=decision.pk).update(evidence=evidence, reference=receipt.reference)
    others = _others_on_record(deciding, receipt.reference)
    if others:
        # One of several is the one that was meant. What becomes of the others is still to be said: as of an
        # effect after success (DESIGN law 9).
        why = f"Confirmed with {receipt.reference}. Effects of ours on record beside it: {others}."
        moves.ask_on(locked, deciding.case, why=why, actor=actor)
        return
    moves.resolve(locked, deciding.case, Resolution.CONFIRMED, actor=actor)


def _others_on_record(deciding: Deciding, confirmed: str) -> int:
    case = deciding.case
    if case.kind != CaseKind.CONFLICT:
        return 0
    told = tuple(extra_effects.told_since(deciding.locked.operation, case.opened_at))
    return len(extra_effects.others_on_record(deciding.judged.facts, told, confirmed=confirmed))


def _receipt_of_one(deciding: Deciding) -> tuple[Evidence, settling.ReceiptFacts]:
    """The evidence and the receipt that one person may confirm with."""
    given = deciding.asked.receipt or GivenReceipt()
    if given.body:
        evidence = _attach_given(deciding, given)
        return evidence, cases.receipt_facts(evidence, evidence.reference)
    receipt = receipt_on_record(deciding.locked.operation, deciding.judged, given)
    evidence = Evidence.objects.get(pk=receipt.evidence_id)
    return evidence, cases.receipt_facts(evidence, receipt.reference)


def _receipt_of_two(deciding: Deciding, approved: Approved) -> tuple[Evidence | None, settling.ReceiptFacts]:
    """What two people confirm with: a receipt on record or given, or their word alone, which then says so."""
    given = deciding.asked.receipt or GivenReceipt()
    if given.body:
        evidence = _attach_given(deciding, given)
        return evidence, cases.receipt_facts(evidence, evidence.reference)
    receipt = receipt_named(deciding.locked.operation, deciding.judged, deciding.status, given)
    if receipt is not None:
        evidence = Evidence.objects.get(pk=receipt.evidence_id)
        return evidence, cases.receipt_facts(evidence, receipt.reference)
    approval = approved.request
    said = {"approval": approval.pk, "content": approval.content_digest, "reference": given.reference or None}
    return None, settling.ReceiptFacts(
        reference=given.reference or f"{WITHOUT_RECEIPT}{approval.pk}",
        body=canonical_bytes(said),
        matched_by=MatchedBy.PERSON,
    )


def _attach_given(deciding: Deciding, given: GivenReceipt) -> Evidence:
    match = match_given(deciding.locked.operation, deciding.judged, given)
    problems = list(match.problems)
    reference = match.receipt.reference or given.reference
    if not reference and deciding.approved is not None:
        reference = f"{WITHOUT_RECEIPT}{deciding.approved.request.pk}"
    what = "which matches" if match.matches else f"which doesn’t match: {' '.join(problems)}"
    receipt = {**match.receipt.as_json(), "reference": reference}
    return record_evidence(
        deciding.locked,
        kind=EvidenceKind.ATTACHMENT,
        claim=Claim.RECEIPT,
        summary=f"A person gave the provider's record {reference}, {what}.",
        actor=deciding.actor,
        reference=reference,
        seen={"match": {"matches": match.matches, "problems": problems, "receipt": receipt}},
        body=given.body,
    )


def _retry(deciding: Deciding, decision: Decision) -> None:
    locked, case = deciding.locked, deciding.case
    if decision.executor == Executor.CONSOLE:
        require_console_may_send(locked.operation, deciding.judged)
    has_lookup = deciding.judged.contract.has_lookup
    moves.start_retrying(locked, case, actor=deciding.actor, has_lookup=has_lookup)
    if not has_lookup:
        # Nothing can be asked first: the grant is all there is.
        retries.grant_retry(locked, case, decision, deciding.judged)


def _abandon(deciding: Deciding) -> None:
    locked, case, asked, actor = deciding.locked, deciding.case, deciding.asked, deciding.actor
    known = case.finding_summary or "Whether it happened is unknown: the provider could not tell."
    settling.abandon(locked, actor=actor, known_effect=known, reason=asked.reason)
    moves.resolve(locked, case, Resolution.ABANDONED, actor=actor)
    end_run_if_said(locked, asked.then, actor=actor, reason=asked.reason)


def end_run_if_said(locked: LockedOperation, then: str, *, actor: Actor, reason: str) -> None:
    """End the run with its operation, where whoever gave the operation up said so."""
    if then == Then.END and locked.run.state not in RUN_ENDED:
        abandon_locked_run(locked.locked_run, actor=actor, reason=reason)


def _close_conflict(deciding: Deciding) -> None:
    locked, case, actor = deciding.locked, deciding.case, deciding.actor
    stands = deciding.asked.action == Action.ACCEPT
    minor = extra_effects.extra_minor(locked.operation, since=case.opened_at)
    settling.book_conflict(locked, minor=minor, stands=stands, actor=actor, reason=deciding.asked.reason)
    moves.resolve(locked, case, Resolution.ACCEPTED if stands else Resolution.COMPENSATED, actor=actor)


def moved(locked: LockedOperation, case: Case) -> dict[str, Any]:
    """The case, operation and run as they stand now, for an answer."""
    locked.run.refresh_from_db(fields=["state", "paused_reasons"])
    return {
        "case": {
            "id": case.pk,
            "state": str(case.state),
            "version": case.version,
            "resolution": str(case.resolution) or None,
        },
        "operation": {"id": locked.operation.pk, "state": str(locked.operation.state)},
        "run": {
            "id": locked.run.pk,
            "state": str(locked.run.state),
            "paused_reasons": list(locked.run.paused_reasons),
        },
    }


def answer_of(locked: LockedOperation, case: Case, decision: Decision) -> dict[str, Any]:
    """What the caller of a decision is answered, kept with it for repeats."""
    decision.refresh_from_db(fields=["grant"])
    answer: dict[str, Any] = {
        "decision": decision.pk,
        "action": decision.action,
        **moved(locked, case),
        "grant": decision.grant_id,
    }
    Decision.objects.filter(pk=decision.pk).update(answer=answer)
    return answer
