"""Wake-up calls to Celery. The database is the truth: a call that is lost is made again by the sweeper."""

from __future__ import annotations

from collections.abc import Callable

import structlog
from celery import current_app
from django.db import transaction
from kombu.exceptions import OperationalError

log = structlog.get_logger(__name__)

# An expired wake-up call is noise: by then the sweeper has made another.
EXPIRES_SECONDS = 60


def wake_after_commit(task: str, *arguments: str) -> None:
    """Ask Celery for a task once this transaction is committed; an unreachable broker is no error."""
    transaction.on_commit(_caller(task, arguments), robust=True)


def wake(task: str, *arguments: str) -> None:
    """Ask Celery for a task now; a broker that can't be reached is no error."""
    _caller(task, arguments)()


def _caller(task: str, arguments: tuple[str, ...]) -> Callable[[], None]:
    def call() -> None:
        try:
            current_app.send_task(
                f"reconciliation.tasks.{task}", args=list(arguments), expires=EXPIRES_SECONDS, retry=False
            )
        except (OperationalError, OSError) as error:
            log.warning("wake_up_lost", task=task, arguments=list(arguments), error=type(error).__name__)

    return call
