"""The moves of an operation off the hot path, each a compare-and-set under the run's lock.

Every function here needs a transaction that holds the run and the operation (`runs.locking`); none of them
decides whether the move is right: the caller has evidence and policy, this module keeps the books. What a
settlement does besides the state — budget, grants, doubt, the turn's counter, the run's pause, the audit
leaf — is done here once, so that no way of settling can forget a part.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from django.db import IntegrityError, transaction

from runs import audit
from runs.actors import Actor
from runs.canonical import INTEGER_MAX, digest
from runs.ids import new_id
from runs.journal.evidence import REFERENCE_LENGTH_MAX, storable_text
from runs.journal.pausing import refresh_budget_pause, refresh_outcome_pause
from runs.journal.turns import count_settled
from runs.locking import LockedOperation
from runs.models import Attempt, Evidence, Grant, Operation, Receipt, Run
from runs.refusals import Invalid, Refusal
from runs.states import (
    OPERATION_MOVES,
    OPERATION_SETTLED,
    RUN_ENDED,
    AttemptOutcome,
    GrantState,
    MatchedBy,
    OperationState,
    Reservation,
)

_CURRENCY = re.compile("[A-Z]{3}")


class MoveRefused(Refusal):
    """The operation isn't in a state that this move starts from; nothing was changed."""

    word: ClassVar[str] = "not_sendable"


class ReceiptReused(Refusal):
    """This receipt already confirmed another operation of the same provider account.

    `confirmed` is that operation. What callers are told names it only if it is their own team's.
    """

    word: ClassVar[str] = "receipt_reused"

    def __init__(self, operation: Operation, reference: str, confirmed: Operation) -> None:
        self.confirmed = confirmed
        told, which = {"operation": operation.pk}, "another operation"
        if confirmed.team_id == operation.team_id:
            told["confirmed_operation"], which = confirmed.pk, f"operation {confirmed.pk}"
        super().__init__(f"Receipt {reference} already confirmed {which}.", **told)


@dataclass(frozen=True, kw_only=True)
class ReceiptFacts:
    """A provider's proof, already matched to the operation. Amounts in minor units, None where unstated.

    An amount without a currency is in the operation's. Raises `Invalid` for what couldn't be stored, so that
    a provider's words can't break a statement half way.
    """

    reference: str
    body: bytes
    matched_by: MatchedBy
    amount_currency: str = ""
    amount_minor: int | None = None

    def __post_init__(self) -> None:
        unstorable = storable_text(self.reference) != self.reference
        if unstorable or not 1 <= len(self.reference) <= REFERENCE_LENGTH_MAX:
            raise Invalid(
                f"A receipt's reference is text of 1 to {REFERENCE_LENGTH_MAX} characters.", where="reference"
            )
        whole = self.amount_minor is None or 0 <= self.amount_minor <= INTEGER_MAX
        if not whole or (self.amount_currency and self.amount_minor is None):
            raise Invalid("A receipt's amount is 0 to 2^53 - 1 minor units.", where="amount")
        if self.amount_currency and not _CURRENCY.fullmatch(self.amount_currency):
            raise Invalid("A receipt's currency is a code of three capital letters.", where="amount")


def confirm(
    locked: LockedOperation,
    *,
    receipt: ReceiptFacts,
    actor: Actor,
    attempt: Attempt | None = None,
    evidence: Evidence | None = None,
    reason: str = "",
) -> Receipt:
    """sent_unknown → confirmed, by a receipt that names this operation and matches its payload.

    Raises `ReceiptReused` (nothing changed, the transaction stays usable) if the provider's reference has
    confirmed another operation, and `MoveRefused` unless the operation is sent_unknown. A receipt in another
    currency than the operation's books what was reserved: the budget can hold no other.
    """
    operation = locked.operation
    _require_move(operation, OperationState.CONFIRMED)
    minor = receipt.amount_minor if receipt.amount_minor is not None else operation.amount_minor
    has_amount = operation.amount_minor is not None and minor is not None
    foreign = receipt.amount_currency not in {"", operation.amount_currency}
    try:
        with transaction.atomic():
            row = Receipt.objects.create(
                id=new_id("rcpt"),
                operation=operation,
                provider_id=operation.provider_id,
                reference=receipt.reference,
                body=receipt.body,
                body_digest=digest(receipt.body),
                matched_by=receipt.matched_by,
                amount_currency=(receipt.amount_currency or operation.amount_currency) if has_amount else "",
                amount_minor=minor if has_amount else None,
                attempt=attempt,
                evidence=evidence,
                recorded_at=locked.now,
            )
    except IntegrityError as error:
        taken = Receipt.objects.filter(provider_id=operation.provider_id, reference=receipt.reference)
        other = taken.select_related("operation").first()
        if other is None or other.operation_id == operation.pk:
            raise
        raise ReceiptReused(operation, receipt.reference, other.operation) from error
    spent = operation.amount_minor if foreign else minor
    _settle(
        locked,
        to=OperationState.CONFIRMED,
        reservation=Reservation.SETTLED,
        spent_minor=(spent or 0) if has_amount else 0,
        actor=actor,
        after={
            "receipt": row.body_digest,
            "receipt_id": row.id,
            "matched_by": str(receipt.matched_by),
            **({"attempt": attempt.number} if attempt else {}),
        },
        evidence=evidence,
        reason=reason,
    )
    return row


def reject(
    locked: LockedOperation,
    *,
    refusal: bytes,
    actor: Actor,
    evidence: Evidence | None = None,
    reason: str = "",
) -> None:
    """sent_unknown → rejected: a definite refusal, and no other attempt can have had an effect."""
    _require_move(locked.operation, OperationState.REJECTED)
    locked.operation.refusal = refusal
    locked.operation.save(update_fields=["refusal"])
    _settle(
        locked,
        to=OperationState.REJECTED,
        reservation=Reservation.RELEASED,
        actor=actor,
        after={"refusal": digest(refusal)},
        evidence=evidence,
        reason=reason,
    )


def abandon(
    locked: LockedOperation,
    *,
    actor: Actor,
    known_effect: str,
    reason: str,
    evidence: Evidence | None = None,
    absent: bool = False,
) -> None:
    """ready or sent_unknown → abandoned: the obligation is given up, with what is known of the effect.

    Nothing was ever sent, or the effect is proved to be absent (`absent`): the reservation is released. The
    effect is unknown: it stays `held` (law 12).
    """
    operation = locked.operation
    _require_move(operation, OperationState.ABANDONED)
    unknown = operation.state == OperationState.SENT_UNKNOWN and not absent
    operation.known_effect = known_effect
    operation.save(update_fields=["known_effect"])
    _settle(
        locked,
        to=OperationState.ABANDONED,
        reservation=Reservation.HELD if unknown else Reservation.RELEASED,
        actor=actor,
        after={"known_effect": known_effect},
        evidence=evidence,
        reason=reason,
    )


def return_to_ready(
    locked: LockedOperation,
    *,
    actor: Actor,
    evidence: Evidence | None = None,
    reason: str = "",
    release: bool = False,
) -> None:
    """sent_unknown → ready: every attempt is proved not sent; and on to abandoned, if its run has ended.

    The reservation is kept through not_sent, and released (`release`) by proved absence, to be made again
    at the next send (law 12). Raises `MoveRefused` while an attempt isn't ended as not sent (`attempts` has
    their numbers), and for an operation that somebody else sent: no attempt of ours proves anything about
    that one.
    """
    operation, run = locked.operation, locked.run
    _require_move(operation, OperationState.READY)
    outcomes = dict(Attempt.objects.filter(operation=operation).values_list("number", "outcome"))
    unproved = sorted(number for number, outcome in outcomes.items() if outcome != AttemptOutcome.NOT_SENT)
    if unproved or not outcomes:
        raise MoveRefused(
            f"Operation {operation.pk} can't be sent anew: it isn't proved that no request of it left.",
            state=str(operation.state),
            attempts=unproved,
        )
    if release and operation.reservation == Reservation.RESERVED:
        run.budget_reserved_minor -= operation.reserved_minor
        operation.reservation, operation.reserved_minor = Reservation.NONE, 0
        operation.save(update_fields=["reservation", "reserved_minor"])
        run.save(update_fields=["budget_reserved_minor"])
    _end_doubt(locked)
    _compare_and_set(operation, OperationState.READY, locked.now)
    end_grants(operation, GrantState.VOID, locked, "the operation can be sent again")
    refresh_outcome_pause(locked.locked_run)
    refresh_budget_pause(locked.locked_run)
    _append(locked, "operation.not_sent", actor, OperationState.SENT_UNKNOWN, {}, evidence, reason)
    if run.state in RUN_ENDED:
        # Nobody would send it any more: what ended with its run, had it been ready then, ends with it now.
        abandon(
            locked,
            actor=actor,
            known_effect="No attempt of it had an effect.",
            evidence=evidence,
            reason=f"the run is {run.state}",
        )


def book_conflict(locked: LockedOperation, *, minor: int, stands: bool, actor: Actor, reason: str) -> None:
    """Book what an extra effect of a settled operation cost, once a person has said whether it stands.

    An amount that was held is spent or freed; otherwise one that stands is spent on top. The state stays:
    history is not rewritten (DESIGN law 9). Raises `MoveRefused` for an operation that isn't settled, whose
    amount is still reserved, and `Invalid` for a negative amount.
    """
    operation, run = locked.operation, locked.run
    if operation.state not in OPERATION_SETTLED:
        raise MoveRefused(f"Operation {operation.pk} is {operation.state}.", state=str(operation.state))
    if not 0 <= minor <= INTEGER_MAX:
        raise Invalid("A booked amount is 0 to 2^53 - 1 minor units.", where="amount")
    if operation.amount_minor is not None:
        if operation.reservation == Reservation.HELD:
            run.budget_held_minor -= operation.settled_minor
            operation.settled_minor = minor if stands else 0
            operation.reservation = Reservation.SETTLED if stands else Reservation.RELEASED
        elif stands:
            operation.settled_minor += minor
            operation.reservation = Reservation.SETTLED
        if stands:
            run.budget_spent_minor += minor
        operation.save(update_fields=["reservation", "settled_minor"])
        run.save(update_fields=["budget_spent_minor", "budget_held_minor"])
        refresh_budget_pause(locked.locked_run)
    word = "accepted" if stands else "compensated"
    after: dict[str, Any] = {"booked_minor": minor if stands else 0}
    _append(locked, f"conflict.{word}", actor, OperationState(operation.state), after, None, reason)


def mark_sent_by_unknown(locked: LockedOperation, *, actor: Actor, evidence: Evidence) -> None:
    """ready → sent_unknown without an attempt: somebody sent it, and we don't know who."""
    operation, run = locked.operation, locked.run
    if operation.state != OperationState.READY:
        raise _refused(operation, OperationState.SENT_UNKNOWN)
    minor = operation.amount_minor or 0
    reserve = minor if operation.reservation == Reservation.NONE else 0
    _compare_and_set(operation, OperationState.SENT_UNKNOWN, locked.now)
    operation.last_quiet_at = max(operation.last_quiet_at or locked.now, locked.now)
    if operation.amount_minor is not None and operation.reservation == Reservation.NONE:
        operation.reservation, operation.reserved_minor = Reservation.RESERVED, minor
    operation.save(update_fields=["last_quiet_at", "reservation", "reserved_minor"])
    run.budget_reserved_minor += reserve
    run.save(update_fields=["budget_reserved_minor"])
    _append(locked, "operation.sent_by_unknown", actor, OperationState.READY, {}, evidence, "")


def open_doubt(locked: LockedOperation) -> None:
    """Note that the outcome is now an open question: its unsent siblings wait, and the run may pause."""
    operation, run = locked.operation, locked.run
    if operation.in_doubt_since_at is not None or operation.state != OperationState.SENT_UNKNOWN:
        refresh_outcome_pause(locked.locked_run)
        return
    operation.in_doubt_since_at = locked.now
    operation.save(update_fields=["in_doubt_since_at"])
    run.in_doubt_count += 1
    run.save(update_fields=["in_doubt_count"])
    refresh_outcome_pause(locked.locked_run)


def end_attempt(
    locked: LockedOperation, attempt: Attempt, *, outcome: AttemptOutcome, report_digest: str = ""
) -> bool:
    """Note how an attempt ended; False if it had ended before in a way that stands.

    `unreported` is our own word for silence and gives way to what is later proved.
    """
    changed = Attempt.objects.filter(
        pk=attempt.pk, outcome__in=[AttemptOutcome.OPEN, AttemptOutcome.UNREPORTED]
    ).update(outcome=outcome, ended_at=locked.now, report_digest=report_digest)
    if changed:
        attempt.outcome, attempt.ended_at, attempt.report_digest = outcome, locked.now, report_digest
    return bool(changed)


def conclude_not_sent(locked: LockedOperation, attempt: Attempt) -> None:
    """Policy's word that an attempt never left, whatever it ended as before."""
    Attempt.objects.filter(pk=attempt.pk).update(outcome=AttemptOutcome.NOT_SENT, ended_at=locked.now)
    attempt.outcome = AttemptOutcome.NOT_SENT


def end_grants(operation: Operation, state: GrantState, locked: LockedOperation, why: str) -> int:
    """End the operation's open grant, if there is one; it can't be consumed after this."""
    return Grant.objects.filter(operation=operation, state=GrantState.OPEN).update(
        state=state, ended_at=locked.now, end_reason=why
    )


def _settle(
    locked: LockedOperation,
    *,
    to: OperationState,
    reservation: Reservation,
    actor: Actor,
    after: dict[str, Any],
    evidence: Evidence | None,
    reason: str,
    spent_minor: int = 0,
) -> None:
    operation, run = locked.operation, locked.run
    before = OperationState(operation.state)
    # Only what is sent_unknown can be in doubt (a CHECK says so), so the doubt ends first.
    _end_doubt(locked)
    _compare_and_set(operation, to, locked.now)
    _settle_budget(operation, run, reservation, spent_minor)
    operation.save(update_fields=["reservation", "reserved_minor", "settled_minor"])
    # An unsettled call is always of the current turn: the next one isn't saved before.
    count_settled(run, position=operation.position)
    run.save(
        update_fields=[
            "turn_settled",
            "turn_settled_through",
            "budget_reserved_minor",
            "budget_spent_minor",
            "budget_held_minor",
        ]
    )
    end_grants(operation, GrantState.VOID, locked, f"the operation is {to}")
    refresh_outcome_pause(locked.locked_run)
    refresh_budget_pause(locked.locked_run)
    _append(locked, f"operation.{to}", actor, before, after, evidence, reason)


def _settle_budget(operation: Operation, run: Run, reservation: Reservation, spent_minor: int) -> None:
    if operation.reservation != Reservation.RESERVED:
        return
    run.budget_reserved_minor -= operation.reserved_minor
    match reservation:
        case Reservation.SETTLED:
            run.budget_spent_minor += spent_minor
            operation.settled_minor = spent_minor
        case Reservation.HELD:
            run.budget_held_minor += operation.reserved_minor
            operation.settled_minor = operation.reserved_minor
        case Reservation.RELEASED:
            operation.settled_minor = 0
        case _:
            raise AssertionError(f"{reservation} settles nothing")
    operation.reservation, operation.reserved_minor = reservation, 0


def _end_doubt(locked: LockedOperation) -> None:
    operation, run = locked.operation, locked.run
    if operation.in_doubt_since_at is None:
        return
    operation.in_doubt_since_at = None
    operation.save(update_fields=["in_doubt_since_at"])
    run.in_doubt_count -= 1
    run.save(update_fields=["in_doubt_count"])


def _require_move(operation: Operation, to: OperationState) -> None:
    """Refuse before anything is written, so that a caller who goes on keeps no part of a refused move."""
    if to not in OPERATION_MOVES[OperationState(operation.state)]:
        raise _refused(operation, to)


def _refused(operation: Operation, to: OperationState) -> MoveRefused:
    state = str(operation.state)
    return MoveRefused(f"Operation {operation.pk} is {state}; it can't become {to}.", state=state)


def _compare_and_set(operation: Operation, to: OperationState, now: datetime) -> None:
    _require_move(operation, to)
    before = OperationState(operation.state)
    # The times belong to the same CHECKs as the state, so they change in the same statement.
    changes: dict[str, Any] = {"state": to}
    if to in OPERATION_SETTLED:
        changes["settled_at"] = now
    if to == OperationState.SENT_UNKNOWN and operation.first_sent_at is None:
        changes["first_sent_at"] = now
    changed = Operation.objects.filter(pk=operation.pk, state=before).update(**changes)
    if changed != 1:
        raise MoveRefused(f"Operation {operation.pk} is no longer {before}.", state=str(before))
    for name, value in changes.items():
        setattr(operation, name, value)


def _append(
    locked: LockedOperation,
    action: str,
    actor: Actor,
    before: OperationState,
    after: dict[str, Any],
    evidence: Evidence | None,
    reason: str,
) -> None:
    operation = locked.operation
    audit.append(
        audit.Event(
            action=action,
            actor=actor,
            team=operation.team_id,
            run=operation.run_id,
            operation=operation.pk,
            before={"state": str(before)},
            after={"state": str(operation.state), **after},
            evidence=evidence.digest if evidence else "",
            reason=reason,
        )
    )
