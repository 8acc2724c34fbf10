"""Complete a run, or give it up."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import transaction

from runs import audit
from runs.actors import Actor, ActorKind
from runs.canonical import canonicalise
from runs.journal.settling import abandon
from runs.leases import RunEnded, end_lease, require_token
from runs.locking import Locked, LockedOperation, lock_run
from runs.models import Call, Operation, Run
from runs.refusals import Refusal
from runs.states import RUN_ENDED, LeaseEnd, OperationState, RunState


class OperationsOpen(Refusal):
    """The run has calls or operations that aren't settled; details name them."""

    word: ClassVar[str] = "operations_open"


# Enough to act on; the plan has them all.
OPEN_LISTED_MAX = 20


def complete_run(*, team: str, run_id: str, token: str, output: Any) -> tuple[Run, bool]:
    """open → completed; returns the run, and whether it had been completed with this output already.

    Raises `OperationsOpen` while a call of the current turn isn't settled, `StaleToken`, and `RunEnded`
    for another output or an abandoned run. Owns its transaction.
    """
    content = canonicalise(output)
    with transaction.atomic():
        locked = lock_run(run_id=run_id, team=team)
        run = locked.run
        if run.state == RunState.COMPLETED and run.output_digest == content.digest:
            return run, True
        if run.state in RUN_ENDED:
            raise RunEnded(f"Run {run.id} is {run.state}.", run=run.id, state=run.state)
        require_token(locked, token)
        if run.turn_settled < run.turn_calls:
            raise OperationsOpen(
                f"Run {run.id} has {run.turn_calls - run.turn_settled} calls that aren't settled.",
                operations=_open_operations(run),
                calls=_open_reads(run),
            )
        worker = Actor(ActorKind.WORKER, run.lease_holder)
        end_lease(locked, by=LeaseEnd.ENDED)
        run.state, run.ended_at = RunState.COMPLETED, locked.now
        run.output, run.output_digest = content.bytes, content.digest
        run.save(update_fields=["state", "ended_at", "output", "output_digest"])
        _append(run, "run.completed", worker, {"output": content.digest}, "")
        return run, False


def _open_operations(run: Run) -> list[str]:
    unsettled = Operation.objects.filter(
        run=run, state__in=[OperationState.READY, OperationState.SENT_UNKNOWN]
    )
    return list(unsettled.values_list("pk", flat=True)[:OPEN_LISTED_MAX])


def _open_reads(run: Run) -> list[str]:
    reads = Call.objects.filter(run=run, turn__index=run.turn_index, kind="read", result_at__isnull=True)
    return list(reads.values_list("call_id", flat=True)[:OPEN_LISTED_MAX])


def abandon_run(*, team: str, run_id: str, actor: Actor, reason: str) -> tuple[Run, bool]:
    """Give the run up: ready operations are abandoned, open cases stay open. Owns its transaction."""
    with transaction.atomic():
        locked = lock_run(run_id=run_id, team=team)
        if locked.run.state == RunState.ABANDONED:
            return locked.run, True
        return abandon_locked_run(locked, actor=actor, reason=reason), False


def abandon_locked_run(locked: Locked, *, actor: Actor, reason: str) -> Run:
    """As `abandon_run`, inside the caller's transaction and lock. Raises `RunEnded` for a completed run."""
    run = locked.run
    if run.state in RUN_ENDED:
        raise RunEnded(f"Run {run.id} is {run.state}.", run=run.id, state=run.state)
    end_lease(locked, by=LeaseEnd.ENDED, actor=actor, reason=reason)
    run.state, run.ended_at, run.end_reason = RunState.ABANDONED, locked.now, reason
    run.paused_reasons, run.paused_at = [], None
    run.save(update_fields=["state", "ended_at", "end_reason", "paused_reasons", "paused_at"])
    never_sent = Operation.objects.select_for_update(of=("self",)).filter(run=run, state=OperationState.READY)
    for operation in never_sent.select_related("provider", "call").order_by("turn_index", "position"):
        abandon(
            LockedOperation(run, operation, locked.now),
            actor=actor,
            known_effect="Nothing was sent.",
            reason=reason,
        )
    _append(run, "run.abandoned", actor, {}, reason)
    return run


def _append(run: Run, action: str, actor: Actor, after: dict[str, Any], reason: str) -> None:
    audit.append(
        audit.Event(
            action=action,
            actor=actor,
            team=run.team_id,
            run=run.id,
            after={"state": str(run.state), **after},
            reason=reason,
        )
    )
