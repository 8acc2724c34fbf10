"""POST /runs/{id}/renew, /release, /lease/revocation"""

from __future__ import annotations

import pytest

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
