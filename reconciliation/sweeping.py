"""The sweeper: finds in the database whatever nobody is taking care of, and sees to it.

Run by beat every few seconds, by any number of beats at once: each step is a compare-and-set under a lock,
so a second pass finds nothing left to do. With every Celery message lost, this alone keeps things moving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import F, Q

from reconciliation import cases, intake, retries
from reconciliation.conclusions import LOOKING_UP_MAX
from reconciliation.models import Case
from reconciliation.states import CaseState
from reconciliation.waking import wake
from runs.leases import add_pause_reason
from runs.locking import database_now, lock_operation, lock_run
from runs.models import Attempt, Grant, Operation, Run
from runs.states import AttemptOutcome, Executor, GrantState, OperationState, PauseReason, RunState

log = structlog.get_logger(__name__)

# One pass is bounded; what is left over is the next pass's, seconds later, oldest first.
BATCH_MAX = 200


@dataclass(frozen=True, kw_only=True)
class Swept:
    """What one pass found: runs taken in, grants ended, lookups and sends called for, runs paused."""

    runs_taken_in: int
    grants_expired: int
    lookups_called: int
    sends_called: int
    cases_judged: int
    versions_missing: int


def sweep() -> Swept:
    """Make one pass. A step that fails is logged and doesn't stop the others."""
    now = database_now()
    return Swept(
        runs_taken_in=_each("take_in", _runs_to_take_in(now), lambda pk: intake.take_in_run(run_id=pk)),
        grants_expired=_each("expire_grant", _grants_over(now), lambda pk: retries.expire_grant(grant_id=pk)),
        lookups_called=_each("look_up", _lookups_due(now), lambda pk: wake("look_up", pk)),
        sends_called=_each("send_granted", _sends_due(now), lambda pk: wake("send_granted", pk)),
        cases_judged=_each("judge", _cases_that_nobody_moves(now), _judge),
        versions_missing=_each("version", _versions_missing(now), _pause_for_version),
    )


def _each(step: str, ids: Iterable[str], act: Callable[[str], object]) -> int:
    done = 0
    for one in ids:
        try:
            act(one)
        except Exception:  # one poisoned row must not stop the sweeper; it is found and logged each pass
            log.exception("sweep_step_failed", step=step, subject=one)
        else:
            done += 1
    return done


def _runs_to_take_in(now: datetime) -> list[str]:
    expired = Run.objects.filter(lease_token__isnull=False, lease_expires_at__lte=now)
    nobody = Q(run__lease_token__isnull=True) | Q(run__lease_expires_at__lte=now)
    unreported = Operation.objects.filter(
        state=OperationState.SENT_UNKNOWN, in_doubt_since_at__isnull=True
    ).filter(nobody | Q(last_quiet_at__lte=now))
    lapsed = Attempt.objects.filter(outcome=AttemptOutcome.OPEN).filter(
        Q(quiet_after_at__lte=now)
        | Q(executor=Executor.AGENT)
        & (
            Q(operation__run__lease_token__isnull=True)
            | Q(operation__run__lease_expires_at__lte=now)
            | ~Q(operation__run__lease_token=F("lease_token"))
        )
    )
    found = [
        *expired.order_by("lease_expires_at").values_list("pk", flat=True)[:BATCH_MAX],
        *unreported.order_by("last_quiet_at").values_list("run_id", flat=True)[:BATCH_MAX],
        *lapsed.order_by("quiet_after_at").values_list("operation__run_id", flat=True)[:BATCH_MAX],
    ]
    return list(dict.fromkeys(found))


def _grants_over(now: datetime) -> list[str]:
    over = Grant.objects.filter(state=GrantState.OPEN, not_after_at__lt=now).order_by("not_after_at")
    return list(over.values_list("pk", flat=True)[:BATCH_MAX])


def _lookups_due(now: datetime) -> list[str]:
    due = (
        Case.objects.filter(next_lookup_at__lte=now)
        .exclude(state=CaseState.RESOLVED)
        .filter(Q(lookup_claim="") | Q(lookup_claimed_until_at__lte=now))
        .order_by("next_lookup_at")
    )
    return list(due.values_list("pk", flat=True)[:BATCH_MAX])


def _cases_that_nobody_moves(now: datetime) -> list[str]:
    """Cases that should be moving by themselves and aren't: the policy is asked about them anew.

    No lookup is planned for them, or one has been due for so long that none is being made; a provider's
    declaration may have changed under them.
    """
    since = now - LOOKING_UP_MAX
    stuck = Case.objects.filter(state=CaseState.LOOKING_UP).filter(
        Q(next_lookup_at__isnull=True) | Q(next_lookup_at__lte=since)
    )
    return list(stuck.order_by("opened_at").values_list("pk", flat=True)[:BATCH_MAX])


def _judge(case_id: str) -> None:
    operation_id = Case.objects.values_list("operation_id", flat=True).get(pk=case_id)
    with transaction.atomic():
        locked = lock_operation(operation_id=operation_id, team=None)
        case = Case.objects.select_for_update().get(pk=case_id)
        if case.state == CaseState.LOOKING_UP:
            cases.judge(locked, case)


def _sends_due(now: datetime) -> list[str]:
    due = Grant.objects.filter(
        state=GrantState.OPEN, executor=Executor.CONSOLE, not_before_at__lte=now, not_after_at__gte=now
    ).order_by("not_before_at")
    return list(due.values_list("pk", flat=True)[:BATCH_MAX])


def _versions_missing(now: datetime) -> list[str]:
    since = now - timedelta(seconds=settings.RECOURSE_VERSION_SILENT_SECONDS)
    # Only where another version of the flow is at work: a flow that nobody runs at all is merely idle.
    waiting = (
        Run.objects.filter(state=RunState.OPEN, lease_token__isnull=True, created_at__lte=since)
        .filter(
            Q(flow_version__last_worker_at__isnull=True) | Q(flow_version__last_worker_at__lte=since),
            flow__versions__last_worker_at__gt=since,
        )
        .distinct()
    )
    return list(waiting.values_list("pk", flat=True)[:BATCH_MAX])


def _pause_for_version(run_id: str) -> None:
    with transaction.atomic():
        locked = lock_run(run_id=run_id, team=None)
        if locked.run.state == RunState.OPEN and locked.run.lease_token is None:
            add_pause_reason(locked, PauseReason.FLOW_VERSION)
