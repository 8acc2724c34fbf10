"""A second person's consent: ask for it, talk about it, take it back, refuse it, let it end.

`approving` gives it.
A request is bound to the digest of everything that is consented to, has one open request beside it at most,
ends by itself, and is used once. The requester can't answer: the human beings are compared here, and by the
database. Time never approves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from reconciliation import approval_ending
from reconciliation.approval_kinds import Held, Kind, hold, hold_of, kind_of
from reconciliation.approval_models import (
    APPROVAL_OPEN,
    COMMENT_LENGTH_MAX,
    ApprovalDeed,
    ApprovalKind,
    ApprovalMessage,
    ApprovalRequest,
    ApprovalState,
    MessageKind,
)
from reconciliation.persons import Forbidden, KeyReused, Worker
from reconciliation.standing import Standing, standing_of
from runs.actors import ActorKind
from runs.canonical import canonicalise
from runs.ids import could_be_id, new_id
from runs.journal.evidence import storable_text
from runs.models import NAME_LENGTH
from runs.refusals import Invalid, NotFound, Refusal

# A working day and the night after it: whoever has the next shift still finds it.
APPROVAL_LIFETIME: Final = timedelta(hours=24)
# As for a decision: a reason that an auditor can use has a few words in it.
REASON_LENGTH_MIN: Final = 10
REASON_LENGTH_MAX: Final = 4_000
# An approver's comment may be as short as "Agreed with finance."
COMMENT_LENGTH_MIN: Final = 3
KEY_LENGTH_MAX: Final = 100
# More than this is a conversation for another place.
MESSAGES_MAX: Final = 50


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


@dataclass(frozen=True, kw_only=True)
class Said:
    """A message that was kept, or that the same had made before (`replayed`)."""

    message: ApprovalMessage
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
        raise _key_reused(again.pk)
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
        raise _pending(pending)
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
        raise _key_reused("") from error


def _pending(pending: ApprovalRequest) -> ApprovalPending:
    who = pending.requester_name or pending.requester
    return ApprovalPending(
        f"{who} has asked for this already, and a second person can answer until "
        f"{pending.expires_at:%Y-%m-%d %H:%M} UTC.",
        approval=pending.pk,
        by=who,
        kind=pending.kind,
        expires_at=pending.expires_at.isoformat(),
    )


def _key_reused(approval_id: str) -> KeyReused:
    return KeyReused("This Idempotency-Key was used for another request.", approval=approval_id)


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


def require_person(worker: Worker) -> None:
    """Raise `Forbidden` for anybody else."""
    if worker.actor.kind is not ActorKind.PERSON:
        raise Forbidden("Only a person asks for approvals and answers them.", actor=str(worker.actor.kind))


def check_reason(reason: str) -> str:
    said = storable_text(reason).strip()
    if not REASON_LENGTH_MIN <= len(said) <= REASON_LENGTH_MAX:
        raise Invalid(
            f"Give a reason of {REASON_LENGTH_MIN} to {REASON_LENGTH_MAX:,} characters.", where="reason"
        )
    return said


def check_comment(comment: str) -> str:
    """The comment as it is kept; `Invalid` if it says nothing or too much."""
    said = storable_text(comment).strip()
    if not COMMENT_LENGTH_MIN <= len(said) <= COMMENT_LENGTH_MAX:
        raise Invalid(
            f"Give a comment of {COMMENT_LENGTH_MIN} to {COMMENT_LENGTH_MAX:,} characters.", where="comment"
        )
    return said


def check_key(key: str) -> None:
    if not 1 <= len(key) <= KEY_LENGTH_MAX or storable_text(key) != key:
        raise Invalid(f"Idempotency-Key must be 1 to {KEY_LENGTH_MAX} characters.", where="Idempotency-Key")


# --- Refuse, ask back, withdraw --------------------------------------------------------------------------


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


def ask(*, approval_id: str, teams: Collection[str] | None, worker: Worker, text: str, key: str) -> Said:
    """Ask the requester something about the request, which stays open. Owns its transaction.

    The same under the same key is the message that is there, `replayed`. Refuses as `refuse` does, and
    `KeyReused`.
    """
    return _say(MessageKind.QUESTION, approval_id, teams, worker, text, key)


def reply(*, approval_id: str, teams: Collection[str] | None, worker: Worker, text: str, key: str) -> Said:
    """Answer a question as the requester. Owns its transaction. Refuses as `ask` does.

    It changes nothing of what is consented to: if that is to be something else, it is asked for anew.
    """
    return _say(MessageKind.REPLY, approval_id, teams, worker, text, key)


def _say(
    kind: MessageKind, approval_id: str, teams: Collection[str] | None, worker: Worker, text: str, key: str
) -> Said:
    found = find(approval_id=approval_id, teams=teams)
    require_person(worker)
    said = check_comment(text)
    check_key(key)
    with transaction.atomic():
        held, approval = hold_of(found)
        again = ApprovalMessage.objects.filter(actor=worker.actor.id, key=key).first()
        if again is not None:
            if (again.approval_id, again.kind, again.text) != (approval.pk, str(kind), said):
                raise _key_reused(again.approval_id)
            return Said(message=again, replayed=True)
        _require_speaker(kind, approval, worker)
        if approval.state != ApprovalState.REQUESTED:
            raise ended_refusal(approval)
        if approval.messages.count() >= MESSAGES_MAX:
            raise Invalid(f"A request takes {MESSAGES_MAX} messages, and this one has them.", where="text")
        try:
            with transaction.atomic():
                made = ApprovalMessage.objects.create(
                    id=new_id("msg"),
                    approval=approval,
                    kind=str(kind),
                    text=said,
                    actor=worker.actor.id,
                    actor_name=storable_text(worker.name)[:NAME_LENGTH],
                    key=key,
                    made_at=held.now,
                )
        except IntegrityError as error:
            # Under the lock of another run, the same key can only have come for something there.
            if "approval_message_key_once_per_actor" not in str(error):
                raise
            raise _key_reused("") from error
        word = "approval.asked" if kind is MessageKind.QUESTION else "approval.replied"
        approval_ending.append(approval, word, worker.actor, after={"message": made.pk}, reason=said)
        return Said(message=made, replayed=False)


def _require_speaker(kind: MessageKind, approval: ApprovalRequest, worker: Worker) -> None:
    standing = standing_of(actor=worker.actor.id, deed=ApprovalDeed.APPROVE, team=approval.team_id)
    own = is_own(approval, standing)
    if kind is MessageKind.REPLY:
        if not own:
            raise Forbidden("Whoever asked for the approval answers questions about it.")
        return
    if own:
        raise own_refusal(approval)
    if standing.why_not:
        raise Forbidden(standing.why_not, actor=worker.actor.id)


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
