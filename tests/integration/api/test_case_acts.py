"""POST /cases/{id}/lookup, /evidence, /retry/withdrawal"""

from __future__ import annotations

import base64
from typing import Any

import pytest

from reconciliation.models import Case
from runs.models import Evidence
from tests.integration.api.world import World, decision, in_doubt, rows

ATTACHED = {"summary": "The supplier's letter", "reference": "ord_77", "body": {"order": "none"}}


def test_a_lookup_is_due_at_once_and_moves_no_version(world: World) -> None:
    _, case = in_doubt(world.worker)
    Case.objects.filter(pk=case).update(next_lookup_at=None)
    version = Case.objects.get(pk=case).version
    for _ in range(2):
        reply = world.operator.post(f"/cases/{case}/lookup", {})
        assert (reply.status, reply.body["case"]["version"]) == (202, version)
        assert reply.body["next_lookup_in_ms"] == 0
    assert Case.objects.get(pk=case).next_lookup_at is not None


def test_attached_evidence_stands_beside_the_rest(world: World) -> None:
    made, case = in_doubt(world.worker)
    version = Case.objects.get(pk=case).version
    first = world.operator.post(f"/cases/{case}/evidence", ATTACHED)
    assert (first.status, first.body["replayed"]) == (201, False)
    assert first.body["case"]["version"] == version + 1
    kept = Evidence.objects.get(pk=first.body["evidence"])
    assert (kept.kind, kept.claim, kept.actor) == ("attachment", "unknown", f"person:{world.maya.pk}")
    assert bytes(kept.body or b"") == b'{"order":"none"}'
    before = rows()
    again = world.operator.post(f"/cases/{case}/evidence", ATTACHED)
    assert (again.status, again.body) == (200, {**first.body, "replayed": True})
    assert rows() == before
    shown = world.reader.get(f"/cases/{case}").body["case"]
    assert shown["evidence"][0]["body"] == '{"order":"none"}'
    assert shown["operation"] == made.operation


def test_new_evidence_makes_a_decision_stale(world: World) -> None:
    _, case = in_doubt(world.worker)
    body = decision(world.operator, case, then="continue")
    world.operator.post(f"/cases/{case}/evidence", ATTACHED)
    assert world.operator.decide(f"/cases/{case}/abandonment", body).word == "decision_stale"


def test_a_resolved_case_still_takes_evidence(world: World) -> None:
    _, case = in_doubt(world.worker)
    world.operator.decide(f"/cases/{case}/abandonment", decision(world.operator, case, then="continue"))
    version = Case.objects.get(pk=case).version
    reply = world.operator.post(f"/cases/{case}/evidence", ATTACHED)
    assert (reply.status, reply.body["case"]["version"]) == (201, version)


@pytest.mark.parametrize(
    ("fields", "status", "where"),
    [
        ({"summary": ""}, 422, "/summary"),
        ({"summary": "x" * 501}, 422, "/summary"),
        ({"reference": "x" * 301}, 422, "/reference"),
        ({"body": "x" * 65_537}, 413, None),
        ({"body": None, "body_base64": "?"}, 422, "/body_base64"),
        ({"body": None, "body_base64": base64.b64encode(b"x" * 65_537).decode()}, 413, None),
    ],
)
def test_an_attachment_that_couldnt_be_kept_whole_is_refused(
    world: World, fields: dict[str, Any], status: int, where: str | None
) -> None:
    _, case = in_doubt(world.worker)
    before = rows()
    reply = world.operator.post(f"/cases/{case}/evidence", {**ATTACHED, **fields})
    assert (reply.status, reply.body.get("where")) == (status, where), reply
    assert rows() == before


def test_a_pending_retry_can_be_taken_back(world: World) -> None:
    _, case = in_doubt(world.worker)
    body = {"reason": "the supplier has answered after all"}
    none = world.operator.post(f"/cases/{case}/retry/withdrawal", body)
    assert (none.status, none.body["withdrawn"]) == (200, False)
    world.operator.decide(f"/cases/{case}/retry", decision(world.operator, case, executor="agent"))
    reply = world.operator.post(f"/cases/{case}/retry/withdrawal", body)
    assert (reply.status, reply.body["withdrawn"]) == (200, True)
    assert reply.body["case"]["state"] == "needs_decision"
    again = world.operator.post(f"/cases/{case}/retry/withdrawal", body)
    assert (again.status, again.body["withdrawn"]) == (200, False)


@pytest.mark.parametrize(
    ("what", "body"),
    [("lookup", {}), ("evidence", ATTACHED), ("retry/withdrawal", {"reason": "never mind, thank you"})],
)
def test_only_a_person_of_the_team_acts_on_a_case(world: World, what: str, body: dict[str, Any]) -> None:
    _, case = in_doubt(world.worker)
    before = rows()
    for caller in (world.worker, world.reader):
        assert caller.post(f"/cases/{case}/{what}", body).word == "forbidden"
    assert world.strange_operator.post(f"/cases/{case}/{what}", body).word == "not_found"
    assert world.operator.post(f"/cases/case_none/{what}", body).word == "not_found"
    assert world.operator.post(f"/cases/{case}/{what}", {**body, "force": True}).word == "invalid"
    assert rows() == before
