"""Many cases at once: the frozen list, what starts over it, and what each refusal says."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import IntegrityError, OperationalError, transaction

from console import access
from console.models import Person, Role
from reconciliation import bulk, bulk_running, lookups, reports, sweeping, working
from reconciliation.bulk import AlreadyEnded, AlreadyStarted, NotAlike, Wanted
from reconciliation.bulk_models import BulkDeed, BulkItem, BulkJob, BulkOutcome, BulkState
from reconciliation.decisions import Forbidden, decide
from reconciliation.gathering import judge_now
from reconciliation.models import Case, Decision
from reconciliation.states import Action
from reconciliation.work_models import CaseClaim
from reconciliation.working import Worker
from runs.actors import Actor, ActorKind
from runs.locking import database_now
from runs.models import AuditLeaf, Receipt
from runs.refusals import Invalid, NotFound, Refusal
from tests import cases, factories
from tests.cases import Opened

pytestmark = pytest.mark.django_db(transaction=True)
ABANDON = Wanted(
    action=Action.ABANDON,
    then="continue",
    reason_code="no_longer_needed",
    reason="The orders were cancelled.",
)
RETRY = Wanted(
    action=Action.RETRY, executor="agent", reason_code="not_at_provider", reason="The provider lost them."
)


def person(name: str = "kim", *roles: Role, team: str = factories.TEAM) -> Worker:
    made, _ = Person.objects.get_or_create(
        username=name, defaults={"roles": [str(one) for one in roles or (Role.OPERATOR,)]}
    )
    made.teams.add(factories.make_team(team))
    return Worker(actor=access.person_actor(made), name=str(made))


def frozen(deed: BulkDeed, *opened: Opened, worker: Worker | None = None, **more: Any) -> BulkJob:
    return bulk.freeze(
        worker=worker or person(),
        teams=[factories.TEAM],
        deed=deed,
        case_ids=[one.case_id for one in opened],
        **more,
    )


def started(deed: BulkDeed, *opened: Opened, wanted: Wanted | None = None) -> BulkJob:
    job = frozen(deed, *opened)
    return bulk.start(job_id=job.pk, worker=person(), wanted=wanted or Wanted())


def run(job: BulkJob) -> BulkJob:
    """Carry out the job as its worker does, stretch after stretch."""
    for _ in range(50):
        job.refresh_from_db()
        if job.state != BulkState.RUNNING:
            return job
        bulk_running.run_chunk(job_id=job.pk, chunk=job.next_chunk)
    raise AssertionError(job.state)


def outcomes(job: BulkJob) -> list[tuple[str, str]]:
    rows = BulkOutcome.objects.filter(item__job=job).order_by("item__position")
    return list(rows.values_list("result", "word"))


def colleague_abandons(opened: Opened, name: str = "robin") -> None:
    case, operation = opened.case, opened.operation
    judged = judge_now(run=opened.run, operation=operation, case=case, now=database_now())
    worker = person(name)
    decide(
        case_id=case.pk,
        team=None,
        actor=worker.actor,
        actor_name=worker.name,
        asked=bulk.Asked(
            action=Action.ABANDON,
            seen_version=case.version,
            evidence_digest=judged.evidence_digest,
            reason_code="other",
            reason=cases.REASON,
            idempotency_key=f"robin-{case.pk}",
            then="continue",
        ),
    )


def refused(kind: type[Refusal], job: BulkJob, wanted: Wanted, worker: Worker | None = None) -> Refusal:
    with pytest.raises(kind) as caught:
        bulk.start(job_id=job.pk, worker=worker or person(), wanted=wanted)
    assert BulkOutcome.objects.count() == 0
    return caught.value


# --- The list -----------------------------------------------------------------------------------------------


def test_a_list_keeps_each_case_with_the_version_and_the_evidence_that_it_had() -> None:
    opened = [cases.needs_decision() for _ in range(2)]
    job = frozen(BulkDeed.DECIDE, *reversed(opened))
    items = list(BulkItem.objects.filter(job=job).order_by("position"))
    assert [one.case_id for one in items] == [opened[1].case_id, opened[0].case_id]
    for item in items:
        case = Case.objects.get(pk=item.case_id)
        judged = judge_now(run=case.run, operation=case.operation, case=case, now=database_now())
        assert (item.seen_version, item.evidence_digest) == (case.version, judged.evidence_digest)
    assert (job.state, job.items_count, job.matched_count) == ("frozen", 2, 2)
    assert Decision.objects.count() == 0


def test_a_list_doesnt_change_with_what_the_queue_shows() -> None:
    opened = cases.needs_decision()
    job = frozen(BulkDeed.CLAIM, opened)
    cases.needs_decision()
    job = bulk.start(job_id=job.pk, worker=person(), wanted=Wanted())
    assert run(job).items_count == 1
    assert [one.case_id for one in CaseClaim.objects.all()] == [opened.case_id]


def test_another_teams_case_is_in_no_list() -> None:
    there = cases.needs_decision(team="other")
    with pytest.raises(NotFound):
        frozen(BulkDeed.CLAIM, there)
    assert BulkJob.objects.count() == 0


def test_a_list_of_nothing_or_of_too_many_chosen_rows_is_refused() -> None:
    with pytest.raises(Invalid):
        frozen(BulkDeed.CLAIM)
    many = [f"case_{number}" for number in range(bulk.DECIDED_MAX + 1)]
    with pytest.raises(Invalid) as caught:
        bulk.freeze(worker=person(), teams=[factories.TEAM], deed=BulkDeed.DECIDE, case_ids=many)
    assert "200" in caught.value.sentence


def test_what_matches_beyond_the_most_is_cut_and_counted() -> None:
    opened = [cases.needs_decision() for _ in range(2)]
    job = frozen(BulkDeed.CLAIM, *opened, query="provider=x", matched_count=1_001)
    assert (job.items_count, job.matched_count) == (2, 1_001)


def test_only_a_person_freezes_and_starts_and_only_their_own() -> None:
    opened = cases.needs_decision()
    token = Worker(actor=Actor(ActorKind.TOKEN, "tok_1"))
    with pytest.raises(Forbidden):
        frozen(BulkDeed.CLAIM, opened, worker=token)
    job = frozen(BulkDeed.CLAIM, opened)
    refused(Forbidden, job, Wanted(), worker=token)
    refused(NotFound, job, Wanted(), worker=person("robin"))
    with pytest.raises(NotFound):
        bulk.stop(job_id=job.pk, worker=person("robin"))


@pytest.mark.parametrize("table", ["reconciliation_bulkitem", "reconciliation_bulkoutcome"])
def test_not_even_the_owner_changes_a_list_or_an_outcome(owner_url: str, table: str) -> None:
    run(started(BulkDeed.CLAIM, cases.needs_decision()))
    with psycopg.connect(owner_url) as owner, pytest.raises(psycopg.errors.InsufficientPrivilege):
        owner.execute(f"UPDATE {table} SET id = id")


def test_the_database_refuses_a_second_outcome_and_a_case_twice_in_a_list() -> None:
    job = run(started(BulkDeed.CLAIM, cases.needs_decision()))
    item = BulkItem.objects.get()
    with pytest.raises(IntegrityError), transaction.atomic():
        BulkOutcome.objects.create(item=item, result="done", made_at=database_now())
    twice = {name: getattr(item, name) for name in ("job", "case", "seen_version", "provider", "kind")}
    with pytest.raises(IntegrityError), transaction.atomic():
        BulkItem.objects.create(position=2, **twice)
    assert job.state == "done"


def test_the_database_refuses_a_job_that_cant_be() -> None:
    job = frozen(BulkDeed.CLAIM, cases.needs_decision())
    impossible: list[dict[str, Any]] = [
        {"state": "over"},
        {"state": "running"},
        {"state": "done"},
        {"deed": "delete"},
        {"action": "confirm"},
        {"assignee": "person:1"},
        {"next_position": 2},
        {"items_count": 0},
        {"items_count": 1_001},
        {"executor": "agent"},
        {"then": "end"},
    ]
    for changes in impossible:
        with pytest.raises(IntegrityError), transaction.atomic():
            BulkJob.objects.filter(pk=job.pk).update(**changes)


# --- Claim, assign, look up ---------------------------------------------------------------------------------


def test_cases_are_claimed_and_one_that_a_colleague_has_is_left_to_them() -> None:
    opened = [cases.needs_decision() for _ in range(3)]
    working.claim_case(case_id=opened[1].case_id, team=None, worker=person("robin"))
    job = run(started(BulkDeed.CLAIM, *opened))
    assert outcomes(job) == [("done", ""), ("refused", "case_taken"), ("done", "")]
    assert BulkOutcome.objects.get(result="refused").sentence == "robin works on this case."
    assert job.state == BulkState.DONE
    assert AuditLeaf.objects.filter(action="case.claimed", actor=person().actor.id).count() == 2


def test_cases_are_assigned_for_a_shift_and_say_who_gave_them() -> None:
    opened = [cases.needs_decision() for _ in range(2)]
    robin = person("robin", Role.APPROVER)
    run(started(BulkDeed.ASSIGN, *opened, wanted=Wanted(assignee=robin)))
    claim = CaseClaim.objects.get(case=opened[0].case_id)
    assert (claim.actor, claim.given_by) == (robin.actor.id, "kim")
    assert claim.until_at - claim.claimed_at == timedelta(hours=8)
    assert AuditLeaf.objects.filter(action="case.assigned").count() == 2
    # A claim of one's own afterwards is nobody's gift.
    working.release(case_id=opened[0].case_id, team=None, worker=robin)
    working.claim_case(case_id=opened[0].case_id, team=None, worker=robin)
    assert CaseClaim.objects.get(case=opened[0].case_id).given_by == ""


def test_a_case_is_not_assigned_over_a_third_persons_head_or_to_somebody_who_may_not() -> None:
    taken, free = cases.needs_decision(), cases.needs_decision()
    robin, ash = person("robin"), person("ash")
    working.claim_case(case_id=taken.case_id, team=None, worker=ash)
    job = started(BulkDeed.ASSIGN, taken, free, wanted=Wanted(assignee=robin))
    bulk_running.run_chunk(job_id=job.pk, chunk=1)
    assert outcomes(job) == [("refused", "case_taken"), ("done", "")]
    other = started(BulkDeed.ASSIGN, free, wanted=Wanted(assignee=person("lee", Role.VIEWER)))
    assert outcomes(run(other)) == [("refused", "forbidden")]
    assert CaseClaim.objects.get(case=free.case_id).actor == robin.actor.id


def test_assigning_needs_somebody() -> None:
    job = frozen(BulkDeed.ASSIGN, cases.needs_decision())
    assert refused(Invalid, job, Wanted()).details["where"] == "assignee"


def test_cases_are_looked_up_unless_nothing_can_be_asked() -> None:
    opened = cases.needs_decision()
    blind = cases.needs_decision(cases.Effect(tool="book_pickup", provider=cases.COURIER, minor=None))
    settled = cases.needs_decision()
    colleague_abandons(settled)
    job = run(started(BulkDeed.LOOK_UP, opened, blind, settled))
    assert outcomes(job) == [("done", ""), ("refused", "no_lookup"), ("refused", "case_settled")]
    assert lookups.claim_due(case_id=opened.case_id) is not None
    assert AuditLeaf.objects.filter(action="case.lookup_asked").count() == 1


# --- Decide -------------------------------------------------------------------------------------------------


def test_each_case_gets_a_decision_and_an_entry_of_its_own() -> None:
    opened = [cases.needs_decision() for _ in range(3)]
    job = run(started(BulkDeed.DECIDE, *opened, wanted=ABANDON))
    assert outcomes(job) == [("done", "")] * 3
    decisions = Decision.objects.order_by("made_at")
    assert {one.case_id for one in decisions} == {one.case_id for one in opened}
    assert {(one.reason, one.actor) for one in decisions} == {(ABANDON.reason, person().actor.id)}
    assert [one.idempotency_key for one in decisions] == [f"{job.pk}:{number}" for number in (1, 2, 3)]
    assert AuditLeaf.objects.filter(action="case.decided.abandon").count() == 3
    assert {one.case.resolution for one in opened} == {"abandoned"}
    assert set(BulkOutcome.objects.values_list("decision_id", flat=True)) == {one.pk for one in decisions}


def test_what_was_found_is_confirmed_each_with_its_own_receipt() -> None:
    opened = [cases.needs_decision() for _ in range(2)]
    for number, one in enumerate(opened):
        # The worker reports another's record, so that the provider's own is put to a person.
        wrong = json.dumps(cases.record_of(one, amount_minor=1)).encode()
        with suppress(Refusal):
            reports.report_receipt(
                sender=reports.Sender(team=factories.TEAM, token=one.claimed.token),
                operation_id=one.operation.pk,
                attempt_id="a1",
                reference=f"wrong_{number}",
                seen=reports.SeenReply(status=201, body=wrong),
            )
        cases.looked_up(one, cases.found(one, id=f"rfd_{number}"))
    confirm = Wanted(action=Action.CONFIRM, reason_code="provider_record", reason="Seen in their records.")
    assert outcomes(run(started(BulkDeed.DECIDE, *opened, wanted=confirm))) == [("done", "")] * 2
    assert {one.case.resolution for one in opened} == {"confirmed"}
    assert sorted(Receipt.objects.values_list("reference", flat=True)) == ["rfd_0", "rfd_1"]


def test_a_retry_is_granted_to_each() -> None:
    opened = [cases.needs_decision() for _ in range(2)]
    run(started(BulkDeed.DECIDE, *opened, wanted=RETRY))
    assert {one.case.state for one in opened} == {"retrying"}
    assert {one.executor for one in Decision.objects.all()} == {"agent"}


def test_cases_that_differ_in_provider_verdict_or_allowed_action_are_refused_and_named() -> None:
    alike, other = (
        cases.needs_decision(),
        cases.needs_decision(
            cases.Effect(tool="place_order", provider=cases.SUPPLIER, args={"sku": "FC-20", "quantity": 4})
        ),
    )
    job = frozen(BulkDeed.DECIDE, alike, other)
    assert refused(NotAlike, job, ABANDON).details["differs"] == ["provider"]

    shown = cases.needs_decision()
    cases.looked_up(shown, cases.mismatch(shown))
    job = frozen(BulkDeed.DECIDE, alike, shown)
    assert refused(NotAlike, job, ABANDON).details["differs"] == ["verdict", "allowed actions"]
    assert [kind.count for kind in bulk.kinds_of(job)] == [1, 1]
    narrowed = bulk.cases_of_kind(job, next(one for one in bulk.kinds_of(job) if one.finding == "mismatch"))
    assert narrowed == [shown.case_id]


def test_what_takes_a_second_person_is_refused_case_by_case() -> None:
    shown = cases.needs_decision()
    cases.looked_up(shown, cases.mismatch(shown))
    confirm = Wanted(action=Action.CONFIRM, reason_code="provider_record", reason="Seen in their records.")
    job = run(started(BulkDeed.DECIDE, shown, wanted=confirm))
    assert outcomes(job) == [("refused", "action_locked")]
    assert "second person" in BulkOutcome.objects.get().sentence
    assert shown.case.state == "needs_decision"


def test_a_decision_without_its_words_doesnt_start() -> None:
    job = frozen(BulkDeed.DECIDE, cases.needs_decision())
    lacking = [
        (Wanted(), "action"),
        (Wanted(action=Action.ACCEPT, reason_code="other", reason=cases.REASON), "action"),
        (Wanted(action=Action.ABANDON, reason_code="other", reason=cases.REASON), "then"),
        (Wanted(action=Action.RETRY, reason_code="other", reason=cases.REASON), "executor"),
        (Wanted(action=Action.CONFIRM, reason_code="", reason=cases.REASON), "reason_code"),
        (Wanted(action=Action.CONFIRM, reason_code="other", reason="short"), "reason"),
    ]
    for wanted, where in lacking:
        assert refused(Invalid, job, wanted).details["where"] == where
    job.refresh_from_db()
    assert job.state == "frozen"


def test_a_case_that_changed_since_the_list_was_frozen_is_refused_with_what_changed_and_stays_open() -> None:
    decided, seen, alike = (cases.needs_decision() for _ in range(3))
    job = started(BulkDeed.DECIDE, decided, seen, alike, wanted=ABANDON)
    colleague_abandons(decided)
    cases.looked_up(seen, cases.mismatch(seen))
    job = run(job)
    assert outcomes(job) == [("refused", "decision_stale"), ("refused", "decision_stale"), ("done", "")]
    by_case = dict(BulkOutcome.objects.values_list("item__case_id", "sentence"))
    assert "robin decided: abandon." in by_case[decided.case_id]
    assert "One record carries our key with other content." in by_case[seen.case_id]
    assert (seen.case.state, alike.case.state) == ("needs_decision", "resolved")
    assert Decision.objects.filter(actor=person().actor.id).count() == 1


def test_started_twice_the_same_is_one_job_and_otherwise_is_refused() -> None:
    opened = cases.needs_decision()
    job = started(BulkDeed.DECIDE, opened, wanted=ABANDON)
    again = bulk.start(job_id=job.pk, worker=person(), wanted=ABANDON)
    assert (again.pk, again.started_at) == (job.pk, job.started_at)
    assert AuditLeaf.objects.filter(action="bulk.started").count() == 1
    refused(AlreadyStarted, job, RETRY)
    run(job)
    assert Decision.objects.count() == 1


# --- In the person's name -----------------------------------------------------------------------------------


def test_a_role_a_team_or_a_login_that_is_gone_meanwhile_stops_each_case_that_is_left() -> None:
    opened = [cases.needs_decision() for _ in range(4)]
    job = started(BulkDeed.DECIDE, *opened, wanted=ABANDON)
    kim = Person.objects.get(username="kim")

    def next_one() -> str:
        bulk_running._do_next(job.pk)
        latest = BulkOutcome.objects.order_by("-pk")[0]
        return latest.sentence or latest.result

    assert next_one() == "done"
    Person.objects.filter(pk=kim.pk).update(roles=["approver"])
    assert next_one() == "kim is approver now, and decisions are for operators."
    Person.objects.filter(pk=kim.pk).update(roles=["operator"])
    kim.teams.clear()
    assert next_one() == "kim isn’t in the case’s team."
    Person.objects.filter(pk=kim.pk).update(is_active=False)
    assert next_one() == "The login of kim is closed."
    assert Decision.objects.count() == 1
    assert BulkJob.objects.get().state == "done"


# --- Stretches, stops, sweeps -------------------------------------------------------------------------------


def test_a_message_that_comes_ten_times_does_each_case_once() -> None:
    opened = [cases.needs_decision() for _ in range(2)]
    job = started(BulkDeed.DECIDE, *opened, wanted=ABANDON)
    assert [bulk_running.run_chunk(job_id=job.pk, chunk=1) for _ in range(10)] == [2] + [0] * 9
    assert outcomes(run(job)) == [("done", "")] * 2
    assert Decision.objects.count() == 2


def test_what_isnt_done_is_left_as_it_was_when_its_person_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = [cases.needs_decision() for _ in range(3)]
    job = started(BulkDeed.DECIDE, *opened, wanted=ABANDON)
    monkeypatch.setattr(bulk_running, "CHUNK_ITEMS_MAX", 1)
    bulk_running.run_chunk(job_id=job.pk, chunk=1)
    stopped = bulk.stop(job_id=job.pk, worker=person())
    assert (stopped.state, stopped.next_position) == ("stopped", 2)
    assert bulk_running.run_chunk(job_id=job.pk, chunk=2) == 0
    assert [one.case.state for one in opened] == ["resolved", "needs_decision", "needs_decision"]
    with pytest.raises(AlreadyEnded):
        bulk.stop(job_id=job.pk, worker=person())
    assert AuditLeaf.objects.filter(action="bulk.stopped").count() == 1


def test_nothing_runs_before_it_is_started() -> None:
    job = frozen(BulkDeed.DECIDE, cases.needs_decision())
    assert bulk_running.run_chunk(job_id=job.pk, chunk=1) == 0
    with pytest.raises(AlreadyEnded):
        bulk.stop(job_id=job.pk, worker=person())


def test_a_failure_of_ours_is_one_cases_outcome_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = [cases.needs_decision() for _ in range(2)]
    job = started(BulkDeed.CLAIM, *opened)
    real = bulk_running.claim_case

    def fails_on_the_first(*, case_id: str, **more: Any) -> Any:
        claim = real(case_id=case_id, **more)
        if case_id == opened[0].case_id:
            raise RuntimeError(claim)
        return claim

    monkeypatch.setattr(bulk_running, "claim_case", fails_on_the_first)
    assert outcomes(run(job)) == [("failed", "internal_error"), ("done", "")]
    assert [one.case_id for one in CaseClaim.objects.all()] == [opened[1].case_id]


def test_a_case_on_which_the_transaction_is_lost_each_time_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = [cases.needs_decision() for _ in range(2)]
    job = started(BulkDeed.CLAIM, *opened)
    real, begun = bulk_running.claim_case, []

    def is_lost(*, case_id: str, **more: Any) -> Any:
        begun.append(case_id)
        if case_id == opened[0].case_id:
            raise OperationalError("deadlock detected")
        return real(case_id=case_id, **more)

    monkeypatch.setattr(bulk_running, "claim_case", is_lost)
    assert outcomes(run(job)) == [("failed", "not_finished"), ("done", "")]
    assert begun == [opened[0].case_id] * bulk_running.TRIES_MAX + [opened[1].case_id]


def test_a_case_that_ends_its_worker_each_time_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is left to say so: what was begun is on record before anything is done."""
    opened = [cases.needs_decision() for _ in range(2)]
    job = started(BulkDeed.CLAIM, *opened)
    real = bulk_running.claim_case

    def ends_its_worker(*, case_id: str, **more: Any) -> Any:
        if case_id == opened[0].case_id:
            raise SystemExit
        return real(case_id=case_id, **more)

    monkeypatch.setattr(bulk_running, "claim_case", ends_its_worker)
    for _ in range(bulk_running.TRIES_MAX):
        job.refresh_from_db()
        with pytest.raises(SystemExit):
            bulk_running.run_chunk(job_id=job.pk, chunk=job.next_chunk)
    assert outcomes(run(job)) == [("failed", "not_finished"), ("done", "")]


def test_a_job_that_stands_still_is_called_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[Any, ...]] = []
    job = started(BulkDeed.CLAIM, cases.needs_decision())
    monkeypatch.setattr(bulk, "wake", lambda *call: called.append(call))
    assert sweeping.sweep().bulks_called == 0
    BulkJob.objects.filter(pk=job.pk).update(called_at=database_now() - timedelta(seconds=11))
    assert sweeping.sweep().bulks_called == 1
    assert sweeping.sweep().bulks_called == 0
    assert called == [("run_bulk", job.pk, 1)]
