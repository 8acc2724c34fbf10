"""One form at once from several tabs: one attachment, and the others are told that it is there already."""

from __future__ import annotations

import pytest
from django.db import transaction

from reconciliation.attaching import attach_file
from reconciliation.attachment_models import CaseAttachment
from reconciliation.decisions import KeyReused
from reconciliation.evidence import Attached
from reconciliation.working import Worker
from runs.actors import Actor, ActorKind
from runs.models import AuditLeaf
from tests import cases
from tests.concurrency import WAIT_SECONDS_MAX, Connect, Holder, at_once, start

pytestmark = pytest.mark.django_db(transaction=True)


def write(case_id: str) -> Attached:
    return attach_file(
        case_id=case_id,
        team=None,
        worker=Worker(actor=Actor(ActorKind.PERSON, "person:1", "operator"), name="Kim"),
        summary="What the courier wrote.",
        content=b"Nothing was picked up.",
        name="",
        key="form-1",
    )


def test_of_one_form_sent_at_once_one_attaches_and_the_others_are_told_it_is_there() -> None:
    opened = cases.needs_decision()
    before = opened.case.version
    outcomes = at_once([lambda: write(opened.case_id) for _ in range(4)])
    answers = [one.answer for one in outcomes]
    assert sorted(one.replayed for one in answers) == [False, True, True, True]
    assert {one.evidence_id for one in answers} == {CaseAttachment.objects.get().evidence_id}
    assert opened.case.version == before + 1
    assert AuditLeaf.objects.filter(action="evidence.recorded", actor="person:1").count() == 1


def test_of_one_form_sent_to_two_cases_at_once_the_later_is_refused(connect: Connect) -> None:
    first, second = cases.needs_decision(), cases.needs_decision()
    before = second.case.version
    with transaction.atomic():
        write(first.case_id)
        later = start(lambda: write(second.case_id))
        Holder(connect(), connect()).wait_for_waiters(1)
    refused = later.result(timeout=WAIT_SECONDS_MAX).refusal
    assert isinstance(refused, KeyReused)
    assert [one.case_id for one in CaseAttachment.objects.all()] == [first.case_id]
    assert second.case.version == before
    assert AuditLeaf.objects.filter(action="evidence.recorded", actor="person:1").count() == 1
