"""Who works on a case, and who has its page open: for people, and nothing that a rule follows from.

`working`, `assigning`, `notes` and `snoozing` are the only writers. Whether a decision counts is settled by
the case's version alone.
"""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from reconciliation.states import TakenAs
from runs.models import ID_LENGTH, NAME_LENGTH, one_of


class CaseClaim(models.Model):
    """Who works on a case until when. One row a case, for the latest claim; past `until_at` nobody does."""

    case = models.OneToOneField(
        "reconciliation.Case", on_delete=models.PROTECT, primary_key=True, related_name="claim"
    )
    # Grows with every change of hands, so that a takeover names the claim that it is about.
    number = models.IntegerField(default=1)
    actor = models.CharField(max_length=NAME_LENGTH)
    actor_name = models.CharField(max_length=NAME_LENGTH, blank=True)
    # Who gave it to them; empty where they took it themselves.
    given_by = models.CharField(max_length=NAME_LENGTH, blank=True, db_default="")
    # One of `states.TakenAs`.
    taken_as = models.CharField(max_length=10, db_default=TakenAs.CHOSEN.value)
    claimed_at = models.DateTimeField()
    # When the person last opened the page or did something there; an open page alone doesn't count.
    used_at = models.DateTimeField()
    until_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(number__gte=1), name="case_claim_numbered_from_one"),
            models.CheckConstraint(condition=~Q(actor=""), name="case_claim_is_somebodys"),
            models.CheckConstraint(condition=one_of("taken_as", TakenAs), name="case_claim_taken_as_known"),
            models.CheckConstraint(
                condition=Q(used_at__gte=F("claimed_at"), until_at__gte=F("claimed_at")),
                name="case_claim_ends_after_it_began",
            ),
        ]

    def __str__(self) -> str:
        return f"claim {self.number} of {self.case_id}"


class CasePresence(models.Model):
    """When a person's page of a case was last heard of. Not in the audit log: looking changes nothing."""

    id = models.BigAutoField(primary_key=True)
    case = models.ForeignKey(
        "reconciliation.Case", on_delete=models.PROTECT, related_name="presences", db_index=False
    )
    actor = models.CharField(max_length=NAME_LENGTH)
    actor_name = models.CharField(max_length=NAME_LENGTH, blank=True)
    seen_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["case", "actor"], name="case_presence_once_for_each"),
        ]

    def __str__(self) -> str:
        return f"{self.actor} at {self.case_id}"


class CaseNote(models.Model):
    """What a person wrote down about a case for the next one. Never changed and never deleted."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    case = models.ForeignKey(
        "reconciliation.Case", on_delete=models.PROTECT, related_name="notes", db_index=False
    )
    text = models.TextField()
    actor = models.CharField(max_length=NAME_LENGTH)
    actor_name = models.CharField(max_length=NAME_LENGTH, blank=True)
    # The form's own, so that a note which arrives twice is one note.
    key = models.CharField(max_length=64)
    made_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["actor", "key"], name="case_note_key_once_per_actor"),
            models.CheckConstraint(condition=~Q(text=""), name="case_note_says_something"),
        ]
        indexes = [models.Index(fields=["case", "-made_at", "-id"], name="case_note_latest")]

    def __str__(self) -> str:
        return self.id


class CaseSnooze(models.Model):
    """Who put a case off last, and why. Whether it still sleeps is on the case, where its list reads it."""

    case = models.OneToOneField(
        "reconciliation.Case", on_delete=models.PROTECT, primary_key=True, related_name="snooze"
    )
    until_at = models.DateTimeField()
    reason = models.TextField()
    actor = models.CharField(max_length=NAME_LENGTH)
    actor_name = models.CharField(max_length=NAME_LENGTH, blank=True)
    made_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=~Q(reason=""), name="case_snooze_says_why"),
            models.CheckConstraint(condition=Q(until_at__gt=F("made_at")), name="case_snooze_ends_later"),
        ]

    def __str__(self) -> str:
        return f"{self.case_id} until {self.until_at}"
