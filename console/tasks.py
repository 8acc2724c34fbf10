"""Celery tasks of the console: each makes one call. A task that is lost, late or doubled does no harm."""

from __future__ import annotations

from celery import shared_task

from console import counting, exporting, health, history_filing, search_terms
from console.notifying import delivering
from console.operating_models import Part
from reconciliation import sweeping


@shared_task(name="console.tasks.index_search_terms")
def index_search_terms() -> None:
    """Take new names over into what search by a part of a name reads."""
    search_terms.index_terms()


@shared_task(name="console.tasks.file_history")
def file_history() -> None:
    """File new entries of the audit log for the effect history."""
    history_filing.file_history()


@shared_task(name="console.tasks.make_exports")
def make_exports() -> None:
    """Write a stretch of the exports that are asked for."""
    exporting.make_exports()


@shared_task(name="console.tasks.notify")
def notify() -> None:
    """Note what people are to be told of, and send what is due."""
    delivering.make_pass()


@shared_task(name="console.tasks.sweep")
def sweep() -> None:
    """See to whatever nobody is taking care of, and show that it was done."""
    sweeping.sweep()
    health.beat(Part.SWEEPER)


@shared_task(name="console.tasks.pulse")
def pulse() -> None:
    """Show that a worker takes tasks."""
    health.beat(Part.WORKER)


@shared_task(name="console.tasks.count_entries")
def count_entries() -> None:
    """Count new entries of the audit log."""
    counting.count_entries()
