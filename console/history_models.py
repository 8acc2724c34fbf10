"""What the effect history is narrowed by: the audit log's entries in a table of the console's own.

`history_filing` is the only writer. Nothing that sends or settles an effect writes here, so that an index for
each way of asking costs the journal nothing. All of it can be thrown away and filed anew from the log.
"""

from __future__ import annotations

from enum import StrEnum

from django.db import models
from django.db.models import Q

from console.following import Following
from runs.models import NAME_LENGTH, one_of

# One row keeps the progress; there is one history to file.
PROGRESS_ID = 1
ACTION_LENGTH = 40


class Mark(StrEnum):
    """What sets an entry apart. What each means to an auditor is said in `present/marked.py`."""

    # A person did it.
    PEOPLE = "people"
    # Somebody tried to approve what they had asked for themselves; it was refused.
    OWN_APPROVAL = "own_approval"
    # The same key was sent, or allowed to be sent, after the provider stopped recognising it.
    LATE_RETRY = "late_retry"
    # Confirmed without a receipt that matches: by an override of two people, or matched by a person's word.
    OVERRIDE = "override"
    # The evidence contradicts itself: more effects than intended, or one after it was settled otherwise.
    CONFLICT = "conflict"
    # A colleague's claim, or a worker's lease, was taken away.
    TAKEOVER = "takeover"
    # Something hidden was shown to somebody.
    REVEALED = "revealed"
    # A worker wrote under a lease that was over, and was refused.
    FENCED = "fenced"
    # A report came when its lease was over, or for an attempt that was never given.
    LATE_EVIDENCE = "late_evidence"
    # A person decided within seconds of being asked.
    QUICK = "quick"
    # A person decided before any lookup had told something.
    NO_LOOKUP = "no_lookup"


class HistoryEntry(models.Model):
    """An entry of the audit log, by what it is searched by. Rows are written in thousands: no references."""

    leaf = models.BigIntegerField(primary_key=True)
    at = models.DateTimeField()
    team_slug = models.CharField(max_length=NAME_LENGTH)
    action = models.CharField(max_length=ACTION_LENGTH)
    # Empty where the entry isn't about one operation.
    provider = models.CharField(max_length=NAME_LENGTH, blank=True)
    actor = models.CharField(max_length=NAME_LENGTH)

    class Meta:
        # One for each combination of action, provider and actor, each in the order of time, so that every
        # page of every one is a stretch of an index.
        indexes = [
            models.Index(fields=["team_slug", "at", "leaf"], name="history_of_team"),
            models.Index(fields=["team_slug", "action", "at", "leaf"], name="history_by_action"),
            models.Index(fields=["team_slug", "provider", "at", "leaf"], name="history_by_provider"),
            models.Index(fields=["team_slug", "actor", "at", "leaf"], name="history_by_actor"),
            models.Index(
                fields=["team_slug", "provider", "action", "at", "leaf"], name="history_by_provider_action"
            ),
            models.Index(
                fields=["team_slug", "actor", "action", "at", "leaf"], name="history_by_actor_action"
            ),
            models.Index(
                fields=["team_slug", "actor", "provider", "at", "leaf"], name="history_by_actor_provider"
            ),
            models.Index(
                fields=["team_slug", "actor", "provider", "action", "at", "leaf"], name="history_by_all_three"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.leaf}"


class HistoryMark(models.Model):
    """That an entry is set apart: few of all, each kind in the order of time."""

    id = models.BigAutoField(primary_key=True)
    leaf = models.BigIntegerField()
    mark = models.CharField(max_length=20)
    at = models.DateTimeField()
    team_slug = models.CharField(max_length=NAME_LENGTH)
    # The entry's, for what is asked together most: what people did at one account. Without a default in the
    # database: a worker of the version before, which doesn't know it, files nothing rather than without it.
    provider = models.CharField(max_length=NAME_LENGTH, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["leaf", "mark"], name="history_mark_once_for_each"),
            models.CheckConstraint(condition=one_of("mark", Mark), name="history_mark_known"),
        ]
        indexes = [
            models.Index(fields=["team_slug", "mark", "at", "leaf"], name="history_marked"),
            models.Index(
                fields=["team_slug", "mark", "provider", "at", "leaf"], name="history_marked_by_provider"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.mark} {self.leaf}"


class HistoryProgress(Following):
    """How far into the audit log the history has been filed."""

    id = models.SmallIntegerField(primary_key=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(id=PROGRESS_ID), name="history_progress_one_row"),
        ]
