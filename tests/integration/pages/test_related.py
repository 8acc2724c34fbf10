"""Related cases: what ties them, how many are shown, what they cost, and whose they are."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from console.models import Role
from console.queries.related import NEIGHBOURS_MAX, ROWS_MAX, Why, related_to
from reconciliation.cases import open_case as open_again
from reconciliation.models import Case
from reconciliation.states import CaseKind
from tests import cases, factories
from tests.cases import COURIER, Effect, Opened
from tests.integration.pages.conftest import Login
from tests.integration.pages.forms import page_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def kim(login: Login) -> Client:
    return login(Role.OPERATOR, name="kim")


def shift(opened: Opened, by: timedelta) -> None:
    Case.objects.filter(pk=opened.case_id).update(opened_at=opened.case.opened_at + by)


def ties(opened: Opened) -> dict[str, tuple[Why, ...]]:
    return {one.case_id: one.why for one in related_to(opened.case)}


def test_a_case_of_another_operation_with_the_same_payload_comes_first_and_is_named_so(kim: Client) -> None:
    opened, twin = cases.open_case(), cases.open_case()
    other = cases.open_case(Effect(args={"payment": "pi_other"}))
    shift(twin, timedelta(minutes=-30))
    assert ties(opened) == {twin.case_id: (Why.PAYLOAD, Why.PROVIDER), other.case_id: (Why.PROVIDER,)}
    page = kim.get(f"/cases/{opened.case_id}/")
    first, second = page.context["page"].related
    assert (first.case_id, first.is_twin, second.is_twin) == (twin.case_id, True, False)
    tied = "Same payload (another operation asks for exactly the same), same provider within an hour"
    assert first.ties == tied
    assert tied in page.content.decode()


def test_the_window_is_an_hour_to_both_sides_and_of_one_provider() -> None:
    opened = cases.open_case()
    distinct = [Effect(args={"payment": f"pi_{number}"}) for number in range(4)]
    early, late, out_early, out_late = [cases.open_case(one) for one in distinct]
    elsewhere = cases.open_case(Effect(provider=COURIER, args={"parcel": "p1"}))
    for one, minutes in ((early, -59), (late, 59), (out_early, -61), (out_late, 61), (elsewhere, 0)):
        Case.objects.filter(pk=one.case_id).update(
            opened_at=opened.case.opened_at + timedelta(minutes=minutes)
        )
    assert set(ties(opened)) == {early.case_id, late.case_id}


def test_an_earlier_case_of_the_same_operation_is_told_from_a_twin(kim: Client) -> None:
    opened = cases.open_case()
    cases.looked_up(opened, cases.found(opened))
    with factories.held(opened.operation) as locked:
        again = open_again(locked, kind=CaseKind.CONFLICT, because="A second effect.")
    assert [one.why[0] for one in related_to(again)] == [Why.OPERATION]
    (row,) = page_of(kim, f"/cases/{again.pk}/").related
    assert (row.ties, row.is_twin, row.badge.word) == ("Same operation", False, "Confirmed")
    (back,) = page_of(kim, f"/cases/{opened.case_id}/").related
    assert (back.case_id, back.is_conflict) == (again.pk, True)


def test_another_teams_cases_are_related_to_nothing(kim: Client) -> None:
    opened = cases.open_case()
    cases.open_case(team="other")
    page = kim.get(f"/cases/{opened.case_id}/")
    assert page.context["page"].related == ()
    assert "None: no other case of this run or with this payload" in page.content.decode()


def test_many_are_bounded_and_cost_one_query_by_indexes() -> None:
    opened = cases.open_case()
    made = [cases.open_case() for _ in range(ROWS_MAX + NEIGHBOURS_MAX + 2)]
    with CaptureQueriesContext(connection) as asked:
        found = related_to(opened.case)
    # One more reads the case itself here.
    assert len(asked) == 2
    assert ROWS_MAX <= len(found) <= ROWS_MAX + NEIGHBOURS_MAX < len(made)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_sort = off")
        cursor.execute("EXPLAIN " + asked.captured_queries[-1]["sql"])
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "case_by_payload" in plan
    assert plan.count("case_by_provider") == 2
    assert "reconciliation_case_run_id" in plan
    assert "Seq Scan" not in plan


def test_a_case_keeps_its_operations_payload_digest() -> None:
    opened = cases.open_case()
    assert opened.case.payload_digest == opened.operation.payload_digest


def test_a_tools_name_is_text_in_the_list(kim: Client) -> None:
    opened = cases.open_case()
    hostile = cases.open_case()
    Case.objects.filter(pk=hostile.case_id).update(tool="<script>x</script>")
    assert "<script>x" not in kim.get(f"/cases/{opened.case_id}/").content.decode()
