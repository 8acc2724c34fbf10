"""What people were told outside the console, what wasn't, and who is told of what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from django.db.models import Q, QuerySet

from console.notification_models import (
    Channel,
    ChannelState,
    Message,
    MessageState,
    Notification,
    NotificationState,
)
from console.queries import keyset
from console.queries.queue import merged_ids
from runs.locking import database_now
from runs.models import Team

PAGE_ROWS = 50
# More is "1,000+": what waits is packed in minutes.
WAITING_MAX = 1_000
_ORDER: Final = ("-made_at", "-id")


class View(StrEnum):
    """Which messages a list shows, newest first."""

    ALL = "all"
    # Waiting after an attempt, given up, or dropped.
    UNDELIVERED = "undelivered"


@dataclass(frozen=True, kw_only=True)
class Asked:
    view: View = View.ALL
    after: str = ""


@dataclass(frozen=True, kw_only=True)
class Reach:
    """Whose messages somebody sees: those about `teams`, or else their own alone."""

    teams: tuple[str, ...]
    person_id: int
    own_only: bool


@dataclass(frozen=True, kw_only=True)
class Listed:
    now: datetime
    messages: tuple[Message, ...]
    # What no message has yet, up to a cap.
    waiting: int
    after: str = ""


@dataclass(frozen=True, kw_only=True)
class Channels:
    """Who is told of what: somebody's own channel, None before they chose, and those of their teams."""

    own: Channel | None
    teams: tuple[Team, ...]
    channels: tuple[Channel, ...]


def list_messages(*, reach: Reach, asked: Asked) -> Listed:
    """Read one page. Raises `Invalid` for a cursor that can't be read."""
    condition = Q()
    if asked.view is View.UNDELIVERED:
        condition &= ~Q(state=MessageState.SENT)
    if asked.after:
        at, pk = keyset.unpack(asked.after, datetime, str)
        condition &= Q(made_at__lte=at) & (Q(made_at__lt=at) | Q(id__lt=pk))
    if reach.own_only:
        condition &= Q(channel__person=reach.person_id)

    def of_team(team: str) -> QuerySet[Message, Any]:
        return Message.objects.filter(condition, team=team).order_by(*_ORDER)

    ids = merged_ids(reach.teams, of_team, _ORDER, PAGE_ROWS + 1)
    found = Message.objects.select_related("channel__person", "channel__team").in_bulk(ids[:PAGE_ROWS])
    messages = tuple(found[one] for one in ids[:PAGE_ROWS] if one in found)
    after = keyset.pack(messages[-1].made_at, messages[-1].pk) if len(ids) > PAGE_ROWS else ""
    return Listed(now=database_now(), messages=messages, waiting=_waiting(reach), after=after)


def _waiting(reach: Reach) -> int:
    waiting = Notification.objects.filter(state=NotificationState.WAITING, team_slug__in=reach.teams)
    if reach.own_only:
        waiting = waiting.filter(channel__person=reach.person_id)
    return waiting[: WAITING_MAX + 1].count()


def read_channels(*, person_id: int, teams: Sequence[str]) -> Channels:
    """Read who is told of what; removed ones are left out."""
    rows = Channel.objects.filter(team__in=teams).exclude(state=ChannelState.REMOVED)
    return Channels(
        own=Channel.objects.filter(person=person_id).first(),
        teams=tuple(Team.objects.filter(pk__in=teams).order_by("slug")),
        channels=tuple(rows.select_related("team").order_by("team", "made_at", "id")),
    )
