"""Why a request for approval isn't made or answered: each refusal, and the sentence that it is given with."""

from __future__ import annotations

from typing import Any, ClassVar

from reconciliation.approval_models import ApprovalRequest, ApprovalState
from reconciliation.persons import KeyReused
from runs.refusals import Refusal


class ApprovalPending(Refusal):
    """The same is asked for already; details say which request, by whom and until when."""

    word: ClassVar[str] = "approval_pending"


class ApprovalAnswered(Refusal):
    """The request has its answer; details say which, by whom and when."""

    word: ClassVar[str] = "approval_answered"


class ApprovalExpired(Refusal):
    """Nobody answered in time. Expiry never approves."""

    word: ClassVar[str] = "approval_expired"


class ApprovalVoid(Refusal):
    """What it was about changed, so there is nothing to consent to any more; `changed` says what."""

    word: ClassVar[str] = "approval_void"


class OwnApproval(Refusal):
    """The human being who answers is the one who asked. An attempt to approve is on record."""

    word: ClassVar[str] = "own_approval"


def pending_refusal(pending: ApprovalRequest) -> ApprovalPending:
    who = pending.requester_name or pending.requester
    return ApprovalPending(
        f"{who} has asked for this already, and a second person can answer until "
        f"{pending.expires_at:%Y-%m-%d %H:%M} UTC.",
        approval=pending.pk,
        by=who,
        kind=pending.kind,
        expires_at=pending.expires_at.isoformat(),
    )


def key_reused_refusal(approval_id: str) -> KeyReused:
    return KeyReused("This Idempotency-Key was used for another request.", approval=approval_id)


def own_refusal(approval: ApprovalRequest) -> OwnApproval:
    return OwnApproval(
        "You asked for this, under this account or another of yours. Somebody else has to answer it.",
        approval=approval.pk,
    )


def ended_refusal(approval: ApprovalRequest) -> Refusal:
    """Why a request that isn't open to answers any more can't be answered, with who answered and what."""
    state = ApprovalState(approval.state)
    details: dict[str, Any] = {"approval": approval.pk, "state": str(state)}
    if approval.ended_at is not None:
        details["ended_at"] = approval.ended_at.isoformat()
    if state is ApprovalState.EXPIRED:
        return ApprovalExpired(
            f"This request ended at {approval.expires_at:%Y-%m-%d %H:%M:%S} UTC without being carried out. "
            "Nothing was done.",
            expires_at=approval.expires_at.isoformat(),
            **details,
        )
    if state is ApprovalState.VOIDED:
        return void_refusal(approval, [approval.voided_because])
    if state is ApprovalState.WITHDRAWN:
        who = approval.requester_name or approval.requester
        return ApprovalAnswered(
            f"{who} withdrew this request: {approval.comment}", by=who, comment=approval.comment, **details
        )
    who = approval.answerer_name or approval.answerer
    done = "refused" if state is ApprovalState.REFUSED else "approved"
    at = approval.answered_at.isoformat() if approval.answered_at is not None else ""
    return ApprovalAnswered(
        f"{who} has {done} this request already.", by=who, at=at, comment=approval.comment, **details
    )


def void_refusal(approval: ApprovalRequest, changed: list[str]) -> ApprovalVoid:
    return ApprovalVoid(
        "What this request is about has changed since it was made, so it is void and nothing was done. "
        + " ".join(changed),
        approval=approval.pk,
        state=str(ApprovalState.VOIDED),
        changed=changed,
    )
