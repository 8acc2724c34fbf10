"""What is on record about asking providers, apart from any case: limiter, breaker, counts, and what the
sweeper fails on. All of it is in the database, so that a lost broker or worker changes nothing.

`admission` is the only writer of the first two, `sweeping` of the third. Nothing here is history: a row says
how things stand, and can be thrown away at the price of asking a provider once too often.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from reconciliation.breaking import BreakerState
from runs.models import ID_LENGTH, NAME_LENGTH, ProviderAccount, one_of

BECAUSE_LENGTH_MAX = 300


class AccountGate(models.Model):
    """Whether lookups may go out to one provider account now: its limiter, its breaker, its pause."""

    account = models.OneToOneField(
        ProviderAccount, primary_key=True, on_delete=models.PROTECT, related_name="gate"
    )
    # The limiter: the next free slot; null while nobody has asked yet.
    next_slot_at = models.DateTimeField(null=True)
    # The provider asked to be left alone (Retry-After), until then at most.
    paused_until_at = models.DateTimeField(null=True)
    paused_because = models.CharField(max_length=BECAUSE_LENGTH_MAX, blank=True)
    # The breaker; what its columns mean is told in `breaking`.
    breaker_state = models.CharField(max_length=10, default=BreakerState.CLOSED)
    breaker_failures_count = models.IntegerField(default=0)
    breaker_openings_count = models.IntegerField(default=0)
    breaker_since_at = models.DateTimeField(null=True)
    breaker_probe_at = models.DateTimeField(null=True)
    breaker_probe = models.CharField(max_length=ID_LENGTH, blank=True)
    breaker_probe_until_at = models.DateTimeField(null=True)
    # The latest failure, in the finding's own sentence.
    failed_because = models.CharField(max_length=BECAUSE_LENGTH_MAX, blank=True)
    failed_at = models.DateTimeField(null=True)
    # The sweeper's latest call for workers here; those of an earlier one stop when they next look.
    wave = models.IntegerField(default=0)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=one_of("breaker_state", BreakerState), name="gate_breaker_known"
            ),
            models.CheckConstraint(
                condition=Q(
                    breaker_state="open", breaker_since_at__isnull=False, breaker_probe_at__isnull=False
                )
                | ~Q(breaker_state="open") & Q(breaker_probe_at__isnull=True),
                name="gate_open_says_until_when",
            ),
            models.CheckConstraint(
                condition=Q(breaker_state="half_open")
                | Q(breaker_probe="", breaker_probe_until_at__isnull=True),
                name="gate_probe_only_half_open",
            ),
        ]

    def __str__(self) -> str:
        return f"gate of {self.account_id}"


class LookupTally(models.Model):
    """What came of one account's lookups in one minute of the database's clock."""

    id = models.BigAutoField(primary_key=True)
    account = models.ForeignKey(ProviderAccount, on_delete=models.PROTECT, db_index=False, related_name="+")
    minute_at = models.DateTimeField()
    # Questions that were put; those that were answered, those that weren't, and of these those where the
    # provider said when to come back.
    asked_count = models.IntegerField(default=0)
    answered_count = models.IntegerField(default=0)
    failed_count = models.IntegerField(default=0)
    told_to_wait_count = models.IntegerField(default=0)
    # Cases that a lookup's answer settled, and those that it put to a person.
    settled_count = models.IntegerField(default=0)
    handed_over_count = models.IntegerField(default=0)
    duration_ms_sum = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["account", "minute_at"], name="tally_minute_once_per_account"),
        ]

    def __str__(self) -> str:
        return f"{self.account_id} at {self.minute_at:%H:%M}"


class SweepFailure(models.Model):
    """Something that the sweeper failed on: left alone until then, so that it keeps nothing else waiting."""

    id = models.BigAutoField(primary_key=True)
    step = models.CharField(max_length=NAME_LENGTH)
    subject = models.CharField(max_length=ID_LENGTH)
    failures_count = models.IntegerField()
    not_before_at = models.DateTimeField()
    error = models.CharField(max_length=BECAUSE_LENGTH_MAX)
    failed_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["step", "subject"], name="sweep_failure_once_per_subject"),
        ]

    def __str__(self) -> str:
        return f"{self.step} of {self.subject}"
