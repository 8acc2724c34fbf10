"""Every call's answer is lost once and the call repeated: the same answers, the same end, nothing twice."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import pytest

from console.api import assembly
from console.models import Role, Scope
from runs.models import Operation, Run
from tests.integration.api.world import (
    Caller,
    Reply,
    Working,
    World,
    claim_body,
    decision,
    effect,
    in_doubt,
    in_doubt_where_it_can_be_undone,
    person,
    read,
    rows,
    token,
    working,
)

# Repeats meet unique constraints, which end a transaction that a test would hold open.
pytestmark = pytest.mark.usefixtures("transactional_db")

# What moves with the clock between two answers.
_TIMES = re.compile(r"_(in|ago|within)_ms$|^ago_ms$|_at$")


@dataclass
class Forgetful(Caller):
    """Loses the first answer of every call that writes, and repeats it."""

    paths: list[str] = field(default_factory=list)

    def ask(self, method: str, path: str, *args: Any, **kwargs: Any) -> Reply:
        lost = super().ask(method, path, *args, **kwargs)
        if method == "GET":
            return lost
        self.paths.append(path)
        before = rows()
        again = super().ask(method, path, *args, **kwargs)
        assert rows() == before, f"{path} wrote again"
        assert lost.status < 300, lost
        expected = 200 if lost.status == 201 else lost.status
        assert again.status == expected, again
        if "replayed" in lost.body:
            assert (lost.body["replayed"], again.body["replayed"]) == (False, True), again
        assert _timeless(again.body) == _timeless(lost.body), path
        return again


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _timeless(inner)
            for name, inner in value.items()
            if name not in ("replayed", "withdrawn") and not _TIMES.search(name)
        }
    return [_timeless(inner) for inner in value] if isinstance(value, list) else value


def a_whole_run(caller: Caller) -> str:
    """A read, an effect refused, one not sent and then confirmed; given back, taken up, completed."""
    made = working(caller, read("r1"), effect("c1"), effect("c2"))
    caller.post(f"/runs/{made.run}/renew", {"token": made.token})
    caller.post(f"/runs/{made.run}/turns/1/calls/r1/result", {"token": made.token, "result": {"stock": 9}})
    first, second = made.operations
    made.send("a1", operation=first)
    made.report("rejection", made.seen("a1", status=422, body='{"error":"no stock"}'), operation=first)
    made.send("a2", operation=second)
    made.report("not-sent", made.seen("a2", error="ConnectError"), operation=second)
    caller.post(f"/runs/{made.run}/release", {"token": made.token})
    claimed = caller.post(f"/runs/{made.run}/claim", claim_body())
    successor = Working(caller, made.run, claimed.body["token"], made.turn)
    go = successor.send("a3", operation=second)
    assert go.body["attempt"] == 2
    record = {"id": second, "status": "succeeded", "idempotency_key": go.body["idempotency_key"]}
    receipt = {**successor.seen("a3"), "reference": second, "body": {**record, **go.body["payload"]}}
    confirmed = successor.report("receipt", receipt, operation=second)
    assert confirmed.body["operation"]["state"] == "confirmed"
    caller.post(f"/runs/{made.run}/complete", {"token": successor.token, "output": {"ordered": 1}})
    return made.run


def people(worker: Caller, operator: Caller) -> None:
    """One of each thing that people do."""
    _, confirmed = in_doubt(worker)
    made, case = in_doubt(worker)
    key = operator.get(f"/operations/{made.operation}").body["operation"]["idempotency_key"]
    operator.post(f"/cases/{case}/lookup", {})
    operator.post(f"/cases/{case}/evidence", {"summary": "The supplier's letter", "body": {"order": "yes"}})
    record = {"id": f"ord_{case}", "status": "succeeded", "idempotency_key": key, "sku": "FC-20"}
    receipt = {"reference": record["id"], "body": {**record, "quantity": 40}}
    decided(operator, case, "confirmation", receipt=receipt)
    decided(operator, confirmed, "retry", executor="agent")
    operator.post(f"/cases/{confirmed}/retry/withdrawal", {"reason": "the supplier has answered"})
    decided(operator, confirmed, "abandonment", then="continue")
    for what in ("acceptance", "compensation"):
        extra = working(worker)
        extra.send()
        extra.report("receipt", extra.receipt())
        conflict = extra.report("receipt", extra.receipt(f"2_{extra.operation}", attempt_id="a9"))
        decided(operator, str(conflict.body["case"]), what)
    held = working(worker)
    operator.post(f"/runs/{held.run}/lease/revocation", {"lease": 1, "reason": "stuck since noon"})
    operator.post(f"/runs/{held.run}/abandonment", {"reason": "nobody needs it any more"})


def two_people(worker: Caller, operator: Caller, approver: Caller) -> None:
    """One of each answer to what takes two people, each about a request of its own."""

    def request() -> str:
        _, case = in_doubt(worker)
        reply = operator.decide(f"/cases/{case}/confirmation", decision(operator, case, receipt=None))
        assert reply.status == 202, reply
        return str(reply.body["approval"])

    kept, refused, withdrawn = request(), request(), request()
    digest = approver.get(f"/approvals/{kept}").body["approval"]["content_digest"]
    key = {"idempotency_key": f"said-{kept}"}
    approver.post(f"/approvals/{kept}/question", {"text": "Since when is it there?"}, **key)
    operator.post(f"/approvals/{kept}/reply", {"text": "Since noon, they say."}, **key)
    approver.post(f"/approvals/{kept}/approval", {"content_digest": digest, "comment": "Seen there too."})
    approver.post(f"/approvals/{refused}/refusal", {"comment": "That isn't ours."})
    operator.post(f"/approvals/{withdrawn}/withdrawal", {"comment": "It was found meanwhile."})
    undone = in_doubt_where_it_can_be_undone(worker)
    reply = operator.decide(f"/cases/{undone}/absence", decision(operator, undone, then="continue"))
    assert reply.status == 202, reply


def decided(operator: Caller, case: str, what: str, **fields: Any) -> None:
    reply = operator.decide(f"/cases/{case}/{what}", decision(operator, case, **fields))
    assert reply.status == 200, reply


def written(act: Any) -> dict[str, int]:
    before = rows()
    act()
    return {table: count - before[table] for table, count in rows().items() if count != before[table]}


@pytest.mark.usefixtures("configured")
def test_every_answer_lost_once_and_asked_again_comes_to_the_same_end(world: World) -> None:
    worker, operator = Forgetful(world.worker.secret), Forgetful(world.operator.secret)
    runs: list[str] = []
    plain = written(lambda: runs.append(a_whole_run(world.worker)))
    doubled = written(lambda: runs.append(a_whole_run(worker)))
    # The flow and its version were new to the first of them.
    for table in ("runs_flow", "runs_flowversion"):
        plain.pop(table, None)
    assert doubled == plain
    assert {run.state for run in Run.objects.all()} == {"completed"}
    for run in runs:
        states = Operation.objects.filter(run=run).order_by("position").values_list("state", flat=True)
        assert list(states) == ["rejected", "confirmed"]
    by_people = written(lambda: people(world.worker, world.operator))
    assert written(lambda: people(worker, operator)) == by_people
    plain_approver = Caller(token(Scope.DECIDE, owner=person("dana", Role.APPROVER)))
    approver = Forgetful(plain_approver.secret)
    by_two = written(lambda: two_people(world.worker, world.operator, plain_approver))
    assert written(lambda: two_people(worker, operator, approver)) == by_two
    asked = {_call_of(path) for path in worker.paths + operator.paths + approver.paths}
    assert asked == {path for path, methods in _paths().items() if "post" in methods}


def _paths() -> dict[str, Any]:
    paths: dict[str, Any] = assembly.api.get_openapi_schema()["paths"]
    return paths


def _call_of(path: str) -> str:
    for template in _paths():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), f"/api/v1{path}"):
            return template
    raise AssertionError(path)
