"""Celery tasks: each makes one domain call. A task that is lost, late or doubled does no harm."""

from __future__ import annotations

from celery import shared_task

from reconciliation import bulk_running, gap, lookups, sweeping


@shared_task(name="reconciliation.tasks.sweep")
def sweep() -> None:
    """See to whatever nobody is taking care of."""
    sweeping.sweep()


@shared_task(name="reconciliation.tasks.look_up")
def look_up(case_id: str) -> None:
    """Look up whatever has waited longest at the account of this case, which is due."""
    lookups.look_up_in_turn(case_id=case_id)


@shared_task(name="reconciliation.tasks.look_up_now")
def look_up_now(case_id: str) -> None:
    """Look this case up before others, because a person waits for it."""
    lookups.look_up(case_id=case_id)


@shared_task(name="reconciliation.tasks.look_up_due")
def look_up_due(slug: str, wave: int) -> None:
    """Look up what is due at one account, for a little while."""
    lookups.look_up_due(slug=slug, wave=wave)


@shared_task(name="reconciliation.tasks.list_gap")
def list_gap(return_id: int) -> None:
    """List what was made at one account since the backup that the journal was restored from."""
    gap.list_gap(return_id=return_id)


@shared_task(name="reconciliation.tasks.send_granted")
def send_granted(grant_id: str) -> None:
    """Carry out a granted repeat from the console, once."""
    sweeping.send_granted(grant_id=grant_id)


@shared_task(name="reconciliation.tasks.make_absent")
def make_absent(approval_id: str) -> None:
    """Send the request to make an effect absent that two people approved, once."""
    sweeping.make_absent(approval_id=approval_id)


@shared_task(name="reconciliation.tasks.run_bulk")
def run_bulk(job_id: str, chunk: int) -> None:
    """Carry out one stretch of a list of cases."""
    bulk_running.run_chunk(job_id=job_id, chunk=chunk)
