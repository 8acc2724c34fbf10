"""Rows that are read together are the rows that the ORM reads one query after the other."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.postgres.fields import ArrayField
from django.db import connection
from django.db.models import Model, QuerySet, TextField, Value
from django.db.models.functions import Cast
from django.test.utils import CaptureQueriesContext

from console.queries.together import CountOf, Together
from reconciliation.gate_models import AccountGate, LookupTally
from reconciliation.models import Case, Decision, Lookup
from reconciliation.work_models import CaseClaim, CaseNote, CasePresence, CaseSnooze
from reconciliation.working import Worker, be_there, claim_case
from runs.actors import Actor, ActorKind
from runs.models import Attempt, AuditLeaf, Call, Evidence, Grant, Operation, Receipt
from tests import cases, factories

pytestmark = pytest.mark.django_db(transaction=True)

HOSTILE = "100% \\ ' \" {0} %s\n\u202e \U0001f9ea"
NESTED = {"big": 2**60, "exact": 9007199254740993, "ratio": 1.5, "none": None, "list": [1, {"a": HOSTILE}]}

OF_WORDS: ArrayField[Any, Any] = ArrayField(TextField())


def _values(row: Model) -> dict[str, Any]:
    return {one.attname: getattr(row, one.attname) for one in row._meta.concrete_fields}


def _world() -> cases.Opened:
    opened = cases.needs_decision()
    kim = Worker(actor=Actor(ActorKind.PERSON, "person:1", "operator"), name=HOSTILE)
    claim_case(case_id=opened.case_id, team=None, worker=kim)
    be_there(case_id=opened.case_id, teams=[factories.TEAM], worker=kim, used=True)
    Lookup.objects.update(exchange=NESTED, receipts=[NESTED], summary=HOSTILE)
    Case.objects.update(at_risk_minor=2**62 + 1)
    return opened


def test_rows_are_those_that_the_orm_gives() -> None:
    _world()
    asked: list[QuerySet[Any, Any]] = [
        Attempt.objects.order_by("-number"),
        Case.objects.order_by("pk"),
        Lookup.objects.order_by("-id"),
        CaseClaim.objects.all(),
        CasePresence.objects.all(),
        Evidence.objects.defer("body").order_by("-recorded_at", "-id"),
    ]
    together = Together()
    parts = [together.add(one) for one in asked]
    with CaptureQueriesContext(connection) as sent:
        together.read()
    assert len(sent) == 1
    for part, one in zip(parts, asked, strict=True):
        rows = list(one)
        assert rows
        assert list(part.rows) == rows
        for mine, theirs in zip(part.rows, rows, strict=True):
            assert mine.get_deferred_fields() == theirs.get_deferred_fields()
            assert _values(mine) == _values(theirs)
            assert {name: type(value) for name, value in _values(mine).items()} == {
                name: type(value) for name, value in _values(theirs).items()
            }
            assert not mine._state.adding
            assert mine._state.db == theirs._state.db


def test_instants_are_aware_to_the_microsecond_and_arrays_are_lists() -> None:
    opened = _world()
    at = opened.case.opened_at.replace(microsecond=120)
    Case.objects.update(opened_at=at)
    words = ["outcome", HOSTILE, "NULL", ""]
    held = Cast(Value(words, output_field=OF_WORDS), OF_WORDS)
    with connection.cursor() as cursor:
        cursor.execute("SET TIME ZONE 'Asia/Kolkata'")
    try:
        together = Together()
        times = together.add(Case.objects.values("opened_at", "resolved_at"))
        lists = together.add(Case.objects.values(words=held, none=Cast(Value(None), OF_WORDS)))
        together.read()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SET TIME ZONE 'UTC'")
    assert times.rows == ({"opened_at": at, "resolved_at": None},)
    assert isinstance(times.rows[0]["opened_at"], datetime)
    assert times.rows[0]["opened_at"].utcoffset() == timedelta(0)
    assert lists.rows == ({"words": words, "none": None},)


def test_values_reach_over_tables_and_counts_end_where_they_are_cut() -> None:
    opened = _world()
    together = Together()
    nothing = together.add(Case.objects.none())
    steps = together.add(Call.objects.values("turn__index", "tool", "pk"))
    counted = together.add(
        Case.objects.values(
            all=CountOf(Evidence.objects.values("pk")), some=CountOf(Evidence.objects.values("pk")[:1])
        )
    )
    together.read()
    call = opened.operation.call
    assert nothing.rows == ()
    assert nothing.first is None
    assert steps.rows == ({"turn__index": call.turn.index, "tool": call.tool, "pk": call.pk},)
    assert counted.first == {"all": Evidence.objects.count(), "some": 1}


def test_a_part_that_wasnt_read_says_so_and_nothing_to_ask_asks_nothing(
    django_assert_num_queries: Any,
) -> None:
    together = Together()
    part = together.add(Case.objects.none())
    with pytest.raises(RuntimeError):
        part.rows  # noqa: B018 - asking is what is refused
    with django_assert_num_queries(0):
        together.read()
    assert part.rows == ()


@pytest.mark.parametrize(
    "rows",
    [
        AuditLeaf.objects.all(),
        Receipt.objects.all(),
        Operation.objects.values("payload"),
        Case.objects.select_related("run"),
        Case.objects.only("id"),
        Case.objects.order_by().union(Case.objects.order_by()),
        Case.objects.values_list("id"),
    ],
)
def test_what_wouldnt_come_back_as_it_is_is_refused(rows: QuerySet[Any, Any]) -> None:
    with pytest.raises(TypeError):
        Together().add(rows)


def test_every_table_that_a_case_shows_can_be_read_together() -> None:
    for model in (AccountGate, LookupTally, Decision, Grant, CaseNote, CaseSnooze):
        Together().add(model._default_manager.all())
