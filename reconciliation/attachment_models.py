"""What people attach to cases: the bytes as they were given, never changed. `attaching` alone writes them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from django.db import models
from django.db.models import Q

from runs.models import DIGEST_LENGTH, NAME_LENGTH, Evidence, one_of

# A screenshot of a large display, or some dozens of pages of PDF. What is longer has a place of its own.
ATTACHMENT_BYTES_MAX: Final = 2 * 1024 * 1024
FILE_NAME_LENGTH_MAX: Final = 200


class MediaType(StrEnum):
    """What may be attached, told by the content and never by a name."""

    TEXT = "text/plain"
    JSON = "application/json"
    PNG = "image/png"
    JPEG = "image/jpeg"
    PDF = "application/pdf"


class CaseAttachment(models.Model):
    """The bytes behind a piece of evidence that a person attached. Never changed and never deleted."""

    id = models.BigAutoField(primary_key=True)
    evidence = models.OneToOneField(Evidence, on_delete=models.PROTECT, related_name="attachment")
    case = models.ForeignKey("reconciliation.Case", on_delete=models.PROTECT, related_name="attachments")
    # As its giver called it: for people to read, and nothing follows from it.
    name = models.CharField(max_length=FILE_NAME_LENGTH_MAX, blank=True)
    media_type = models.CharField(max_length=40)
    content = models.BinaryField()
    length = models.IntegerField()
    sha256 = models.CharField(max_length=DIGEST_LENGTH)
    actor = models.CharField(max_length=NAME_LENGTH)
    actor_name = models.CharField(max_length=NAME_LENGTH, blank=True)
    # The form's own, so that an attachment which arrives twice is one.
    key = models.CharField(max_length=64)
    made_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["actor", "key"], name="case_attachment_key_once_per_actor"),
            models.CheckConstraint(
                condition=one_of("media_type", MediaType), name="case_attachment_type_known"
            ),
            models.CheckConstraint(
                condition=Q(length__gte=1, length__lte=ATTACHMENT_BYTES_MAX), name="case_attachment_bounded"
            ),
        ]

    def __str__(self) -> str:
        return f"attachment of {self.evidence_id}"
