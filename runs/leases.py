"""Leases: who may advance a run until when, with a fencing token that outdates everyone before.

A token is `number-secret`: the number grows with each claim, and the secret is random digits that can't be
guessed and a mark that only this deployment can have made. The mark is looked at in tokens that are refused:
one from a time that a restored journal has forgotten is told from one that somebody made up. A lapsed lease
is a reason to investigate and never a permission to send (DESIGN law 14).
"""

from __future__ import annotations

import hmac
import math
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, Final

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from runs import audit
from runs.actors import Actor, ActorKind
from runs.ids import check_client_id, could_be_id
from runs.journal.evidence import storable_text
from runs.journal.pausing import add_pause_reason, drop_pause_reason, end_lease, refresh_outcome_pause
from runs.keys import LEASE_MARK_BYTES, lease_mark
from runs.locking import Locked, database_now, lock_run
from runs.models import NAME_LENGTH, Attempt, FlowVersion, Lease, Operation, Run
from runs.refusals import Invalid, Refusal
from runs.states import (
    RUN_ENDED,
    AttemptOutcome,
    Executor,
    LeaseEnd,
    OperationState,
    PauseReason,
    RunState,
)

__all__ = [
    "AlreadyClaimed",
    "Claimed",
    "FlowVersionMismatch",
    "OutcomeNotTakenIn",
    "RunEnded",
    "RunPaused",
    "StaleToken",
    "add_pause_reason",
    "claim",
    "drop_pause_reason",
    "end_lease",
    "given_number",
    "left_unreported",
    "new_token",
    "paused_refusal",
    "paused_sentence",
    "release",
    "renew",
    "require_token",
    "revoke",
]

# Shorter than 5 s, a garbage collection loses a lease; longer than an hour, a dead worker blocks a run
# for longer than a person would wait (API.md).
LEASE_SECONDS_MIN = 5
LEASE_SECONDS_MAX = 3600
# 80 random bits: a token can't be guessed even by somebody who knows the number.
TOKEN_SECRET_BYTES = 10
_TOKEN = re.compile(
    rf"([1-9][0-9]{{0,18}})-([0-9a-f]{{{2 * TOKEN_SECRET_BYTES}}})([0-9a-f]{{{2 * LEASE_MARK_BYTES}}})"
)
# A claim marks its version as alive at most this often, so that claims don't queue for one row.
VERSION_SEEN_EVERY_SECONDS = 5


class StaleToken(Refusal):
    """The token isn't the run's current one, or its lease has ended; nothing was written under it."""

    word: ClassVar[str] = "stale_token"


class AlreadyClaimed(Refusal):
    """Another claim holds the run; details name the holder and how long its lease still lasts."""

    word: ClassVar[str] = "already_claimed"


class RunPaused(Refusal):
    """The run is paused for the reasons in the details; it becomes claimable when they fall away."""

    word: ClassVar[str] = "run_paused"


class RunEnded(Refusal):
    """The run is completed or abandoned and takes no more work."""

    word: ClassVar[str] = "run_ended"


class FlowVersionMismatch(Refusal):
    """The worker runs another version than the one the run is pinned to; nothing changed."""

    word: ClassVar[str] = "flow_version_mismatch"


class OutcomeNotTakenIn(Refusal):
    """An earlier worker left a sent operation unreported: it must be taken in before anyone claims.

    Never reaches a caller of the API: whoever claims takes it in first and asks again.
    """

    word: ClassVar[str] = "run_paused"


@dataclass(frozen=True)
class Claimed:
    """A live lease: its fencing token and its end, by the database's clock."""

    run: Run
    token: str
    expires_at: datetime
    expires_in_ms: int
    claim_id: str
    replayed: bool


# Of each reason what is awaited, and from whom; told from the run's own row, so that a refusal reads no more.
_AWAITED: Final[dict[str, str]] = {
    PauseReason.OUTCOME: "an outcome isn't known, which is asked of the provider, or of a person in its case",
    PauseReason.BUDGET: "its next effect would exceed its budget, which an approver may raise",
    PauseReason.APPROVAL: "its approval has ended, and an approver may renew it",
    PauseReason.FLOW_VERSION: "no worker of its pinned flow version has come: it goes on when one claims it,"
    " or when an approver moves it to another version",
    PauseReason.FROZEN: "sending is frozen after a restore, until an administrator says which database this"
    " is and what may have been sent is settled",
}


def paused_refusal(run: Run) -> RunPaused:
    """Say why the run is paused and what is awaited from whom, in the same words everywhere."""
    reasons = list(run.paused_reasons)
    return RunPaused(paused_sentence(run.id, reasons), run=run.id, reasons=reasons)


def paused_sentence(run_id: str, reasons: Sequence[str], *, outcome: str = "") -> str:
    """The refusal's sentence; `outcome` takes the place of what is said of that reason in general."""
    named: dict[str, str] = {**_AWAITED, PauseReason.OUTCOME: outcome} if outcome else _AWAITED
    awaited = "; ".join(named.get(one, one) for one in reasons)
    return f"Run {run_id} is paused: {awaited}. Nothing is sent until that is settled."


def claim(
    *,
    team: str,
    run_id: str,
    claim_id: str,
    worker: str,
    flow_version: str,
    lease_seconds: int,
    flow_digest: str = "",
) -> Claimed:
    """Give the worker the next token, if nobody else holds the run.

    Refuses in this order (API.md): `RunEnded`, `RunPaused`, `FlowVersionMismatch`, `AlreadyClaimed`.
    The same claim id of the same worker gets the same token again while its lease lives, and `StaleToken`
    after. A lease that has run out is ended here, which may pause the run; an operation that it left sent and
    unreported raises `OutcomeNotTakenIn`. Owns its transaction.
    """
    check_client_id(claim_id, where="claim_id")
    check_client_id(worker, where="worker")
    if not 1 <= len(flow_version) <= NAME_LENGTH or storable_text(flow_version) != flow_version:
        raise Invalid(f"flow_version must be text of 1 to {NAME_LENGTH} characters.", where="flow_version")
    if not LEASE_SECONDS_MIN <= lease_seconds <= LEASE_SECONDS_MAX:
        raise Invalid(
            f"lease_seconds must be from {LEASE_SECONDS_MIN} to {LEASE_SECONDS_MAX}.", where="lease_seconds"
        )
    _mark_version_seen(team=team, run_id=run_id, flow_version=flow_version)
    asked = _Ask(claim_id, worker, flow_version, flow_digest, lease_seconds)
    with transaction.atomic():
        answer = _decide_claim(lock_run(run_id=run_id, team=team), asked)
    # A pause is kept: the refusal is raised after its commit.
    if isinstance(answer, Refusal):
        raise answer
    return answer


@dataclass(frozen=True)
class _Ask:
    claim_id: str
    worker: str
    flow_version: str
    flow_digest: str
    lease_seconds: int


def _decide_claim(locked: Locked, asked: _Ask) -> Claimed | RunPaused:
    run, now = locked.run, locked.now
    live = run.lease_token is not None and run.lease_expires_at is not None and run.lease_expires_at > now
    lease = Lease.objects.filter(run=run, claim_id=asked.claim_id).first()
    # The same claim id from another worker, or for another version, isn't the same claim.
    same = lease is not None and (lease.worker, lease.flow_version) == (asked.worker, asked.flow_version)
    if live and lease is not None and lease.token == run.lease_token and same:
        return _claim_again(run, lease, now)
    _refuse_ended_or_paused(locked, asked.flow_version)
    _refuse_other_version(run, asked.flow_version, asked.flow_digest)
    if live and run.lease_expires_at is not None:
        left_ms = _left_ms(run.lease_expires_at, now)
        raise AlreadyClaimed(
            f"{run.lease_holder} holds run {run.id}; its lease ends in {math.ceil(left_ms / 1000)} s, unless"
            " it is renewed.",
            holder=run.lease_holder,
            expires_in_ms=left_ms,
        )
    if lease is not None:
        raise StaleToken(
            f"The lease of claim {lease.claim_id} has ended; a new claim needs a new claim id.", run=run.id
        )
    if left_unreported(run).exists():
        raise OutcomeNotTakenIn(f"Run {run.id} has an operation whose sender is gone.", run=run.id)
    end_lease(locked, by=LeaseEnd.EXPIRED)
    refresh_outcome_pause(locked)
    if run.state == RunState.PAUSED:
        return paused_refusal(run)
    return _claim_now(locked, asked)


def left_unreported(run: Run) -> QuerySet[Operation]:
    """The operations that a worker whose lease is over sent and didn't report: first sends and repeats.

    Taking one in ends its open attempts as unreported and opens the doubt, which pauses the run if nothing
    may be sent. A repeat was in doubt before it was sent, so the open attempt tells it, not the doubt.
    """
    by_agent = Attempt.objects.filter(
        operation=OuterRef("pk"), outcome=AttemptOutcome.OPEN, executor=Executor.AGENT
    )
    return Operation.objects.filter(run=run, state=OperationState.SENT_UNKNOWN).filter(
        Q(in_doubt_since_at__isnull=True) | Exists(by_agent)
    )


def _claim_again(run: Run, lease: Lease, now: datetime) -> Claimed:
    return Claimed(
        run=run,
        token=lease.token,
        expires_at=lease.expires_at,
        expires_in_ms=_left_ms(lease.expires_at, now),
        claim_id=lease.claim_id,
        replayed=True,
    )


def _refuse_ended_or_paused(locked: Locked, flow_version: str) -> None:
    run = locked.run
    if run.state in RUN_ENDED:
        raise RunEnded(f"Run {run.id} is {run.state}.", run=run.id, state=run.state)
    if run.state == RunState.PAUSED:
        # A worker of the pinned version has come: that reason is gone by its coming.
        if flow_version == run.flow_version.version and run.paused_reasons == [PauseReason.FLOW_VERSION]:
            drop_pause_reason(locked, PauseReason.FLOW_VERSION)
            return
        raise paused_refusal(run)


def _refuse_other_version(run: Run, flow_version: str, flow_digest: str) -> None:
    pinned = run.flow_version
    if flow_version != pinned.version or (flow_digest and pinned.digest and flow_digest != pinned.digest):
        raise FlowVersionMismatch(
            f"Run {run.id} is pinned to version {pinned.version} of {run.flow.name}.",
            pinned=pinned.version,
            pinned_digest=pinned.digest,
            yours=flow_version,
        )


def _claim_now(locked: Locked, asked: _Ask) -> Claimed:
    run, now = locked.run, locked.now
    expires_at = now + timedelta(seconds=asked.lease_seconds)
    number = run.lease_number + 1
    token = new_token(run.id, number)
    Lease.objects.create(
        run=run,
        number=number,
        token=token,
        claim_id=asked.claim_id,
        worker=asked.worker,
        flow_version=asked.flow_version,
        seconds=asked.lease_seconds,
        claimed_at=now,
        expires_at=expires_at,
    )
    run.lease_number, run.lease_token = number, token
    run.lease_holder, run.lease_expires_at = asked.worker, expires_at
    run.save(update_fields=["lease_number", "lease_token", "lease_holder", "lease_expires_at"])
    audit.append(
        audit.Event(
            action="run.claimed",
            actor=Actor(ActorKind.WORKER, asked.worker),
            team=run.team_id,
            run=run.id,
            after={"lease": number, "flow_version": asked.flow_version},
        )
    )
    return Claimed(
        run=run,
        token=token,
        expires_at=expires_at,
        expires_in_ms=asked.lease_seconds * 1000,
        claim_id=asked.claim_id,
        replayed=False,
    )


def new_token(run_id: str, number: int) -> str:
    """A token for this lease, with its mark; whoever makes one gives it out with the lease."""
    secret = secrets.token_hex(TOKEN_SECRET_BYTES)
    return f"{number}-{secret}{lease_mark(run=run_id, number=number, secret=secret)}"


def given_number(*, run_id: str, token: str) -> int | None:
    """The number of the lease that a token is of, None unless this deployment gave it out for this run.

    Says nothing about whether the lease is on record, or lives: that is `require_token`. A token from before
    tokens carried a mark is nobody's.
    """
    parts = _TOKEN.fullmatch(token)
    if parts is None:
        return None
    number, secret, mark = int(parts[1]), parts[2], parts[3]
    right = lease_mark(run=run_id, number=number, secret=secret)
    return number if hmac.compare_digest(mark, right) else None


def renew(*, team: str, run_id: str, token: str, lease_seconds: int | None = None) -> Claimed:
    """Move the lease's end; by default to as far from now as the claim asked. Owns its transaction.

    Raises `StaleToken` (also after expiry), `RunPaused` when the run was paused and its lease ended.
    """
    if lease_seconds is not None and not LEASE_SECONDS_MIN <= lease_seconds <= LEASE_SECONDS_MAX:
        raise Invalid(
            f"lease_seconds must be from {LEASE_SECONDS_MIN} to {LEASE_SECONDS_MAX}.", where="lease_seconds"
        )
    with transaction.atomic():
        locked = lock_run(run_id=run_id, team=team)
        require_token(locked, token)
        run, now = locked.run, locked.now
        lease = Lease.objects.get(run=run, number=run.lease_number)
        length = timedelta(seconds=lease_seconds or lease.seconds)
        # A renewal never shortens what was promised.
        expires_at = max(now + length, lease.expires_at)
        Lease.objects.filter(pk=lease.pk).update(expires_at=expires_at)
        Run.objects.filter(pk=run.pk).update(lease_expires_at=expires_at)
        return Claimed(
            run=run,
            token=token,
            expires_at=expires_at,
            expires_in_ms=_left_ms(expires_at, now),
            claim_id=lease.claim_id,
            replayed=False,
        )


def release(*, team: str, run_id: str, token: str) -> tuple[Run, bool]:
    """Give the lease back; returns the run, and whether that had been done already. Owns its transaction."""
    with transaction.atomic():
        locked = lock_run(run_id=run_id, team=team)
        given_back = Lease.objects.filter(run=locked.run, token=token, ended_by=LeaseEnd.RELEASED)
        if could_be_id(token) and given_back.exists():
            return locked.run, True
        require_token(locked, token)
        end_lease(locked, by=LeaseEnd.RELEASED)
        return locked.run, False


def revoke(
    *, team: str, run_id: str, actor: Actor, reason: str, number: int | None = None
) -> tuple[Run, bool]:
    """Take the lease away from its holder; its later writes are refused and kept as evidence.

    Returns the run, and whether lease `number` had been revoked already. Naming the lease (None: whichever
    lives) keeps a repeat from ending the one that came after it. Raises `StaleToken` if it isn't the live
    one. Owns its transaction.
    """
    with transaction.atomic():
        locked = lock_run(run_id=run_id, team=team)
        if locked.run.lease_token is None or number not in (None, locked.run.lease_number):
            revoked = Lease.objects.filter(run=locked.run, ended_by=LeaseEnd.REVOKED)
            if number is not None and revoked.filter(number=number).exists():
                return locked.run, True
            raise StaleToken(
                f"Nobody holds run {run_id}" + (f" by lease {number}." if number is not None else "."),
                run=run_id,
            )
        end_lease(locked, by=LeaseEnd.REVOKED, actor=actor, reason=reason)
        return locked.run, False


def require_token(locked: Locked, token: str) -> None:
    """Refuse unless the token is the run's current one and its lease hasn't ended by `locked.now`."""
    run, now = locked.run, locked.now
    if run.lease_token == token and run.lease_expires_at is not None and run.lease_expires_at > now:
        return
    if run.state == RunState.PAUSED:
        raise paused_refusal(run)
    raise StaleToken(
        f"This token no longer holds run {run.id}. What you report with it is kept as evidence.", run=run.id
    )


def _mark_version_seen(*, team: str, run_id: str, flow_version: str) -> None:
    # Outside the claim's transaction: it must be kept also when the claim is refused.
    if not could_be_id(run_id):
        return
    now = database_now()
    stale = now - timedelta(seconds=VERSION_SEEN_EVERY_SECONDS)
    seen = FlowVersion.objects.filter(flow__runs__id=run_id, flow__team=team, version=flow_version)
    version = seen.values("id", "last_worker_at").first()
    if version and (version["last_worker_at"] is None or version["last_worker_at"] < stale):
        FlowVersion.objects.filter(pk=version["id"]).update(last_worker_at=now)


def _left_ms(until: datetime, now: datetime) -> int:
    return max(0, int((until - now) / timedelta(milliseconds=1)))
