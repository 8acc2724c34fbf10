"""Exports of the effect history: what was asked for, how far it is, and its bytes in pieces.

`exporting` is the only writer. The row stays as the manifest; the pieces are deleted after some days.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from runs.models import DIGEST_LENGTH, ID_LENGTH, NAME_LENGTH, one_of

QUERY_LENGTH: Final = 1_500


class ExportForm(StrEnum):
    """In which form entries are written."""

    # One JSON object a line, with the entry's own bytes in it.
    JSONL = "jsonl"
    # RFC 4180, in which a spreadsheet calculates nothing.
    CSV = "csv"


class ExportState(StrEnum):
    # Enters: somebody asked for it. Leaves: every entry is written. A Celery worker moves it on.
    RUNNING = "running"
    # Enters: every entry is written, and the hash is over all of it. Leaves: its bytes are deleted.
    DONE = "done"
    # Enters: its bytes were deleted after their time. Final: the manifest stays.
    FORGOTTEN = "forgotten"


class HistoryExport(models.Model):
    """One export: its filters as the address has them, the teams it is of, and from the end on its hash."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    form = models.CharField(max_length=10)
    state = models.CharField(max_length=10, default=ExportState.RUNNING)
    query = models.CharField(max_length=QUERY_LENGTH, blank=True)
    teams = ArrayField(models.CharField(max_length=NAME_LENGTH))
    actor = models.CharField(max_length=NAME_LENGTH)
    actor_name = models.CharField(max_length=NAME_LENGTH, blank=True)
    asked_at = models.DateTimeField()
    # The latest entry when it was asked for: later ones aren't in it.
    through_leaf = models.BigIntegerField()

    # How far it is: the place in the history after which it goes on, and how much is written.
    at_time = models.DateTimeField(null=True)
    at_leaf = models.BigIntegerField(null=True)
    entries_count = models.BigIntegerField(default=0)
    bytes_count = models.BigIntegerField(default=0)
    pieces_count = models.IntegerField(default=0)
    # "yes" once nothing is missing, "no" where there was more than an export holds, or more of one name.
    whole = models.CharField(max_length=3, blank=True)
    sha256 = models.CharField(max_length=DIGEST_LENGTH, blank=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=one_of("form", ExportForm), name="export_form_known"),
            models.CheckConstraint(condition=one_of("state", ExportState), name="export_state_known"),
            models.CheckConstraint(
                condition=Q(state="running", ended_at__isnull=True, sha256="", whole="")
                | ~Q(state="running") & Q(ended_at__isnull=False, whole__in=["yes", "no"]) & ~Q(sha256=""),
                name="export_ended_has_its_hash",
            ),
            models.CheckConstraint(
                condition=Q(at_leaf__isnull=True, at_time__isnull=True)
                | Q(at_leaf__isnull=False, at_time__isnull=False),
                name="export_place_whole",
            ),
        ]
        indexes = [
            models.Index(fields=["actor", "-id"], name="export_of_actor"),
            models.Index(fields=["id"], name="export_running", condition=Q(state="running")),
            models.Index(fields=["ended_at"], name="export_to_forget", condition=Q(state="done")),
        ]

    def __str__(self) -> str:
        return self.id


class ExportPiece(models.Model):
    """Some of an export's bytes: whole entries, in their order."""

    id = models.BigAutoField(primary_key=True)
    export = models.ForeignKey(HistoryExport, on_delete=models.PROTECT, related_name="pieces", db_index=False)
    number = models.IntegerField()
    content = models.BinaryField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["export", "number"], name="export_piece_once_in_export"),
        ]

    def __str__(self) -> str:
        return f"{self.export_id} {self.number}"
