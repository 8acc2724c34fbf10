"""Keep on record that a worker wrote under a lease that was over, and was refused.

The refusal itself has changed nothing; this is the one thing that is left of it. An auditor asks for it: it
shows that fencing held where a worker that was thought dead went on.
"""

from __future__ import annotations

import json
from enum import StrEnum

from django.db import transaction

from runs import audit
from runs.actors import Actor, ActorKind
from runs.ids import could_be_id
from runs.locking import lock_run
from runs.models import AuditLeaf, Lease, Operation

ACTION = "write.refused"


class Write(StrEnum):
    """What a worker wanted to write."""

    TURN = "turn"
    RESULT = "result"
    SEND = "send"
    COMPLETION = "completion"


def note_refused_write(*, run_id: str, token: str, write: Write) -> bool:
    """Put the refusal on record, once for each lease and kind of write. True if it was the first.

    Only for a token that was this run's: whoever guesses leaves nothing here, and a worker that repeats for
    hours leaves one entry. Owns its transaction, which holds the run's row for its one leaf.
    """
    if not could_be_id(run_id) or not could_be_id(token):
        return False
    lease = Lease.objects.filter(token=token, run=run_id).first()
    if lease is None or _is_noted(lease, write):
        return False
    with transaction.atomic():
        locked = lock_run(run_id=run_id, team=None)
        if _is_noted(lease, write):
            return False
        ended = Lease.objects.filter(pk=lease.pk).values_list("ended_by", flat=True).get()
        audit.append(
            audit.Event(
                action=ACTION,
                actor=Actor(ActorKind.WORKER, lease.worker),
                team=locked.run.team_id,
                run=run_id,
                before={"lease": locked.run.lease_number},
                after={"lease": lease.number, "write": str(write), "lease_ended_by": ended or "expired"},
            )
        )
    return True


def note_refused_send(*, operation_id: str, token: str) -> bool:
    """As `note_refused_write`, for a request to send this operation."""
    run_id = Operation.objects.filter(pk=operation_id).values_list("run_id", flat=True).first()
    return run_id is not None and note_refused_write(run_id=run_id, token=token, write=Write.SEND)


def _is_noted(lease: Lease, write: Write) -> bool:
    """Few entries: at most four for each lease that this worker has lost in this run."""
    noted = AuditLeaf.objects.filter(run_ref=lease.run_id, action=ACTION, actor=lease.worker)
    for body in noted.values_list("body", flat=True):
        after = json.loads(bytes(body))["event"]["after"]
        if (after["lease"], after["write"]) == (lease.number, str(write)):
            return True
    return False
