"""Send what is packed: claim a message, send it outside of any transaction, say what came of it.

A claim ends by itself. Whoever is killed between sending and saying so leaves a message that is sent again
under the same id: never lost, and its receiver can tell. What isn't taken waits longer each time; after some
days it is given up, which the notifications' page shows.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, assert_never

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Q

from console.notification_models import (
    BECAUSE_LENGTH,
    Medium,
    Message,
    MessageState,
    Occurrence,
)
from console.notifying import occurring, packing, senders
from console.notifying.senders import NotTaken, Outcome, Taken
from runs import audit
from runs.actors import Actor
from runs.ids import new_id
from runs.locking import database_now
from runs.refusals import NotFound

log = structlog.get_logger(__name__)

# In the audit log: a person had a message sent that waited or was given up.
RETRIED: Final = "notification.retried"
# Longer than any attempt: a task that takes longer is ended before (`CELERY_TASK_TIME_LIMIT`).
CLAIM: Final = timedelta(seconds=120)
# The first wait after an attempt that failed; it doubles, with jitter, up to the longest.
WAIT: Final = timedelta(seconds=15)
WAIT_MAX: Final = timedelta(minutes=30)
# News that is older is none: what it was about has been decided, or is in the queue's first lines.
GIVE_UP_AFTER: Final = timedelta(days=3)
# One pass lasts at most about so long; beat calls the next.
PASS_SECONDS: Final = 20.0
# What was told stays on record so long.
KEPT: Final = timedelta(days=90)
FORGOTTEN_AT_ONCE: Final = 1_000


@dataclass(frozen=True, kw_only=True)
class Passed:
    """What one pass did."""

    noted: int
    packed: int
    sent: int
    not_taken: int


def make_pass() -> Passed:
    """Note what happened, pack what waits, send what is due. Any number of passes at once."""
    noted = occurring.note(now=database_now()).occurrences
    packed = packing.pack(now=database_now())
    sent, not_taken = deliver()
    forget(now=database_now())
    return Passed(noted=noted, packed=packed, sent=sent, not_taken=not_taken)


def deliver(*, seconds: float = PASS_SECONDS) -> tuple[int, int]:
    """Send what is due, longest due first, for at most about so long: how many were taken, and how many not.

    Owns its transactions; none is open while anything is sent.
    """
    ends = time.monotonic() + seconds
    sent = not_taken = 0
    # Ways that are closed for everybody now: one attempt in each pass finds out whether they still are.
    closed: set[str] = set()
    while time.monotonic() < ends and (claimed := _claim(without=closed)) is not None:
        outcome = _send(claimed)
        if isinstance(outcome, Taken):
            sent += 1
        elif outcome is not None:
            not_taken += 1
            if outcome.everybody:
                closed.add(claimed.channel.medium)
        _end(claimed, outcome)
    return sent, not_taken


def _claim(*, without: set[str]) -> Message | None:
    """The next message that is due, claimed by us; None for none."""
    with transaction.atomic():
        now = database_now()
        due = Message.objects.filter(state=MessageState.WAITING, next_attempt_at__lte=now)
        free = due.filter(Q(claimed_until_at__isnull=True) | Q(claimed_until_at__lte=now))
        message = (
            free.exclude(channel__medium__in=without)
            .select_for_update(skip_locked=True, of=("self",))
            .select_related("channel__person")
            .order_by("next_attempt_at", "id")
            .first()
        )
        if message is None:
            return None
        message.claim, message.claimed_until_at = new_id("send"), now + CLAIM
        message.attempts_count += 1
        # Also for one that is never heard of again: it may end whoever sends it.
        message.next_attempt_at = now + _wait(message.attempts_count)
        message.save(update_fields=["claim", "claimed_until_at", "attempts_count", "next_attempt_at"])
        return message


def _wait(attempts: int) -> timedelta:
    ceiling = min(WAIT_MAX.total_seconds(), WAIT.total_seconds() * 2 ** min(attempts - 1, 16))
    return timedelta(seconds=ceiling * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, not a secret


def _send(message: Message) -> Outcome | None:
    """Make one attempt; None if it is for nobody any more."""
    channel = message.channel
    if packing.why_not(channel, message.team_id):
        return None
    match Medium(channel.medium):
        case Medium.EMAIL:
            to = channel.address if channel.person is None else channel.person.email
            return senders.send_email(message, to=to)
        case Medium.WEBHOOK:
            webhook = settings.RECOURSE_NOTIFY_WEBHOOKS.get(channel.address)
            if webhook is None:
                return NotTaken(because=f"The environment names no webhook {channel.address}.")
            return senders.send_webhook(message, webhook=webhook)
        case never:
            assert_never(never)


def _end(message: Message, outcome: Outcome | None) -> None:
    """Say what came of an attempt, unless its claim has ended and somebody else is at it."""
    now = database_now()
    ended: dict[str, object] = {
        "claim": "",
        "claimed_until_at": None,
        "next_attempt_at": None,
        "ended_at": now,
    }
    match outcome:
        case None:
            why = packing.why_not(message.channel, message.team_id)
            change = ended | {"state": MessageState.DROPPED, "because": why}
        case Taken():
            change = ended | {"state": MessageState.SENT, "because": ""}
        case NotTaken(because=because, final=final, retry_after=retry_after):
            because = because[:BECAUSE_LENGTH]
            if final or now - message.tried_from_at >= GIVE_UP_AFTER:
                change = ended | {"state": MessageState.FAILED, "because": because}
            else:
                wait = max(_wait(message.attempts_count), retry_after or timedelta())
                change = {
                    "claim": "",
                    "claimed_until_at": None,
                    "next_attempt_at": now + wait,
                    "because": because,
                }
        case never:
            assert_never(never)
    saved = Message.objects.filter(pk=message.pk, claim=message.claim, state=MessageState.WAITING).update(
        **change
    )
    log.info(
        "notification_attempt",
        message=message.pk,
        medium=message.channel.medium,
        attempt=message.attempts_count,
        outcome=str(change.get("state", MessageState.WAITING)),
        because=str(change.get("because", "")),
        counted=bool(saved),
    )


def try_again(*, message_id: str, teams: tuple[str, ...], actor: Actor) -> Message:
    """Have a message that waits or was given up tried at once. Raises `NotFound` for another team's.

    One that was sent, or is being sent, is left as it is; else who had it tried is in the audit log. Owns
    its transaction.
    """
    with transaction.atomic():
        message = Message.objects.select_for_update().filter(pk=message_id, team__in=teams).first()
        if message is None:
            raise NotFound("There is no such message in your teams.")
        now = database_now()
        claimed = message.claimed_until_at is not None and message.claimed_until_at > now
        if message.state in (MessageState.WAITING, MessageState.FAILED) and not claimed:
            audit.append(
                audit.Event(
                    action=RETRIED,
                    actor=actor,
                    team=message.team_id or "",
                    subject=message.pk,
                    before={"state": str(message.state), "attempts": message.attempts_count},
                    after={"state": str(MessageState.WAITING)},
                )
            )
            message.state, message.ended_at = MessageState.WAITING, None
            message.next_attempt_at = message.tried_from_at = now
            message.save(update_fields=["state", "ended_at", "next_attempt_at", "tried_from_at"])
        return message


def forget(*, now: datetime) -> None:
    """Take away what was told long ago; what waits is never old enough."""
    old = Message.objects.filter(made_at__lt=now - KEPT).exclude(state=MessageState.WAITING)
    ids = list(old.order_by("made_at").values_list("pk", flat=True)[:FORGOTTEN_AT_ONCE])
    if ids:
        Message.objects.filter(pk__in=ids).delete()
    stale = Occurrence.objects.filter(noted_at__lt=now - KEPT).exclude(notifications__state="waiting")
    gone = list(stale.order_by("noted_at").values_list("pk", flat=True)[:FORGOTTEN_AT_ONCE])
    if gone:
        Occurrence.objects.filter(pk__in=gone).delete()
