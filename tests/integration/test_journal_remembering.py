"""What "go" leaves behind for the report that follows."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from runs.journal import intentions
from runs.journal.intentions import Intended, read_intended, remember
from runs.journal.prepared import Statement
from runs.refusals import NotFound
from tests import factories

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    intentions._remembered.clear()


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[Statement]:
    asked: list[Statement] = []

    def fetch_one(statement: Statement, parameters: Any) -> Any:
        asked.append(statement)
        return real(statement, parameters)

    real = intentions.fetch_one
    monkeypatch.setattr(intentions, "fetch_one", fetch_one)
    return asked


def test_a_report_after_go_needs_no_read_and_sees_what_the_row_says(monkeypatch: pytest.MonkeyPatch) -> None:
    claimed = factories.make_claimed(factories.effect(minor=1200), budget_minor=10_000)
    read = read_intended(operation_id=claimed.operation.pk, team=factories.TEAM)
    factories.send(claimed)
    asked = count_reads(monkeypatch)
    assert read_intended(operation_id=claimed.operation.pk, team=factories.TEAM) == read
    assert asked == []


def test_what_is_remembered_for_one_team_is_not_there_for_another() -> None:
    claimed = factories.make_claimed()
    factories.send(claimed)
    factories.make_team("others")
    with pytest.raises(NotFound):
        read_intended(operation_id=claimed.operation.pk, team="others")
    assert read_intended(operation_id=claimed.operation.pk, team=None).team_id == factories.TEAM


def intended(pk: str, payload: bytes = b"{}") -> Intended:
    return Intended(pk, factories.TEAM, "sandbox-supplier", "k", payload, "", None, "orders")


def test_no_more_is_remembered_than_its_bounds() -> None:
    for number in range(intentions.REMEMBERED_MAX + 5):
        remember(intended(f"op_{number}"))
    assert len(intentions._remembered) == intentions.REMEMBERED_MAX
    assert "op_4" not in intentions._remembered
    assert "op_5" in intentions._remembered


@pytest.mark.parametrize(("over", "kept"), [(0, True), (1, False)])
def test_a_payload_over_its_bound_is_read_again_and_not_remembered(over: int, kept: bool) -> None:
    remember(intended("op_1", b"x" * (intentions.REMEMBERED_PAYLOAD_BYTES_MAX + over)))
    assert ("op_1" in intentions._remembered) is kept


def test_what_is_remembered_is_the_immutable_part_alone() -> None:
    """A field that a later write may change must not be added to it."""
    assert {one.name for one in dataclasses.fields(Intended)} == {
        "pk",
        "team_id",
        "provider_id",
        "key",
        "payload",
        "amount_currency",
        "amount_minor",
        "tool",
    }
