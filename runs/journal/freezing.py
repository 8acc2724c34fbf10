"""Frozen sending: the refusal, and what the journal holds of operations that a lost present may have sent.

After a restore the journal has forgotten what happened since its backup. Nothing is sent at an account until
somebody has said which database this is, and what may have been sent has been looked up (DESIGN §7).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import ClassVar

from runs import audit
from runs.actors import Actor
from runs.ids import new_id
from runs.journal.pausing import refresh_outcome_pause
from runs.journal.settling import MoveRefused, end_grants
from runs.locking import LockedOperation
from runs.models import Attempt, Operation, ProviderAccount
from runs.refusals import Refusal
from runs.states import AttemptOutcome, Executor, GrantState, OperationState, Reservation, Sending

# Who is named as the sender of an attempt that this journal has forgotten, if there was one.
FORGOTTEN_SENDER = "before-the-restore"


class SendingFrozen(Refusal):
    """Nothing is sent at this account: the database may be a copy, or may have forgotten what was sent."""

    word: ClassVar[str] = "sending_frozen"


def refuse_frozen(slug: str) -> None:
    """Raise `SendingFrozen` if nothing may be sent at this account now; read anew, whatever is held."""
    sending = ProviderAccount.objects.filter(pk=slug).values_list("sending", flat=True).first()
    if sending == Sending.FROZEN:
        raise SendingFrozen(
            f"Sending is frozen at {slug}: this database may be a copy, or may have forgotten what was sent"
            " since its backup. Nothing was sent. An administrator has to say which it is, and what may have"
            " been sent is looked up first.",
            provider=slug,
        )


def mark_perhaps_sent(locked: LockedOperation, *, since_at: datetime, actor: Actor, reason: str) -> None:
    """ready or in doubt → sent_unknown, because a sender whom this journal has forgotten may have sent it.

    An attempt stands for that sender: unreported, and quiet only after the longest that a "go" of the lost
    time could still be under way. The key's window is counted from `since_at`, the earliest that it can have
    been sent, or from the first send that is on record. An open grant may have been used by that sender: it
    ends, void. Raises `MoveRefused` unless the operation is ready or in doubt. Needs a transaction that holds
    the run.
    """
    operation, run, now = locked.operation, locked.run, locked.now
    before = OperationState(operation.state)
    granted = end_grants(operation, GrantState.VOID, locked, reason[:200])
    in_doubt = before == OperationState.SENT_UNKNOWN and operation.in_doubt_since_at is not None
    if before != OperationState.READY and not in_doubt:
        raise MoveRefused(f"Operation {operation.pk} is {operation.state}.", state=str(operation.state))
    account = operation.provider
    span_ms = account.start_within_ms + account.request_within_ms + account.in_flight_ms
    first_at = min(since_at, operation.first_sent_at or since_at)
    attempt = Attempt.objects.create(
        operation=operation,
        attempt_id=new_id("restored"),
        number=operation.attempts_count + 1,
        executor=Executor.AGENT,
        worker=FORGOTTEN_SENDER,
        minted_at=since_at,
        start_within_ms=account.start_within_ms,
        request_within_ms=account.request_within_ms,
        quiet_after_at=now + timedelta(milliseconds=span_ms),
        outcome=AttemptOutcome.UNREPORTED,
        ended_at=now,
    )
    minor = operation.amount_minor or 0
    reserve = operation.amount_minor is not None and operation.reservation == Reservation.NONE
    changed = Operation.objects.filter(pk=operation.pk, state=before).update(
        state=OperationState.SENT_UNKNOWN,
        first_sent_at=first_at,
        attempts_count=attempt.number,
        last_quiet_at=max(operation.last_quiet_at or now, attempt.quiet_after_at),
        reservation=Reservation.RESERVED if reserve else operation.reservation,
        reserved_minor=minor if reserve else operation.reserved_minor,
    )
    if changed != 1:
        raise MoveRefused(f"Operation {operation.pk} is no longer {before}.", state=str(operation.state))
    operation.refresh_from_db()
    if granted:
        refresh_outcome_pause(locked.locked_run)
    if reserve:
        run.budget_reserved_minor += minor
        run.save(update_fields=["budget_reserved_minor"])
    audit.append(
        audit.Event(
            action="operation.perhaps_sent",
            actor=actor,
            team=operation.team_id,
            run=run.id,
            operation=operation.pk,
            before={"state": str(before)},
            after={"state": str(operation.state), "attempt": attempt.number},
            reason=reason,
        )
    )
