"""POST /runs/{id}/renew, /release, /lease/revocation"""

from __future__ import annotations

from typing import Any

import pytest

from runs import leases
from runs.ids import new_id
from runs.models import Freeze
from tests.integration.api.world import World, claim_body, expire_lease, in_doubt, rows, started, working


def test_a_renewal_moves_the_end(world: World) -> None:
    made = working(world.worker)
    reply = world.worker.post(f"/runs/{made.run}/renew", {"token": made.token, "lease_seconds": 900})
    assert reply.status == 200
    assert set(reply.body) == {"expires_at", "expires_in_ms"}
    assert 899_000 <= reply.body["expires_in_ms"] <= 900_000


def test_a_renewal_after_the_end_is_too_late(world: World) -> None:
    made = working(world.worker)
    expire_lease(made.run)
    reply = world.worker.post(f"/runs/{made.run}/renew", {"token": made.token})
    assert (reply.status, reply.word) == (409, "stale_token")


def test_a_renewal_of_a_paused_run_says_so(world: World) -> None:
    made, _ = in_doubt(world.worker)
    reply = world.worker.post(f"/runs/{made.run}/renew", {"token": made.token})
    assert (reply.status, reply.word, reply.body["reasons"]) == (409, "run_paused", ["outcome"])


def test_a_release_makes_the_run_claimable_and_can_be_repeated(world: World) -> None:
    made = working(world.worker)
    first = world.worker.post(f"/runs/{made.run}/release", {"token": made.token})
    assert (first.status, first.body["replayed"], first.body["run"]["state"]) == (200, False, "open")
    before = rows()
    again = world.worker.post(f"/runs/{made.run}/release", {"token": made.token})
    assert (again.status, again.body["replayed"]) == (200, True)
    assert rows() == before
    assert world.worker.post(f"/runs/{made.run}/claim", claim_body()).status == 200
    late = world.worker.post(f"/runs/{made.run}/release", {"token": made.token})
    assert (late.status, late.body["replayed"]) == (200, True)


@pytest.mark.parametrize("call", ["renew", "release"])
def test_a_foreign_token_does_nothing(world: World, call: str) -> None:
    made = working(world.worker)
    before = rows()
    reply = world.worker.post(f"/runs/{made.run}/{call}", {"token": "1-guessed"})
    assert (reply.status, reply.word) == (409, "stale_token")
    assert world.stranger.post(f"/runs/{made.run}/{call}", {"token": made.token}).status == 404
    assert world.operator.post(f"/runs/{made.run}/{call}", {"token": made.token}).status == 403
    assert rows() == before


def test_a_person_ends_the_lease_they_saw(world: World) -> None:
    made = working(world.worker)
    number = world.operator.get(f"/runs/{made.run}").body["run"]["lease"]["number"]
    body = {"lease": number, "reason": "it has been stuck since noon"}
    first = world.operator.post(f"/runs/{made.run}/lease/revocation", body)
    assert (first.status, first.body["replayed"]) == (200, False)
    assert world.worker.post(f"/runs/{made.run}/renew", {"token": made.token}).word == "stale_token"
    again = world.operator.post(f"/runs/{made.run}/lease/revocation", body)
    assert (again.status, again.body["replayed"]) == (200, True)


def test_a_repeated_revocation_leaves_the_next_lease_alone(world: World) -> None:
    made = working(world.worker)
    body = {"lease": 1, "reason": "it has been stuck since noon"}
    world.operator.post(f"/runs/{made.run}/lease/revocation", body)
    token = world.worker.post(f"/runs/{made.run}/claim", claim_body()).body["token"]
    again = world.operator.post(f"/runs/{made.run}/lease/revocation", body)
    assert (again.status, again.body["replayed"]) == (200, True)
    assert world.worker.post(f"/runs/{made.run}/renew", {"token": token}).status == 200


def test_a_lease_that_isnt_there_cant_be_ended(world: World) -> None:
    run = started(world.worker)
    body = {"lease": 1, "reason": "it has been stuck since noon"}
    reply = world.operator.post(f"/runs/{run}/lease/revocation", body)
    assert (reply.status, reply.word) == (409, "stale_token")


def test_only_a_person_of_the_team_ends_leases(world: World) -> None:
    made = working(world.worker)
    before = rows()
    body = {"lease": 1, "reason": "it has been stuck since noon"}
    path = f"/runs/{made.run}/lease/revocation"
    assert world.worker.post(path, body).word == "forbidden"
    assert world.reader.post(path, body).word == "forbidden"
    assert world.strange_operator.post(path, body).word == "not_found"
    assert world.operator.post(path, {"lease": 1, "reason": ""}).word == "invalid"
    assert rows() == before


# What each call that a lease allows takes beside the token.
FENCED: dict[str, dict[str, Any]] = {
    "renew": {},
    "release": {},
    "turns": {"index": 2, "decision": {}, "parallel": False, "calls": []},
    "turns/1/calls/r1/result": {"result": 1},
    "complete": {"output": None},
}


@pytest.mark.parametrize("call", FENCED)
def test_whatever_a_worker_asks_for_by_a_forgotten_lease_freezes_sending(world: World, call: str) -> None:
    made = working(world.worker)
    path, body = f"/runs/{made.run}/{call}", FENCED[call]
    assert world.worker.post(path, {**body, "token": f"2{made.token[1:]}"}).word == "stale_token"
    assert not Freeze.objects.exists(), "a lease that somebody made up froze sending"
    forgotten = leases.new_token(made.run, 2)
    assert world.worker.post(path, {**body, "token": forgotten}).word == "stale_token"
    assert made.run in Freeze.objects.get().because


def test_a_lease_of_a_run_that_was_forgotten_freezes_sending(world: World) -> None:
    gone = new_id("run")
    path = f"/runs/{gone}/renew"
    assert world.worker.post(path, {"token": f"1-{'0' * 40}"}).word == "not_found"
    assert not Freeze.objects.exists()
    assert world.worker.post(path, {"token": leases.new_token(gone, 1)}).word == "not_found"
    assert "doesn't know that run" in Freeze.objects.get().because
