"""Whether a run may be worked on: how its lease ends, for which reasons it is paused, and when it goes on."""

from __future__ import annotations

from runs import audit
from runs.actors import JOURNAL, Actor, ActorKind
from runs.locking import Locked
from runs.models import Attempt, Grant, Lease, Operation, Run
from runs.states import (
    RUN_ENDED,
    AttemptOutcome,
    Executor,
    GrantState,
    LeaseEnd,
    OperationState,
    PauseReason,
    Reservation,
    RunState,
)

# How a lease can end while the run goes on; with the other ends nobody has to ask what the run waits for.
_RUN_GOES_ON = frozenset({LeaseEnd.RELEASED, LeaseEnd.EXPIRED, LeaseEnd.REVOKED})


def end_lease(locked: Locked, *, by: LeaseEnd, actor: Actor | None = None, reason: str = "") -> None:
    """End the run's lease, if it has one, and say why on record. Needs the run's lock.

    Without a lease nobody is sending: over a doubt, that pauses the run.
    """
    run = locked.run
    if run.lease_token is None:
        return
    Lease.objects.filter(run=run, number=run.lease_number, ended_at__isnull=True).update(
        ended_at=locked.now, ended_by=by
    )
    run.lease_token, run.lease_expires_at = None, None
    run.save(update_fields=["lease_token", "lease_expires_at"])
    # Time and a pause end a lease by themselves; the holder has done nothing.
    by_itself = by in {LeaseEnd.EXPIRED, LeaseEnd.PAUSED}
    audit.append(
        audit.Event(
            action="lease.ended",
            actor=actor or (JOURNAL if by_itself else Actor(ActorKind.WORKER, run.lease_holder)),
            team=run.team_id,
            run=run.id,
            before={"holder": run.lease_holder, "lease": run.lease_number},
            after={"ended_by": str(by)},
            reason=reason,
        )
    )
    if by in _RUN_GOES_ON:
        refresh_outcome_pause(locked)


def add_pause_reason(locked: Locked, reason: PauseReason) -> None:
    """Pause the run for one more reason; its lease ends, for there is nothing its holder may do."""
    run = locked.run
    if run.state in RUN_ENDED or reason in run.paused_reasons:
        return
    end_lease(locked, by=LeaseEnd.PAUSED)
    run.paused_reasons = sorted({*run.paused_reasons, str(reason)})
    if run.state != RunState.PAUSED:
        run.state, run.paused_at = RunState.PAUSED, locked.now
    run.save(update_fields=["state", "paused_reasons", "paused_at"])
    audit.append(
        audit.Event(
            action="run.paused",
            actor=JOURNAL,
            team=run.team_id,
            run=run.id,
            after={"reasons": list(run.paused_reasons)},
        )
    )


def drop_pause_reason(locked: Locked, reason: PauseReason) -> None:
    """Take one reason away; with the last of them the run is open and claimable again."""
    run = locked.run
    if reason not in run.paused_reasons:
        return
    run.paused_reasons = [kept for kept in run.paused_reasons if kept != reason]
    if not run.paused_reasons and run.state == RunState.PAUSED:
        run.state, run.paused_at = RunState.OPEN, None
    run.save(update_fields=["state", "paused_reasons", "paused_at"])
    audit.append(
        audit.Event(
            action="run.pause_reason_ended",
            actor=JOURNAL,
            team=run.team_id,
            run=run.id,
            before={"reason": str(reason)},
            after={"reasons": list(run.paused_reasons), "state": str(run.state)},
        )
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


def refresh_budget_pause(locked: Locked) -> None:
    """Drop the pause reason `budget` once something that waits to be sent fits again. Needs the run's lock.

    Money comes free when an operation in flight turns out to be cheaper, refused, or never sent. What is
    sent then asks for its own amount again, so what still doesn't fit pauses the run anew.
    """
    run = locked.run
    if PauseReason.BUDGET not in run.paused_reasons or run.budget_limit_minor is None:
        return
    left = run.budget_limit_minor
    left -= run.budget_reserved_minor + run.budget_spent_minor + run.budget_held_minor
    waiting = Operation.objects.filter(run=run, state=OperationState.READY, reservation=Reservation.NONE)
    if waiting.filter(amount_minor__lte=left).exists():
        drop_pause_reason(locked, PauseReason.BUDGET)


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
