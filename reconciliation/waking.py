"""Wake-up calls to Celery. The database is the truth: a call that is lost is made again by the sweeper.

Whoever makes a call doesn't wait for the broker: a thread of the process's own carries them out, one after
the other. A broker that listens and says nothing costs that thread its time limit, and no page, worker or
sweeper anything at all.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
import time
from dataclasses import dataclass
from typing import Any

import structlog
from celery import current_app
from django.db import transaction

log = structlog.get_logger(__name__)

# An expired wake-up call is noise: by then the sweeper has made another.
EXPIRES_SECONDS = 60
# After a call that failed, so long this process tries no other: each would cost the time limit, and those
# that matter are called for anew by the sweeper.
BROKER_REST_SECONDS = 5.0
# Calls that wait to be carried out; beyond this the broker isn't keeping up, and the sweeper is enough.
QUEUED_MAX = 1_000
# How long a process that ends waits for its last calls.
LAST_CALLS_SECONDS = 1.0


@dataclass(frozen=True)
class _Call:
    task: str
    arguments: tuple[Any, ...]


class _Caller:
    """The thread that calls, and what waits for it. One for each process: a fork starts its own."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.waiting: queue.Queue[_Call] = queue.Queue(maxsize=QUEUED_MAX)
        self.away_until = 0.0
        threading.Thread(target=self._run, name="wake-up-calls", daemon=True).start()

    def add(self, call: _Call) -> None:
        try:
            self.waiting.put_nowait(call)
        except queue.Full:
            log.warning("wake_up_left_out", task=call.task, arguments=list(call.arguments), why="too many")

    def _run(self) -> None:
        while True:
            call = self.waiting.get()
            try:
                self._make(call)
            finally:
                self.waiting.task_done()

    def _make(self, call: _Call) -> None:
        if time.monotonic() < self.away_until:
            log.debug("wake_up_left_out", task=call.task, arguments=list(call.arguments), why="broker away")
            return
        try:
            current_app.send_task(
                f"reconciliation.tasks.{call.task}",
                args=list(call.arguments),
                expires=EXPIRES_SECONDS,
                retry=False,
            )
        except Exception as error:  # noqa: BLE001 - each transport has its own, and none may end the thread
            self.away_until = time.monotonic() + BROKER_REST_SECONDS
            log.warning(
                "wake_up_lost", task=call.task, arguments=list(call.arguments), error=type(error).__name__
            )


class _Process:
    """The process's caller, made with the first call."""

    lock = threading.Lock()
    caller: _Caller | None = None


def wake_after_commit(task: str, *arguments: str) -> None:
    """Ask Celery for a task once this transaction is committed; an unreachable broker is no error."""
    transaction.on_commit(lambda: wake(task, *arguments), robust=True)


def wake(task: str, *arguments: str | int) -> None:
    """Ask Celery for a task soon, without waiting for it; a broker that can't be reached is no error."""
    _caller().add(_Call(task, arguments))


def flush(*, within_seconds: float) -> bool:
    """Wait until every call made so far has been carried out or given up; False if that takes too long."""
    caller = _Process.caller
    if caller is None or caller.pid != os.getpid():
        return True
    end = time.monotonic() + within_seconds
    with caller.waiting.all_tasks_done:
        while caller.waiting.unfinished_tasks:
            left = end - time.monotonic()
            if left <= 0:
                return False
            caller.waiting.all_tasks_done.wait(left)
    return True


def _caller() -> _Caller:
    caller = _Process.caller
    if caller is None or caller.pid != os.getpid():
        with _Process.lock:
            caller = _Process.caller
            if caller is None or caller.pid != os.getpid():
                caller = _Process.caller = _Caller()
    return caller


def _after_fork() -> None:
    """The parent's thread isn't in the child, and its lock may have been held by another thread."""
    _Process.lock = threading.Lock()
    _Process.caller = None


def _make_last_calls() -> None:
    flush(within_seconds=LAST_CALLS_SECONDS)


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_make_last_calls)
