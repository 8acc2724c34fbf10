"""What becomes of a report that isn't plainly a receipt that matches: kept first, then judged.

One slow path under the run's lock. Whose word a report is decides what it may move: own sender means the
attempt id with the token that it was minted under, while the lease lives and nothing has been reported. A
report that comes too late moves nothing by itself and is never thrown away (DESIGN law 8).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from django.db import transaction

from reconciliation import arrivals, cases, moves
from reconciliation.evidence import cut_texts
from reconciliation.intake import take_in_operation
from reconciliation.providers.base import ReceiptMatch
from reconciliation.providers.redaction import Redactor
from reconciliation.states import CaseKind
from runs.actors import CONSOLE_SENDER, Actor, ActorKind
from runs.canonical import digest
from runs.journal import settling
from runs.journal.evidence import record_evidence
from runs.journal.replies import first_answer, keep_answer
from runs.locking import LockedOperation, lock_operation
from runs.models import Attempt, Evidence
from runs.refusals import Refusal
from runs.states import (
    OPERATION_SETTLED,
    AttemptOutcome,
    Claim,
    EvidenceKind,
    Executor,
    OperationState,
)


class ReceiptMismatch(Refusal):
    """The receipt doesn't name this operation or doesn't match its payload; it was kept as evidence."""

    word: ClassVar[str] = "receipt_mismatch"


class ReceiptReused(Refusal):
    """The receipt already confirmed another operation; it was kept, and both have a conflict case."""

    word: ClassVar[str] = "receipt_reused"


@dataclass(frozen=True, kw_only=True)
class SeenReply:
    """What the sender saw of the provider's answer, as it says."""

    status: int | None = None
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    error: str = ""
    phase: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "headers": [list(pair) for pair in self.headers],
            "error": self.error,
            "phase": self.phase,
            "body_length": len(self.body),
            "body_sha256": digest(self.body) if self.body else "",
        }


@dataclass(frozen=True, kw_only=True)
class Sender:
    """Who reports: a worker of a team with its token, or the console's own sender (no team, no token)."""

    team: str | None
    token: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a sender says of one attempt, and what its answer really is."""

    sender: Sender
    operation_id: str
    attempt_id: str
    claim: Claim
    seen: SeenReply
    reference: str = ""

    # What an answer that doesn't say so was taken for; the claim is then `unknown`.
    mistaken_for: str = ""
    # The answer proves that the effect exists, although it is no receipt.
    effect_exists: bool = False

    @property
    def digest(self) -> str:
        """Over what the attempt's own sender says, so that the same again gets the first answer."""
        return _digest(self._says())

    @property
    def strangers_digest(self) -> str:
        """The same words from anybody else: they must not be answered, or taken, for the sender's."""
        return _digest({**self._says(), "from": "a stranger"})

    def _says(self) -> dict[str, Any]:
        return {"claim": str(self.claim), "reference": self.reference, "seen": self.seen.as_json()}


def _digest(says: dict[str, Any]) -> str:
    # Only ever compared with itself, and made of texts of ours and of a sender's: any fixed form will do.
    return digest(json.dumps(says, sort_keys=True, separators=(",", ":")).encode())


def receive(report: Report, match: ReceiptMatch | None) -> dict[str, Any]:
    """Keep the report, act on it, and return the API's answer; the first one where it came before.

    Owns its transaction. Raises `ReceiptMismatch` or `ReceiptReused` after keeping the report, `NotFound`.
    """
    with transaction.atomic():
        locked = lock_operation(operation_id=report.operation_id, team=report.sender.team)
        attempt = Attempt.objects.filter(operation=locked.operation, attempt_id=report.attempt_id).first()
        heard = _Heard.of(locked, report, attempt)
        first = first_answer(locked, attempt_id=report.attempt_id, report_digest=heard.digest)
        if first is not None:
            answer, refusal = {**first, "replayed": True}, _kept_refusal(first)
        else:
            answer, refusal = _receive_new(locked, report, match, heard)
    # What was refused is kept all the same: the refusal is raised after its commit.
    if refusal is not None:
        refusal.details.setdefault("case", answer["case"])
        raise refusal
    return answer


def _kept_refusal(answer: dict[str, Any]) -> Refusal | None:
    kept = answer.get("refused")
    if not kept:
        return None
    kind = ReceiptReused if kept["word"] == ReceiptReused.word else ReceiptMismatch
    return kind(kept["sentence"], **kept["details"], replayed=True)


@dataclass(frozen=True, kw_only=True)
class _Heard:
    """Whose word a report is: `genuine` by the attempt's own token; `own` while it may still move states."""

    attempt: Attempt | None
    genuine: bool
    own: bool
    digest: str

    @classmethod
    def of(cls, locked: LockedOperation, report: Report, attempt: Attempt | None) -> _Heard:
        genuine = attempt is not None and _is_genuine(attempt, report.sender)
        return cls(
            attempt=attempt,
            genuine=genuine,
            own=genuine and attempt is not None and _is_own(locked, attempt),
            digest=report.digest if genuine else report.strangers_digest,
        )


def _receive_new(
    locked: LockedOperation, report: Report, match: ReceiptMatch | None, heard: _Heard
) -> tuple[dict[str, Any], Refusal | None]:
    attempt = heard.attempt
    if not heard.own:
        take_in_operation(locked)
    evidence = _keep(locked, report, match, heard)
    if heard.own and attempt is not None:
        refusal = _judge_own(locked, report, match, attempt, evidence)
    else:
        refusal = _judge_outside(locked, report, match, heard, evidence)
    answer = _answer(locked, report, attempt, own=heard.own)
    if refusal is not None:
        answer["refused"] = {
            "word": refusal.word,
            "sentence": refusal.sentence,
            "details": refusal.details,
        }
    keep_answer(locked, attempt_id=report.attempt_id, report_digest=heard.digest, answer=answer)
    return {**answer, "replayed": False}, refusal


def _is_genuine(attempt: Attempt, sender: Sender) -> bool:
    """Whether this comes from who was allowed the attempt: its id with the token it was minted under."""
    if attempt.executor == Executor.CONSOLE:
        return not sender.token and sender.team is None
    return bool(sender.token) and attempt.lease_token == sender.token


def _is_own(locked: LockedOperation, attempt: Attempt) -> bool:
    if attempt.outcome != AttemptOutcome.OPEN:
        return False
    if attempt.executor == Executor.CONSOLE:
        return True
    # The quiet time may have passed under a live lease: the sender is slow, and it is still the sender.
    run = locked.run
    return (
        run.lease_token == attempt.lease_token
        and run.lease_expires_at is not None
        and run.lease_expires_at > locked.now
    )


def _reporter(report: Report, heard: _Heard) -> Actor:
    if report.sender.team is None:
        return CONSOLE_SENDER
    if heard.genuine and heard.attempt is not None and heard.attempt.worker:
        return Actor(ActorKind.WORKER, heard.attempt.worker)
    return Actor(ActorKind.TOKEN, "unknown-sender")


def _keep(locked: LockedOperation, report: Report, match: ReceiptMatch | None, heard: _Heard) -> Evidence:
    if heard.own:
        kind = EvidenceKind.REPORT
    elif heard.attempt is None:
        kind = EvidenceKind.STRAY_REPORT
    else:
        kind = EvidenceKind.LATE_REPORT
    redactor = Redactor()
    seen = cut_texts(report.seen.as_json())
    seen["headers"] = [list(pair) for pair in redactor.headers(report.seen.headers)]
    seen["attempt_id"] = report.attempt_id
    if report.effect_exists:
        seen["effect_exists"] = True
    if match is not None:
        seen["match"] = {
            # A stranger's report answers no attempt of theirs: only its own key or reference names it.
            "matches": match.matches and (heard.genuine or match.matched_by != "reply_only"),
            "problems": list(match.problems),
            "receipt": match.receipt.as_json(),
        }
    return record_evidence(
        locked,
        kind=kind,
        claim=report.claim,
        summary=_summary(report, match, heard),
        actor=_reporter(report, heard),
        # What a stranger says of an attempt is no word of its sender's, and proves nothing of it.
        attempt=heard.attempt if heard.genuine else None,
        reference=report.reference,
        seen=seen,
        body=report.seen.body,
        says_digest=heard.digest,
    )


def _summary(report: Report, match: ReceiptMatch | None, heard: _Heard) -> str:
    if heard.own:
        who = "The sender reported"
    elif heard.genuine:
        who = "A sender that had lost its lease reported"
    elif heard.attempt is not None:
        who = "Somebody with another token than the sender's reported"
    else:
        who = "Somebody who never asked for this attempt reported"
    match report.claim:
        case Claim.RECEIPT if match is not None and match.matches:
            what = f"receipt {report.reference}, which matches"
        case Claim.RECEIPT:
            what = f"receipt {report.reference}, which doesn't match"
        case Claim.REJECTION:
            what = f"a refusal (status {report.seen.status})"
        case Claim.UNKNOWN if report.mistaken_for:
            what = (
                f"{report.mistaken_for}, but the answer (status {report.seen.status})"
                " doesn't say that nothing happened"
            )
        case Claim.NOT_SENT:
            what = "that the request never left"
        case _:
            what = f"an unknown outcome ({report.seen.error or report.seen.status or 'no reply'})"
    return f"{who} {what}."


_OUTCOMES = {
    Claim.RECEIPT: AttemptOutcome.RECEIPT,
    Claim.REJECTION: AttemptOutcome.REJECTED,
    Claim.NOT_SENT: AttemptOutcome.NOT_SENT,
    Claim.UNKNOWN: AttemptOutcome.UNKNOWN,
}


def _judge_own(
    locked: LockedOperation,
    report: Report,
    match: ReceiptMatch | None,
    attempt: Attempt,
    evidence: Evidence,
) -> Refusal | None:
    mismatch = match is not None and not match.matches
    outcome = AttemptOutcome.UNKNOWN if mismatch else _OUTCOMES[report.claim]
    settling.end_attempt(locked, attempt, outcome=outcome, report_digest=report.digest)
    reporter = Actor(ActorKind.WORKER, attempt.worker) if report.sender.token else CONSOLE_SENDER
    if locked.operation.state in OPERATION_SETTLED:
        return _after_settled(locked, report, match, evidence)
    refusal = _refuse_reused(locked, report, match, evidence)
    if refusal is not None:
        return refusal
    if cases.settle_now(locked, actor=reporter):
        return None
    arrivals.open_and_judge(locked, kind=CaseKind.UNKNOWN, because=evidence.summary)
    if match is not None and mismatch:
        return _mismatch_refusal(locked, match)
    return None


def _judge_outside(
    locked: LockedOperation,
    report: Report,
    match: ReceiptMatch | None,
    heard: _Heard,
    evidence: Evidence,
) -> Refusal | None:
    """Late and stray reports: evidence, from which the policy may conclude at once."""
    operation = locked.operation
    success = report.claim == Claim.RECEIPT or report.effect_exists
    if operation.state in OPERATION_SETTLED:
        return _after_settled(locked, report, match, evidence) if success else None
    if operation.state == OperationState.READY:
        if success:
            settling.mark_sent_by_unknown(locked, actor=_reporter(report, heard), evidence=evidence)
            because = "An effect was reported for an operation that was not sent."
            arrivals.open_and_judge(locked, kind=CaseKind.CONFLICT, because=because)
        return None
    refusal = _refuse_reused(locked, report, match, evidence)
    if refusal is not None:
        return refusal
    if success and heard.attempt is None:
        arrivals.open_and_judge(locked, kind=CaseKind.CONFLICT, because=evidence.summary)
        return None
    arrivals.judge_by_evidence(locked)
    return None


def _after_settled(
    locked: LockedOperation, report: Report, match: ReceiptMatch | None, evidence: Evidence
) -> Refusal | None:
    """Success for a settled operation: the same receipt again is nothing new, anything else a conflict."""
    if report.claim != Claim.RECEIPT and not report.effect_exists:
        return None
    if report.claim != Claim.RECEIPT:
        _exists_after_settled(locked)
        return None
    reused = arrivals.receipt_after_settled(
        locked, match=match, reference=report.reference, evidence=evidence
    )
    return _reused_refusal(reused)


def _exists_after_settled(locked: LockedOperation) -> None:
    """An answer that proves the effect: nothing new of a confirmed operation, a conflict with the others."""
    if locked.operation.state != OperationState.CONFIRMED:
        state = locked.operation.state
        because = f"An answer proves an effect of an operation that is {state}."
        arrivals.open_and_judge(locked, kind=CaseKind.CONFLICT, because=because)


def _refuse_reused(
    locked: LockedOperation, report: Report, match: ReceiptMatch | None, evidence: Evidence
) -> ReceiptReused | None:
    reused = arrivals.refuse_reused(locked, match=match, reference=report.reference, evidence=evidence)
    return _reused_refusal(reused)


def _reused_refusal(reused: settling.ReceiptReused | None) -> ReceiptReused | None:
    return None if reused is None else ReceiptReused(reused.sentence, **reused.details)


def _mismatch_refusal(locked: LockedOperation, match: ReceiptMatch) -> ReceiptMismatch:
    return ReceiptMismatch(
        "This receipt doesn't confirm the operation: " + " ".join(match.problems),
        operation=locked.operation.pk,
        problems=list(match.problems),
    )


def _answer(locked: LockedOperation, report: Report, attempt: Attempt | None, *, own: bool) -> dict[str, Any]:
    operation = locked.operation
    case = moves.open_case_of(locked)
    goes_on = operation.state in OPERATION_SETTLED or operation.state == OperationState.READY
    if attempt is not None:
        attempt.refresh_from_db(fields=["outcome"])
    return {
        "operation": {"id": operation.pk, "state": str(operation.state)},
        "attempt": {
            "attempt_id": report.attempt_id,
            "number": attempt.number if attempt else None,
            "outcome": str(attempt.outcome) if attempt else None,
        },
        "next": "continue" if goes_on and own else "stop",
        "case": case.pk if case else None,
        "recorded_as_evidence": not own,
    }
