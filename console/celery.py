"""The Celery application. Its messages are wake-up calls: losing every one of them loses nothing."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery, Task
from celery.signals import beat_init, setup_logging, worker_init, worker_process_init
from structlog.contextvars import bound_contextvars

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")


class NamedTask(Task[Any, Any]):
    """A task whose log lines say which it is, whatever logs them."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with bound_contextvars(task=self.name, task_id=self.request.id or ""):
            return super().__call__(*args, **kwargs)


app = Celery("recourse", task_cls=NamedTask)
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@app.on_after_configure.connect
def schedule(sender: Celery[Any], **_: Any) -> None:
    """Hand beat the entries of `settings.BEAT`."""
    from django.conf import settings

    sender.conf.beat_schedule = settings.BEAT


@setup_logging.connect
def keep_our_logging(**_: Any) -> None:
    """Celery would replace the root logger's handlers; Django has configured them already."""


@worker_init.connect
@beat_init.connect
def refuse_an_unsafe_start(**_: Any) -> None:
    """Worker and beat don't start on a database that forgets commits, as its owner, or without secrets.

    SystemExit, because Celery logs any other exception of a signal's receiver and goes on.
    """
    from django.core.exceptions import ImproperlyConfigured

    from console.checks import refuse_unless_safe

    try:
        refuse_unless_safe()
    except ImproperlyConfigured as refusal:
        raise SystemExit(str(refusal)) from refusal


@worker_init.connect
def read_with_patience(**_: Any) -> None:
    """Let the worker's own reading wait longer for its broker than whoever only sends a wake-up call."""
    from django.conf import settings

    _set_socket_seconds(settings.RECOURSE_WORKER_SOCKET_SECONDS)


@worker_process_init.connect
def send_without_patience(**_: Any) -> None:
    """The worker's children only send."""
    from django.conf import settings

    _set_socket_seconds(settings.CELERY_BROKER_TRANSPORT_OPTIONS["socket_timeout"])


def _set_socket_seconds(seconds: float) -> None:
    app.conf.broker_transport_options = {**app.conf.broker_transport_options, "socket_timeout": seconds}
