"""Exports of the effect history: what is in them, how they are made, who gets them, and what proves them."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import tracemalloc
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client

from console import exporting, following
from console.export_models import ExportPiece, HistoryExport
from console.models import Person, Role
from console.queries import effects
from runs import audit
from runs.actors import Actor, ActorKind
from runs.models import AuditLeaf
from tests import cases, factories
from tests.filing import file_history
from tests.integration.pages.conftest import Login
from tests.integration.pages.forms import page_of
from tests.integration.pages.test_history import entries
from tests.many import more_leaves

# Filing waits for every other transaction of the database: of the test's own there may be none.
pytestmark = pytest.mark.usefixtures("transactional_db")


@pytest.fixture(autouse=True)
def _settle_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "SETTLE_SECONDS", 0)


@pytest.fixture
def auditor(login: Login) -> Client:
    return login(Role.AUDITOR)


def ask(client: Client, query: str = "", form: str = "jsonl") -> str:
    """Ask for an export as the history's page does; returns its address."""
    answer = client.post("/effects/exports/", {"query": query, "form": form})
    assert answer.status_code == 302, answer.status_code
    location: str = answer["Location"]
    return location


def made(client: Client, query: str = "", form: str = "jsonl") -> str:
    path = ask(client, query, form)
    file_history()
    exporting.make_exports(seconds=60)
    return path


def content(client: Client, path: str) -> bytes:
    answer = client.get(f"{path}file/")
    assert answer.status_code == 200
    assert answer.streaming
    whole = b"".join(answer)
    assert answer["Content-Length"] == str(len(whole))
    return whole


def manifest(client: Client, path: str) -> dict[str, Any]:
    read: dict[str, Any] = client.get(f"{path}manifest/").json()
    return read


def test_ten_thousand_entries_are_streamed_and_the_manifest_has_their_hash(auditor: Client) -> None:
    opened = cases.needs_decision()
    more_leaves(opened.operation, 10_000)
    count = AuditLeaf.objects.filter(team_slug=factories.TEAM).count()
    path = made(auditor)
    whole = content(auditor, path)
    told = manifest(auditor, path)
    assert told["sha256"] == hashlib.sha256(whole).hexdigest()
    assert (told["entries"], told["bytes"], told["whole"]) == (count, len(whole), True)
    assert (told["asked_by"], told["asked_by_name"]) == (
        f"person:{Person.objects.get(username='auditor').pk}",
        "auditor",
    )
    lines = whole.splitlines()
    assert len(lines) == count
    # Each line's body is the entry byte for byte, so that its own hash can be checked.
    for line in (lines[0], lines[-1]):
        read = json.loads(line)
        body = bytes(AuditLeaf.objects.get(pk=read["entry"]).body)
        assert b'{"body":' + body in line
        assert read["sha256"] == hashlib.sha256(body).hexdigest()
    export = HistoryExport.objects.get()
    largest = max(len(bytes(one.content)) for one in ExportPiece.objects.all())
    assert len(whole) > 4 * largest
    tracemalloc.start()
    try:
        for _ in exporting.content_of(export):
            pass
        assert tracemalloc.get_traced_memory()[1] < 4 * largest
    finally:
        tracemalloc.stop()


def test_an_export_holds_what_its_filters_let_through_when_it_was_asked_for(auditor: Client) -> None:
    opened, other = cases.needs_decision(), cases.needs_decision()
    cases.needs_decision(team="other")
    for query in (
        "",
        "action=requests",
        f"q={opened.operation.pk}",
        "provider=sandbox-payments",
        "show=people",
    ):
        words = dict(pair.split("=") for pair in query.split("&") if pair)
        file_history()
        wanted = entries(auditor, **words)
        path = ask(auditor, query)
        cases.looked_up(other, cases.not_found())
        file_history()
        exporting.make_exports(seconds=60)
        lines = content(auditor, path).splitlines()
        assert [f"entry-{json.loads(line)['entry']}" for line in lines] == wanted, query
        assert manifest(auditor, path)["filters"] == words
    assert not b"".join(line for line in content(auditor, path).splitlines() if b'"team":"other"' in line)


def test_a_spreadsheet_calculates_nothing_in_it(auditor: Client) -> None:
    opened = cases.needs_decision()
    audit.append(
        audit.Event(
            action="case.noted",
            actor=Actor(ActorKind.PERSON, "person:7"),
            team=factories.TEAM,
            operation=opened.operation.pk,
            reason='=HYPERLINK("https://example.org","Open")\n@SUM(1)',
        )
    )
    path = made(auditor, "action=case.noted", form="csv")
    rows = list(csv.DictReader(io.StringIO(content(auditor, path).decode())))
    assert [row["action"] for row in rows] == ["case.noted"]
    assert rows[0]["reason"].startswith("'=HYPERLINK")
    assert (
        rows[0]["sha256"]
        == hashlib.sha256(bytes(AuditLeaf.objects.get(action="case.noted").body)).hexdigest()
    )


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_who_did_it_and_who_approved_are_named_and_the_entry_stays_as_it_is(
    auditor: Client, form: str
) -> None:
    opened = cases.needs_decision()
    asker = Person.objects.create(username="=asker", first_name='=HYPERLINK("x")')
    approver = Person.objects.create(username="second", first_name="Sam", last_name="Second")
    audit.append(
        audit.Event(
            action="case.decided.confirm",
            actor=Actor(ActorKind.PERSON, f"person:{asker.pk}"),
            team=factories.TEAM,
            operation=opened.operation.pk,
            after={"decision": "dec_1", "approval": "appr_1", "approver": f"person:{approver.pk}"},
        )
    )
    whole = content(auditor, made(auditor, "action=case.decided.confirm", form=form))
    body = bytes(AuditLeaf.objects.get(action="case.decided.confirm").body)
    if form == "csv":
        (row,) = csv.DictReader(io.StringIO(whole.decode()))
        assert row["actor_name"] == '\'=HYPERLINK("x")'
    else:
        row = json.loads(whole)
        assert row["actor_name"] == '=HYPERLINK("x")'
        assert b'{"body":' + body in whole
    assert row["sha256"] == hashlib.sha256(body).hexdigest()
    assert (row["approval"], row["approver"]) == ("appr_1", f"person:{approver.pk}")
    assert row["approver_name"] == "Sam Second"


def test_asking_and_having_made_are_entries_of_each_teams_history(auditor: Client) -> None:
    cases.needs_decision()
    path = made(auditor, "action=requests")
    asked, ended = AuditLeaf.objects.filter(action__startswith="history.").order_by("id")
    assert (asked.action, ended.action) == ("history.export_asked", "history.exported")
    assert asked.actor == ended.actor == f"person:{Person.objects.get(username='auditor').pk}"
    event = json.loads(bytes(ended.body))["event"]
    assert event["after"]["sha256"] == manifest(auditor, path)["sha256"]
    assert event["after"]["filters"] == "action=requests"


def test_fetching_it_is_an_entry_of_the_history_and_looking_how_long_it_is_is_none(auditor: Client) -> None:
    cases.needs_decision()
    path = made(auditor)
    auditor.head(f"{path}file/")
    fetched = AuditLeaf.objects.filter(action="history.export_fetched")
    assert fetched.count() == 0
    content(auditor, path)
    leaf = fetched.get()
    assert leaf.actor == f"person:{Person.objects.get(username='auditor').pk}"
    event = json.loads(bytes(leaf.body))["event"]
    assert event["after"]["sha256"] == manifest(auditor, path)["sha256"]


def test_it_waits_until_nothing_can_appear_among_what_it_has_passed(auditor: Client) -> None:
    cases.needs_decision()
    path = ask(auditor)
    assert exporting._write_next() is False
    page = page_of(auditor, path)
    assert page.progress.startswith("Waits")
    assert page.poll_href == path
    assert auditor.get(f"{path}file/").status_code == 404
    assert auditor.get(f"{path}manifest/").status_code == 404
    file_history()
    exporting.make_exports(seconds=60)
    assert page_of(auditor, path).file_href


def test_a_pass_that_dies_loses_its_piece_and_doubles_none(
    auditor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = cases.needs_decision()
    more_leaves(opened.operation, 300)
    monkeypatch.setattr(exporting, "PIECE_ENTRIES", 100)
    path = ask(auditor)
    file_history()
    write, dies = exporting._write, iter([False, True])

    def write_and_die(*given: Any) -> None:
        write(*given)
        if next(dies, False):
            raise RuntimeError

    monkeypatch.setattr(exporting, "_write", write_and_die)
    with pytest.raises(RuntimeError):
        exporting.make_exports(seconds=60)
    assert HistoryExport.objects.get().pieces_count == ExportPiece.objects.count() == 1
    exporting.make_exports(seconds=60)
    numbers = [json.loads(line)["entry"] for line in content(auditor, path).splitlines()]
    assert len(numbers) == len(set(numbers)) == manifest(auditor, path)["entries"]
    assert numbers == sorted(numbers, reverse=True)


def test_more_than_an_export_holds_is_said(auditor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = cases.needs_decision()
    more_leaves(opened.operation, 50)
    monkeypatch.setattr(exporting, "ENTRIES_MAX", 20)
    path = made(auditor)
    assert (manifest(auditor, path)["entries"], manifest(auditor, path)["whole"]) == (20, False)


def test_an_export_by_a_name_that_more_runs_have_than_are_listed_says_so(
    auditor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(23):
        factories.make_run(flow=f"flow-{number}", external_id="2026-11-29")
    path = made(auditor, "q=2026-11-29")
    assert (manifest(auditor, path)["entries"], manifest(auditor, path)["whole"]) == (23, True)
    monkeypatch.setattr(effects, "NAMED_MAX", 22)
    path = made(auditor, "q=2026-11-29", form="csv")
    assert (manifest(auditor, path)["entries"], manifest(auditor, path)["whole"]) == (22, False)
    assert "more runs have this name" in auditor.get(path).content.decode()
    assert page_of(auditor, "/effects/?q=2026-11-29").notice.startswith("More runs have this name")


def test_who_may_not_export_is_refused_and_whose_it_isnt_finds_nothing(login: Login, auditor: Client) -> None:
    cases.needs_decision()
    path = made(auditor)
    for role in (Role.OPERATOR, Role.APPROVER, Role.VIEWER):
        client = login(role)
        assert page_of(client, "/effects/").export_href == ""
        assert client.post("/effects/exports/", {"form": "csv"}).status_code == 403, role
        assert client.get("/effects/exports/").status_code == 403, role
        assert client.get(path).status_code == 404, role
    for client in (login(Role.AUDITOR, name="colleague"), login(Role.AUDITOR, name="outsider", team="other")):
        for address in (path, f"{path}file/", f"{path}manifest/"):
            assert client.get(address).status_code == 404, address
    assert page_of(login(Role.ADMINISTRATOR), "/effects/").export_href == "/effects/exports/"
    # Whoever may not take history out any more, or left one of its teams, doesn't get it.
    Person.objects.filter(username="auditor").update(roles=["viewer"])
    assert auditor.get(f"{path}file/").status_code == 403
    Person.objects.filter(username="auditor").update(roles=["auditor"])
    assert auditor.get(f"{path}file/").status_code == 200
    Person.objects.get(username="auditor").teams.clear()
    assert auditor.get(f"{path}file/").status_code == 404


def test_the_same_asked_twice_is_one_and_there_is_a_limit(auditor: Client) -> None:
    cases.needs_decision()
    assert ask(auditor, "action=requests") == ask(auditor, "action=requests")
    ask(auditor, "action=requests", form="csv")
    ask(auditor, "action=leases")
    refused = auditor.post("/effects/exports/", {"query": "action=settled", "form": "csv"})
    assert refused.status_code == 409
    assert "3 exports of yours are under way" in refused.content.decode()
    for wrong in ({"form": "pdf"}, {"form": "csv", "query": "from=yesterday"}):
        assert auditor.post("/effects/exports/", wrong).status_code == 400


@pytest.mark.parametrize("name", ["ж" * 260, "😀" * 300], ids=["letters", "pictures"])
def test_a_filter_too_long_to_be_kept_is_refused_and_never_cut(auditor: Client, name: str) -> None:
    cases.needs_decision()
    words = {"q": name, "action": "decisions", "provider": cases.PAYMENTS, "show": "people"}
    for query in (urlencode(words), f"q={name}"):
        refused = auditor.post("/effects/exports/", {"query": query, "form": "csv"})
        assert refused.status_code == 409
        assert "The filter takes more than" in refused.content.decode()
    assert not HistoryExport.objects.exists()
    # What fits is kept whole.
    assert ask(auditor, urlencode({**words, "q": "ж" * 100}))
    assert "show=people" in HistoryExport.objects.get().query


def test_files_are_deleted_after_their_time_and_manifests_stay(auditor: Client) -> None:
    cases.needs_decision()
    path = made(auditor)
    HistoryExport.objects.update(ended_at=HistoryExport.objects.get().ended_at - timedelta(days=8))  # type: ignore[operator]
    exporting.make_exports()
    assert not ExportPiece.objects.exists()
    assert auditor.get(f"{path}file/").status_code == 404
    assert manifest(auditor, path)["sha256"]
    assert page_of(auditor, path).file_href == ""
    assert [row.badge.word for row in page_of(auditor, "/effects/exports/").rows] == ["File deleted"]
