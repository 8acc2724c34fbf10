"""Whether an unknown outcome leaves the run anything to do; if not, it is paused and its lease ends."""

from __future__ import annotations

from runs.leases import add_pause_reason, drop_pause_reason
from runs.locking import Locked
from runs.models import Attempt, Grant, Run
from runs.states import (
    RUN_ENDED,
    AttemptOutcome,
    Executor,
    GrantState,
    OperationState,
    PauseReason,
)


def refresh_outcome_pause(locked: Locked) -> None:
    """Add or drop the pause reason `outcome`, by what is on record now. Needs the run's lock.

    A run is paused for it when an outcome is in doubt, no attempt is open under the current token, and
    nothing may be sent: the only thing that may be sent in doubt is a repeat granted to the agent (API.md).
    """
    run = locked.run
    if run.state in RUN_ENDED:
        return
    if run.in_doubt_count == 0 or _granted_to_agent(run):
        drop_pause_reason(locked, PauseReason.OUTCOME)
    elif not _sending_now(run):
        add_pause_reason(locked, PauseReason.OUTCOME)


def _granted_to_agent(run: Run) -> bool:
    return Grant.objects.filter(
        operation__run=run,
        operation__state=OperationState.SENT_UNKNOWN,
        state=GrantState.OPEN,
        executor=Executor.AGENT,
    ).exists()


def _sending_now(run: Run) -> bool:
    return (
        run.lease_token is not None
        and Attempt.objects.filter(
            operation__run=run,
            # An attempt of a settled operation keeps nobody waiting, also before its own end is noted.
            operation__state=OperationState.SENT_UNKNOWN,
            outcome=AttemptOutcome.OPEN,
            lease_token=run.lease_token,
        ).exists()
    )
