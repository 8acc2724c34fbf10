"""POST /cases/{id}/confirmation, /retry, /abandonment, /absence, /acceptance, /compensation"""

from __future__ import annotations

from typing import Any

import pytest

from console.models import Role, Scope
from reconciliation.models import Case, Decision
from runs.models import Grant, Operation
from tests.integration.api.world import (
    Caller,
    Working,
    World,
    claim_body,
    decision,
    in_doubt,
    in_doubt_where_it_can_be_undone,
    person,
    rows,
    sent,
    token,
)

DECISIONS = ["confirmation", "retry", "abandonment", "absence", "acceptance", "compensation"]
OWN: dict[str, dict[str, Any]] = {
    "retry": {"executor": "agent"},
    "abandonment": {"then": "continue"},
    "absence": {"then": "continue"},
}


def record(made: Working, reference: str = "ord_77", **fields: Any) -> dict[str, Any]:
    return made.receipt(reference)["body"] | fields  # type: ignore[no-any-return]


def test_a_person_confirms_with_the_providers_record(world: World) -> None:
    made, case = in_doubt(world.worker)
    body = decision(
        world.operator,
        case,
        reason_code="provider_record",
        receipt={"reference": "ord_77", "body": record(made)},
    )
    reply = world.operator.decide(f"/cases/{case}/confirmation", body, key="k1")
    assert reply.status == 200, reply
    assert reply.body["case"] == {
        "id": case,
        "state": "resolved",
        "version": reply.body["case"]["version"],
        "resolution": "confirmed",
    }
    assert reply.body["operation"] == {"id": made.operation, "state": "confirmed"}
    assert reply.body["run"] == {"id": made.run, "state": "open", "paused_reasons": []}
    assert (reply.body["action"], reply.body["grant"], reply.body["replayed"]) == ("confirm", None, False)
    kept = Decision.objects.get(case=case)
    assert (kept.actor, kept.actor_role) == (f"person:{world.maya.pk}", "operator")
    assert kept.actor_name == "Maya Test"
    plan = world.worker.post(f"/runs/{made.run}/claim", claim_body()).body["plan"]
    assert plan["turns"][0]["calls"][0]["receipt"]["reference"] == "ord_77"


def test_a_repeat_under_its_key_is_the_first_answer(world: World) -> None:
    made, case = in_doubt(world.worker)
    body = decision(world.operator, case, receipt={"reference": "ord_77", "body": record(made)})
    first = world.operator.decide(f"/cases/{case}/confirmation", body, key="k1")
    before = rows()
    again = world.operator.decide(f"/cases/{case}/confirmation", body, key="k1")
    assert (again.status, again.body) == (200, {**first.body, "replayed": True})
    other = world.operator.decide(f"/cases/{case}/confirmation", {**body, "reason": "Another one."}, key="k1")
    assert (other.status, other.word) == (409, "idempotency_key_reused")
    elsewhere = world.operator.decide(
        f"/cases/{case}/abandonment",
        {**{name: value for name, value in body.items() if name != "receipt"}, "then": "end"},
        key="k1",
    )
    assert elsewhere.word == "idempotency_key_reused"
    assert rows() == before


def test_confirming_without_a_receipt_takes_a_second_person(world: World) -> None:
    made, case = in_doubt(world.worker)
    receipt = {"reference": "ord_77", "body": record(made, quantity=41)}
    body = decision(world.operator, case, receipt=receipt)
    reply = world.operator.decide(f"/cases/{case}/confirmation", body, key="k1")
    assert reply.status == 202, reply
    assert "quantity" in reply.body["why"]
    assert reply.body["case"]["state"] == "awaiting_approval"
    assert reply.body["operation"]["state"] == "sent_unknown"
    assert 0 < reply.body["expires_in_ms"] <= 24 * 3_600_000
    again = world.operator.decide(f"/cases/{case}/confirmation", body, key="k1")
    assert (again.status, again.body) == (202, {**reply.body, "replayed": True})


def test_a_person_gives_an_obligation_up_and_the_run_goes_on(world: World) -> None:
    made, case = in_doubt(world.worker)
    body = decision(world.operator, case, then="continue")
    reply = world.operator.decide(f"/cases/{case}/abandonment", body)
    assert (reply.status, reply.body["operation"]["state"]) == (200, "abandoned")
    assert reply.body["run"]["state"] == "open"
    call = world.worker.get(f"/runs/{made.run}/plan").body["plan"]["turns"][0]["calls"][0]
    assert call["next"] == "skip"
    assert call["abandoned"]["known_effect"]


@pytest.mark.usefixtures("configured")
def test_making_absent_always_takes_a_second_person_and_only_where_it_is_offered(world: World) -> None:
    _, elsewhere = in_doubt(world.worker)
    body = decision(world.operator, elsewhere, then="continue")
    refused = world.operator.decide(f"/cases/{elsewhere}/absence", body)
    assert (refused.status, refused.word) == (423, "action_locked")
    case = in_doubt_where_it_can_be_undone(world.worker)
    body = decision(world.operator, case, then="continue")
    reply = world.operator.decide(f"/cases/{case}/absence", body)
    assert (reply.status, reply.body["action"]) == (202, "make_absent"), reply
    shown = world.operator.get(f"/approvals/{reply.body['approval']}").body["approval"]
    assert (shown["kind"], shown["content"]["facts"]["request"]) == (
        "make_absent",
        "POST /acct/payments/refunds/cancellation",
    )


def test_giving_up_may_end_the_run(world: World) -> None:
    _, case = in_doubt(world.worker)
    reply = world.operator.decide(f"/cases/{case}/abandonment", decision(world.operator, case, then="end"))
    assert (reply.status, reply.body["run"]["state"]) == (200, "abandoned")


def test_a_retry_waits_for_its_fresh_lookup(world: World) -> None:
    made, case = in_doubt(world.worker)
    body = decision(world.operator, case, executor="agent")
    reply = world.operator.decide(f"/cases/{case}/retry", body)
    assert (reply.status, reply.body["case"]["state"], reply.body["grant"]) == (200, "retrying", None)
    assert Operation.objects.get(pk=made.operation).state == "sent_unknown"
    assert Grant.objects.count() == 0
    locked = world.operator.decide(f"/cases/{case}/retry", decision(world.operator, case, executor="agent"))
    assert (locked.status, locked.word) == (423, "action_locked")


def test_a_retry_is_locked_while_the_sender_may_still_send(world: World) -> None:
    made = sent(world.worker)
    case = made.report("unknown", made.seen()).body["case"]
    reply = world.operator.decide(f"/cases/{case}/retry", decision(world.operator, case, executor="agent"))
    assert (reply.status, reply.word, reply.body["question"]) == (423, "action_locked", 4)
    assert reply.body["unlocks_at"]


def test_a_conflict_after_the_fact_is_accepted_or_compensated(world: World) -> None:
    for what, resolution in (("acceptance", "accepted"), ("compensation", "compensated")):
        made = sent(world.worker)
        made.report("receipt", made.receipt())
        case = made.report("receipt", made.receipt(f"second_{made.operation}", attempt_id="a9")).body["case"]
        locked = world.operator.decide(
            f"/cases/{case}/retry", decision(world.operator, case, executor="agent")
        )
        assert (locked.status, locked.word) == (423, "action_locked")
        reply = world.operator.decide(f"/cases/{case}/{what}", decision(world.operator, case))
        assert (reply.status, reply.body["case"]["resolution"]) == (200, resolution), reply
        assert reply.body["operation"]["state"] == "confirmed"


@pytest.mark.parametrize("what", ["acceptance", "compensation"])
def test_there_is_no_extra_effect_to_accept_in_an_open_question(world: World, what: str) -> None:
    _, case = in_doubt(world.worker)
    reply = world.operator.decide(f"/cases/{case}/{what}", decision(world.operator, case))
    assert (reply.status, reply.word) == (423, "action_locked")


@pytest.mark.parametrize("what", DECISIONS)
def test_a_stale_decision_is_refused_with_what_changed(world: World, what: str) -> None:
    made, case = in_doubt(world.worker)
    body = {**decision(world.operator, case), **OWN.get(what, {})}
    made.report("unknown", made.seen("stray", error="another word of it"))
    before = rows()
    for changed in (body, {**body, "seen_version": Case.objects.get(pk=case).version}):
        reply = world.operator.decide(f"/cases/{case}/{what}", changed)
        assert (reply.status, reply.word) == (409, "decision_stale"), reply
        assert reply.body["changed"]
        assert reply.body["version"] == Case.objects.get(pk=case).version
    assert rows() == before


def test_the_second_of_two_is_told_who_was_first(world: World) -> None:
    made, case = in_doubt(world.worker)
    second = Caller(token(Scope.DECIDE, owner=person("priya", Role.OPERATOR)))
    body = decision(world.operator, case, then="continue")
    assert world.operator.decide(f"/cases/{case}/abandonment", body).status == 200
    reply = second.decide(f"/cases/{case}/abandonment", body)
    assert (reply.status, reply.word, reply.body["by"]) == (409, "decision_stale", "Maya Test")
    assert reply.body["their_reason"] == body["reason"]
    assert made.operation


@pytest.mark.parametrize("what", DECISIONS)
def test_nobody_decides_without_the_scope_role_and_team(world: World, what: str) -> None:
    _, case = in_doubt(world.worker)
    body = {**decision(world.operator, case), **OWN.get(what, {})}
    viewer = Caller(token(Scope.DECIDE, owner=person("vera", Role.VIEWER, Role.APPROVER, Role.AUDITOR)))
    before = rows()
    for caller in (world.worker, world.reader, viewer):
        reply = caller.decide(f"/cases/{case}/{what}", body)
        assert (reply.status, reply.word) == (403, "forbidden"), reply
    hidden = world.strange_operator.decide(f"/cases/{case}/{what}", body)
    assert (hidden.status, hidden.word) == (404, "not_found")
    assert Caller("").decide(f"/cases/{case}/{what}", body).status == 401
    assert rows() == before


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"reason": "short"}, "/reason"),
        ({"reason": "x" * 4_001}, "/reason"),
        ({"reason_code": "because"}, "/reason_code"),
        ({"seen_version": "1"}, "/seen_version"),
        ({"executor": "agent"}, "/executor"),
        ({"then": "stop"}, "/then"),
    ],
)
def test_a_decision_that_cant_be_read_is_422(world: World, fields: dict[str, Any], where: str) -> None:
    _, case = in_doubt(world.worker)
    before = rows()
    body = {**decision(world.operator, case, then="continue"), **fields}
    reply = world.operator.decide(f"/cases/{case}/abandonment", body)
    assert (reply.status, reply.word, reply.body["where"]) == (422, "invalid", where), reply
    assert rows() == before


def test_a_receipt_is_named_or_given(world: World) -> None:
    made, case = in_doubt(world.worker)
    receipt = {"evidence_id": "ev_1", "body": record(made)}
    reply = world.operator.decide(
        f"/cases/{case}/confirmation", decision(world.operator, case, receipt=receipt)
    )
    assert (reply.status, reply.body["where"]) == (422, "/receipt")


def test_every_decision_needs_a_key(world: World) -> None:
    _, case = in_doubt(world.worker)
    before = rows()
    for what in DECISIONS:
        body = {**decision(world.operator, case), **OWN.get(what, {})}
        missing = world.operator.post(f"/cases/{case}/{what}", body)
        assert (missing.status, missing.body["where"]) == (422, "header: Idempotency-Key"), missing
        for bad in ("x" * 101, "a b", "é", "a\x00b"):
            reply = world.operator.decide(f"/cases/{case}/{what}", body, key=bad)
            assert (reply.status, reply.body["where"]) == (422, "header: Idempotency-Key"), reply
    assert rows() == before
