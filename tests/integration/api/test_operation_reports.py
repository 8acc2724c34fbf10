"""POST /operations/{id}/receipt, /rejection, /not-sent, /unknown"""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest

from runs.models import Evidence, Operation, Receipt
from tests.integration.api.world import (
    Working,
    World,
    decision,
    effect,
    expire_lease,
    in_doubt,
    rows,
    sent,
    working,
)

# Repeats meet unique constraints, which end a transaction that a test would hold open.
pytestmark = pytest.mark.usefixtures("transactional_db")


def test_a_receipt_confirms(world: World) -> None:
    made = sent(world.worker)
    body = made.receipt()
    reply = made.report("receipt", body)
    assert reply.status == 200
    assert reply.body == {
        "operation": {"id": made.operation, "state": "confirmed"},
        "attempt": {"attempt_id": "a1", "number": 1, "outcome": "receipt"},
        "next": "continue",
        "case": None,
        "recorded_as_evidence": False,
        "replayed": False,
    }
    receipt = Receipt.objects.get(operation=made.operation)
    assert (receipt.reference, receipt.matched_by) == (body["reference"], "key")
    call = world.worker.get(f"/runs/{made.run}/plan").body["plan"]["turns"][0]["calls"][0]
    assert (call["next"], call["receipt"]["reference"]) == ("skip", body["reference"])
    assert call["receipt"]["body"] == body["body"]


def test_the_same_report_again_is_the_same_answer_at_any_time(world: World) -> None:
    made = sent(world.worker)
    body = made.receipt()
    first = made.report("receipt", body)
    before = rows()
    again = made.report("receipt", body)
    assert (again.status, again.body) == (200, {**first.body, "replayed": True})
    expire_lease(made.run)
    late = made.report("receipt", {**body, "body": dict(reversed(body["body"].items()))})
    assert (late.status, late.body) == (200, {**first.body, "replayed": True})
    assert rows() == before


@pytest.mark.parametrize("form", ["text", "base64"])
def test_a_record_may_come_as_text_or_bytes(world: World, form: str) -> None:
    made = sent(world.worker)
    body = made.receipt()
    record = f'{{"id": "{body["reference"]}", "idempotency_key": "{made.key}", "status": "succeeded",'
    record += '"sku": "FC-20", "quantity": 40}'
    given = (
        {"body": record} if form == "text" else {"body_base64": base64.b64encode(record.encode()).decode()}
    )
    if form == "base64":
        del body["body"]
    reply = made.report("receipt", {**body, **given, "status": 201, "headers": [["Date", "now"]]})
    assert (reply.status, reply.body["operation"]["state"]) == (200, "confirmed"), reply


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"record": {"quantity": 41}}, "quantity"),
        ({"record": {"idempotency_key": "another"}}, "key"),
        ({"reference": "ord_other", "record": {"id": "ord_mine"}}, "reference"),
        ({"body": "not a record"}, ""),
    ],
)
def test_a_receipt_of_something_else_is_kept_and_refused(
    world: World, change: dict[str, Any], problem: str
) -> None:
    made = sent(world.worker)
    body = made.receipt(**{name: value for name, value in change.items() if name != "body"})
    body |= {"body": change["body"]} if "body" in change else {}
    reply = made.report("receipt", body)
    assert (reply.status, reply.word) == (409, "receipt_mismatch"), reply
    assert problem in " ".join(reply.body["problems"])
    assert reply.body["case"].startswith("case_")
    assert Evidence.objects.filter(operation=made.operation, claim="receipt").count() == 1
    again = made.report("receipt", body)
    assert (again.status, again.word, again.body["replayed"]) == (409, "receipt_mismatch", True)
    assert again.body["case"] == reply.body["case"]
    case = world.worker.get(f"/cases/{reply.body['case']}").body["case"]
    assert case["need"] == "mismatch", case


@pytest.mark.parametrize("status", ["pending", "failed"])
def test_our_own_record_that_has_not_succeeded_is_refused_and_looked_up(world: World, status: str) -> None:
    made = sent(world.worker)
    reply = made.report("receipt", made.receipt(record={"status": status}))
    assert (reply.status, reply.word) == (409, "receipt_mismatch"), reply
    case = world.worker.get(f"/cases/{reply.body['case']}").body["case"]
    assert (case["state"], case["need"]) == ("looking_up", None), case


def test_one_receipt_confirms_one_operation(world: World) -> None:
    first, second = sent(world.worker), sent(world.worker)
    first.report("receipt", first.receipt("ord_1"))
    # The same reference in a record that carries the second operation's own key.
    reply = second.report("receipt", second.receipt("ord_1"))
    assert (reply.status, reply.word) == (409, "receipt_reused"), reply
    assert reply.body["confirmed_operation"] == first.operation
    for made in (first, second):
        listed = world.worker.get(f"/cases?operation={made.operation}").body["cases"]
        assert [case["kind"] for case in listed] == ["conflict"]
    again = second.report("receipt", second.receipt("ord_1"))
    assert (again.status, again.word, again.body["replayed"]) == (409, "receipt_reused", True)


def test_a_refusal_of_the_only_attempt_settles_it(world: World) -> None:
    made = sent(world.worker)
    body = made.seen(status=422, headers={"Content-Type": "application/json"}, body='{"error":"no stock"}')
    reply = made.report("rejection", body)
    assert (reply.status, reply.body["operation"]["state"], reply.body["next"]) == (
        200,
        "rejected",
        "continue",
    )
    again = made.report("rejection", body)
    assert (again.status, again.body) == (200, {**reply.body, "replayed": True})
    call = world.worker.get(f"/runs/{made.run}/plan").body["plan"]["turns"][0]["calls"][0]
    assert (call["next"], call["refusal"]) == ("skip", {"error": "no stock"})


def test_not_sent_makes_it_ready_again(world: World) -> None:
    made = sent(world.worker)
    body = made.seen(error="ConnectError", phase="connecting")
    reply = made.report("not-sent", body)
    assert (reply.status, reply.body["operation"]["state"], reply.body["next"]) == (200, "ready", "continue")
    assert made.report("not-sent", body).body == {**reply.body, "replayed": True}
    assert made.send("a2").body["attempt"] == 2


def test_an_unknown_outcome_opens_a_case_and_stops(world: World) -> None:
    made = sent(world.worker)
    body = made.seen(error="ReadTimeout", phase="waiting_for_reply")
    reply = made.report("unknown", body)
    assert (reply.status, reply.body["operation"]["state"]) == (200, "sent_unknown")
    assert (reply.body["next"], reply.body["attempt"]["outcome"]) == ("stop", "unknown")
    assert reply.body["case"].startswith("case_")
    assert made.report("unknown", body).body == {**reply.body, "replayed": True}
    assert world.worker.get(f"/runs/{made.run}").body["run"]["paused_reasons"] == ["outcome"]


def late(world: World) -> Working:
    made = sent(world.worker)
    expire_lease(made.run)
    return made


def test_a_late_receipt_is_evidence_from_which_policy_confirms(world: World) -> None:
    made = late(world)
    body = made.receipt()
    reply = made.report("receipt", body)
    assert (reply.status, reply.body["recorded_as_evidence"]) == (202, True)
    assert (reply.body["operation"]["state"], reply.body["next"]) == ("confirmed", "stop")
    again = made.report("receipt", body)
    assert (again.status, again.body) == (202, {**reply.body, "replayed": True})


def test_a_late_not_sent_returns_it_to_ready_by_policy(world: World) -> None:
    made = late(world)
    reply = made.report("not-sent", made.seen(error="ConnectError"))
    assert (reply.status, reply.body["operation"]["state"], reply.body["next"]) == (202, "ready", "stop")


@pytest.mark.parametrize("what", ["unknown", "rejection"])
def test_other_late_reports_move_nothing_by_themselves(world: World, what: str) -> None:
    """An answer of 500 is no refusal, whatever its sender takes it for."""
    made = late(world)
    reply = made.report(what, made.seen(status=500))
    assert (reply.status, reply.body["next"]) == (202, "stop")
    assert reply.body["operation"]["state"] == "sent_unknown"
    kept = Evidence.objects.get(operation=made.operation, kind="late_report")
    assert kept.claim == "unknown"


def test_the_receipt_that_confirmed_again_is_202_without_a_case(world: World) -> None:
    made = sent(world.worker)
    made.report("receipt", made.receipt())
    reply = made.report("receipt", made.receipt(attempt_id="a9"))
    assert (reply.status, reply.body["case"]) == (202, None)
    other = made.report("receipt", made.receipt("ord_second", attempt_id="a9"))
    assert other.status == 202
    assert world.worker.get(f"/cases/{other.body['case']}").body["case"]["kind"] == "conflict"


def test_success_of_an_attempt_that_was_never_given_is_a_conflict(world: World) -> None:
    made = working(world.worker)
    reply = made.report("receipt", made.receipt(attempt_id="stray"))
    assert (reply.status, reply.body["operation"]["state"]) == (202, "sent_unknown")
    assert reply.body["attempt"] == {"attempt_id": "stray", "number": None, "outcome": None}
    assert world.worker.get(f"/cases/{reply.body['case']}").body["case"]["kind"] == "conflict"


def test_success_after_abandonment_is_a_conflict(world: World) -> None:
    made, case = in_doubt(world.worker)
    given_up = world.operator.decide(
        f"/cases/{case}/abandonment", decision(world.operator, case, then="continue")
    )
    assert given_up.status == 200, given_up
    reply = made.report("receipt", made.receipt())
    assert (reply.status, reply.body["operation"]["state"]) == (202, "abandoned")
    assert world.worker.get(f"/cases/{reply.body['case']}").body["case"]["kind"] == "conflict"


def test_what_is_too_long_is_cut_and_marked_with_length_and_digest(world: World) -> None:
    made = sent(world.worker)
    long = "x" * 300_000
    reply = made.report("unknown", made.seen(body=long, error=long, phase=long[:70_000], headers={"X": long}))
    assert reply.status == 200, reply
    kept = Evidence.objects.get(operation=made.operation)
    assert len(bytes(kept.body or b"")) == 64 * 1024
    assert (kept.body_length, kept.body_digest) == (300_000, hashlib.sha256(long.encode()).hexdigest())
    assert kept.seen["error"] == kept.seen["phase"] == long[:4_000]
    assert kept.seen["cut"]["error"]["length"] == 300_000
    assert kept.seen["cut"]["error"]["sha256"] == hashlib.sha256(long.encode()).hexdigest()
    assert len(str(kept.seen)) < 20_000


def test_bytes_that_are_no_text_are_kept_as_they_came(world: World) -> None:
    made = sent(world.worker)
    content = b"\xff\x00\xfe" * 10
    made.report("unknown", made.seen(body_base64=base64.b64encode(content).decode()))
    assert bytes(Evidence.objects.get(operation=made.operation).body or b"") == content


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"body": "a", "body_base64": "YQ=="}, "/body_base64"),
        ({"body_base64": "not base64!"}, "/body_base64"),
        ({"status": 99}, "/status"),
        ({"status": "200"}, "/status"),
        ({"status": True}, "/status"),
        ({"headers": {"X": 1}}, "/headers/dict[str,str]/X"),
        ({"headers": [["X"]]}, None),
        ({"attempt_id": "a b"}, "/attempt_id"),
        ({"outcome": "unknown"}, "/outcome"),
    ],
)
def test_a_report_that_cant_be_read_is_422(world: World, fields: dict[str, Any], where: str | None) -> None:
    made = sent(world.worker)
    before = rows()
    for what in ("rejection", "not-sent", "unknown"):
        reply = made.report(what, made.seen(**fields))
        assert (reply.status, reply.word) == (422, "invalid"), reply
        assert where in (None, reply.body["where"]), reply
    assert rows() == before


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"reference": ""}, "/reference"),
        ({"reference": "x" * 301}, "/reference"),
        ({"body": None}, "/body"),
        ({"body": 7}, None),
        ({"body": [1]}, None),
    ],
)
def test_a_receipt_that_cant_be_read_is_422(world: World, fields: dict[str, Any], where: str | None) -> None:
    made = sent(world.worker)
    before = rows()
    reply = made.report("receipt", {**made.receipt(), **fields})
    assert (reply.status, reply.word) == (422, "invalid"), reply
    assert where in (None, reply.body["where"]), reply
    assert rows() == before


@pytest.mark.parametrize("args", [[1, 2], "text", 7, None, True, {}, {"sku": None}], ids=str)
def test_a_payload_of_any_json_goes_through_to_its_end(world: World, args: Any) -> None:
    made = working(world.worker, effect(args=args))
    assert made.send().body["payload"] == args
    record = {"id": "ord_1", "status": "succeeded", "idempotency_key": made.key}
    reply = made.report("receipt", {**made.receipt("ord_1"), "body": record})
    assert reply.status in (200, 409), reply
    assert Operation.objects.get(pk=made.operation).state in ("confirmed", "sent_unknown")


def test_only_a_worker_of_the_team_reports(world: World) -> None:
    made = sent(world.worker)
    before = rows()
    for what in ("rejection", "not-sent", "unknown"):
        path = f"/operations/{made.operation}/{what}"
        assert world.stranger.post(path, made.seen()).word == "not_found"
        assert world.operator.post(path, made.seen()).word == "forbidden"
        assert world.reader.post(path, made.seen()).word == "forbidden"
    path = f"/operations/{made.operation}/receipt"
    assert world.stranger.post(path, made.receipt()).word == "not_found"
    assert world.operator.post(path, made.receipt()).word == "forbidden"
    assert world.worker.post("/operations/op_none/receipt", made.receipt()).word == "not_found"
    assert rows() == before
