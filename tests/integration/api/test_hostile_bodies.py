"""The corpus of hostile bodies against every call that takes one: refused with its word, nothing written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from console.api import assembly
from console.models import Role, Scope
from tests.corpus.hostile_bodies import HOSTILE_BODIES, HostileBody, missing_members, wrong_types
from tests.integration.api.world import (
    Caller,
    Working,
    World,
    claim_body,
    decision,
    effect,
    in_doubt,
    person,
    read,
    rows,
    run_body,
    sent,
    started,
    token,
    working,
)


@dataclass(frozen=True)
class Target:
    """One call with a body that it would take, as `wrong_types` and `missing_members` want it."""

    path: str
    body: dict[str, Any]
    caller: Caller
    # Members that take any JSON, or more than one type of it.
    free: tuple[str, ...] = ()
    nullable: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    headers: dict[str, str] = field(default_factory=dict)


MONEY = {"currency": "EUR", "minor": 1240}
SEEN = {
    "status": 500,
    "headers": {"X": "y"},
    "body": "text",
    "error": "ReadTimeout",
    "phase": "reading",
}


def _start(world: World) -> Target:
    body = run_body(goal="g", flow_digest="a" * 64, budget={"limit": MONEY}, approval="apr_1")
    extra = ("/goal", "/flow_digest", "/budget", "/approval")
    return Target("/runs", body, world.worker, ("/input",), extra, tuple(one[1:] for one in extra))


def _claim(world: World) -> Target:
    body = claim_body(flow_digest="a" * 64)
    path = f"/runs/{started(world.worker)}/claim"
    return Target(path, body, world.worker, (), ("/flow_digest",), ("flow_digest",))


def _renew(world: World) -> Target:
    made = working(world.worker)
    body = {"token": made.token, "lease_seconds": 60}
    return Target(f"/runs/{made.run}/renew", body, world.worker, (), ("/lease_seconds",), ("lease_seconds",))


def _release(world: World) -> Target:
    made = working(world.worker)
    return Target(f"/runs/{made.run}/release", {"token": made.token}, world.worker)


def _turn(world: World) -> Target:
    run = started(world.worker)
    token = world.worker.post(f"/runs/{run}/claim", claim_body()).body["token"]
    body = {
        "token": token,
        "index": 1,
        "decision": {"say": "go"},
        "parallel": True,
        "calls": [effect(amount=MONEY)],
    }
    nullable = ("/calls/0/provider", "/calls/0/amount")
    free = ("/decision", "/calls/0/args")
    # An empty list is a turn without calls; a provider of null is refused by the journal itself.
    return Target(f"/runs/{run}/turns", body, world.worker, free, nullable, ("parallel",))


def _result(world: World) -> Target:
    made = working(world.worker, read())
    path = f"/runs/{made.run}/turns/1/calls/r1/result"
    return Target(path, {"token": made.token, "result": 1}, world.worker, ("/result",))


def _complete(world: World) -> Target:
    made = working(world.worker)
    body = {"token": made.token, "output": None}
    return Target(f"/runs/{made.run}/complete", body, world.worker, ("/output",))


def _abandon_run(world: World) -> Target:
    body = {"reason": "not needed any more"}
    return Target(f"/runs/{started(world.worker)}/abandonment", body, world.operator)


def _revoke(world: World) -> Target:
    made = working(world.worker)
    body = {"lease": 1, "reason": "stuck since noon"}
    return Target(f"/runs/{made.run}/lease/revocation", body, world.operator)


def _send(world: World) -> Target:
    made = working(world.worker)
    body = {"token": made.token, "attempt_id": "a1"}
    return Target(f"/operations/{made.operation}/send", body, world.worker)


def _receipt(world: World) -> Target:
    made = sent(world.worker)
    body = made.receipt() | {"status": 201, "headers": {"X": "y"}}
    optional = ("status", "headers")
    return Target(
        f"/operations/{made.operation}/receipt",
        body,
        world.worker,
        ("/body", "/headers"),
        ("/status",),
        optional,
    )


def _sighting(what: str) -> Callable[[World], Target]:
    def make(world: World) -> Target:
        made: Working = sent(world.worker)
        nullable = ("/status", "/body", "/error", "/phase")
        return Target(
            f"/operations/{made.operation}/{what}",
            made.seen(**SEEN),
            world.worker,
            ("/headers",),
            nullable,
            tuple(SEEN),
        )

    return make


def _decision(what: str, **fields: Any) -> Callable[[World], Target]:
    def make(world: World) -> Target:
        _, case = in_doubt(world.worker)
        body = decision(world.operator, case, **fields)
        receipt = ("/receipt", "/receipt/evidence_id", "/receipt/reference", "/receipt/body")
        return Target(
            f"/cases/{case}/{what}",
            body,
            world.operator,
            ("/receipt/body",),
            receipt,
            ("receipt",),
            {"idempotency_key": "hostile"},
        )

    return make


def _lookup(world: World) -> Target:
    _, case = in_doubt(world.worker)
    return Target(f"/cases/{case}/lookup", {}, world.operator)


def _attach(world: World) -> Target:
    _, case = in_doubt(world.worker)
    body = {"summary": "A letter", "reference": "ord_7", "body": "text"}
    optional = ("reference", "body")
    return Target(f"/cases/{case}/evidence", body, world.operator, ("/body",), ("/reference",), optional)


def _withdraw(world: World) -> Target:
    _, case = in_doubt(world.worker)
    return Target(f"/cases/{case}/retry/withdrawal", {"reason": "never mind"}, world.operator)


def _approval(what: str, *, own: bool = False, **words: str) -> Callable[[World], Target]:
    """`own`: it is for whoever asked; else for a second person."""

    def make(world: World) -> Target:
        _, case = in_doubt(world.worker)
        form = decision(world.operator, case, receipt=None)
        asked = world.operator.decide(f"/cases/{case}/confirmation", form)
        caller = world.operator if own else Caller(token(Scope.DECIDE, owner=person("dana", Role.APPROVER)))
        headers = {"idempotency_key": "hostile"} if "text" in words else {}
        path = f"/approvals/{asked.body['approval']}/{what}"
        return Target(path, words or {"comment": "It isn't so."}, caller, headers=headers)

    return make


TARGETS: dict[str, Callable[[World], Target]] = {
    "start_run": _start,
    "claim_run": _claim,
    "renew_lease": _renew,
    "release_lease": _release,
    "save_turn": _turn,
    "save_result": _result,
    "complete_run": _complete,
    "abandon_run": _abandon_run,
    "revoke_lease": _revoke,
    "send_operation": _send,
    "report_receipt": _receipt,
    "report_rejection": _sighting("rejection"),
    "report_not_sent": _sighting("not-sent"),
    "report_unknown": _sighting("unknown"),
    "confirm_case": _decision("confirmation", receipt={"reference": "ord_1", "body": {"id": "ord_1"}}),
    "retry_case": _decision("retry", executor="agent"),
    "abandon_case": _decision("abandonment", then="end"),
    "make_case_absent": _decision("absence", then="end"),
    "accept_case": _decision("acceptance"),
    "compensate_case": _decision("compensation"),
    "look_up_case": _lookup,
    "attach_evidence": _attach,
    "withdraw_retry": _withdraw,
    "approve_approval": _approval("approval", content_digest="0" * 64, comment="Agreed."),
    "refuse_approval": _approval("refusal"),
    "withdraw_approval": _approval("withdrawal", own=True),
    "ask_about_approval": _approval("question", text="Since when?"),
    "reply_about_approval": _approval("reply", own=True, text="Since noon."),
}


def test_every_call_that_takes_a_body_is_a_target() -> None:
    calls = assembly.calls_of(assembly.api.get_openapi_schema())
    assert set(TARGETS) == {call["operationId"] for call in calls if "requestBody" in call}


def _bodies(target: Target) -> Iterator[HostileBody]:
    yield from HOSTILE_BODIES
    yield from wrong_types(target.body, free=target.free, nullable=target.nullable)
    yield from missing_members(target.body, optional=target.optional)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_hostile_bodies_are_refused_and_write_nothing(world: World, name: str) -> None:
    target = TARGETS[name](world)
    before = rows()
    count = 0
    for hostile in _bodies(target):
        reply = target.caller.post_bytes(target.path, hostile.body, **target.headers)
        assert reply.word == hostile.endpoint_word, f"{hostile}: {reply}"
        if reply.word in ("invalid", "unreadable_json"):
            assert "where" in reply.body, f"{hostile}: {reply}"
        count += 1
    assert count > len(HOSTILE_BODIES) > 100
    assert rows() == before
