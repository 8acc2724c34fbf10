"""A case that was taken as the next one is given back by leaving its page, and by nothing less."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client

from console.models import Person, Role
from reconciliation.assigning import assign_case
from reconciliation.work_models import CaseClaim
from reconciliation.working import CLAIM_SECONDS, LEFT_SECONDS, Worker
from runs.actors import Actor, ActorKind
from runs.locking import database_now
from runs.models import AuditLeaf
from tests import cases
from tests.cases import Opened
from tests.integration.pages.conftest import Login
from tests.integration.pages.forms import page_of


@pytest.fixture
def kim(login: Login) -> Client:
    return login(Role.OPERATOR, name="kim")


@pytest.fixture
def opened(kim: Client) -> Opened:
    """A case that kim took as the next one."""
    opened = cases.needs_decision()
    assert kim.post("/queue/next/")["Location"] == f"/cases/{opened.case_id}/"
    return opened


def left_seconds() -> float:
    """How long the claim lasts from now."""
    return (CaseClaim.objects.get().until_at - database_now()).total_seconds()


def leave(client: Client, opened: Opened) -> None:
    answer = client.post(f"/cases/{opened.case_id}/claim/leaving/")
    assert (answer.status_code, answer.content) == (204, b"")


def test_leaving_ends_it_in_a_moment(kim: Client, login: Login, opened: Opened) -> None:
    desk = page_of(kim, f"/cases/{opened.case_id}/").desk
    assert desk.leave_href == f"/cases/{opened.case_id}/claim/leaving/"
    assert f'data-leave="{desk.leave_href}"' in kim.get(f"/cases/{opened.case_id}/").content.decode()
    assert left_seconds() > CLAIM_SECONDS - 60
    leave(kim, opened)
    assert left_seconds() <= LEFT_SECONDS
    CaseClaim.objects.update(until_at=database_now() - timedelta(milliseconds=1))
    robin = login(Role.OPERATOR, name="robin")
    assert robin.post("/queue/next/")["Location"] == f"/cases/{opened.case_id}/"
    assert CaseClaim.objects.get().actor_name == "robin"


def test_coming_back_or_its_own_sub_page_or_a_second_window_keeps_it(kim: Client, opened: Opened) -> None:
    case = f"/cases/{opened.case_id}/"
    for way in (case, f"{case}desk/"):
        leave(kim, opened)
        assert left_seconds() <= LEFT_SECONDS
        assert kim.get(way).status_code == 200
        assert left_seconds() > CLAIM_SECONDS - 60, way


def test_a_claim_that_was_chosen_outlives_its_page(kim: Client) -> None:
    opened = cases.needs_decision()
    kim.post(f"/cases/{opened.case_id}/claim/")
    assert page_of(kim, f"/cases/{opened.case_id}/").desk.leave_href == ""
    leave(kim, opened)
    assert left_seconds() > CLAIM_SECONDS - 60


def test_nobody_else_ends_it(login: Login, opened: Opened) -> None:
    robin = login(Role.OPERATOR, name="robin")
    assert page_of(robin, f"/cases/{opened.case_id}/").desk.leave_href == ""
    leave(robin, opened)
    assert left_seconds() > CLAIM_SECONDS - 60
    outsider = login(Role.OPERATOR, name="out", team="other")
    assert outsider.post(f"/cases/{opened.case_id}/claim/leaving/").status_code == 404


def test_what_was_the_next_and_is_then_given_to_somebody_is_theirs_wherever_they_are(
    kim: Client, login: Login
) -> None:
    opened = cases.needs_decision()
    kim.post("/queue/next/")
    kim.post(f"/cases/{opened.case_id}/claim/release/")
    login(Role.OPERATOR, name="robin")
    robin, giver = (
        Worker(actor=Actor(ActorKind.PERSON, f"person:{one.pk}"), name=one.username)
        for one in (Person.objects.get(username="robin"), Person.objects.get(username="kim"))
    )
    assign_case(case_id=opened.case_id, team=opened.case.team_id, worker=giver, assignee=robin)
    assert CaseClaim.objects.get().taken_as == "chosen"


def test_whoever_has_it_as_the_next_and_is_given_it_keeps_it_after_leaving(kim: Client, login: Login) -> None:
    opened = cases.needs_decision()
    kim.post("/queue/next/")
    login(Role.OPERATOR, name="robin")
    owner, giver = (
        Worker(actor=Actor(ActorKind.PERSON, f"person:{one.pk}"), name=one.username)
        for one in (Person.objects.get(username="kim"), Person.objects.get(username="robin"))
    )
    given = assign_case(case_id=opened.case_id, team=opened.case.team_id, worker=giver, assignee=owner)
    assert AuditLeaf.objects.filter(action="case.assigned", actor=giver.actor.id).count() == 1
    kim.post(f"/cases/{opened.case_id}/claim/leaving/")
    assert CaseClaim.objects.get().until_at == given.until_at
