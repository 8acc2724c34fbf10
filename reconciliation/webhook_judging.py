"""What a signed notice says of the operation that it names, and what follows from it.

It is held to the rules of every other evidence: it must carry our key or reference and equal the payload, it
confirms nothing on a difference, and it never rewrites what is settled.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import structlog
from django.db import OperationalError, transaction

from reconciliation import arrivals, cases, moves
from reconciliation.contracts import Contract
from reconciliation.intake import take_in_operation
from reconciliation.providers import registry
from reconciliation.providers.base import Exchange, Finding, FindingKind, MatchedBy, ReceiptMatch
from reconciliation.providers.conclusions import judge_ours
from reconciliation.providers.matching import Subject, read_record
from reconciliation.providers.webhook_signing import Signed
from reconciliation.providers.webhook_table import EventRule, WebhookRules
from reconciliation.states import CaseKind, Need
from runs.actors import Actor, ActorKind
from runs.canonical import canonicalise
from runs.journal import settling
from runs.journal.evidence import record_evidence
from runs.locking import LockedOperation, lock_operation
from runs.models import Attempt, Evidence, Operation, Receipt
from runs.states import OPERATION_SETTLED, AttemptOutcome, Claim, EvidenceKind, OperationState

log = structlog.get_logger(__name__)

WEBHOOK_ACTOR = Actor(ActorKind.SYSTEM, "webhook")
_SHOWS_AN_EFFECT = (FindingKind.FOUND, FindingKind.MISMATCH, FindingKind.PENDING)


@dataclass(frozen=True, kw_only=True)
class SignedNotice:
    """A signed notice as read; `document` is `MISSING` where its body isn't strict JSON."""

    account: str
    rules: WebhookRules
    signed: Signed
    id: str
    type: str
    document: Any
    digest: str
    length: int

    @property
    def shown(self) -> str:
        return f"notice {self.id[:100]} ({self.type or 'no type'})"


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What a notice's record says of the operation that it names; no finding if it is another's record."""

    finding: Finding | None
    match: ReceiptMatch
    summary: str


def judge_record(
    event: SignedNotice,
    rule: EventRule,
    contract: Contract,
    record: dict[str, Any],
    operation: Operation,
    named_by: MatchedBy,
) -> Judged | None:
    """Hold the record against the operation; None if it has no usable id."""
    subject = Subject(
        operation_id=operation.pk,
        key=operation.key,
        tool=operation.tool,
        payload=json.loads(bytes(operation.payload)),
        amount=operation.amount,
    )
    reading = read_record(
        record,
        contract=contract,
        subject=subject,
        named_by_reply=False,
        redactor=registry.redactor(event.account),
    )
    if reading is None:
        return None
    receipt = reading.receipt
    if reading.foreign:
        summary = f"A {event.shown} names this operation, but its record {receipt.reference} is another's."
        return Judged(finding=None, match=ReceiptMatch(receipt=receipt, problems=(summary,)), summary=summary)
    if rule.state is not None:
        receipt = replace(receipt, state=rule.state, status=event.type)
    # The notice itself may carry our name where its record doesn't: the signature covers both.
    receipt = replace(receipt, matched_by=receipt.matched_by or named_by)
    finding = judge_ours((receipt,), Exchange(method="POST", url=""), incomplete=False)
    summary = f"By its {event.shown}: {finding.summary}"
    problems = () if finding.kind is FindingKind.FOUND else (finding.summary,)
    return Judged(finding=finding, match=ReceiptMatch(receipt=receipt, problems=problems), summary=summary)


def act_on(locked: LockedOperation, event: SignedNotice, seen: Judged) -> Evidence:
    """Keep the evidence and let follow what follows. Needs the lock, and its transaction.

    What follows may fail, and then a person is asked: the evidence stays whatever comes of it.
    """
    take_in_operation(locked)
    says = _says(seen)
    known = Evidence.objects.filter(operation=locked.operation, digest=says).exists()
    evidence = _keep_evidence(locked, event, seen, says)
    if seen.finding is None:
        return evidence
    try:
        with transaction.atomic():
            _conclude(locked, seen, seen.finding.kind, evidence, known=known)
    except OperationalError:
        # A deadlock, or a connection that is gone: nothing is kept, and the provider delivers it again.
        raise
    except Exception:
        log.exception("webhook_not_acted_on", operation=locked.operation.pk, finding=seen.finding.kind.value)
        _leave_to_person(lock_operation(operation_id=locked.operation.pk, team=None))
    return evidence


def _leave_to_person(locked: LockedOperation) -> None:
    if locked.operation.state == OperationState.SENT_UNKNOWN:
        case = cases.open_case(locked, kind=CaseKind.UNKNOWN, because="Acting on a notice failed.")
        moves.hand_to_person(locked, case, Need.PARKED, why="acting on a notice failed")


def _says(seen: Judged) -> str:
    kind = "another's" if seen.finding is None else seen.finding.kind.value
    facts = json.loads(json.dumps(seen.match.receipt.facts()))
    return canonicalise({"kind": str(EvidenceKind.WEBHOOK), "finding": kind, "receipt": facts}).digest


def _keep_evidence(locked: LockedOperation, event: SignedNotice, seen: Judged, says: str) -> Evidence:
    receipt = seen.match.receipt
    claim = _claim(seen.finding)
    return record_evidence(
        locked,
        kind=EvidenceKind.WEBHOOK,
        claim=claim,
        summary=seen.summary,
        actor=WEBHOOK_ACTOR,
        attempt=_only_attempt(locked.operation) if claim == Claim.REJECTION else None,
        reference=receipt.reference,
        seen={
            "webhook": {
                "id": event.id,
                "type": event.type,
                "scheme": str(event.rules.scheme),
                "signed_at": None if event.signed.signed_at is None else event.signed.signed_at.isoformat(),
                "body_length": event.length,
                "body_sha256": event.digest,
            },
            "match": {
                "matches": seen.match.matches,
                "problems": list(seen.match.problems),
                "receipt": receipt.as_json(),
            },
        },
        body=json.dumps(dict(receipt.body), ensure_ascii=False, sort_keys=True).encode(errors="replace"),
        says_digest=says,
    )


def _claim(finding: Finding | None) -> Claim:
    if finding is None:
        return Claim.UNKNOWN
    # What differs, or isn't final, is word of an effect too; the match says that it proves nothing.
    return Claim.REJECTION if finding.kind is FindingKind.REFUSED else Claim.RECEIPT


def _only_attempt(operation: Operation) -> Attempt | None:
    """The one attempt that can have had an effect: a record that ended without one speaks for it.

    Of several nobody can say which one made the record.
    """
    attempts = list(Attempt.objects.filter(operation=operation).exclude(outcome=AttemptOutcome.NOT_SENT)[:2])
    return attempts[0] if len(attempts) == 1 else None


def _conclude(
    locked: LockedOperation, seen: Judged, kind: FindingKind, evidence: Evidence, *, known: bool
) -> None:
    operation, match = locked.operation, seen.match
    reference = match.receipt.reference
    if operation.state in OPERATION_SETTLED:
        _after_settled(locked, match, kind, evidence)
    elif operation.state == OperationState.READY:
        if kind in _SHOWS_AN_EFFECT:
            settling.mark_sent_by_unknown(locked, actor=WEBHOOK_ACTOR, evidence=evidence)
            because = f"The provider shows {reference} of an operation that was not sent."
            arrivals.open_and_judge(locked, kind=CaseKind.CONFLICT, because=because)
    elif arrivals.refuse_reused(locked, match=match, reference=reference, evidence=evidence) is None:
        arrivals.judge_by_evidence(locked, known=known)
        _ask_the_rest(locked, kind, evidence)


def _after_settled(
    locked: LockedOperation, match: ReceiptMatch, kind: FindingKind, evidence: Evidence
) -> None:
    reference = match.receipt.reference
    match kind:
        case FindingKind.FOUND | FindingKind.MISMATCH:
            arrivals.receipt_after_settled(locked, match=match, reference=reference, evidence=evidence)
        case FindingKind.REFUSED:
            confirmed = Receipt.objects.filter(operation=locked.operation, reference=reference)
            if confirmed.exists():
                because = f"The provider says that {reference}, which confirmed it, ended without effect."
                arrivals.open_and_judge(locked, kind=CaseKind.CONFLICT, because=because)
        case _:
            # Notices overtake each other: "not final" may be older than what settled it.
            return


def _ask_the_rest(locked: LockedOperation, kind: FindingKind, evidence: Evidence) -> None:
    """Where the notice didn't settle it: a difference is a person's at once, the rest is worth a look."""
    if locked.operation.state != OperationState.SENT_UNKNOWN:
        return
    case = moves.open_case_of(locked)
    if case is None:
        if kind is FindingKind.MISMATCH:
            arrivals.open_and_judge(locked, kind=CaseKind.UNKNOWN, because=evidence.summary)
        return
    if kind in (FindingKind.REFUSED, FindingKind.PENDING) and case.next_lookup_at is not None:
        moves.look_again_now(locked, case)
