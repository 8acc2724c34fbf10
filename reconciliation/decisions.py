"""Decisions: the only write door for people. Confirm, retry with the same key, abandon; for conflicts after
the fact, accept or compensate.

A decision names the case version and the digest of the evidence that the person saw. Under the lock the
policy is asked again; if anything moved, the decision is refused with what changed, and nothing is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from django.db import IntegrityError, transaction

from reconciliation import cases, retries
from reconciliation.accounts import is_declared, not_comparable
from reconciliation.choosing import chosen_receipt, why_not_chosen
from reconciliation.facts import SeenReceipt
from reconciliation.gathering import Judged, judge_now
from reconciliation.models import Case, Decision
from reconciliation.permissions import ActionStatus
from reconciliation.policy import POLICY
from reconciliation.providers.base import ReceiptMatch
from reconciliation.providers.matching import match_receipt
from reconciliation.states import Action, CaseState, Permission, ReasonCode, Resolution, Then
from runs import audit
from runs.actors import Actor, ActorKind
from runs.canonical import canonicalise, digest, parse
from runs.ids import new_id
from runs.journal import settling
from runs.journal.ending import abandon_locked_run
from runs.journal.evidence import record_evidence
from runs.locking import LockedOperation, lock_operation
from runs.models import Evidence, Operation
from runs.refusals import Invalid, NotFound, Refusal
from runs.states import RUN_ENDED, Claim, EvidenceKind, Executor

# A reason that an auditor can use has a few words in it; longer than this is an attachment.
REASON_LENGTH_MIN = 10
REASON_LENGTH_MAX = 4000
KEY_LENGTH_MAX = 100


class DecisionStale(Refusal):
    """The case or its evidence moved since the person looked; details say what, and by whom."""

    word: ClassVar[str] = "decision_stale"


class ActionLocked(Refusal):
    """The policy doesn't allow this action now, or not to one person; details say why and until when."""

    word: ClassVar[str] = "action_locked"


class KeyReused(Refusal):
    """This Idempotency-Key was used by the same person for another decision."""

    word: ClassVar[str] = "idempotency_key_reused"


class Forbidden(Refusal):
    """This actor may not decide."""

    word: ClassVar[str] = "forbidden"


@dataclass(frozen=True, kw_only=True)
class GivenReceipt:
    """The receipt that a person confirms with: one that is on record, or the provider's record in full."""

    evidence_id: str = ""
    reference: str = ""
    body: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a person asks for, and what they saw when they asked."""

    action: Action
    seen_version: int
    evidence_digest: str
    reason_code: str
    reason: str
    idempotency_key: str
    executor: str = ""
    then: str = ""
    receipt: GivenReceipt | None = None

    def content_digest(self, case_id: str) -> str:
        receipt = self.receipt or GivenReceipt()
        return canonicalise(
            {
                "case": case_id,
                "action": str(self.action),
                "seen_version": self.seen_version,
                "evidence_digest": self.evidence_digest,
                "reason_code": self.reason_code,
                "reason": self.reason,
                "executor": self.executor,
                "then": self.then,
                "receipt": [receipt.evidence_id, receipt.reference, digest(receipt.body)],
            }
        ).digest


@dataclass(frozen=True)
class Decided:
    answer: dict[str, Any]
    replayed: bool


def find_case(*, case_id: str, team: str | None) -> Case:
    """Return a case of the team without a lock; raises `NotFound`, also for another team's."""
    rows = Case.objects.filter(pk=case_id)
    if team is not None:
        rows = rows.filter(team=team)
    case = rows.first()
    if case is None:
        raise NotFound(f"There is no case {case_id} that you can see.", case=case_id)
    return case


def decide(*, case_id: str, team: str | None, actor: Actor, asked: Asked, actor_name: str = "") -> Decided:
    """Decide an open case, or refuse having changed nothing. Owns its transaction.

    Refuses in this order (API.md): `KeyReused`, `NotFound`, `Forbidden`, `Invalid`, `DecisionStale`,
    `ActionLocked`. The same content under the same key returns the first answer, `replayed`.
    """
    content = asked.content_digest(case_id)
    with transaction.atomic():
        again = Decision.objects.filter(actor=actor.id, idempotency_key=asked.idempotency_key).first()
        if again is not None:
            return _decide_again(again, content)
        found = find_case(case_id=case_id, team=team)
        if actor.kind is not ActorKind.PERSON:
            raise Forbidden("Only a person decides a case.", actor=str(actor.kind))
        check_words(asked)
        locked = lock_operation(operation_id=found.operation_id, team=team)
        case = Case.objects.select_for_update().get(pk=case_id)
        # The same request may have been answered while we waited for the lock.
        again = Decision.objects.filter(actor=actor.id, idempotency_key=asked.idempotency_key).first()
        if again is not None:
            return _decide_again(again, content)
        judged = judge_now(run=locked.run, operation=locked.operation, case=case, now=locked.now)
        refuse_stale(case, judged, asked)
        status = judged.assessment.action(asked.action)
        if status is None or status.permission is Permission.LOCKED:
            raise locked_refusal(asked.action, status)
        decision = _record(locked, case, actor, actor_name, asked, content)
        _carry_out(locked, case, judged, status, decision, actor, asked)
        return _answer(locked, case, decision)


def _decide_again(decision: Decision, content: str) -> Decided:
    if decision.content_digest != content:
        raise KeyReused("This Idempotency-Key was used for another decision.", decision=decision.pk)
    return Decided(answer=decision.answer, replayed=True)


def check_words(asked: Asked) -> None:
    """Refuse a decision whose words don't have their form (`Invalid`, with the field in `where`)."""
    if not 1 <= len(asked.idempotency_key) <= KEY_LENGTH_MAX:
        raise Invalid(f"Idempotency-Key must be 1 to {KEY_LENGTH_MAX} characters.", where="Idempotency-Key")
    if asked.reason_code not in set(ReasonCode):
        raise Invalid("Choose a reason code.", where="reason_code", allowed=[str(one) for one in ReasonCode])
    if not REASON_LENGTH_MIN <= len(asked.reason.strip()) <= REASON_LENGTH_MAX:
        raise Invalid(
            f"Give a reason of {REASON_LENGTH_MIN} to {REASON_LENGTH_MAX} characters.", where="reason"
        )
    if asked.action == Action.RETRY and asked.executor not in set(Executor):
        raise Invalid("Say who sends it: agent or console.", where="executor")
    if asked.action == Action.ABANDON and asked.then not in set(Then):
        raise Invalid("Say whether the run ends or continues without the effect.", where="then")


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


def locked_refusal(action: Action, status: ActionStatus | None) -> ActionLocked:
    """The refusal of an action that nobody may take now; None: the case doesn't offer it."""
    if status is None:
        return ActionLocked(f"This case offers no {action}.", action=str(action), reasons=[])
    unlocks: datetime | None = status.unlocks_at
    return ActionLocked(
        status.sentence,
        action=str(action),
        permission=str(status.permission),
        reasons=[status.sentence],
        question=status.question or None,
        unlocks_at=unlocks.isoformat() if unlocks else None,
    )


def needs_second_person(status: ActionStatus, why: str = "") -> ActionLocked:
    """The refusal of an action that takes two; `why` says what was missing for one person to be enough."""
    sentence = f"{why} {status.sentence}".strip()
    return ActionLocked(
        sentence + " Approvals by a second person can't be asked for here yet.",
        action=str(status.action),
        permission=str(Permission.SECOND_PERSON),
        reasons=[sentence],
        question=status.question or None,
        unlocks_at=None,
    )


def _record(
    locked: LockedOperation, case: Case, actor: Actor, actor_name: str, asked: Asked, content: str
) -> Decision:
    decision = _insert(
        id=new_id("dec"),
        case=case,
        operation=locked.operation,
        action=asked.action,
        actor_kind=str(actor.kind),
        actor=actor.id,
        actor_name=actor_name,
        actor_role=actor.role,
        policy=POLICY,
        reason_code=asked.reason_code,
        reason=asked.reason,
        seen_version=asked.seen_version,
        evidence_digest=asked.evidence_digest,
        executor=asked.executor if asked.action == Action.RETRY else "",
        then=asked.then if asked.action == Action.ABANDON else "",
        reference=asked.receipt.reference if asked.receipt else "",
        idempotency_key=asked.idempotency_key,
        content_digest=content,
        made_at=locked.now,
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


def _carry_out(
    locked: LockedOperation,
    case: Case,
    judged: Judged,
    status: ActionStatus,
    decision: Decision,
    actor: Actor,
    asked: Asked,
) -> None:
    match asked.action:
        case Action.CONFIRM:
            _confirm(locked, case, judged, status, decision, actor, asked)
        case Action.RETRY:
            _require_one_person(status)
            _retry(locked, case, judged, decision, actor)
        case Action.ABANDON:
            _require_one_person(status)
            _abandon(locked, case, actor, asked)
        case Action.ACCEPT | Action.COMPENSATE:
            _close_conflict(locked, case, judged, actor, asked)


def _require_one_person(status: ActionStatus) -> None:
    if status.permission is Permission.SECOND_PERSON:
        raise needs_second_person(status)


def _confirm(
    locked: LockedOperation,
    case: Case,
    judged: Judged,
    status: ActionStatus,
    decision: Decision,
    actor: Actor,
    asked: Asked,
) -> None:
    evidence, reference = _receipt_to_confirm(locked, judged, status, actor, asked)
    try:
        settling.confirm(
            locked,
            receipt=cases.receipt_facts(evidence, reference),
            actor=actor,
            attempt=evidence.attempt,
            evidence=evidence,
            reason=asked.reason,
        )
    except settling.ReceiptReused as reused:
        raise ActionLocked(
            reused.sentence + " One receipt confirms one operation.",
            action=str(Action.CONFIRM),
            reasons=[reused.sentence],
            question=None,
            unlocks_at=None,
        ) from reused
    Decision.objects.filter(pk=decision.pk).update(evidence=evidence, reference=reference)
    cases.resolve(locked, case, Resolution.CONFIRMED, actor=actor)


def _receipt_to_confirm(
    locked: LockedOperation, judged: Judged, status: ActionStatus, actor: Actor, asked: Asked
) -> tuple[Evidence, str]:
    """Return the evidence and reference to confirm with; raises `ActionLocked` if two people must."""
    given = asked.receipt or GivenReceipt()
    if given.body:
        return _attach_given(locked, judged, status, actor, given)
    receipt = receipt_on_record(locked.operation, judged, status, given)
    return Evidence.objects.get(pk=receipt.evidence_id), receipt.reference


def receipt_on_record(
    operation: Operation, judged: Judged, status: ActionStatus, given: GivenReceipt
) -> SeenReceipt:
    """The receipt on record that one person may confirm with; if one was named, it and no other.

    Raises `Invalid` if no evidence names it or it can't confirm, `ActionLocked` where choosing takes two.
    """
    receipt = chosen_receipt(
        operation=operation,
        facts=judged.facts,
        evidence_id=given.evidence_id,
        reference=given.reference,
    )
    why = why_not_chosen(receipt) if receipt is not None else ""
    if status.permission is Permission.SECOND_PERSON:
        raise needs_second_person(status, why)
    if receipt is None or why:
        raise Invalid(why or "The receipt must be one that is on record and matches.", where="receipt")
    return receipt


def match_given(operation: Operation, judged: Judged, given: GivenReceipt) -> ReceiptMatch:
    """Hold the record that a person gives against the operation; nothing names it but what it carries."""
    payload = parse(bytes(operation.payload))
    match = match_receipt(
        contract=judged.contract,
        operation_id=operation.pk,
        payload=payload if isinstance(payload, dict) else {},
        key=operation.key,
        amount=operation.amount,
        reference=given.reference or None,
        body=given.body,
        named_by_reply=False,
        tool=operation.tool,
    )
    return match if is_declared(judged.account) else not_comparable(match)


def _attach_given(
    locked: LockedOperation, judged: Judged, status: ActionStatus, actor: Actor, given: GivenReceipt
) -> tuple[Evidence, str]:
    if status.permission is Permission.SECOND_PERSON and not status.receipt_unlocks:
        raise needs_second_person(status)
    match = match_given(locked.operation, judged, given)
    if not match.matches:
        raise needs_second_person(status, "The receipt given doesn't match: " + " ".join(match.problems))
    evidence = record_evidence(
        locked,
        kind=EvidenceKind.ATTACHMENT,
        claim=Claim.RECEIPT,
        summary=f"A person gave the provider's record {match.receipt.reference}, which matches.",
        actor=actor,
        reference=match.receipt.reference,
        seen={"match": {"matches": True, "problems": [], "receipt": match.receipt.as_json()}},
        body=given.body,
    )
    return evidence, match.receipt.reference


def require_console_may_send(operation: Operation, judged: Judged) -> None:
    """Refuse a repeat by the console that it can't send, or whose key may not be the one first used there."""
    if not judged.account.console_can_send:
        raise ActionLocked(
            f"The console holds no credentials for {judged.account.title}; the agent can send it.",
            action=str(Action.RETRY),
            reasons=["no console credentials"],
            question=None,
            unlocks_at=None,
        )
    if not cases.key_reaches_console(operation, judged.contract):
        scope = judged.contract.key_scope
        sentence = (
            f"{judged.account.title} keeps keys apart by {scope.value.replace('_', ' ')}, and the agent sent"
            " first: the console's repeat could be a second effect. The agent can send it."
        )
        raise ActionLocked(
            sentence, action=str(Action.RETRY), reasons=[sentence], question=2, unlocks_at=None
        )


def _retry(locked: LockedOperation, case: Case, judged: Judged, decision: Decision, actor: Actor) -> None:
    if decision.executor == Executor.CONSOLE:
        require_console_may_send(locked.operation, judged)
    has_lookup = judged.contract.has_lookup
    cases.start_retrying(locked, case, actor=actor, has_lookup=has_lookup)
    if not has_lookup:
        # Nothing can be asked first: the grant is all there is.
        retries.grant_retry(locked, case, decision, judged)


def _abandon(locked: LockedOperation, case: Case, actor: Actor, asked: Asked) -> None:
    known = case.finding_summary or "Whether it happened is unknown: the provider could not tell."
    settling.abandon(locked, actor=actor, known_effect=known, reason=asked.reason)
    cases.resolve(locked, case, Resolution.ABANDONED, actor=actor)
    if asked.then == Then.END and locked.run.state not in RUN_ENDED:
        abandon_locked_run(locked.locked_run, actor=actor, reason=asked.reason)


def _close_conflict(locked: LockedOperation, case: Case, judged: Judged, actor: Actor, asked: Asked) -> None:
    stands = asked.action == Action.ACCEPT
    minor = cases.extra_minor(locked.operation, since=case.opened_at)
    settling.book_conflict(locked, minor=minor, stands=stands, actor=actor, reason=asked.reason)
    cases.resolve(locked, case, Resolution.ACCEPTED if stands else Resolution.COMPENSATED, actor=actor)


def _answer(locked: LockedOperation, case: Case, decision: Decision) -> Decided:
    decision.refresh_from_db(fields=["grant"])
    locked.run.refresh_from_db(fields=["state", "paused_reasons"])
    answer: dict[str, Any] = {
        "decision": decision.pk,
        "action": decision.action,
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
        "grant": decision.grant_id,
    }
    Decision.objects.filter(pk=decision.pk).update(answer=answer)
    return Decided(answer=answer, replayed=False)
