"""Decisions that take two: ask the second person, hold what they consent to, carry it out when they do.

The decision stays the requester's. It is bound to the case's version, the evidence, and what is sent through
which account: whatever of that differs when the second person answers voids the request.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from reconciliation import approvals, carrying_out, moves
from reconciliation.approval_kinds import Consent, Held, Kind
from reconciliation.approval_models import ApprovalDeed, ApprovalKind, ApprovalRequest
from reconciliation.asked import (
    THEN_IS_SAID,
    Asked,
    GivenReceipt,
    locked_refusal,
    receipt_named,
    require_console_may_send,
)
from reconciliation.carrying_out import Approved, Deciding
from reconciliation.gathering import Judged, judge_now
from reconciliation.models import Case
from reconciliation.policy import POLICY
from reconciliation.states import Action, CaseState, Need, Permission
from runs.canonical import digest
from runs.locking import LockedOperation
from runs.states import Executor

_KIND_OF: Final[dict[Action, ApprovalKind]] = {
    Action.CONFIRM: ApprovalKind.OVERRIDE,
    Action.RETRY: ApprovalKind.RETRY,
    Action.ABANDON: ApprovalKind.ABANDONMENT,
    Action.MAKE_ABSENT: ApprovalKind.MAKE_ABSENT,
}
# Consent permits what is sent afterwards.
_LATER: Final = frozenset({ApprovalKind.RETRY, ApprovalKind.MAKE_ABSENT})
_BY_WHOM: Final = {Executor.AGENT: "the agent", Executor.CONSOLE: "the console"}


# --- Ask -------------------------------------------------------------------------------------------------


def ask_second_person(deciding: Deciding, *, why: str) -> ApprovalRequest:
    """Ask for consent to a decision that one person may not make; the case waits for it.

    Needs the transaction that holds the case, after the policy said that it takes two. `why` is the sentence
    that says so. Raises `Forbidden`, `ActionLocked`, `KeyReused`.
    """
    locked, case, asked = deciding.locked, deciding.case, deciding.asked
    if asked.action is Action.RETRY and asked.executor == Executor.CONSOLE:
        require_console_may_send(locked.operation, deciding.judged)
    if asked.action is Action.CONFIRM and not (asked.receipt and asked.receipt.body):
        # A choice among several has to be made before anybody can consent to it.
        receipt_named(locked.operation, deciding.judged, deciding.status, asked.receipt or GivenReceipt())
    parameters = _parameters(asked, why)
    moves.await_approval(locked, case, why=f"a second person is asked: {asked.action}", actor=deciding.actor)
    return approvals.put(
        Held(locked_run=locked.locked_run, operation=locked, case=case),
        kind=KINDS[_KIND_OF[asked.action]],
        worker=deciding.person,
        parameters=parameters,
        reason_code=asked.reason_code,
        reason=asked.reason,
        key=asked.idempotency_key,
        asked_digest=deciding.content_digest,
        until_at=_until(deciding),
        answer=lambda approval: {
            "approval": approval.pk,
            "action": str(asked.action),
            "why": why,
            "expires_at": approval.expires_at.isoformat(),
            "expires_in_ms": int((approval.expires_at - locked.now) / timedelta(milliseconds=1)),
            **carrying_out.moved(locked, case),
        },
    )


def _until(deciding: Deciding) -> datetime | None:
    """When asking for it ends to make sense: a run's approval ends, and nothing may be sent any more."""
    until_at = deciding.judged.facts.approval_until_at
    return until_at if deciding.asked.action is Action.RETRY else None


def _parameters(asked: Asked, why: str) -> dict[str, Any]:
    receipt = asked.receipt
    return {
        "action": str(asked.action),
        "seen_version": asked.seen_version,
        "evidence_digest": asked.evidence_digest,
        "why_two": why,
        **({"executor": asked.executor} if asked.action is Action.RETRY else {}),
        **({"then": asked.then} if asked.action in THEN_IS_SAID else {}),
        **(
            {
                "receipt": {
                    "evidence_id": receipt.evidence_id,
                    "reference": receipt.reference,
                    "body_base64": base64.b64encode(receipt.body).decode(),
                    "body_sha256": digest(receipt.body) if receipt.body else None,
                }
            }
            if receipt is not None and asked.action is Action.CONFIRM
            else {}
        ),
    }


def _asked_of(approval: ApprovalRequest, parameters: Mapping[str, Any]) -> Asked:
    """What the requester asked for, as they did."""
    return Asked(
        action=Action(parameters["action"]),
        seen_version=parameters["seen_version"],
        evidence_digest=parameters["evidence_digest"],
        reason_code=approval.reason_code,
        reason=approval.reason,
        idempotency_key=approval.key,
        executor=parameters.get("executor", ""),
        then=parameters.get("then", ""),
        receipt=receipt_asked_for(parameters),
    )


def receipt_asked_for(parameters: Mapping[str, Any]) -> GivenReceipt | None:
    """The receipt that the requester would have confirmed with; None where they named and gave none."""
    receipt = parameters.get("receipt")
    if receipt is None:
        return None
    return GivenReceipt(
        evidence_id=receipt["evidence_id"],
        reference=receipt["reference"],
        body=base64.b64decode(receipt["body_base64"]),
    )


# --- What is consented to --------------------------------------------------------------------------------


def _of(held: Held) -> tuple[LockedOperation, Case]:
    if held.operation is None or held.case is None:
        raise AssertionError("a decision is about a case and its operation")
    return held.operation, held.case


def _judged(locked: LockedOperation, case: Case) -> Judged:
    """The case as the policy sees it, as if nobody had asked yet: so it was for the requester."""
    return judge_now(run=locked.run, operation=locked.operation, case=case, now=locked.now, undecided=True)


def _facts(held: Held, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What the decision rests on now. Raises `ActionLocked` where nobody may take it any more."""
    locked, case = _of(held)
    operation, run = locked.operation, locked.run
    judged = _judged(locked, case)
    action = Action(parameters["action"])
    status = judged.assessment.action(action)
    if status is None or status.permission is Permission.LOCKED:
        raise locked_refusal(action, status)
    pin = judged.account.pin
    return {
        "policy": POLICY,
        "case_version": case.version,
        "evidence_digest": judged.evidence_digest,
        "attempts": operation.attempts_count,
        "operation_state": str(operation.state),
        "payload_digest": operation.payload_digest,
        "idempotency_key": operation.key,
        "amount": {"currency": operation.amount_currency, "minor": operation.amount_minor},
        "run_state": str(run.state),
        "flow_version": run.flow_version.version,
        "account": operation.provider_id,
        "account_version": pin.adapter,
        "endpoint": pin.endpoint,
        "region": pin.region,
        "credential": pin.credential_fingerprint,
        **(_absence_facts(judged) if action is Action.MAKE_ABSENT else {}),
    }


def _absence_facts(judged: Judged) -> dict[str, Any]:
    """What the request is and what its answer may prove, as the account's file says it now."""
    way = judged.account.make_absent
    if way is None:
        raise locked_refusal(Action.MAKE_ABSENT, None)
    return {
        "request": way.request,
        "request_declared": judged.account.declaration_digest,
        "proves_within_ms": way.proves_within_ms,
        "late_send": str(way.late_send),
        "key_after": str(way.key_after),
        "asked_before": len(judged.facts.absences),
    }


_FACT_WORDS: Final = {
    "policy": "the policy",
    "case_version": "the case’s version",
    "evidence_digest": "the evidence, or an answer to one of the five questions,",
    "attempts": "the number of requests sent",
    "operation_state": "the operation’s state",
    "payload_digest": "the payload",
    "idempotency_key": "the key",
    "amount": "the amount",
    "run_state": "the run’s state",
    "flow_version": "the run’s flow version",
    "account": "the provider account",
    "account_version": "the provider account’s declaration",
    "endpoint": "the provider account’s address",
    "region": "the provider account’s region",
    "credential": "the credential",
    "request": "the request that makes it absent",
    "request_declared": "the provider account’s file",
    "proves_within_ms": "for how long its answer proves anything",
    "late_send": "what becomes of a late first request",
    "key_after": "what becomes of the key",
    "asked_before": "how often it was asked for before",
}


# --- Carry out, or go back -------------------------------------------------------------------------------


def _carry_out(held: Held, consent: Consent) -> None:
    locked, case = _of(held)
    judged = _judged(locked, case)
    asked = _asked_of(consent.approval, consent.parameters)
    status = judged.assessment.action(asked.action)
    if status is None or status.permission is Permission.LOCKED:
        raise locked_refusal(asked.action, status)
    deciding = Deciding(
        locked=locked,
        case=case,
        judged=judged,
        status=status,
        person=consent.requester,
        asked=asked,
        content_digest=consent.approval.asked_digest,
        approved=Approved(request=consent.approval, approver=consent.approver),
    )
    decision = carrying_out.carry_out(deciding)
    carrying_out.answer_of(locked, case, decision)


def _reopen(held: Held, approval: ApprovalRequest, because: str) -> None:
    locked, case = _of(held)
    if case.state == CaseState.AWAITING_APPROVAL:
        moves.back_from_approval(locked, case, why=because)
    elif case.state == CaseState.RETRYING:
        moves.hand_to_person(locked, case, Need.GRANT_ENDED, why=because)


def _subject(held: Held) -> str:
    return f"case:{_of(held)[1].pk}"


def _title_of_override(parameters: Mapping[str, Any]) -> str:
    receipt = parameters.get("receipt") or {}
    reference = receipt.get("reference")
    if receipt.get("evidence_id") or receipt.get("body_sha256"):
        return f"Confirm with receipt {reference or 'given'}, which takes two people"
    return f"Confirm without a receipt{f', by reference {reference}' if reference else ''}"


def _title_of_retry(parameters: Mapping[str, Any]) -> str:
    by = _BY_WHOM[Executor(parameters["executor"])]
    return f"Send again with the same key, by {by}, where a duplicate is possible"


def _title_of_abandonment(parameters: Mapping[str, Any]) -> str:
    then = "the run ends" if parameters["then"] == "end" else "the run goes on without it"
    return f"Give the operation up, and {then}"


def _title_of_absence(parameters: Mapping[str, Any]) -> str:
    then = "the run ends" if parameters["then"] == "end" else "the run goes on without it"
    return f"Make sure that it’s absent at the provider, and {then}"


KINDS: Final[Mapping[ApprovalKind, Kind]] = {
    kind: Kind(
        kind=kind,
        deed=ApprovalDeed.DECIDE,
        subject=_subject,
        title=title,
        facts=_facts,
        fact_words=_FACT_WORDS,
        carry_out=_carry_out,
        later=kind in _LATER,
        reopen=_reopen,
    )
    for kind, title in (
        (ApprovalKind.OVERRIDE, _title_of_override),
        (ApprovalKind.RETRY, _title_of_retry),
        (ApprovalKind.ABANDONMENT, _title_of_abandonment),
        (ApprovalKind.MAKE_ABSENT, _title_of_absence),
    )
}
