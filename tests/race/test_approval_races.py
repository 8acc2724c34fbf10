"""Answers, changes, deadlines and sends at once: one outcome, nothing sent twice, the loser named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from console.models import Role
from reconciliation import (
    approval_messages,
    approvals,
    approving,
    decisions,
    evidence,
    making_absent,
    retries,
)
from reconciliation.approval_models import ApprovalRequest
from reconciliation.approval_refusals import ApprovalAnswered, ApprovalExpired, ApprovalVoid
from reconciliation.decisions import DecisionStale
from reconciliation.making_absent_models import AbsenceRequest
from reconciliation.models import Case, Decision
from reconciliation.persons import Forbidden, KeyReused, Worker
from reconciliation.providers.base import AbsenceSeen
from reconciliation.providers.making_absent import not_started
from reconciliation.states import Action, CaseState
from runs.journal.sending import NotSendable
from runs.models import Attempt, AuditLeaf, Flow, Grant
from runs.states import GrantState
from tests.cases_world import COURIER, PAYMENTS, asked, decide, declare, in_doubt, report, state_of
from tests.concurrency import Connect, at_once, holding_run, start
from tests.factories import TEAM, Claimed, claim, fresh
from tests.people import approver, end_request_in, make_person, operator

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def declared(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_URL", "http://127.0.0.1:9")
    declare()


def requested(action: Action) -> tuple[Claimed, Case, ApprovalRequest]:
    claimed, case = in_doubt(COURIER, minor=500)
    Flow.objects.update(abandonment_people=2)
    decided = decide(case, action, actor=operator().actor)
    return claimed, case, ApprovalRequest.objects.get(pk=decided.approval)


def approve(approval: ApprovalRequest, who: Worker) -> approvals.Answered:
    return approving.approve(
        approval_id=approval.pk,
        teams=[TEAM],
        worker=who,
        content_digest=approval.content_digest,
        comment=f"Agreed by {who.name}.",
    )


def refuse(approval: ApprovalRequest, who: Worker) -> approvals.Answered:
    return approvals.refuse(
        approval_id=approval.pk, teams=[TEAM], worker=who, comment=f"Refused by {who.name}."
    )


def attach(case: Case) -> Any:
    return evidence.attach(
        case_id=case.pk, team=TEAM, actor=operator("tomas").actor, summary="The courier called back."
    )


def ended(approval: ApprovalRequest) -> list[str]:
    """The leaves of how it was answered and ended, in order."""
    rows = AuditLeaf.objects.filter(action__startswith="approval.").order_by("id")
    return [one.action.removeprefix("approval.") for one in rows if one.action != "approval.requested"]


# --- Two who answer --------------------------------------------------------------------------------------


@pytest.mark.parametrize("second", [approve, refuse], ids=["approve twice", "approve and refuse"])
def test_of_two_answers_at_once_one_counts_and_the_other_is_told_whose_it_was(
    second: Callable[[ApprovalRequest, Worker], approvals.Answered],
) -> None:
    claimed, case, approval = requested(Action.ABANDON)
    dana, rui = approver(), approver("rui")
    outcomes = at_once([lambda: approve(approval, dana), lambda: second(approval, rui)])
    (loser,) = [one.refusal for one in outcomes if one.refusal is not None]
    assert isinstance(loser, ApprovalAnswered)
    now = fresh(approval)
    assert loser.details["by"] == now.answerer_name
    assert loser.details["comment"] == now.comment
    if now.state == "refused":
        assert (ended(approval), Decision.objects.count()) == (["refused"], 0)
        assert (state_of(claimed), fresh(case).state) == ("sent_unknown", CaseState.NEEDS_DECISION)
    else:
        assert (ended(approval), Decision.objects.count()) == (["approved", "carried_out"], 1)
        assert (state_of(claimed), fresh(case).state) == ("abandoned", CaseState.RESOLVED)


def test_one_key_for_questions_about_two_requests_at_once_is_refused_to_the_second(connect: Connect) -> None:
    _, _, first = requested(Action.ABANDON)
    _, case = in_doubt(COURIER, minor=500)
    decided = decide(case, Action.ABANDON, actor=operator("tomas").actor)
    who = approver()
    with holding_run(connect, first.run_id) as holder:
        holder.execute(
            "INSERT INTO reconciliation_approvalmessage"
            " (id, approval_id, kind, text, actor, actor_name, key, made_at)"
            " VALUES ('msg_first', %s, 'question', 'Why?', %s, '', 'form_1', clock_timestamp())",
            [first.pk, who.actor.id],
        )
        asked_too = start(
            lambda: approval_messages.ask(
                approval_id=decided.approval, teams=[TEAM], worker=who, text="Why that?", key="form_1"
            )
        )
        holder.wait_for_waiters(1)
        holder.release()
        outcome = asked_too.result(timeout=60)
    assert isinstance(outcome.refusal, KeyReused)


def test_of_two_who_ask_at_once_one_asks_and_the_other_is_told() -> None:
    _, case = in_doubt(COURIER)
    people = [operator(), operator("tomas")]
    forms = [asked(case, Action.RETRY) for _ in people]
    outcomes = at_once(
        [
            lambda who=who, form=form: decisions.decide(  # type: ignore[misc]
                case_id=case.pk, team=TEAM, actor=who.actor, asked=form, actor_name=who.name
            )
            for who, form in zip(people, forms, strict=True)
        ]
    )
    (loser,) = [one.refusal for one in outcomes if one.refusal is not None]
    assert isinstance(loser, DecisionStale)
    assert ApprovalRequest.objects.count() == 1


# --- While the case changes ------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["the change", "the approval"])
def test_an_approval_and_a_change_of_its_case_happen_one_after_the_other(
    connect: Connect, first: str
) -> None:
    claimed, case, approval = requested(Action.ABANDON)
    dana = approver()
    acts: list[Callable[[], Any]] = [lambda: attach(case), lambda: approve(approval, dana)]
    if first == "the approval":
        acts.reverse()
    with holding_run(connect, claimed.run.pk) as holder:
        one = start(acts[0])
        holder.wait_for_waiters(1)
        two = start(acts[1])
        holder.wait_for_waiters(2)
        holder.release()
        outcomes = [one.result(timeout=60), two.result(timeout=60)]
    if first == "the change":
        loser = outcomes[1].refusal
        assert isinstance(loser, ApprovalVoid)
        assert "New evidence came" in loser.sentence
        assert ended(approval) == ["voided"]
        assert (state_of(claimed), fresh(case).state) == ("sent_unknown", CaseState.NEEDS_DECISION)
    else:
        assert [one.refusal for one in outcomes] == [None, None]
        assert ended(approval) == ["approved", "carried_out"]
        assert (state_of(claimed), fresh(case).state) == ("abandoned", CaseState.RESOLVED)


# --- At its deadline -------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [False, True], ids=["before its end", "after its end"])
def test_an_approval_that_waited_counts_by_the_time_when_it_had_the_lock(
    connect: Connect, late: bool
) -> None:
    claimed, case, approval = requested(Action.ABANDON)
    dana = approver()
    end_request_in(approval, 2 if late else 600)
    with holding_run(connect, claimed.run.pk) as holder:
        answer = start(lambda: approve(approval, dana))
        holder.wait_for_waiters(1)
        if late:
            holder.wait_past(
                "SELECT expires_at FROM reconciliation_approvalrequest WHERE id = %s", [approval.pk]
            )
        holder.release()
        outcome = answer.result(timeout=60)
    if late:
        assert isinstance(outcome.refusal, ApprovalExpired)
        assert ended(approval) == ["expired"]
        assert (state_of(claimed), fresh(case).state) == ("sent_unknown", CaseState.NEEDS_DECISION)
    else:
        assert outcome.answer.approval.state == "carried_out"
        assert state_of(claimed) == "abandoned"


def test_the_sweeper_and_an_approver_end_an_overdue_request_once() -> None:
    claimed, _, approval = requested(Action.ABANDON)
    dana = approver()
    end_request_in(approval, -1)
    outcomes = at_once([lambda: approvals.expire(approval_id=approval.pk), lambda: approve(approval, dana)])
    assert isinstance(outcomes[1].refusal, ApprovalExpired)
    assert (ended(approval), state_of(claimed)) == (["expired"], "sent_unknown")


# --- Between consent and sending -------------------------------------------------------------------------


def permitted() -> tuple[Claimed, Case, ApprovalRequest, str]:
    """A retry that two people permitted, and the token of the worker that came for it."""
    claimed, case, approval = requested(Action.RETRY)
    approve(approval, approver())
    return claimed, case, approval, claim(fresh(claimed.run))


def begin(claimed: Claimed, token: str, attempt_id: str) -> Any:
    return retries.begin_send(
        team=TEAM, operation_id=claimed.operation.pk, token=token, attempt_id=attempt_id
    )


def test_an_approver_who_is_demoted_while_the_send_waits_stops_it(connect: Connect) -> None:
    claimed, case, approval, token = permitted()
    with holding_run(connect, claimed.run.pk) as holder:
        sent = start(lambda: begin(claimed, token, "a2"))
        holder.wait_for_waiters(1)
        make_person("dana", Role.VIEWER)
        holder.release()
        outcome = sent.result(timeout=60)
    assert isinstance(outcome.refusal, NotSendable)
    assert "may not any more" in outcome.refusal.sentence
    assert (Attempt.objects.count(), Grant.objects.get().state) == (1, GrantState.VOID)
    assert ended(approval) == ["approved", "voided"]
    assert fresh(case).state == CaseState.NEEDS_DECISION


def test_an_approver_who_is_demoted_while_their_answer_waits_carries_nothing_out(connect: Connect) -> None:
    claimed, case, approval = requested(Action.ABANDON)
    who = approver()
    with holding_run(connect, claimed.run.pk) as holder:
        answered = start(lambda: approve(approval, who))
        holder.wait_for_waiters(1)
        make_person("dana", Role.VIEWER)
        holder.release()
        outcome = answered.result(timeout=60)
    assert isinstance(outcome.refusal, Forbidden)
    assert "requests are answered by approvers" in outcome.refusal.sentence
    assert (state_of(claimed), Decision.objects.count(), ended(approval)) == ("sent_unknown", 0, [])
    assert fresh(case).state == CaseState.AWAITING_APPROVAL


def test_of_two_sends_by_one_consent_one_goes() -> None:
    claimed, _, approval, token = permitted()
    outcomes = at_once([lambda: begin(claimed, token, "a2"), lambda: begin(claimed, token, "a3")])
    (loser,) = [one.refusal for one in outcomes if one.refusal is not None]
    assert isinstance(loser, NotSendable)
    assert (Attempt.objects.count(), fresh(approval).state) == (2, "carried_out")
    assert ended(approval) == ["approved", "carried_out"]


def test_evidence_that_comes_while_the_send_waits_comes_before_it_or_after_it(connect: Connect) -> None:
    claimed, case, approval, token = permitted()
    with holding_run(connect, claimed.run.pk) as holder:
        told = start(lambda: attach(case))
        holder.wait_for_waiters(1)
        sent = start(lambda: begin(claimed, token, "a2"))
        holder.wait_for_waiters(2)
        holder.release()
        assert told.result(timeout=60).refusal is None
        outcome = sent.result(timeout=60)
    assert outcome.refusal is not None
    assert (Attempt.objects.count(), ended(approval)) == (1, ["approved", "voided"])


# --- Making an effect absent -----------------------------------------------------------------------------


def to_be_absent() -> tuple[Claimed, Case, ApprovalRequest]:
    claimed, case = in_doubt(PAYMENTS, minor=500)
    decided = decide(case, Action.MAKE_ABSENT, actor=operator().actor, then="continue")
    return claimed, case, ApprovalRequest.objects.get(pk=decided.approval)


def test_of_two_approvers_of_making_it_absent_one_counts_and_one_request_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, _, approval = to_be_absent()
    outcomes = at_once([lambda: approve(approval, approver()), lambda: approve(approval, approver("rui"))])
    assert [type(one.refusal) for one in outcomes if one.refusal is not None] == [ApprovalAnswered]
    left: list[str] = []

    def send(outgoing: Any) -> AbsenceSeen:
        left.append(outgoing.request_id)
        return not_started("Nothing is sent in this test.", "Test")

    monkeypatch.setattr("reconciliation.making_absent._send", send)
    # Two workers for the one approval: each was woken.
    sent = at_once([lambda: making_absent.send(approval_id=approval.pk)] * 2)
    assert sorted(str(one.value) for one in sent) == ["", "not_sent"]
    assert left == [AbsenceRequest.objects.get().pk]


def test_a_receipt_and_an_approval_of_making_it_absent_at_once_never_undo_what_is_confirmed() -> None:
    claimed, case, approval = to_be_absent()
    outcomes = at_once(
        [lambda: approve(approval, approver()), lambda: report("receipt", claimed, reference="rfd_1")]
    )
    # Whoever comes first: the receipt confirms, and what was approved is void before anything leaves.
    assert (state_of(claimed), fresh(case).resolution) == ("confirmed", "confirmed"), outcomes
    assert fresh(approval).state == "voided"
    assert making_absent.send(approval_id=approval.pk) == ""
    assert not AbsenceRequest.objects.exists()
