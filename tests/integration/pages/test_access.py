"""Who sees what: every page and every role, other teams, other methods, no session."""

from __future__ import annotations

import pytest
from django.test import Client

from console.models import Person, Role
from reconciliation.models import Decision
from tests import cases, factories
from tests.integration.pages.conftest import Login
from tests.integration.pages.forms import WORDS, fields, page_of, post

ROLES = (Role.OPERATOR, Role.APPROVER, Role.AUDITOR, Role.ADMINISTRATOR, Role.VIEWER)
READ_ONLY = (Role.APPROVER, Role.AUDITOR, Role.ADMINISTRATOR, Role.VIEWER)


def pages(opened: cases.Opened) -> list[str]:
    case, run = opened.case_id, opened.run.pk
    return [
        "/",
        "/queue/news/?since=2026-01-01T00:00:00%2B00:00",
        f"/cases/{case}/",
        f"/cases/{case}/live/",
        f"/cases/{case}/news/?version=1",
        "/runs/",
        f"/runs/{run}/",
        "/effects/",
        "/search/",
        "/bulk/",
    ]


def posts(opened: cases.Opened) -> list[str]:
    case, run = opened.case_id, opened.run.pk
    return [
        f"/cases/{case}/decision/",
        f"/cases/{case}/lookup/",
        f"/cases/{case}/withdrawal/",
        f"/runs/{run}/lease/revocation/",
    ]


@pytest.mark.parametrize("role", ROLES)
def test_every_role_reads_every_page_of_its_team(login: Login, role: Role) -> None:
    opened = cases.needs_decision()
    client = login(role)
    for path in pages(opened):
        answer = client.get(path)
        assert answer.status_code == 200, (path, answer.status_code)
        assert "HX-Request" in answer["Vary"], path
        # The pill holds counts and sums alone: kept by the browser, it is asked again without a body.
        kept = "private, no-cache" if path.startswith("/queue/news/") else "no-store"
        assert answer["Cache-Control"] == kept, path


def test_a_stranger_is_asked_to_sign_in_on_every_page(login: Login) -> None:
    opened = cases.needs_decision()
    for path in pages(opened):
        answer = Client().get(path)
        assert answer.status_code == 302, path
        assert answer["Location"].startswith("/login/?next="), path
    for path in posts(opened):
        assert Client().post(path, WORDS).status_code == 403, path


def test_another_teams_things_are_not_found_and_nowhere_listed(login: Login) -> None:
    opened = cases.needs_decision()
    for role in ROLES:
        outsider = login(role, name=f"out-{role}", team="other")
        for path in (
            f"/cases/{opened.case_id}/",
            f"/cases/{opened.case_id}/live/",
            f"/cases/{opened.case_id}/news/",
            f"/runs/{opened.run.pk}/",
        ):
            assert outsider.get(path).status_code == 404, path
        for path in posts(opened):
            assert outsider.post(path, WORDS).status_code == 404, path
        for path in ("/", "/?view=resolved", "/runs/", "/effects/"):
            assert opened.operation.pk not in outsider.get(path).content.decode(), path
            assert opened.run.pk not in outsider.get(path).content.decode(), path
        assert page_of(outsider, f"/effects/?q={opened.operation.pk}").entries == ()
        for text in (opened.operation.pk, opened.operation.key, opened.case_id, opened.run.external_id):
            page = page_of(outsider, f"/search/?q={text}")
            assert page.hits == (), text


def test_somebody_of_two_teams_sees_both(login: Login) -> None:
    here, there = cases.needs_decision(), cases.needs_decision(team="other")
    client = login(Role.OPERATOR)
    Person.objects.get(username="operator").teams.add(factories.make_team("other"))
    rows = [row.case_id for group in page_of(client, "/").groups for row in group.rows]
    assert sorted(rows) == sorted([here.case_id, there.case_id])
    assert client.get(f"/cases/{there.case_id}/").status_code == 200
    listed = {row.run_id for row in page_of(client, "/runs/").rows}
    assert listed == {here.run.pk, there.run.pk}
    about = {entry.subject_id for entry in page_of(client, "/effects/").entries}
    assert {here.operation.pk, there.operation.pk} <= about


def test_somebody_without_a_role_or_with_a_closed_account_sees_nothing(login: Login) -> None:
    opened = cases.needs_decision()
    client = login(name="norole")
    for path in pages(opened):
        assert client.get(path).status_code == 403, path


def test_somebody_without_a_team_sees_empty_pages(login: Login) -> None:
    opened = cases.needs_decision()
    client = login(Role.AUDITOR, team="")
    for path in ("/", "/runs/", "/effects/"):
        answer = client.get(path)
        assert answer.status_code == 200, path
        assert opened.operation.pk not in answer.content.decode()
    assert client.get(f"/cases/{opened.case_id}/").status_code == 404


def test_an_id_that_was_never_given_is_not_found(login: Login) -> None:
    client = login(Role.OPERATOR)
    for path in ("/cases/case_nothing/", "/runs/run_nothing/", "/cases/%F0%9F%A4%B7/", "/runs/a%00b/"):
        assert client.get(path).status_code == 404, path


@pytest.mark.parametrize("role", READ_ONLY)
def test_other_roles_find_the_decision_closed_with_the_reason(login: Login, role: Role) -> None:
    opened = cases.needs_decision()
    panel = page_of(login(role), f"/cases/{opened.case_id}/").panel
    assert panel.kind == "closed"
    said = "".join(str(part) for part in panel.text)
    assert said == f"You are signed in as {role.label.lower()}, and decisions are for operators."
    assert [action.selectable for action in panel.actions] == [False] * 4


@pytest.mark.parametrize("role", READ_ONLY)
def test_other_roles_decide_nothing_by_a_made_up_form_and_get_their_words_back(
    login: Login, role: Role
) -> None:
    opened = cases.needs_decision()
    data = fields(login(Role.OPERATOR), opened, "abandon", then="end", idempotency_key="k1", step="record")
    answer = post(login(role), opened, data)
    assert answer.status_code == 403
    assert "decisions are for operators" in answer.content.decode()
    assert WORDS["reason"] in answer.content.decode()
    assert not Decision.objects.exists()
    assert opened.case.state == "needs_decision"


def test_lookups_are_asked_for_by_operators_and_approvers(login: Login) -> None:
    opened = cases.needs_decision()
    for role in (Role.AUDITOR, Role.ADMINISTRATOR, Role.VIEWER):
        answer = login(role).post(f"/cases/{opened.case_id}/lookup/")
        assert answer.status_code == 403
        assert "lookups are asked for by operators and approvers" in answer.content.decode()
    for role in (Role.OPERATOR, Role.APPROVER):
        answer = login(role).post(f"/cases/{opened.case_id}/lookup/")
        assert answer["Location"] == f"/cases/{opened.case_id}/"


def test_leases_are_revoked_by_operators_alone(login: Login) -> None:
    run = factories.make_run()
    factories.claim(run)
    for role in READ_ONLY:
        answer = login(role).post(f"/runs/{run.pk}/lease/revocation/", WORDS)
        assert answer.status_code == 403
        assert "leases are revoked by operators" in answer.content.decode()
        assert factories.fresh(run).lease_token is not None
    assert page_of(login(Role.AUDITOR), f"/runs/{run.pk}/").revoke_href == ""


def test_other_methods_are_refused(login: Login) -> None:
    opened = cases.needs_decision()
    client = login(Role.OPERATOR)
    for path in pages(opened):
        assert client.post(path).status_code == 405, path
        assert client.delete(path).status_code == 405, path
    for path in posts(opened):
        assert client.delete(path).status_code == 405, path


def test_a_sign_in_leads_to_the_queue(login: Login) -> None:
    login(Role.OPERATOR, name="sam")
    person = Person.objects.get(username="sam")
    person.set_password("a long enough password")
    person.save()
    answer = Client().post("/login/", {"username": "sam", "password": "a long enough password"})
    assert answer["Location"] == "/"
