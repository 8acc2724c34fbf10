"""Celery tasks of the console: each makes one call. A task that is lost, late or doubled does no harm."""

from __future__ import annotations

from celery import shared_task

from console import history_filing, search_terms


@shared_task(name="console.tasks.index_search_terms")
def index_search_terms() -> None:
    """Take new names over into what search by a part of a name reads."""
    search_terms.index_terms()


@shared_task(name="console.tasks.file_history")
def file_history() -> None:
    """File new entries of the audit log for the effect history."""
    history_filing.file_history()
