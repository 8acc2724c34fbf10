"""The calls about approvals: asked for by a decision, read whole, answered by another human being."""

from __future__ import annotations

import pytest

from console.models import Role, Scope
from runs.canonical import canonicalise
from tests.integration.api.test_case_decisions import decision, in_doubt
from tests.integration.api.world import Caller, Reply, World, person, token

pytestmark = pytest.mark.django_db


@pytest.fixture
def approver(world: World) -> Caller:
    return Caller(token(Scope.DECIDE, owner=person("dana", Role.APPROVER)))


def requested(world: World) -> tuple[str, str]:
    """A case that waits for a second person, and the request."""
    _, case = in_doubt(world.worker)
    reply = world.operator.decide(f"/cases/{case}/confirmation", decision(world.operator, case, receipt=None))
    assert reply.status == 202, reply
    return case, reply.body["approval"]


def approve(caller: Caller, approval: str, *, content_digest: str | None = None) -> Reply:
    shown = caller.get(f"/approvals/{approval}").body["approval"]
    return caller.post(
        f"/approvals/{approval}/approval",
        {"content_digest": content_digest or shown["content_digest"], "comment": "Seen in their console."},
    )


def test_a_request_is_read_with_all_that_is_consented_to(world: World, approver: Caller) -> None:
    case, approval = requested(world)
    shown = approver.get(f"/approvals/{approval}").body["approval"]
    assert (shown["case"], shown["state"], shown["kind"]) == (case, "requested", "override")
    assert canonicalise(shown["content"]).digest == shown["content_digest"]
    assert shown["title"] == "Confirm without a receipt"
    assert world.reader.get(f"/approvals?case={case}").body["approvals"][0]["id"] == approval
    assert world.reader.get("/approvals?state=refused").body == {"approvals": [], "next": None}
    assert world.reader.get("/approvals?statee=refused").word == "invalid"


def test_the_second_person_approves_once_and_the_case_is_decided(world: World, approver: Caller) -> None:
    _case, approval = requested(world)
    assert approve(approver, approval, content_digest="0" * 64).word == "invalid"
    done = approve(approver, approval)
    assert (done.status, done.body["approval"]["state"], done.body["case"]["resolution"]) == (
        200,
        "carried_out",
        "confirmed",
    ), done
    again = approve(approver, approval)
    assert again.body["replayed"]
    assert again.body["decision"] == done.body["decision"]
    late = approver.post(f"/approvals/{approval}/refusal", {"comment": "Not after all."})
    assert (late.status, late.word, late.body["state"]) == (409, "approval_answered", "carried_out")


def test_the_requester_gets_nowhere_by_a_second_token_of_theirs(world: World) -> None:
    _, approval = requested(world)
    asker = world.maya
    asker.roles = ["approver", "operator"]
    asker.save()
    second = Caller(token(Scope.DECIDE, owner=asker))
    reply = approve(second, approval)
    assert (reply.status, reply.word) == (403, "own_approval"), reply


def test_questions_replies_refusals_and_withdrawals(world: World, approver: Caller) -> None:
    case, approval = requested(world)
    asked = approver.post(f"/approvals/{approval}/question", {"text": "Which ticket?"}, idempotency_key="q1")
    assert asked.status == 201, asked
    keyless = approver.post(f"/approvals/{approval}/question", {"text": "Which ticket?"})
    assert keyless.word == "invalid"
    told = world.operator.post(f"/approvals/{approval}/reply", {"text": "It is 4711."}, idempotency_key="r1")
    assert told.status == 201, told
    thread = approver.get(f"/approvals/{approval}").body["approval"]["messages"]
    assert [one["kind"] for one in thread] == ["question", "reply"]
    refused = approver.post(f"/approvals/{approval}/refusal", {"comment": "Ask the provider first."})
    assert (refused.status, refused.body["case"]["state"]) == (200, "needs_decision")
    gone = world.operator.post(f"/approvals/{approval}/withdrawal", {"comment": "Never mind."})
    assert (gone.word, gone.body["comment"]) == ("approval_answered", "Ask the provider first.")
    again = world.operator.decide(
        f"/cases/{case}/confirmation", decision(world.operator, case, receipt=None)
    ).body["approval"]
    back = world.operator.post(f"/approvals/{again}/withdrawal", {"comment": "Never mind."})
    assert (back.status, back.body["approval"]["state"]) == (200, "withdrawn")


def test_what_changed_meanwhile_voids_it_and_is_told(world: World, approver: Caller) -> None:
    case, approval = requested(world)
    digest = approver.get(f"/approvals/{approval}").body["approval"]["content_digest"]
    assert world.operator.post(f"/cases/{case}/evidence", {"summary": "They called back."}).status == 201
    reply = approve(approver, approval, content_digest=digest)
    assert (reply.status, reply.word) == (409, "approval_void"), reply
    assert reply.body["changed"]


def test_another_teams_request_is_not_there(world: World) -> None:
    _, approval = requested(world)
    stranger = Caller(token(Scope.DECIDE, team="other", owner=person("eve", Role.APPROVER, team="other")))
    body = {"content_digest": "0" * 64, "comment": "Just looking."}
    assert stranger.get(f"/approvals/{approval}").word == "not_found"
    assert stranger.post(f"/approvals/{approval}/approval", body).word == "not_found"
