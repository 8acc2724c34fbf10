"""begin_send: the durable `sent_unknown` that is committed before any request leaves (DESIGN law 2).

The answer "go" is only ever given after that commit. The usual case is one statement (`statements`); when
it finds no row, the slow path looks under the same lock for the reason, for a repeat of the same ask, or
for a grant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.db import DEFAULT_DB_ALIAS, IntegrityError, connection, connections, transaction
from django.db.models import Max

from runs import audit
from runs.actors import CONSOLE_SENDER, Actor, ActorKind
from runs.ids import check_client_id, could_be_id
from runs.journal.freezing import refuse_frozen
from runs.journal.intentions import Intended, remember
from runs.journal.prepared import fetch_one
from runs.journal.statements import BEGIN_SEND
from runs.journal.turns import unsettled_before
from runs.leases import (
    RunEnded,
    RunPaused,
    StaleToken,
    add_pause_reason,
    paused_refusal,
    require_token,
)
from runs.locking import LockedOperation, database_now, lock_operation
from runs.models import Attempt, Grant, Operation, ProviderAccount, Run
from runs.refusals import Refusal
from runs.states import (
    OPERATION_SETTLED,
    RUN_ENDED,
    AttemptOutcome,
    Executor,
    GrantState,
    OperationState,
    PauseReason,
    Reservation,
)


class NotSendable(Refusal):
    """The operation may not be sent now; details say which fact stands in the way."""

    word: ClassVar[str] = "not_sendable"


class GrantOutdated(NotSendable):
    """What the grant was given for has changed since; the same word to a sender, who starts nothing."""


class StartWindowPassed(Refusal):
    """This attempt was allowed, and the time in which it had to start is over: it must not start."""

    word: ClassVar[str] = "start_window_passed"


class AttemptEnded(Refusal):
    """This attempt, or its operation, is settled: there is nothing to start."""

    word: ClassVar[str] = "attempt_ended"


# Whether an open grant still stands: "" if so, else the sentence that says why not. Asked under the lock.
Standing = Callable[[LockedOperation, Grant], str]
# Told, in the same transaction, that an open grant was used.
Used = Callable[[LockedOperation, Grant], None]


@dataclass(frozen=True)
class ByGrant:
    """What whoever sends by a grant knows of it beside the journal: asked before it is used, told after."""

    why_outdated: Standing | None
    note_used: Used | None


@dataclass(frozen=True, kw_only=True)
class Go:
    """Permission to send, already durable. Durations count from before the sender first asked."""

    operation_id: str
    attempt_id: str
    number: int
    idempotency_key: str
    payload: bytes
    provider: str
    start_within_ms: int
    request_within_ms: int
    replayed: bool


def begin_send(
    *,
    team: str | None,
    operation_id: str,
    token: str,
    attempt_id: str,
    why_outdated: Standing | None = None,
    note_used: Used | None = None,
) -> Go:
    """Commit sent_unknown and a new attempt, and say go; or refuse, having changed nothing.

    The same attempt id again, while it is open and the token valid, says go with less time. `why_outdated`
    is asked before a grant is consumed, for what the journal doesn't know of (`GrantOutdated`), and
    `note_used` is told afterwards. Raises
    `StaleToken`, `RunPaused`, `RunEnded`, `NotSendable`, `StartWindowPassed`, `AttemptEnded`, `NotFound`,
    and `SendingFrozen` after a restore.
    A budget that would be exceeded, or an approval that has ended, pauses the run first. Owns its
    transaction: inside another one, "go" would be said before it is durable, and that is a `RuntimeError`.
    """
    check_client_id(attempt_id, where="attempt_id")
    _require_own_transaction()
    asked = {"operation": operation_id, "team": team, "token": token, "attempt_id": attempt_id}
    go = _try_statement(asked) if could_be_id(operation_id) and could_be_id(token) else None
    if go is not None:
        return go
    with transaction.atomic(durable=True):
        locked = lock_operation(operation_id=operation_id, team=team)
        answer = _decide_slowly(locked, asked, ByGrant(why_outdated, note_used))
    # A pause is kept: the refusal is raised after its commit.
    if isinstance(answer, Refusal):
        raise answer
    return answer


def _require_own_transaction() -> None:
    # As `transaction.atomic(durable=True)` checks it, for a statement that commits by itself. The blocks that
    # Django's test cases put around a test don't count, there as here.
    here = connections[DEFAULT_DB_ALIAS]
    if here.in_atomic_block and not getattr(here.atomic_blocks[-1], "_from_testcase", False):
        raise RuntimeError("begin_send must not be called inside a transaction: its go would not be durable")


def _try_statement(asked: dict[str, Any]) -> Go | None:
    try:
        row = fetch_one(BEGIN_SEND, asked)
    except IntegrityError as error:
        # The same attempt id on the operation: a repeat, which the slow path answers.
        if "attempt_id_once" in str(error) and not connection.in_atomic_block:
            return None
        raise
    if row is None:
        return None
    key, payload, slug, number, start_within_ms, request_within_ms, team, currency, minor, tool = row
    payload = bytes(payload)
    remember(Intended(asked["operation"], team, slug, key, payload, currency, minor, tool))
    return Go(
        operation_id=asked["operation"],
        attempt_id=asked["attempt_id"],
        number=number,
        idempotency_key=key,
        payload=payload,
        provider=slug,
        start_within_ms=start_within_ms,
        request_within_ms=request_within_ms,
        replayed=False,
    )


def _decide_slowly(locked: LockedOperation, asked: dict[str, Any], by_grant: ByGrant) -> Go | Refusal:
    run, operation = locked.run, locked.operation
    if run.state in RUN_ENDED:
        raise RunEnded(f"Run {run.id} is {run.state}.", run=run.id, state=run.state)
    require_token(locked.locked_run, asked["token"])
    refuse_frozen(operation.provider_id)
    again = Attempt.objects.filter(operation=operation, attempt_id=asked["attempt_id"]).first()
    if again is not None:
        return _go_again(locked, again, asked["token"])
    if operation.state in OPERATION_SETTLED:
        raise NotSendable(
            f"Operation {operation.pk} is {operation.state}.", reason="settled", state=operation.state
        )
    if operation.state == OperationState.SENT_UNKNOWN:
        return _go_by_grant(locked, Executor.AGENT, asked["attempt_id"], asked["token"], by_grant)
    _refuse_blocked(locked)
    paused = _pause_before_sending(locked)
    if paused is not None:
        return paused
    go = _try_statement(asked)
    if go is not None:
        return go
    # We hold the rows, so only time can have moved since we looked, past the lease or the approval; and the
    # account, which we don't hold, may have been frozen.
    refuse_frozen(operation.provider_id)
    later = replace(locked, now=database_now())
    require_token(later.locked_run, asked["token"])
    paused = _pause_before_sending(later)
    if paused is None:
        raise AssertionError(f"operation {operation.pk} passed every check and was not sent")
    return paused


def _go_again(locked: LockedOperation, attempt: Attempt, token: str) -> Go:
    operation = locked.operation
    if attempt.lease_token != token:
        raise StaleToken(f"Attempt {attempt.attempt_id} was allowed under another token.")
    if attempt.outcome != AttemptOutcome.OPEN or operation.state != OperationState.SENT_UNKNOWN:
        raise AttemptEnded(
            f"Attempt {attempt.attempt_id} has ended ({attempt.outcome}); "
            f"its operation is {operation.state}.",
            outcome=attempt.outcome,
            state=operation.state,
        )
    passed_ms = int((locked.now - attempt.minted_at) / timedelta(milliseconds=1))
    left_ms = attempt.start_within_ms - passed_ms
    if left_ms <= 0:
        raise StartWindowPassed(
            f"Attempt {attempt.attempt_id} had to start within {attempt.start_within_ms} ms.",
            start_within_ms=attempt.start_within_ms,
            passed_ms=passed_ms,
        )
    return _go(operation, attempt, start_within_ms=left_ms, replayed=True)


def _go(operation: Operation, attempt: Attempt, *, start_within_ms: int, replayed: bool) -> Go:
    return Go(
        operation_id=operation.pk,
        attempt_id=attempt.attempt_id,
        number=attempt.number,
        idempotency_key=operation.key,
        payload=bytes(operation.payload),
        provider=operation.provider_id,
        start_within_ms=start_within_ms,
        request_within_ms=attempt.request_within_ms,
        replayed=replayed,
    )


def _refuse_blocked(locked: LockedOperation) -> None:
    run, operation = locked.run, locked.operation
    if run.in_doubt_count > 0:
        doubt = Operation.objects.filter(run=run, in_doubt_since_at__isnull=False).first()
        raise NotSendable(
            f"Operation {doubt.pk if doubt else '?'} of this run has an unknown outcome; nothing new is sent "
            "until that is settled.",
            reason="blocked_by",
            blocked_by=doubt.pk if doubt else "",
        )
    earlier = unsettled_before(run, position=operation.position)
    if earlier is not None:
        blocking = Operation.objects.filter(call=earlier).values_list("pk", flat=True).first()
        raise NotSendable(
            f"Call {earlier.call_id} comes first in this turn and isn't settled.",
            reason="blocked_by",
            blocked_by=blocking or earlier.call_id,
        )
    if run.turn_settled_through < operation.position and run.turn_parallel == "ordered":
        # Counted anew: a call was settled before its turn came, and the count stopped at the gap before it.
        run.turn_settled_through = operation.position
        run.save(update_fields=["turn_settled_through"])


def _pause_before_sending(locked: LockedOperation) -> RunPaused | None:
    """Pause the run if its approval has ended or its budget would be exceeded; the pause is to be kept."""
    run, operation = locked.run, locked.operation
    reason = None
    if run.approval_until_at is not None and run.approval_until_at <= locked.now:
        reason = PauseReason.APPROVAL
    elif _exceeds_budget(run, operation):
        reason = PauseReason.BUDGET
    if reason is None:
        return None
    add_pause_reason(locked.locked_run, reason)
    return paused_refusal(run)


def _exceeds_budget(run: Run, operation: Operation) -> bool:
    limit, minor = run.budget_limit_minor, operation.amount_minor
    if limit is None or minor is None or operation.reservation != Reservation.NONE:
        return False
    return run.budget_reserved_minor + run.budget_spent_minor + run.budget_held_minor + minor > limit


def begin_repeat_by_console(
    *,
    grant_id: str,
    attempt_id: str,
    why_outdated: Standing | None = None,
    note_used: Used | None = None,
) -> Go:
    """Consume a grant whose executor is the console, and say go to its own sender. Owns its transaction.

    `why_outdated` and `note_used` as for `begin_send`.

    A pause for the outcome is what the grant answers; one for frozen sending stands against it, as does the
    end of the run: whoever granted the repeat did so for a run that was to go on.
    """
    check_client_id(attempt_id, where="attempt_id")
    grant = Grant.objects.filter(pk=grant_id).only("operation_id").first() if could_be_id(grant_id) else None
    if grant is None:
        raise NotSendable(f"There is no grant {grant_id}.", reason="no_grant")
    with transaction.atomic(durable=True):
        locked = lock_operation(operation_id=grant.operation_id, team=None)
        run = locked.run
        if run.state in RUN_ENDED:
            raise RunEnded(f"Run {run.id} is {run.state}.", run=run.id, state=run.state)
        if PauseReason.FROZEN in run.paused_reasons:
            raise paused_refusal(run)
        refuse_frozen(locked.operation.provider_id)
        again = Attempt.objects.filter(operation=locked.operation, attempt_id=attempt_id).first()
        if again is None:
            by_grant = ByGrant(why_outdated, note_used)
            return _go_by_grant(locked, Executor.CONSOLE, attempt_id, "", by_grant)
        if again.executor == Executor.CONSOLE and again.grant_id != grant_id:
            raise AttemptEnded(f"Attempt {attempt_id} was made by another grant.", outcome=again.outcome)
        return _go_again(locked, again, "")


def _go_by_grant(
    locked: LockedOperation,
    executor: Executor,
    attempt_id: str,
    token: str,
    by_grant: ByGrant,
) -> Go:
    """sent_unknown → sent_unknown: one more attempt with the same key and bytes, by a single-use grant."""
    operation, now = locked.operation, locked.now
    grant = Grant.objects.select_for_update().filter(operation=operation, state=GrantState.OPEN).first()
    if grant is None or grant.executor != executor:
        raise NotSendable(
            f"Operation {operation.pk} was sent and its outcome is unknown; it is not sent again without a "
            "person's grant.",
            reason="outcome_unknown",
            state=operation.state,
        )
    _refuse_grant(locked, grant)
    why = "" if by_grant.why_outdated is None else by_grant.why_outdated(locked, grant)
    if why:
        raise GrantOutdated(f"Grant {grant.pk} doesn't hold any more: {why}", reason="grant_void")
    consumed = Grant.objects.filter(pk=grant.pk, state=GrantState.OPEN).update(
        state=GrantState.CONSUMED, ended_at=now, end_reason=f"attempt {attempt_id}"
    )
    if consumed != 1:
        raise NotSendable(f"Grant {grant.pk} is used.", reason="grant_void")
    attempt = _mint_attempt(locked, grant, executor, attempt_id, token)
    if by_grant.note_used is not None:
        by_grant.note_used(locked, grant)
    return _go(operation, attempt, start_within_ms=attempt.start_within_ms, replayed=False)


def _refuse_grant(locked: LockedOperation, grant: Grant) -> None:
    run, operation, now = locked.run, locked.operation, locked.now
    if grant.follows_attempt != operation.attempts_count:
        raise NotSendable(f"Grant {grant.pk} follows an earlier attempt.", reason="grant_void")
    starts_at = max(grant.not_before_at, _quiet_at(operation) or grant.not_before_at)
    if now < starts_at:
        raise NotSendable(
            f"Grant {grant.pk} starts at {starts_at.isoformat()}.",
            reason="grant_not_yet",
            starts_in_ms=int((starts_at - now) / timedelta(milliseconds=1)) + 1,
        )
    if now > grant.not_after_at:
        raise NotSendable(f"Grant {grant.pk} has run out.", reason="grant_expired")
    if run.approval_until_at is not None and run.approval_until_at <= now:
        raise NotSendable(f"The approval of run {run.id} has ended.", reason="approval")


def _quiet_at(operation: Operation) -> datetime | None:
    """When the last attempt that may still be on its way can no longer reach the provider.

    The grant's own time comes from the policy, which knows more (lease ends, the contract); this is the rule
    that the journal keeps whoever made the grant (DESIGN, quiet time).
    """
    on_their_way = Attempt.objects.filter(
        operation=operation,
        outcome__in=[AttemptOutcome.OPEN, AttemptOutcome.UNKNOWN, AttemptOutcome.UNREPORTED],
    )
    latest: datetime | None = on_their_way.aggregate(at=Max("quiet_after_at"))["at"]
    return latest


def _mint_attempt(
    locked: LockedOperation, grant: Grant, executor: Executor, attempt_id: str, token: str
) -> Attempt:
    run, operation, now = locked.run, locked.operation, locked.now
    account: ProviderAccount = operation.provider
    span_ms = account.start_within_ms + account.request_within_ms + account.in_flight_ms
    by_agent = executor == Executor.AGENT
    attempt = Attempt.objects.create(
        operation=operation,
        attempt_id=attempt_id,
        number=operation.attempts_count + 1,
        executor=executor,
        lease_number=run.lease_number if by_agent else None,
        lease_token=token,
        worker=run.lease_holder if by_agent else CONSOLE_SENDER.id,
        grant=grant,
        minted_at=now,
        start_within_ms=account.start_within_ms,
        request_within_ms=account.request_within_ms,
        quiet_after_at=now + timedelta(milliseconds=span_ms),
    )
    operation.attempts_count = attempt.number
    operation.last_quiet_at = max(operation.last_quiet_at or now, attempt.quiet_after_at)
    operation.save(update_fields=["attempts_count", "last_quiet_at"])
    if not operation.sent_by:
        _pin(operation, executor, account)
    audit.append(
        audit.Event(
            action="operation.sent_again",
            actor=Actor(ActorKind.WORKER, run.lease_holder) if by_agent else CONSOLE_SENDER,
            team=operation.team_id,
            run=run.id,
            operation=operation.pk,
            before={"state": "sent_unknown"},
            after={"attempt": attempt.number, "attempt_id": attempt_id, "grant": grant.pk},
        )
    )
    return attempt


def _pin(operation: Operation, executor: Executor, account: ProviderAccount) -> None:
    """Pin who sends and through what (law 5), where the first request was somebody else's."""
    operation.sent_by = executor
    operation.sent_adapter_version, operation.sent_endpoint = account.adapter_version, account.endpoint
    operation.sent_region = account.region
    operation.sent_credential_fingerprint = account.credential_fingerprint
    operation.save(
        update_fields=[
            "sent_by",
            "sent_adapter_version",
            "sent_endpoint",
            "sent_region",
            "sent_credential_fingerprint",
        ]
    )
