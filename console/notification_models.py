"""What people and teams are told outside the console, as an outbox: who is told what, and what came of it.

Nothing is sent from here: `notifying` fills it behind the audit log, `packing` makes messages of what waits,
`delivering` sends them. Every row is written before anything leaves, so a crash forgets none, and a message
keeps its id through every attempt, so that its receiver knows the second of two.
"""

from __future__ import annotations

from enum import StrEnum

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from console.following import Following
from runs.models import ID_LENGTH, NAME_LENGTH, Team, one_of

# RFC 5321 allows 64 before the @ and 255 after it.
ADDRESS_LENGTH = 320
MARK_LENGTH = 40
BECAUSE_LENGTH = 300
SUBJECT_LENGTH = 200
# One row keeps the progress; there is one outbox to fill.
PROGRESS_ID = 1


class Happening(StrEnum):
    """What people are told of."""

    # A case came to people.
    NEEDS_DECISION = "needs_decision"
    # Its key is about to end: after that a retry isn't the same request any more.
    KEY_ENDS_SOON = "key_ends_soon"
    # The flow's time limit for a decision passed, and nobody decided.
    TIME_LIMIT_PASSED = "time_limit_passed"
    # Somebody asks for a second person.
    APPROVAL_REQUESTED = "approval_requested"
    # A request that nobody has answered is about to end.
    APPROVAL_ENDS_SOON = "approval_ends_soon"
    # More is known than can be true at once: more effects than intended, or success after the end.
    CONFLICT = "conflict"
    # Lookups at an account got no usable answer several times in a row.
    BREAKER_OPEN = "breaker_open"


class Medium(StrEnum):
    EMAIL = "email"
    WEBHOOK = "webhook"


class ChannelState(StrEnum):
    # Enters: made, or switched on again. Leaves: switched off or removed.
    ON = "on"
    # Enters: by its owner. What happens meanwhile isn't told later.
    OFF = "off"
    # Enters: by its owner. Final: what went through it stays on record.
    REMOVED = "removed"


class NotificationState(StrEnum):
    # Enters: with what happened. Leaves: packed into a message, or for a reason not told.
    WAITING = "waiting"
    # Enters: a message has it; what becomes of it is the message's state. Final.
    PACKED = "packed"
    # Enters: it was over before it was told. Final.
    OVERTAKEN = "overtaken"
    # Enters: whom it was for is told nothing any more: channel off, login closed, not of the team. Final.
    NOT_FOR_THEM = "not_for_them"


class MessageState(StrEnum):
    # Enters: packed. Leaves: sent, given up, or not for its receiver any more. A Celery worker moves it on.
    WAITING = "waiting"
    # Enters: the mail server or the webhook took it. Final.
    SENT = "sent"
    # Enters: refused for good, or not taken for days. Leaves: an administrator has it tried anew.
    FAILED = "failed"
    # Enters: whom it was for may be told nothing any more. Final.
    DROPPED = "dropped"


class Channel(models.Model):
    """A way to tell somebody: a team's mailbox or webhook, or a person's own mailbox; and what they hear of.

    A person's address is their login's, read when something is sent. A webhook's address and its secret are
    in the environment, under a name: whoever knows such an address can post to it.
    """

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    team = models.ForeignKey(Team, null=True, on_delete=models.PROTECT, related_name="channels")
    person = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="channels"
    )
    medium = models.CharField(max_length=10)
    # A team's: the address, or the webhook's name in the environment.
    address = models.CharField(max_length=ADDRESS_LENGTH, blank=True)
    happenings = ArrayField(models.CharField(max_length=30), default=list)
    state = models.CharField(max_length=10, default=ChannelState.ON)
    made_by = models.CharField(max_length=NAME_LENGTH)
    made_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(team__isnull=False, person__isnull=True) & ~Q(address="")
                | Q(team__isnull=True, person__isnull=False, address="", medium="email"),
                name="channel_of_a_team_or_a_person",
            ),
            models.UniqueConstraint(
                fields=["team", "medium", "address"],
                condition=Q(team__isnull=False) & ~Q(state="removed"),
                name="channel_once_in_team",
            ),
            models.UniqueConstraint(
                fields=["person"], condition=Q(person__isnull=False), name="channel_once_per_person"
            ),
            models.CheckConstraint(condition=one_of("medium", Medium), name="channel_medium_known"),
            models.CheckConstraint(condition=one_of("state", ChannelState), name="channel_state_known"),
            models.CheckConstraint(
                condition=Q(happenings__contained_by=[str(one) for one in Happening]),
                name="channel_happenings_known",
            ),
        ]

    def __str__(self) -> str:
        return self.id


class Occurrence(models.Model):
    """Something that happened in one team and that people may be told of; once, whoever finds it."""

    id = models.BigAutoField(primary_key=True)
    happening = models.CharField(max_length=30)
    # A case's, an approval's or an account's id.
    subject = models.CharField(max_length=NAME_LENGTH)
    # Tells it from the same happening at another time: a case's version, a key's end.
    mark = models.CharField(max_length=MARK_LENGTH, blank=True)
    # No references: each points to something that is never deleted, and there are many.
    team_slug = models.CharField(max_length=NAME_LENGTH)
    case_ref = models.CharField(max_length=ID_LENGTH, blank=True)
    provider_slug = models.CharField(max_length=NAME_LENGTH, blank=True)
    flow_name = models.CharField(max_length=NAME_LENGTH, blank=True)
    # Who made it happen, as records name them: nobody is told of their own request.
    actor = models.CharField(max_length=NAME_LENGTH, blank=True)
    # When it gets worse; null where nothing is known to.
    ends_at = models.DateTimeField(null=True)
    happened_at = models.DateTimeField()
    noted_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["subject", "happening", "mark", "team_slug"], name="occurrence_once"
            ),
            models.CheckConstraint(
                condition=one_of("happening", Happening), name="occurrence_happening_known"
            ),
        ]
        indexes = [models.Index(fields=["noted_at"], name="occurrence_to_forget")]

    def __str__(self) -> str:
        return f"{self.happening} of {self.subject}"


class Message(models.Model):
    """One message to one channel about one team's things, as it was written; sent until it is taken."""

    # Also what the receiver tells two of the same by: the Message-ID's first half, the webhook's id.
    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="messages", db_index=False)
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="+", db_index=False)
    # Written once: a second attempt must say what the first said.
    subject = models.CharField(max_length=SUBJECT_LENGTH)
    content = models.JSONField()
    count = models.IntegerField()
    state = models.CharField(max_length=10, default=MessageState.WAITING)
    attempts_count = models.IntegerField(default=0)
    next_attempt_at = models.DateTimeField(null=True)
    # Who is sending it, until when; empty while nobody is.
    claim = models.CharField(max_length=40, blank=True)
    claimed_until_at = models.DateTimeField(null=True)
    # Why it isn't sent; the latest reason.
    because = models.CharField(max_length=BECAUSE_LENGTH, blank=True)
    made_at = models.DateTimeField()
    # From when the days are counted after which it is given up: when it was made, or had tried anew.
    tried_from_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=one_of("state", MessageState), name="message_state_known"),
            models.CheckConstraint(
                condition=Q(state="waiting", ended_at__isnull=True, next_attempt_at__isnull=False)
                | ~Q(state="waiting")
                & Q(ended_at__isnull=False, next_attempt_at__isnull=True, claim="")
                & Q(claimed_until_at__isnull=True),
                name="message_ended_has_its_time",
            ),
        ]
        indexes = [
            # What is to be sent, longest due first.
            models.Index(fields=["next_attempt_at", "id"], name="message_due", condition=Q(state="waiting")),
            # The page, and how many a channel got in the last hour.
            models.Index(fields=["channel", "-made_at", "-id"], name="message_of_channel"),
            models.Index(fields=["team", "-made_at", "-id"], name="message_of_team"),
            models.Index(
                fields=["team", "-made_at", "-id"], name="message_failed", condition=Q(state="failed")
            ),
            models.Index(fields=["made_at"], name="message_to_forget"),
        ]

    def __str__(self) -> str:
        return self.id


class Notification(models.Model):
    """One occurrence for one channel: exactly one, however often it is found."""

    id = models.BigAutoField(primary_key=True)
    occurrence = models.ForeignKey(
        Occurrence, on_delete=models.CASCADE, related_name="notifications", db_index=False
    )
    channel = models.ForeignKey(
        Channel, on_delete=models.CASCADE, related_name="notifications", db_index=False
    )
    # Its occurrence's: what waits is packed by channel and team.
    team_slug = models.CharField(max_length=NAME_LENGTH)
    state = models.CharField(max_length=20, default=NotificationState.WAITING)
    message = models.ForeignKey(Message, null=True, on_delete=models.CASCADE, related_name="notifications")
    because = models.CharField(max_length=BECAUSE_LENGTH, blank=True)
    made_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["occurrence", "channel"], name="notification_once_per_channel"),
            models.CheckConstraint(
                condition=one_of("state", NotificationState), name="notification_state_known"
            ),
            models.CheckConstraint(
                condition=Q(state="packed", message__isnull=False)
                | ~Q(state="packed") & Q(message__isnull=True),
                name="notification_packed_has_its_message",
            ),
        ]
        indexes = [
            models.Index(
                fields=["channel", "team_slug", "id"],
                name="notification_waiting",
                condition=Q(state="waiting"),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.occurrence_id} for {self.channel_id}"


class NotificationProgress(Following):
    """How far into the audit log what happened has been taken over."""

    id = models.SmallIntegerField(primary_key=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(id=PROGRESS_ID), name="notification_progress_one_row"),
        ]
