"""POST /runs/{id}/complete and /abandonment"""

from __future__ import annotations

from runs.models import Operation
from tests.integration.api.world import (
    World,
    claim_body,
    effect,
    in_doubt,
    read,
    rows,
    sent,
    started,
    working,
)


def test_a_run_completes_once_with_its_output(world: World) -> None:
    made = sent(world.worker)
    made.report("receipt", made.receipt())
    body = {"token": made.token, "output": {"ordered": 40}}
    first = world.worker.post(f"/runs/{made.run}/complete", body)
    assert (first.status, first.body["run"]["state"], first.body["replayed"]) == (200, "completed", False)
    before = rows()
    again = world.worker.post(f"/runs/{made.run}/complete", body)
    assert (again.status, again.body) == (200, {**first.body, "replayed": True})
    other = world.worker.post(f"/runs/{made.run}/complete", {**body, "output": None})
    assert (other.status, other.word, other.body["state"]) == (409, "run_ended", "completed")
    assert rows() == before
    shown = world.reader.get(f"/runs/{made.run}").body["run"]
    assert (shown["output"], shown["lease"]) == ({"ordered": 40}, None)
    assert shown["ended_ago_ms"] >= 0


def test_a_run_without_turns_completes(world: World) -> None:
    run = started(world.worker)
    token = world.worker.post(f"/runs/{run}/claim", claim_body()).body["token"]
    assert world.worker.post(f"/runs/{run}/complete", {"token": token, "output": None}).status == 200


def test_open_calls_keep_a_run_open(world: World) -> None:
    made = working(world.worker, read(), effect())
    before = rows()
    reply = world.worker.post(f"/runs/{made.run}/complete", {"token": made.token, "output": None})
    assert (reply.status, reply.word) == (409, "operations_open")
    assert (reply.body["operations"], reply.body["calls"]) == ([made.operation], ["r1"])
    assert rows() == before


def test_a_run_in_doubt_cant_be_completed(world: World) -> None:
    made, _ = in_doubt(world.worker)
    reply = world.worker.post(f"/runs/{made.run}/complete", {"token": made.token, "output": None})
    assert (reply.status, reply.word) == (409, "run_paused")


def test_completing_needs_the_lease(world: World) -> None:
    made = working(world.worker)
    path, body = f"/runs/{made.run}/complete", {"token": made.token, "output": None}
    assert world.worker.post(path, {**body, "token": "1-guessed"}).word == "stale_token"
    assert world.stranger.post(path, body).word == "not_found"
    assert world.operator.post(path, body).word == "forbidden"
    assert world.worker.post(path, {"token": made.token}).body["where"] == "/output"


def test_a_person_gives_a_run_up_and_its_cases_stay(world: World) -> None:
    made = working(world.worker, effect("c1"), effect("c2"), parallel=True)
    made.send()
    case = made.report("unknown", made.seen()).body["case"]
    body = {"reason": "the customer has cancelled"}
    first = world.operator.post(f"/runs/{made.run}/abandonment", body)
    assert (first.status, first.body["run"]["state"], first.body["replayed"]) == (200, "abandoned", False)
    again = world.operator.post(f"/runs/{made.run}/abandonment", body)
    assert (again.status, again.body["replayed"]) == (200, True)
    states = dict(Operation.objects.values_list("id", "state"))
    assert [states[one] for one in made.operations] == ["sent_unknown", "abandoned"]
    assert world.reader.get(f"/cases/{case}").body["case"]["state"] != "resolved"
    assert world.reader.get(f"/runs/{made.run}").body["run"]["open_cases"] == [case]


def test_a_completed_run_cant_be_given_up(world: World) -> None:
    run = started(world.worker)
    token = world.worker.post(f"/runs/{run}/claim", claim_body()).body["token"]
    world.worker.post(f"/runs/{run}/complete", {"token": token, "output": None})
    reply = world.operator.post(f"/runs/{run}/abandonment", {"reason": "not needed any more"})
    assert (reply.status, reply.word) == (409, "run_ended")


def test_no_worker_gives_a_run_up(world: World) -> None:
    run = started(world.worker)
    before = rows()
    path, body = f"/runs/{run}/abandonment", {"reason": "not needed any more"}
    assert world.worker.post(path, body).word == "forbidden"
    assert world.reader.post(path, body).word == "forbidden"
    assert world.strange_operator.post(path, body).word == "not_found"
    assert world.operator.post(path, {"reason": ""}).word == "invalid"
    assert world.operator.post(path, {"reason": "x" * 4001}).word == "invalid"
    assert rows() == before
