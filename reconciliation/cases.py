"""Cases: open one, ask the policy about it, carry out what it concludes.

Everything here needs a transaction that holds the run and the operation. What people decide comes in through
`decisions`, what providers answer through `lookups`, what senders report through `reports`; they all end in
`judge`, and in `moves`, the only way in which a case's state moves.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

from reconciliation import admission, moves
from reconciliation.accounts import account_of
from reconciliation.conclusions import (
    AskPerson,
    Conclusion,
    ConfirmBy,
    KeepLooking,
    NotSent,
    RejectBy,
    RepeatByKey,
    Wait,
)
from reconciliation.gathering import Judged, judge_now, key_reaches_console
from reconciliation.models import Case, Decision
from reconciliation.policy import POLICY
from reconciliation.states import Action, CaseKind, CaseState, Need, Resolution
from reconciliation.waking import wake_after_commit
from runs.actors import Actor, ActorKind
from runs.canonical import digest
from runs.ids import new_id
from runs.journal import settling
from runs.locking import LockedOperation, lock_operation
from runs.models import Attempt, Evidence
from runs.states import Claim, Executor, MatchedBy


def open_case(locked: LockedOperation, *, kind: CaseKind, because: str) -> Case:
    """Open a case about the operation, or find the open one; a conflict turns an open case into a conflict.

    An operation that is sent_unknown is in doubt from here on: its unsent siblings wait and its run may
    pause. The policy isn't asked yet.
    """
    operation, run, now = locked.operation, locked.run, locked.now
    case = moves.open_case_of(locked)
    if case is not None:
        if kind == CaseKind.CONFLICT and case.kind != CaseKind.CONFLICT:
            case.kind = CaseKind.CONFLICT
            moves.move(locked, case, CaseState.NEEDS_DECISION, need=Need.CONFLICT, why=because)
        settling.open_doubt(locked)
        return case
    contract = account_of(operation.provider_id).contract
    decide_by = now + timedelta(minutes=run.flow.decide_within_minutes)
    key_ends = contract.key_ends_at(operation.first_sent_at) if operation.first_sent_at else None
    numbers = Case.objects.filter(operation=operation).order_by("-number").values_list("number", flat=True)
    case = Case.objects.create(
        id=new_id("case"),
        operation=operation,
        run=run,
        team_id=operation.team_id,
        number=(numbers.first() or 0) + 1,
        kind=kind,
        state=CaseState.LOOKING_UP,
        # It may quote what a sender or a provider said, at any length.
        opened_because=because[: moves.BECAUSE_LENGTH_MAX],
        next_lookup_at=now if contract.has_lookup else None,
        provider_slug=operation.provider_id,
        flow_name=run.flow.name,
        tool=operation.tool,
        at_risk_currency=operation.amount_currency,
        at_risk_minor=operation.amount_minor or 0,
        payload_digest=operation.payload_digest,
        decide_by_at=decide_by,
        key_ends_at=key_ends,
        worsens_at=min(decide_by, key_ends) if key_ends and key_ends > now else decide_by,
        opened_at=now,
    )
    settling.open_doubt(locked)
    after = {"kind": str(kind), "because": because}
    moves.append_leaf(case, "case.opened", moves.BY_POLICY, after, because)
    wake_after_commit("look_up", case.pk)
    return case


def judge(locked: LockedOperation, case: Case, *, actor: Actor = moves.BY_POLICY) -> Judged:
    """Ask the policy about an open case and carry out what it concludes. `actor` names who settles."""
    judged = judge_now(run=locked.run, operation=locked.operation, case=case, now=locked.now)
    carry_out(locked, case, judged.assessment.conclusion, judged, actor=actor)
    return judged


def settle_now(locked: LockedOperation, *, actor: Actor) -> bool:
    """Settle at once what the evidence already settles; True if the operation isn't in question any more."""
    case = moves.open_case_of(locked)
    judged = judge_now(run=locked.run, operation=locked.operation, case=case, now=locked.now)
    if not isinstance(judged.assessment.conclusion, ConfirmBy | RejectBy | NotSent):
        return False
    return carry_out(locked, case, judged.assessment.conclusion, judged, actor=actor)


def carry_out(
    locked: LockedOperation, case: Case | None, conclusion: Conclusion, judged: Judged, *, actor: Actor
) -> bool:
    """Do what the policy concluded; True if that settled the question."""
    match conclusion:
        case ConfirmBy(evidence_id=evidence_id, reference=reference):
            return _confirm(locked, case, evidence_id, reference, actor)
        case RejectBy(evidence_id=evidence_id):
            evidence = Evidence.objects.get(pk=evidence_id)
            settling.reject(
                locked,
                refusal=bytes(evidence.body or b"null"),
                actor=actor,
                evidence=evidence,
                reason=_by_policy(actor),
            )
            _resolve_if_open(locked, case, Resolution.REJECTED, actor)
            return True
        case NotSent(proof=proof, evidence_id=evidence_id):
            _return_to_ready(locked, proof, evidence_id, actor)
            _resolve_if_open(locked, case, Resolution.NOT_SENT, actor)
            return True
        case RepeatByKey():
            if case is not None:
                _repeat(locked, case, judged)
            return False
        case AskPerson(need=need):
            if case is not None:
                _ask_person(locked, case, need, judged)
            return False
        case KeepLooking(not_before_at=not_before_at):
            if case is not None:
                _keep_looking(locked, case, not_before_at)
            return False
        case Wait():
            return False


def _repeat(locked: LockedOperation, case: Case, judged: Judged) -> None:
    """Decide a retry in the policy's own name, and start it as one that a person decided would be."""
    from reconciliation import retries

    status = judged.assessment.action(Action.RETRY)
    why = status.sentence if status is not None else ""
    by_console = judged.facts.console_can_send and key_reaches_console(locked.operation, judged.contract)
    executor = Executor.CONSOLE if by_console else Executor.AGENT
    key = f"{case.pk}/{case.version}"
    decision = Decision.objects.create(
        id=new_id("dec"),
        case=case,
        operation=locked.operation,
        action=Action.RETRY,
        actor_kind=str(moves.BY_POLICY.kind),
        actor=moves.BY_POLICY.id,
        policy=POLICY,
        reason=f"This flow lets the policy repeat once by itself. {why}",
        seen_version=case.version,
        evidence_digest=judged.evidence_digest,
        executor=executor,
        idempotency_key=key,
        content_digest=digest(key.encode()),
        made_at=locked.now,
    )
    after = {"decision": decision.pk, "policy": POLICY, "executor": str(executor)}
    moves.append_leaf(case, "case.decided.retry", moves.BY_POLICY, after, decision.reason)
    has_lookup = judged.contract.has_lookup
    moves.start_retrying(locked, case, actor=moves.BY_POLICY, has_lookup=has_lookup)
    if not has_lookup:
        retries.grant_retry(locked, case, decision, judged)


def _confirm(
    locked: LockedOperation, case: Case | None, evidence_id: str, reference: str, actor: Actor
) -> bool:
    evidence = Evidence.objects.get(pk=evidence_id)
    try:
        settling.confirm(
            locked,
            receipt=receipt_facts(evidence, reference),
            actor=actor,
            attempt=evidence.attempt,
            evidence=evidence,
            reason=_by_policy(actor),
        )
    except settling.ReceiptReused as reused:
        open_conflict_on_both(locked, reused, evidence)
        return False
    _resolve_if_open(locked, case, Resolution.CONFIRMED, actor)
    return True


def receipt_facts(evidence: Evidence, reference: str) -> settling.ReceiptFacts:
    """The receipt that a piece of evidence shows under this reference, as it was compared when it came."""
    seen = evidence.seen if isinstance(evidence.seen, dict) else {}
    for receipt in [seen.get("match", {}).get("receipt"), *seen.get("receipts", [])]:
        if receipt and receipt.get("reference") == reference:
            amount = receipt.get("amount")
            return settling.ReceiptFacts(
                reference=reference,
                body=_body(evidence, receipt),
                matched_by=MatchedBy(receipt.get("matched_by") or MatchedBy.PERSON),
                amount_currency=amount[0] if amount else "",
                amount_minor=int(amount[1]) if amount else None,
            )
    return settling.ReceiptFacts(
        reference=reference, body=bytes(evidence.body or b"{}"), matched_by=MatchedBy.PERSON
    )


def _body(evidence: Evidence, receipt: dict[str, Any]) -> bytes:
    """The record as it was reported, where we hold it whole; else as the lookup kept it, redacted."""
    if evidence.claim == Claim.RECEIPT and evidence.body and evidence.body_length == len(evidence.body):
        return bytes(evidence.body)
    return json.dumps(receipt.get("body"), ensure_ascii=False, sort_keys=True).encode()


def open_conflict_on_both(
    locked: LockedOperation, reused: settling.ReceiptReused, evidence: Evidence
) -> tuple[Case, Case | None]:
    """One provider receipt was claimed for two operations: both get a conflict case.

    Locks the other operation's run while holding ours. Two such claims crossing each other are broken up by
    the database's deadlock detection; the one that is undone is reported again by its sender.
    """
    because = f"Receipt {evidence.reference or '?'} was claimed for two operations."
    mine = open_case(locked, kind=CaseKind.CONFLICT, because=because)
    judge(locked, mine)
    other_id = reused.confirmed.pk
    if other_id == locked.operation.pk:
        return mine, None
    other = lock_operation(operation_id=other_id, team=None)
    theirs = open_case(other, kind=CaseKind.CONFLICT, because=because)
    judge(other, theirs)
    return mine, theirs


def _return_to_ready(locked: LockedOperation, proof: str, evidence_id: str, actor: Actor) -> None:
    for attempt in Attempt.objects.filter(operation=locked.operation):
        settling.conclude_not_sent(locked, attempt)
    settling.return_to_ready(
        locked,
        actor=actor,
        evidence=Evidence.objects.filter(pk=evidence_id).first() if evidence_id else None,
        reason="; ".join(
            filter(None, (f"every attempt is proved not to have happened, by {proof}", _by_policy(actor)))
        ),
        release=proof == "absence",
    )


def _ask_person(locked: LockedOperation, case: Case, need: Need, judged: Judged) -> None:
    if need == Need.SEVERAL:
        case.kind = CaseKind.CONFLICT
    moves.look_now_and_then(locked, case, judged.contract)
    asked_already = case.state == CaseState.NEEDS_DECISION and case.need == need
    if asked_already or case.state == CaseState.AWAITING_APPROVAL:
        case.save(update_fields=["kind", "next_lookup_at"])
        return
    why = _why_parked(locked, case) if need == Need.PARKED else f"policy: {need}"
    moves.move(locked, case, CaseState.NEEDS_DECISION, need=need, why=why)


def _why_parked(locked: LockedOperation, case: Case) -> str:
    """What kept the provider from answering, in words: its failures, or why it wasn't asked."""
    if case.lookups_failed_count:
        many = case.lookups_failed_count > 1
        count = f"{case.lookups_failed_count} lookups in a row" if many else "The latest lookup"
        return f"{count} told nothing{'. The last' if many else ''}: {case.finding_summary}"
    slug = case.provider_slug
    held = admission.standing(
        admission.gate_of(slug),
        contract=account_of(slug).contract,
        at_once=admission.under_way(slug, now=locked.now),
        now=locked.now,
    )
    return f"It could not be looked up in time. {held.sentence if held else ''}".strip()


def _keep_looking(locked: LockedOperation, case: Case, not_before_at: datetime | None) -> None:
    due = locked.now + moves.backoff(case) if case.lookups_count else locked.now
    if not_before_at is not None:
        due = max(due, not_before_at)
    waits = case.next_lookup_at is not None and case.next_lookup_at <= locked.now
    if not waits or (not_before_at is not None and not_before_at > locked.now):
        case.next_lookup_at = due
    # One that is due and waits for its turn keeps its place.
    if case.state in (CaseState.NEEDS_DECISION, CaseState.AWAITING_APPROVAL):
        # A person was asked; that stands while we look again.
        case.save(update_fields=["next_lookup_at"])
        return
    moves.move(locked, case, CaseState.LOOKING_UP, need="", why="policy: look again")


def _by_policy(actor: Actor) -> str:
    """What the leaf says besides who settled it, where that isn't the policy: the rules that it was by."""
    return "" if actor.kind is ActorKind.POLICY else f"by policy {POLICY}"


def _resolve_if_open(
    locked: LockedOperation, case: Case | None, resolution: Resolution, actor: Actor
) -> None:
    open_one = case or moves.open_case_of(locked)
    if open_one is not None:
        moves.resolve(locked, open_one, resolution, actor=actor)
