"""A second person's consent: ask for it, take it back, refuse it, let it end.

`approving` gives it, and `approval_messages` has what is said about it meanwhile.
A request is bound to the digest of everything that is consented to, has one open request beside it at most,
ends by itself, and is used once. The requester can't answer: the human beings are compared here, and by the
database. Time never approves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from reconciliation import approval_ending
from reconciliation.approval_checks import check_comment, check_key, check_reason, require_person
from reconciliation.approval_kinds import Held, Kind, hold, hold_of, kind_of
from reconciliation.approval_models import (
    APPROVAL_OPEN,
    ApprovalDeed,
    ApprovalKind,
    ApprovalRequest,
    ApprovalState,
)
from reconciliation.approval_refusals import (
    ended_refusal,
    key_reused_refusal,
    own_refusal,
    pending_refusal,
)
from reconciliation.persons import Forbidden, Worker
from reconciliation.standing import Standing, standing_of
from runs.canonical import canonicalise
from runs.ids import could_be_id, new_id
from runs.journal.evidence import storable_text
from runs.models import NAME_LENGTH
from runs.refusals import Invalid, NotFound, Refusal

# A working day and the night after it: whoever has the next shift still finds it.
APPROVAL_LIFETIME: Final = timedelta(hours=24)


@dataclass(frozen=True, kw_only=True)
class Requested:
    """A request that was made, or that the same ask had made before (`replayed`)."""

    approval: ApprovalRequest
    replayed: bool


@dataclass(frozen=True, kw_only=True)
class Answered:
    """A request as the answer left it; `replayed`: the same answer was given before."""

    approval: ApprovalRequest
    replayed: bool


# --- Ask -------------------------------------------------------------------------------------------------


def request(
    *,
    kind: ApprovalKind,
    worker: Worker,
    team: str | None,
    parameters: Mapping[str, Any],
    reason: str,
    key: str,
    run_id: str = "",
    operation_id: str = "",
    case_id: str = "",
    until_at: datetime | None = None,
) -> Requested:
    """Ask for a second person's consent to something about a run or an operation. Owns its transaction.

    `parameters`: what is asked for, as JSON, in the form that the kind's functions take; they check it.
    `key`: the caller's own, 1 to 100 characters; the same ask under it returns the first request.
    `until_at`: an earlier end than the usual. Case decisions come through `decisions.decide`.
    Refuses in this order, having changed nothing: `Forbidden` (no person), `Invalid`, `NotFound`,
    `KeyReused`, `Forbidden` (not their role or team), `ApprovalPending`, and whatever the kind refuses.
    """
    require_person(worker)
    said = check_reason(reason)
    check_key(key)
    asked = canonicalise(
        {
            "kind": str(kind),
            "run": run_id,
            "operation": operation_id,
            "case": case_id,
            "parameters": dict(parameters),
            "reason": said,
        }
    ).digest
    with transaction.atomic():
        held = hold(run_id=run_id, operation_id=operation_id, case_id=case_id, team=team)
        again = asked_before(worker=worker, key=key, asked_digest=asked)
        if again is not None:
            return Requested(approval=again, replayed=True)
        made = put(
            held,
            kind=kind_of(kind),
            worker=worker,
            parameters=parameters,
            reason=said,
            key=key,
            asked_digest=asked,
            until_at=until_at,
        )
        return Requested(approval=made, replayed=False)


def asked_before(*, worker: Worker, key: str, asked_digest: str) -> ApprovalRequest | None:
    """The request that this person made under the key; `KeyReused` if they asked for something else."""
    again = ApprovalRequest.objects.filter(requester=worker.actor.id, key=key).first()
    if again is not None and again.asked_digest != asked_digest:
        raise key_reused_refusal(again.pk)
    return again


def put(
    held: Held,
    *,
    kind: Kind,
    worker: Worker,
    parameters: Mapping[str, Any],
    reason: str,
    key: str,
    asked_digest: str,
    reason_code: str = "",
    until_at: datetime | None = None,
    answer: Callable[[ApprovalRequest], dict[str, Any]] | None = None,
) -> ApprovalRequest:
    """Make a request in the caller's transaction, which holds what it is about, as it will then be.

    `answer`: what the ask is answered with, kept for its repeats. Raises `Forbidden`, `ApprovalPending`,
    `KeyReused`, and what the kind's `facts` refuses.
    """
    standing = standing_of(actor=worker.actor.id, deed=kind.deed, team=held.run.team_id)
    if standing.why_not:
        raise Forbidden(standing.why_not, actor=worker.actor.id)
    subject = kind.subject(held)
    pending = ApprovalRequest.objects.filter(subject=subject, state__in=APPROVAL_OPEN).first()
    if pending is not None:
        raise pending_refusal(pending)
    facts = kind.facts(held, parameters)
    expires_at = min(held.now + APPROVAL_LIFETIME, until_at or held.now + APPROVAL_LIFETIME)
    if expires_at <= held.now:
        raise Invalid("The time in which it could be approved is over already.", where="until_at")
    operation = held.operation.operation if held.operation is not None else None
    content = canonicalise(
        {
            "kind": str(kind.kind),
            "subject": subject,
            "team": held.run.team_id,
            "run": held.run.pk,
            "operation": operation.pk if operation is not None else None,
            "case": held.case.pk if held.case is not None else None,
            "requester": {"actor": worker.actor.id, "principal": standing.principal},
            "reason_code": reason_code,
            "reason": reason,
            "expires_at": expires_at.isoformat(),
            "parameters": dict(parameters),
            "facts": facts,
        }
    )
    approval = ApprovalRequest(
        id=new_id("apr"),
        kind=str(kind.kind),
        state=str(ApprovalState.REQUESTED),
        subject=subject,
        team_id=held.run.team_id,
        run=held.run,
        operation=operation,
        case=held.case,
        requester=worker.actor.id,
        requester_name=storable_text(worker.name)[:NAME_LENGTH],
        requester_role=worker.actor.role,
        requester_principal=standing.principal,
        reason_code=reason_code,
        reason=reason,
        content=content.bytes,
        content_digest=content.digest,
        key=key,
        asked_digest=asked_digest,
        requested_at=held.now,
        expires_at=expires_at,
    )
    approval.answer = answer(approval) if answer is not None else {}
    _insert(approval)
    approval_ending.append(
        approval,
        "approval.requested",
        worker.actor,
        after={"subject": subject, "expires_at": expires_at.isoformat(), "title": kind.title(parameters)},
        reason=reason,
    )
    return approval


def _insert(approval: ApprovalRequest) -> None:
    try:
        with transaction.atomic():
            approval.save(force_insert=True)
    except IntegrityError as error:
        # Under the lock of another run, the same key can only have come for something there.
        if "approval_key_once_per_requester" not in str(error):
            raise
        raise key_reused_refusal("") from error


# --- Find, and who may answer ----------------------------------------------------------------------------


def find(*, approval_id: str, teams: Collection[str] | None) -> ApprovalRequest:
    """Return a request of these teams (any if None) without a lock; raises `NotFound`."""
    rows = ApprovalRequest.objects.filter(pk=approval_id)
    if teams is not None:
        rows = rows.filter(team__in=list(teams))
    found = rows.first() if could_be_id(approval_id) else None
    if found is None:
        raise NotFound(f"There is no approval {approval_id} that you can see.", approval=approval_id)
    return found


def is_own(approval: ApprovalRequest, standing: Standing) -> bool:
    """Whether this person is the human being who asked, by account, as recorded, or as is known now."""
    if standing.worker.actor.id == approval.requester:
        return True
    if standing.principal and standing.principal == approval.requester_principal:
        return True
    # An administrator may have said since that two accounts are one human being.
    asker = standing_of(actor=approval.requester, deed=ApprovalDeed.REQUEST, team="")
    return bool(standing.principal) and standing.principal == asker.principal


# --- Refuse, withdraw ------------------------------------------------------------------------------------


def refuse(*, approval_id: str, teams: Collection[str] | None, worker: Worker, comment: str) -> Answered:
    """Say no as the second person: what was asked for isn't done. Owns its transaction.

    The same refusal by the same person again is `replayed`. Refuses in this order, having changed nothing:
    `NotFound`, `Forbidden` (no person), `Invalid`, `OwnApproval`, `Forbidden`, and by how it ended:
    `ApprovalAnswered`, `ApprovalExpired`, `ApprovalVoid`.
    """
    found = find(approval_id=approval_id, teams=teams)
    require_person(worker)
    said = check_comment(comment)
    with transaction.atomic():
        held, approval = hold_of(found)
        if _same_answer(approval, ApprovalState.REFUSED, worker, said):
            return Answered(approval=approval, replayed=True)
        standing = standing_of(actor=worker.actor.id, deed=ApprovalDeed.APPROVE, team=approval.team_id)
        if is_own(approval, standing):
            raise own_refusal(approval)
        if standing.why_not:
            raise Forbidden(standing.why_not, actor=worker.actor.id)
        # On record with the role that they answer by, whatever else they are.
        worker = Worker(actor=standing.worker.actor, name=worker.name)
        over = end_if_over(held, approval)
        if over is None:
            if approval.state != ApprovalState.REQUESTED:
                raise ended_refusal(approval)
            approval_ending.end(
                approval,
                ApprovalState.REFUSED,
                actor=worker.actor,
                now=held.now,
                comment=said,
                **answerer_fields(worker, standing, held.now),
            )
            reopen(held, approval, f"{worker.name or worker.actor.id} refused it: {said}")
    # An end that time had brought is kept: the refusal is raised after its commit.
    if over is not None:
        raise over
    return Answered(approval=approval, replayed=False)


def withdraw(*, approval_id: str, teams: Collection[str] | None, worker: Worker, comment: str) -> Answered:
    """Take one's own request back before it is answered. Owns its transaction.

    The same again is `replayed`. Refuses in this order, having changed nothing: `NotFound`, `Forbidden`,
    `Invalid`, and by how it ended: `ApprovalAnswered`, `ApprovalExpired`, `ApprovalVoid`.
    """
    found = find(approval_id=approval_id, teams=teams)
    require_person(worker)
    said = check_comment(comment)
    with transaction.atomic():
        held, approval = hold_of(found)
        standing = standing_of(actor=worker.actor.id, deed=ApprovalDeed.REQUEST, team="")
        if not is_own(approval, standing):
            raise Forbidden("Only whoever asked for an approval takes the request back.")
        if approval.state == ApprovalState.WITHDRAWN and approval.comment == said:
            return Answered(approval=approval, replayed=True)
        over = end_if_over(held, approval)
        if over is None:
            if approval.state != ApprovalState.REQUESTED:
                raise ended_refusal(approval)
            approval_ending.end(
                approval, ApprovalState.WITHDRAWN, actor=worker.actor, now=held.now, comment=said
            )
            reopen(held, approval, f"{worker.name or worker.actor.id} withdrew the request: {said}")
    if over is not None:
        raise over
    return Answered(approval=approval, replayed=False)


def answerer_fields(worker: Worker, standing: Standing, now: datetime) -> dict[str, Any]:
    """The columns of whoever answers, for `approval_ending.end`."""
    return {
        "answerer": worker.actor.id,
        "answerer_name": storable_text(worker.name)[:NAME_LENGTH],
        "answerer_role": worker.actor.role,
        "answerer_principal": standing.principal,
        "answered_at": now,
    }


def _same_answer(approval: ApprovalRequest, state: ApprovalState, worker: Worker, comment: str) -> bool:
    return approval.state == state and (approval.answerer, approval.comment) == (worker.actor.id, comment)


def reopen(held: Held, approval: ApprovalRequest, because: str) -> None:
    """Let what waited for the request go on without it."""
    then = kind_of(approval.kind).reopen
    if then is not None:
        then(held, approval, because)


# --- The end by time -------------------------------------------------------------------------------------


def end_if_over(held: Held, approval: ApprovalRequest) -> Refusal | None:
    """Let an open request end if its time is over; the refusal that says so, or None.

    It may be answered until `expires_at`, and not from that instant on.
    """
    if approval.state not in APPROVAL_OPEN or held.now < approval.expires_at:
        return None
    approved = approval.state == ApprovalState.APPROVED
    because = (
        "It was approved and not sent before its time ended."
        if approved
        else "Nobody answered it before its time ended."
    )
    approval_ending.end(
        approval, ApprovalState.EXPIRED, actor=approval_ending.BY_TIME, now=held.now, because=because
    )
    reopen(held, approval, because)
    return ended_refusal(approval)


def overdue(now: datetime) -> QuerySet[ApprovalRequest]:
    """The open requests whose time is over, longest first."""
    return ApprovalRequest.objects.filter(state__in=APPROVAL_OPEN, expires_at__lte=now).order_by("expires_at")


def expire(*, approval_id: str) -> bool:
    """End a request whose time is over, by the database's clock; True if it was still open."""
    with transaction.atomic():
        held, approval = hold_of(find(approval_id=approval_id, teams=None))
        return end_if_over(held, approval) is not None
