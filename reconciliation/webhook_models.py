"""What is on record about the providers' own notices, beside the evidence that they became.

`webhooks` is the only writer. A notice that was signed has a row of its own, found again by its id and by its
content, so that the same again changes nothing. What wasn't, is counted: nobody without a secret can add more
than one row an hour for each account and reason, or a byte of their own to it.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from reconciliation.states import WebhookOutcome, WebhookRefusal
from runs.models import DIGEST_LENGTH, ID_LENGTH, NAME_LENGTH, Evidence, Operation, one_of

EVENT_ID_LENGTH_MAX = 255


class WebhookEvent(models.Model):
    """One notice that the provider signed. Never changed, but for how often it came."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    # Not a reference: a declaration may be gone, and what it told is still on record.
    provider_slug = models.CharField(max_length=NAME_LENGTH)
    # The provider's id of the notice; where it has none, or one too long to keep, "sha256:" and its digest.
    event_id = models.CharField(max_length=EVENT_ID_LENGTH_MAX)
    event_type = models.CharField(max_length=NAME_LENGTH, blank=True)
    outcome = models.CharField(max_length=20)
    summary = models.CharField(max_length=500)
    # The provider's id of the effect, where the notice shows one.
    reference = models.CharField(max_length=300, blank=True)
    body_digest = models.CharField(max_length=DIGEST_LENGTH)
    body_length = models.BigIntegerField()
    # When the provider says that it signed; null where its scheme signs no time.
    signed_at = models.DateTimeField(null=True)
    received_at = models.DateTimeField()
    deliveries_count = models.IntegerField(default=1)
    last_delivered_at = models.DateTimeField()
    operation = models.ForeignKey(
        Operation, null=True, on_delete=models.PROTECT, related_name="webhooks", db_index=False
    )
    evidence = models.OneToOneField(Evidence, null=True, on_delete=models.PROTECT, related_name="webhook")

    class Meta:
        constraints = [
            # Once by the provider's id, and once by content: not every scheme signs the id.
            models.UniqueConstraint(fields=["provider_slug", "event_id"], name="webhook_id_once"),
            models.UniqueConstraint(fields=["provider_slug", "body_digest"], name="webhook_content_once"),
            models.CheckConstraint(condition=one_of("outcome", WebhookOutcome), name="webhook_outcome_known"),
            models.CheckConstraint(
                condition=Q(outcome="evidence", operation__isnull=False)
                | ~Q(outcome="evidence") & Q(operation__isnull=True, evidence__isnull=True),
                name="webhook_evidence_has_its_operation",
            ),
            models.CheckConstraint(
                condition=Q(deliveries_count__gte=1), name="webhook_delivered_once_or_more"
            ),
        ]
        indexes = [
            # What came last, for people; and what is old enough to be forgotten.
            models.Index(fields=["provider_slug", "-received_at", "-id"], name="webhook_latest"),
            models.Index(
                fields=["received_at"], name="webhook_to_forget", condition=Q(operation__isnull=True)
            ),
        ]

    def __str__(self) -> str:
        return self.id


class WebhookRefusals(models.Model):
    """How often notices were refused, or of no use, by account, reason and hour; and the latest of them."""

    id = models.BigAutoField(primary_key=True)
    provider_slug = models.CharField(max_length=NAME_LENGTH)
    reason = models.CharField(max_length=20)
    hour_at = models.DateTimeField()
    count = models.BigIntegerField(default=1)
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    # Of the latest one's body, as far as it was read; never the body.
    last_digest = models.CharField(max_length=DIGEST_LENGTH, blank=True)
    last_length = models.BigIntegerField(default=0)
    # The address that it came from, as the web server saw it.
    last_from = models.CharField(max_length=45, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["provider_slug", "reason", "hour_at"], name="webhook_refusals_once_an_hour"
            ),
            models.CheckConstraint(
                condition=one_of("reason", WebhookRefusal), name="webhook_refusal_reason_known"
            ),
        ]
        indexes = [models.Index(fields=["-hour_at", "-id"], name="webhook_refusals_latest")]

    def __str__(self) -> str:
        return f"{self.count} {self.reason} at {self.provider_slug}"
