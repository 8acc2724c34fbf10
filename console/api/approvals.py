"""Calls about requests for a second person's consent: read them, approve, refuse, ask back, take one back."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Body, Query, Router

from console.access import Deed
from console.api import answers, approval_showing, bodies
from console.api.bearer import caller_of
from console.api.calling import DECIDE, READ, QueryText, call
from console.api.cases import IdempotencyKey
from console.api.problems import answered
from console.api.reading import check_query
from reconciliation import approval_messages, approvals, approving
from reconciliation.approval_messages import Said
from reconciliation.approvals import Answered
from reconciliation.persons import Worker

router = Router(tags=["Approvals"])

_ENDED = ("approval_answered", "approval_expired", "approval_void")


def _answer(deed: Deed, *words: str) -> dict[str, Any]:
    return call(
        scopes=DECIDE,
        deed=deed,
        answers={200: answers.ApprovalMoved},
        words=("not_found", *_ENDED, *words),
    )


def _message(deed: Deed, *words: str) -> dict[str, Any]:
    return call(
        scopes=DECIDE,
        deed=deed,
        answers={201: answers.ApprovalMessageMade, 200: answers.ApprovalMessageMade},
        words=("not_found", "idempotency_key_reused", *_ENDED, *words),
    )


@router.get(
    "/approvals", **call(scopes=READ, answers={200: answers.ApprovalList}, words=("invalid",), body=False)
)
def list_approvals(
    request: HttpRequest,
    state: Query[
        Literal["requested", "approved", "carried_out", "refused", "withdrawn", "expired", "voided"] | None
    ] = None,
    run: Query[QueryText | None] = None,
    case: Query[QueryText | None] = None,
    after: Query[QueryText | None] = None,
) -> HttpResponse:
    """List requests for approval, newest first."""
    check_query(request, {"state", "run", "case", "after"})
    found = approval_showing.list_approvals(
        team=caller_of(request).team, state=state, run=run, case=case, after=after
    )
    return answered(200, found)


@router.get(
    "/approvals/{id:approval_id}",
    **call(scopes=READ, answers={200: answers.ApprovalAnswer}, words=("not_found",), body=False),
)
def read_approval(request: HttpRequest, approval_id: str) -> HttpResponse:
    """Show a request: all that is consented to, its digest, what was asked and replied, and its answer."""
    found = approvals.find(approval_id=approval_id, teams=[caller_of(request).team])
    return answered(200, {"approval": approval_showing.approval_full(found)})


@router.post("/approvals/{id:approval_id}/approval", **_answer(Deed.APPROVE, "own_approval"))
def approve_approval(request: HttpRequest, approval_id: str, payload: Body[bodies.Approve]) -> HttpResponse:
    """Consent to exactly what `content_digest` names, and have it carried out."""
    caller = caller_of(request)
    return _moved(
        approving.approve(
            approval_id=approval_id,
            teams=[caller.team],
            worker=Worker(actor=caller.actor, name=caller.name),
            content_digest=payload.content_digest,
            comment=payload.comment,
        )
    )


@router.post("/approvals/{id:approval_id}/refusal", **_answer(Deed.APPROVE, "own_approval"))
def refuse_approval(request: HttpRequest, approval_id: str, payload: Body[bodies.Comment]) -> HttpResponse:
    """Say no: what was asked for isn't done, and a case goes back to people."""
    caller = caller_of(request)
    return _moved(
        approvals.refuse(
            approval_id=approval_id,
            teams=[caller.team],
            worker=Worker(actor=caller.actor, name=caller.name),
            comment=payload.comment,
        )
    )


@router.post("/approvals/{id:approval_id}/withdrawal", **_answer(Deed.REQUEST))
def withdraw_approval(request: HttpRequest, approval_id: str, payload: Body[bodies.Comment]) -> HttpResponse:
    """Take one's own request back before it is answered."""
    caller = caller_of(request)
    return _moved(
        approvals.withdraw(
            approval_id=approval_id,
            teams=[caller.team],
            worker=Worker(actor=caller.actor, name=caller.name),
            comment=payload.comment,
        )
    )


@router.post("/approvals/{id:approval_id}/question", **_message(Deed.APPROVE, "own_approval"))
def ask_about_approval(
    request: HttpRequest, approval_id: str, payload: Body[bodies.Message], key: IdempotencyKey
) -> HttpResponse:
    """Ask whoever made the request; it stays open."""
    caller = caller_of(request)
    return _said(
        approval_messages.ask(
            approval_id=approval_id,
            teams=[caller.team],
            worker=Worker(actor=caller.actor, name=caller.name),
            text=payload.text,
            key=key,
        )
    )


@router.post("/approvals/{id:approval_id}/reply", **_message(Deed.REQUEST))
def reply_about_approval(
    request: HttpRequest, approval_id: str, payload: Body[bodies.Message], key: IdempotencyKey
) -> HttpResponse:
    """Answer a question about one's own request. It changes nothing of what is consented to."""
    caller = caller_of(request)
    return _said(
        approval_messages.reply(
            approval_id=approval_id,
            teams=[caller.team],
            worker=Worker(actor=caller.actor, name=caller.name),
            text=payload.text,
            key=key,
        )
    )


def _moved(done: Answered) -> HttpResponse:
    return answered(200, {**approval_showing.approval_moved(done.approval), "replayed": done.replayed})


def _said(said: Said) -> HttpResponse:
    made = said.message
    body = {"approval": made.approval_id, "message": made.pk, "replayed": said.replayed}
    return answered(200 if said.replayed else 201, body)
