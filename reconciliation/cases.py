"""Cases: open one, ask the policy about it, carry out what it concludes, close it.

Everything here needs a transaction that holds the run and the operation, and is the only way in which a
case's state moves. What people decide comes in through `decisions`, what providers answer through `lookups`,
what senders report through `reports`; they all end in `judge` or `resolve`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Q, QuerySet

from reconciliation import admission, approval_ending
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
from reconciliation.contracts import Contract
from reconciliation.gathering import Judged, judge_now, key_reaches_console
from reconciliation.models import Case, Decision
from reconciliation.policy import POLICY
from reconciliation.states import Action, CaseKind, CaseState, Need, Resolution
from reconciliation.waking import wake_after_commit
from runs import audit
from runs.actors import Actor, ActorKind
from runs.canonical import digest
from runs.ids import new_id
from runs.journal import settling
from runs.journal.pausing import refresh_outcome_pause
from runs.locking import LockedOperation, lock_operation
from runs.models import Attempt, Evidence, Operation, Receipt
from runs.states import Claim, Executor, GrantState, MatchedBy, OperationState

BY_POLICY = Actor(ActorKind.POLICY, POLICY)

# The backoff between lookups starts fast enough that a lost reply settles before anybody looks, and slows
# down to this.
LOOKUP_CAP_SECONDS = 300.0
# In needs_decision we still look now and then, so that what a provider shows late settles by itself; after
# so many looks only a person asks again.
LOOKUPS_BY_ITSELF_MAX = 40
# The column's length; the evidence has the rest.
BECAUSE_LENGTH_MAX = 300


def open_case_of(locked: LockedOperation) -> Case | None:
    """The operation's open case, locked, or None."""
    return (
        Case.objects.select_for_update()
        .filter(operation=locked.operation)
        .exclude(state=CaseState.RESOLVED)
        .first()
    )


def open_case(locked: LockedOperation, *, kind: CaseKind, because: str) -> Case:
    """Open a case about the operation, or find the open one; a conflict turns an open case into a conflict.

    An operation that is sent_unknown is in doubt from here on: its unsent siblings wait and its run may
    pause. The policy isn't asked yet.
    """
    operation, run, now = locked.operation, locked.run, locked.now
    case = open_case_of(locked)
    if case is not None:
        if kind == CaseKind.CONFLICT and case.kind != CaseKind.CONFLICT:
            case.kind = CaseKind.CONFLICT
            _move(locked, case, CaseState.NEEDS_DECISION, need=Need.CONFLICT, why=because)
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
        opened_because=because[:BECAUSE_LENGTH_MAX],
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
    _append(locked, case, "case.opened", BY_POLICY, {"kind": str(kind), "because": because}, because)
    wake_after_commit("look_up", case.pk)
    return case


def judge(locked: LockedOperation, case: Case, *, actor: Actor = BY_POLICY) -> Judged:
    """Ask the policy about an open case and carry out what it concludes. `actor` names who settles."""
    judged = judge_now(run=locked.run, operation=locked.operation, case=case, now=locked.now)
    carry_out(locked, case, judged.assessment.conclusion, judged, actor=actor)
    return judged


def settle_now(locked: LockedOperation, *, actor: Actor) -> bool:
    """Settle at once what the evidence already settles; True if the operation isn't in question any more."""
    case = open_case_of(locked)
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
        actor_kind=str(BY_POLICY.kind),
        actor=BY_POLICY.id,
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
    _append(locked, case, "case.decided.retry", BY_POLICY, after, decision.reason)
    has_lookup = judged.contract.has_lookup
    start_retrying(locked, case, actor=BY_POLICY, has_lookup=has_lookup)
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


def dealt_with(operation: Operation, reference: str) -> bool:
    """Whether an extra effect of this reference was accepted or compensated before: no new question."""
    closed = Case.objects.filter(
        operation=operation, resolution__in=[Resolution.ACCEPTED, Resolution.COMPENSATED]
    )
    latest = closed.order_by("-number").values_list("resolved_at", flat=True).first()
    if latest is None:
        return False
    told = Evidence.objects.filter(operation=operation, claim=Claim.RECEIPT, reference=reference)
    return told.filter(recorded_at__lt=latest).exists()


def extra_minor(operation: Operation, *, since: datetime) -> int:
    """What the extra effects told of since then cost, in the operation's currency: each reference once.

    The effect that confirmed the operation is booked already. One that states no amount, or another currency,
    counts as the operation's own amount: the budget can hold no other. So does one that an answer proved
    without a receipt.
    """
    confirmed = Receipt.objects.filter(operation=operation).values_list("reference", flat=True).first()
    return extra_of(operation, confirmed=confirmed, told=tuple(told_since(operation, since)))


def told_since(operation: Operation, since: datetime) -> QuerySet[Evidence]:
    """The evidence since then of effects: receipts, and answers that prove one without a receipt."""
    told = Evidence.objects.filter(operation=operation, recorded_at__gte=since)
    tells = Q(claim=Claim.RECEIPT) | Q(seen__effect_exists=True)
    return told.filter(tells).defer("body").order_by("recorded_at", "id")


def extra_of(operation: Operation, *, confirmed: str | None, told: Sequence[Evidence]) -> int:
    """As `extra_minor`, from the reference that confirmed the operation, if any, and from `told_since`."""
    extra: dict[str, int] = {}
    for evidence in told:
        if evidence.claim != Claim.RECEIPT or evidence.reference == (confirmed or ""):
            continue
        amount = (evidence.seen.get("match", {}).get("receipt") or {}).get("amount")
        minor = int(amount[1]) if amount and amount[0] == operation.amount_currency else None
        extra[evidence.reference] = operation.amount_minor or 0 if minor is None else minor
    if not extra and confirmed is None and any(one.seen.get("effect_exists") is True for one in told):
        return operation.amount_minor or 0
    return sum(extra.values())


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
    _look_now_and_then(locked, case, judged.contract)
    asked_already = case.state == CaseState.NEEDS_DECISION and case.need == need
    if asked_already or case.state == CaseState.AWAITING_APPROVAL:
        case.save(update_fields=["kind", "next_lookup_at"])
        return
    why = _why_parked(locked, case) if need == Need.PARKED else f"policy: {need}"
    _move(locked, case, CaseState.NEEDS_DECISION, need=need, why=why)


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


def _look_now_and_then(locked: LockedOperation, case: Case, contract: Contract) -> None:
    may_look = contract.has_lookup and case.lookups_count < LOOKUPS_BY_ITSELF_MAX
    settled = locked.operation.state != OperationState.SENT_UNKNOWN
    if settled or not may_look:
        case.next_lookup_at = None
    elif case.next_lookup_at is None or case.next_lookup_at > locked.now:
        case.next_lookup_at = locked.now + backoff(case)
    # One that is due and waits for its turn keeps its place.


def _keep_looking(locked: LockedOperation, case: Case, not_before_at: datetime | None) -> None:
    due = locked.now + backoff(case) if case.lookups_count else locked.now
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
    _move(locked, case, CaseState.LOOKING_UP, need="", why="policy: look again")


def backoff(case: Case) -> timedelta:
    """Exponential backoff with full jitter over the lookups made so far, at least a tenth of its ceiling."""
    base: float = settings.RECOURSE_LOOKUP_BASE_SECONDS
    ceiling = min(LOOKUP_CAP_SECONDS, base * 2 ** min(case.lookups_count, 16))
    return timedelta(seconds=ceiling * random.uniform(0.1, 1.0))  # noqa: S311 - jitter, not a secret


def look_again_now(locked: LockedOperation, case: Case) -> None:
    """Let the next lookup be due at once: a person asked."""
    case.next_lookup_at = locked.now
    case.save(update_fields=["next_lookup_at"])
    wake_after_commit("look_up_now", case.pk)


def back_to_looking_up(locked: LockedOperation, case: Case, *, why: str, has_lookup: bool) -> None:
    """retrying → looking_up: the repeat was sent, or its outcome is unknown again.

    The question is a new one: what was looked up before the repeat says nothing about it, so the counting and
    the backoff begin anew.
    """
    case.next_lookup_at = locked.now if has_lookup else None
    case.lookups_count = case.lookups_failed_count = 0
    _move(locked, case, CaseState.LOOKING_UP, need="", why=why)
    wake_after_commit("look_up", case.pk)


def start_retrying(locked: LockedOperation, case: Case, *, actor: Actor, has_lookup: bool) -> None:
    """needs_decision or looking_up → retrying, by a decision. A fresh lookup comes first, if any.

    Fresh means asked after the decision: one that is running now will be evidence and no more.
    """
    case.next_lookup_at = locked.now if has_lookup else None
    case.lookup_claim, case.lookup_claimed_until_at = "", None
    case.lookups_failed_count = 0
    _move(locked, case, CaseState.RETRYING, need="", why="retry with the same key", actor=actor)
    wake_after_commit("look_up_now", case.pk)


def hand_to_person(
    locked: LockedOperation, case: Case, need: Need, *, why: str, actor: Actor = BY_POLICY
) -> None:
    """Ask a person, whatever the policy would still try: what was begun can't be gone on with.

    What a provider shows late still settles by itself: it is looked at now and then, as in every decision
    that is awaited.
    """
    _look_now_and_then(locked, case, account_of(locked.operation.provider_id).contract)
    _move(locked, case, CaseState.NEEDS_DECISION, need=need, why=why, actor=actor)


def await_approval(locked: LockedOperation, case: Case, *, why: str, actor: Actor) -> None:
    """needs_decision or looking_up → awaiting_approval: a second person is asked. It keeps why people are."""
    _look_now_and_then(locked, case, account_of(locked.operation.provider_id).contract)
    _move(locked, case, CaseState.AWAITING_APPROVAL, need=case.need, why=why, actor=actor)


def await_absence(locked: LockedOperation, case: Case, *, why: str, actor: Actor) -> None:
    """awaiting_approval → looking_up: a request to make the effect absent leaves, and its answer is awaited.

    Until then nothing is looked up: what would be seen may be of before it or after.
    """
    case.next_lookup_at = None
    case.lookup_claim, case.lookup_claimed_until_at = "", None
    _move(locked, case, CaseState.LOOKING_UP, need="", why=why, actor=actor)


def back_from_approval(locked: LockedOperation, case: Case, *, why: str, actor: Actor = BY_POLICY) -> None:
    """awaiting_approval → needs_decision: the request ended without being carried out, or was overtaken."""
    need = Need(case.need) if case.need else Need.APPROVAL_ENDED
    hand_to_person(locked, case, need, why=why, actor=actor)


def resolve(locked: LockedOperation, case: Case, resolution: Resolution, *, actor: Actor) -> None:
    """Close the case. Its operation has been settled, or stays as it was (conflicts after the fact)."""
    before = case.state
    _void_approval(locked, case, before, f"The case was resolved as {resolution}.", actor)
    case.state, case.resolution, case.resolved_at = CaseState.RESOLVED, resolution, locked.now
    case.need, case.parked_because, case.next_lookup_at = "", "", None
    case.snoozed_until_at = None
    case.version += 1
    case.save(
        update_fields=[
            *("state", "resolution", "resolved_at", "need", "parked_because"),
            *("next_lookup_at", "version", "kind", "snoozed_until_at"),
        ]
    )
    after = {"from": before, "resolution": str(resolution), "policy": POLICY}
    _append(locked, case, "case.resolved", actor, after, "")


def note_new_evidence(locked: LockedOperation, case: Case, *, looked_up: bool = False) -> None:
    """A new distinct piece of evidence came: whoever is deciding saw less, and who put it off as well.

    What a second person was asked about, or has approved and nobody has sent, is void by it: it was asked on
    other evidence. `looked_up`: a lookup told it, as one does before a retry; what follows from it for a
    retry that is approved is what the policy concludes (`retries.after_lookup`).
    """
    case.version += 1
    case.snoozed_until_at = None
    case.save(update_fields=["version", "snoozed_until_at"])
    why = "New evidence came that wasn’t there when the second person was asked."
    if case.state == CaseState.AWAITING_APPROVAL:
        back_from_approval(locked, case, why=why)
    elif case.state == CaseState.RETRYING and not looked_up and approval_ending.open_of_case(case.pk):
        hand_to_person(locked, case, Need.GRANT_ENDED, why=why)


def _by_policy(actor: Actor) -> str:
    """What the leaf says besides who settled it, where that isn't the policy: the rules that it was by."""
    return "" if actor.kind is ActorKind.POLICY else f"by policy {POLICY}"


def _resolve_if_open(
    locked: LockedOperation, case: Case | None, resolution: Resolution, actor: Actor
) -> None:
    open_one = case or open_case_of(locked)
    if open_one is not None:
        resolve(locked, open_one, resolution, actor=actor)


def _move(
    locked: LockedOperation,
    case: Case,
    state: CaseState,
    *,
    need: str,
    why: str,
    actor: Actor = BY_POLICY,
) -> None:
    before, need_before = case.state, case.need
    case.state, case.need = state, need
    if before == CaseState.RETRYING and state != CaseState.RETRYING:
        # What was granted was granted for what was known then.
        settling.end_grants(locked.operation, GrantState.VOID, locked, why)
        refresh_outcome_pause(locked.locked_run)
    # Into retrying, from an approval, only what was approved leads.
    if state not in (before, CaseState.RETRYING):
        _void_approval(locked, case, before, why, actor)
    if state == CaseState.NEEDS_DECISION:
        case.needs_decision_since_at = case.needs_decision_since_at or locked.now
    case.parked_because = why[:BECAUSE_LENGTH_MAX] if need == Need.PARKED else ""
    changed = (before, need_before) != (state, need)
    if changed:
        case.version += 1
        case.snoozed_until_at = None
    case.save()
    if changed:
        after: dict[str, Any] = {"from": before, "state": str(state), "need": str(need)}
        _append(locked, case, "case.moved", actor, after, why)


def _void_approval(locked: LockedOperation, case: Case, before: str, why: str, actor: Actor) -> None:
    """What a case has moved away from, nobody approves any more, and what was approved isn't sent."""
    if before in (CaseState.AWAITING_APPROVAL, CaseState.RETRYING):
        approval_ending.void_for_case(case_id=case.pk, because=why, actor=actor, now=locked.now)


def _append(
    locked: LockedOperation, case: Case, action: str, actor: Actor, after: dict[str, Any], why: str
) -> None:
    audit.append(
        audit.Event(
            action=action,
            actor=actor,
            team=case.team_id,
            run=case.run_id,
            operation=case.operation_id,
            subject=case.pk,
            after={"version": case.version, **after},
            reason=why,
        )
    )
