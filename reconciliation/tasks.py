"""Celery tasks: each makes one domain call. A task that is lost, late or doubled does no harm."""

from __future__ import annotations

from celery import shared_task

from reconciliation import lookups, retries, sweeping


@shared_task(name="reconciliation.tasks.sweep")
def sweep() -> None:
    """See to whatever nobody is taking care of."""
    sweeping.sweep()


@shared_task(name="reconciliation.tasks.look_up")
def look_up(case_id: str) -> None:
    """Look a case up, if it is due and nobody else is at it."""
    lookups.look_up(case_id=case_id)


@shared_task(name="reconciliation.tasks.send_granted")
def send_granted(grant_id: str) -> None:
    """Carry out a granted repeat from the console, once."""
    retries.send_granted(grant_id=grant_id)
