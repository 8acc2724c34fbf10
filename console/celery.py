"""The Celery application. Its messages are wake-up calls: losing every one of them loses nothing."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.signals import setup_logging, worker_init

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

app = Celery("recourse")
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
def refuse_an_unsafe_start(**_: Any) -> None:
    """A worker on a database that forgets commits, or with made-up secrets, does not start."""
    from console.checks import refuse_unless_safe

    refuse_unless_safe()
