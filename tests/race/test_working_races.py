"""Two people at one case at once: one has it, the other is told who; and the next one is never the same."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction
from django.db.models import F

from reconciliation.decisions import KeyReused
from reconciliation.models import Case
from reconciliation.next_case import NothingToTake, next_for
from reconciliation.notes import add_note
from reconciliation.snoozing import snooze
from reconciliation.work_models import CaseClaim, CaseNote, CasePresence
from reconciliation.working import CaseTaken, Worker, be_there, claim_case, take_over
from runs.actors import Actor, ActorKind
from runs.locking import database_now
from runs.models import AuditLeaf
from tests import cases, factories
from tests.concurrency import WAIT_SECONDS_MAX, Connect, Holder, at_once, start

pytestmark = pytest.mark.django_db(transaction=True)


def worker(number: int) -> Worker:
    return Worker(actor=Actor(ActorKind.PERSON, f"person:{number}", "operator"), name=f"Person {number}")


def test_every_loser_of_a_claim_is_told_the_winners_name() -> None:
    opened = cases.needs_decision()
    outcomes = at_once(
        [
            lambda n=number: claim_case(case_id=opened.case_id, team=None, worker=worker(n))  # type: ignore[misc]
            for number in range(8)
        ]
    )
    winner = CaseClaim.objects.get()
    losers = [one.refusal for one in outcomes if one.refusal is not None]
    assert len(losers) == 7
    assert all(isinstance(one, CaseTaken) for one in losers)
    assert {one.details["by"] for one in losers} == {winner.actor_name}
    assert AuditLeaf.objects.filter(action="case.claimed").count() == 1


def test_of_two_takeovers_at_once_one_is_refused() -> None:
    opened = cases.needs_decision()
    claim_case(case_id=opened.case_id, team=None, worker=worker(9))
    outcomes = at_once(
        [
            lambda n=number: take_over(  # type: ignore[misc]
                case_id=opened.case_id, team=None, worker=worker(n), reason="They went home.", seen_number=1
            )
            for number in range(2)
        ]
    )
    refused = [one.refusal for one in outcomes if one.refusal is not None]
    assert [type(one) for one in refused] == [CaseTaken]
    assert AuditLeaf.objects.filter(action="case.claim_taken_over").count() == 1


def test_people_who_ask_for_the_next_at_once_get_different_cases() -> None:
    opened = [cases.needs_decision() for _ in range(4)]
    outcomes = at_once(
        [lambda n=number: next_for(teams=[factories.TEAM], worker=worker(n)) for number in range(4)]  # type: ignore[misc]
    )
    assert {one.answer.case_id for one in outcomes} == {one.case_id for one in opened}
    assert Case.objects.filter(claim__isnull=False).count() == 4


def test_of_more_people_than_cases_the_rest_are_told_that_there_is_none() -> None:
    cases.needs_decision()
    outcomes = at_once(
        [lambda n=number: next_for(teams=[factories.TEAM], worker=worker(n)) for number in range(4)]  # type: ignore[misc]
    )
    words = sorted(one.refusal.word for one in outcomes if one.refusal is not None)
    assert words == ["nothing_to_take"] * 3


def test_a_case_that_is_put_off_in_that_moment_is_nobodys_next(connect: Connect) -> None:
    opened = cases.needs_decision()
    with transaction.atomic():
        until_at = database_now() + timedelta(minutes=30)
        snooze(
            case_id=opened.case_id, team=None, worker=worker(1), until_at=until_at, reason="They call at two."
        )
        asked = start(lambda: next_for(teams=[factories.TEAM], worker=worker(2)))
        Holder(connect(), connect()).wait_for_waiters(1)
    assert isinstance(asked.result(timeout=WAIT_SECONDS_MAX).refusal, NothingToTake)
    assert not CaseClaim.objects.exists()


def test_of_one_form_sent_to_two_cases_at_once_the_later_is_refused(connect: Connect) -> None:
    first, second = cases.needs_decision(), cases.needs_decision()

    def write(case_id: str) -> CaseNote:
        return add_note(case_id=case_id, team=None, worker=worker(1), text="Asked the courier.", key="form-1")

    with transaction.atomic():
        write(first.case_id)
        later = start(lambda: write(second.case_id))
        Holder(connect(), connect()).wait_for_waiters(1)
    refused = later.result(timeout=WAIT_SECONDS_MAX).refusal
    assert isinstance(refused, KeyReused)
    assert [note.case_id for note in CaseNote.objects.all()] == [first.case_id]
    assert AuditLeaf.objects.filter(action="case.noted").count() == 1


def test_people_who_arrive_at_once_never_wait_in_a_circle() -> None:
    opened = cases.needs_decision()
    everybody = [worker(number) for number in range(8)]
    long_ago = database_now() - timedelta(hours=2)
    for _ in range(3):
        # Each finds the others' rows long past, and deletes them while they are written anew.
        for one in everybody:
            CasePresence.objects.update_or_create(
                case_id=opened.case_id, actor=one.actor.id, defaults={"seen_at": long_ago}
            )
        outcomes = at_once(
            [
                lambda one=one: be_there(  # type: ignore[misc]
                    case_id=opened.case_id, teams=[factories.TEAM], worker=one, used=True
                )
                for one in everybody
            ]
        )
        assert [one.refusal for one in outcomes] == [None] * len(everybody)
        there = CasePresence.objects.filter(seen_at__gt=long_ago).values_list("actor", flat=True)
        assert set(there) == {one.actor.id for one in everybody}


def test_a_page_that_waited_for_a_takeover_keeps_nobodys_claim(connect: Connect) -> None:
    opened = cases.needs_decision()
    claim_case(case_id=opened.case_id, team=None, worker=worker(1))
    with transaction.atomic():
        CaseClaim.objects.update(actor="person:2", number=2, until_at=F("claimed_at") + timedelta(minutes=1))
        page = start(
            lambda: be_there(case_id=opened.case_id, teams=[factories.TEAM], worker=worker(1), used=True)
        )
        Holder(connect(), connect()).wait_for_waiters(1)
    page.result(timeout=WAIT_SECONDS_MAX)
    claim = CaseClaim.objects.get()
    assert (claim.actor, claim.until_at - claim.claimed_at) == ("person:2", timedelta(minutes=1))
    assert CasePresence.objects.get().actor == "person:1"


def test_nothing_is_noted_about_another_teams_case() -> None:
    opened = cases.needs_decision()
    be_there(case_id=opened.case_id, teams=["elsewhere"], worker=worker(1), used=True)
    assert not CasePresence.objects.exists()
