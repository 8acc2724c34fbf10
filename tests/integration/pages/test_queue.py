"""The queue: order, filters, pages of it, the backlog, and what all that costs."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from console import following, search_terms
from console.access import person_actor
from console.models import Person, Role
from console.pages.present.saved_views import SHARED_PREFIX
from console.queries import backlog, queue, runs
from reconciliation.models import Case
from reconciliation.work_models import CaseClaim
from reconciliation.working import Worker, claim_case
from runs.actors import Actor, ActorKind
from tests import cases, factories
from tests.cases import Effect
from tests.integration.pages.conftest import Login
from tests.integration.pages.forms import page_of
from tests.many import analyze, more_cases, more_leaves

# The page's own and the session's; a page of fifty rows may not ask more often than a page of one.
QUEUE_QUERIES_MAX = 12


@pytest.fixture
def operator(login: Login) -> Client:
    return login(Role.OPERATOR)


def shown(client: Client, path: str = "/") -> list[str]:
    return [row.case_id for group in page_of(client, path).groups for row in group.rows]


def worsen(opened: cases.Opened, minutes: float) -> None:
    at = timezone.now() + timedelta(minutes=minutes)
    Case.objects.filter(pk=opened.case_id).update(worsens_at=at, decide_by_at=at)


# --- Order and groups -----------------------------------------------------------------------------------


def test_what_gets_worse_first_comes_first_and_then_the_larger_amount(operator: Client) -> None:
    small, large, soon, over = (
        cases.needs_decision(Effect(minor=minor)) for minor in (5_000, 90_000, 100, 200)
    )
    at = timezone.now() + timedelta(hours=3)
    Case.objects.filter(pk__in=[small.case_id, large.case_id]).update(worsens_at=at)
    worsen(soon, 30)
    worsen(over, -5)
    assert shown(operator) == [one.case_id for one in (over, soon, large, small)]
    titles = [group.title for group in page_of(operator, "/").groups]
    assert titles == [
        "Past the time limit, or the key’s window has closed (1)",
        "Key or time limit ends within 1 hour (1)",
        "Everything else (2 shown)",
    ]


def test_a_row_says_what_is_at_stake_and_keeps_requests_apart_from_effects(operator: Client) -> None:
    opened = cases.open_case(Effect(tool="place_order", provider=cases.SUPPLIER, minor=48_600))
    cases.looked_up(opened, cases.mismatch(opened))
    ((row,),) = (group.rows for group in page_of(operator, "/").groups)
    assert row.title == "Order €486.00"
    assert (row.counts.requests, row.counts.effects) == (1, 1)
    assert row.shows.word == "Other content under our key"
    assert row.at_risk.minor == 48_600
    # Not to be looked up from here, where nobody says where the sandbox is; and it may still arrive.
    assert [str(one) for one in row.answers] == ["yes", "yes", "no", "no", "yes"]


def test_the_answers_of_a_row_are_those_of_the_cases_page(operator: Client) -> None:
    made = [
        cases.needs_decision(),
        cases.needs_decision(Effect(tool="book_pickup", provider=cases.COURIER, minor=None)),
    ]
    late = cases.open_case()
    cases.looked_up(late, cases.mismatch(late))
    made.append(late)
    rows = {row.case_id: row for group in page_of(operator, "/").groups for row in group.rows}
    for opened in made:
        page = page_of(operator, f"/cases/{opened.case_id}/")
        assert rows[opened.case_id].answers == tuple(one.answer for one in page.questions)


def test_where_nothing_can_be_looked_up_effects_are_not_counted_as_none(operator: Client) -> None:
    cases.needs_decision(Effect(tool="book_pickup", provider=cases.COURIER, minor=None))
    ((row,),) = (group.rows for group in page_of(operator, "/").groups)
    assert row.counts.effects is None
    assert "effects can’t be counted" in operator.get("/").content.decode()


# --- Views and filters ----------------------------------------------------------------------------------


def test_each_view_shows_its_own_cases(operator: Client) -> None:
    waiting = cases.needs_decision()
    looking = cases.open_case()
    settled = cases.open_case()
    cases.looked_up(settled, cases.found(settled))
    conflict = cases.open_case()
    cases.looked_up(conflict, cases.several(conflict))
    worsen(waiting, 10)
    assert shown(operator) == [waiting.case_id, conflict.case_id]
    assert shown(operator, "/?view=looking_up") == [looking.case_id]
    assert shown(operator, "/?view=resolved") == [settled.case_id]
    assert shown(operator, "/?view=conflict") == [conflict.case_id]
    assert shown(operator, "/?view=soon") == [waiting.case_id]
    assert shown(operator, "/?view=retrying") == []
    assert shown(operator, "/?view=nonsense") == [waiting.case_id, conflict.case_id]


def test_filters_in_the_address_narrow_the_list(operator: Client) -> None:
    refund = cases.needs_decision(flow="refund-agent", external_id="ORD-1")
    order = cases.needs_decision(
        Effect(tool="place_order", provider=cases.SUPPLIER, minor=48_600),
        flow="restock-agent",
        external_id="PO-2",
    )
    Case.objects.filter(pk=order.case_id).update(opened_at=timezone.now() - timedelta(hours=2))
    for query, expected in (
        (f"provider={cases.PAYMENTS}", refund),
        ("flow=restock-agent", order),
        ("tool=place_order", order),
        ("finding=not_found&tool=create_refund", refund),
        ("min=500", refund),
        ("min=€1,000.00", refund),
        ("age=1h", order),
        (f"q={refund.operation.pk}", refund),
        (f"q={order.operation.key}", order),
        (f"q={refund.run.pk}", refund),
        (f"q={order.case_id}", order),
        ("q=PO-2", order),
        ("q=  ORD-1 ", refund),
        (f"provider={cases.PAYMENTS}&flow=refund-agent&min=1240", refund),
    ):
        assert shown(operator, f"/?{query}") == [expected.case_id], query
    for query in (
        "q=op_nothing",
        "min=1241",
        "provider=nobody",
        "finding=mismatch",
        "reason=parked",
        "tool=nothing",
        "q=PO",
        "q=%00",
    ):
        page = page_of(operator, f"/?{query}")
        expected_all = query == "q=%00"
        assert (page.groups != ()) is expected_all, query
    assert shown(operator, "/?reason=not_found&age=15min") == [order.case_id]


def test_a_list_is_narrowed_to_whoever_works_on_its_cases(operator: Client, login: Login) -> None:
    login(Role.OPERATOR, name="kim")
    me = Person.objects.get(username="operator")
    kim = Person.objects.get(username="kim")
    mine, theirs, ended, free = (cases.needs_decision() for _ in range(4))
    for opened, person in ((mine, me), (theirs, kim), (ended, me)):
        claim_case(case_id=opened.case_id, team=None, worker=Worker(actor=person_actor(person), name="x"))
    over = timezone.now() - timedelta(minutes=1)
    CaseClaim.objects.filter(case=ended.case_id).update(claimed_at=over, used_at=over, until_at=over)
    for assignee, expected in (
        ("me", [mine]),
        (f"person:{me.pk}", [mine]),
        (f"person:{kim.pk}", [theirs]),
        ("nobody", [ended, free]),
        ("person:999", []),
        ("", [mine, theirs, ended, free]),
        ("person:", [mine, theirs, ended, free]),
        ("nonsense", [mine, theirs, ended, free]),
    ):
        assert sorted(shown(operator, f"/?assignee={assignee}")) == sorted(one.case_id for one in expected), (
            assignee
        )
    page = page_of(operator, f"/?assignee=person:{kim.pk}")
    (field,) = (one for one in page.filters if one.name == "assignee")
    assert [(one.label, one.selected) for one in field.choices] == [
        ("Anyone", False),
        ("Me", False),
        ("Nobody", False),
        ("kim", True),
    ]
    assert [(chip.name, chip.value) for chip in page.chips] == [("Worked on by", "kim")]


def test_a_saved_view_of_my_cases_is_of_whoever_follows_it(operator: Client, login: Login) -> None:
    colleague = login(Role.OPERATOR, name="kim")
    opened = cases.needs_decision()
    kim = person_actor(Person.objects.get(username="kim"))
    claim_case(case_id=opened.case_id, team=None, worker=Worker(actor=kim, name="Kim"))
    operator.post("/queue/views/", {"name": "Mine", "query": "assignee=me", "reach": f"{SHARED_PREFIX}ops"})
    (view,) = (one for one in page_of(colleague, "/").saved.rows if one.name == "Mine")
    assert view.href == "/?assignee=me"
    assert shown(colleague, view.href) == [opened.case_id]
    assert shown(operator, view.href) == []


def test_a_part_of_a_name_finds_a_case_at_once_and_says_that_it_is_a_part(operator: Client) -> None:
    opened = cases.needs_decision(external_id="ORD-77041-Berlin")
    cases.needs_decision(external_id="ORD-2")
    operation = opened.operation
    for part in ("77041-ber", operation.pk[-8:].lower(), operation.key[5:20]):
        assert shown(operator, f"/?q={part}") == [opened.case_id], part
    assert [chip.name for chip in page_of(operator, "/?q=berlin").chips] == ["Contains"]
    assert [chip.name for chip in page_of(operator, f"/?q={operation.pk}").chips] == ["Named"]
    assert shown(operator, "/?q=%25%25%25") == []
    assert shown(operator, "/?q=be") == []


@pytest.mark.usefixtures("transactional_db")
def test_a_part_of_a_settled_ones_name_is_found_once_it_is_known(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled = cases.open_case(external_id="ORD-77041-Berlin")
    cases.looked_up(settled, cases.found(settled, id="rfd_3SxB"))
    assert shown(operator, "/?view=resolved&q=berlin") == []
    monkeypatch.setattr(following, "SETTLE_SECONDS", 0)
    search_terms.index_terms()
    search_terms.index_terms()
    for part in ("berlin", "3sxb", settled.operation.key[3:12]):
        assert shown(operator, f"/?view=resolved&q={part}") == [settled.case_id], part


def test_a_minimum_counts_in_each_currencys_own_units(operator: Client) -> None:
    opened = cases.needs_decision()
    for currency, minor, found in (("JPY", 100, True), ("JPY", 99, False), ("KWD", 99_999, False)):
        Case.objects.filter(pk=opened.case_id).update(at_risk_currency=currency, at_risk_minor=minor)
        assert shown(operator, "/?min=100") == ([opened.case_id] if found else []), (currency, minor)


def test_links_and_forms_keep_the_filters(operator: Client) -> None:
    opened = cases.needs_decision()
    more_cases(opened, 60)
    page = page_of(operator, f"/?provider={cases.PAYMENTS}&age=&q=")
    assert page.next.href.startswith(f"/?provider={cases.PAYMENTS}&after=")
    assert page_of(operator, page.next.href).chips == page.chips
    assert all(f"provider={cases.PAYMENTS}" in tab.href for tab in page.tabs)
    assert f"provider={cases.PAYMENTS}" in page.poll_href
    assert "after=" not in page.tabs[1].href
    body = operator.get("/?view=soon").content.decode()
    assert '<input type="hidden" name="view" value="soon">' in body


def test_each_filter_is_a_chip_whose_link_takes_that_one_away(operator: Client) -> None:
    cases.needs_decision()
    path = (
        f"/?view=soon&q=ORD&provider={cases.PAYMENTS}&flow=f&tool=refund"
        "&finding=not_found&reason=parked&age=4h&min=€1,000&assignee=nobody"
    )
    page = page_of(operator, path)
    assert [(chip.name, chip.value) for chip in page.chips] == [
        ("Contains", "ORD"),
        ("Provider", cases.PAYMENTS),
        ("Flow", "f"),
        ("Tool", "Refund"),
        ("Last finding", "Not found, no proof"),
        ("Asked because", "The lookups keep failing"),
        ("Waiting", "over 4 h"),
        ("At risk, at least", "1000"),
        ("Worked on by", "Nobody"),
    ]
    for chip in page.chips:
        left = page_of(operator, chip.href).chips
        assert [one.name for one in left] == [one.name for one in page.chips if one.name != chip.name]
    assert page.clear_href == "/?view=soon"
    chosen = {field.name: [one.value for one in field.choices if one.selected] for field in page.filters}
    assert chosen["flow"] == ["f"], "a choice that nobody offers any more stays chosen"
    assert page_of(operator, "/?age=nonsense&min=none&view=nonsense").chips == ()


# --- Pages, news ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", ["needs_decision", "looking_up", "resolved"])
def test_pages_follow_one_another_without_a_gap_or_a_repeat(operator: Client, view: str) -> None:
    opened = cases.needs_decision() if view == "needs_decision" else cases.open_case()
    if view == "resolved":
        cases.looked_up(opened, cases.found(opened))
    more_cases(opened, 119)
    seen: list[str] = []
    path = f"/?view={view}"
    pages = 0
    while path:
        page = page_of(operator, path)
        rows = [row.case_id for group in page.groups for row in group.rows]
        assert len(rows) <= queue.PAGE_ROWS
        seen += rows
        path = page.next.href if page.next else ""
        pages += 1
    assert pages == 3
    assert len(seen) == len(set(seen)) == 120


def test_a_place_in_the_list_that_cant_be_read_is_a_400(operator: Client) -> None:
    for after in ("x", "e30", "W10", "WyIyMDI2IiwgMSwgMV0", "A" * 1_000, "bnVsbA"):
        assert operator.get(f"/?after={after}").status_code == 400, after
        assert operator.get(f"/runs/?after={after}").status_code == 400, after
        assert operator.get(f"/effects/?after={after}").status_code == 400, after
    assert operator.get("/queue/news/?since=yesterday").status_code == 400


def test_the_pill_counts_what_came_since_and_moves_no_row(operator: Client) -> None:
    cases.needs_decision()
    page = page_of(operator, "/")
    assert "newpill" not in operator.get(page.poll_href).content.decode()
    cases.needs_decision()
    cases.needs_decision()
    body = operator.get(page.poll_href, headers={"HX-Request": "true"}).content.decode()
    assert "2 new: show them" in body
    assert "<table" not in body
    assert '<div id="backlog" hx-swap-oob="innerMorph">' in body
    assert '<span class="stat__number">3</span>' in body


def test_an_unchanged_queue_is_answered_in_a_head_alone(operator: Client) -> None:
    cases.needs_decision()
    page = page_of(operator, "/")
    first = operator.get(page.poll_href)
    again = operator.get(page.poll_href, headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    cases.needs_decision()
    assert operator.get(page.poll_href, headers={"If-None-Match": first["ETag"]}).status_code == 200


def test_what_is_typed_into_the_palette_is_answered_with_links_and_without_a_redirect(
    operator: Client,
) -> None:
    opened = cases.needs_decision()
    path = f"/search/?q={opened.operation.pk}"
    hits = operator.get(path, headers={"HX-Request": "true"})
    assert f'href="/cases/{opened.case_id}/"' in hits.content.decode()
    assert "<html" not in hits.content.decode()
    assert operator.get("/search/?q=", headers={"HX-Request": "true"}).content == b""
    assert operator.get(path)["Location"] == f"/cases/{opened.case_id}/"


def test_the_pill_counts_what_came_into_this_list_and_leads_back_to_it(operator: Client) -> None:
    page = page_of(operator, "/?tool=place_order")
    cases.needs_decision()
    assert "newpill" not in operator.get(page.poll_href).content.decode()
    cases.needs_decision(Effect(tool="place_order", provider=cases.SUPPLIER, minor=100))
    body = operator.get(page.poll_href).content.decode()
    assert "1 new: show them" in body
    assert 'href="/?tool=place_order"' in body


def test_an_empty_queue_says_what_is_going_on(operator: Client) -> None:
    cases.open_case()
    page = page_of(operator, "/")
    assert page.empty.title == "Nothing needs a decision"
    assert "1 operation is being looked up" in page.empty.text
    assert page_of(operator, "/?q=op_x").empty.title == "No case here matches"
    for view in list(queue.View):
        if view is not queue.View.LOOKING_UP:
            empty = page_of(operator, f"/?view={view}").empty
            assert "come" in empty.text or "stay" in empty.text, view
    past_the_end = queue.keyset.pack(timezone.now() + timedelta(days=999), 0, "case_x")
    assert page_of(operator, f"/?after={past_the_end}").empty.title == "The list ends here"


# --- The backlog ----------------------------------------------------------------------------------------


def test_the_backlog_counts_what_waits_how_long_and_for_how_much(operator: Client, login: Login) -> None:
    for minor, hours in ((10_000, 0), (20_000, 2), (30_000, 30)):
        opened = cases.needs_decision(Effect(minor=minor))
        Case.objects.filter(pk=opened.case_id).update(opened_at=timezone.now() - timedelta(hours=hours))
    yen = cases.needs_decision()
    Case.objects.filter(pk=yen.case_id).update(at_risk_currency="JPY", at_risk_minor=500)
    worsen(opened, -10)
    settled = cases.open_case()
    cases.looked_up(settled, cases.found(settled))
    cases.needs_decision(team="other")
    page = page_of(operator, "/")
    numbers = {stat.label: (stat.number, stat.note) for stat in page.stats}
    assert numbers["Needs a decision"] == ("4", "1 past the time limit")
    assert numbers["Settled, last 24 h"] == ("1", "1 without a person")
    assert numbers["At risk now"] == ("€600.00", "and JPY 500 in 1 case")
    assert [bucket.count for bucket in page.waits] == [2, 0, 0, 1, 0, 1]
    assert page.lead.startswith("4 side effects")


def test_counts_stop_at_their_cap(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = cases.needs_decision()
    more_cases(opened, 20)
    monkeypatch.setattr(backlog, "COUNT_MAX", 10)
    found = backlog.backlog_of(teams=[factories.TEAM], now=timezone.now())
    assert found.waiting == 11
    assert sum(found.waits) == 11


# --- Cost -----------------------------------------------------------------------------------------------


def test_fifty_rows_ask_the_database_as_often_as_one(operator: Client) -> None:
    opened = cases.needs_decision()
    operator.get("/")
    with CaptureQueriesContext(connection) as one:
        operator.get("/")
    more_cases(opened, 200)
    with CaptureQueriesContext(connection) as many:
        operator.get("/")
    assert len(many) == len(one) <= QUEUE_QUERIES_MAX


@pytest.mark.usefixtures("transactional_db")
def test_no_list_reads_a_whole_table(owner_url: str) -> None:
    opened = cases.needs_decision()
    more_cases(opened, 300)
    settled = cases.open_case()
    cases.looked_up(settled, cases.found(settled))
    # As after a year: what is settled outnumbers by far what waits.
    more_cases(settled, 8_000, batch=2)
    # So many that no planner, of PostgreSQL 15 or 18, finds it cheaper to read them all.
    more_leaves(opened.operation, 60_000)
    analyze(owner_url)
    # What the check is for, so that it is known to see it.
    assert _whole_tables("SELECT * FROM reconciliation_case WHERE opened_because LIKE 'x%%'", []) == [
        "reconciliation_case"
    ]
    asked: list[tuple[str, Any]] = []
    teams = [factories.TEAM]
    for view in queue.View:
        asked += _statements(lambda view=view: queue.list_cases(teams=teams, asked=queue.Asked(view=view)))
    first = queue.list_cases(teams=teams, asked=queue.Asked())
    asked += _statements(lambda: queue.list_cases(teams=teams, asked=queue.Asked(after=first.after)))
    asked += _statements(lambda: queue.list_cases(teams=teams, asked=queue.Asked(text=opened.operation.key)))
    for narrowed in (
        {"assignee": queue.ME, "me": "person:1"},
        {"assignee": queue.NOBODY},
        {"provider": cases.PAYMENTS},
        {"flow": "x"},
        {"tool": "x"},
        {"finding": "mismatch"},
        {"reason": "parked"},
        {"amount_min": Decimal(10)},
        {"waiting_min": timedelta(hours=1)},
        {"text": opened.operation.pk[-6:]},
    ):
        asked += _statements(
            lambda narrowed=narrowed: queue.list_cases(teams=teams, asked=queue.Asked(**narrowed))
        )
    asked += _statements(lambda: runs.read_run(opened.run.pk, teams=teams))
    asked += _statements(lambda: queue.place_of(opened.case, teams=teams, now=timezone.now()))
    asked += _statements(lambda: runs.list_runs(teams=teams, asked=runs.Asked()))
    assert len(asked) > 40
    scanned = [(sql, found) for sql, params in asked if (found := _whole_tables(sql, params))]
    assert not scanned, scanned[:3]


def _statements(call: Any) -> list[tuple[str, Any]]:
    """The statements that a call makes, with their parameters."""
    seen: list[tuple[str, Any]] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        seen.append((sql, params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        call()
    return [(sql, params) for sql, params in seen if "clock_timestamp" not in sql]


# The tables that this test fills; reading all of a small one is what an index would do as well.
_LARGE = {"reconciliation_case", "runs_operation", "runs_run", "runs_call", "runs_auditleaf"}


def _whole_tables(sql: str, params: Any) -> list[str]:
    """The large tables that a statement would read from end to end."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}", params)
        (plan,) = cursor.fetchone()
    found: list[str] = []
    nodes = [plan[0]["Plan"]]
    while nodes:
        node = nodes.pop()
        nodes += node.get("Plans", [])
        table = node.get("Relation Name", "")
        if node["Node Type"] == "Seq Scan" and table in _LARGE:
            found.append(table)
    return found


def test_a_row_names_whoever_works_on_its_case(operator: Client) -> None:
    taken, free = cases.needs_decision(), cases.needs_decision()
    colleague = Worker(actor=Actor(ActorKind.PERSON, "person:colleague"), name="<b>Kim</b>")
    claim_case(case_id=taken.case_id, team=None, worker=colleague)
    rows = {row.case_id: row.claimant for group in page_of(operator, "/").groups for row in group.rows}
    assert rows == {taken.case_id: "<b>Kim</b>", free.case_id: ""}
    shown = operator.get("/").content.decode()
    assert "&lt;b&gt;Kim&lt;/b&gt; works on it" in shown
    # The one that is free can be worked on from here: claimed, and opened.
    assert f'formaction="/cases/{taken.case_id}/claim/"' not in shown
    assert f'formaction="/cases/{free.case_id}/claim/"' in shown


def test_who_works_on_no_cases_is_offered_none(login: Login) -> None:
    cases.needs_decision()
    shown = login(Role.VIEWER).get("/").content.decode()
    assert "data-row" in shown
    assert "Next for me" not in shown
    assert "formaction" not in shown


def test_a_view_says_what_its_cases_wait_for(operator: Client) -> None:
    cases.needs_decision()
    leads = {
        view: page_of(operator, f"/?view={view}").lead for view in ("looking_up", "retrying", "resolved")
    }
    assert "are being asked" in leads["looking_up"]
    assert "One more request" in leads["retrying"]
    assert "settled" in leads["resolved"]
