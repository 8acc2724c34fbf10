"""The plan that a claim comes with, and the turn that the model decides: data, read and written strictly.

The plan is computed by the journal. This library acts on each call's `next` and concludes nothing by
itself; a plan that it can't read is an error, never an empty plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from recourse_client.errors import UnreadableAnswer
from recourse_client.outcomes import Json, Receipt


class Next(StrEnum):
    """What the journal says is to be done about one call."""

    # It is settled, and the record is here.
    SKIP = "skip"
    # A read without a saved result.
    READ = "read"
    # An effect that was never sent, or is proved not sent.
    SEND = "send"
    # Its outcome is open: it is looked up, or a person is asked.
    WAIT = "wait"
    # A person granted one more attempt with the same key.
    REPEAT = "repeat"


@dataclass(frozen=True)
class Money:
    """An amount in minor units: `Money("EUR", 1240)` is 12.40 euros."""

    currency: str
    minor: int

    def to_json(self) -> Json:
        return {"currency": self.currency, "minor": self.minor}


@dataclass(frozen=True)
class Read:
    """A call that changes nothing outside and may be repeated; its result is saved."""

    call_id: str
    tool: str
    args: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Effect:
    """A call that changes something outside. `args` is the whole payload, `provider` the provider account."""

    call_id: str
    tool: str
    provider: str
    args: Json = field(default_factory=dict)
    amount: Money | None = None


PlannedCall: TypeAlias = Read | Effect


@dataclass(frozen=True)
class Decided:
    """One decision of the model: what it said (any JSON), and the calls that it chose, in order.

    Call ids are 1 to 64 letters, digits and `_ . : -`, different within a turn.
    """

    decision: Json
    calls: Sequence[PlannedCall] = ()
    # True if the calls don't depend on each other's outcome; otherwise they run in order.
    parallel: bool = False

    def to_json(self) -> dict[str, Json]:
        return {
            "decision": self.decision,
            "parallel": self.parallel,
            "calls": [_planned_call(call) for call in self.calls],
        }


def _planned_call(call: PlannedCall) -> dict[str, Json]:
    match call:
        case Read():
            return {"call_id": call.call_id, "tool": call.tool, "effect": False, "args": call.args}
        case Effect():
            written: dict[str, Json] = {
                "call_id": call.call_id,
                "tool": call.tool,
                "effect": True,
                "provider": call.provider,
                "args": call.args,
            }
            if call.amount is not None:
                written["amount"] = call.amount.to_json()
            return written


@dataclass(frozen=True)
class Operation:
    """The logical effect behind a call, as the journal knows it."""

    id: str
    state: str
    idempotency_key: str
    digest: str


@dataclass(frozen=True)
class CallPlan:
    """One saved call and its next step; the fields after `next` are filled where they apply."""

    call_id: str
    tool: str
    effect: bool
    provider: str | None
    args: Json
    amount: Json
    next: Next
    result: Json = None
    receipt: Receipt | None = None
    refusal: Json = None
    abandoned: Json = None
    operation: Operation | None = None
    case: str | None = None

    def content(self) -> dict[str, Json]:
        """The call as it was decided, for repeating the turn under a new token."""
        written: dict[str, Json] = {
            "call_id": self.call_id,
            "tool": self.tool,
            "effect": self.effect,
            "args": self.args,
        }
        if self.provider is not None:
            written["provider"] = self.provider
        if self.amount is not None:
            written["amount"] = self.amount
        return written


@dataclass(frozen=True)
class TurnPlan:
    """One saved turn."""

    index: int
    decision: Json
    parallel: bool
    calls: tuple[CallPlan, ...]

    def content(self) -> dict[str, Json]:
        """The turn as it was decided: decision, parallel and calls in order."""
        return {
            "decision": self.decision,
            "parallel": self.parallel,
            "calls": [call.content() for call in self.calls],
        }


@dataclass(frozen=True)
class Plan:
    """Everything on record that a resumed worker needs, in the order in which it was decided."""

    run_id: str
    state: str
    paused_reasons: tuple[str, ...]
    goal: Json
    # What the run was started with: a worker that found the run by asking for work reads it here.
    input: Json
    turns: tuple[TurnPlan, ...]
    open_evidence: tuple[Json, ...]
    known_failures: tuple[Json, ...]

    def turn(self, index: int) -> TurnPlan | None:
        return next((turn for turn in self.turns if turn.index == index), None)


# --- reading ----------------------------------------------------------------------------------------------


def require(source: Mapping[str, Any], name: str, kind: type[Any] | tuple[type[Any], ...]) -> Any:
    """Return a member that must be there with this JSON type; raises `UnreadableAnswer`."""
    value = source.get(name)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        raise UnreadableAnswer(f"the journal's answer has no usable {name!r}")
    return value


def _optional_text(source: Mapping[str, Any], name: str) -> str | None:
    value = source.get(name)
    if value is None or isinstance(value, str):
        return value
    raise UnreadableAnswer(f"the journal's answer has no usable {name!r}")


def _objects(source: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found = require(source, name, list)
    if not all(isinstance(item, dict) for item in found):
        raise UnreadableAnswer(f"the journal's answer has no usable {name!r}")
    return list(found)


def read_receipt(value: object) -> Receipt | None:
    """Return a receipt from `{"reference", "body"}`, None from null."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise UnreadableAnswer("the journal's answer has no usable 'receipt'")
    return Receipt(reference=require(value, "reference", str), body=value.get("body"))


def _read_operation(value: object) -> Operation | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise UnreadableAnswer("the journal's answer has no usable 'operation'")
    return Operation(
        id=require(value, "id", str),
        state=require(value, "state", str),
        idempotency_key=str(value.get("idempotency_key") or ""),
        digest=str(value.get("digest") or ""),
    )


def _read_call(source: Mapping[str, Any]) -> CallPlan:
    try:
        step = Next(require(source, "next", str))
    except ValueError:
        raise UnreadableAnswer(f"the journal names an unknown next step: {source['next']!r}") from None
    call = CallPlan(
        call_id=require(source, "call_id", str),
        tool=require(source, "tool", str),
        effect=require(source, "effect", bool),
        provider=_optional_text(source, "provider") or None,
        args=source.get("args"),
        amount=source.get("amount"),
        next=step,
        result=source.get("result"),
        receipt=read_receipt(source.get("receipt")),
        refusal=source.get("refusal"),
        abandoned=source.get("abandoned"),
        operation=_read_operation(source.get("operation")),
        case=_optional_text(source, "case"),
    )
    if call.effect and call.operation is None:
        raise UnreadableAnswer(f"the journal gave no operation for the effect {call.call_id!r}")
    return call


def read_turn(source: object) -> TurnPlan:
    """Return one plan turn; raises `UnreadableAnswer`."""
    if not isinstance(source, dict):
        raise UnreadableAnswer("the journal's answer has no usable 'turn'")
    return TurnPlan(
        index=require(source, "index", int),
        decision=source.get("decision"),
        parallel=bool(source.get("parallel")),
        calls=tuple(_read_call(call) for call in _objects(source, "calls")),
    )


def read_plan(source: object) -> Plan:
    """Return the plan of a claim; raises `UnreadableAnswer`."""
    if not isinstance(source, dict):
        raise UnreadableAnswer("the journal's answer has no usable 'plan'")
    return Plan(
        run_id=require(source, "run_id", str),
        state=require(source, "state", str),
        paused_reasons=tuple(str(reason) for reason in source.get("paused_reasons") or ()),
        goal=source.get("goal"),
        input=source.get("input"),
        turns=tuple(read_turn(turn) for turn in _objects(source, "turns")),
        open_evidence=tuple(source.get("open_evidence") or ()),
        known_failures=tuple(source.get("known_failures") or ()),
    )
