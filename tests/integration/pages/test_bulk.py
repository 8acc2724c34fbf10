"""Many cases at once, as a person meets it: choose, look, start, watch, read; and what each refusal keeps."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from console.models import Person, Role
from console.pages.present.bulk_file import inert_cell
from console.queries import bulk as lists
from reconciliation import bulk
from reconciliation.bulk_models import BulkJob, BulkOutcome
from reconciliation.models import Decision
from reconciliation.work_models import CaseClaim
from reconciliation.working import claim_case
from runs.models import AuditLeaf
from tests import cases
from tests.cases import Effect, Opened
from tests.integration.pages.conftest import Login
from tests.integration.pages.forms import page_of
from tests.integration.test_bulk import colleague_abandons, person, run

WORDS = {"reason_code": "no_longer_needed", "reason": "The orders were cancelled by the customer."}
ORDER = Effect(tool="place_order", provider=cases.SUPPLIER, args={"sku": "FC-20", "quantity": 4})


@pytest.fixture
def kim(login: Login) -> Client:
    return login(Role.OPERATOR, name="kim")


def freeze(client: Client, deed: str, *opened: Opened, **more: str) -> str:
    """Choose these rows in the queue; returns the address of the list."""
    data = {"deed": deed, "case": [one.case_id for one in opened], **more}
    answer = client.post("/bulk/new/", data)
    assert answer.status_code == 302, answer.content
    address: str = answer["Location"]
    return address


def start(client: Client, address: str, **data: str) -> Any:
    return client.post(f"{address}start/", {"step": "start", **data})


def decide(client: Client, address: str, choice: str = "abandon-continue") -> Any:
    return start(client, address, choice=choice, seen=choice, **WORDS)


def said(page: Any) -> str:
    parts = (part for one in page.forecast.said for part in one.text)
    return " ".join(getattr(part, "text", str(part)) for part in parts)


# --- Choosing -----------------------------------------------------------------------------------------------


def test_the_queue_offers_rows_to_choose_to_those_who_may_do_something_with_them(login: Login) -> None:
    opened = cases.needs_decision()
    offered = {
        Role.OPERATOR: ["claim", "assign", "look_up", "decide"],
        Role.APPROVER: ["claim", "assign", "look_up"],
        Role.AUDITOR: [],
    }
    for role, deeds in offered.items():
        client = login(role)
        bar = page_of(client, "/").bulk
        assert [one.value for one in bar.deeds] if bar else deeds == [], role
        shown = f'name="case" value="{opened.case_id}"' in client.get("/").content.decode()
        assert shown == bool(deeds), role
    assert page_of(login(Role.OPERATOR), "/?view=resolved").bulk is None


def test_everything_that_matches_is_frozen_in_the_queues_order_and_the_rest_isnt(kim: Client) -> None:
    first, second = cases.needs_decision(), cases.needs_decision()
    cases.needs_decision(ORDER)
    answer = kim.post("/bulk/new/", {"deed": "claim", "every": "yes", "query": f"provider={cases.PAYMENTS}"})
    job = BulkJob.objects.get(pk=answer["Location"].split("/")[2])
    listed = [one.case_id for one in job.items.order_by("position")]
    rows = [row.case_id for group in page_of(kim, "/").groups for row in group.rows]
    assert listed == [one for one in rows if one in (first.case_id, second.case_id)]
    assert job.query == f"provider={cases.PAYMENTS}"


def test_more_than_fit_are_cut_and_the_page_says_so(kim: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        cases.needs_decision()
    monkeypatch.setattr(bulk, "DECIDED_MAX", 2)
    answer = kim.post("/bulk/new/", {"deed": "decide", "every": "yes", "query": ""})
    page = page_of(kim, answer["Location"])
    assert BulkJob.objects.get().items_count == 2
    assert page.notice.startswith("More than 2 cases match.")


def test_choosing_nothing_or_what_one_may_not_is_refused_on_the_queue(login: Login, kim: Client) -> None:
    opened = cases.needs_decision()
    nothing = kim.post("/bulk/new/", {"deed": "claim", "query": "view=soon"})
    assert (nothing.status_code, "Choose at least one case." in nothing.content.decode()) == (422, True)
    odd = kim.post("/bulk/new/", {"deed": "delete", "case": opened.case_id, "every": "yes"})
    assert odd.status_code == 422
    # What was chosen stays chosen.
    page = odd.context["page"]
    assert ([row.chosen for group in page.groups for row in group.rows], page.bulk.everything) == (
        [True],
        True,
    )
    assert odd.content.decode().count(" checked>") == 2
    approver = login(Role.APPROVER).post("/bulk/new/", {"deed": "decide", "case": opened.case_id})
    assert approver.status_code == 403
    assert "decisions are for operators" in approver.content.decode()
    outsider = login(Role.OPERATOR, name="out", team="other")
    assert outsider.post("/bulk/new/", {"deed": "claim", "case": opened.case_id}).status_code == 404
    assert BulkJob.objects.count() == 0


def test_a_list_is_its_persons_alone(login: Login, kim: Client) -> None:
    address = freeze(kim, "claim", cases.needs_decision())
    robin = login(Role.OPERATOR, name="robin")
    for path in (address, f"{address}progress/", f"{address}outcomes.csv"):
        assert robin.get(path).status_code == 404, path
    for path in ("start", "stop", "narrowing"):
        assert robin.post(f"{address}{path}/", {"step": "start"}).status_code == 404, path
    assert page_of(robin, "/bulk/").rows == ()
    assert [row.href for row in page_of(kim, "/bulk/").rows] == [address]


# --- Looking ------------------------------------------------------------------------------------------------


def test_opening_a_list_says_what_would_happen_and_writes_nothing(kim: Client) -> None:
    free, taken = cases.needs_decision(), cases.needs_decision()
    claim_case(case_id=taken.case_id, team=None, worker=person("robin"))
    address = freeze(kim, "claim", free, taken)
    leaves = AuditLeaf.objects.count()
    page = page_of(kim, address)
    assert page.form.primary == "Claim 1 case"
    assert "1 case  is claimed for you, for ten minutes" in said(page)
    assert [(one.case_id, one.note) for one in page.forecast.left] == [
        (taken.case_id, "robin works on this case.")
    ]
    assert AuditLeaf.objects.count() == leaves
    assert CaseClaim.objects.count() == 1


def test_the_preview_of_a_decision_says_it_of_each_and_in_sum(kim: Client) -> None:
    opened = [cases.needs_decision() for _ in range(3)]
    address = freeze(kim, "decide", *opened)
    assert page_of(kim, address).forecast is None
    colleague_abandons(opened[0])
    claim_case(case_id=opened[2].case_id, team=None, worker=person("robin"))
    answer = kim.post(f"{address}start/", {"step": "preview", "choice": "abandon-continue", **WORDS})
    page = answer.context["page"]
    text = said(page)
    assert "2 cases  are decided, each with a decision and an audit entry of its own" in text
    assert "2 cases :  their runs go on" in text
    assert "Can’t be undone." in text
    assert "robin  works on 1 case of these." in text
    assert page.form.primary == "Abandon 2 cases"
    assert [one.case_id for one in page.forecast.left] == [opened[0].case_id]
    assert "robin decided: abandon." in page.forecast.left[0].note
    # What was typed is still there.
    assert page.form.reason == WORDS["reason"]
    assert [one.value for one in page.form.reason_codes if one.selected] == [WORDS["reason_code"]]
    assert Decision.objects.count() == 1

    retry = kim.post(f"{address}start/", {"step": "preview", "choice": "retry-agent"}).context["page"]
    assert "At most 2 requests  by their agents" in said(retry)
    assert "nothing is sent" in said(retry)


def test_another_choice_than_the_one_that_was_seen_is_shown_before_it_starts(kim: Client) -> None:
    address = freeze(kim, "decide", cases.needs_decision())
    answer = start(kim, address, choice="abandon-end", seen="retry-agent", **WORDS)
    assert answer.status_code == 200
    assert answer.context["page"].form.seen == "abandon-end"
    assert BulkJob.objects.get().state == "frozen"


def test_cases_that_differ_are_not_decided_together_but_kind_by_kind(kim: Client) -> None:
    refund, order = cases.needs_decision(), cases.needs_decision(ORDER)
    address = freeze(kim, "decide", refund, order)
    page = page_of(kim, address)
    assert page.form is None
    assert "They differ in provider" in page.kinds_text
    refused = decide(kim, address)
    assert refused.status_code == 409
    assert "These cases differ in provider" in refused.content.decode()
    kind = next(one for one in page.kinds if one.provider == cases.SUPPLIER)
    answer = kim.post(f"{address}narrowing/", {"kind": kind.value})
    job = BulkJob.objects.get(pk=answer["Location"].split("/")[2])
    assert [one.case_id for one in job.items.all()] == [order.case_id]
    assert kim.post(f"{address}narrowing/", {"kind": "9"}).status_code == 422


# --- Starting -----------------------------------------------------------------------------------------------


def test_a_refused_start_keeps_every_word(kim: Client) -> None:
    address = freeze(kim, "decide", cases.needs_decision())
    short = start(kim, address, choice="abandon-end", seen="abandon-end", reason_code="other", reason="no")
    assert short.status_code == 422
    form = short.context["page"].form
    assert [one.field for one in form.errors] == ["reason"]
    assert (form.reason, form.seen) == ("no", "abandon-end")
    assert start(kim, address, **WORDS).status_code == 422
    Person.objects.filter(username="kim").update(roles=["approver"])
    forbidden = decide(kim, address)
    assert forbidden.status_code == 403
    assert forbidden.context["page"].form.reason == WORDS["reason"]
    assert BulkJob.objects.get().state == "frozen"


def test_what_is_started_is_watched_stopped_and_read(kim: Client) -> None:
    opened = [cases.needs_decision() for _ in range(2)]
    address = freeze(kim, "decide", *opened)
    assert decide(kim, address)["Location"] == address
    page = page_of(kim, address)
    assert page.progress.text == "0 of 2 cases seen to, 0 done"
    assert [one.outcome.word for one in page.cases] == ["Waiting", "Waiting"]
    progress = kim.get(f"{address}progress/")
    assert progress["Cache-Control"] == "private, no-cache"
    assert kim.get(f"{address}progress/", headers={"If-None-Match": progress["ETag"]}).status_code == 304
    # Twice the same is one; something else is refused.
    assert decide(kim, address).status_code == 302
    assert decide(kim, address, "abandon-end").status_code == 409
    assert kim.post(f"{address}stop/").status_code == 302
    assert kim.post(f"{address}stop/").status_code == 409
    page = page_of(kim, address)
    assert [one.outcome.word for one in page.cases] == ["Left as it was"] * 2
    assert (page.progress.poll_href, page.badge.word) == ("", "Stopped")
    assert kim.get(f"{address}progress/", headers={"If-None-Match": progress["ETag"]}).status_code == 200


def test_a_list_of_which_every_case_was_refused_is_not_called_done(kim: Client) -> None:
    opened = cases.needs_decision()
    address = freeze(kim, "decide", opened)
    decide(kim, address)
    colleague_abandons(opened)
    run(BulkJob.objects.get())
    assert page_of(kim, address).badge.word == "Nothing was done"
    # And the overview says no better of it than its own page.
    (row,) = page_of(kim, "/bulk/").rows
    assert row.badge == page_of(kim, address).badge


def test_the_result_names_each_outcome_and_why(kim: Client) -> None:
    opened = [cases.needs_decision() for _ in range(2)]
    address = freeze(kim, "decide", *opened)
    decide(kim, address)
    colleague_abandons(opened[1])
    run(BulkJob.objects.get())
    page = page_of(kim, address)
    assert page.badge.word == "Done in part"
    assert [(one.case_id, one.outcome.word) for one in page.cases] == [
        (opened[0].case_id, "Done"),
        (opened[1].case_id, "Refused"),
    ]
    assert "robin decided: abandon." in page.cases[1].note
    assert [(tab.label, tab.count) for tab in page.tabs] == [("All", "2"), ("Done", "1"), ("Refused", "1")]
    assert [one.case_id for one in page_of(kim, f"{address}?show=refused").cases] == [opened[1].case_id]
    answer = kim.get(f"{address}outcomes.csv")
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert [(row["case"], row["result"], row["word"]) for row in rows] == [
        (opened[0].case_id, "done", ""),
        (opened[1].case_id, "refused", "decision_stale"),
    ]
    assert rows[0]["decision"] == BulkOutcome.objects.get(result="done").decision_id
    assert rows[0]["link"].endswith(f"/cases/{opened[0].case_id}/")


def test_a_tool_that_is_named_like_a_formula_is_inert_in_the_file(kim: Client) -> None:
    formula = '=HYPERLINK("http://evil.example","x")'
    opened = cases.needs_decision(Effect(tool=formula, provider=cases.COURIER, minor=None))
    address = freeze(kim, "claim", opened)
    row = next(csv.DictReader(io.StringIO(kim.get(f"{address}outcomes.csv").content.decode())))
    assert (row["tool"], row["result"]) == (f"'{formula}", "waiting")


def test_cells_that_a_spreadsheet_would_calculate_are_not_left_to_it() -> None:
    for start_of in ("=1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "＝1", "|cmd"):
        assert inert_cell(start_of) == f"'{start_of}"
    assert [inert_cell(one) for one in ("", "A refund", "3 - 2", "op_1")] == ["", "A refund", "3 - 2", "op_1"]


def test_cases_are_given_to_somebody_of_the_team_who_may_work_on_them(login: Login, kim: Client) -> None:
    for name, role in (("robin", Role.APPROVER), ("lee", Role.VIEWER)):
        login(role, name=name)
    login(Role.OPERATOR, name="stranger", team="other")
    opened = cases.needs_decision()
    address = freeze(kim, "assign", opened)
    people = {one.label: one.value for one in page_of(kim, address).form.people}
    assert list(people) == ["kim", "robin"]
    assert start(kim, address, assignee="").status_code == 422
    lee = Person.objects.get(username="lee")
    assert start(kim, address, assignee=f"person:{lee.pk}").status_code == 422
    assert start(kim, address, assignee=people["robin"]).status_code == 302
    run(BulkJob.objects.get())
    rows = [row for group in page_of(kim, "/").groups for row in group.rows]
    assert (rows[0].claimant, rows[0].given_by) == ("robin", "kim")
    assert "Assigned to robin by kim" in kim.get("/").content.decode()
    # Opened, it is theirs to work on like any other.
    login(Role.APPROVER, name="robin").get(f"/cases/{opened.case_id}/")
    assert "robin works on it" in kim.get("/").content.decode()


def test_a_list_shows_nothing_of_cases_that_went_out_of_its_persons_sight(kim: Client, login: Login) -> None:
    opened = cases.needs_decision()
    claims, decides = freeze(kim, "claim", opened), freeze(kim, "decide", opened)
    assert opened.case_id in kim.get(claims).content.decode()
    Person.objects.get(username="kim").teams.clear()
    login(Role.OPERATOR, name="kim", team="other")
    answers = [kim.get(claims), kim.get(decides), decide(kim, decides, choice="retry-agent")]
    start(kim, claims)
    run(BulkJob.objects.get(pk=claims.split("/")[2]))
    answers += [kim.get(claims), kim.get(f"{claims}?show=refused"), kim.get(f"{claims}outcomes.csv")]
    for answer in answers:
        assert opened.case_id not in answer.content.decode(), answer.request["PATH_INFO"]
    assert BulkOutcome.objects.get().word == "forbidden"


def test_nobody_of_another_team_can_be_named_or_given_a_case(kim: Client, login: Login) -> None:
    address = freeze(kim, "assign", cases.needs_decision())
    login(Role.OPERATOR, name="stranger", team="other")
    number = Person.objects.get(username="stranger").pk
    for step in ("review", "start"):
        answer = kim.post(f"{address}start/", {"step": step, "assignee": f"person:{number}"})
        assert "stranger" not in answer.content.decode(), step
    assert answer.status_code == 422
    assert BulkJob.objects.get().state == "frozen"


def test_a_page_of_a_long_list_costs_as_many_queries_as_a_short_one(kim: Client) -> None:
    opened = [cases.needs_decision() for _ in range(4)]
    short, long = freeze(kim, "claim", opened[0]), freeze(kim, "claim", *opened)
    counted = []
    for address in (short, long):
        with CaptureQueriesContext(
            connection,
        ) as queries:
            kim.get(address)
        counted.append(len(queries))
    assert counted[0] == counted[1] <= 12
    job = BulkJob.objects.get(pk=long.split("/")[2])
    bulk.start(job_id=job.pk, worker=person(), wanted=bulk.Wanted())
    run(job)
    with CaptureQueriesContext(connection) as queries:
        kim.get(long)
    assert len(queries) <= 12
    assert lists.counts_of(job).done == 4
