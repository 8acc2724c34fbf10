"""Approvals: who may ask and answer, what consent is bound to, and what ends it."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from console.models import Person, Role
from reconciliation import approval_messages, approvals, approving, decisions, evidence, retries, sweeping
from reconciliation.approval_kinds import content_of
from reconciliation.approval_models import ApprovalMessage, ApprovalRequest
from reconciliation.approval_refusals import ApprovalAnswered, ApprovalExpired, ApprovalVoid, OwnApproval
from reconciliation.decisions import ActionLocked, Forbidden, GivenReceipt, KeyReused
from reconciliation.models import Case, Decision
from reconciliation.persons import Worker
from reconciliation.states import Action, CaseState
from runs.actors import Actor, ActorKind
from runs.canonical import digest
from runs.journal.sending import NotSendable
from runs.models import Attempt, AuditLeaf, Evidence, Flow, Grant, Operation, Receipt
from runs.refusals import Invalid, NotFound, Refusal
from runs.states import GrantState
from tests.cases_world import COURIER, REASON, asked, decide, declare, given, in_doubt, state_of
from tests.factories import TEAM, Claimed, claim, fresh
from tests.people import approver, end_request_in, make_person, operator, person_of, worker_of

pytestmark = pytest.mark.django_db
COMMENT = "Agreed: checked with finance."


@pytest.fixture(autouse=True)
def declared(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_URL", "http://127.0.0.1:9")
    declare()


def ask_for(action: Action, **fields: Any) -> tuple[Claimed, Case, ApprovalRequest]:
    """An operator asked for what takes two: at a provider without a key, of a flow that asks two people."""
    claimed, case = in_doubt(COURIER, minor=500)
    Flow.objects.update(abandonment_people=2)
    decided = decide(case, action, actor=operator().actor, **fields)
    return claimed, fresh(case), ApprovalRequest.objects.get(pk=decided.approval)


def approve(approval: ApprovalRequest, by: Worker | None = None, **changes: Any) -> approvals.Answered:
    fields: dict[str, Any] = {
        "approval_id": approval.pk,
        "teams": [TEAM],
        "worker": by or approver(),
        "content_digest": approval.content_digest,
        "comment": COMMENT,
    }
    return approving.approve(**{**fields, **changes})


def leaves(approval: ApprovalRequest) -> list[str]:
    found = AuditLeaf.objects.filter(action__startswith="approval.").order_by("id")
    return [leaf.action.removeprefix("approval.") for leaf in found if approval.pk in str(bytes(leaf.body))]


# --- Asking ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "kind"),
    [(Action.CONFIRM, "override"), (Action.RETRY, "retry"), (Action.ABANDON, "abandonment")],
)
def test_what_takes_two_becomes_a_request_that_the_case_waits_for(action: Action, kind: str) -> None:
    claimed, case, approval = ask_for(action)
    assert (approval.kind, approval.state, approval.subject) == (kind, "requested", f"case:{case.pk}")
    assert case.state == CaseState.AWAITING_APPROVAL
    assert (state_of(claimed), Decision.objects.count(), Grant.objects.count()) == ("sent_unknown", 0, 0)
    content = content_of(approval)
    assert digest(bytes(approval.content)) == approval.content_digest
    assert content["requester"] == {"actor": operator().actor.id, "principal": approval.requester_principal}
    assert content["facts"]["case_version"] == case.version
    assert content["facts"]["amount"] == {"currency": "EUR", "minor": 500}
    assert content["reason"] == REASON
    assert leaves(approval) == ["requested"]


def test_asking_again_under_the_same_key_is_the_same_request() -> None:
    _, case = in_doubt(COURIER)
    form = asked(case, Action.RETRY)
    who = operator()

    def ask(**changes: Any) -> decisions.Decided:
        return decisions.decide(
            case_id=case.pk, team=TEAM, actor=who.actor, asked=decisions.Asked(**{**vars(form), **changes})
        )

    first, again = ask(), ask()
    assert (again.replayed, again.answer, again.approval) == (True, first.answer, first.approval)
    with pytest.raises(KeyReused):
        ask(reason="Something else was on my mind.")
    approve(ApprovalRequest.objects.get())
    # The decision that came of it has the same key; the answer to the ask stays what it was.
    assert ask().answer == first.answer


def test_while_a_case_waits_nobody_decides_it() -> None:
    _, case, _ = ask_for(Action.RETRY)
    with pytest.raises(ActionLocked, match="It waits for approval"):
        decide(case, Action.ABANDON, actor=operator("tomas").actor)


@pytest.mark.parametrize("role", [Role.VIEWER, Role.APPROVER])
def test_who_may_not_decide_may_not_ask_for_a_decision(role: Role) -> None:
    _, case = in_doubt(COURIER)
    with pytest.raises(Forbidden, match="decisions are for operators"):
        decide(case, Action.RETRY, actor=worker_of(make_person("vic", role)).actor)
    assert fresh(case).state != CaseState.AWAITING_APPROVAL


# --- Approving -------------------------------------------------------------------------------------------


def test_two_people_confirm_without_a_receipt_and_the_record_says_so() -> None:
    claimed, case, approval = ask_for(Action.CONFIRM)
    approve(approval)
    assert (state_of(claimed), fresh(case).resolution) == ("confirmed", "confirmed")
    receipt = Receipt.objects.get()
    assert (receipt.reference, receipt.matched_by) == (f"without-receipt:{approval.pk}", "person")
    made = Decision.objects.get()
    assert (made.actor, made.approver, made.approval_id) == (
        operator().actor.id,
        approver().actor.id,
        approval.pk,
    )
    assert fresh(approval).state == "carried_out"
    assert leaves(approval) == ["requested", "approved", "carried_out"]


def test_a_record_that_does_not_match_is_kept_once_two_people_confirm_with_it() -> None:
    claimed, case = in_doubt(COURIER)
    record = given(claimed.operation, quantity=41)
    decided = decide(case, Action.CONFIRM, actor=operator().actor, receipt=record)
    assert Evidence.objects.filter(kind="attachment").count() == 0
    approve(ApprovalRequest.objects.get(pk=decided.approval))
    kept = Evidence.objects.get(kind="attachment")
    assert bytes(kept.body or b"") == record.body
    assert (Receipt.objects.get().reference, state_of(claimed)) == ("ord_1", "confirmed")


def test_a_reference_that_was_read_elsewhere_confirms_by_two_people_and_no_second_operation() -> None:
    claimed, case = in_doubt(COURIER)
    other, other_case = in_doubt(COURIER)
    for one in (case, other_case):
        decided = decide(
            one, Action.CONFIRM, actor=operator().actor, receipt=GivenReceipt(reference="PHONE-1")
        )
        approval = ApprovalRequest.objects.get(pk=decided.approval)
        if one is case:
            approve(approval)
            continue
        with pytest.raises(ApprovalVoid, match="already confirmed operation"):
            approve(approval)
        assert fresh(approval).state == "voided"
    assert (state_of(claimed), state_of(other)) == ("confirmed", "sent_unknown")
    assert fresh(other_case).state == CaseState.NEEDS_DECISION


def test_two_people_abandon_what_the_flow_doesn_t_leave_to_one() -> None:
    claimed, case, approval = ask_for(Action.ABANDON)
    approve(approval)
    assert (state_of(claimed), fresh(case).resolution) == ("abandoned", "abandoned")
    assert fresh(claimed.run).budget_held_minor == 500


def test_two_people_permit_one_more_request_and_sending_it_uses_their_consent() -> None:
    claimed, case, approval = ask_for(Action.RETRY)
    approve(approval)
    assert (fresh(approval).state, fresh(case).state) == ("approved", CaseState.RETRYING)
    granted = Grant.objects.get()
    assert granted.approval_digest == approval.content_digest
    assert granted.not_after_at <= approval.expires_at
    token = claim(fresh(claimed.run))
    retries.begin_send(team=TEAM, operation_id=claimed.operation.pk, token=token, attempt_id="a2")
    assert (fresh(approval).state, fresh(granted).state) == ("carried_out", GrantState.CONSUMED)
    assert Attempt.objects.count() == 2
    assert leaves(approval) == ["requested", "approved", "carried_out"]
    # The worker that sends it carries it out: nobody's time ran out.
    done = AuditLeaf.objects.get(action="approval.carried_out")
    assert (done.actor_kind, done.actor) == ("worker", fresh(claimed.run).lease_holder)


def test_the_same_approval_again_is_the_first_and_anything_else_is_told_who_was_first() -> None:
    _, _, approval = ask_for(Action.ABANDON)
    assert not approve(approval).replayed
    assert approve(approval).replayed
    for act in (
        lambda: approve(approval, comment="Another word."),
        lambda: approve(approval, by=approver("rui")),
        lambda: refuse(approval),
    ):
        with pytest.raises(ApprovalAnswered) as told:
            act()
        assert (told.value.details["by"], told.value.details["comment"]) == ("Dana", COMMENT)
    assert Decision.objects.count() == 1


def refuse(approval: ApprovalRequest, by: Worker | None = None, comment: str = "Not convinced.") -> Any:
    return approvals.refuse(approval_id=approval.pk, teams=[TEAM], worker=by or approver(), comment=comment)


def withdraw(approval: ApprovalRequest, by: Worker | None = None) -> Any:
    return approvals.withdraw(
        approval_id=approval.pk, teams=[TEAM], worker=by or operator(), comment="Found another way."
    )


# --- Four eyes -------------------------------------------------------------------------------------------


def test_the_requester_doesn_t_approve_by_account_or_by_another_account_of_theirs() -> None:
    _, case, approval = ask_for(Action.ABANDON)
    asker = person_of(operator())
    make_person("maya", Role.OPERATOR, Role.APPROVER)
    second = worker_of(make_person("maya2", Role.APPROVER, same_human_as=asker))
    for own in (worker_of(asker), second):
        with pytest.raises(OwnApproval):
            approve(approval, by=own)
        with pytest.raises(OwnApproval):
            refuse(approval, by=own)
    assert leaves(approval) == ["requested", "own_attempt_refused", "own_attempt_refused"]
    assert (fresh(approval).state, fresh(case).state) == ("requested", CaseState.AWAITING_APPROVAL)


def test_accounts_that_became_one_human_being_after_the_request_count_as_one() -> None:
    _, _, approval = ask_for(Action.ABANDON)
    dana = person_of(approver())
    Person.objects.filter(username="maya").update(principal=dana.principal)
    with pytest.raises(OwnApproval):
        approve(approval, by=worker_of(fresh(dana)))


@pytest.mark.parametrize("approves", [True, False])
def test_whoever_holds_several_roles_is_on_record_with_the_one_they_answer_by(approves: bool) -> None:
    _, _, approval = ask_for(Action.ABANDON)
    both = worker_of(make_person("both", Role.OPERATOR, Role.APPROVER))
    assert both.actor.role == "operator"
    if approves:
        approve(approval, by=both)
    else:
        approvals.refuse(approval_id=approval.pk, teams=[TEAM], worker=both, comment=COMMENT)
    assert fresh(approval).answerer_role == "approver"
    answered = AuditLeaf.objects.filter(action__in=["approval.approved", "approval.refused"]).get()
    assert '"role":"approver"' in bytes(answered.body).decode()


def test_who_may_not_approve_is_refused_and_nothing_is_carried_out() -> None:
    claimed, _, approval = ask_for(Action.ABANDON)
    gone = person_of(approver("gone"))
    Person.objects.filter(pk=gone.pk).update(is_active=False)
    elsewhere = worker_of(make_person("away", Role.APPROVER, team="other"))
    token = Worker(actor=Actor(ActorKind.TOKEN, "tok_1"))
    for who in (operator("tomas"), worker_of(gone), elsewhere, token):
        with pytest.raises(Forbidden):
            approve(approval, by=who)
    with pytest.raises(NotFound):
        approve(approval, teams=["other"])
    with pytest.raises(Invalid) as silent:
        approve(approval, comment="  ")
    assert silent.value.details["where"] == "comment"
    with pytest.raises(Invalid) as other:
        approve(approval, content_digest="0" * 64)
    assert other.value.details["where"] == "content_digest"
    assert (state_of(claimed), fresh(approval).state) == ("sent_unknown", "requested")


STATEMENTS = {
    "the requester as approver": (
        "UPDATE reconciliation_approvalrequest SET state = 'refused', answerer = requester,"
        " answerer_principal = 'hum_x', comment = 'no', answered_at = now(), ended_at = now()"
    ),
    "another account of the requester": (
        "UPDATE reconciliation_approvalrequest SET state = 'approved', answerer = 'person:0',"
        " answerer_principal = requester_principal, comment = 'yes', answered_at = now()"
    ),
    "the requester rewritten": "UPDATE reconciliation_approvalrequest SET requester = 'person:0'",
    "their human being rewritten": "UPDATE reconciliation_approvalrequest SET requester_principal = 'hum_x'",
    "the content rewritten": "UPDATE reconciliation_approvalrequest SET content = 'x'",
    "the digest rewritten": "UPDATE reconciliation_approvalrequest SET content_digest = 'x'",
    "more time": "UPDATE reconciliation_approvalrequest SET expires_at = expires_at + interval '1 day'",
    "approved by nobody": "UPDATE reconciliation_approvalrequest SET state = 'approved'",
    "ended without a time": "UPDATE reconciliation_approvalrequest SET state = 'voided', comment = 'x'",
    "deleted": "DELETE FROM reconciliation_approvalrequest",
    "emptied": "TRUNCATE reconciliation_approvalrequest CASCADE",
}


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS.keys())
def test_the_database_refuses_to_the_application_what_four_eyes_forbid(statement: str) -> None:
    ask_for(Action.ABANDON)
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.mark.parametrize(
    ("who", "principal", "constraint"),
    [
        ("dana", "hum_made_up", "isn't by that human being"),
        ("nobody", "hum_made_up", "isn't by that human being"),
        ("maya2", "hum_made_up", "isn't by that human being"),
        ("became one", "her own", "one human being asks and answers"),
    ],
)
def test_a_name_made_up_for_the_statement_makes_nobody_a_second_human_being(
    who: str, principal: str, constraint: str
) -> None:
    ask_for(Action.ABANDON)
    asker, dana = person_of(operator()), person_of(approver())
    if who == "became one":
        Person.objects.filter(pk=asker.pk).update(principal=dana.principal)
    second = make_person("maya2", Role.APPROVER, same_human_as=asker)
    actor = {"dana": dana.pk, "maya2": second.pk, "became one": dana.pk}.get(who, 0)
    claimed = dana.principal if principal == "her own" else principal
    with pytest.raises(DatabaseError, match=constraint), transaction.atomic():
        ApprovalRequest.objects.update(
            state="approved",
            answerer=f"person:{actor}",
            answerer_principal=claimed,
            answered_at="2026-01-01T00:00Z",
            comment="Agreed.",
        )


def test_an_end_is_final_in_the_database_too() -> None:
    _, _, approval = ask_for(Action.ABANDON)
    withdraw(approval)
    with pytest.raises(DatabaseError, match="stays so"), transaction.atomic():
        ApprovalRequest.objects.update(state="requested", ended_at=None, comment="")


def test_an_answer_stands_while_what_it_permitted_is_still_to_come() -> None:
    _, _, approval = ask_for(Action.RETRY)
    approve(approval)
    with pytest.raises(DatabaseError, match="its answer stands"), transaction.atomic():
        ApprovalRequest.objects.update(answerer="person:0", answerer_principal="hum_x")
    with pytest.raises(DatabaseError, match="was approved"), transaction.atomic():
        ApprovalRequest.objects.update(state="refused", ended_at=approval.expires_at)


# --- Refusing, asking back, withdrawing -----------------------------------------------------------------


def test_a_refusal_gives_the_case_back_and_says_why() -> None:
    claimed, case, approval = ask_for(Action.RETRY)
    refuse(approval)
    assert (fresh(approval).state, fresh(case).state) == ("refused", CaseState.NEEDS_DECISION)
    assert refuse(approval).replayed
    moved = AuditLeaf.objects.filter(action="case.moved").latest("id")
    assert b"Dana refused it: Not convinced." in bytes(moved.body)
    assert (state_of(claimed), Decision.objects.count()) == ("sent_unknown", 0)
    with pytest.raises(ApprovalAnswered, match="has refused"):
        approve(approval)
    # It can be asked for anew.
    assert decide(case, Action.RETRY, actor=operator().actor).approval != approval.pk


def test_whoever_asked_takes_it_back_and_nobody_else_does() -> None:
    _, case, approval = ask_for(Action.RETRY)
    with pytest.raises(Forbidden):
        withdraw(approval, by=operator("tomas"))
    withdraw(approval)
    assert withdraw(approval).replayed
    assert (fresh(approval).state, fresh(case).state) == ("withdrawn", CaseState.NEEDS_DECISION)
    with pytest.raises(ApprovalAnswered, match="withdrew"):
        approve(approval)
    assert leaves(approval) == ["requested", "withdrawn"]


def test_a_question_leaves_the_request_open_and_the_requester_replies() -> None:
    _, _, approval = ask_for(Action.RETRY)
    said: dict[str, Any] = {"approval_id": approval.pk, "teams": [TEAM]}
    question = approval_messages.ask(**said, worker=approver(), text="Which ticket?", key="q1").message
    again = approval_messages.ask(**said, worker=approver(), text="Which ticket?", key="q1")
    assert (again.message.pk, again.replayed) == (question.pk, True)
    with pytest.raises(KeyReused):
        approval_messages.ask(**said, worker=approver(), text="Another one?", key="q1")
    with pytest.raises(OwnApproval):
        approval_messages.ask(**said, worker=operator(), text="To myself?", key="q2")
    with pytest.raises(Forbidden):
        approval_messages.reply(**said, worker=approver(), text="Not mine to say", key="q3")
    with pytest.raises(Forbidden):
        approval_messages.ask(**said, worker=operator("tomas"), text="May I?", key="q4")
    approval_messages.reply(**said, worker=operator(), text="It is 4711.", key="r1")
    kinds = ApprovalMessage.objects.order_by("made_at").values_list("kind", "text")
    assert list(kinds) == [("question", "Which ticket?"), ("reply", "It is 4711.")]
    assert leaves(approval) == ["requested", "asked", "replied"]
    approve(approval)
    with pytest.raises(ApprovalAnswered):
        approval_messages.ask(**said, worker=approver(), text="Too late?", key="q5")


# --- Time and change -------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_time_ends_a_request_and_never_approves_it() -> None:
    claimed, case, approval = ask_for(Action.ABANDON)
    end_request_in(approval, 3_600)
    assert sweeping.sweep().approvals_expired == 0
    end_request_in(approval, -1)
    with pytest.raises(ApprovalExpired):
        approve(approval)
    # The refusal has ended it, and kept that.
    assert (fresh(approval).state, fresh(case).state) == ("expired", CaseState.NEEDS_DECISION)
    assert state_of(claimed) == "sent_unknown"
    again = ApprovalRequest.objects.get(pk=decide(case, Action.ABANDON, actor=operator().actor).approval)
    end_request_in(again, -1)
    assert sweeping.sweep().approvals_expired == 1
    assert (fresh(again).state, leaves(again)) == ("expired", ["requested", "expired"])
    for act in (refuse, withdraw):
        with pytest.raises(ApprovalExpired):
            act(again)


@pytest.mark.parametrize("change", ["attempt", "tightened", "flow version"])
def test_any_change_of_what_is_consented_to_voids_it_and_says_what(change: str) -> None:
    claimed, case, approval = ask_for(Action.RETRY)
    match change:
        case "attempt":
            Operation.objects.update(attempts_count=2)
            told = "The number of requests sent changed from 1 to 2."
        case "tightened":
            Operation.objects.update(amount_minor=600)
            told = "The amount changed."
        case _:
            type(claimed.run.flow_version).objects.update(version="7")
            told = "The run’s flow version changed from 6 to 7."
    with pytest.raises(ApprovalVoid) as void:
        approve(approval)
    assert void.value.details["changed"] == [told]
    assert told in void.value.sentence
    assert (fresh(approval).state, fresh(case).state) == ("voided", CaseState.NEEDS_DECISION)
    assert Grant.objects.count() == 0
    with pytest.raises(ApprovalVoid):
        approve(approval)


def test_evidence_that_comes_while_it_waits_voids_it_at_once() -> None:
    _, case, approval = ask_for(Action.CONFIRM)
    evidence.attach(
        case_id=case.pk, team=TEAM, actor=operator("tomas").actor, summary="The courier called back."
    )
    assert (fresh(approval).state, fresh(case).state) == ("voided", CaseState.NEEDS_DECISION)
    with pytest.raises(ApprovalVoid, match="New evidence came"):
        approve(approval)


def test_a_requester_who_may_not_decide_any_more_asks_for_nothing_any_more() -> None:
    claimed, _, approval = ask_for(Action.ABANDON)
    make_person("maya", Role.VIEWER)
    with pytest.raises(ApprovalVoid, match="decisions are for operators"):
        approve(approval)
    assert (state_of(claimed), fresh(approval).state) == ("sent_unknown", "voided")


# --- Between consent and sending -------------------------------------------------------------------------


@pytest.mark.parametrize("executor", ["agent", "console"])
def test_an_approver_who_lost_the_right_before_it_is_sent_stops_it(executor: str) -> None:
    claimed, case = in_doubt(COURIER)
    Operation.objects.update(sent_by=executor)
    decided = decide(case, Action.RETRY, actor=operator().actor, executor=executor)
    approval = ApprovalRequest.objects.get(pk=decided.approval)
    approve(approval)
    make_person("dana", Role.VIEWER)
    granted = Grant.objects.get()
    if executor == "agent":
        token = claim(fresh(claimed.run))
        with pytest.raises(NotSendable) as stopped:
            retries.begin_send(team=TEAM, operation_id=claimed.operation.pk, token=token, attempt_id="a2")
        assert "may not any more" in stopped.value.sentence
    else:
        assert retries.send_granted(grant_id=granted.pk) == ""
    assert (fresh(approval).state, fresh(granted).state) == ("voided", GrantState.VOID)
    assert "whoever approved it may not any more" in fresh(approval).voided_because
    assert (fresh(case).state, Attempt.objects.count()) == (CaseState.NEEDS_DECISION, 1)


def test_evidence_that_comes_before_it_is_sent_takes_the_consent_back() -> None:
    _, case, approval = ask_for(Action.RETRY)
    approve(approval)
    evidence.attach(
        case_id=case.pk, team=TEAM, actor=operator("tomas").actor, summary="The courier called back."
    )
    assert (fresh(approval).state, Grant.objects.get().state) == ("voided", GrantState.VOID)
    assert fresh(case).state == CaseState.NEEDS_DECISION


def test_a_retry_that_is_withdrawn_after_consent_voids_the_consent() -> None:
    _, case, approval = ask_for(Action.RETRY)
    approve(approval)
    assert retries.withdraw_grant(
        case_id=case.pk, team=TEAM, actor=operator().actor, reason="Not needed any more."
    )
    assert (fresh(approval).state, Grant.objects.get().state) == ("voided", GrantState.VOID)


@pytest.mark.django_db(transaction=True)
def test_consent_that_nobody_used_in_time_ends() -> None:
    claimed, case, approval = ask_for(Action.RETRY)
    approve(approval)
    end_request_in(approval, -1)
    token = claim(fresh(claimed.run))
    assert approvals.expire(approval_id=approval.pk)
    assert (fresh(approval).state, Grant.objects.get().state) == ("expired", GrantState.VOID)
    with pytest.raises(Refusal):
        retries.begin_send(team=TEAM, operation_id=claimed.operation.pk, token=token, attempt_id="a2")
    assert (Attempt.objects.count(), fresh(case).state) == (1, CaseState.NEEDS_DECISION)
