"""Calls about cases: read them, decide them, look again, attach evidence, take a granted retry back."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Body, Header, Query, Router

from console.access import Deed
from console.api import answers, bodies, case_showing, listing, showing
from console.api.bearer import caller_of
from console.api.calling import DECIDE, READ, QueryText, call
from console.api.problems import answered
from console.api.reading import check_query
from reconciliation import decisions, evidence, lookups, retries
from reconciliation.decisions import KEY_LENGTH_MAX, Asked
from reconciliation.states import Action
from runs.locking import database_now

router = Router(tags=["Cases"])

# Visible ASCII: what every client and proxy carries unchanged.
IdempotencyKey = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        pattern=rf"^[\x21-\x7e]{{1,{KEY_LENGTH_MAX}}}$",
        description="Minted by the caller for this one decision.",
    ),
]
_DECISION: dict[str, Any] = call(
    scopes=DECIDE,
    deed=Deed.DECIDE,
    answers={200: answers.DecisionAnswer, 202: answers.ApprovalAsked},
    words=("not_found", "decision_stale", "action_locked", "idempotency_key_reused"),
)


@router.get("/cases", **call(scopes=READ, answers={200: answers.CaseList}, words=("invalid",), body=False))
def list_cases(
    request: HttpRequest,
    operation: Query[QueryText | None] = None,
    run: Query[QueryText | None] = None,
    state: Query[
        Literal["looking_up", "needs_decision", "awaiting_approval", "retrying", "resolved"] | None
    ] = None,
    after: Query[QueryText | None] = None,
) -> HttpResponse:
    """List cases, newest first."""
    check_query(request, {"operation", "run", "state", "after"})
    found = listing.list_cases(
        team=caller_of(request).team, operation=operation, run=run, state=state, after=after
    )
    return answered(200, found)


@router.get(
    "/cases/{id:case_id}",
    **call(scopes=READ, answers={200: answers.CaseAnswer}, words=("not_found",), body=False),
)
def read_case(request: HttpRequest, case_id: str) -> HttpResponse:
    """Show a case: the five answers, what may be done and why, the evidence, what a decision must name."""
    shown = case_showing.case_full(team=caller_of(request).team, case_id=case_id)
    return answered(200, {"case": shown})


@router.post("/cases/{id:case_id}/confirmation", **_DECISION)
def confirm_case(
    request: HttpRequest, case_id: str, payload: Body[bodies.Confirm], key: IdempotencyKey
) -> HttpResponse:
    """Decide that the effect happened, by a receipt on record or by the provider's record in full."""
    given = payload.receipt.given() if payload.receipt else None
    return _decide(request, case_id, Action.CONFIRM, payload, key, receipt=given)


@router.post("/cases/{id:case_id}/retry", **_DECISION)
def retry_case(
    request: HttpRequest, case_id: str, payload: Body[bodies.Retry], key: IdempotencyKey
) -> HttpResponse:
    """Permit one more attempt with the same key and bytes, after a fresh lookup that finds nothing."""
    return _decide(request, case_id, Action.RETRY, payload, key, executor=payload.executor)


@router.post("/cases/{id:case_id}/abandonment", **_DECISION)
def abandon_case(
    request: HttpRequest, case_id: str, payload: Body[bodies.Abandon], key: IdempotencyKey
) -> HttpResponse:
    """Give the obligation up, with what is known of the effect; the run ends or goes on without it."""
    return _decide(request, case_id, Action.ABANDON, payload, key, then=payload.then)


@router.post("/cases/{id:case_id}/absence", **_DECISION)
def make_case_absent(
    request: HttpRequest, case_id: str, payload: Body[bodies.MakeAbsent], key: IdempotencyKey
) -> HttpResponse:
    """Ask a second person to let the provider make sure that the effect isn't there, where it offers that.

    Always 202. Once they approve, a worker of Recourse's sends one request; its answer is evidence, and where
    it proves absence the operation is given up with that proof. It is never sent again with the same key.
    """
    return _decide(request, case_id, Action.MAKE_ABSENT, payload, key, then=payload.then)


@router.post("/cases/{id:case_id}/acceptance", **_DECISION)
def accept_case(
    request: HttpRequest, case_id: str, payload: Body[bodies.Decision], key: IdempotencyKey
) -> HttpResponse:
    """Close a conflict after the fact: the extra effect stands, and its amount is booked."""
    return _decide(request, case_id, Action.ACCEPT, payload, key)


@router.post("/cases/{id:case_id}/compensation", **_DECISION)
def compensate_case(
    request: HttpRequest, case_id: str, payload: Body[bodies.Decision], key: IdempotencyKey
) -> HttpResponse:
    """Close a conflict after the fact: the extra effect was undone outside the run."""
    return _decide(request, case_id, Action.COMPENSATE, payload, key)


def _decide(
    request: HttpRequest,
    case_id: str,
    action: Action,
    payload: bodies.Decision,
    key: str,
    **more: Any,
) -> HttpResponse:
    caller = caller_of(request)
    decided = decisions.decide(
        case_id=case_id,
        team=caller.team,
        actor=caller.actor,
        actor_name=caller.name,
        asked=Asked(
            action=action,
            seen_version=payload.seen_version,
            evidence_digest=payload.evidence_digest,
            reason_code=payload.reason_code,
            reason=payload.reason,
            idempotency_key=key,
            **more,
        ),
    )
    # 202: a second person is asked, and the case waits for their answer.
    return answered(202 if decided.approval else 200, {**decided.answer, "replayed": decided.replayed})


@router.post(
    "/cases/{id:case_id}/lookup",
    **call(scopes=DECIDE, deed=Deed.LOOK_UP, answers={202: answers.LookupAsked}, words=("not_found",)),
)
def look_up_case(request: HttpRequest, case_id: str, payload: Body[bodies.Nothing]) -> HttpResponse:
    """Ask for a lookup now. It is made by a worker; its answer appears on the case as evidence."""
    caller = caller_of(request)
    case = lookups.ask_again(case_id=case_id, team=caller.team, actor=caller.actor)
    body = {
        "case": case_showing.case_moved(case),
        **showing.ahead("next_lookup", case.next_lookup_at, database_now()),
    }
    return answered(202, body)


@router.post(
    "/cases/{id:case_id}/evidence",
    **call(
        scopes=DECIDE,
        deed=Deed.ATTACH,
        answers={200: answers.Attached, 201: answers.Attached},
        words=("not_found",),
    ),
)
def attach_evidence(request: HttpRequest, case_id: str, payload: Body[bodies.Attach]) -> HttpResponse:
    """Attach what a person found out. It is shown beside the rest and settles nothing by itself."""
    caller = caller_of(request)
    attached = evidence.attach(
        case_id=case_id,
        team=caller.team,
        actor=caller.actor,
        summary=payload.summary,
        reference=payload.reference or "",
        body=payload.content(),
    )
    answer = {
        "evidence": attached.evidence_id,
        "case": case_showing.case_moved(attached.case),
        "replayed": attached.replayed,
    }
    return answered(200 if attached.replayed else 201, answer)


@router.post(
    "/cases/{id:case_id}/retry/withdrawal",
    **call(scopes=DECIDE, deed=Deed.WITHDRAW_RETRY, answers={200: answers.Withdrawn}, words=("not_found",)),
)
def withdraw_retry(request: HttpRequest, case_id: str, payload: Body[bodies.Withdraw]) -> HttpResponse:
    """Take a granted retry back. `withdrawn` is false when there was none, or when it has been used."""
    caller = caller_of(request)
    withdrawn = retries.withdraw_grant(
        case_id=case_id, team=caller.team, actor=caller.actor, reason=payload.reason
    )
    case = decisions.find_case(case_id=case_id, team=caller.team)
    return answered(200, {"withdrawn": withdrawn, "case": case_showing.case_moved(case)})
