"""Let a provider make an effect absent, as two people decided: a record, then one request, then proof.

Sent by a worker of ours and by nobody else. What two people consented to is looked at once more under the
lock; the record that a request leaves is committed before it does; its answer is kept as evidence whatever it
says. A request whose answer nobody knows stays so: from the time after which it can no longer take effect,
people are asked again, who may ask for it anew.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

import structlog
from django.db import transaction
from django.db.models import QuerySet
from structlog.contextvars import bound_contextvars

from reconciliation import (
    admission,
    approval_ending,
    approvals,
    approving,
    carrying_out,
    effective,
    moves,
)
from reconciliation.accounts import account_of
from reconciliation.approval_kinds import Held, content_of, hold_of, kind_of
from reconciliation.approval_models import ApprovalKind, ApprovalRequest, ApprovalState
from reconciliation.contracts import AskedAgain
from reconciliation.gathering import judge_now
from reconciliation.making_absent_models import AbsenceRequest, AbsenceState
from reconciliation.making_absent_rules import proves_absence
from reconciliation.models import Case, Decision
from reconciliation.providers import registry
from reconciliation.providers.base import AbsenceKind, AbsenceSeen, OutgoingOperation, elapsed_seconds
from reconciliation.providers.making_absent import MakesAbsent, not_started
from reconciliation.states import CaseState, Need, Resolution
from runs import audit
from runs.actors import Actor, ActorKind
from runs.ids import could_be_id, new_id
from runs.journal import settling
from runs.journal.evidence import record_evidence
from runs.journal.freezing import refuse_frozen
from runs.locking import LockedOperation, database_now, lock_operation
from runs.models import Evidence
from runs.refusals import Refusal
from runs.states import Claim, EvidenceKind, OperationState

log = structlog.get_logger(__name__)

SENDER: Final = Actor(ActorKind.SYSTEM, "make-absent")
# How long a worker waits for the account's limit before it lets the sweeper call anew.
SLOT_WITHIN: Final = timedelta(seconds=10)


class NotToBeMadeAbsent(Refusal):
    """What two people consented to may not be sent: it was used, ended, or rests on what has changed."""

    word: ClassVar[str] = "not_to_be_made_absent"


@dataclass(frozen=True, kw_only=True)
class _Outgoing:
    """A request whose record is on disk, and what it is about."""

    request_id: str
    provider: str
    # The digest of the account's file as two people consented to it.
    declared: str
    operation: OutgoingOperation


def send(*, approval_id: str) -> str:
    """Carry out what two people approved, once; what it came to, or "" if nothing was sent by this call.

    Two tasks for one approval: the second finds it used. Owns its transactions; none is open while the
    provider is asked.
    """
    found = ApprovalRequest.objects.filter(pk=approval_id, kind=ApprovalKind.MAKE_ABSENT)
    approval = found.select_related("operation").first() if could_be_id(approval_id) else None
    if approval is None or approval.operation is None or approval.state != ApprovalState.APPROVED:
        return ""
    slug = approval.operation.provider_id
    if not admission.wait_for_another_slot(slug=slug, contract=account_of(slug).contract, within=SLOT_WITHIN):
        return ""
    asked_at = elapsed_seconds()
    try:
        outgoing = _begin(approval, asked_at)
    except Refusal as refusal:
        log.info("make_absent_refused", approval=approval_id, word=refusal.word, sentence=refusal.sentence)
        return ""
    with bound_contextvars(
        operation=outgoing.operation.operation_id, absence=outgoing.request_id, account=outgoing.provider
    ):
        seen = _send(outgoing)
        _record(request_id=outgoing.request_id, seen=seen)
        log.info("make_absent_sent", outcome=seen.kind.value)
    return seen.kind.value


# --- Before it leaves -------------------------------------------------------------------------------------


def _begin(found: ApprovalRequest, asked_at: float) -> _Outgoing:
    """Use the approval up and write the record, in one transaction, before anything leaves.

    Raises `NotToBeMadeAbsent`, having ended the approval where what it rests on has changed; `SendingFrozen`.
    """
    with transaction.atomic(durable=True):
        held, approval = hold_of(found)
        outcome = _permit(held, approval, asked_at)
        if isinstance(outcome, _Outgoing):
            return outcome
    # What is kept of a refusal is kept: it is raised after its commit.
    raise outcome


def _permit(held: Held, approval: ApprovalRequest, asked_at: float) -> _Outgoing | Refusal:
    locked, case = held.operation, held.case
    if locked is None or case is None:
        raise AssertionError("making an effect absent is about a case and its operation")
    over = approvals.end_if_over(held, approval)
    if over is not None:
        return over
    if approval.state != ApprovalState.APPROVED:
        return NotToBeMadeAbsent(f"Its approval is {approval.state}.", approval=approval.pk)
    refuse_frozen(locked.operation.provider_id)
    why = approving.still_stands(approval)
    changed = [why] if why else approving.changes(held, approval, kind_of(approval.kind))
    if changed:
        because = " ".join(changed)
        approval_ending.end(approval, ApprovalState.VOIDED, because=because, actor=SENDER, now=locked.now)
        approvals.reopen(held, approval, because)
        return NotToBeMadeAbsent(because, approval=approval.pk)
    return _note_leaving(locked, case, approval, asked_at)


def _note_leaving(
    locked: LockedOperation, case: Case, approval: ApprovalRequest, asked_at: float
) -> _Outgoing:
    operation, now = locked.operation, locked.now
    contract = account_of(operation.provider_id).contract
    row = AbsenceRequest.objects.create(
        id=new_id("abs"),
        operation=operation,
        case=case,
        approval=approval,
        number=AbsenceRequest.objects.filter(operation=operation).count() + 1,
        attempts_before=operation.attempts_count,
        sent_at=now,
        quiet_after_at=contract.quiet_at(now),
    )
    approval_ending.end(approval, ApprovalState.CARRIED_OUT, actor=SENDER, now=now)
    _append(
        locked,
        row,
        "absence.sent",
        {"number": row.number, "approval": approval.pk, "quiet_after_at": row.quiet_after_at.isoformat()},
    )
    moves.await_absence(locked, case, why="the request to make it absent leaves", actor=SENDER)
    payload = bytes(operation.payload)
    return _Outgoing(
        request_id=row.pk,
        provider=operation.provider_id,
        declared=content_of(approval)["facts"]["request_declared"],
        operation=OutgoingOperation(
            operation_id=operation.pk,
            idempotency_key=operation.key,
            tool=operation.tool,
            payload_bytes=payload,
            payload=json.loads(payload),
            amount=operation.amount,
            attempt_id=row.pk,
            attempt_number=row.number,
            start_by=asked_at + contract.start_within_ms / 1000,
            request_within_ms=contract.request_within_ms,
        ),
    )


def _send(outgoing: _Outgoing) -> AbsenceSeen:
    try:
        adapter = effective.adapter(outgoing.provider)
    except registry.UnknownProvider:
        return not_started("Its account is no longer declared, so nothing was sent.", "NotDeclared")
    # An account that is declared in the console can be declared anew in this very moment.
    if adapter.account.declaration_digest != outgoing.declared:
        return not_started(
            "Its account was declared anew after two people agreed, so nothing was sent.", "DeclaredAnew"
        )
    if not isinstance(adapter, MakesAbsent):
        return not_started("Its adapter can't make anything absent, so nothing was sent.", "NotOffered")
    return adapter.make_absent(outgoing.operation)


# --- Afterwards -------------------------------------------------------------------------------------------


def _record(*, request_id: str, seen: AbsenceSeen) -> None:
    """Keep what came back as evidence, and conclude what it proves. Owns its transaction."""
    with transaction.atomic():
        locked, case, row = _hold(request_id)
        evidence = _keep(
            locked,
            row,
            claim=Claim.ABSENT if seen.kind is AbsenceKind.ABSENT else Claim.UNKNOWN,
            summary=seen.summary,
            seen={"outcome": seen.kind.value, "number": row.number, "exchange": seen.exchange.as_json()},
            body=seen.exchange.body.encode(errors="replace"),
        )
        if row.state != AbsenceState.SENT:
            # It came after its time, and stays what people were told: its answer is evidence.
            _tell(locked, case)
            return
        _end(locked, row, AbsenceState.ANSWERED, evidence, outcome=seen.kind.value)
        if case.state == CaseState.RESOLVED or locked.operation.state != OperationState.SENT_UNKNOWN:
            return
        _conclude(locked, case, row, seen, evidence)


def _conclude(
    locked: LockedOperation, case: Case, row: AbsenceRequest, seen: AbsenceSeen, evidence: Evidence
) -> None:
    if seen.kind is AbsenceKind.ABSENT and _is_proved(locked, case, row):
        AbsenceRequest.objects.filter(pk=row.pk).update(proved=True)
        decision = Decision.objects.get(approval=row.approval_id)
        actor = Actor(ActorKind(decision.actor_kind), decision.actor, decision.actor_role)
        settling.abandon(
            locked,
            actor=actor,
            known_effect=(
                "Absent: asked to make sure of it, the provider answered at "
                f"{locked.now:%Y-%m-%d %H:%M:%S} UTC that it isn’t there."
            ),
            reason=decision.reason,
            evidence=evidence,
            absent=True,
        )
        moves.resolve(locked, case, Resolution.ABANDONED, actor=actor)
        carrying_out.end_run_if_said(locked, decision.then, actor=actor, reason=decision.reason)
        return
    moves.note_new_evidence(locked, case)
    _back_to_people(locked, case, row, seen.summary)


def _is_proved(locked: LockedOperation, case: Case, row: AbsenceRequest) -> bool:
    judged = judge_now(run=locked.run, operation=locked.operation, case=case, now=locked.now)
    way = judged.account.make_absent
    left = next((one for one in judged.facts.absences if one.number == row.number), None)
    return (
        way is not None
        and left is not None
        and proves_absence(judged.facts, judged.contract, way, left, attempts_before=row.attempts_before)
    )


def _back_to_people(locked: LockedOperation, case: Case, row: AbsenceRequest, why: str) -> None:
    """Ask people again, and look at the provider from when the request can no longer take effect."""
    has_lookup = account_of(locked.operation.provider_id).contract.has_lookup
    need = Need.NOT_FOUND if has_lookup else Need.NO_LOOKUP
    moves.hand_to_person(locked, case, need, why=why[:300])
    if has_lookup and row.outcome != AbsenceKind.NOT_SENT:
        case.next_lookup_at = max(locked.now, row.quiet_after_at)
        case.save(update_fields=["next_lookup_at"])


def overdue(now: datetime) -> QuerySet[AbsenceRequest]:
    """Requests without an answer that can no longer take effect, longest first."""
    return AbsenceRequest.objects.filter(state=AbsenceState.SENT, quiet_after_at__lte=now).order_by(
        "quiet_after_at"
    )


def approved() -> QuerySet[ApprovalRequest]:
    """What two people approved and no worker has sent yet, longest first."""
    return ApprovalRequest.objects.filter(
        kind=ApprovalKind.MAKE_ABSENT, state=ApprovalState.APPROVED, expires_at__gt=database_now()
    ).order_by("answered_at")


def give_up(*, request_id: str) -> bool:
    """Say of a request without an answer that nobody will know it; True if it was still awaited.

    It may have left or not, and may have undone the effect or not. Owns its transaction.
    """
    with transaction.atomic():
        locked, case, row = _hold(request_id)
        if row.state != AbsenceState.SENT or row.quiet_after_at > locked.now:
            return False
        way = account_of(locked.operation.provider_id).make_absent
        promised = way is not None and way.again is AskedAgain.HARMLESS
        summary = (
            f"Whoever sent the request to make it absent at {row.sent_at:%H:%M:%S} UTC didn’t say what came "
            "of it. Whether it left, and whether anything was undone, is unknown. "
            + (
                "The provider promises that the same request again does nothing more."
                if promised
                else "Whether the same request again does something more, the provider doesn’t say."
            )
        )
        evidence = _keep(
            locked,
            row,
            claim=Claim.UNKNOWN,
            summary=summary,
            seen={"outcome": "unanswered", "number": row.number},
        )
        _end(locked, row, AbsenceState.UNANSWERED, evidence)
        if case.state != CaseState.RESOLVED and locked.operation.state == OperationState.SENT_UNKNOWN:
            moves.note_new_evidence(locked, case)
            _back_to_people(locked, case, row, summary)
        return True


# --- One by one ---------------------------------------------------------------------------------------------


def _hold(request_id: str) -> tuple[LockedOperation, Case, AbsenceRequest]:
    found = AbsenceRequest.objects.get(pk=request_id)
    locked = lock_operation(operation_id=found.operation_id, team=None)
    case = Case.objects.select_for_update().get(pk=found.case_id)
    return locked, case, AbsenceRequest.objects.select_for_update().get(pk=request_id)


def _tell(locked: LockedOperation, case: Case) -> None:
    if case.state != CaseState.RESOLVED:
        moves.note_new_evidence(locked, case)


def _keep(
    locked: LockedOperation,
    row: AbsenceRequest,
    *,
    claim: Claim,
    summary: str,
    seen: dict[str, Any],
    body: bytes = b"",
) -> Evidence:
    return record_evidence(
        locked,
        kind=EvidenceKind.MAKE_ABSENT,
        claim=claim,
        summary=summary,
        actor=SENDER,
        reference="",
        seen={"absence": row.pk, **seen},
        body=body,
    )


def _end(
    locked: LockedOperation,
    row: AbsenceRequest,
    state: AbsenceState,
    evidence: Evidence,
    *,
    outcome: str = "",
) -> None:
    """One compare-and-set with its leaf; the caller holds the row."""
    row.state, row.outcome, row.ended_at, row.evidence = state, outcome, locked.now, evidence
    row.save(update_fields=["state", "outcome", "ended_at", "evidence"])
    _append(
        locked, row, f"absence.{state}", {"number": row.number, "outcome": outcome}, evidence=evidence.digest
    )


def _append(
    locked: LockedOperation,
    row: AbsenceRequest,
    action: str,
    after: dict[str, Any],
    *,
    evidence: str = "",
) -> None:
    operation = locked.operation
    audit.append(
        audit.Event(
            action=action,
            actor=SENDER,
            team=operation.team_id,
            run=operation.run_id,
            operation=operation.pk,
            subject=row.pk,
            after=after,
            evidence=evidence,
        )
    )
