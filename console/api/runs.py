"""Calls about runs: start, claim, keep, give back, decide turns, save reads, complete, give up, read."""

from __future__ import annotations

from typing import Annotated, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Body, Query, Router
from pydantic import Field

from console.access import Deed
from console.api import answers, bodies, listing, showing
from console.api.bearer import caller_of
from console.api.calling import DECIDE, JOURNAL, READ, QueryText, call
from console.api.problems import answered, refused
from console.api.reading import check_query
from reconciliation import intake, place
from reconciliation.fencing import Write
from runs import leases
from runs.journal import ending, starting, turns
from runs.leases import RunPaused
from runs.refusals import Invalid

router = Router(tags=["Runs"])

_FENCED = ("not_found", "stale_token", "run_paused")


@router.post(
    "/runs",
    **call(
        scopes=JOURNAL,
        answers={200: answers.RunStarted, 201: answers.RunStarted},
        words=("external_id_reused", "flow_version_mismatch"),
    ),
)
def start_run(request: HttpRequest, payload: Body[bodies.StartRun]) -> HttpResponse:
    """Start a run of a flow, or get the one that this flow and external id already have.

    The same input again answers 200 with the existing run as it was pinned, whatever version, budget or
    approval is named now. Another input is refused.
    """
    caller = caller_of(request)
    started = starting.start_run(
        team=caller.team,
        flow=payload.flow,
        flow_version=payload.flow_version,
        external_id=payload.external_id,
        input=payload.input,
        actor=caller.actor,
        flow_digest=payload.flow_digest or "",
        budget_limit=payload.limit(),
        approval_id=payload.approval or "",
        goal=payload.goal or "",
    )
    body = {"run": showing.run_short(started.run), "replayed": started.replayed}
    return answered(200 if started.replayed else 201, body)


@router.get("/runs", **call(scopes=READ, answers={200: answers.RunList}, words=("invalid",), body=False))
def list_runs(
    request: HttpRequest,
    claimable: Query[Literal["1"] | None] = None,
    flow: Query[QueryText | None] = None,
    state: Query[Literal["open", "paused", "completed", "abandoned"] | None] = None,
    external_id: Query[QueryText | None] = None,
    wait: Query[Annotated[int, Field(ge=0, le=listing.WAIT_SECONDS_MAX)] | None] = None,
    after: Query[QueryText | None] = None,
) -> HttpResponse:
    """List runs, newest first; with `claimable=1` those of a flow that a worker may claim now, oldest first.

    `wait` holds the answer for so many seconds until there is one. The server may answer earlier, with an
    empty list, when many are waiting.
    """
    check_query(request, {"claimable", "flow", "state", "external_id", "wait", "after"})
    team = caller_of(request).team
    if claimable is None:
        if wait:
            raise Invalid("Only claimable=1 can be waited for.", where="query: wait")
        found = listing.list_runs(team=team, flow=flow, state=state, external_id=external_id, after=after)
        return answered(200, found)
    if flow is None:
        raise Invalid("Name the flow whose runs you can work on.", where="query: flow")
    if state is not None or external_id is not None:
        raise Invalid("claimable=1 takes flow, wait and after only.", where="query: claimable")
    return answered(200, listing.claimable_runs(team=team, flow=flow, after=after, wait_seconds=wait or 0))


@router.get(
    "/runs/{id:run_id}",
    **call(scopes=READ, answers={200: answers.RunAnswer}, words=("not_found",), body=False),
)
def read_run(request: HttpRequest, run_id: str) -> HttpResponse:
    """Show a run: its state, lease, budget and open cases."""
    run = showing.find_run(team=caller_of(request).team, run_id=run_id)
    return answered(200, {"run": showing.run_full(run)})


@router.get(
    "/runs/{id:run_id}/plan",
    **call(scopes=READ, answers={200: answers.PlanAnswer}, words=("not_found",), body=False),
)
def read_plan(request: HttpRequest, run_id: str) -> HttpResponse:
    """Show the plan: what was decided turn by turn, and what comes next for each call."""
    run = showing.find_run(team=caller_of(request).team, run_id=run_id)
    return answered(200, {"plan": showing.plan_of(run)})


@router.post(
    "/runs/{id:run_id}/claim",
    **call(
        scopes=JOURNAL,
        answers={200: answers.Claimed},
        words=(
            "not_found",
            "run_ended",
            "run_paused",
            "flow_version_mismatch",
            "already_claimed",
            "stale_token",
        ),
    ),
)
def claim_run(request: HttpRequest, run_id: str, payload: Body[bodies.Claim]) -> HttpResponse:
    """Ask for the run's lease: a fencing token, its end, and the plan to go on from.

    What an earlier worker sent and never reported is taken in first, which may pause the run. The same
    claim id again gets the same lease while it lives.
    """
    team = caller_of(request).team
    try:
        claimed = intake.claim_run(
            team=team,
            run_id=run_id,
            claim_id=payload.claim_id,
            worker=payload.worker,
            flow_version=payload.flow_version,
            lease_seconds=payload.lease_seconds,
            flow_digest=payload.flow_digest or "",
        )
    except RunPaused as paused:
        said, members, headers = showing.paused_claim(team, run_id, paused)
        return refused(said, headers=headers, **members)
    return answered(
        200,
        {
            "token": claimed.token,
            "claim_id": claimed.claim_id,
            "expires_at": showing.utc(claimed.expires_at),
            "expires_in_ms": claimed.expires_in_ms,
            "plan": showing.plan_of(claimed.run),
            "replayed": claimed.replayed,
        },
    )


@router.post("/runs/{id:run_id}/renew", **call(scopes=JOURNAL, answers={200: answers.Renewed}, words=_FENCED))
def renew_lease(request: HttpRequest, run_id: str, payload: Body[bodies.Renew]) -> HttpResponse:
    """Move the lease's end, by default to as far from now as was claimed. After its end it is too late."""
    with place.noticing(run_id=run_id, token=payload.token):
        claimed = leases.renew(
            team=caller_of(request).team,
            run_id=run_id,
            token=payload.token,
            lease_seconds=payload.lease_seconds,
        )
    return answered(
        200,
        {"expires_at": showing.utc(claimed.expires_at), "expires_in_ms": claimed.expires_in_ms},
    )


@router.post(
    "/runs/{id:run_id}/release", **call(scopes=JOURNAL, answers={200: answers.RunMoved}, words=_FENCED)
)
def release_lease(request: HttpRequest, run_id: str, payload: Body[bodies.Release]) -> HttpResponse:
    """Give the lease back, so that another worker needn't wait for its end."""
    with place.noticing(run_id=run_id, token=payload.token):
        run, replayed = leases.release(team=caller_of(request).team, run_id=run_id, token=payload.token)
    return answered(200, {"run": showing.run_short(run), "replayed": replayed})


@router.post(
    "/runs/{id:run_id}/turns",
    **call(
        scopes=JOURNAL,
        answers={200: answers.TurnAnswer, 201: answers.TurnAnswer},
        words=(*_FENCED, "turn_already_decided", "previous_turn_open", "account_not_found"),
    ),
)
def save_turn(request: HttpRequest, run_id: str, payload: Body[bodies.SaveTurn]) -> HttpResponse:
    """Save what the model decided, before any of it starts; each effect gets its operation and key.

    A resumed worker repeats a turn under its new token: the same content answers 200, with the plan.
    """
    team = caller_of(request).team
    with place.noticing(run_id=run_id, token=payload.token, write=Write.TURN):
        saved = turns.save_turn(
            team=team,
            run_id=run_id,
            token=payload.token,
            index=payload.index,
            decision=payload.decision,
            parallel=payload.parallel,
            calls=payload.chosen(),
        )
    run = showing.find_run(team=team, run_id=saved.run_id)
    body = {"turn": showing.plan_turn(run, saved.index), "replayed": saved.replayed}
    return answered(200 if saved.replayed else 201, body)


@router.post(
    "/runs/{id:run_id}/turns/{int:index}/calls/{id:call_id}/result",
    **call(
        scopes=JOURNAL,
        answers={200: answers.ResultAnswer},
        words=(*_FENCED, "turn_already_decided", "previous_turn_open"),
    ),
)
def save_result(
    request: HttpRequest, run_id: str, index: int, call_id: str, payload: Body[bodies.SaveResult]
) -> HttpResponse:
    """Save what a read returned, before the next step."""
    with place.noticing(run_id=run_id, token=payload.token, write=Write.RESULT):
        saved = turns.save_result(
            team=caller_of(request).team,
            run_id=run_id,
            token=payload.token,
            index=index,
            call_id=call_id,
            result=payload.result,
        )
    return answered(200, {"call_id": saved.call_id, "digest": saved.digest, "replayed": saved.replayed})


@router.post(
    "/runs/{id:run_id}/complete",
    **call(scopes=JOURNAL, answers={200: answers.RunMoved}, words=(*_FENCED, "operations_open", "run_ended")),
)
def complete_run(request: HttpRequest, run_id: str, payload: Body[bodies.Complete]) -> HttpResponse:
    """End the run with its output, once every call is settled."""
    with place.noticing(run_id=run_id, token=payload.token, write=Write.COMPLETION):
        run, replayed = ending.complete_run(
            team=caller_of(request).team, run_id=run_id, token=payload.token, output=payload.output
        )
    return answered(200, {"run": showing.run_short(run), "replayed": replayed})


@router.post(
    "/runs/{id:run_id}/abandonment",
    **call(
        scopes=DECIDE, deed=Deed.DECIDE, answers={200: answers.RunMoved}, words=("not_found", "run_ended")
    ),
)
def abandon_run(request: HttpRequest, run_id: str, payload: Body[bodies.GiveUp]) -> HttpResponse:
    """Give the run up, for the person of the token: what was never sent is abandoned, cases stay open."""
    caller = caller_of(request)
    run, replayed = ending.abandon_run(
        team=caller.team, run_id=run_id, actor=caller.actor, reason=payload.reason
    )
    return answered(200, {"run": showing.run_short(run), "replayed": replayed})


@router.post(
    "/runs/{id:run_id}/lease/revocation",
    **call(
        scopes=DECIDE,
        deed=Deed.REVOKE_LEASE,
        answers={200: answers.RunMoved},
        words=("not_found", "stale_token"),
    ),
)
def revoke_lease(request: HttpRequest, run_id: str, payload: Body[bodies.Revoke]) -> HttpResponse:
    """Take a lease away from its holder, whose later writes are refused and kept as evidence.

    The lease is named by its number, so that a repeat can't end the one that came after it.
    """
    caller = caller_of(request)
    run, replayed = leases.revoke(
        team=caller.team,
        run_id=run_id,
        number=payload.lease,
        actor=caller.actor,
        reason=payload.reason,
    )
    return answered(200, {"run": showing.run_short(run), "replayed": replayed})
