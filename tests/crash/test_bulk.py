"""A list that is carried out by real workers, one of which is killed in the middle of a case."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import F

from console.celery import app as celery_app
from reconciliation import sweeping
from reconciliation.bulk_models import BulkDeed, BulkJob, BulkOutcome
from reconciliation.models import Decision
from runs.models import AuditLeaf
from tests import cases
from tests.concurrency import Connect, holding_run
from tests.integration.test_bulk import ABANDON, outcomes, started
from tests.processes import PATIENCE_SECONDS, Spawn, start_celery_worker, until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240), pytest.mark.django_db(transaction=True)]


def test_a_worker_killed_in_the_middle_and_ten_doubled_messages_do_each_case_once(
    app_env: dict[str, str], spawn: Spawn, connect: Connect
) -> None:
    # Nobody can be asked there, so no lookup changes a case under the list.
    pickup = cases.Effect(tool="book_pickup", provider=cases.COURIER, minor=None)
    opened = [cases.needs_decision(pickup) for _ in range(4)]
    worker = start_celery_worker(spawn, env=app_env, concurrency=1)
    with holding_run(connect, opened[1].run.pk) as holder:
        job = started(BulkDeed.DECIDE, *opened, wanted=ABANDON)
        # The first case is done, and the worker is inside the second's transaction.
        holder.wait_for_waiters(1)
        worker.kill_group()
        holder.release()
    for last in until(PATIENCE_SECONDS):
        # Its connection is gone when the server has noticed; what it hadn't committed never was.
        if outcomes(job) == [("done", "")]:
            break
        assert not last, outcomes(job)
    assert Decision.objects.count() == 1
    # Its message is lost with it, and comes again ten times over; nobody may begin that stretch again.
    start_celery_worker(spawn, env=app_env, concurrency=2)
    for _ in range(10):
        celery_app.send_task("reconciliation.tasks.run_bulk", args=[job.pk, 1])
    # As time would: the job has stood still for longer than a stretch takes.
    BulkJob.objects.filter(pk=job.pk).update(called_at=F("called_at") - timedelta(minutes=1))
    for last in until(PATIENCE_SECONDS):
        sweeping.sweep()
        job.refresh_from_db()
        if job.state == "done":
            break
        assert not last, (job.state, outcomes(job))
    assert outcomes(job) == [("done", "")] * 4
    assert Decision.objects.count() == AuditLeaf.objects.filter(action="case.decided.abandon").count() == 4
    assert {one.case.resolution for one in opened} == {"abandoned"}
    assert BulkOutcome.objects.count() == 4
