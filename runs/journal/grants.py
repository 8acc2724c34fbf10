"""Grants: single-use permission for one more attempt. Consumed in `sending`, ended by time or events."""

from __future__ import annotations

from datetime import datetime

from runs import audit
from runs.actors import Actor
from runs.ids import new_id
from runs.journal.pausing import refresh_outcome_pause
from runs.journal.settling import MoveRefused, end_grants
from runs.locking import LockedOperation
from runs.models import Grant
from runs.states import Executor, GrantState, OperationState


def make_grant(
    locked: LockedOperation,
    *,
    executor: Executor,
    not_before_at: datetime,
    not_after_at: datetime,
    actor: Actor,
    reason: str,
    approval_digest: str = "",
) -> Grant:
    """Permit one more attempt with the same key, inside a window of time. Needs the operation's lock.

    The run becomes claimable when the agent is to carry it out. Raises `MoveRefused` unless the operation
    is sent_unknown and in doubt: the usual reply settles what isn't, and doesn't look for grants.
    """
    operation = locked.operation
    if operation.state != OperationState.SENT_UNKNOWN or operation.in_doubt_since_at is None:
        raise MoveRefused(f"Operation {operation.pk} is {operation.state}.", state=operation.state)
    end_grants(operation, GrantState.VOID, locked, "replaced by a later grant")
    grant = Grant.objects.create(
        id=new_id("grant"),
        operation=operation,
        executor=executor,
        follows_attempt=operation.attempts_count,
        not_before_at=not_before_at,
        not_after_at=not_after_at,
        approval_digest=approval_digest,
        made_by=actor.id,
        made_at=locked.now,
    )
    refresh_outcome_pause(locked.locked_run)
    audit.append(
        audit.Event(
            action="grant.made",
            actor=actor,
            team=operation.team_id,
            run=operation.run_id,
            operation=operation.pk,
            subject=grant.pk,
            after={
                "executor": str(executor),
                "follows_attempt": grant.follows_attempt,
                "not_before": not_before_at.isoformat(),
                "not_after": not_after_at.isoformat(),
            },
            reason=reason,
        )
    )
    return grant


def end_grant(locked: LockedOperation, grant: Grant, *, state: GrantState, actor: Actor, why: str) -> bool:
    """End an open grant unused; False if it isn't open any more. The run may be paused again by it."""
    ended = Grant.objects.filter(pk=grant.pk, state=GrantState.OPEN).update(
        state=state, ended_at=locked.now, end_reason=why
    )
    if not ended:
        return False
    refresh_outcome_pause(locked.locked_run)
    audit.append(
        audit.Event(
            action="grant.ended",
            actor=actor,
            team=locked.operation.team_id,
            run=locked.operation.run_id,
            operation=locked.operation.pk,
            subject=grant.pk,
            after={"state": str(state)},
            reason=why,
        )
    )
    return True
