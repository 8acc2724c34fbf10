"""The effect history and the search: who did what, when and why, found by what it is called."""

from __future__ import annotations

import hashlib
import json

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from console.models import Person, Role
from runs.models import AuditLeaf, Evidence, Receipt
from tests import cases, factories
from tests.cases import REASON
from tests.integration.pages.conftest import Login
from tests.integration.pages.forms import decide, page_of
from tests.many import more_leaves

HISTORY_QUERIES_MAX = 12


@pytest.fixture
def operator(login: Login) -> Client:
    return login(Role.OPERATOR)


def test_a_decision_stands_in_the_history_with_who_when_and_why(operator: Client) -> None:
    opened = cases.needs_decision()
    decide(operator, opened, "abandon", then="end")
    page = page_of(operator, "/effects/?action=decisions")
    (entry,) = page.entries
    assert entry.event.word == "Decided: abandon"
    assert (entry.actor.name, entry.actor.is_person) == ("operator", True)
    assert REASON in entry.note
    assert entry.subject == "Refund €1,240.00"
    assert entry.subject_href.startswith(f"/effects/{opened.operation.pk}/?entry=")
    run = next(one for one in page_of(operator, "/effects/").entries if one.subject_id == opened.run.pk)
    assert run.subject == f"Run {opened.run.external_id}"
    opened_page = page_of(operator, entry.href.split("#")[0])
    facts = {
        fact.label: "".join(str(getattr(p, "text", p)) for p in fact.value)
        for fact in opened_page.entries[0].facts
    }
    assert facts["Who"] == "operator"
    assert facts["Why"] == REASON
    assert facts["Reason code"] == "Other, see the reason"
    assert facts["When"].endswith("UTC")


def test_an_open_entry_shows_the_leaf_as_it_is_stored_with_its_digest(operator: Client) -> None:
    cases.needs_decision()
    leaf = AuditLeaf.objects.latest("id")
    page = page_of(operator, f"/effects/?entry={leaf.pk}")
    entry = next(one for one in page.entries if one.open)
    assert json.loads(entry.body.text) == json.loads(bytes(leaf.body))
    assert entry.body.digest == hashlib.sha256(bytes(leaf.body)).hexdigest()
    assert f"entry={leaf.pk}" not in entry.href


def test_the_history_is_narrowed_by_operation_run_person_and_kind(operator: Client, login: Login) -> None:
    opened, other = cases.needs_decision(), cases.needs_decision()
    decide(operator, opened, "abandon", then="end")
    robin = login(Role.OPERATOR, name="robin")
    decide(robin, other, "retry", executor="agent")
    person = Person.objects.get(username="robin")

    def about(query: str) -> set[str]:
        return {entry.subject_id for entry in page_of(operator, f"/effects/?{query}").entries}

    assert about(f"q={opened.operation.pk}") == {opened.operation.pk}
    assert about(f"q={opened.operation.key}") == {opened.operation.pk}
    assert about(f"q={opened.case_id}") == {opened.operation.pk}
    assert opened.operation.pk in about(f"q={opened.run.pk}")
    assert other.operation.pk not in about(f"q={opened.run.pk}")
    assert about(f"actor=person:{person.pk}") == {other.operation.pk}
    assert about(f"action=decisions&q={opened.operation.pk}") == {opened.operation.pk}
    assert about("q=op_nothing") == set()
    # What isn’t kept as it was given asks another question, so it is none.
    assert about("actor=%00&q=%00&action=%00") == set()
    for group, word in (("requests", "Request sent"), ("leases", "Run claimed"), ("settled", "Given up")):
        words = {entry.event.word for entry in page_of(operator, f"/effects/?action={group}").entries}
        assert word in words, group


def test_pages_of_the_history_follow_one_another(operator: Client) -> None:
    opened = cases.needs_decision()
    more_leaves(opened.operation, 120)
    total = AuditLeaf.objects.filter(team_slug=factories.TEAM).count()
    seen: list[str] = []
    path = "/effects/"
    while path:
        page = page_of(operator, path)
        seen += [entry.entry_id for entry in page.entries]
        path = page.next.href if page.next else ""
    assert len(seen) == len(set(seen)) == total


def test_a_full_page_of_the_history_costs_as_many_queries_as_a_short_one(operator: Client) -> None:
    opened = cases.needs_decision()
    operator.get("/effects/")
    with CaptureQueriesContext(connection) as short:
        operator.get("/effects/")
    more_leaves(opened.operation, 2_000)
    with CaptureQueriesContext(connection) as full:
        operator.get("/effects/")
    assert len(full) <= len(short) <= HISTORY_QUERIES_MAX


def test_an_entry_that_isnt_known_yet_is_shown_by_its_own_words(operator: Client) -> None:
    opened = cases.needs_decision()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO runs_auditleaf"
            " (body, at, action, team_slug, run_ref, operation_ref, actor_kind, actor)"
            " VALUES ('not json', clock_timestamp(), 'moon.landed', %s, '', %s, 'robot', 'r2')",
            [factories.TEAM, opened.operation.pk],
        )
    page = page_of(operator, "/effects/")
    assert page.entries[0].event.word == "Moon landed"
    assert operator.get(page.entries[0].href.split("#")[0]).status_code == 200
    assert operator.get(f"/cases/{opened.case_id}/").status_code == 200


# --- Search ---------------------------------------------------------------------------------------------


def test_search_leads_straight_to_the_one_thing_it_names(operator: Client) -> None:
    opened = cases.open_case(external_id="ORD-77041")
    cases.looked_up(opened, cases.found(opened, id="rfd_77"))
    receipt = Receipt.objects.get()
    evidence = Evidence.objects.filter(kind="lookup").get()
    case, run = f"/cases/{opened.case_id}/", f"/runs/{opened.run.pk}/"
    for query, target in (
        (opened.case_id, case),
        (opened.operation.pk, case),
        (opened.operation.key, case),
        ("rfd_77", case),
        (receipt.pk, case),
        (evidence.pk, f"{case}#{evidence.pk}"),
        (opened.run.pk, run),
        ("ORD-77041", run),
        ("  ORD-77041  ", run),
    ):
        answer = operator.get("/search/", {"q": query})
        assert answer.status_code == 302, query
        assert answer["Location"] == target, query


def test_search_lists_what_several_things_are_called(operator: Client) -> None:
    factories.make_run(external_id="ORD-1", flow="one")
    factories.make_run(external_id="ORD-1", flow="two")
    page = page_of(operator, "/search/?q=ORD-1")
    assert [hit.kind for hit in page.hits] == ["Run", "Run"]


def test_search_finds_nothing_by_a_part_that_is_not_known_yet_and_survives_odd_words(
    operator: Client,
) -> None:
    opened = cases.needs_decision()
    for query in ("", "op_", opened.operation.pk[:10], "%", "\x00", "x" * 10_000, "' OR 1=1 --", "🤷"):
        answer = operator.get("/search/", {"q": query})
        assert answer.status_code == 200, query
        assert answer.context["page"].hits == ()
        assert answer.context["page"].empty is not None
