"""The sweeper: finds in the database whatever nobody is taking care of, and sees to it.

Run by beat every few seconds, by any number of beats at once: each step is a compare-and-set under a lock,
so a second pass finds nothing left to do. With every Celery message lost, this alone keeps things moving.
What a step fails on is left alone for a while, longer each time, so that it keeps nothing else waiting.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Sum

from reconciliation import (
    admission,
    approvals,
    bulk_running,
    cases,
    claiming,
    gap,
    intake,
    making_absent,
    marking,
    place,
    restoring,
    retries,
)
from reconciliation.accounts import account_of
from reconciliation.breaking import BreakerState
from reconciliation.conclusions import LOOKING_UP_MAX
from reconciliation.gate_models import BECAUSE_LENGTH_MAX, LookupTally, SweepFailure
from reconciliation.models import Case
from reconciliation.states import CaseState
from reconciliation.waking import wake
from runs.journal.evidence import storable_text
from runs.leases import add_pause_reason
from runs.locking import database_now, lock_operation, lock_run
from runs.models import Attempt, Grant, ProviderAccount, Run
from runs.states import AttemptOutcome, Executor, GrantState, PauseReason, RunState

log = structlog.get_logger(__name__)

# One pass is bounded; what is left over is the next pass's, seconds later, oldest first.
BATCH_MAX = 200
# What a step failed on is left alone so long at first, and up to so long.
FAILURE_REST = timedelta(seconds=5)
FAILURE_REST_MAX = timedelta(hours=1)
FAILURES_KEPT = timedelta(days=1)
# What a lookup takes a worker besides the provider's own time (claim, record, judge), on a busy machine.
# Workers too many wait for a slot, or stop; too few would leave the limit unused.
OWN_SECONDS = 0.15
# How long a case may be overdue while its account is being worked through, longest due first, before a
# person is asked about it all the same: after an outage, being in a queue isn't being forgotten.
QUEUE_WORTH_WAITING = timedelta(minutes=30)


@dataclass(frozen=True, kw_only=True)
class Swept:
    """What one pass did: runs taken in, grants ended, workers and sends called, runs paused, lists moved."""

    runs_taken_in: int
    grants_expired: int
    lookups_called: int
    sends_called: int
    cases_judged: int
    versions_missing: int
    bulks_called: int
    approvals_expired: int
    absences_called: int
    absences_given_up: int


def sweep() -> Swept:
    """Make one pass. A step that fails is logged and doesn't stop the others."""
    now = database_now()
    # What it failed on a day ago and not since is gone, or went well by another hand.
    SweepFailure.objects.filter(failed_at__lt=now - FAILURES_KEPT).delete()
    _see_to_a_restore(now)
    return Swept(
        runs_taken_in=_each("take_in", _runs_to_take_in, lambda pk: intake.take_in_run(run_id=pk), now),
        grants_expired=_each("expire_grant", _grants_over, lambda pk: retries.expire_grant(grant_id=pk), now),
        lookups_called=_call_for_lookups(now),
        sends_called=_each("send_granted", _sends_due, lambda pk: wake("send_granted", pk), now),
        cases_judged=_each("judge", _cases_that_nobody_moves, _judge, now),
        versions_missing=_each("version", _versions_missing, _pause_for_version, now),
        bulks_called=_each("run_bulk", bulk_running.stalled, bulk_running.call_again, now),
        approvals_expired=_each(
            "expire_approval", _approvals_over, lambda pk: approvals.expire(approval_id=pk), now
        ),
        absences_called=_each("make_absent", _absences_due, lambda pk: wake("make_absent", pk), now),
        absences_given_up=_each(
            "absence_over", _absences_over, lambda pk: making_absent.give_up(request_id=pk), now
        ),
    )


def _see_to_a_restore(now: datetime) -> None:
    """Freeze if this isn't where the journal last ran; take each account a step further on its way back."""
    try:
        place.check_place()
        _each("perhaps_sent", _perhaps_sent, lambda pk: marking.mark(operation_id=pk), now)
        marking.note_marked()
        for return_id in gap.due():
            wake("list_gap", return_id)
        restoring.link_orphans()
        restoring.open_settled()
    except Exception:  # it keeps sending frozen where it is, and nothing else waiting
        log.exception("sweep_step_failed", step="restore", subject="")


def _perhaps_sent(now: datetime, failing: Failing) -> list[str]:
    return marking.perhaps_sent(failing, limit=BATCH_MAX)


Failing = QuerySet[SweepFailure, str]


def _each(
    step: str,
    find: Callable[[datetime, Failing], Iterable[str]],
    act: Callable[[str], object],
    now: datetime,
) -> int:
    """Do this to each that is found, without those that it failed on lately."""
    failed_before = set(SweepFailure.objects.filter(step=step).values_list("subject", flat=True))
    failing = SweepFailure.objects.filter(step=step, not_before_at__gt=now).values_list("subject", flat=True)
    done = 0
    for one in find(now, failing):
        try:
            act(one)
        except Exception as error:  # one poisoned row must stop neither the sweeper nor the rows after it
            log.exception("sweep_step_failed", step=step, subject=one)
            note_failure(step=step, subject=one, error=type(error).__name__)
        else:
            done += 1
            # A send is only called for here; what becomes of it is noted by whoever carries it out.
            if one in failed_before and step not in ("send_granted", "make_absent"):
                SweepFailure.objects.filter(step=step, subject=one).delete()
    return done


def note_failure(*, step: str, subject: str, error: str) -> None:
    """Leave a subject alone for a while, twice as long each time; others come first meanwhile."""
    now = database_now()
    text = storable_text(error)[:BECAUSE_LENGTH_MAX]
    try:
        with transaction.atomic():
            row, _ = SweepFailure.objects.select_for_update().get_or_create(
                step=step,
                subject=subject,
                defaults={"failures_count": 0, "not_before_at": now, "error": text, "failed_at": now},
            )
            row.failures_count += 1
            ceiling = min(FAILURE_REST_MAX, FAILURE_REST * 2 ** min(row.failures_count - 1, 16))
            row.not_before_at = now + ceiling * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
            row.error, row.failed_at = text, now
            row.save()
    except DatabaseError:
        # It will be met again in the next pass, which is what this would have spared us.
        log.exception("sweep_failure_not_noted", step=step, subject=subject)


def send_granted(*, grant_id: str) -> str:
    """Carry out a granted repeat; one that may be sent and isn't keeps those after it waiting no longer."""
    outcome = retries.send_granted(grant_id=grant_id)
    due = Grant.objects.filter(pk=grant_id, state=GrantState.OPEN, not_before_at__lte=database_now())
    if outcome == "" and due.exists():
        note_failure(step="send_granted", subject=grant_id, error="It was refused.")
    return outcome


def make_absent(*, approval_id: str) -> str:
    """Send what two people approved; one that isn't sent keeps those after it waiting no longer."""
    outcome = making_absent.send(approval_id=approval_id)
    if outcome == "" and making_absent.approved().filter(pk=approval_id).exists():
        note_failure(step="make_absent", subject=approval_id, error="It was refused, or had to wait.")
    return outcome


def _call_for_lookups(now: datetime) -> int:
    """Call workers for each account where something is due, and as many as its limits can make use of.

    They are a new wave: those of the one before stop when they next look, so that calls don't pile up in a
    broker that is slow or was away. In which order accounts come is left to chance.
    """
    called = 0
    due_here = claiming.due(now=now).filter(provider_slug=OuterRef("slug"))
    slugs = list(ProviderAccount.objects.filter(Exists(due_here)).values_list("slug", flat=True))
    random.shuffle(slugs)
    for slug in slugs:
        try:
            called += _call_for_account(slug, now)
        except Exception:  # an account that can't be read mustn't keep the others waiting
            log.exception("sweep_step_failed", step="look_up", subject=slug)
    return called


def _call_for_account(slug: str, now: datetime) -> int:
    contract = account_of(slug).contract
    gate = admission.gate_of(slug)
    at_once = admission.under_way(slug, now=now)
    held = admission.standing(gate, contract=contract, at_once=at_once, now=now)
    if held is not None:
        log.debug("lookups_held", account=slug, why=held.sentence)
        return 0
    if gate.breaker_state != BreakerState.CLOSED:
        wanted = 1  # the probe
    else:
        wanted = min(
            admission.LOOKUPS_AT_ONCE_MAX,
            1 + math.ceil(contract.rate_limit_per_second * _lookup_seconds(slug, now)),
        )
    waiting = claiming.due(now=now).filter(provider_slug=slug).order_by("next_lookup_at")[:wanted].count()
    wave = admission.next_wave(slug)
    for _ in range(waiting):
        wake("look_up_due", slug, wave)
    return waiting


def _lookup_seconds(slug: str, now: datetime) -> float:
    """How long a worker is busy with one lookup there, as it was lately."""
    lately = LookupTally.objects.filter(account=slug, minute_at__gt=now - timedelta(minutes=3)).aggregate(
        asked=Sum("asked_count"), duration_ms=Sum("duration_ms_sum")
    )
    asked = lately["asked"] or 0
    return OWN_SECONDS + (lately["duration_ms"] / asked / 1000 if asked else 0.1)


def _runs_to_take_in(now: datetime, failing: Failing) -> list[str]:
    expired = Run.objects.filter(lease_token__isnull=False, lease_expires_at__lte=now)
    nobody = Q(operation__run__lease_token__isnull=True) | Q(operation__run__lease_expires_at__lte=now)
    # What was sent and isn't in doubt yet always has an open attempt, and of those there are few.
    lapsed = Attempt.objects.filter(outcome=AttemptOutcome.OPEN).filter(
        Q(quiet_after_at__lte=now)
        | Q(executor=Executor.AGENT) & (nobody | ~Q(operation__run__lease_token=F("lease_token")))
    )
    found = [
        *expired.exclude(pk__in=failing)
        .order_by("lease_expires_at")
        .values_list("pk", flat=True)[:BATCH_MAX],
        *lapsed.exclude(operation__run__in=failing)
        .order_by("quiet_after_at")
        .values_list("operation__run_id", flat=True)[:BATCH_MAX],
    ]
    return list(dict.fromkeys(found))


def _grants_over(now: datetime, failing: Failing) -> list[str]:
    over = Grant.objects.filter(state=GrantState.OPEN, not_after_at__lt=now).exclude(pk__in=failing)
    return list(over.order_by("not_after_at").values_list("pk", flat=True)[:BATCH_MAX])


def _approvals_over(now: datetime, failing: Failing) -> list[str]:
    over = approvals.overdue(now).exclude(pk__in=failing)
    return list(over.values_list("pk", flat=True)[:BATCH_MAX])


def _absences_due(now: datetime, failing: Failing) -> list[str]:
    due = making_absent.approved().exclude(pk__in=failing)
    return list(due.values_list("pk", flat=True)[:BATCH_MAX])


def _absences_over(now: datetime, failing: Failing) -> list[str]:
    over = making_absent.overdue(now).exclude(pk__in=failing)
    return list(over.values_list("pk", flat=True)[:BATCH_MAX])


def _cases_that_nobody_moves(now: datetime, failing: Failing) -> list[str]:
    """Cases that should be moving by themselves and aren't: the policy is asked about them anew.

    No lookup is planned for them, or one has been due for so long that none is being made; a provider's
    declaration may have changed under them. Where workers are getting through an account's queue, each case
    of it comes up in its turn, and to judge thousands meanwhile would take those workers' time from them.
    """
    since = now - LOOKING_UP_MAX
    moving = LookupTally.objects.filter(
        # A minute's tally is of the minute that begins then.
        account=OuterRef("provider_slug"),
        minute_at__gt=since - timedelta(minutes=1),
        answered_count__gt=0,
    )
    forgotten = Q(next_lookup_at__lte=since) & ~Exists(moving) | Q(
        next_lookup_at__lte=now - QUEUE_WORTH_WAITING
    )
    stuck = Case.objects.filter(state=CaseState.LOOKING_UP).filter(Q(next_lookup_at__isnull=True) | forgotten)
    stuck = stuck.exclude(pk__in=failing).order_by("opened_at")
    return list(stuck.values_list("pk", flat=True)[:BATCH_MAX])


def _judge(case_id: str) -> None:
    operation_id = Case.objects.values_list("operation_id", flat=True).get(pk=case_id)
    with transaction.atomic():
        locked = lock_operation(operation_id=operation_id, team=None)
        case = Case.objects.select_for_update().get(pk=case_id)
        if case.state == CaseState.LOOKING_UP:
            cases.judge(locked, case)


def _sends_due(now: datetime, failing: Failing) -> list[str]:
    due = Grant.objects.filter(
        state=GrantState.OPEN, executor=Executor.CONSOLE, not_before_at__lte=now, not_after_at__gte=now
    ).exclude(pk__in=failing)
    return list(due.order_by("not_before_at").values_list("pk", flat=True)[:BATCH_MAX])


def _versions_missing(now: datetime, failing: Failing) -> list[str]:
    since = now - timedelta(seconds=settings.RECOURSE_VERSION_SILENT_SECONDS)
    # Only where another version of the flow is at work: a flow that nobody runs at all is merely idle.
    waiting = (
        Run.objects.filter(state=RunState.OPEN, lease_token__isnull=True, created_at__lte=since)
        .filter(
            Q(flow_version__last_worker_at__isnull=True) | Q(flow_version__last_worker_at__lte=since),
            flow__versions__last_worker_at__gt=since,
        )
        # Where a person kept the version, not before the time that they gave it.
        .filter(Q(version_awaited_until_at__isnull=True) | Q(version_awaited_until_at__lte=now))
        .exclude(pk__in=failing)
        .distinct()
    )
    return list(waiting.values_list("pk", flat=True)[:BATCH_MAX])


def _pause_for_version(run_id: str) -> None:
    with transaction.atomic():
        locked = lock_run(run_id=run_id, team=None)
        run, kept_until_at = locked.run, locked.run.version_awaited_until_at
        waits = kept_until_at is None or kept_until_at <= locked.now
        if run.state == RunState.OPEN and run.lease_token is None and waits:
            add_pause_reason(locked, PauseReason.FLOW_VERSION)
