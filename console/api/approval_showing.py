"""Requests for approval as JSON. Reads only; concludes nothing."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import Q

from console.api.case_showing import case_moved
from console.api.listing import PAGE_ROWS, read_cursor
from console.api.showing import ahead, passed
from console.queries.keyset import pack
from reconciliation.approval_kinds import content_of, title_of
from reconciliation.approval_models import ApprovalRequest
from reconciliation.models import Case, Decision
from runs.locking import database_now


def approval_short(approval: ApprovalRequest, now: datetime) -> dict[str, Any]:
    """A request without its content and its messages."""
    return {
        "id": approval.pk,
        "kind": approval.kind,
        "title": title_of(approval),
        "state": approval.state,
        "run": approval.run_id,
        "operation": approval.operation_id,
        "case": approval.case_id,
        "requester": approval.requester,
        "requester_name": approval.requester_name,
        "reason_code": approval.reason_code,
        "reason": approval.reason,
        "content_digest": approval.content_digest,
        **passed("requested", approval.requested_at, now),
        **ahead("expires", approval.expires_at, now),
        "answerer": approval.answerer or None,
        "answerer_name": approval.answerer_name or None,
        **passed("answered", approval.answered_at, now),
        "comment": approval.comment,
        **passed("ended", approval.ended_at, now),
        "voided_because": approval.voided_because,
    }


def approval_full(approval: ApprovalRequest) -> dict[str, Any]:
    """A request with all that is consented to and what was said about it."""
    now = database_now()
    decision = Decision.objects.filter(approval=approval).values_list("pk", flat=True).first()
    return {
        **approval_short(approval, now),
        "content": content_of(approval),
        "decision": decision,
        "messages": [
            {
                "id": one.pk,
                "kind": one.kind,
                "text": one.text,
                "actor": one.actor,
                "actor_name": one.actor_name,
                **passed("made", one.made_at, now),
            }
            for one in approval.messages.order_by("made_at", "id")
        ],
    }


def approval_moved(approval: ApprovalRequest) -> dict[str, Any]:
    """A request that was just answered, the case it is about, and the decision that came of it."""
    case = Case.objects.filter(pk=approval.case_id).first() if approval.case_id else None
    decision = Decision.objects.filter(approval=approval).values_list("pk", flat=True).first()
    return {
        "approval": approval_short(approval, database_now()),
        "case": case_moved(case) if case is not None else None,
        "decision": decision,
    }


def list_approvals(
    *, team: str, state: str | None, run: str | None, case: str | None, after: str | None
) -> dict[str, Any]:
    """The team's requests, newest first."""
    rows = ApprovalRequest.objects.filter(team=team)
    if state is not None:
        rows = rows.filter(state=state)
    if run is not None:
        rows = rows.filter(run=run)
    if case is not None:
        rows = rows.filter(case=case)
    if after is not None:
        at, row_id = read_cursor(after)
        rows = rows.filter(Q(requested_at__lt=at) | Q(requested_at=at, id__lt=row_id))
    found = list(rows.order_by("-requested_at", "-id")[: PAGE_ROWS + 1])
    shown, now = found[:PAGE_ROWS], database_now()
    following = pack(shown[-1].requested_at, shown[-1].pk) if len(found) > PAGE_ROWS else None
    return {"approvals": [approval_short(one, now) for one in shown], "next": following}
