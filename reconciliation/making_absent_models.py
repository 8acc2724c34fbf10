"""Requests that make an effect absent: each on disk before it leaves, and what became of it.

`making_absent` is the only writer. A row never goes, what it is about never changes, and one that has ended
stays as it ended; triggers refuse all three, for everybody.
"""

from __future__ import annotations

from enum import StrEnum

from django.db import models
from django.db.models import F, Q

from reconciliation.providers.base import AbsenceKind
from runs.models import ID_LENGTH, Evidence, Operation, one_of


class AbsenceState(StrEnum):
    # Enters: with the request's record, before it leaves. Leaves: its answer is recorded, or it can no longer
    # take effect and nobody knows its answer.
    SENT = "sent"
    # It has an answer, or a positive sign that it never left: see `outcome`. Final.
    ANSWERED = "answered"
    # Whoever sent it died or was cut off: it may have left, and may have taken effect. Final.
    UNANSWERED = "unanswered"


class AbsenceRequest(models.Model):
    """One request to make an operation's effect absent, by what two people decided."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    operation = models.ForeignKey(
        Operation, on_delete=models.PROTECT, related_name="absence_requests", db_index=False
    )
    case = models.ForeignKey(
        "reconciliation.Case", on_delete=models.PROTECT, related_name="absence_requests", db_index=False
    )
    # What two people consented to; it is used once.
    approval = models.OneToOneField(
        "reconciliation.ApprovalRequest", on_delete=models.PROTECT, related_name="absence_request"
    )
    # From 1, among the operation's.
    number = models.IntegerField()
    state = models.CharField(max_length=10, default=AbsenceState.SENT)
    # One of `AbsenceKind`; empty without an answer.
    outcome = models.CharField(max_length=10, blank=True)
    # Whether the answer was taken as proof.
    proved = models.BooleanField(default=False)
    # How many attempts of the effect there were when it left.
    attempts_before = models.IntegerField()
    sent_at = models.DateTimeField()
    # From then on it can no longer take effect at the provider.
    quiet_after_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    evidence = models.ForeignKey(Evidence, null=True, on_delete=models.PROTECT, db_index=False)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(state="sent", outcome="", ended_at__isnull=True, evidence__isnull=True)
                | Q(state="answered", ended_at__isnull=False, evidence__isnull=False)
                & one_of("outcome", AbsenceKind)
                | Q(state="unanswered", outcome="", ended_at__isnull=False, evidence__isnull=False),
                name="absence_state_has_its_end",
            ),
            models.CheckConstraint(condition=Q(proved=False) | Q(outcome="absent"), name="absence_proof"),
            models.CheckConstraint(
                condition=Q(number__gte=1, quiet_after_at__gt=F("sent_at")),
                name="absence_numbered_and_bounded",
            ),
            models.UniqueConstraint(fields=["operation", "number"], name="absence_number_once"),
            models.UniqueConstraint(
                fields=["operation"], name="absence_one_under_way", condition=Q(state="sent")
            ),
        ]
        indexes = [
            # The sweeper: which can no longer take effect and have no answer.
            models.Index(fields=["quiet_after_at"], name="absence_without_answer", condition=Q(state="sent")),
        ]

    def __str__(self) -> str:
        return self.id
