"""What narrows the effect history: each filter and all together, exceptions, both directions, plans."""

from __future__ import annotations

import itertools
import json
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from console import following
from console.access import person_actor
from console.history_models import HistoryEntry, HistoryMark, HistoryProgress, Mark
from console.models import Person, Role
from console.pages.present.marked import EXCEPTIONS, PRESETS
from console.queries import effects
from reconciliation import reports
from reconciliation.fencing import Write, note_refused_write
from reconciliation.working import Worker, claim_case, take_over
from runs import audit, leases
from runs.actors import Actor, ActorKind
from runs.models import AuditLeaf
from tests import cases, factories
from tests.filing import file_history
from tests.integration.pages.conftest import Login
from tests.integration.pages.forms import decide, page_of
from tests.many import analyze, more_leaves

QUERIES_MAX = 12
# Filing waits for every other transaction of the database: of the test's own there may be none.
pytestmark = pytest.mark.usefixtures("transactional_db")


@pytest.fixture(autouse=True)
def _settle_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "SETTLE_SECONDS", 0)


@pytest.fixture
def auditor(login: Login) -> Client:
    return login(Role.AUDITOR)


def entries(client: Client, **words: str) -> list[str]:
    """The numbers of the entries of every page of the history under these filters."""
    seen: list[str] = []
    path = f"/effects/?{urlencode(words)}"
    while path:
        page = page_of(client, path)
        seen += [entry.entry_id for entry in page.entries]
        path = page.next.href if page.next else ""
    return seen


def ids(leaves: Any) -> list[str]:
    return [f"entry-{pk}" for pk in leaves.order_by("-at", "-id").values_list("pk", flat=True)]


@pytest.mark.parametrize("filed", [False, True], ids=["not filed yet", "filed"])
def test_every_combination_of_filters_finds_what_has_all_of_them(
    auditor: Client, login: Login, filed: bool
) -> None:
    opened = cases.needs_decision()
    other = cases.needs_decision(cases.Effect(tool="send_email", provider="sandbox-mail", minor=None))
    cases.needs_decision(team="other")
    decide(login(Role.OPERATOR), opened, "abandon", then="end")
    robin = login(Role.OPERATOR, name="robin")
    decide(robin, other, "abandon", then="end")
    actor = f"person:{Person.objects.get(username='robin').pk}"
    if filed:
        file_history()
    middle = AuditLeaf.objects.get(action="case.decided.abandon", operation_ref=opened.operation.pk).at
    provider: dict[str, object] = {"provider": "sandbox-mail"}
    mine = AuditLeaf.objects.filter(team_slug=factories.TEAM)
    choices: list[tuple[tuple[str, str, dict[str, object]], ...]] = [
        (("", "", {}), ("action", "case.decided.abandon", {"action": "case.decided.abandon"})),
        (("", "", {}), ("actor", actor, {"actor": actor})),
        (("", "", {}), ("provider", "sandbox-mail", provider)),
        (
            ("", "", {}),
            ("from", middle.isoformat(), {"at__gte": middle}),
            ("until", middle.isoformat(), {"at__lt": middle}),
        ),
    ]
    for chosen in itertools.product(*choices):
        words = {name: value for name, value, _ in chosen if name}
        wanted = mine
        for _, _, condition in chosen:
            if condition is provider:
                wanted = wanted.filter(operation_ref=other.operation.pk)
            else:
                wanted = wanted.filter(**condition)
        if words:
            assert entries(auditor, **words) == ids(wanted), words
    assert entries(auditor, action="decisions") == ids(mine.filter(action__startswith="case.decided."))


def test_pages_lead_back_to_the_newer_ones_they_came_from(auditor: Client) -> None:
    opened = cases.needs_decision()
    more_leaves(opened.operation, 120)
    for narrowing in ("", "action=operation.sent", f"q={opened.run.pk}"):
        first = page_of(auditor, f"/effects/?{narrowing}")
        second = page_of(auditor, first.next.href)
        third = page_of(auditor, second.next.href)
        assert first.newer is None
        for page, before in ((third, second), (second, first)):
            back = page_of(auditor, page.newer.href)
            assert [one.entry_id for one in back.entries] == [one.entry_id for one in before.entries]
        assert page_of(auditor, page_of(auditor, second.newer.href).next.href).entries == second.entries


def test_a_search_among_newer_entries_says_how_far_it_came_and_goes_on(
    auditor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = Actor(ActorKind.PERSON, "person:7", "operator")
    written = ["case.noted", *["case.claimed"] * 30, "case.noted", "case.noted"]
    for action in written:
        audit.append(audit.Event(action=action, actor=person, team=factories.TEAM, subject="case_1"))
    file_history()
    monkeypatch.setattr(effects, "SCANNED_MAX", 10)
    oldest, *newest = AuditLeaf.objects.filter(action="case.noted").order_by("id")
    words = {"show": "people", "action": "case.noted"}
    assert entries(auditor, **words) == ids(AuditLeaf.objects.filter(action="case.noted"))
    page = page_of(auditor, f"/effects/?{urlencode(words)}")
    while f"entry-{oldest.pk}" not in {one.entry_id for one in page.entries}:
        page = page_of(auditor, page.next.href)
    # Back again: what lies between is more than one search looks through, and isn't called the end.
    seen: list[str] = []
    while page.newer:
        page = page_of(auditor, page.newer.href)
        seen = [*(one.entry_id for one in page.entries), *seen]
        if not page.entries:
            assert "Newer ones may match." in page.empty.text
            assert page.next.label == "Load older entries"
    assert seen == [f"entry-{one.pk}" for one in reversed(newest)]


def test_what_is_filed_while_the_page_is_read_stands_in_it_once(
    auditor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases.needs_decision()
    read = effects.read_frame

    def read_then_file(teams: Any) -> effects.Frame:
        frame = read(teams)
        file_history()
        return frame

    monkeypatch.setattr(effects, "read_frame", read_then_file)
    found = [entry.entry_id for entry in page_of(auditor, "/effects/?action=requests").entries]
    assert found == ids(AuditLeaf.objects.filter(action="operation.sent"))


def test_a_time_that_cant_be_read_is_said_and_nothing_is_listed(auditor: Client) -> None:
    cases.needs_decision()
    page = page_of(auditor, "/effects/?from=yesterday&show=nothing")
    assert page.entries == ()
    assert "From" in page.notice
    assert page.empty.title == "Not searched"
    assert "yesterday" in [one.value for one in page.filters]
    # A day is a whole day, a minute a whole minute.
    today = AuditLeaf.objects.earliest("id").at
    assert entries(auditor, **{"from": f"{today:%Y-%m-%d}", "until": f"{today:%Y-%m-%d}"})


@pytest.mark.parametrize("value", ["x\x00y", "x" * 301], ids=["not to be held", "too long"])
@pytest.mark.parametrize("name", ["q", "action", "provider", "actor", "from", "until"])
def test_a_filter_that_isnt_kept_as_it_is_isnt_left_out(auditor: Client, name: str, value: str) -> None:
    cases.needs_decision()
    page = page_of(auditor, f"/effects/?{urlencode({name: value})}")
    assert (page.entries, page.empty.title) == ((), "Not searched")
    assert "can’t be read" in page.notice
    asked = auditor.post("/effects/exports/", {"query": urlencode({name: value}), "form": "csv"})
    assert asked.status_code == 400


def test_a_place_that_cant_be_read_is_a_400(auditor: Client) -> None:
    for name in ("after", "before"):
        assert auditor.get(f"/effects/?{name}=nonsense").status_code == 400


# --- Exceptions -----------------------------------------------------------------------------------------


def marked(mark: Mark) -> set[str]:
    file_history()
    pks = HistoryMark.objects.filter(mark=mark).values_list("leaf", flat=True)
    return set(AuditLeaf.objects.filter(pk__in=pks).values_list("action", flat=True))


def test_each_exception_says_what_it_means_and_why_there_is_none(auditor: Client) -> None:
    assert set(PRESETS) == set(Mark)
    for mark in EXCEPTIONS:
        page = page_of(auditor, f"/effects/?show={mark}")
        assert page.means == PRESETS[mark].means
        assert (page.empty.title, page.empty.text) == (f"{PRESETS[mark].label}: none", PRESETS[mark].none)


def test_an_exception_is_not_called_absent_before_its_entries_were_looked_through(auditor: Client) -> None:
    cases.needs_decision()
    page = page_of(auditor, "/effects/?show=quick")
    assert page.empty.title == f"{PRESETS[Mark.QUICK].label}: not looked through yet"
    assert page.exceptions == "not looked through yet"
    assert {chip.count for chip in page.chips} == {"", "?"}, "no count where nothing was counted"
    file_history()
    page = page_of(auditor, "/effects/?show=quick")
    assert page.empty.title.startswith(f"{PRESETS[Mark.QUICK].label}: none up to ")
    assert page.exceptions == "none"
    assert {chip.count for chip in page.chips} == {"", "0"}


def test_decisions_are_told_apart_by_what_had_been_before_them(login: Login, auditor: Client) -> None:
    opened = cases.needs_decision()
    decide(login(Role.OPERATOR), opened, "abandon", then="end")
    decision = "case.decided.abandon"
    assert decision in marked(Mark.PEOPLE)
    # It was decided at once, and after a lookup.
    assert marked(Mark.QUICK) == {decision}
    assert marked(Mark.NO_LOOKUP) == set()
    page = page_of(auditor, "/effects/?show=quick")
    assert [entry.event.word for entry in page.entries] == ["Decided: abandon"]
    assert next(chip for chip in page.chips if chip.current).count == "1"
    assert entries(auditor, show="quick", provider=opened.operation.provider_id)
    assert not entries(auditor, show="quick", provider="sandbox-mail")
    assert entries(auditor, show="quick", q=opened.operation.pk)


def test_a_takeover_and_a_revoked_lease_stand_among_the_takeovers(login: Login) -> None:
    opened = cases.needs_decision()
    login(Role.OPERATOR)
    login(Role.OPERATOR, name="robin")
    workers = [
        Worker(actor=person_actor(Person.objects.get(username=name)), name=name)
        for name in ("operator", "robin")
    ]
    claim = claim_case(case_id=opened.case_id, team=None, worker=workers[0])
    take_over(
        case_id=opened.case_id,
        team=None,
        worker=workers[1],
        reason="They have gone home for today.",
        seen_number=claim.number,
    )
    run = factories.make_claimed()
    leases.revoke(
        team=factories.TEAM, run_id=run.run.pk, actor=workers[1].actor, reason="The worker hangs for an hour."
    )
    assert marked(Mark.TAKEOVER) == {"case.claim_taken_over", "lease.ended"}


def test_a_write_under_a_lease_that_is_over_is_kept_once_for_each_kind(auditor: Client) -> None:
    claimed = factories.make_claimed()
    asked = {"run_id": claimed.run.pk, "token": claimed.token}
    leases.release(team=factories.TEAM, run_id=claimed.run.pk, token=claimed.token)
    assert note_refused_write(**asked, write=Write.TURN)
    assert not note_refused_write(**asked, write=Write.TURN)
    assert note_refused_write(**asked, write=Write.SEND)
    assert not note_refused_write(run_id=claimed.run.pk, token="1-guessed", write=Write.TURN)
    assert marked(Mark.FENCED) == {"write.refused"}
    first = page_of(auditor, "/effects/?show=fenced").entries[-1]
    assert first.event.word == "Write refused by fencing"
    assert "A turn under lease 1" in first.note


def test_one_own_attempt_to_approve_and_one_late_repeat_are_found() -> None:
    opened = cases.needs_decision()
    person = Actor(ActorKind.PERSON, "person:7")
    audit.append(
        audit.Event(
            action="approval.own_attempt_refused",
            actor=person,
            team=factories.TEAM,
            operation=opened.operation.pk,
        )
    )
    case = opened.case
    case.key_ends_at = case.opened_at - timedelta(hours=1)
    case.save(update_fields=["key_ends_at"])
    for action in ("operation.sent_again", "operation.sent"):
        audit.append(
            audit.Event(action=action, actor=person, team=factories.TEAM, operation=opened.operation.pk)
        )
    assert marked(Mark.OWN_APPROVAL) == {"approval.own_attempt_refused"}
    assert marked(Mark.LATE_RETRY) == {"operation.sent_again"}


def test_a_late_report_a_conflict_and_a_decision_in_the_dark_are_found(login: Login) -> None:
    opened = cases.needs_decision()
    blind = cases.needs_decision(cases.Effect(tool="book_pickup", provider=cases.COURIER, minor=None))
    operator = login(Role.OPERATOR)
    decide(operator, opened, "abandon", then="end")
    decide(operator, blind, "abandon", then="end")
    reports.report_receipt(
        sender=reports.Sender(team=opened.run.team_id, token=opened.claimed.token),
        operation_id=opened.operation.pk,
        attempt_id="a1",
        reference="rfd_9",
        seen=reports.SeenReply(status=200, body=json.dumps(cases.record_of(opened, id="rfd_9")).encode()),
    )
    audit.append(
        audit.Event(
            action="operation.confirmed",
            actor=Actor(ActorKind.PERSON, "person:7"),
            team=factories.TEAM,
            operation=blind.operation.pk,
            after={"state": "confirmed", "matched_by": "person"},
        )
    )
    assert marked(Mark.LATE_EVIDENCE) == {"evidence.recorded"}
    assert marked(Mark.CONFLICT) == {"case.moved"}
    assert marked(Mark.OVERRIDE) == {"operation.confirmed"}
    found = HistoryMark.objects.filter(mark=Mark.NO_LOOKUP).values_list("leaf", flat=True)
    assert [AuditLeaf.objects.get(pk=pk).operation_ref for pk in found] == [blind.operation.pk]


def test_an_entry_that_cant_be_read_stops_no_other_from_being_filed() -> None:
    opened = cases.needs_decision()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO runs_auditleaf"
            " (body, at, action, team_slug, run_ref, operation_ref, actor_kind, actor)"
            " VALUES ('not json', clock_timestamp(), 'evidence.recorded', %s, '', %s, 'robot', 'r2')",
            [factories.TEAM, opened.operation.pk],
        )
    file_history()
    assert HistoryEntry.objects.count() == AuditLeaf.objects.exclude(team_slug="").count()


def test_filing_anew_changes_nothing() -> None:
    cases.needs_decision()
    file_history()
    before = (list(HistoryEntry.objects.values_list()), list(HistoryMark.objects.values_list("leaf", "mark")))
    HistoryProgress.objects.update(through_leaf=0)
    file_history()
    after = (list(HistoryEntry.objects.values_list()), list(HistoryMark.objects.values_list("leaf", "mark")))
    assert before == after


# --- What a page costs ----------------------------------------------------------------------------------


def test_no_way_of_asking_reads_a_table_from_end_to_end(
    auditor: Client, owner_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = cases.needs_decision()
    more_leaves(opened.operation, 3_000)
    file_history()
    with connection.cursor() as cursor:
        # Many of each, other teams' too: no table is as good as one team's, nor as cheaply read whole, for
        # PostgreSQL 15, as some thousand of its rows.
        cursor.execute(
            "INSERT INTO console_historyentry (leaf, at, team_slug, action, provider, actor)"
            " SELECT 1000000 + n, now() - n * interval '1 s', (ARRAY['other', %s])[1 + n %% 2],"
            "  'a' || n %% 17, 'p' || n %% 5, 'w' || n %% 7 FROM generate_series(1, 200000) AS n",
            [factories.TEAM],
        )
        cursor.execute(
            "INSERT INTO console_historymark (leaf, mark, at, team_slug, provider)"
            " SELECT 1000000 + n, (ARRAY['people', 'quick'])[1 + n %% 2], now() - n * interval '1 s', %s,"
            "  'p' || n %% 5 FROM generate_series(1, 5000) AS n",
            [factories.TEAM],
        )
    analyze(owner_url)
    filters = {"action": "a3", "provider": "p2", "actor": "w1", "from": "2026-01-01"}
    asked = [dict(pairs) for length in range(5) for pairs in itertools.combinations(filters.items(), length)]
    asked += [{"show": "quick"}, {"show": "people", "action": "a3"}, {"q": opened.operation.pk}]
    asked += [{"show": "people", "provider": "p2"}, {"show": "people", "provider": "p2", "actor": "w1"}]
    for words in asked:
        with CaptureQueriesContext(connection) as context:
            auditor.get(f"/effects/?{urlencode(words)}")
        assert len(context) <= QUERIES_MAX, (words, len(context))
        for query in context.captured_queries:
            if "console_history" in query["sql"] and query["sql"].lstrip("(").startswith("SELECT"):
                with connection.cursor() as cursor:
                    cursor.execute("EXPLAIN " + query["sql"])
                    plan = "\n".join(line for (line,) in cursor.fetchall())
                for table in ("console_historyentry", "console_historymark", "runs_auditleaf"):
                    assert f"Seq Scan on {table}" not in plan, (words, plan)
