"""Take in what a worker left behind: sent, unreported, and nobody is expected to report it any more.

The sweeper and the next claim run the same code, whoever comes first; a second pass finds nothing to do.
"""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from reconciliation import cases, moves
from reconciliation.accounts import account_of
from reconciliation.models import Case
from reconciliation.states import CaseKind, CaseState
from runs import leases
from runs.journal import settling
from runs.leases import Claimed, OutcomeNotTakenIn
from runs.locking import Locked, LockedOperation, lock_run
from runs.models import Attempt, Operation, Run
from runs.states import AttemptOutcome, Executor, LeaseEnd, OperationState

# A claim that meets a worker's leftovers takes them in and asks again; leftovers can't come back without a
# new lease, so the second pass is for another claimer's in between and a third can't be needed.
CLAIM_PASSES_MAX = 3


def claim_run(
    *,
    team: str,
    run_id: str,
    claim_id: str,
    worker: str,
    flow_version: str,
    lease_seconds: int,
    flow_digest: str = "",
) -> Claimed:
    """Claim a run, after taking in what an earlier worker left unreported. Refuses as `leases.claim` does."""
    for _ in range(CLAIM_PASSES_MAX):
        try:
            return leases.claim(
                team=team,
                run_id=run_id,
                claim_id=claim_id,
                worker=worker,
                flow_version=flow_version,
                lease_seconds=lease_seconds,
                flow_digest=flow_digest,
            )
        except OutcomeNotTakenIn:
            take_in_run(run_id=run_id)
    raise AssertionError(f"run {run_id} still has unreported operations after {CLAIM_PASSES_MAX} passes")


def take_in_run(*, run_id: str) -> int:
    """Open a case for each of the run's operations whose outcome nobody will report; returns how many.

    Ends the run's lease if it has run out. Owns its transaction.
    """
    with transaction.atomic():
        locked = lock_run(run_id=run_id, team=None)
        run = locked.run
        taken = 0
        _end_leftovers(locked)
        operations = (
            Operation.objects.select_for_update(of=("self",))
            .select_related("provider", "call")
            .filter(run=run, state=OperationState.SENT_UNKNOWN)
            .order_by("turn_index", "position")
        )
        for operation in operations:
            taken += take_in_operation(LockedOperation(run, operation, locked.now))
        if run.lease_expires_at is not None and run.lease_expires_at <= locked.now:
            leases.end_lease(locked, by=LeaseEnd.EXPIRED)
        return taken


def _end_leftovers(locked: Locked) -> None:
    """End what was left open on operations that evidence or a person has settled meanwhile.

    Nobody waits for these, but the sweeper would find them in every pass, before what is new.
    """
    run, now = locked.run, locked.now
    left = Attempt.objects.filter(operation__run=run, outcome=AttemptOutcome.OPEN)
    for attempt in left.exclude(operation__state=OperationState.SENT_UNKNOWN).select_related("operation"):
        if not still_expected(attempt, run, now):
            of = LockedOperation(run, attempt.operation, now)
            settling.end_attempt(of, attempt, outcome=AttemptOutcome.UNREPORTED)


def take_in_operation(locked: LockedOperation) -> bool:
    """Take one sent_unknown operation in, if its sender can't be expected to report. Needs the lock."""
    operation, run, now = locked.operation, locked.run, locked.now
    if operation.state != OperationState.SENT_UNKNOWN:
        return False
    lapsed, waiting = [], False
    for attempt in Attempt.objects.filter(operation=operation, outcome=AttemptOutcome.OPEN):
        if still_expected(attempt, run, now):
            waiting = True
        else:
            lapsed.append(attempt)
    for attempt in lapsed:
        settling.end_attempt(locked, attempt, outcome=AttemptOutcome.UNREPORTED)
    if waiting:
        return False
    case = moves.open_case_of(locked)
    if case is None:
        case = cases.open_case(locked, kind=CaseKind.UNKNOWN, because=_why(lapsed, now))
        cases.judge(locked, case)
        return True
    if lapsed and case.state == CaseState.RETRYING:
        contract = account_of(operation.provider_id).contract
        moves.back_to_looking_up(
            locked, case, why="the repeat was not reported", has_lookup=contract.has_lookup
        )
        cases.judge(locked, case)
        return True
    return False


def still_expected(attempt: Attempt, run: Run, now: datetime) -> bool:
    """Whether the attempt's own sender may still report it: its quiet time runs, and its lease lives."""
    if now >= attempt.quiet_after_at:
        return False
    if attempt.executor == Executor.CONSOLE:
        return True
    return (
        attempt.lease_token == run.lease_token
        and run.lease_expires_at is not None
        and run.lease_expires_at > now
    )


def _why(lapsed: list[Attempt], now: datetime) -> str:
    if not lapsed:
        return "It was sent, and no attempt of it is open."
    last = lapsed[-1]
    if now >= last.quiet_after_at:
        return f"Attempt {last.number} was not reported before its quiet time passed."
    return f"The lease ended over attempt {last.number}, which was not reported."


def open_case_for_page(operation_id: str) -> Case | None:
    """The operation's open case without a lock, for whoever only reads."""
    return Case.objects.filter(operation=operation_id).exclude(state=CaseState.RESOLVED).first()
