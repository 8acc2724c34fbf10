"""Make messages of what waits: many at once become one, and nobody gets more than so many in an hour.

A message is written once, with everything that waited for its receiver; what was over before it was told is
left out and says so. Each receiver's row is locked while theirs is packed, so two passes pack nothing twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import connection, transaction

from console import access
from console.access import Deed
from console.notification_models import (
    Channel,
    ChannelState,
    Happening,
    Message,
    Notification,
    NotificationState,
    Occurrence,
)
from console.notifying import wording
from reconciliation.approval_models import ApprovalRequest, ApprovalState
from reconciliation.models import Case
from reconciliation.states import CaseState
from runs.ids import new_id
from runs.models import ProviderAccount

# What happens together is told together: so long after the first the message is written.
GATHER: Final = timedelta(seconds=10)
HOUR: Final = timedelta(hours=1)
# Notifications of one message, and messages of one pass.
PACKED_MAX: Final = 5_000
MESSAGES_MAX: Final = 100

# About a case that waits for people: over once it doesn't.
_OF_WAITING_CASES: Final = frozenset(
    {Happening.NEEDS_DECISION, Happening.KEY_ENDS_SOON, Happening.TIME_LIMIT_PASSED}
)
_OF_OPEN_APPROVALS: Final = frozenset({Happening.APPROVAL_REQUESTED, Happening.APPROVAL_ENDS_SOON})

# The receivers that something waits for, by who has waited longest.
_WAITING: Final = """
SELECT channel_id, team_slug FROM console_notification WHERE state = 'waiting'
GROUP BY channel_id, team_slug HAVING min(made_at) <= %s ORDER BY min(id) LIMIT %s
"""


def pack(*, now: datetime) -> int:
    """Write the messages that are due; how many. Owns its transactions."""
    with connection.cursor() as cursor:
        cursor.execute(_WAITING, [now - GATHER, MESSAGES_MAX])
        waiting: list[tuple[str, str]] = cursor.fetchall()
    return sum(_pack_one(channel_id, team, now) for channel_id, team in waiting)


def why_not(channel: Channel, team: str) -> str:
    """Why this channel is told nothing of the team's; "" if it is. Asked when packing and when sending."""
    if channel.state != ChannelState.ON:
        return (
            "The channel is switched off."
            if channel.state == ChannelState.OFF
            else "The channel was removed."
        )
    person = channel.person
    if person is None:
        return "" if channel.team_id == team else "The channel is another team’s."
    if not person.is_active:
        return "Their login is closed."
    if not access.may(person, Deed.VIEW):
        return "They hold no role that sees cases."
    if team not in access.teams_of(person):
        return "They aren’t in the team any more."
    return ""


def held_until(channel: Channel, *, now: datetime) -> datetime | None:
    """Until when a receiver who got as many messages in the last hour as anybody gets is left alone."""
    most: int = settings.RECOURSE_NOTIFICATIONS_PER_HOUR
    lately = Message.objects.filter(channel=channel, made_at__gt=now - HOUR).order_by("-made_at", "-id")
    first = lately.values_list("made_at", flat=True)[most - 1 : most].first()
    return None if first is None else first + HOUR


def _pack_one(channel_id: str, team: str, now: datetime) -> int:
    with transaction.atomic():
        channel = (
            Channel.objects.select_for_update(skip_locked=True, of=("self",))
            .select_related("person")
            .filter(pk=channel_id)
            .first()
        )
        if channel is None:
            return 0  # another pass is at it
        waiting = Notification.objects.filter(
            channel=channel, team_slug=team, state=NotificationState.WAITING
        )
        refused = why_not(channel, team)
        if refused:
            waiting.update(state=NotificationState.NOT_FOR_THEM, because=refused)
            return 0
        if held_until(channel, now=now) is not None:
            return 0
        picked = list(waiting.select_related("occurrence").order_by("id")[:PACKED_MAX])
        over = _over([one.occurrence for one in picked])
        gone = [one.pk for one in picked if one.occurrence_id in over]
        if gone:
            Notification.objects.filter(pk__in=gone).update(
                state=NotificationState.OVERTAKEN, because="It was over before it was told."
            )
        left = [one for one in picked if one.occurrence_id not in over]
        if not left:
            return 0
        message = _write(channel, team, [one.occurrence for one in left], now)
        Notification.objects.filter(pk__in=[one.pk for one in left]).update(
            state=NotificationState.PACKED, message=message
        )
        return 1


def _over(occurrences: Iterable[Occurrence]) -> set[int]:
    """Those that need no telling any more: the case was settled, the request was answered."""
    cases, approvals = [], []
    for one in occurrences:
        if one.happening in _OF_WAITING_CASES:
            cases.append(one)
        elif one.happening in _OF_OPEN_APPROVALS:
            approvals.append(one)
    waits = (CaseState.NEEDS_DECISION, CaseState.AWAITING_APPROVAL)
    waiting = set(
        Case.objects.filter(pk__in={one.subject for one in cases}, state__in=waits).values_list(
            "pk", flat=True
        )
    )
    asked = set(
        ApprovalRequest.objects.filter(
            pk__in={one.subject for one in approvals}, state=ApprovalState.REQUESTED
        ).values_list("pk", flat=True)
    )
    return {one.pk for one in cases if one.subject not in waiting} | {
        one.pk for one in approvals if one.subject not in asked
    }


def _write(channel: Channel, team: str, told: Sequence[Occurrence], now: datetime) -> Message:
    counts = Counter(Happening(one.happening) for one in told)
    latest = max(one.happened_at for one in told)
    first = sorted(
        told,
        key=lambda one: (wording.ORDER.index(Happening(one.happening)), one.ends_at or latest, one.pk),
    )[: wording.LINES_MAX]
    slugs = {one.provider_slug for one in first}
    titles = dict(ProviderAccount.objects.filter(slug__in=slugs).values_list("slug", "title"))
    written = wording.write(team=team, counts=counts, first=first, titles=titles)
    return Message.objects.create(
        id=new_id("msg"),
        channel=channel,
        team_id=team,
        subject=written.subject,
        content=written.content,
        count=len(told),
        next_attempt_at=now,
        made_at=now,
        tried_from_at=now,
    )
