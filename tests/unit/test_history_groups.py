"""The words that the history is narrowed by: whoever asks for decisions or requests misses none."""

from __future__ import annotations

from console.queries.effects import ACTIONS, Group
from reconciliation.states import Action


def test_whoever_asks_for_decisions_finds_every_kind_of_them() -> None:
    assert set(ACTIONS[Group.DECISIONS]) == {f"case.decided.{action}" for action in Action}


def test_a_request_that_undoes_an_effect_is_among_the_requests() -> None:
    assert "absence.sent" in ACTIONS[Group.REQUESTS]
