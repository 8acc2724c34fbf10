"""What a second person's consent changes about a run: its limit, its approval, its version, what it holds.

Every function here needs a transaction that holds the run (`runs.locking`) and writes one leaf of its own;
none of them decides whether the consent is good: the caller has the request and the approver. Each of them
ends the pause that it answers, and the run is claimable again when nothing else pauses it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

from runs import audit
from runs.actors import Actor
from runs.canonical import INTEGER_MAX
from runs.ids import new_id
from runs.journal.evidence import storable_text
from runs.journal.pausing import drop_pause_reason, refresh_budget_pause
from runs.locking import Locked, LockedOperation
from runs.models import NAME_LENGTH, Approval, FlowVersion, Grant, Operation, Run
from runs.refusals import Invalid, Refusal
from runs.states import (
    RUN_ENDED,
    GrantState,
    OperationState,
    PauseReason,
    Reservation,
)

# An approval for longer than a month is a policy, and a policy is changed where policies are.
APPROVAL_DAYS_MAX: Final = 31
# A pin that nobody has served for a week longer is moved or given up, not kept again without a look.
WAIT_SECONDS_MIN: Final = 60
WAIT_SECONDS_MAX: Final = 7 * 24 * 3_600
SUBJECT_LENGTH_MAX: Final = 300


class LimitNotRaised(Refusal):
    """The run's limit can't become this: it goes up only, in its own currency, while the run goes on."""

    word: ClassVar[str] = "limit_not_raised"


class ApprovalNotRenewed(Refusal):
    """The run refers to no approval, has ended, or the new one would end no later than the present one."""

    word: ClassVar[str] = "approval_not_renewed"


class VersionNotAwaited(Refusal):
    """The run doesn't wait for a worker of its pinned version now: there is nothing to say about the pin."""

    word: ClassVar[str] = "version_not_awaited"


class VersionUnknown(Refusal):
    """The flow has no such version on record, or under another digest: nobody would know what runs."""

    word: ClassVar[str] = "version_unknown"


class VersionInFlight(Refusal):
    """Something of the run may be on its way, or is granted, under the old version; `operations` say what."""

    word: ClassVar[str] = "version_in_flight"


class NothingHeld(Refusal):
    """The operation holds no amount: it was spent, freed or never reserved."""

    word: ClassVar[str] = "nothing_held"


# --- Budget ---------------------------------------------------------------------------------------------


def check_raise(run: Run, *, limit_minor: int, currency: str) -> None:
    """Raise `LimitNotRaised` unless the run's limit may become this, in minor units of its currency."""
    old = run.budget_limit_minor
    if run.state in RUN_ENDED:
        raise LimitNotRaised(f"Run {run.pk} is {run.state}; its limit means nothing any more.", run=run.pk)
    if old is None:
        raise LimitNotRaised(f"Run {run.pk} has no limit to raise.", run=run.pk)
    if currency != run.budget_currency:
        raise LimitNotRaised(
            f"The limit of run {run.pk} is in {run.budget_currency}, and stays in it.",
            run=run.pk,
            currency=run.budget_currency,
        )
    if not old < limit_minor <= INTEGER_MAX:
        raise LimitNotRaised(
            f"The limit of run {run.pk} can only be raised, and to at most 2^53 - 1 minor units.",
            run=run.pk,
            limit_minor=old,
        )


def raise_limit(locked: Locked, *, limit_minor: int, currency: str, actor: Actor, reason: str) -> None:
    """Raise the run's budget limit. Raises `LimitNotRaised`.

    The pause for the budget ends once something that waits fits, or nothing waits; what still doesn't fit
    pauses the run anew when it is to be sent.
    """
    run = locked.run
    check_raise(run, limit_minor=limit_minor, currency=currency)
    before = run.budget_limit_minor
    run.budget_limit_minor = limit_minor
    run.save(update_fields=["budget_limit_minor"])
    _append(
        run,
        "run.limit_raised",
        actor,
        before={"limit_minor": before, "currency": currency},
        after={"limit_minor": limit_minor, "currency": currency},
        reason=reason,
    )
    _end_budget_pause(locked)


def free_held(locked: LockedOperation, *, actor: Actor, reason: str) -> int:
    """Free the amount that an abandoned operation holds; returns it, in minor units. Raises `NothingHeld`.

    It says that the effect isn't to be counted on any more, not that it didn't happen: what arrives after
    this opens a conflict and is booked there.
    """
    operation, run = locked.operation, locked.run
    if operation.reservation != Reservation.HELD:
        raise NothingHeld(f"Operation {operation.pk} holds no amount.", operation=operation.pk)
    freed = operation.settled_minor
    run.budget_held_minor -= freed
    operation.reservation, operation.settled_minor = Reservation.RELEASED, 0
    operation.save(update_fields=["reservation", "settled_minor"])
    run.save(update_fields=["budget_held_minor"])
    audit.append(
        audit.Event(
            action="operation.held_freed",
            actor=actor,
            team=operation.team_id,
            run=run.pk,
            operation=operation.pk,
            before={"held_minor": freed, "currency": operation.amount_currency},
            after={"held_minor": 0},
            reason=reason,
        )
    )
    _end_budget_pause(locked.locked_run)
    return freed


def _end_budget_pause(locked: Locked) -> None:
    refresh_budget_pause(locked)
    run = locked.run
    waiting = Operation.objects.filter(run=run, state=OperationState.READY, reservation=Reservation.NONE)
    if PauseReason.BUDGET in run.paused_reasons and not waiting.exists():
        drop_pause_reason(locked, PauseReason.BUDGET)


# --- Approval -------------------------------------------------------------------------------------------


def check_renewal(run: Run, *, expires_at: datetime, now: datetime) -> None:
    """Raise `ApprovalNotRenewed` unless the run's approval may be followed by one that ends then."""
    if run.state in RUN_ENDED:
        raise ApprovalNotRenewed(f"Run {run.pk} is {run.state}; it needs no approval.", run=run.pk)
    if run.approval_id is None or run.approval_until_at is None:
        raise ApprovalNotRenewed(f"Run {run.pk} refers to no approval.", run=run.pk)
    if not max(now, run.approval_until_at) < expires_at <= now + timedelta(days=APPROVAL_DAYS_MAX):
        raise ApprovalNotRenewed(
            f"The new approval must end after the present one and within {APPROVAL_DAYS_MAX} days.",
            run=run.pk,
            approval=run.approval_id,
            until=run.approval_until_at.isoformat(),
        )


def renew_approval(
    locked: Locked, *, expires_at: datetime, subject: str, actor: Actor, reason: str
) -> Approval:
    """Put a new approval, made by `actor`, in place of the run's. Raises `ApprovalNotRenewed`.

    The old record stays as it was; the run refers to the new one, and its pause for the approval ends.
    """
    run = locked.run
    check_renewal(run, expires_at=expires_at, now=locked.now)
    before = {"approval": run.approval_id, "until": _text(run.approval_until_at)}
    made = Approval.objects.create(
        id=new_id("appr"),
        team_id=run.team_id,
        subject=storable_text(subject)[:SUBJECT_LENGTH_MAX],
        made_by=actor.id,
        made_at=locked.now,
        expires_at=expires_at,
    )
    run.approval, run.approval_until_at = made, expires_at
    run.save(update_fields=["approval", "approval_until_at"])
    _append(
        run,
        "run.approval_renewed",
        actor,
        before=before,
        after={"approval": made.pk, "until": _text(expires_at)},
        reason=reason,
    )
    drop_pause_reason(locked, PauseReason.APPROVAL)
    return made


# --- Flow version ---------------------------------------------------------------------------------------


def check_awaited(run: Run) -> None:
    """Raise `VersionNotAwaited` unless the run waits for a worker of its pinned version."""
    if PauseReason.FLOW_VERSION not in run.paused_reasons:
        raise VersionNotAwaited(
            f"Run {run.pk} doesn't wait for a worker of its version: one came, or the run was settled.",
            run=run.pk,
            state=str(run.state),
        )


def keep_version(locked: Locked, *, wait_seconds: int, actor: Actor, reason: str) -> datetime:
    """Keep the pin: somebody will run a worker of it. Returns until when nobody is asked again.

    Raises `VersionNotAwaited`, and `Invalid` for a time outside a minute and a week.
    """
    run = locked.run
    if not WAIT_SECONDS_MIN <= wait_seconds <= WAIT_SECONDS_MAX:
        raise Invalid("A kept version is waited for from a minute to a week.", where="wait_seconds")
    check_awaited(run)
    until_at = locked.now + timedelta(seconds=wait_seconds)
    run.version_awaited_until_at = until_at
    run.save(update_fields=["version_awaited_until_at"])
    version = run.flow_version.version
    _append(
        run,
        "run.version_kept",
        actor,
        before={"flow_version": version},
        after={"flow_version": version, "waits_until": _text(until_at)},
        reason=reason,
    )
    drop_pause_reason(locked, PauseReason.FLOW_VERSION)
    return until_at


def version_to_move_to(run: Run, *, version: str, digest: str) -> FlowVersion:
    """The version of the run's flow, as it is on record; raises `VersionUnknown`.

    `digest` is what it is recorded under, "" where it came without one.
    """
    found = None
    if 0 < len(version) <= NAME_LENGTH and storable_text(version) == version:
        found = FlowVersion.objects.filter(flow=run.flow_id, version=version).first()
    if found is None or found.digest != digest or found.pk == run.flow_version_id:
        raise VersionUnknown(
            f"This flow has no other version {storable_text(version)[:NAME_LENGTH]} on record"
            + (" with this digest." if found is not None and found.digest != digest else "."),
            run=run.pk,
            digest=found.digest if found is not None else "",
        )
    return found


def in_flight(run: Run) -> list[str]:
    """The operations that are sent or granted under the pinned version: what a new one must not inherit."""
    sent = Operation.objects.filter(run=run, state=OperationState.SENT_UNKNOWN)
    granted = Grant.objects.filter(operation__run=run, state=GrantState.OPEN)
    ids = {*sent.values_list("pk", flat=True), *granted.values_list("operation_id", flat=True)}
    return sorted(ids)


def check_move(run: Run) -> None:
    """Raise `VersionNotAwaited`, or `VersionInFlight` while a move would change what protects a request."""
    check_awaited(run)
    open_ones = in_flight(run)
    if open_ones:
        raise VersionInFlight(
            f"Run {run.pk} has operations ({len(open_ones)}) whose outcome is unknown. They are settled "
            "under the version that sent them before the run moves to another.",
            run=run.pk,
            operations=open_ones,
        )


def move_to_version(locked: Locked, *, version: str, digest: str, actor: Actor, reason: str) -> FlowVersion:
    """Pin the run to another version of its flow. Raises as `check_move` and `version_to_move_to` do.

    What is settled stays settled and is skipped; turns that were decided stay decided (law 1).
    """
    run = locked.run
    check_move(run)
    found = version_to_move_to(run, version=version, digest=digest)
    old = run.flow_version
    run.flow_version, run.version_awaited_until_at = found, None
    run.save(update_fields=["flow_version", "version_awaited_until_at"])
    _append(
        run,
        "run.version_moved",
        actor,
        before={"flow_version": old.version, "digest": old.digest},
        after={"flow_version": found.version, "digest": found.digest},
        reason=reason,
    )
    drop_pause_reason(locked, PauseReason.FLOW_VERSION)
    return found


def _append(
    run: Run, action: str, actor: Actor, *, before: dict[str, Any], after: dict[str, Any], reason: str
) -> None:
    audit.append(
        audit.Event(
            action=action,
            actor=actor,
            team=run.team_id,
            run=run.pk,
            before=before,
            after={"state": str(run.state), **after},
            reason=reason,
        )
    )


def _text(at: datetime | None) -> str:
    return "" if at is None else at.isoformat()
