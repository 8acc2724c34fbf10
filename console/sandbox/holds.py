"""Holding a request at a known point until told, so that a test acts at an instant it can prove.

A hold waits for the first request in its scope, then keeps it. Whether the client is still there makes no
difference: a real provider goes on after its caller died, so a released request does what it was about
to do. A *hang* is the fault of the same shape, and there the client decides: it ends when the client leaves.

Holds live in this process alone; a restart forgets them together with the connections they held.
"""

from __future__ import annotations

import os
import select
import threading
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from console.sandbox.records import Arrival, Scope
from console.sandbox.wire import JsonObject, Refused, invalid
from runs.ids import new_id

# Far more than any test holds at once; finished ones beyond it are forgotten, oldest first.
HOLDS_MAX = 1000


class Point(StrEnum):
    """Where a request can be held. The first three are of POSTs, the last two of lookups."""

    RECEIVED = "received"  # counted and read whole; nothing of it is decided
    BEFORE_COMMIT = "before_commit"  # its key is in flight; no effect yet
    AFTER_COMMIT = "after_commit"  # the effect is durable; no byte of answer has left
    LOOKUP_RECEIVED = "lookup_received"  # counted; the store hasn't been read
    LOOKUP_BEFORE_REPLY = "lookup_before_reply"  # the answer is fixed; no byte of it has left


class State(StrEnum):
    """A hold's life: waiting → held → released, left or forgotten; or released while still waiting."""

    WAITING = "waiting"
    HELD = "held"
    RELEASED = "released"  # by a caller: the request goes on
    LEFT = "left"  # hangs only: the client closed its connection
    FORGOTTEN = "forgotten"  # by a reset: the request ends without an answer


NOT_YET_HELD = frozenset({State.WAITING})
NOT_YET_ENDED = frozenset({State.WAITING, State.HELD})


class Client(Protocol):
    """The connection of the request that is held."""

    def fileno(self) -> int: ...

    def has_left(self) -> bool: ...


@dataclass
class Hold:
    """A hold and, once it has one, its request. Changed only under `Holds`' lock."""

    id: str
    scope: Scope
    at: str
    is_fault: bool = False
    state: State = State.WAITING
    request_id: int | None = None
    arrival: Arrival | None = None
    released: threading.Event = field(default_factory=threading.Event)
    # Written to when a hang is released, so that its thread can wait for the client and for us at once.
    wake_fd: int | None = None

    def shown(self) -> JsonObject:
        seen = self.arrival
        return {
            "id": self.id,
            "state": self.state.value,
            "at": self.at,
            "is_fault": self.is_fault,
            "account": seen.account if seen else self.scope.account,
            "kind": seen.kind if seen else self.scope.kind,
            "key": seen.key if seen else self.scope.key,
            "request_id": self.request_id,
        }


class Holds:
    """All holds and hangs of this process; safe from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holds: dict[str, Hold] = {}

    def place(self, scope: Scope, at: Point) -> Hold:
        """Hold the first request in `scope` that comes to this point."""
        with self._changed:
            return self._add(Hold(id=new_id("hold"), scope=scope, at=at.value))

    def _add(self, hold: Hold) -> Hold:
        if len(self._holds) >= HOLDS_MAX:
            over = (old.id for old in self._holds.values() if old.state not in NOT_YET_ENDED)
            self._holds.pop(next(over, ""), None)
        # Hangs are bounded by the connections that hang, holds by what is asked for here.
        if len(self._holds) >= HOLDS_MAX and not hold.is_fault:
            raise Refused(429, "too_many_holds", f"{HOLDS_MAX} holds are waiting or held already.")
        self._holds[hold.id] = hold
        return hold

    def stop_at(self, point: Point, arrival: Arrival, request_id: int) -> State:
        """Stay here as long as a hold wants this request; RELEASED (also when none does) or FORGOTTEN."""
        with self._changed:
            hold = next((hold for hold in self._holds.values() if _wants(hold, point, arrival)), None)
            if hold is None:
                return State.RELEASED
            self._keep(hold, arrival, request_id)
        hold.released.wait()
        return hold.state

    def hang(self, at: str, arrival: Arrival, request_id: int, client: Client) -> State:
        """Stay silent until released, forgotten, or the client leaves; which of them it was."""
        read_fd, write_fd = os.pipe()
        try:
            with self._changed:
                hold = self._add(Hold(new_id("hold"), Scope(arrival.account), at, True, wake_fd=write_fd))
                self._keep(hold, arrival, request_id)
            left = _client_leaves_first(client, read_fd)
            with self._changed:
                hold.wake_fd = None
                if left and hold.state is State.HELD:
                    hold.state = State.LEFT
                    self._changed.notify_all()
                return hold.state
        finally:
            os.close(read_fd)
            os.close(write_fd)

    def _keep(self, hold: Hold, arrival: Arrival, request_id: int) -> None:
        hold.state, hold.arrival, hold.request_id = State.HELD, arrival, request_id
        self._changed.notify_all()

    def find(
        self, hold_id: str, *, past: frozenset[State] = frozenset(), wait_seconds: float = 0
    ) -> JsonObject:
        """The hold once its state isn't in `past`, or when the time is up; `Refused` 404 if unknown."""
        with self._changed:
            hold = self._get(hold_id)
            self._changed.wait_for(lambda: hold.state not in past, timeout=wait_seconds)
            return hold.shown()

    def all(self) -> list[JsonObject]:
        with self._changed:
            return [hold.shown() for hold in self._holds.values()]

    def wait_for_hang(self, scope: Scope, *, wait_seconds: float) -> JsonObject | None:
        """The first request in `scope` that a fault has hanging now, or None when the time is up."""

        def hanging() -> Hold | None:
            return next((hold for hold in self._holds.values() if _hangs(hold, scope)), None)

        with self._changed:
            hold = self._changed.wait_for(hanging, timeout=wait_seconds)
            return hold.shown() if hold else None

    def release(self, hold_id: str) -> JsonObject:
        """Let the held request go on; a hold that still waits is withdrawn. Again: no difference."""
        with self._changed:
            hold = self._get(hold_id)
            self._end(hold, State.RELEASED)
            return hold.shown()

    def forget(self, account: str | None) -> None:
        """End every hold of an account, or all: what they held makes no effect and gets no answer."""
        with self._changed:
            for hold in self._holds.values():
                mine = hold.arrival.account if hold.arrival else hold.scope.account
                if account in (None, mine):
                    self._end(hold, State.FORGOTTEN)

    def _get(self, hold_id: str) -> Hold:
        if hold_id not in self._holds:
            raise Refused(404, "not_found", "There is no such hold.")
        return self._holds[hold_id]

    def _end(self, hold: Hold, state: State) -> None:
        if hold.state not in NOT_YET_ENDED:
            return
        hold.state = state
        hold.released.set()
        if hold.wake_fd is not None:
            os.write(hold.wake_fd, b"!")
        self._changed.notify_all()


def point(text: str | None) -> Point:
    try:
        return Point(text or "")
    except ValueError:
        raise invalid(f"at must be one of: {', '.join(Point)}") from None


def _wants(hold: Hold, at: Point, arrival: Arrival) -> bool:
    return hold.state is State.WAITING and hold.at == at and hold.scope.covers(arrival)


def _hangs(hold: Hold, scope: Scope) -> bool:
    return (
        hold.is_fault and hold.state is State.HELD and hold.arrival is not None and scope.covers(hold.arrival)
    )


def _client_leaves_first(client: Client, wake_fd: int) -> bool:
    """Wait, without asking over and over, for the client's end of file or a byte on `wake_fd`."""
    poller = select.poll()
    poller.register(client.fileno(), select.POLLIN)
    poller.register(wake_fd, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poller.poll()}
        if wake_fd in ready:
            return False
        if client.has_left():
            return True
        # The client sent more instead of leaving; it is there, and its bytes must not wake us for ever.
        poller.unregister(client.fileno())
