"""Whether this process is alive, and whether the deployment is ready: for load balancers and people at night.

`/healthz` says that this process answers. `/readyz` asks the database, its schema, the broker, and whether
sweeper and workers have lately done what they are there for: a pulse that is a row, written by a task that
beat sent, the broker carried and a worker ran. Both say nothing that a stranger could use.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import structlog
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from console.celery import app
from console.operating_models import Part, Pulse
from runs.locking import database_now

log = structlog.get_logger(__name__)

# A worker's pulse is sent so often, and counts as missed after several; a slow broker is no outage.
PULSE_SECONDS: Final = 10.0
WORKER_SILENT_MAX: Final = timedelta(seconds=60)
# Of the sweeper's own period, so many passes may be missed; and never less than this.
SWEEPS_MISSED_MAX: Final = 6
SWEEPER_SILENT_MIN: Final = timedelta(seconds=30)
# Anybody may ask; nobody makes us ask the broker more often.
ANSWER_SECONDS: Final = 1.0
# While the broker doesn't answer, one request waits for it; the others get what was known so lately.
STALE_SECONDS_MAX: Final = 30.0


@dataclass(frozen=True, kw_only=True)
class Check:
    """One part: `word` is ok or says in a word what is wrong; `sentence` says more, to us alone."""

    part: str
    word: str = "ok"
    sentence: str = ""

    @property
    def ok(self) -> bool:
        return self.word == "ok"


def beat(part: Part) -> None:
    """Note that a part did what it is there for, by the database's clock."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO console_pulse (part, at) VALUES (%s, clock_timestamp())"
            " ON CONFLICT (part) DO UPDATE SET at = excluded.at",
            [str(part)],
        )


def sweeper_silent_max() -> timedelta:
    """How long ago the sweeper's last pass may be."""
    return max(SWEEPER_SILENT_MIN, timedelta(seconds=settings.RECOURSE_SWEEP_SECONDS * SWEEPS_MISSED_MAX))


def checks() -> tuple[Check, ...]:
    """Ask every part; what needs the database isn't asked where that doesn't answer."""
    database = _database()
    if not database.ok:
        return (database, _broker())
    schema = _schema()
    if not schema.ok:
        # The pulses' table may be among what is missing.
        return (database, schema, _broker())
    now = database_now()
    pulses = dict(Pulse.objects.values_list("part", "at"))
    return (
        database,
        schema,
        _broker(),
        pulse_check(Part.SWEEPER, pulses.get(Part.SWEEPER), now=now, silent_max=sweeper_silent_max()),
        pulse_check(Part.WORKER, pulses.get(Part.WORKER), now=now, silent_max=WORKER_SILENT_MAX),
    )


def pulse_check(part: Part, at: datetime | None, *, now: datetime, silent_max: timedelta) -> Check:
    """Whether a part's last pulse is recent enough."""
    if at is None:
        return Check(part=part, word="never", sentence="It has never been heard of.")
    if now - at > silent_max:
        return Check(part=part, word="silent", sentence=f"Last heard of at {at:%Y-%m-%d %H:%M:%S}Z.")
    return Check(part=part)


def _database() -> Check:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        return Check(part="database", word="unreachable", sentence=type(error).__name__)
    return Check(part="database")


_migrated = threading.Event()


def _schema() -> Check:
    """Whether every migration of this release is applied; once it was, it stays so for this process."""
    if not _migrated.is_set():
        executor = MigrationExecutor(connection)
        if executor.migration_plan(executor.loader.graph.leaf_nodes()):
            return Check(part="schema", word="behind", sentence="Migrations are missing.")
        _migrated.set()
    return Check(part="schema")


def _broker() -> Check:
    try:
        with app.connection_for_write() as broker:
            broker.ensure_connection(max_retries=1, interval_start=0, timeout=2)
    except Exception as error:  # noqa: BLE001 - each transport has its own errors, and all say the same
        return Check(part="broker", word="unreachable", sentence=type(error).__name__)
    return Check(part="broker")


class _Lately:
    """The last answer, for a moment: asked by one at a time, for whom no other waits if it isn't old."""

    def __init__(self, ask: Callable[[], tuple[Check, ...]]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._known: tuple[Check, ...] = ()
        self._until = 0.0

    def get(self) -> tuple[Check, ...]:
        known = self._known
        lately = bool(known) and time.monotonic() < self._until + STALE_SECONDS_MAX
        if not self._lock.acquire(blocking=not lately):
            return known
        try:
            if time.monotonic() >= self._until:
                self._known = self._ask()
                self._until = time.monotonic() + ANSWER_SECONDS
            return self._known
        finally:
            self._lock.release()

    def forget(self) -> None:
        with self._lock:
            self._known, self._until = (), 0.0


lately = _Lately(checks)


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """This process answers; it says nothing of what it needs."""
    return JsonResponse({"status": "ok"}, headers={"Cache-Control": "no-store"})


@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """200 where every part is ok, else 503; either way with a word for each part."""
    found = lately.get()
    failing = [one for one in found if not one.ok]
    for one in failing:
        log.warning("not_ready", part=str(one.part), word=one.word, why=one.sentence)
    return JsonResponse(
        {"status": "failing" if failing else "ok", "parts": {one.part: one.word for one in found}},
        status=503 if failing else 200,
        headers={"Cache-Control": "no-store"},
    )
