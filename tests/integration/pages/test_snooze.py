"""Putting a case off: where it is gone from, what brings it back, and both sides of each limit."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import Client

from console.models import Role
from console.pages.present.timeline import event_of
from console.queries.backlog import backlog_of
from console.queries.frame import read_frame
from console.queries.queue import place_of
from reconciliation import snoozing, tightening
from reconciliation.models import Case
from reconciliation.snoozing import SNOOZE_SECONDS_MAX, SNOOZE_SECONDS_MIN, WAKE_BEFORE_KEY_SECONDS
from reconciliation.work_models import CaseSnooze
from reconciliation.working import Worker
from runs.actors import Actor, ActorKind
from runs.locking import database_now
from runs.models import AuditLeaf
from runs.refusals import Invalid, Refusal
from tests import cases, factories
from tests.integration.pages.conftest import Login
from tests.integration.pages.forms import decide, page_of

WHY = "The provider calls back at two."
PERSON = Worker(actor=Actor(ActorKind.PERSON, "person:1", "operator"), name="Kim")


@pytest.fixture
def kim(login: Login) -> Client:
    return login(Role.OPERATOR, name="kim")


def act(client: Client, opened: cases.Opened, **data: str) -> Any:
    return client.post(f"/cases/{opened.case_id}/snooze/", {"length": "60", "reason": WHY, **data})


def listed(client: Client, address: str = "/") -> set[str]:
    return {row.case_id for group in page_of(client, address).groups for row in group.rows}


def put_off(opened: cases.Opened, until_at: datetime, reason: str = WHY) -> datetime:
    return snoozing.snooze(case_id=opened.case_id, team=None, worker=PERSON, until_at=until_at, reason=reason)


# --- Gone from the list, and back -----------------------------------------------------------------------


def test_a_case_that_is_put_off_leaves_the_list_and_its_counts_until_its_time(kim: Client) -> None:
    opened, other = cases.needs_decision(), cases.needs_decision()
    assert act(kim, opened).status_code == 302
    assert listed(kim) == {other.case_id}
    assert listed(kim, "/?view=snoozed") == {opened.case_id}
    away = page_of(kim, "/?view=snoozed")
    assert away.groups[0].rows[0].note.startswith("back in 59 min")
    assert "somebody put off" in away.lead
    assert listed(kim, f"/?q={opened.case_id}") == {opened.case_id}
    now = database_now()
    assert backlog_of(teams=[factories.TEAM], now=now).waiting == 1
    assert read_frame(teams=[factories.TEAM], count_max=9).waiting == 1
    assert place_of(other.case, teams=[factories.TEAM], now=now).total == 1
    assert place_of(opened.case, teams=[factories.TEAM], now=now).number is None
    assert kim.post("/queue/next/")["Location"] == f"/cases/{other.case_id}/"
    assert kim.post("/queue/next/")["Location"] == "/"
    # Its time has come; nothing has to be woken for that.
    Case.objects.filter(pk=opened.case_id).update(snoozed_until_at=now)
    assert listed(kim) == {opened.case_id, other.case_id}
    assert listed(kim, "/?view=snoozed") == set()
    assert kim.post("/queue/next/")["Location"] == f"/cases/{opened.case_id}/"


def test_who_put_it_off_until_when_and_why_is_shown_and_on_record(kim: Client) -> None:
    opened = cases.needs_decision()
    version = opened.case.version
    act(kim, opened, reason="<b>Call</b> at two\u202e, they said.")
    page = page_of(kim, f"/cases/{opened.case_id}/")
    assert page.snooze.lines[0].startswith("kim put this case off.")
    body = kim.get(f"/cases/{opened.case_id}/").content.decode()
    assert "&lt;b&gt;Call&lt;/b&gt; at two" in body
    assert "\u202e" not in body
    event = event_of(AuditLeaf.objects.get(action="case.snoozed"))
    assert event["after"]["until"] == opened.case.snoozed_until_at.isoformat()  # type: ignore[union-attr]
    assert opened.case.version == version
    assert "Put off" in [item.title for item in page.timeline]


def test_it_can_be_brought_back_and_only_once(kim: Client) -> None:
    opened = cases.needs_decision()
    act(kim, opened)
    end = f"/cases/{opened.case_id}/snooze/end/"
    assert kim.post(end).status_code == 302
    assert listed(kim) == {opened.case_id}
    again = kim.post(end)
    assert again.status_code == 409
    assert "This case isn’t put off" in again.content.decode()
    assert AuditLeaf.objects.filter(action="case.unsnoozed").count() == 1


def test_new_evidence_wakes_it_and_the_same_again_does_not(kim: Client) -> None:
    opened = cases.needs_decision()
    act(kim, opened)
    cases.looked_up(opened, cases.not_found())
    assert listed(kim) == set()
    cases.looked_up(opened, cases.candidate(opened))
    assert listed(kim) == {opened.case_id}


def test_a_conflict_wakes_it_and_stays_awake(kim: Client) -> None:
    opened = cases.needs_decision()
    act(kim, opened)
    cases.looked_up(opened, cases.several(opened))
    assert opened.case.kind == "conflict"
    assert listed(kim) == {opened.case_id}
    answer = act(kim, opened)
    assert answer.status_code == 409
    assert "this case isn’t put off" in answer.content.decode()
    with pytest.raises(IntegrityError, match="case_sleeps_only_where_it_may"), transaction.atomic():
        Case.objects.filter(pk=opened.case_id).update(snoozed_until_at=database_now())


def test_a_tightened_contract_wakes_what_was_put_off_by_the_longer_window(kim: Client) -> None:
    opened = cases.needs_decision()
    act(kim, opened)
    tightening.tighten(
        account=cases.PAYMENTS,
        wanted={"dedup_window_ms": 7_200_000},
        reason="They told us so by phone.",
        seen_number=0,
        actor=PERSON.actor,
    )
    assert listed(kim) == {opened.case_id}


def test_a_decision_about_a_case_that_is_put_off_counts_and_ends_that(kim: Client) -> None:
    opened = cases.needs_decision()
    act(kim, opened)
    assert decide(kim, opened, "abandon", then="end").status_code == 302
    assert (opened.case.state, opened.case.snoozed_until_at) == ("resolved", None)
    answer = act(kim, opened)
    assert answer.status_code == 409
    assert "doesn’t wait for a person" in answer.content.decode()


# --- Both sides of each limit ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "taken"),
    [
        (SNOOZE_SECONDS_MIN - 5, False),
        (SNOOZE_SECONDS_MIN + 5, True),
        (SNOOZE_SECONDS_MAX - 5, True),
        (SNOOZE_SECONDS_MAX + 5, False),
        (-3_600, False),
    ],
)
def test_a_time_is_within_its_limits(db: None, seconds: int, taken: bool) -> None:
    opened = cases.needs_decision()
    Case.objects.filter(pk=opened.case_id).update(key_ends_at=None)
    until_at = database_now() + timedelta(seconds=seconds)
    if taken:
        assert put_off(opened, until_at) == until_at
        assert CaseSnooze.objects.get().until_at == until_at
        return
    with pytest.raises(Invalid, match="5 minutes to 7 days"):
        put_off(opened, until_at)
    assert opened.case.snoozed_until_at is None
    assert not AuditLeaf.objects.filter(action="case.snoozed").exists()


def test_it_wakes_in_time_before_its_key_ends(db: None) -> None:
    opened = cases.needs_decision()
    now = database_now()
    ends = now + timedelta(hours=2)
    Case.objects.filter(pk=opened.case_id).update(key_ends_at=ends)
    assert put_off(opened, now + timedelta(hours=6)) == ends - timedelta(seconds=WAKE_BEFORE_KEY_SECONDS)
    assert put_off(opened, now + timedelta(hours=1)) == now + timedelta(hours=1)


@pytest.mark.parametrize(("left_seconds", "taken"), [(-5, False), (5, True)])
def test_a_key_that_ends_soon_keeps_it_awake(db: None, left_seconds: int, taken: bool) -> None:
    opened = cases.needs_decision()
    now = database_now()
    bound = timedelta(seconds=WAKE_BEFORE_KEY_SECONDS + SNOOZE_SECONDS_MIN + left_seconds)
    Case.objects.filter(pk=opened.case_id).update(key_ends_at=now + bound)
    if taken:
        put_off(opened, now + timedelta(hours=6))
        return
    with pytest.raises(Refusal) as refused:
        put_off(opened, now + timedelta(hours=6))
    assert refused.value.word == "key_ends_soon"


def test_a_key_that_has_ended_keeps_nothing_awake(db: None) -> None:
    opened = cases.needs_decision()
    now = database_now()
    Case.objects.filter(pk=opened.case_id).update(key_ends_at=now - timedelta(hours=1))
    until_at = now + timedelta(hours=6)
    assert put_off(opened, until_at) == until_at


@pytest.mark.parametrize(("length", "status"), [(9, 422), (10, 302), (4_000, 302), (4_001, 422)])
def test_a_reason_has_its_bounds_and_is_kept_when_it_is_refused(
    kim: Client, length: int, status: int
) -> None:
    opened = cases.needs_decision()
    answer = act(kim, opened, reason="x" * length)
    assert answer.status_code == status
    if status == 422:
        assert answer.context["page"].snooze.reason == "x" * length
        assert "Give a reason of 10" in answer.content.decode()


@pytest.mark.parametrize(
    "fields", [{"length": ""}, {"length": "7"}, {"until": "tomorrow"}, {"until": "9999-12-31T23:59:59-23:59"}]
)
def test_a_time_that_cant_be_read_is_refused_in_the_form(kim: Client, fields: dict[str, str]) -> None:
    opened = cases.needs_decision()
    answer = act(kim, opened, **fields)
    assert answer.status_code == 422
    assert answer.context["page"].snooze.error_fields == ("snooze-until",)
    assert answer.context["page"].snooze.reason == WHY


def test_a_written_time_counts_before_a_chosen_length(kim: Client) -> None:
    opened = cases.needs_decision()
    at = (database_now() + timedelta(hours=3)).replace(second=0, microsecond=0)
    assert act(kim, opened, until=f"{at:%Y-%m-%d %H:%M}").status_code == 302
    assert opened.case.snoozed_until_at == at


# --- Who may --------------------------------------------------------------------------------------------


def test_only_those_who_work_on_cases_of_the_team_put_them_off(kim: Client, login: Login) -> None:
    opened = cases.needs_decision()
    auditor, outsider = login(Role.AUDITOR), login(Role.OPERATOR, name="out", team="other")
    assert page_of(auditor, f"/cases/{opened.case_id}/").snooze is None
    for client, status in ((auditor, 403), (outsider, 404)):
        assert act(client, opened).status_code == status
        assert client.post(f"/cases/{opened.case_id}/snooze/end/").status_code == status
    assert opened.case.snoozed_until_at is None
    policy = Worker(actor=Actor(ActorKind.POLICY, "policy-1"))
    until_at = database_now() + timedelta(hours=1)
    for refused in (
        lambda: snoozing.snooze(
            case_id=opened.case_id, team=None, worker=policy, until_at=until_at, reason=WHY
        ),
        lambda: snoozing.unsnooze(case_id=opened.case_id, team=None, worker=policy),
    ):
        with pytest.raises(Refusal) as refusal:
            refused()
        assert refusal.value.word == "forbidden"
