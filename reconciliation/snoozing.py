"""Putting a case off: until a time, with a reason, and never past what would make it worse.

A case that is put off waits in no list until then. It wakes before: with new evidence, with whatever else
moves its version, when it becomes a conflict, when its contract is tightened, and in time before its key
ends. Putting off is no decision: it moves no version, and a decision about a case that is put off counts.
The only writer of `CaseSnooze`; `cases` and `tightening` wake what they change.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from reconciliation.decisions import Forbidden, find_case
from reconciliation.models import Case
from reconciliation.moves import append_event
from reconciliation.states import CaseKind, CaseState
from reconciliation.work_models import CaseSnooze
from reconciliation.working import REASON_LENGTH_MAX, REASON_LENGTH_MIN, Worker
from runs.actors import ActorKind
from runs.journal.evidence import storable_text
from runs.locking import database_now
from runs.models import NAME_LENGTH
from runs.refusals import Invalid, Refusal

# Shorter is a glance away; longer is a decision that nobody wants to make.
SNOOZE_SECONDS_MIN: Final = 5 * 60
SNOOZE_SECONDS_MAX: Final = 7 * 24 * 3_600
# What a person needs to read a case and repeat it while its key still protects.
WAKE_BEFORE_KEY_SECONDS: Final = 30 * 60


class NotWaiting(Refusal):
    """The case doesn't wait for a person now, so there is nothing to put off; `state` says what it does."""

    word: ClassVar[str] = "not_waiting"


class ConflictStaysAwake(Refusal):
    """More happened than was intended, or evidence contradicts itself: that isn't put off."""

    word: ClassVar[str] = "conflict_stays_awake"


class KeyEndsSoon(Refusal):
    """The key ends so soon that the case would wake at once; `key_ends_at` says when."""

    word: ClassVar[str] = "key_ends_soon"


class NotSnoozed(Refusal):
    """The case isn't put off, or woke already."""

    word: ClassVar[str] = "not_snoozed"


def awake(now: datetime | Now) -> Q:
    """Cases that nobody has put off, or whose time has come."""
    return Q(snoozed_until_at__isnull=True) | Q(snoozed_until_at__lte=now)


def asleep(now: datetime) -> Q:
    """Cases that are put off."""
    return Q(snoozed_until_at__gt=now)


def is_asleep(case: Case, now: datetime) -> bool:
    """Whether this case is put off."""
    return case.snoozed_until_at is not None and case.snoozed_until_at > now


def snooze(*, case_id: str, team: str | None, worker: Worker, until_at: datetime, reason: str) -> datetime:
    """Put a case off; returns when it wakes at the latest, which is sooner where its key ends sooner.

    A case that is put off already gets the new time. Owns its transaction. Refuses in this order, having
    changed nothing: `NotFound`, `Forbidden`, `Invalid`, `NotWaiting`, `ConflictStaysAwake`, `KeyEndsSoon`.
    """
    found = find_case(case_id=case_id, team=team)
    if worker.actor.kind is not ActorKind.PERSON:
        raise Forbidden("Only a person puts a case off.", actor=str(worker.actor.kind))
    if not REASON_LENGTH_MIN <= len(reason.strip()) <= REASON_LENGTH_MAX:
        raise Invalid(
            f"Give a reason of {REASON_LENGTH_MIN} to {REASON_LENGTH_MAX:,} characters.", where="reason"
        )
    with transaction.atomic():
        case = Case.objects.select_for_update().get(pk=found.pk)
        now = database_now()
        _check_time(until_at, now)
        wakes_at = _wakes_at(case, until_at, now)
        case.snoozed_until_at = wakes_at
        case.save(update_fields=["snoozed_until_at"])
        fields: dict[str, Any] = {
            "until_at": wakes_at,
            "reason": storable_text(reason.strip()),
            "actor": worker.actor.id,
            "actor_name": storable_text(worker.name)[:NAME_LENGTH],
            "made_at": now,
        }
        made, _ = CaseSnooze.objects.update_or_create(case=case, defaults=fields)
        after = {"until": wakes_at.isoformat(), "asked_until": until_at.isoformat()}
        append_event(case, worker.actor, "case.snoozed", after=after, reason=made.reason)
    return wakes_at


def unsnooze(*, case_id: str, team: str | None, worker: Worker) -> None:
    """Wake a case that is put off. Owns its transaction. Raises `NotFound`, `Forbidden`, `NotSnoozed`."""
    found = find_case(case_id=case_id, team=team)
    if worker.actor.kind is not ActorKind.PERSON:
        raise Forbidden("Only a person wakes a case.", actor=str(worker.actor.kind))
    with transaction.atomic():
        case = Case.objects.select_for_update().get(pk=found.pk)
        if not is_asleep(case, database_now()):
            raise NotSnoozed("This case isn’t put off: it waits in the list.", case=case.pk)
        case.snoozed_until_at = None
        case.save(update_fields=["snoozed_until_at"])
        append_event(case, worker.actor, "case.unsnoozed", after={})


def _check_time(until_at: datetime, now: datetime) -> None:
    shortest, longest = timedelta(seconds=SNOOZE_SECONDS_MIN), timedelta(seconds=SNOOZE_SECONDS_MAX)
    if not now + shortest <= until_at <= now + longest:
        raise Invalid(
            f"It can be put off for {SNOOZE_SECONDS_MIN // 60} minutes to {SNOOZE_SECONDS_MAX // 86_400}"
            " days.",
            where="until",
        )


def _wakes_at(case: Case, until_at: datetime, now: datetime) -> datetime:
    """When it wakes at the latest; refuses a case that must not sleep."""
    if case.state != CaseState.NEEDS_DECISION:
        raise NotWaiting("This case doesn’t wait for a person now.", case=case.pk, state=str(case.state))
    if case.kind == CaseKind.CONFLICT:
        raise ConflictStaysAwake(
            "More happened than was intended, or evidence contradicts itself: this case isn’t put off.",
            case=case.pk,
        )
    if case.key_ends_at is None or case.key_ends_at <= now:
        return until_at
    in_time = case.key_ends_at - timedelta(seconds=WAKE_BEFORE_KEY_SECONDS)
    if in_time < now + timedelta(seconds=SNOOZE_SECONDS_MIN):
        raise KeyEndsSoon(
            "The same key is safe for too short a time to put this case off: after it ends, a repeat is "
            "no longer protected.",
            case=case.pk,
            key_ends_at=case.key_ends_at.isoformat(),
        )
    return min(until_at, in_time)
