"""POST /operations/{id}/send"""

from __future__ import annotations

import base64
import hashlib
import json

import pytest
from django.db.models import F

from runs.models import Attempt, AuditLeaf, Operation
from tests import factories
from tests.integration.api.world import (
    PAYLOAD,
    World,
    effect,
    expire_lease,
    in_doubt,
    read,
    rows,
    sent,
    working,
)

# Repeats meet unique constraints, which end a transaction that a test would hold open.
pytestmark = pytest.mark.usefixtures("transactional_db")


def test_go_is_durable_and_carries_key_and_bytes(world: World) -> None:
    made = working(world.worker)
    reply = made.send("att-1")
    assert reply.status == 200
    call = made.turn["calls"][0]["operation"]
    payload = base64.b64decode(reply.body["payload_base64"])
    assert reply.body == {
        "operation": made.operation,
        "attempt_id": "att-1",
        "attempt": 1,
        "idempotency_key": call["idempotency_key"],
        "payload": PAYLOAD,
        "payload_base64": reply.body["payload_base64"],
        "provider": "sandbox-supplier",
        "start_within_ms": 5_000,
        "request_within_ms": 5_000,
        "replayed": False,
    }
    assert json.loads(payload) == PAYLOAD
    assert hashlib.sha256(payload).hexdigest() == call["digest"]
    assert Operation.objects.get(pk=made.operation).state == "sent_unknown"


def test_go_again_has_less_time_and_no_second_attempt(world: World) -> None:
    made = working(world.worker)
    first = made.send("att-1")
    before = rows()
    again = made.send("att-1")
    assert again.status == 200
    left = again.body["start_within_ms"]
    assert again.body == {**first.body, "start_within_ms": left, "replayed": True}
    assert left <= first.body["start_within_ms"]
    assert rows() == before


def test_go_again_without_time_left_must_not_start(world: World) -> None:
    made = sent(world.worker)
    Attempt.objects.update(minted_at=F("minted_at") - factories.timedelta(seconds=6))
    reply = made.send("a1")
    assert (reply.status, reply.word) == (409, "start_window_passed")


def test_a_settled_attempt_has_nothing_to_start(world: World) -> None:
    made = sent(world.worker)
    made.report("receipt", made.receipt())
    assert (made.send("a1").status, made.send("a1").word) == (409, "attempt_ended")
    other = made.send("a2")
    assert (other.status, other.word, other.body["reason"]) == (409, "not_sendable", "settled")


def test_a_second_attempt_is_never_given_by_itself(world: World) -> None:
    made = sent(world.worker)
    reply = made.send("a2")
    assert (reply.status, reply.word, reply.body["reason"]) == (409, "not_sendable", "outcome_unknown")


def test_an_unknown_outcome_blocks_its_sibling(world: World) -> None:
    made = working(world.worker, effect("c1"), effect("c2"), effect("c3"), parallel=True)
    one, two, three = made.operations
    made.send("a1", operation=one)
    made.send("a2", operation=two)
    made.report("unknown", made.seen("a1"), operation=one)
    reply = made.send("a3", operation=three)
    assert (reply.status, reply.word, reply.body["reason"]) == (409, "not_sendable", "blocked_by")
    assert reply.body["blocked_by"] == one


def test_an_ordered_call_waits_for_the_one_before(world: World) -> None:
    made = working(world.worker, read(), effect())
    reply = made.send()
    assert (reply.status, reply.word, reply.body["blocked_by"]) == (409, "not_sendable", "r1")


def test_a_token_that_lost_the_lease_gets_no_go(world: World) -> None:
    made = working(world.worker)
    expire_lease(made.run)
    before = rows()
    for _ in range(2):
        reply = made.send()
        assert (reply.status, reply.word) == (409, "stale_token")
    # That it was refused is on record, once.
    assert rows() == {**before, "runs_auditleaf": before["runs_auditleaf"] + 1}
    assert AuditLeaf.objects.latest("id").action == "write.refused"


def test_a_budget_that_would_be_exceeded_pauses_the_run_instead(world: World) -> None:
    made = working(
        world.worker,
        effect(amount={"currency": "EUR", "minor": 1_001}),
        budget={"limit": {"currency": "EUR", "minor": 1_000}},
    )
    reply = made.send()
    assert (reply.status, reply.word, reply.body["reasons"]) == (409, "run_paused", ["budget"])
    assert made.send().body["reasons"] == ["budget"]
    assert Operation.objects.get(pk=made.operation).state == "ready"


def test_a_paused_run_gives_no_go(world: World) -> None:
    made, _ = in_doubt(world.worker)
    assert (made.send("a2").status, made.send("a2").word) == (409, "run_paused")


def test_only_a_worker_of_the_team_is_given_go(world: World) -> None:
    made = working(world.worker)
    before = rows()
    body = {"token": made.token, "attempt_id": "a1"}
    path = f"/operations/{made.operation}/send"
    assert world.stranger.post(path, body).word == "not_found"
    assert world.reader.post(path, body).word == "forbidden"
    assert world.operator.post(path, body).word == "forbidden"
    assert world.worker.post("/operations/op_none/send", body).word == "not_found"
    assert world.worker.post(path, {**body, "token": "1-guessed"}).word == "stale_token"
    assert world.worker.post(path, {**body, "attempt_id": 'a"b'}).body["where"] == "/attempt_id"
    assert rows() == before
