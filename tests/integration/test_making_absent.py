"""Making an effect absent: two people, a record before the request leaves, and what its answer proves."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.db import DatabaseError, connection, transaction

from console.models import Role
from console.sandbox.control import SandboxControl
from reconciliation import approvals, making_absent, sweeping
from reconciliation.approval_models import ApprovalRequest
from reconciliation.approval_refusals import ApprovalVoid, OwnApproval
from reconciliation.approving import approve
from reconciliation.decisions import ActionLocked, DecisionStale, Forbidden
from reconciliation.making_absent_models import AbsenceRequest
from reconciliation.marking import RESTORER
from reconciliation.models import Case, Decision
from reconciliation.persons import Worker
from reconciliation.policy import Assessment
from reconciliation.providers import registry
from reconciliation.providers.registry import SHIPPED
from reconciliation.states import Action
from runs.journal.freezing import mark_perhaps_sent
from runs.locking import database_now, lock_operation
from runs.models import AuditLeaf, Evidence, Operation
from tests.cases_world import PAYMENTS, SUPPLIER, decide, declare, in_doubt, judged, look, report
from tests.factories import TEAM, Claimed, fresh
from tests.people import (
    approver,
    end_absence_request,
    end_request_in,
    make_person,
    operator,
    person_of,
    worker_of,
)
from tests.processes import Server
from tests.sandbox_client import new_client

pytestmark = pytest.mark.django_db(transaction=True)
COMMENT = "Agreed: the customer was told that nothing is refunded."


@pytest.fixture
def control(sandbox: Server) -> Iterator[SandboxControl]:
    with SandboxControl(sandbox.url) as control:
        declare()
        yield control


@pytest.fixture
def nobody(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """No provider: whatever would be sent to it would fail."""
    monkeypatch.setenv("SANDBOX_URL", "http://127.0.0.1:9")
    declare()


def first_send(control: SandboxControl, key: str) -> httpx.Response:
    """The request for the effect, as a worker would send it."""
    url = f"{control.account_url('payments')}/refunds"
    with new_client() as client:
        return client.post(url, json={"amount_minor": 500}, headers={"Idempotency-Key": key})


def doubt(
    *, made: bool = False, control: SandboxControl | None = None, **fields: Any
) -> tuple[Claimed, Case]:
    """A refund of EUR 5.00 in doubt; `made`: it happened, and no lookup shows it."""
    claimed, case = in_doubt(PAYMENTS, minor=500, **fields)
    if made and control is not None:
        key = fresh(claimed.operation).key
        control.fault("hide_from_lookup", account="payments")
        answer = first_send(control, key)
        assert answer.status_code == 201
    return claimed, case


def ask(case: Case, *, by: Worker | None = None, then: str = "continue") -> ApprovalRequest:
    decided = decide(case, Action.MAKE_ABSENT, actor=(by or operator()).actor, then=then)
    return ApprovalRequest.objects.get(pk=decided.approval)


def consent(approval: ApprovalRequest, by: Worker | None = None) -> approvals.Answered:
    return approve(
        approval_id=approval.pk,
        teams=[TEAM],
        worker=by or approver(),
        content_digest=approval.content_digest,
        comment=COMMENT,
    )


def made_absent(case: Case, **fields: Any) -> str:
    """Asked, approved and sent: what it came to."""
    approval = ask(case, **fields)
    consent(approval)
    return making_absent.send(approval_id=approval.pk)


def permission(case: Case) -> str:
    status = _assessed(case).action(Action.MAKE_ABSENT)
    return str(status.permission) if status is not None else "not offered"


def locked_by(case: Case, action: Action = Action.MAKE_ABSENT) -> str:
    status = _assessed(case).action(action)
    assert status is not None
    assert status.permission == "locked", status
    return status.sentence


def _assessed(case: Case) -> Assessment:
    return judged(case).assessment


# --- What happens ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [True, False], ids=["it-had-happened", "it-had-not"])
def test_what_is_made_absent_is_given_up_with_that_proof_and_never_sent_again(
    control: SandboxControl, made: bool
) -> None:
    claimed, case = doubt(made=made, control=control)
    look(case)
    approval = ask(case)
    assert (fresh(case).state, AbsenceRequest.objects.count()) == ("awaiting_approval", 0)
    consent(approval)
    # Whoever approves sends nothing: a worker does.
    assert (fresh(approval).state, control.stats("payments").cancels) == ("approved", 0)
    assert making_absent.send(approval_id=approval.pk) == "absent"
    operation, request = fresh(claimed.operation), AbsenceRequest.objects.get()
    assert (operation.state, operation.reservation) == ("abandoned", "released")
    assert operation.known_effect.startswith("Absent: asked to make sure of it")
    assert (fresh(case).resolution, fresh(approval).state) == ("abandoned", "carried_out")
    assert (request.state, request.outcome, request.proved) == ("answered", "absent", True)
    evidence = Evidence.objects.get(kind="make_absent")
    assert (evidence.claim, request.evidence_id) == ("absent", evidence.pk)
    counted = control.stats("payments")
    assert (counted.effects, counted.cancels, counted.undone) == (int(made), 1, int(made))
    actions = list(AuditLeaf.objects.filter(action__startswith="absence.").values_list("action", flat=True))
    assert actions == ["absence.sent", "absence.answered"]
    decision = Decision.objects.get()
    assert (decision.action, decision.actor, decision.approver) == (
        "make_absent",
        operator().actor.id,
        approver().actor.id,
    )
    # A second task for the same approval finds it used.
    assert (making_absent.send(approval_id=approval.pk), control.stats("payments").cancels) == ("", 1)


def test_the_run_ends_with_it_where_that_was_decided(control: SandboxControl) -> None:
    claimed, case = doubt()
    assert made_absent(case, then="end") == "absent"
    assert fresh(claimed.run).state == "abandoned"


def test_a_receipt_that_comes_after_the_proof_is_a_conflict(control: SandboxControl) -> None:
    claimed, case = doubt()
    made_absent(case)
    report("receipt", claimed, reference="rfd_1")
    late = Case.objects.exclude(pk=case.pk).get()
    assert (late.kind, fresh(claimed.operation).state) == ("conflict", "abandoned")


def test_a_late_first_request_with_a_burnt_key_makes_nothing(control: SandboxControl) -> None:
    claimed, case = doubt()
    made_absent(case)
    key = fresh(claimed.operation).key
    answer = first_send(control, key)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "key_cancelled")
    assert control.stats("payments").effects == 0


# --- What it doesn't prove ---------------------------------------------------------------------------------


def test_a_refusal_asks_people_again_and_locks_the_retry(control: SandboxControl) -> None:
    claimed, case = doubt(made=True, control=control)
    control.fault("refuse", account="payments")
    assert made_absent(case) == "refused"
    assert (fresh(claimed.operation).state, fresh(case).state) == ("sent_unknown", "needs_decision")
    assert "no answer to it would say what is so" in locked_by(case, Action.RETRY)
    assert permission(case) == "second_person"
    assert made_absent(case) == "absent"
    assert control.stats("payments").undone == 1


def test_an_answer_that_is_lost_is_no_proof_and_can_be_asked_for_again(control: SandboxControl) -> None:
    claimed, case = doubt(made=True, control=control)
    control.fault("drop_reply", account="payments")
    assert made_absent(case) == "unknown"
    assert (fresh(claimed.operation).state, fresh(case).state) == ("sent_unknown", "needs_decision")
    # It was undone, and nobody here knows: a receipt from before it confirms nothing by itself.
    assert control.stats("payments").undone == 1
    report("receipt", claimed, reference="rfd_1")
    assert (fresh(claimed.operation).state, fresh(case).need) == ("sent_unknown", "conflict")
    assert made_absent(case) == "absent"


def test_too_long_after_the_first_send_its_success_is_evidence_alone(control: SandboxControl) -> None:
    claimed, case = doubt()
    Operation.objects.filter(pk=claimed.operation.pk).update(
        first_sent_at=fresh(claimed.operation).first_sent_at - timedelta(days=2)  # type: ignore[operator]
    )
    assert made_absent(case) == "absent"
    assert AbsenceRequest.objects.get().proved is False
    assert (fresh(claimed.operation).state, fresh(case).state) == ("sent_unknown", "needs_decision")


def test_one_that_could_arrive_when_the_key_is_forgotten_is_evidence_alone(control: SandboxControl) -> None:
    claimed, case = doubt()
    way = registry.account(PAYMENTS).make_absent
    assert way is not None
    assert way.proves_within_ms is not None
    # On record in time. Its worker may be stopped before it leaves, and the provider be slow with it.
    Operation.objects.filter(pk=claimed.operation.pk).update(
        first_sent_at=database_now() - timedelta(milliseconds=way.proves_within_ms - 8_000)
    )
    approval = ask(case)
    consent(approval)
    assert making_absent.send(approval_id=approval.pk) == "absent"
    request, first_sent_at = AbsenceRequest.objects.get(), fresh(claimed.operation).first_sent_at
    assert first_sent_at is not None
    until = way.proves_until(first_sent_at)
    assert until is not None
    assert request.sent_at < until < request.quiet_after_at
    assert request.proved is False
    assert (fresh(claimed.operation).state, fresh(case).state) == ("sent_unknown", "needs_decision")


def test_what_never_left_leaves_everything_as_it_was(
    control: SandboxControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, case = doubt()
    approval = ask(case)
    consent(approval)
    monkeypatch.setattr("reconciliation.making_absent.elapsed_seconds", lambda: -1_000.0)
    assert making_absent.send(approval_id=approval.pk) == "not_sent"
    assert (fresh(case).state, control.stats("payments").cancels) == ("needs_decision", 0)
    assert _assessed(case).action(Action.RETRY).permission == "allowed"  # type: ignore[union-attr]


def test_a_request_that_nobody_answers_for_is_given_up_when_it_can_no_longer_take_effect(
    control: SandboxControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, case = doubt()
    approval = ask(case)
    consent(approval)

    class Died(BaseException):
        pass

    def die(_: object) -> None:
        raise Died

    monkeypatch.setattr("reconciliation.making_absent._send", die)
    with pytest.raises(Died):
        making_absent.send(approval_id=approval.pk)
    request = AbsenceRequest.objects.get()
    assert (request.state, fresh(case).state) == ("sent", "looking_up")
    for action in (Action.CONFIRM, Action.RETRY, Action.ABANDON, Action.MAKE_ABSENT):
        assert "its answer comes first" in locked_by(case, action)
    assert sweeping.sweep().absences_given_up == 0
    assert making_absent.give_up(request_id=request.pk) is False
    end_absence_request(request)
    assert sweeping.sweep().absences_given_up == 1
    assert (fresh(request).state, fresh(case).state) == ("unanswered", "needs_decision")
    told = Evidence.objects.get(kind="make_absent")
    assert "Whether it left, and whether anything was undone, is unknown." in told.summary
    assert "promises that the same request again does nothing more" in told.summary
    assert permission(case) == "second_person"


# --- Who, and when not -------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", [Role.VIEWER, Role.APPROVER])
def test_who_may_not_decide_may_not_ask_for_it(nobody: None, role: Role) -> None:
    _, case = doubt()
    with pytest.raises(Forbidden):
        ask(case, by=worker_of(make_person("vic", role)))
    assert ApprovalRequest.objects.count() == 0


def test_the_same_human_being_never_approves_it(nobody: None) -> None:
    _, case = doubt()
    approval = ask(case)
    same = worker_of(make_person("maya-2", Role.APPROVER, same_human_as=person_of(operator())))
    with pytest.raises(OwnApproval):
        consent(approval, by=same)
    assert fresh(approval).state == "requested"


def test_it_waits_until_no_attempt_can_reach_the_provider(nobody: None) -> None:
    from tests.cases_world import case_of, make_sent

    claimed = make_sent(PAYMENTS, minor=500)
    report("unknown", claimed)
    with pytest.raises(ActionLocked, match="can still reach the provider") as refused:
        ask(case_of(claimed))
    assert refused.value.details["question"] == 4
    assert refused.value.details["unlocks_at"] is not None


def test_it_is_never_made_where_the_outcome_is_known(nobody: None) -> None:
    claimed, case = doubt()
    report("receipt", claimed, reference="rfd_1")
    assert (fresh(claimed.operation).state, permission(case)) == ("confirmed", "not offered")
    with pytest.raises((ActionLocked, DecisionStale)):
        ask(case)


def test_where_the_provider_offers_nothing_of_the_kind_there_is_no_such_action(
    nobody: None,
) -> None:
    _, case = in_doubt(SUPPLIER)
    assert permission(case) == "not offered"
    with pytest.raises(ActionLocked, match="offers no make_absent"):
        ask(case)


def test_what_was_approved_and_not_sent_in_time_is_over(control: SandboxControl) -> None:
    _, case = doubt()
    approval = ask(case)
    consent(approval)
    end_request_in(approval, -1)
    assert making_absent.send(approval_id=approval.pk) == ""
    assert (fresh(approval).state, control.stats("payments").cancels) == ("expired", 0)
    assert fresh(case).state == "needs_decision"


def test_evidence_that_comes_between_asking_and_approving_voids_it(nobody: None) -> None:
    claimed, case = doubt()
    approval = ask(case)
    report("rejection", claimed, attempt_id="a1")
    with pytest.raises(ApprovalVoid):
        consent(approval)
    assert AbsenceRequest.objects.count() == 0


def test_evidence_that_comes_between_approving_and_sending_stops_it(control: SandboxControl) -> None:
    claimed, case = doubt()
    approval = ask(case)
    consent(approval)
    report("receipt", claimed, reference="rfd_1")
    assert making_absent.send(approval_id=approval.pk) == ""
    assert (fresh(approval).state, control.stats("payments").cancels) == ("voided", 0)
    assert fresh(claimed.operation).state == "confirmed"


def test_an_account_that_is_declared_anew_once_the_record_is_on_disk_is_sent_nothing(
    control: SandboxControl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slug = "sandbox-payments-own"
    shipped = next(SHIPPED.rglob("sandbox-payments.toml")).read_text()
    file = tmp_path / f"{slug}.toml"
    file.write_text(shipped.replace('slug = "sandbox-payments"', f'slug = "{slug}"'))
    monkeypatch.setattr(settings, "RECOURSE_PROVIDERS_DIR", [str(tmp_path)])
    declare()
    _, case = in_doubt(slug, minor=500)
    approval = ask(case)
    consent(approval)
    begin = making_absent._begin

    def begin_and_declare_anew(*given: Any) -> Any:
        outgoing = begin(*given)
        file.write_text(file.read_text().replace("refunds/cancellation", "orders/cancellation"))
        declare()
        return outgoing

    monkeypatch.setattr(making_absent, "_begin", begin_and_declare_anew)
    assert making_absent.send(approval_id=approval.pk) == "not_sent"
    assert (fresh(approval).state, control.stats("payments").cancels) == ("carried_out", 0)
    assert fresh(case).state == "needs_decision"
    monkeypatch.undo()
    registry.reload()


def test_an_approver_who_lost_the_right_stops_it(control: SandboxControl) -> None:
    _, case = doubt()
    approval = ask(case)
    consent(approval)
    make_person("dana", Role.VIEWER)
    assert making_absent.send(approval_id=approval.pk) == ""
    assert (fresh(approval).state, control.stats("payments").cancels) == ("voided", 0)
    assert fresh(case).state == "needs_decision"


def test_nothing_leaves_while_sending_is_frozen(control: SandboxControl) -> None:
    from runs.models import ProviderAccount

    _, case = doubt()
    approval = ask(case)
    consent(approval)
    ProviderAccount.objects.filter(pk=PAYMENTS).update(sending="frozen")
    assert sweeping.make_absent(approval_id=approval.pk) == ""
    assert (fresh(approval).state, control.stats("payments").cancels) == ("approved", 0)
    ProviderAccount.objects.filter(pk=PAYMENTS).update(sending="open")
    assert making_absent.send(approval_id=approval.pk) == "absent"


def test_after_a_restore_it_may_have_left_without_a_record(nobody: None) -> None:
    claimed, case = doubt()
    assert not judged(case).facts.perhaps_made_absent
    with transaction.atomic():
        locked = lock_operation(operation_id=claimed.operation.pk, team=None)
        mark_perhaps_sent(locked, since_at=locked.now, actor=RESTORER, reason="restored")
    assert judged(case).facts.perhaps_made_absent


def test_what_nobody_called_for_the_sweeper_calls_for(nobody: None, monkeypatch: pytest.MonkeyPatch) -> None:
    _, case = doubt()
    approval = ask(case)
    consent(approval)
    called: list[tuple[str, str]] = []
    monkeypatch.setattr(sweeping, "wake", lambda task, *told: called.append((task, *told)))
    sweeping.sweep()
    assert ("make_absent", approval.pk) in called


# --- The database ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM reconciliation_absencerequest",
        "UPDATE reconciliation_absencerequest SET sent_at = sent_at - interval '1 day'",
        "UPDATE reconciliation_absencerequest SET state = 'unanswered', outcome = '', proved = false",
    ],
)
def test_the_record_of_a_request_stays_as_it_is(control: SandboxControl, statement: str) -> None:
    _, case = doubt()
    made_absent(case)
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert AbsenceRequest.objects.get().outcome == "absent"
