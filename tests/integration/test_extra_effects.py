"""What becomes of an effect that is on record beside the one that was meant (DESIGN law 9)."""

from __future__ import annotations

import json

import pytest

from reconciliation import reports
from reconciliation.approval_models import ApprovalRequest, ApprovalState
from reconciliation.approving import approve
from reconciliation.decisions import GivenReceipt
from reconciliation.extra_effects import dealt_with
from reconciliation.gathering import judge_now
from reconciliation.models import Case
from reconciliation.reviewing import consider
from reconciliation.states import Action, CaseKind, CaseState, Need
from runs.locking import database_now
from runs.models import Evidence
from runs.money import Money
from tests import cases, factories
from tests.cases import Opened
from tests.cases_world import asked, decide
from tests.factories import TEAM, fresh
from tests.people import approver, operator

pytestmark = pytest.mark.django_db(transaction=True)

AMOUNT = 124_000


def confirmed_by_two(opened: Opened, reference: str) -> Case:
    """Two people confirm it with one of the records that a lookup showed."""
    evidence = Evidence.objects.filter(operation=opened.operation).latest("id")
    given = GivenReceipt(evidence_id=evidence.pk, reference=reference)
    decided = decide(opened.case, Action.CONFIRM, actor=operator().actor, receipt=given)
    approval = ApprovalRequest.objects.get(pk=decided.approval)
    approve(
        approval_id=approval.pk,
        teams=[TEAM],
        worker=approver(),
        content_digest=approval.content_digest,
        comment="The first one is what was meant.",
    )
    assert fresh(approval).state == ApprovalState.CARRIED_OUT
    return fresh(opened.case)


def made_twice() -> Opened:
    opened = cases.open_case(budget_minor=500_000)
    factories.quieten(opened.claimed.operation)
    cases.looked_up(opened, cases.several(opened))
    return opened


@pytest.mark.parametrize(("action", "spent"), [(Action.ACCEPT, 2 * AMOUNT), (Action.COMPENSATE, AMOUNT)])
def test_where_one_of_two_was_meant_what_becomes_of_the_other_is_still_asked(
    action: Action, spent: int
) -> None:
    opened = made_twice()
    case = confirmed_by_two(opened, "rfd_01")
    assert fresh(opened.operation).state == "confirmed"
    assert (case.kind, case.state, case.need) == (
        CaseKind.CONFLICT,
        CaseState.NEEDS_DECISION,
        Need.SEVERAL,
    )
    assert fresh(opened.run).budget_spent_minor == AMOUNT
    decide(case, action, actor=operator().actor)
    assert fresh(case).state == CaseState.RESOLVED
    assert fresh(opened.run).budget_spent_minor == spent


def test_an_extra_effect_that_was_asked_about_isnt_asked_about_once_more() -> None:
    opened = made_twice()
    decide(confirmed_by_two(opened, "rfd_01"), Action.ACCEPT, actor=operator().actor)
    assert dealt_with(opened.operation, "rfd_02")
    body = json.dumps(cases.record_of(opened, id="rfd_02")).encode()
    reports.report_receipt(
        sender=reports.Sender(team=TEAM, token=opened.claimed.token),
        operation_id=opened.operation.pk,
        attempt_id="a1",
        reference="rfd_02",
        seen=reports.SeenReply(status=201, body=body),
    )
    assert Case.objects.filter(operation=opened.operation).count() == 1
    assert fresh(opened.run).budget_spent_minor == 2 * AMOUNT


def test_what_a_review_says_is_booked_is_what_the_chosen_record_states_and_what_is_booked() -> None:
    opened = cases.open_case(budget_minor=500_000)
    factories.quieten(opened.claimed.operation)
    cases.looked_up(opened, cases.mismatch(opened, id="rfd_01", amount_minor=120_400))
    case, operation = opened.case, opened.operation
    judged = judge_now(run=opened.run, operation=operation, case=case, now=database_now())
    given = GivenReceipt(evidence_id=Evidence.objects.latest("id").pk, reference="rfd_01")
    reviewed = consider(
        case=case, operation=operation, judged=judged, asked=asked(case, Action.CONFIRM, receipt=given)
    )
    assert reviewed.amount == Money("EUR", 120_400)
    confirmed_by_two(opened, "rfd_01")
    assert fresh(opened.run).budget_spent_minor == 120_400


def test_where_one_effect_is_all_that_there_is_the_case_ends_with_it() -> None:
    opened = cases.open_case(budget_minor=500_000)
    factories.quieten(opened.claimed.operation)
    cases.looked_up(opened, cases.mismatch(opened, id="rfd_01"))
    case = confirmed_by_two(opened, "rfd_01")
    assert (case.state, case.resolution) == (CaseState.RESOLVED, "confirmed")
