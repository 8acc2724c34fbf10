"""Holds without HTTP: how many, how long they are remembered, and whom a release reaches."""

from __future__ import annotations

import pytest

from console.sandbox import holds as module
from console.sandbox.holds import Holds, Point, State, point
from console.sandbox.records import ANY_ACCOUNT, Arrival, Scope
from console.sandbox.wire import Refused

ARRIVAL = Arrival("a", "orders", "k")


@pytest.mark.parametrize(
    ("scope", "covers"),
    [
        (Scope("a"), True),
        (Scope(ANY_ACCOUNT), True),
        (Scope("b"), False),
        (Scope("a", "orders"), True),
        (Scope("a", "refunds"), False),
        (Scope("a", "orders", "k"), True),
        (Scope("a", None, "other"), False),
    ],
)
def test_a_scope_covers_what_it_names_and_what_it_leaves_open(scope: Scope, covers: bool) -> None:
    assert scope.covers(ARRIVAL) is covers


def test_without_a_hold_nobody_stops() -> None:
    assert Holds().stop_at(Point.RECEIVED, ARRIVAL, 1) is State.RELEASED


def test_too_many_waiting_holds_are_refused_and_ended_ones_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HOLDS_MAX", 2)
    holds = Holds()
    first, second = (holds.place(Scope("a"), Point.RECEIVED) for _ in range(2))
    with pytest.raises(Refused) as refused:
        holds.place(Scope("a"), Point.RECEIVED)
    assert refused.value.code == "too_many_holds"
    holds.release(second.id)
    third = holds.place(Scope("a"), Point.RECEIVED)
    assert [hold["id"] for hold in holds.all()] == [first.id, third.id]


def test_a_release_after_the_end_changes_nothing() -> None:
    holds = Holds()
    hold = holds.place(Scope("a"), Point.RECEIVED)
    holds.forget("b")
    assert holds.find(hold.id)["state"] == State.WAITING
    holds.forget("a")
    assert holds.release(hold.id)["state"] == State.FORGOTTEN


def test_a_point_that_is_none_is_refused_with_those_there_are() -> None:
    with pytest.raises(Refused, match="before_commit"):
        point("somewhere")
    with pytest.raises(Refused):
        point(None)
