"""Wake-up calls to Celery. The database is the truth: a call that is lost is made again by the sweeper."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog
from celery import current_app
from django.db import transaction

log = structlog.get_logger(__name__)

# An expired wake-up call is noise: by then the sweeper has made another.
EXPIRES_SECONDS = 60
# After a call that failed, so long nobody in this process tries another. A broker that listens and says
# nothing costs each caller its time limit: without this, a server's every thread would wait for it.
BROKER_REST_SECONDS = 5.0


class _Broker:
    """Until when, by the process's own clock, the broker is taken to be away. Races do no harm here."""

    away_until = 0.0


def wake_after_commit(task: str, *arguments: str) -> None:
    """Ask Celery for a task once this transaction is committed; an unreachable broker is no error."""
    transaction.on_commit(_caller(task, arguments), robust=True)


def wake(task: str, *arguments: str) -> None:
    """Ask Celery for a task now; a broker that can't be reached is no error."""
    _caller(task, arguments)()


def _caller(task: str, arguments: tuple[str, ...]) -> Callable[[], None]:
    def call() -> None:
        if time.monotonic() < _Broker.away_until:
            log.debug("wake_up_left_out", task=task, arguments=list(arguments))
            return
        if _Broker.away_until:
            # It was away: one caller finds out for all whether it still is.
            _Broker.away_until = time.monotonic() + BROKER_REST_SECONDS
        try:
            current_app.send_task(
                f"reconciliation.tasks.{task}", args=list(arguments), expires=EXPIRES_SECONDS, retry=False
            )
        except Exception as error:  # noqa: BLE001 - each transport has its own, and none may reach a caller
            _Broker.away_until = time.monotonic() + BROKER_REST_SECONDS
            log.warning("wake_up_lost", task=task, arguments=list(arguments), error=type(error).__name__)
        else:
            _Broker.away_until = 0.0

    return call
