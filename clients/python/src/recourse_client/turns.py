"""A turn's calls: what is settled is returned as it is on record, what isn't is done once and saved."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import assert_never
from urllib.parse import quote

from recourse_client.effects import Effects
from recourse_client.errors import RunPaused, UnreadableAnswer
from recourse_client.journal import Journal, encode
from recourse_client.lease import Lease
from recourse_client.outcomes import (
    Confirmed,
    EffectResult,
    GivenUp,
    Json,
    ReadFunction,
    Refused,
    SendFunction,
)
from recourse_client.plan import CallPlan, Next, TurnPlan, read_plan


class Turn:
    """One saved decision and its calls. `resumed` says that the model was not asked this time."""

    def __init__(
        self,
        *,
        journal: Journal,
        lease: Lease,
        effects: Effects,
        run_path: str,
        saved: TurnPlan,
        resumed: bool,
    ) -> None:
        self.index = saved.index
        self.decision: Json = saved.decision
        self.parallel = saved.parallel
        self.resumed = resumed
        self._journal = journal
        self._lease = lease
        self._effects = effects
        self._run_path = run_path
        self._lock = threading.Lock()
        self._calls = {call.call_id: call for call in saved.calls}

    @property
    def calls(self) -> Sequence[CallPlan]:
        """The calls in the order in which they were decided, each with its next step."""
        with self._lock:
            return tuple(self._calls.values())

    def call(self, call_id: str) -> CallPlan:
        """Return one call; raises KeyError if the model didn't choose it."""
        with self._lock:
            return self._calls[call_id]

    def read(self, call_id: str, read: ReadFunction) -> Json:
        """Return a read's saved result, or call `read(args)`, save what it returns, and return that."""
        call = self.call(call_id)
        match call.next:
            case Next.SKIP:
                return call.result
            case Next.READ:
                self._lease.check()
                # As the journal will give it back: a tuple is a list, in the first run as in a resumed one.
                result = _as_json(read(call.args))
                self._lease.check()
                self._save(call_id, result)
                self._settle(replace(call, next=Next.SKIP, result=result))
                return result
            case Next.SEND | Next.REPEAT | Next.WAIT:
                raise TypeError(f"call {call_id} is an effect: use effect()")
            case _:
                assert_never(call.next)

    def effect(self, call_id: str, send: SendFunction) -> EffectResult:
        """Return an effect's saved end, or make one attempt: ask for go, call `send(go)` once, report.

        Raises what `Effects.run` raises, and `RunPaused` while the outcome of an earlier attempt is open.
        """
        call = self.call(call_id)
        match call.next:
            case Next.SKIP:
                return _saved(call)
            case Next.WAIT:
                raise _waiting(call)
            case Next.SEND | Next.REPEAT:
                result = self._effects.run(call, send)
                if result is None:
                    return self._settled_elsewhere(call_id)
                self._settle(_settled(call, result))
                return result
            case Next.READ:
                raise TypeError(f"call {call_id} is a read: use read()")
            case _:
                assert_never(call.next)

    def perform(
        self,
        *,
        reads: Mapping[str, ReadFunction] | None = None,
        effects: Mapping[str, SendFunction] | None = None,
    ) -> dict[str, Json | EffectResult]:
        """Go through the calls in order, with a function per tool; return what each came to, by call id.

        In a parallel turn the calls whose outcome is open are left to the end, and raise there.
        Raises KeyError before anything starts if a tool that is still to be used has no function.
        """
        reads, effects = reads or {}, effects or {}
        for call in self.calls:
            known = effects if call.effect else reads
            if call.next not in {Next.SKIP, Next.WAIT} and call.tool not in known:
                raise KeyError(f"no function for the tool {call.tool!r} of call {call.call_id}")
        came_to: dict[str, Json | EffectResult] = {}
        waiting = [call for call in self.calls if self.parallel and call.next is Next.WAIT]
        for call in self.calls:
            if call in waiting:
                continue
            if call.effect:
                came_to[call.call_id] = self.effect(call.call_id, effects.get(call.tool, _never))
            else:
                came_to[call.call_id] = self.read(call.call_id, reads.get(call.tool, _never))
        if waiting:
            raise _waiting(waiting[0])
        return came_to

    def _save(self, call_id: str, result: Json) -> None:
        self._journal.post(
            f"{self._run_path}/turns/{self.index}/calls/{quote(call_id, safe='')}/result",
            {"token": self._lease.token, "result": result},
            until=self._lease.ends_at,
        )

    def _settled_elsewhere(self, call_id: str) -> EffectResult:
        """Return what a lookup or a person settled while our attempt was on its way."""
        body = self._journal.get(f"{self._run_path}/plan").body
        turn = read_plan(body.get("plan", body)).turn(self.index)
        call = next((call for call in turn.calls if call.call_id == call_id), None) if turn else None
        if call is None or call.next is not Next.SKIP:
            raise UnreadableAnswer(f"the journal calls call {call_id} settled, and its plan doesn't")
        self._settle(call)
        return _saved(call)

    def _settle(self, call: CallPlan) -> None:
        with self._lock:
            self._calls[call.call_id] = call


def _as_json(value: Json) -> Json:
    return json.loads(encode(value))


def _never(_: object) -> Json:
    raise AssertionError("a settled call needs no function")


def _saved(call: CallPlan) -> EffectResult:
    operation = call.operation.id if call.operation is not None else ""
    state = call.operation.state if call.operation is not None else ""
    if state == "rejected":
        return Refused(operation, call.call_id, call.refusal, saved=True)
    if state == "abandoned":
        return GivenUp(operation, call.call_id, call.abandoned)
    if state == "confirmed":
        return Confirmed(operation, call.call_id, call.receipt, saved=True)
    raise UnreadableAnswer(f"the plan skips call {call.call_id}, whose operation is {state or 'missing'}")


def _settled(call: CallPlan, result: Confirmed | Refused) -> CallPlan:
    state = "confirmed" if isinstance(result, Confirmed) else "rejected"
    return replace(
        call,
        next=Next.SKIP,
        receipt=result.proof if isinstance(result, Confirmed) else None,
        refusal=result.refusal if isinstance(result, Refused) else None,
        operation=replace(call.operation, state=state) if call.operation is not None else None,
    )


def _waiting(call: CallPlan) -> RunPaused:
    paused = RunPaused(
        f"run_paused: the outcome of call {call.call_id} is open; nothing may be sent for it",
        problem={"reasons": ["outcome"]},
    )
    paused.call_id, paused.case = call.call_id, call.case
    return paused
