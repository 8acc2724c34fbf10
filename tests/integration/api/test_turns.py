"""POST /runs/{id}/turns and …/calls/{call_id}/result"""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.api.world import World, claim_body, effect, read, rows, sent, started, working


def turn(token: str, *calls: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"token": token, "index": 1, "decision": {"say": "go"}, "calls": list(calls), **fields}


def leased(world: World) -> tuple[str, str]:
    run = started(world.worker)
    return run, world.worker.post(f"/runs/{run}/claim", claim_body()).body["token"]


def test_a_turn_answers_with_its_plan(world: World) -> None:
    run, token = leased(world)
    paid = effect(amount={"currency": "EUR", "minor": 1240})
    reply = world.worker.post(f"/runs/{run}/turns", turn(token, read(), paid, parallel=False))
    assert (reply.status, reply.body["replayed"]) == (201, False)
    plan = reply.body["turn"]
    assert (plan["index"], plan["decision"], plan["parallel"]) == (1, {"say": "go"}, False)
    first, second = plan["calls"]
    assert (first["next"], first["provider"], first["amount"]) == ("read", None, None)
    assert "operation" not in first
    assert (second["next"], second["amount"]) == ("send", {"currency": "EUR", "minor": 1240})
    assert second["operation"]["state"] == "ready"
    assert 1 <= len(second["operation"]["idempotency_key"]) <= 45


def test_the_same_turn_again_is_accepted_also_by_the_next_worker(world: World) -> None:
    run, token = leased(world)
    body = turn(token, read(), effect())
    first = world.worker.post(f"/runs/{run}/turns", body)
    before = rows()
    again = world.worker.post(f"/runs/{run}/turns", body)
    assert (again.status, again.body) == (200, {**first.body, "replayed": True})
    assert rows() == before
    world.worker.post(f"/runs/{run}/release", {"token": token})
    successor = world.worker.post(f"/runs/{run}/claim", claim_body()).body
    saved = successor["plan"]["turns"][0]
    chosen = ("call_id", "tool", "effect", "provider", "args", "amount")
    repeated = {
        "token": successor["token"],
        "index": saved["index"],
        "decision": saved["decision"],
        "parallel": saved["parallel"],
        "calls": [{name: call[name] for name in chosen} for call in saved["calls"]],
    }
    reply = world.worker.post(f"/runs/{run}/turns", repeated)
    assert (reply.status, reply.body["replayed"]) == (200, True)


@pytest.mark.parametrize(
    "change",
    [
        {"decision": {"say": "stop"}},
        {"parallel": True},
        {"calls": []},
        {"calls": [effect(), read()]},
        {"calls": [read(), effect(args={"sku": "FC-21"})]},
        {"calls": [read(), effect(amount={"currency": "EUR", "minor": 1})]},
    ],
    ids=str,
)
def test_another_content_is_refused(world: World, change: dict[str, Any]) -> None:
    run, token = leased(world)
    world.worker.post(f"/runs/{run}/turns", turn(token, read(), effect()))
    before = rows()
    reply = world.worker.post(f"/runs/{run}/turns", turn(token, read(), effect(), **change))
    assert (reply.status, reply.word) == (409, "turn_already_decided")
    assert rows() == before


def test_the_next_turn_waits_for_reads_too(world: World) -> None:
    run, token = leased(world)
    world.worker.post(f"/runs/{run}/turns", turn(token, read()))
    reply = world.worker.post(f"/runs/{run}/turns", turn(token, index=2))
    assert (reply.status, reply.word) == (409, "previous_turn_open")
    world.worker.post(f"/runs/{run}/turns/1/calls/r1/result", {"token": token, "result": 4})
    assert world.worker.post(f"/runs/{run}/turns", turn(token, index=2)).status == 201


def test_an_account_that_there_is_not_is_named_with_its_place_and_nothing_is_saved(world: World) -> None:
    run, token = leased(world)
    before = rows()
    calls = [effect(), effect("c2", provider="nobody")]
    reply = world.worker.post(f"/runs/{run}/turns", turn(token, calls=calls))
    assert (reply.status, reply.word) == (404, "account_not_found")
    assert (reply.body["where"], reply.body["account"]) == ("/calls/1/provider", "nobody")
    assert rows() == before


@pytest.mark.parametrize(
    ("calls", "where"),
    [
        ([effect(provider=None)], "/calls/0/provider"),
        ([read(provider="sandbox-supplier")], "/calls/0"),
        ([read(), effect("r1")], "/calls/1/call_id"),
        ([effect("a b")], "/calls/0/call_id"),
        ([effect(tool="")], "/calls/0/tool"),
        ([effect(tool="x" * 101)], "/calls/0/tool"),
        ([effect(effect=1)], "/calls/0/effect"),
        ([effect(effect="true")], "/calls/0/effect"),
        ([effect(amount={"currency": "XYZ", "minor": 1})], "/calls/0/amount/currency"),
        ([effect(key="mine")], "/calls/0/key"),
        ([read(f"r{number}") for number in range(101)], "/calls"),
        ({}, "/calls"),
    ],
)
def test_calls_that_cant_be_journaled_are_422_with_their_place(world: World, calls: Any, where: str) -> None:
    run, token = leased(world)
    before = rows()
    reply = world.worker.post(f"/runs/{run}/turns", turn(token, calls=calls))
    assert (reply.status, reply.word, reply.body["where"]) == (422, "invalid", where), reply
    assert rows() == before


def test_turns_are_numbered_from_1_without_gaps(world: World) -> None:
    run, token = leased(world)
    for index in (0, -1, 2, 2**53 - 1):
        reply = world.worker.post(f"/runs/{run}/turns", turn(token, index=index))
        assert (reply.status, reply.body["where"]) == (422, "/index"), reply


def test_an_amount_in_another_currency_than_the_budget_is_refused(world: World) -> None:
    run = started(world.worker, budget={"limit": {"currency": "EUR", "minor": 10_000}})
    token = world.worker.post(f"/runs/{run}/claim", claim_body()).body["token"]
    dollars = effect(amount={"currency": "USD", "minor": 1})
    reply = world.worker.post(f"/runs/{run}/turns", turn(token, dollars))
    assert (reply.status, reply.body["where"]) == (422, "/calls/0/amount/currency")


def test_a_turn_needs_the_lease(world: World) -> None:
    run, token = leased(world)
    assert world.worker.post(f"/runs/{run}/turns", turn("1-guessed")).word == "stale_token"
    assert world.stranger.post(f"/runs/{run}/turns", turn(token)).word == "not_found"
    assert world.reader.post(f"/runs/{run}/turns", turn(token)).word == "forbidden"


# --- reads ----------------------------------------------------------------------------------------------


def test_a_reads_result_is_saved_once(world: World) -> None:
    made = working(world.worker, read())
    path = f"/runs/{made.run}/turns/1/calls/r1/result"
    first = world.worker.post(path, {"token": made.token, "result": {"stock": 1}})
    assert (first.status, first.body["call_id"], first.body["replayed"]) == (200, "r1", False)
    assert len(first.body["digest"]) == 64
    before = rows()
    again = world.worker.post(path, {"token": made.token, "result": {"stock": 1.0}})
    assert again.body == {**first.body, "replayed": True}
    other = world.worker.post(path, {"token": made.token, "result": {"stock": 2}})
    assert (other.status, other.word) == (409, "turn_already_decided")
    assert rows() == before
    plan = world.worker.get(f"/runs/{made.run}/plan").body["plan"]
    assert plan["turns"][0]["calls"][0]["result"] == {"stock": 1}


def test_a_null_result_is_a_result(world: World) -> None:
    made = working(world.worker, read())
    path = f"/runs/{made.run}/turns/1/calls/r1/result"
    assert world.worker.post(path, {"token": made.token}).word == "invalid"
    assert world.worker.post(path, {"token": made.token, "result": None}).status == 200
    call = world.worker.get(f"/runs/{made.run}/plan").body["plan"]["turns"][0]["calls"][0]
    assert (call["next"], call["result"]) == ("skip", None)


def test_an_effect_has_no_result_and_a_later_read_waits(world: World) -> None:
    made = sent(world.worker, budget=None)
    path = f"/runs/{made.run}/turns/1/calls/c1/result"
    assert world.worker.post(path, {"token": made.token, "result": 1}).word == "invalid"
    ordered = working(world.worker, effect(), read())
    path = f"/runs/{ordered.run}/turns/1/calls/r1/result"
    reply = world.worker.post(path, {"token": ordered.token, "result": 1})
    assert (reply.status, reply.word, reply.body["blocked_by"]) == (409, "previous_turn_open", "c1")


@pytest.mark.parametrize(
    "path",
    ["turns/2/calls/r1", "turns/1/calls/r2", "turns/99999999999999999999/calls/r1", "turns/0/calls/r1"],
)
def test_a_call_that_isnt_there_is_404(world: World, path: str) -> None:
    made = working(world.worker, read())
    reply = world.worker.post(f"/runs/{made.run}/{path}/result", {"token": made.token, "result": 1})
    assert (reply.status, reply.word) == (404, "not_found")


def test_a_result_needs_the_lease(world: World) -> None:
    made = working(world.worker, read())
    path = f"/runs/{made.run}/turns/1/calls/r1/result"
    assert world.worker.post(path, {"token": "1-guessed", "result": 1}).word == "stale_token"
    assert world.stranger.post(path, {"token": made.token, "result": 1}).word == "not_found"
    assert world.operator.post(path, {"token": made.token, "result": 1}).word == "forbidden"
