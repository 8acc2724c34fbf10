"""How the journal holds a run still: lock its row, then read the database's clock, then decide.

The order matters (DESIGN law 7): a time read before the lock was granted may be older than the lease that
ended while we waited. Every slow path starts here; begin_send and confirm_by_reply do the same in SQL.
Whoever locks an operation has locked its run first, so no two of us wait for each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from runs.ids import could_be_id
from runs.models import Operation, Run
from runs.refusals import NotFound


@dataclass(frozen=True)
class Locked:
    """A run whose row this transaction holds, and the database's time read after it was granted."""

    run: Run
    now: datetime


@dataclass(frozen=True)
class LockedOperation:
    """A run and one of its operations, both held, and the time after both were granted."""

    run: Run
    operation: Operation
    now: datetime

    @property
    def locked_run(self) -> Locked:
        return Locked(self.run, self.now)


def database_now() -> datetime:
    """Read the database's clock: the only clock that decides anything."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        row = cursor.fetchone()
    now: datetime = row[0]
    return now


def lock_run(*, run_id: str, team: str | None) -> Locked:
    """Lock one run of the team (any team if None). Needs a transaction. Raises `NotFound`.

    The row is locked alone: over a join, a run that was moved to another flow version while we waited would
    no longer join and be lost (READ COMMITTED checks the new row against the old statement's other rows).
    """
    runs = Run.objects.select_for_update()
    if team is not None:
        runs = runs.filter(team=team)
    run = runs.filter(pk=run_id).first() if could_be_id(run_id) else None
    if run is None:
        raise NotFound(f"There is no run {run_id} that you can see.", run=run_id)
    return Locked(run=run, now=database_now())


def lock_operation(*, operation_id: str, team: str | None) -> LockedOperation:
    """Lock an operation's run, then the operation. Needs a transaction. Raises `NotFound`."""
    operations = Operation.objects.filter(pk=operation_id)
    if team is not None:
        operations = operations.filter(team=team)
    known = could_be_id(operation_id)
    run_id = operations.values_list("run_id", flat=True).first() if known else None
    if run_id is None:
        raise NotFound(f"There is no operation {operation_id} that you can see.", operation=operation_id)
    locked = lock_run(run_id=run_id, team=team)
    operation = (
        Operation.objects.select_for_update(of=("self",))
        .select_related("provider", "call")
        .get(pk=operation_id)
    )
    return LockedOperation(run=locked.run, operation=operation, now=database_now())
