"""Who is told by which way, and of what: the only writer of channels.

A person says it of themselves; an administrator says it of their teams, which stays in the audit log.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar, Final

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction

from console.models import Person
from console.notification_models import ADDRESS_LENGTH, Channel, ChannelState, Happening, Medium
from runs import audit
from runs.actors import Actor
from runs.ids import new_id
from runs.models import Team
from runs.refusals import Invalid, NotFound, Refusal

# Each is told of everything that it wants to hear of: so many are a mistake.
CHANNELS_MAX: Final = 20
CHANNEL_SET: Final = "notification.channel_set"


class ChannelTaken(Refusal):
    """The team tells this mailbox or webhook already."""

    word: ClassVar[str] = "channel_taken"


class ChannelsFull(Refusal):
    """The team has as many channels as a team may have."""

    word: ClassVar[str] = "channels_full"


def set_own(*, person: Person, happenings: Collection[Happening]) -> Channel:
    """Tell a person of these by mail; of nothing, for none. Their address is their login's.

    Raises `Invalid` for a person without an address. Owns its transaction.
    """
    if happenings and not person.email:
        raise Invalid("Your login has no e-mail address; an administrator enters it.", where="happenings")
    with transaction.atomic():
        Channel.objects.bulk_create(
            [Channel(id=new_id("chan"), person=person, medium=Medium.EMAIL, made_by=f"person:{person.pk}")],
            ignore_conflicts=True,
        )
        channel = Channel.objects.select_for_update().get(person=person)
        channel.happenings = _sorted(happenings)
        channel.state = ChannelState.ON if happenings else ChannelState.OFF
        channel.save(update_fields=["happenings", "state"])
    return channel


def add(
    *,
    team: str,
    teams: Collection[str],
    medium: Medium,
    address: str,
    happenings: Collection[Happening],
    actor: Actor,
) -> Channel:
    """Tell a team's mailbox, or a webhook of the environment, of these.

    Raises `NotFound` for another team, `Invalid` for what can't be told to, `ChannelTaken`, `ChannelsFull`.
    Owns its transaction.
    """
    address = _checked(medium, address.strip(), happenings)
    with transaction.atomic():
        # Held, so that two at once are counted one after the other.
        held = Team.objects.select_for_update().filter(pk=team).first() if team in teams else None
        if held is None:
            raise NotFound("There is no such team among yours.")
        there = Channel.objects.filter(team=held).exclude(state=ChannelState.REMOVED)
        if there.filter(medium=medium, address=address).exists():
            raise ChannelTaken(f"{held.name} tells {address} already. Change what it hears of below.")
        if there.count() >= CHANNELS_MAX:
            raise ChannelsFull(f"{held.name} tells {CHANNELS_MAX} already; remove one before.")
        channel = Channel.objects.create(
            id=new_id("chan"),
            team=held,
            medium=medium,
            address=address,
            happenings=_sorted(happenings),
            made_by=actor.id,
        )
        _append(channel, actor)
    return channel


def change(
    *,
    channel_id: str,
    teams: Collection[str],
    happenings: Collection[Happening],
    state: ChannelState,
    actor: Actor,
) -> Channel:
    """Let a team's channel hear of these from now on, or switch it off or remove it.

    Raises `NotFound` for another team's or a removed one, `Invalid` for one that would hear of nothing.
    Owns its transaction.
    """
    with transaction.atomic():
        rows = Channel.objects.select_for_update().filter(pk=channel_id, team__in=teams)
        channel = rows.exclude(state=ChannelState.REMOVED).first()
        if channel is None:
            raise NotFound("There is no such channel in your teams.")
        if state is ChannelState.ON and not happenings:
            raise Invalid("Choose what it hears of, or switch it off.", where="happenings")
        channel.state = state
        if state is not ChannelState.REMOVED:
            channel.happenings = _sorted(happenings)
        channel.save(update_fields=["happenings", "state"])
        _append(channel, actor)
    return channel


def _checked(medium: Medium, address: str, happenings: Collection[Happening]) -> str:
    if not happenings:
        raise Invalid("Choose what it hears of.", where="happenings")
    if medium is Medium.WEBHOOK:
        if address not in settings.RECOURSE_NOTIFY_WEBHOOKS:
            raise Invalid("Choose one of the webhooks that the environment names.", where="webhook")
        return address
    try:
        validate_email(address)
    except ValidationError:
        raise Invalid("Write one e-mail address, such as payments@example.com.", where="email") from None
    if len(address) > ADDRESS_LENGTH:
        raise Invalid("That address is too long.", where="email")
    return address


def _sorted(happenings: Collection[Happening]) -> Sequence[str]:
    return [str(one) for one in Happening if one in happenings]


def _append(channel: Channel, actor: Actor) -> None:
    audit.append(
        audit.Event(
            action=CHANNEL_SET,
            actor=actor,
            team=channel.team_id or "",
            subject=channel.pk,
            after={
                "medium": str(channel.medium),
                "to": channel.address,
                "happenings": list(channel.happenings),
                "state": str(channel.state),
            },
        )
    )
