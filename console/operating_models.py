"""How the deployment is doing: when its parts last showed that they work, and what the log holds so far.

Nothing here is history: a row says how things stand, and is made anew when it is lost.
"""

from __future__ import annotations

from enum import StrEnum

from django.db import models
from django.db.models import Q

from console.following import Following
from runs.models import NAME_LENGTH, one_of

# One row keeps the progress; there is one count.
PROGRESS_ID = 1


class Part(StrEnum):
    """What shows that it works by doing it."""

    # A pass of the sweeper that came to its end.
    SWEEPER = "sweeper"
    # A task that beat sent, the broker carried and a worker ran.
    WORKER = "worker"


class Pulse(models.Model):
    """When a part of the deployment last did what it is there for."""

    part = models.CharField(primary_key=True, max_length=20)
    at = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(condition=one_of("part", Part), name="pulse_part_known")]

    def __str__(self) -> str:
        return f"{self.part} at {self.at}"


class LogCount(models.Model):
    """How many entries of one kind the audit log holds, as far as they are counted. Only ever grows."""

    id = models.BigAutoField(primary_key=True)
    action = models.CharField(max_length=NAME_LENGTH)
    actor_kind = models.CharField(max_length=20, blank=True)
    # Of what a lookup told; "" for every other entry.
    finding = models.CharField(max_length=20, blank=True)
    count = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["action", "actor_kind", "finding"], name="log_count_once"),
        ]

    def __str__(self) -> str:
        return f"{self.count} {self.action}"


class CountingProgress(Following):
    """How far into the audit log entries are counted."""

    id = models.SmallIntegerField(primary_key=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(id=PROGRESS_ID), name="counting_progress_one_row"),
        ]
