"""POST /runs"""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.api.world import World, rows, run_body, started


def test_a_new_run_is_201_and_pinned(world: World) -> None:
    body = run_body(goal="Order it", flow_digest="a" * 64)
    reply = world.worker.post("/runs", body)
    assert (reply.status, reply.body["replayed"]) == (201, False)
    assert reply.body["run"] == {
        "id": reply.body["run"]["id"],
        "state": "open",
        "flow": body["flow"],
        "flow_version": body["flow_version"],
        "external_id": body["external_id"],
        "paused_reasons": [],
    }


def test_the_same_again_is_the_existing_run_whatever_version_or_budget_is_named(world: World) -> None:
    body = run_body(budget={"limit": {"currency": "EUR", "minor": 100}})
    first = world.worker.post("/runs", body)
    before = rows()
    again = world.worker.post("/runs", body)
    other = world.worker.post("/runs", {**body, "flow_version": "7", "budget": None})
    assert (again.status, again.body["replayed"]) == (other.status, other.body["replayed"]) == (200, True)
    assert again.body["run"] == other.body["run"] == first.body["run"]
    assert rows() == before


def test_equal_input_is_equal_by_its_canonical_bytes(world: World) -> None:
    body = run_body(input={"a": 1, "b": [1.5]})
    first = world.worker.post("/runs", body)
    again = world.worker.post("/runs", {**body, "input": {"b": [1.50], "a": 1.0}})
    assert again.status == 200
    assert again.body["run"]["id"] == first.body["run"]["id"]


def test_another_input_is_refused_and_changes_nothing(world: World) -> None:
    body = run_body()
    first = world.worker.post("/runs", body)
    before = rows()
    reply = world.worker.post("/runs", {**body, "input": {"order": 2}})
    assert (reply.status, reply.word) == (409, "external_id_reused")
    assert reply.body["run"] == first.body["run"]["id"]
    assert reply.body["recorded_input_digest"] != reply.body["your_input_digest"]
    assert rows() == before


def test_a_version_under_another_digest_is_refused(world: World) -> None:
    started(world.worker, flow_digest="a" * 64)
    reply = world.worker.post("/runs", run_body(flow_digest="b" * 64))
    assert (reply.status, reply.word) == (409, "flow_version_mismatch")


def test_another_team_has_its_own_flow_of_the_same_name(world: World) -> None:
    body = run_body()
    ours = world.worker.post("/runs", body)
    theirs = world.stranger.post("/runs", {**body, "input": {"order": 2}})
    assert theirs.status == 201
    assert theirs.body["run"]["id"] != ours.body["run"]["id"]


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"flow": " "}, "/flow"),
        ({"flow": "x" * 101}, "/flow"),
        ({"flow_version": ""}, "/flow_version"),
        ({"flow_version": "x" * 101}, "/flow_version"),
        ({"external_id": "x" * 201}, "/external_id"),
        ({"goal": "x" * 501}, "/goal"),
        ({"flow_digest": "xyz"}, "/flow_digest"),
        ({"approval": "apr_nobody_made"}, "/approval"),
        ({"budget": {"limit": {"currency": "EUR", "minor": -1}}}, "/budget/limit/minor"),
        ({"budget": {"limit": {"currency": "EURO", "minor": 1}}}, "/budget/limit/currency"),
        ({"budget": {"limit": {"currency": "EUR", "minor": 1.5}}}, "/budget/limit/minor"),
        ({"budget": {"limit": {"currency": "EUR", "minor": True}}}, "/budget/limit/minor"),
        ({"budget": {"limit": {"currency": "EUR", "minor": 1, "exponent": 3}}}, "/budget/limit/exponent"),
        ({"budget": {}}, "/budget/limit"),
        ({"lease": 1}, "/lease"),
    ],
)
def test_what_no_run_can_have_is_422_with_its_place(world: World, fields: dict[str, Any], where: str) -> None:
    before = rows()
    reply = world.worker.post("/runs", run_body(**fields))
    assert (reply.status, reply.word, reply.body["where"]) == (422, "invalid", where), reply
    assert rows() == before


def test_only_a_worker_starts_runs(world: World) -> None:
    for caller in (world.reader, world.operator):
        reply = caller.post("/runs", run_body())
        assert (reply.status, reply.word) == (403, "forbidden")
        assert reply.body["needed"] == ["journal"]
