"""Workers and people that meet at one list: each case is done once, and the second is told who was first."""

from __future__ import annotations

import pytest

from reconciliation import bulk, bulk_running
from reconciliation.bulk_models import BulkDeed, BulkItem, BulkJob, BulkOutcome
from reconciliation.models import Decision
from runs.models import AuditLeaf
from tests import cases
from tests.concurrency import WAIT_SECONDS_MAX, Connect, at_once, holding_run, start
from tests.integration.test_bulk import ABANDON, colleague_abandons, outcomes, person, run, started

pytestmark = pytest.mark.django_db(transaction=True)


def test_two_workers_at_one_list_do_each_case_once() -> None:
    opened = [cases.needs_decision() for _ in range(4)]
    job = started(BulkDeed.DECIDE, *opened, wanted=ABANDON)

    def work() -> int:
        """As a worker whose call wasn't the only one: it takes cases until none is left."""
        done = 0
        while bulk_running._do_next(job.pk):
            done += 1
        return done

    shares = [one.value for one in at_once([work, work])]
    assert sum(one or 0 for one in shares) == 4
    assert outcomes(job) == [("done", "")] * 4
    assert Decision.objects.count() == AuditLeaf.objects.filter(action="case.decided.abandon").count() == 4
    assert AuditLeaf.objects.filter(action="bulk.ended").count() == 1


def test_a_call_for_one_stretch_that_comes_to_two_workers_at_once_is_begun_by_one() -> None:
    job = started(BulkDeed.CLAIM, *(cases.needs_decision() for _ in range(2)))
    shares = at_once([lambda: bulk_running.run_chunk(job_id=job.pk, chunk=1)] * 2)
    assert sorted(one.value or 0 for one in shares) == [0, 2]


def test_a_colleague_who_decides_meanwhile_is_first_and_the_list_goes_on_with_the_rest(
    connect: Connect,
) -> None:
    theirs, ours = cases.needs_decision(), cases.needs_decision()
    job = started(BulkDeed.DECIDE, theirs, ours, wanted=ABANDON)
    with holding_run(connect, theirs.run.pk) as holder:
        deciding = start(lambda: colleague_abandons(theirs))
        holder.wait_for_waiters(1)
        working = start(lambda: bulk_running.run_chunk(job_id=job.pk, chunk=1))
        holder.wait_for_waiters(2)
        holder.release()
    assert deciding.result(timeout=WAIT_SECONDS_MAX).refusal is None
    assert working.result(timeout=WAIT_SECONDS_MAX).value == 2
    loser = BulkOutcome.objects.get(item__case=theirs.case_id)
    assert (loser.result, loser.word) == ("refused", "decision_stale")
    assert "robin decided: abandon." in loser.sentence
    assert BulkOutcome.objects.get(item__case=ours.case_id).result == "done"
    assert Decision.objects.filter(case=theirs.case_id).count() == 1


def test_a_stop_waits_for_the_case_that_is_being_done_and_none_begins_after_it(connect: Connect) -> None:
    opened = [cases.needs_decision() for _ in range(2)]
    job = started(BulkDeed.DECIDE, *opened, wanted=ABANDON)
    with holding_run(connect, opened[0].run.pk) as holder:
        working = start(lambda: bulk_running.run_chunk(job_id=job.pk, chunk=1))
        holder.wait_for_waiters(1)
        stopping = start(lambda: bulk.stop(job_id=job.pk, worker=person()))
        holder.wait_for_waiters(2)
        holder.release()
    assert working.result(timeout=WAIT_SECONDS_MAX).refusal is None
    assert stopping.result(timeout=WAIT_SECONDS_MAX).refusal is None
    job.refresh_from_db()
    done = BulkOutcome.objects.count()
    assert (job.state, job.next_position) == ("stopped", done + 1)
    assert [one.case.state for one in opened].count("resolved") == done


def test_started_twice_at_once_is_started_once() -> None:
    job = bulk.freeze(
        worker=person(),
        teams=["team"],
        deed=BulkDeed.DECIDE,
        case_ids=[cases.needs_decision(team="team").case_id],
    )
    person(team="team")
    both = at_once([lambda: bulk.start(job_id=job.pk, worker=person(), wanted=ABANDON)] * 2)
    assert {one.answer.started_at for one in both} == {BulkJob.objects.get().started_at}
    assert AuditLeaf.objects.filter(action="bulk.started").count() == 1
    assert outcomes(run(job)) == [("done", "")]
    assert BulkItem.objects.count() == 1


def test_a_case_that_waits_for_its_run_keeps_neither_the_sweeper_nor_another_worker_waiting(
    connect: Connect,
) -> None:
    opened = cases.needs_decision()
    job = started(BulkDeed.DECIDE, opened, wanted=ABANDON)
    with holding_run(connect, opened.run.pk) as holder:
        working = start(lambda: bulk_running.run_chunk(job_id=job.pk, chunk=1))
        holder.wait_for_waiters(1)
        assert bulk_running.run_chunk(job_id=job.pk, chunk=2) == 0
        bulk_running.call_again(job.pk)
        holder.release()
    assert working.result(timeout=WAIT_SECONDS_MAX).value == 1
