"""The notifications' pages: what was told and what wasn't, and who is told of what."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from console.pages.shapes.case import FieldError
from console.pages.shapes.parts import Badge, Banner, Choice, EmptyState, NextPage, Tab


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageLine:
    """One line of a message as it was written; `href` leads into the console."""

    text: str
    href: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageRow:
    """One message; `retry_href` is "" where it can't be tried now, or not by this person.

    `next_attempt_at` is None also for an attempt that is `due`: its time has come.
    """

    message_id: str
    to: str
    way: str
    subject: str
    lines: tuple[MessageLine, ...]
    more: int
    badge: Badge
    why: str
    made_at: datetime
    ended_at: datetime | None
    next_attempt_at: datetime | None
    due: bool
    attempts: int
    retry_href: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NotificationListPage:
    """`notification_list.html`."""

    now: datetime
    lead: str
    tabs: tuple[Tab, ...]
    rows: tuple[MessageRow, ...]
    waiting: str
    banner: Banner | None = None
    empty: EmptyState | None = None
    next: NextPage | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class HappeningChoice:
    """One thing that can be told of; `field` is its checkbox's id."""

    value: str
    field: str
    label: str
    text: str
    chosen: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelRow:
    """A team's mailbox or webhook; `href` takes its form, "" for somebody who may not."""

    channel_id: str
    team: str
    to: str
    way: str
    badge: Badge
    hears: str
    note: str
    choices: tuple[HappeningChoice, ...]
    href: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelForm:
    """A new channel of a team."""

    href: str
    teams: tuple[Choice, ...]
    email: str
    webhooks: tuple[Choice, ...]
    choices: tuple[HappeningChoice, ...]
    errors: tuple[FieldError, ...] = ()

    @property
    def error_fields(self) -> tuple[str, ...]:
        return tuple(one.field for one in self.errors)


@dataclass(frozen=True, kw_only=True, slots=True)
class NotificationSettingsPage:
    """`notification_settings.html`. `closed` is why this person changes no team's channels, else ""."""

    now: datetime
    address: str
    # Who enters the address where there is none.
    enters: str
    own: tuple[HappeningChoice, ...]
    own_href: str
    channels: tuple[ChannelRow, ...]
    closed: str
    notes: tuple[str, ...]
    form: ChannelForm | None = None
    banner: Banner | None = None
