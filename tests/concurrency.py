"""Real connections that meet at one row: who waits is seen in PostgreSQL, never guessed by sleeping."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import psycopg
from django.db import connection

from runs.refusals import Refusal

T = TypeVar("T")

# Nothing here takes a second on an idle machine; a busy one gets the benefit of the doubt.
WAIT_SECONDS_MAX = 30.0
POLL_SECONDS = 0.005

Connect = Callable[[], psycopg.Connection[Any]]


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """What one contestant got: an answer, or the refusal that it was given."""

    value: T | None = None
    refusal: Refusal | None = None

    @property
    def answer(self) -> T:
        assert self.refusal is None, self.refusal
        assert self.value is not None
        return self.value


def start(act: Callable[[], T]) -> Future[Outcome[T]]:
    """Do this in a thread of its own, over its own database connection."""
    executor = ThreadPoolExecutor(max_workers=1)
    future = executor.submit(_contest, act, None)
    executor.shutdown(wait=False)
    return future


def at_once(acts: Sequence[Callable[[], T]]) -> list[Outcome[T]]:
    """Do all of these at once, each over its own connection that is open before any starts."""
    barrier = threading.Barrier(len(acts))
    with ThreadPoolExecutor(max_workers=len(acts)) as executor:
        futures = [executor.submit(_contest, act, barrier) for act in acts]
        return [future.result(timeout=WAIT_SECONDS_MAX) for future in futures]


def _contest(act: Callable[[], T], barrier: threading.Barrier | None) -> Outcome[T]:
    try:
        connection.ensure_connection()
        if barrier is not None:
            barrier.wait(timeout=WAIT_SECONDS_MAX)
        return Outcome(value=act())
    except Refusal as refusal:
        return Outcome(refusal=refusal)
    finally:
        connection.close()


@dataclass
class Holder:
    """A transaction of somebody else that holds a row until `release`."""

    connection: psycopg.Connection[Any]
    # Outside the transaction: inside it, pg_stat_activity stays as it was first read.
    watcher: psycopg.Connection[Any]

    def wait_for_waiters(self, count: int) -> None:
        """Return when so many connections wait for a lock: the contest has provably begun."""
        until = time.monotonic() + WAIT_SECONDS_MAX
        while self._waiters() < count:
            assert time.monotonic() < until, f"{self._waiters()} of {count} are waiting for the lock"
            time.sleep(POLL_SECONDS)

    def _waiters(self) -> int:
        row = self.watcher.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ).fetchone()
        return int(row[0]) if row else 0

    def wait_past(self, sql: str, parameters: Sequence[Any]) -> None:
        """Return when the database's clock has passed the instant that this query selects."""
        self.connection.execute(f"SELECT pg_sleep_until(({sql}) + interval '5 ms')", parameters)

    def execute(self, sql: str, parameters: Sequence[Any]) -> None:
        self.connection.execute(sql, parameters)

    def release(self) -> None:
        """Commit what was done, and let the waiters go."""
        self.connection.execute("COMMIT")


@contextmanager
def holding_run(connect: Connect, run_id: str) -> Iterator[Holder]:
    """Hold the run's row, as another worker's or a person's transaction does."""
    holder = Holder(connect(), connect())
    holder.execute("BEGIN", [])
    holder.execute("SELECT 1 FROM runs_run WHERE id = %s FOR UPDATE", [run_id])
    yield holder
