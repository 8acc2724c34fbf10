"""The notifications' pages in words."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final
from urllib.parse import urlencode

from django.conf import settings
from django.urls import reverse

from console.models import Person, Role
from console.notification_models import (
    Channel,
    ChannelState,
    Happening,
    Medium,
    Message,
    MessageState,
)
from console.notifying.wording import EXPLAINED, LABELS
from console.pages.present.marks import plural
from console.pages.shapes import Badge, Banner, Choice, EmptyState, FieldError, Link, NextPage, Tab
from console.pages.shapes.notification import (
    ChannelForm,
    ChannelRow,
    HappeningChoice,
    MessageLine,
    MessageRow,
    NotificationListPage,
    NotificationSettingsPage,
)
from console.queries.notifications import WAITING_MAX, Asked, Channels, Listed, View

_TABS: Final = {View.ALL: "All", View.UNDELIVERED: "Not delivered"}
_BADGES: Final = {
    MessageState.SENT: Badge(word="Delivered", icon="circle-check", tone="green"),
    MessageState.FAILED: Badge(word="Given up", icon="circle-x", tone="red"),
    MessageState.DROPPED: Badge(word="Not for them any more", icon="circle-slash"),
}
_WAITS: Final = Badge(word="Being sent", icon="send", tone="blue")
_WAITS_AGAIN: Final = Badge(word="Not delivered yet", icon="clock", tone="amber", open=True)
_ON: Final = Badge(word="On", icon="circle-check", tone="green")
_OFF: Final = Badge(word="Off", icon="circle-pause")


# --- The list -------------------------------------------------------------------------------------------


def notification_list_page(
    listed: Listed, asked: Asked, *, own_only: bool, person_id: int, banner: Banner | None = None
) -> NotificationListPage:
    """One page of messages; whoever sees only their own has none tried again."""
    path = reverse("notification_list")
    lead = (
        "What you were told by mail, newest first."
        if own_only
        else "What your teams and their people were told outside the console, newest first."
    )
    next_page = None
    if listed.after:
        query = {**({"view": str(asked.view)} if asked.view is not View.ALL else {}), "after": listed.after}
        next_page = NextPage(href=f"?{urlencode(query)}", label="Load older messages")
    unset = _unset()
    return NotificationListPage(
        now=listed.now,
        lead=f"{lead} Messages name ids, accounts, kinds and times; never what an effect holds.",
        tabs=tuple(
            Tab(
                label=label,
                href=path if view is View.ALL else f"{path}?view={view}",
                current=view is asked.view,
            )
            for view, label in _TABS.items()
        ),
        rows=tuple(
            _row(one, now=listed.now, may=not own_only and unset is None, person_id=person_id)
            for one in listed.messages
        ),
        waiting=_waiting(listed.waiting),
        banner=banner or unset,
        empty=None if listed.messages else _empty(asked, own_only=own_only),
        next=next_page,
    )


def _row(message: Message, *, now: datetime, may: bool, person_id: int) -> MessageRow:
    state = MessageState(message.state)
    tried = message.attempts_count > 0 and bool(message.because)
    claimed = message.claimed_until_at is not None and message.claimed_until_at > now
    due = message.next_attempt_at is not None and message.next_attempt_at <= now
    again = (
        may and not claimed and (state is MessageState.FAILED or (state is MessageState.WAITING and tried))
    )
    return MessageRow(
        message_id=message.pk,
        to=to_of(message.channel, person_id=person_id),
        way=_way(message.channel),
        subject=message.subject,
        lines=tuple(
            MessageLine(text=str(line["text"]), href=str(line["path"])) for line in message.content["lines"]
        ),
        more=int(message.content["more"]),
        badge=_BADGES.get(state) or (_WAITS_AGAIN if tried else _WAITS),
        why=message.because,
        made_at=message.made_at,
        ended_at=message.ended_at,
        next_attempt_at=message.next_attempt_at if tried and not due else None,
        due=tried and due,
        attempts=message.attempts_count,
        retry_href=reverse("notification_retry", args=[message.pk]) if again else "",
    )


def to_of(channel: Channel, *, person_id: int = 0) -> str:
    """Who hears by it: a person by their name, not by their address."""
    if channel.person is not None:
        return "You" if channel.person.pk == person_id else str(channel.person)
    return channel.address


def _way(channel: Channel) -> str:
    return "webhook" if channel.medium == Medium.WEBHOOK else "e-mail"


def _waiting(count: int) -> str:
    if not count:
        return ""
    many = f"{WAITING_MAX:,}+ notifications" if count > WAITING_MAX else plural(count, "notification")
    return (
        f"{many} not in a message yet: what happens together is told together, and nobody gets more than"
        f" {settings.RECOURSE_NOTIFICATIONS_PER_HOUR} messages an hour."
    )


def _empty(asked: Asked, *, own_only: bool) -> EmptyState:
    if asked.view is View.UNDELIVERED or asked.after:
        return EmptyState(
            title="Nothing here",
            text="Messages that weren’t taken show here with the reason, until they are.",
            icon="circle-check",
            action=Link("Show all messages", reverse("notification_list")),
        )
    return EmptyState(
        title=f"{'You weren’t' if own_only else 'Nobody was'} told anything yet",
        text="A message shows here as soon as something happens that"
        f" {'you' if own_only else 'somebody'} chose to hear of.",
        icon="mail",
        action=Link("Choose what to hear of", reverse("notification_settings")),
    )


def _unset() -> Banner | None:
    if settings.RECOURSE_MAIL_CONFIGURED or settings.RECOURSE_NOTIFY_WEBHOOKS:
        return None
    return Banner(
        tone="amber",
        icon="mail",
        title=("This deployment has no way to tell anybody.",),
        text=(
            "No mail server and no webhook is set in its environment. Messages wait, and are given up later.",
        ),
    )


# --- Who is told of what ----------------------------------------------------------------------------------


def notification_settings_page(
    read: Channels,
    *,
    now: datetime,
    person: Person,
    why_not: str,
    draft: Mapping[str, str],
    drafted: Collection[str] = (),
    errors: tuple[FieldError, ...] = (),
    banner: Banner | None = None,
) -> NotificationSettingsPage:
    """The page; `why_not` is why this person changes no team's channels, "" if they may."""
    own = read.own.happenings if read.own is not None and read.own.state == ChannelState.ON else ()
    form = None
    if not why_not and read.teams:
        form = ChannelForm(
            href=reverse("notification_channel_add"),
            teams=tuple(
                Choice(value=one.slug, label=one.name, selected=one.slug == draft.get("team"))
                for one in read.teams
            ),
            email=draft.get("email", ""),
            webhooks=tuple(
                Choice(
                    value=one.name,
                    label=f"{one.name} ({one.host})",
                    selected=one.name == draft.get("webhook"),
                )
                for one in settings.RECOURSE_NOTIFY_WEBHOOKS.values()
            ),
            choices=choices_of(drafted, prefix="new"),
            errors=errors,
        )
    return NotificationSettingsPage(
        now=now,
        address=person.email,
        # Nobody changes their own account, an administrator neither.
        enters="Another administrator" if Role.ADMINISTRATOR in person.roles else "An administrator",
        own=choices_of(own, prefix="own"),
        own_href=reverse("notification_own") if person.email else "",
        channels=tuple(_channel(one, why_not) for one in read.channels),
        closed=why_not,
        notes=_notes(),
        form=form,
        banner=banner,
    )


def choices_of(chosen: Collection[str], *, prefix: str) -> tuple[HappeningChoice, ...]:
    return tuple(
        HappeningChoice(
            value=str(one),
            field=f"{prefix}-{one}",
            label=LABELS[one],
            text=EXPLAINED[one],
            chosen=str(one) in chosen,
        )
        for one in Happening
    )


def _channel(channel: Channel, why_not: str) -> ChannelRow:
    hears = [LABELS[one] for one in Happening if str(one) in channel.happenings]
    gone = channel.medium == Medium.WEBHOOK and channel.address not in settings.RECOURSE_NOTIFY_WEBHOOKS
    return ChannelRow(
        channel_id=channel.pk,
        team=str(channel.team),
        to=channel.address,
        way=_way(channel),
        badge=_ON if channel.state == ChannelState.ON else _OFF,
        hears=", ".join(hears),
        note="The environment names no such webhook any more: nothing gets there." if gone else "",
        choices=choices_of(channel.happenings, prefix=channel.pk),
        href="" if why_not else reverse("notification_channel", args=[channel.pk]),
    )


def _notes() -> tuple[str, ...]:
    said = []
    if not settings.RECOURSE_MAIL_CONFIGURED:
        said.append("No mail server is set (RECOURSE_MAIL_URL), so no mail is sent.")
    if not settings.RECOURSE_PUBLIC_URL:
        said.append("The console’s own address isn’t set (RECOURSE_PUBLIC_URL), so messages hold no links.")
    if not settings.RECOURSE_NOTIFY_WEBHOOKS:
        said.append("The environment names no webhook (NOTIFY_<NAME>__URL), so none can be chosen.")
    return tuple(said)
