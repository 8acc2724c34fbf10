"""POST /runs/{id}/claim"""

from __future__ import annotations

from datetime import datetime

import pytest

from reconciliation.models import Case
from reconciliation.states import CaseState, Need
from runs.locking import database_now
from runs.states import PauseReason
from tests.integration.api.world import (
    World,
    claim_body,
    expire_lease,
    in_doubt,
    pause,
    rows,
    sent,
    started,
    working,
)


def test_a_claim_gives_a_token_its_end_and_the_plan(world: World) -> None:
    run = started(world.worker, input={"order": 7}, goal="Order it")
    reply = world.worker.post(f"/runs/{run}/claim", claim_body(claim_id="mine", lease_seconds=60))
    assert reply.status == 200
    assert reply.body["claim_id"] == "mine"
    assert 59_000 <= reply.body["expires_in_ms"] <= 60_000
    assert datetime.fromisoformat(reply.body["expires_at"]).utcoffset() is not None
    assert reply.body["replayed"] is False
    assert reply.body["plan"] == {
        "run_id": run,
        "state": "open",
        "paused_reasons": [],
        "goal": "Order it",
        "input": {"order": 7},
        "turns": [],
        "open_evidence": [],
        "known_failures": [],
    }


def test_the_same_claim_again_is_the_same_lease(world: World) -> None:
    run = started(world.worker)
    body = claim_body()
    first = world.worker.post(f"/runs/{run}/claim", body)
    before = rows()
    again = world.worker.post(f"/runs/{run}/claim", body)
    assert again.status == 200
    assert again.body["token"] == first.body["token"]
    assert again.body["expires_at"] == first.body["expires_at"]
    assert again.body["replayed"] is True
    assert rows() == before


def test_a_held_run_is_refused_with_its_holder(world: World) -> None:
    run = started(world.worker)
    world.worker.post(f"/runs/{run}/claim", claim_body(worker="first"))
    reply = world.worker.post(f"/runs/{run}/claim", claim_body(worker="second"))
    assert (reply.status, reply.word) == (409, "already_claimed")
    assert reply.body["holder"] == "first"
    assert reply.body["detail"] == f"first holds run {run}; its lease ends in 600 s, unless it is renewed."
    assert 0 < reply.body["expires_in_ms"] <= 600_000


def test_another_version_is_refused_and_told_the_pinned_one(world: World) -> None:
    run = started(world.worker)
    reply = world.worker.post(f"/runs/{run}/claim", claim_body(flow_version="7"))
    assert (reply.status, reply.word, reply.body["pinned"]) == (409, "flow_version_mismatch", "6")


def test_a_paused_run_answers_with_reasons_plan_and_when_to_look_again(world: World) -> None:
    made, case = in_doubt(world.worker)
    reply = world.worker.post(f"/runs/{made.run}/claim", claim_body())
    assert (reply.status, reply.word) == (409, "run_paused")
    assert reply.body["reasons"] == ["outcome"]
    call = reply.body["plan"]["turns"][0]["calls"][0]
    assert (call["next"], call["case"]) == ("wait", case)
    assert reply.headers["retry-after"] == "2"
    assert f"is paused: {case} is being looked up. Nothing is sent" in reply.body["detail"]
    Case.objects.filter(pk=case).update(
        state=CaseState.NEEDS_DECISION, need=Need.NOT_FOUND, needs_decision_since_at=database_now()
    )
    asked = world.worker.post(f"/runs/{made.run}/claim", claim_body())
    assert f"{case} waits for a person (not found, which proves nothing)." in asked.body["detail"]
    assert asked.headers["retry-after"] == "30"
    evidence, failure = reply.body["plan"]["open_evidence"][0], reply.body["plan"]["known_failures"][0]
    assert evidence["recorded_at"].endswith("Z")
    assert evidence["recorded_ago_ms"] >= 0
    assert failure["at"].endswith("Z")
    assert failure["ago_ms"] > 3_000_000


def test_a_person_is_waited_for_at_leisure(world: World) -> None:
    run = started(world.worker)
    pause(run, PauseReason.BUDGET)
    reply = world.worker.post(f"/runs/{run}/claim", claim_body())
    assert (reply.word, reply.body["reasons"], reply.headers["retry-after"]) == (
        "run_paused",
        ["budget"],
        "30",
    )
    assert "exceed its budget, which an approver may raise. Nothing" in reply.body["detail"]


def test_each_reason_of_a_pause_says_what_is_awaited_from_whom(world: World) -> None:
    run = started(world.worker)
    for reason in set(PauseReason) - {PauseReason.FLOW_VERSION}:
        pause(run, reason)
    pause(run, PauseReason.FLOW_VERSION)
    said = world.worker.post(f"/runs/{run}/claim", claim_body()).body["detail"]
    for awaited in (
        "of a person in its case",
        "approver may raise",
        "approver may renew",
        "administrator says",
    ):
        assert awaited in said
    assert "an approver moves it to another version" in said


def test_a_claim_takes_in_what_the_last_worker_left_and_is_refused(world: World) -> None:
    made = sent(world.worker)
    expire_lease(made.run)
    reply = world.worker.post(f"/runs/{made.run}/claim", claim_body())
    assert (reply.status, reply.word, reply.body["reasons"]) == (409, "run_paused", ["outcome"])
    assert reply.body["plan"]["turns"][0]["calls"][0]["case"].startswith("case_")


def test_an_ended_run_is_refused(world: World) -> None:
    made = working(world.worker)
    world.operator.post(f"/runs/{made.run}/abandonment", {"reason": "not needed any more"})
    reply = world.worker.post(f"/runs/{made.run}/claim", claim_body())
    assert (reply.status, reply.word, reply.body["state"]) == (409, "run_ended", "abandoned")


@pytest.mark.parametrize("seconds", [4, 3601, 0, -1, 2**53 - 1])
def test_a_lease_is_5_seconds_to_an_hour(world: World, seconds: int) -> None:
    run = started(world.worker)
    reply = world.worker.post(f"/runs/{run}/claim", claim_body(lease_seconds=seconds))
    assert (reply.status, reply.word, reply.body["where"]) == (422, "invalid", "/lease_seconds")


def test_ids_of_workers_and_claims_are_plain(world: World) -> None:
    run = started(world.worker)
    for name in ("claim_id", "worker"):
        for bad in ("", "a b", "x" * 65, 'x"y', "é"):
            reply = world.worker.post(f"/runs/{run}/claim", claim_body(**{name: bad}))
            assert (reply.status, reply.word, reply.body["where"]) == (422, "invalid", f"/{name}"), reply


def test_another_teams_run_is_no_run(world: World) -> None:
    run = started(world.worker)
    before = rows()
    reply = world.stranger.post(f"/runs/{run}/claim", claim_body())
    missing = world.stranger.post("/runs/run_none/claim", claim_body())
    assert (reply.status, reply.word) == (missing.status, missing.word) == (404, "not_found")
    assert reply.body["detail"].replace(run, "X") == missing.body["detail"].replace("run_none", "X")
    assert rows() == before


def test_only_a_worker_claims(world: World) -> None:
    run = started(world.worker)
    for caller in (world.reader, world.operator):
        assert caller.post(f"/runs/{run}/claim", claim_body()).word == "forbidden"
