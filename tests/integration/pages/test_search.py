"""Search by a part of a name: what it finds, for whom, why, and how far behind it may be."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from console import following, search_terms
from console.models import Role
from console.queries import parts
from console.queries.parts import CUT_LENGTH_MIN, TWO_SLIPS_LENGTH_MIN, find_parts
from console.search_models import SearchProgress, SearchTerm
from runs.models import AuditLeaf, Receipt
from tests import cases, factories
from tests.benchmark.pages import NO_QUERIES, read_whole
from tests.integration.pages.conftest import Login
from tests.integration.pages.forms import page_of
from tests.many import analyze, more_cases

# What is new is only taken over once transactions that were under way are over: the test's own must end.
pytestmark = pytest.mark.usefixtures("transactional_db")


@pytest.fixture(autouse=True)
def _settle_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "SETTLE_SECONDS", 0)


@pytest.fixture
def operator(login: Login) -> Client:
    return login(Role.OPERATOR)


def index() -> search_terms.Indexed:
    """Take over everything there is: one pass notes how far that is, the next goes there."""
    search_terms.index_terms()
    latest = AuditLeaf.objects.order_by("-id").values_list("pk", flat=True).first() or 0
    # The server's own upkeep of this database has transactions too, of some milliseconds.
    until = time.monotonic() + 30
    while True:
        indexed = search_terms.index_terms()
        if SearchProgress.objects.filter(settled_leaf__gte=latest).exists() or time.monotonic() > until:
            return indexed
        time.sleep(0.02)


def index_twice() -> None:
    """Take over what can be, and no more, beside a transaction that the test holds."""
    search_terms.index_terms()
    search_terms.index_terms()


def hits(client: Client, query: str) -> list[tuple[str, str, str]]:
    answer = client.get("/search/", {"q": query})
    assert answer.status_code == 200, query
    return [(hit.kind, hit.why, "|".join(hit.marked)) for hit in answer.context["page"].hits]


def terms() -> list[tuple[str, str, str]]:
    return sorted(SearchTerm.objects.values_list("subject", "kind", "term"))


# --- What is found ----------------------------------------------------------------------------------------


def test_each_name_is_found_by_its_beginning_by_a_part_and_by_a_slip(operator: Client) -> None:
    opened = cases.open_case(external_id="ORD-77041-Berlin")
    cases.looked_up(opened, cases.found(opened, id="rfd_3SxBq81Zt"))
    index()
    operation, key = opened.operation.pk, opened.operation.key
    assert hits(operator, operation[:20]) == [
        ("Operation", "Operation id begins with it:", f"|{operation[:20]}|{operation[20:]}")
    ]
    assert hits(operator, operation[-9:].lower()) == [
        ("Operation", "Operation id contains it:", f"{operation[:-9]}|{operation[-9:]}|")
    ]
    assert hits(operator, key[:9]) == [
        ("Operation", "Idempotency key begins with it:", f"|{key[:9]}|{key[9:]}")
    ]
    assert hits(operator, "RFD_3SxB") == [
        ("Operation", "Receipt’s reference begins with it:", "|rfd_3SxB|q81Zt")
    ]
    assert hits(operator, "berlin") == [("Run", "External id contains it:", "ORD-77041-|Berlin|")]
    assert hits(operator, "ORD-77014-Berlin") == [
        ("Run", "External id is written alike:", "ORD-77041-Berlin||")
    ]
    assert hits(operator, "ORD-9") == []


def test_two_slips_in_a_long_name_and_one_in_a_short_one_find_it(operator: Client) -> None:
    opened = cases.open_case(external_id="PO-77041-B")
    cases.looked_up(opened, cases.found(opened, id="rfd_3SxBq81Z"))
    index()
    operation, key = opened.operation.pk, opened.operation.key
    assert len("PO-77041-B") < CUT_LENGTH_MIN <= len("rfd_3SxBq81Z") < TWO_SLIPS_LENGTH_MIN
    for at in (3, 6, -1):
        assert hits(operator, with_slips("rfd_3SxBq81Z", at)) == [
            ("Operation", "Receipt’s reference is written alike:", "rfd_3SxBq81Z||")
        ], at
    assert hits(operator, "PO-77041-C") == [("Run", "External id is written alike:", "PO-77041-B||")]
    for at in ((-1, -9), (-1, 12), (11, 18)):
        assert hits(operator, with_slips(operation, *at)) == [
            ("Operation", "Operation id is written alike:", f"{operation}||")
        ], at
    assert hits(operator, with_slips(key, -1, -20)) == [
        ("Operation", "Idempotency key is written alike:", f"{key}||")
    ]
    # One piece is as it is, and all the rest is another name.
    assert hits(operator, "x" * 20 + key[-10:]) == []


def with_slips(name: str, *at: int) -> str:
    letters = list(name)
    for one in at:
        letters[one] = "9" if letters[one] != "9" else "8"
    return "".join(letters)


def test_what_has_the_whole_name_comes_first_and_once(operator: Client) -> None:
    factories.make_run(external_id="ORD-1", flow="one")
    factories.make_run(external_id="ORD-1", flow="two")
    factories.make_run(external_id="ORD-12", flow="one")
    index()
    assert hits(operator, "ORD-1") == [
        ("Run", "External id is exactly this:", "|ORD-1|"),
        ("Run", "External id is exactly this:", "|ORD-1|"),
        ("Run", "External id begins with it:", "|ORD-1|2"),
    ]


def test_a_whole_name_is_found_before_any_part_is_known(operator: Client) -> None:
    opened = cases.open_case(external_id="ORD-5501")
    assert not SearchTerm.objects.exists()
    assert operator.get("/search/", {"q": "ORD-5501"})["Location"] == f"/runs/{opened.run.pk}/"
    page = page_of(operator, "/search/?q=ORD-55")
    assert page.hits == ()
    assert page.through_at is None
    assert page.notice.startswith("Only whole names are found so far")


def test_a_part_of_another_teams_name_finds_nothing(login: Login) -> None:
    cases.open_case(external_id="ORD-77041-Berlin")
    index()
    outsider = login(Role.OPERATOR, name="robin", team="other")
    for query in ("ORD-77041-B", "berlin", "ORD-77014-Berlin"):
        assert hits(outsider, query) == []


def test_a_long_part_is_in_what_it_finds_from_its_first_letter_to_its_last(operator: Client) -> None:
    for name in ("Z-south-2026-000417-x", "Z-north-2026-000417-x", "Z-southern-000417-x"):
        factories.make_run(external_id=name)
    index()
    for part in ("south-2026-000417", "SOUTH-2026-000417-X", "th-2026-000417-x"):
        assert {hit[1] for hit in hits(operator, part)} == {"External id contains it:"}, part
    assert [hit[2] for hit in hits(operator, "south-2026-000417")] == ["Z-|south-2026-000417|-x"]
    assert len(hits(operator, "th-2026-000417-x")) == 2


def test_a_part_needs_three_characters_and_signs_of_patterns_are_letters(operator: Client) -> None:
    factories.make_run(external_id="100%_sure")
    factories.make_run(external_id="100xysure")
    index()
    assert hits(operator, "10") == []
    assert "at least 3 characters" in page_of(operator, "/search/?q=10").empty.text
    assert [hit[2] for hit in hits(operator, "0%_s")] == ["10|0%_s|ure"]
    for query in ("%%%", "___", "\\\\\\", "' OR 1=1 --", "🤷🤷🤷", "x" * 300):
        assert hits(operator, query) == [], query


def test_a_name_that_is_a_script_is_shown_as_letters_mark_and_all(operator: Client) -> None:
    factories.make_run(external_id="<script>alert(1)</script>\u202etxt")
    index()
    shown = operator.get("/search/", {"q": "pt>alert"}).content.decode()
    assert "<mark>pt&gt;alert</mark>" in shown
    assert "<script>alert" not in shown
    assert "\u202e" not in shown


def test_pages_of_parts_go_on_where_the_last_ended(operator: Client) -> None:
    for number in range(7):
        factories.make_run(external_id=f"ORD-{number}")
        factories.make_run(external_id=f"X-ORD-{number}")
    index()
    teams, seen, after = [factories.TEAM], [], ""
    while True:
        found = find_parts("ord-", teams=teams, after=after, rows_max=4)
        seen += [(str(one.how), one.subject) for one in found.matches]
        after = found.after
        if not after:
            break
    assert [how for how, _ in seen] == ["begins"] * 7 + ["contains"] * 7
    assert len({subject for _, subject in seen}) == 14
    page = page_of(operator, "/search/?q=ord-&after=" + find_parts("ord-", teams=teams, rows_max=4).after)
    assert [hit.title for hit in page.hits][:3] == ["ORD-4", "ORD-5", "ORD-6"]
    assert operator.get("/search/?q=ord-&after=nonsense").status_code == 400


def test_a_part_that_too_much_contains_is_given_up_in_time_and_said_so(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    factories.make_run(external_id="ORD-1")
    factories.make_run(external_id="X-ORD-1")
    index()
    slow = parts._CONTAINS.replace("FROM found ORDER", "FROM found, pg_sleep(60) ORDER")
    assert slow != parts._CONTAINS
    monkeypatch.setattr(parts, "_CONTAINS", slow)
    page = page_of(operator, "/search/?q=ord")
    assert [hit.title for hit in page.hits] == ["ORD-1"]
    assert page.notice.startswith("Looking through every name that has this part would take too long")
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone() == ("0",)


# --- Cost -------------------------------------------------------------------------------------------------


def test_search_reads_no_table_whole_and_asks_at_most_twelve_times(operator: Client, owner_url: str) -> None:
    opened = cases.open_case(external_id="ORD-77041-Berlin")
    more_cases(opened, 3_000)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO console_searchterm (kind, term, team_slug, subject)"
            " SELECT 'key', 'rk-' || md5(n::text), 'ops', 'op_' || 1 || lpad(n::text, 25, '0')"
            " FROM generate_series(1, 40000) AS n"
        )
    index()
    analyze(owner_url)
    # What the check is for, so that it is known to see it.
    assert read_whole(connection, "SELECT * FROM console_searchterm WHERE kind LIKE '%x'", 2_000) == {
        "console_searchterm"
    }
    operator.get("/")
    key = "rk-c4ca4238a0b923820dcc509a6f75849b"  # of the first
    shown = {
        opened.operation.pk: 0,
        key: 1,
        key[:8]: 1,
        key[9:20]: 1,
        f"{key[:12]}9{key[13:]}": 1,
        "berlin": 1,
        "nothing-like-it": 0,
        # Of those that it begins, what they name is mostly made up here.
        "rk-": 2,
    }
    for query, number in shown.items():
        with CaptureQueriesContext(connection) as captured:
            answer = operator.get("/search/", {"q": query})
        asked = [one["sql"] for one in captured if not one["sql"].startswith(NO_QUERIES)]
        assert len(asked) <= 12, query
        if answer.status_code == 200:
            assert len(answer.context["page"].hits) == number, query
        assert not [sql for sql in asked if read_whole(connection, sql, 2_000)], query


# --- How names come in ------------------------------------------------------------------------------------


def test_names_are_taken_over_once_however_often_and_in_whatever_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = cases.open_case(external_id="ORD-1")
    cases.looked_up(opened, cases.found(opened, id="RFD_1"))
    index()
    operation, run = opened.operation, opened.run
    assert terms() == sorted(
        [
            (run.pk, "external_id", "ord-1"),
            (operation.pk, "operation", operation.pk[3:].lower()),
            (operation.pk, "key", operation.key),
            (operation.pk, "receipt", "rfd_1"),
        ]
    )
    kept = terms()
    SearchProgress.objects.all().delete()
    monkeypatch.setattr(search_terms, "BATCH_LEAVES", 1)
    assert index().leaves == AuditLeaf.objects.count() > 4
    assert terms() == kept


def test_a_pass_that_runs_out_of_time_leaves_the_rest_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        factories.make_run()
    monkeypatch.setattr(search_terms, "BATCH_LEAVES", 1)
    search_terms.index_terms()
    first = search_terms.index_terms(seconds=0)
    assert (first.leaves, first.more) == (1, True)
    assert SearchTerm.objects.count() == 1
    assert search_terms.index_terms().more is False
    assert SearchTerm.objects.count() == 3


def test_a_name_that_commits_late_is_not_passed_over(connect: Callable[[], psycopg.Connection[Any]]) -> None:
    late, early = factories.make_run(external_id="LATE"), factories.make_run(external_id="EARLY")
    leaf = AuditLeaf.objects.get(run_ref=late.pk)
    SearchTerm.objects.all().delete()
    index()
    slow = connect()
    # Another start has its entry's number, and its transaction isn't over.
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval(pg_get_serial_sequence('runs_auditleaf', 'id'))")
        (number,) = cursor.fetchone()
    with slow.transaction():
        slow.execute(
            "INSERT INTO runs_auditleaf"
            " (id, body, at, action, team_slug, run_ref, operation_ref, actor_kind, actor)"
            " VALUES (%s, %s, now(), 'run.started', 'ops', %s, '', 'token', 't')",
            [number, bytes(leaf.body), "run_unseen"],
        )
        after = factories.make_run(external_id="AFTER")
        index_twice()
        assert set(SearchTerm.objects.values_list("subject", flat=True)) == {late.pk, early.pk}
        assert SearchProgress.objects.get().through_leaf < number
    index()
    assert SearchTerm.objects.filter(subject=after.pk).exists()
    assert SearchProgress.objects.get().through_leaf > number


def test_a_transaction_of_another_database_of_the_server_holds_nothing_up(app_url: str) -> None:
    with psycopg.connect(app_url, dbname="postgres") as elsewhere:
        # It has a number, and lasts.
        (number,) = elsewhere.execute("SELECT pg_current_xact_id()::text::bigint").fetchone() or (0,)
        made = factories.make_run(external_id="ORD-1")
        index()
        assert number < SearchProgress.objects.get().noted_xid
        assert SearchTerm.objects.filter(subject=made.pk).exists()


def test_a_transaction_that_began_last_of_all_is_waited_for(
    connect: Callable[[], psycopg.Connection[Any]],
) -> None:
    made = factories.make_run(external_id="ORD-1")
    slow = connect()
    with slow.transaction():
        # Nothing has ended since it got its number: it is the end of every snapshot until then.
        slow.execute("SELECT pg_current_xact_id()")
        index_twice()
        assert not SearchTerm.objects.exists()
    index()
    assert SearchTerm.objects.filter(subject=made.pk).exists()


def test_one_pass_works_while_another_passes_by(connect: Callable[[], psycopg.Connection[Any]]) -> None:
    factories.make_run()
    index()
    holder = connect()
    with holder.transaction():
        holder.execute("SELECT * FROM console_searchprogress FOR UPDATE")
        assert search_terms.index_terms() == search_terms.Indexed(more=True)
    assert search_terms.index_terms().more is False


def test_after_a_restore_into_another_server_names_go_on_being_taken_over() -> None:
    factories.make_run()
    index()
    # Numbers of transactions begin anew there.
    SearchProgress.objects.update(noted_xid=10**15)
    made = factories.make_run()
    search_terms.index_terms()
    index()
    assert SearchTerm.objects.filter(subject=made.pk).exists()


def test_a_page_says_until_when_parts_are_known_also_where_nothing_happens(operator: Client) -> None:
    factories.make_run(external_id="ORD-1")
    index()
    first = page_of(operator, "/search/?q=ORD-").through_at
    index()
    later = page_of(operator, "/search/?q=ORD-").through_at
    assert first < later
    assert "Parts of names are known up to" in operator.get("/search/?q=ORD-").content.decode()


def test_receipts_are_taken_over_for_their_own_operation() -> None:
    one, other = cases.open_case(), cases.open_case()
    cases.looked_up(one, cases.found(one, id="rfd_one"))
    cases.looked_up(other, cases.found(other, id="rfd_other"))
    index()
    named = dict(SearchTerm.objects.filter(kind="receipt").values_list("subject", "term"))
    assert named == dict(Receipt.objects.values_list("operation_id", "reference"))
