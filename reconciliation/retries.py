"""Retries with the same key: the fresh lookup that comes first, the grant, and the console's own sending."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta

import structlog
from django.db import transaction
from django.db.models import QuerySet
from structlog.contextvars import bound_contextvars

from reconciliation import approval_ending, approving, effective, fencing, moves, place
from reconciliation.approval_kinds import content_of
from reconciliation.approval_models import ApprovalRequest, ApprovalState
from reconciliation.contracts import AccountPin
from reconciliation.gathering import Judged, judge_now
from reconciliation.models import Case, Decision, Lookup
from reconciliation.policy import assess
from reconciliation.providers import registry
from reconciliation.providers.base import (
    Exchange,
    FindingKind,
    NotSentSeen,
    OutgoingOperation,
    Phase,
    ReceiptMatch,
    ReceiptSeen,
    RejectedSeen,
    SendOutcome,
    UnknownSeen,
    elapsed_seconds,
)
from reconciliation.questions import key_protection, silent_at
from reconciliation.states import Action, CaseState, Need, Permission, Truth
from reconciliation.waking import wake_after_commit
from runs.actors import CONSOLE_SENDER, Actor, ActorKind
from runs.journal import sending
from runs.journal.grants import end_grant, make_grant
from runs.journal.sending import Go, GrantOutdated, begin_repeat_by_console
from runs.leases import RunPaused, StaleToken
from runs.locking import LockedOperation, lock_operation
from runs.models import Grant, Operation
from runs.refusals import Refusal
from runs.states import Executor, GrantState

log = structlog.get_logger(__name__)

# How long a granted repeat may wait for its executor. Long enough for a worker to be restarted, short
# enough that the fresh lookup before it still says something.
GRANT_LIFETIME = timedelta(minutes=15)
# The fresh lookup itself may fail; after so many failures a person is asked again instead.
FRESH_LOOKUP_FAILURES_MAX = 3
GRANTER = Actor(ActorKind.SYSTEM, "retry")


def pending_retry(case: Case) -> Decision | None:
    """The retry decision that waits for its fresh lookup and has no grant yet."""
    if case.state != CaseState.RETRYING:
        return None
    return pending_of(case, retries_of(case).first())


def retries_of(case: Case) -> QuerySet[Decision]:
    """The case's latest decision to retry."""
    return Decision.objects.filter(case=case, action=Action.RETRY).order_by("-made_at", "-id")[:1]


def pending_of(case: Case, latest: Decision | None) -> Decision | None:
    """As `pending_retry`, of the row of `retries_of`."""
    waits = case.state == CaseState.RETRYING and latest is not None and latest.grant_id is None
    return latest if waits else None


def after_lookup(locked: LockedOperation, case: Case, lookup: Lookup, *, known: bool) -> None:
    """Go on with a retry decision after its fresh lookup: grant it, unless the effect turned out to exist.

    Found has confirmed already and left nothing to send. A lookup that told nothing is made again a few
    times and then handed back to people, for the promise was that a fresh look comes first. `known`: the
    person who decided had this finding before them.
    """
    decision = pending_retry(case)
    if decision is None:
        return
    if lookup.finding in (FindingKind.UNAVAILABLE, FindingKind.INCONCLUSIVE):
        if case.lookups_failed_count >= FRESH_LOOKUP_FAILURES_MAX:
            moves.hand_to_person(locked, case, Need.PARKED, why="the fresh lookup before a retry failed")
        else:
            case.next_lookup_at = locked.now + moves.backoff(case)
            case.save(update_fields=["next_lookup_at"])
        return
    if lookup.finding == FindingKind.CANDIDATE and not known:
        moves.hand_to_person(locked, case, Need.CANDIDATE, why="the fresh lookup showed something alike")
        return
    judged = judge_now(run=locked.run, operation=locked.operation, case=case, now=locked.now)
    grant_retry(locked, case, decision, judged)


def grant_retry(locked: LockedOperation, case: Case, decision: Decision, judged: Judged) -> Grant | None:
    """Make the single-use grant of a retry decision, if the policy still allows it; else ask a person."""
    facts, contract = judged.facts, judged.contract
    approval = decision.approval
    why = _why_not_granted(locked, judged, approval)
    if why:
        moves.hand_to_person(locked, case, _need_now(judged), why=why)
        return None
    not_before = max(locked.now, silent_at(facts) or locked.now)
    not_after = not_before + GRANT_LIFETIME
    starts_by = contract.repeat_starts_by(facts.first_sent_at) if facts.first_sent_at else None
    if approval is not None:
        not_after = min(not_after, approval.expires_at)
    elif starts_by is not None:
        not_after = min(not_after, starts_by)
    if not_after <= not_before:
        moves.hand_to_person(locked, case, Need.GRANT_ENDED, why="the key's window has closed")
        return None
    grant = make_grant(
        locked,
        executor=Executor(decision.executor),
        not_before_at=not_before,
        not_after_at=not_after,
        actor=Actor(ActorKind(decision.actor_kind), decision.actor, decision.actor_role),
        reason=decision.reason,
        approval_digest=approval.content_digest if approval is not None else "",
    )
    Decision.objects.filter(pk=decision.pk, grant__isnull=True).update(grant=grant)
    case.next_lookup_at = None
    case.save(update_fields=["next_lookup_at"])
    if grant.executor == Executor.CONSOLE:
        wake_after_commit("send_granted", grant.pk)
    return grant


def _why_not_granted(locked: LockedOperation, judged: Judged, approval: ApprovalRequest | None) -> str:
    """Why the retry may not be granted now: the same question as when it was decided; "" if it may."""
    if approval is not None:
        why = approving.still_stands(approval)
        if why:
            return why
    undecided = replace(judged.facts, case_state=CaseState.NEEDS_DECISION, grant_open="", grant_ends_at=None)
    status = assess(undecided, judged.contract, locked.now).action(Action.RETRY)
    if status is None:
        return "the operation is settled"
    enough = Permission.ALLOWED if approval is None else Permission.SECOND_PERSON
    # What two people may do is also what one may.
    return "" if status.permission in (Permission.ALLOWED, enough) else status.sentence


def _need_now(judged: Judged) -> Need:
    finding = judged.facts.lookup.finding if judged.facts.lookup else None
    needs = {
        FindingKind.PENDING: Need.PENDING,
        FindingKind.CANDIDATE: Need.CANDIDATE,
        FindingKind.MISMATCH: Need.MISMATCH,
        FindingKind.SEVERAL: Need.SEVERAL,
        FindingKind.REFUSED: Need.REFUSED,
    }
    return needs.get(finding, Need.GRANT_ENDED) if finding else Need.GRANT_ENDED


def why_outdated(locked: LockedOperation, grant: Grant) -> str:
    """Why a grant that was given because the key protects may not be used now; "" if it may.

    Between the grant and its use the account may have been tightened, or its credential, endpoint or file
    changed: the key then protects nothing (DESIGN law 5), and a repeat takes a second person.
    """
    return _why_outdated(locked, grant, _judged_without_case(locked))


def _judged_without_case(locked: LockedOperation) -> Judged:
    return judge_now(run=locked.run, operation=locked.operation, case=None, now=locked.now)


def _why_outdated(locked: LockedOperation, grant: Grant, judged: Judged) -> str:
    facts, contract = judged.facts, judged.contract
    if grant.executor == Executor.CONSOLE and not judged.account.console_can_send:
        return f"the console doesn't send for {judged.account.title} now."
    if grant.approval_digest:
        return _why_approval_outdated(locked, grant, judged)
    key, sentence, _ = key_protection(facts, contract, locked.now)
    if key is not Truth.YES:
        return sentence
    starts_by = contract.repeat_starts_by(facts.first_sent_at) if facts.first_sent_at else None
    late = starts_by is None or locked.now > starts_by
    return "too little of the key's window is left for a request to arrive in time." if late else ""


def _why_approval_outdated(locked: LockedOperation, grant: Grant, judged: Judged) -> str:
    """Why what two people permitted may not be sent now: whoever approved may not any more, or it changed."""
    approval = ApprovalRequest.objects.filter(decision__grant=grant).first()
    if approval is None or approval.content_digest != grant.approval_digest:
        return "no approval of this content is on record."
    why = _why_not_granted(locked, judged, approval)
    if why:
        return why
    agreed = content_of(approval)["facts"]
    pin = judged.account.pin
    now = (pin.adapter, pin.endpoint, pin.region, pin.credential_fingerprint)
    if now != tuple(agreed[name] for name in ("account_version", "endpoint", "region", "credential")):
        return "the provider account isn’t the one that was approved."
    return ""


def note_used(locked: LockedOperation, grant: Grant) -> None:
    """A grant was consumed: what two people permitted is carried out with it, once."""
    if not grant.approval_digest:
        return
    approval = ApprovalRequest.objects.select_for_update().get(decision__grant=grant)
    # By whoever sends it now: two people permitted it, and one worker or the console's own sender does it.
    by_agent = grant.executor == Executor.AGENT
    sender = Actor(ActorKind.WORKER, locked.run.lease_holder) if by_agent else CONSOLE_SENDER
    approval_ending.end(approval, ApprovalState.CARRIED_OUT, actor=sender, now=locked.now)


def begin_send(*, team: str | None, operation_id: str, token: str, attempt_id: str) -> Go:
    """The journal's `begin_send` for workers; a grant that doesn't hold any more goes back to people."""
    try:
        return sending.begin_send(
            team=team,
            operation_id=operation_id,
            token=token,
            attempt_id=attempt_id,
            why_outdated=why_outdated,
            note_used=note_used,
        )
    except GrantOutdated as refusal:
        _take_back(operation_id, refusal.sentence)
        raise
    except (StaleToken, RunPaused) as refusal:
        forgotten = place.notice_token(operation_id=operation_id, token=token)
        if isinstance(refusal, StaleToken) and not forgotten:
            fencing.note_refused_send(operation_id=operation_id, token=token)
        raise


def _take_back(operation_id: str, why: str) -> None:
    with transaction.atomic():
        locked = lock_operation(operation_id=operation_id, team=None)
        grant = Grant.objects.filter(operation=locked.operation, state=GrantState.OPEN).first()
        case = moves.open_case_of(locked)
        # Somebody may have decided anew meanwhile.
        if case is not None and grant is not None and why_outdated(locked, grant):
            moves.hand_to_person(locked, case, Need.GRANT_ENDED, why=why)


def send_granted(*, grant_id: str) -> str:
    """Carry out a granted repeat from the console; returns the sending outcome, or "" if it wasn't ours.

    The attempt id follows from the grant, so two tasks for one grant ask for the same attempt: the second
    finds it taken and starts nothing.
    """
    asked_at = elapsed_seconds()
    stands_on: list[AccountPin] = []

    def standing(locked: LockedOperation, grant: Grant) -> str:
        judged = _judged_without_case(locked)
        stands_on.append(judged.account.pin)
        return _why_outdated(locked, grant, judged)

    try:
        go = begin_repeat_by_console(
            grant_id=grant_id,
            attempt_id=f"console-{grant_id}",
            why_outdated=standing,
            note_used=note_used,
        )
    except Refusal as refusal:
        if isinstance(refusal, GrantOutdated):
            _take_back(Grant.objects.get(pk=grant_id).operation_id, refusal.sentence)
        log.info("granted_send_refused", grant=grant_id, word=refusal.word, sentence=refusal.sentence)
        return ""
    if go.replayed:
        # Another task minted this attempt and may be sending it right now.
        return ""
    with bound_contextvars(operation=go.operation_id, grant=grant_id, account=go.provider):
        outcome = _send(go, asked_at, stands_on[-1])
        log.info("granted_sent", outcome=outcome.kind.value)
        try:
            _report(go, outcome)
        except Refusal as refusal:
            # Kept as evidence before it was refused, with its case.
            log.info("granted_send_not_confirmed", word=refusal.word, sentence=refusal.sentence)
    return outcome.kind.value


def _send(go: Go, asked_at: float, stands_on: AccountPin) -> SendOutcome:
    """Send through the account that the grant was judged by, and through no other.

    An account that is declared in the console can be declared anew in this very moment. At another address,
    or with another credential, the key protects nothing (DESIGN law 5), and nobody was asked about that.
    """
    try:
        adapter = effective.adapter(go.provider)
    except registry.UnknownProvider:
        return _not_started("Its account is no longer declared, so nothing was sent.", "NotDeclared")
    if adapter.account.pin != stands_on:
        return _not_started(
            "Its account was declared anew after the retry was granted, so nothing was sent.", "DeclaredAnew"
        )
    return adapter.send(_outgoing(go, asked_at))


def _not_started(summary: str, error_class: str) -> NotSentSeen:
    exchange = Exchange(method="", url="", error_class=error_class, error=summary, phase=Phase.NOT_STARTED)
    return NotSentSeen(exchange=exchange, summary=summary)


def _outgoing(go: Go, asked_at: float) -> OutgoingOperation:
    operation = Operation.objects.get(pk=go.operation_id)
    return OutgoingOperation(
        operation_id=go.operation_id,
        idempotency_key=go.idempotency_key,
        tool=operation.tool,
        payload_bytes=go.payload,
        payload=json.loads(go.payload),
        amount=operation.amount,
        attempt_id=go.attempt_id,
        attempt_number=go.number,
        start_by=asked_at + go.start_within_ms / 1000,
        request_within_ms=go.request_within_ms,
    )


def _report(go: Go, outcome: SendOutcome) -> None:
    from reconciliation import reports

    exchange = outcome.exchange
    seen = reports.SeenReply(
        status=exchange.status,
        headers=exchange.response_headers,
        body=exchange.body.encode(),
        error=f"{exchange.error_class} {exchange.error}".strip(),
        phase=exchange.phase.value,
    )
    sender = reports.Sender(team=None, token="")
    match outcome:
        case ReceiptSeen(receipt=receipt):
            reports.report_receipt(
                sender=sender,
                operation_id=go.operation_id,
                attempt_id=go.attempt_id,
                reference=receipt.reference,
                seen=seen,
                # Compared by the adapter as it came; what is kept of it may have secrets taken out.
                match=ReceiptMatch(receipt=receipt),
            )
        case RejectedSeen():
            reports.report_rejection(
                sender=sender, operation_id=go.operation_id, attempt_id=go.attempt_id, seen=seen
            )
        case NotSentSeen():
            reports.report_not_sent(
                sender=sender, operation_id=go.operation_id, attempt_id=go.attempt_id, seen=seen
            )
        case UnknownSeen():
            reports.report_unknown(
                sender=sender, operation_id=go.operation_id, attempt_id=go.attempt_id, seen=seen
            )


def expire_grant(*, grant_id: str, now: datetime | None = None) -> bool:
    """End a grant that is unused after its time and ask people again. True if it was still open."""
    grant = Grant.objects.get(pk=grant_id)
    with transaction.atomic():
        locked = lock_operation(operation_id=grant.operation_id, team=None)
        grant = Grant.objects.select_for_update().get(pk=grant_id)
        if grant.state != GrantState.OPEN or grant.not_after_at >= (now or locked.now):
            return False
        ended = end_grant(
            locked, grant, state=GrantState.EXPIRED, actor=GRANTER, why="unused until its time ended"
        )
        case = moves.open_case_of(locked)
        if ended and case is not None:
            moves.hand_to_person(locked, case, Need.GRANT_ENDED, why="the granted retry was not used")
        return ended


def withdraw_grant(*, case_id: str, team: str | None, actor: Actor, reason: str) -> bool:
    """Take a granted retry back before it is consumed. True if it was still open. Raises `NotFound`."""
    from reconciliation.decisions import find_case

    found = find_case(case_id=case_id, team=team)
    with transaction.atomic():
        locked = lock_operation(operation_id=found.operation_id, team=team)
        case = Case.objects.select_for_update().get(pk=case_id)
        grant = Grant.objects.filter(operation=locked.operation, state=GrantState.OPEN).first()
        if grant is not None:
            end_grant(locked, grant, state=GrantState.VOID, actor=actor, why=f"withdrawn: {reason}")
        elif pending_retry(case) is None:
            return False
        if case.state == CaseState.RETRYING:
            why = f"the retry was withdrawn: {reason}"
            moves.hand_to_person(locked, case, Need.GRANT_ENDED, why=why, actor=actor)
        return True
