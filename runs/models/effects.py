"""An effect: its operation, the requests for it, and what is held about it."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.db.models.lookups import Exact

from runs.constraints import OneOf, both_or_neither, is_null, is_set
from runs.models.columns import DIGEST_LENGTH, ID_LENGTH, NAME_LENGTH, one_of, words
from runs.models.parties import ProviderAccount, Team
from runs.models.running import Call, Run
from runs.money import Money
from runs.states import (
    OPERATION_SETTLED,
    AttemptOutcome,
    Claim,
    EvidenceKind,
    Executor,
    GrantState,
    MatchedBy,
    OperationState,
    Reservation,
)

# Square takes the shortest key of the providers we know: 45 characters (DESIGN law 3).
KEY_LENGTH_MAX = 45
# In the order of the states, which a migration is compared with.
OPERATION_SETTLED_STATES = [str(state) for state in OperationState if state in OPERATION_SETTLED]


class Operation(models.Model):
    """The logical effect of a call: one stable key, one payload, any number of attempts."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="operations", db_index=False)
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="operations", db_index=False)
    call = models.OneToOneField(Call, on_delete=models.PROTECT, related_name="operation")
    turn_index = models.IntegerField()
    position = models.IntegerField()
    tool = models.CharField(max_length=NAME_LENGTH)
    provider = models.ForeignKey(
        ProviderAccount, on_delete=models.PROTECT, related_name="operations", db_index=False
    )
    key = models.CharField(max_length=KEY_LENGTH_MAX)
    payload = models.BinaryField()
    payload_digest = models.CharField(max_length=DIGEST_LENGTH)
    amount_currency = models.CharField(max_length=3, blank=True)
    amount_minor = models.BigIntegerField(null=True)
    state = models.CharField(max_length=20, default=OperationState.READY)
    attempts_count = models.IntegerField(default=0)
    # Since when the outcome is an open question with a case; null while nobody has to ask.
    in_doubt_since_at = models.DateTimeField(null=True)

    # Pinned by the first send (DESIGN law 5).
    first_sent_at = models.DateTimeField(null=True)
    last_quiet_at = models.DateTimeField(null=True)
    sent_by = models.CharField(max_length=10, blank=True)
    sent_adapter_version = models.CharField(max_length=NAME_LENGTH, blank=True)
    sent_endpoint = models.CharField(max_length=300, blank=True)
    sent_region = models.CharField(max_length=NAME_LENGTH, blank=True)
    sent_credential_fingerprint = models.CharField(max_length=DIGEST_LENGTH, blank=True)

    reservation = models.CharField(max_length=10, default=Reservation.NONE)
    reserved_minor = models.BigIntegerField(default=0)
    settled_minor = models.BigIntegerField(default=0)

    refusal = models.BinaryField(null=True)
    known_effect = models.TextField(blank=True)
    created_at = models.DateTimeField(db_default=Now())
    settled_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            # The key first: people search by a key without saying where.
            models.UniqueConstraint(fields=["key", "provider"], name="operation_key_once_at_provider"),
            # Few and compact, as on the run; a value's own limits are its column's domain.
            models.CheckConstraint(
                condition=Q(both_or_neither(OneOf("state", OPERATION_SETTLED_STATES), is_set("settled_at")))
                & (Q(first_sent_at__isnull=False) | ~Q(OneOf("state", ["sent_unknown", "rejected"])))
                & (Q(in_doubt_since_at__isnull=True) | Q(state="sent_unknown")),
                name="operation_state_whole",
            ),
            models.CheckConstraint(
                condition=Q(both_or_neither(Exact(F("amount_currency"), ""), is_null("amount_minor")))
                & (Q(reservation="reserved") | Q(reserved_minor=0)),
                name="operation_amount_whole",
            ),
        ]
        # No index, and no condition of one, may name what sending or settling changes: each effect updates
        # its row twice, and then every index of the table would be written twice more. Who looks for
        # operations by what became of them asks the open attempts, the open cases or the log's leaves.
        indexes = [models.Index(fields=["run", "turn_index", "position"], name="operation_in_run")]

    def __str__(self) -> str:
        return self.id

    @property
    def amount(self) -> Money | None:
        """What the effect was meant to cost, None where it has no amount."""
        return None if self.amount_minor is None else Money(self.amount_currency, self.amount_minor)


class Grant(models.Model):
    """Single-use permission for one more attempt, made by a retry decision."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    operation = models.ForeignKey(Operation, on_delete=models.PROTECT, related_name="grants")
    executor = models.CharField(max_length=10)
    # The operation's attempts_count that this grant follows; one more attempt by anyone voids it.
    follows_attempt = models.IntegerField()
    state = models.CharField(max_length=10, default=GrantState.OPEN)
    not_before_at = models.DateTimeField()
    not_after_at = models.DateTimeField()
    approval_digest = models.CharField(max_length=DIGEST_LENGTH, blank=True)
    made_by = models.CharField(max_length=NAME_LENGTH)
    made_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)
    end_reason = models.CharField(max_length=200, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["operation"], name="grant_one_open_per_operation", condition=Q(state="open")
            ),
            models.CheckConstraint(condition=one_of("state", GrantState), name="grant_state_known"),
            models.CheckConstraint(condition=one_of("executor", Executor), name="grant_executor_known"),
            models.CheckConstraint(
                condition=Q(state="open", ended_at__isnull=True)
                | ~Q(state="open") & Q(ended_at__isnull=False),
                name="grant_end_has_its_time",
            ),
        ]
        indexes = [
            models.Index(fields=["not_after_at"], name="grant_open_until", condition=Q(state="open")),
        ]


class Attempt(models.Model):
    """One request for an operation, minted before it is sent."""

    id = models.BigAutoField(primary_key=True)
    operation = models.ForeignKey(
        Operation, on_delete=models.PROTECT, related_name="attempts", db_index=False
    )
    attempt_id = models.CharField(max_length=64)
    number = models.IntegerField()
    executor = models.CharField(max_length=10, default=Executor.AGENT)
    # The token it was minted under: who may report it. Empty for the console's own sends.
    lease_number = models.BigIntegerField(null=True)
    lease_token = models.CharField(max_length=60, blank=True)
    worker = models.CharField(max_length=NAME_LENGTH, blank=True)
    grant = models.OneToOneField(Grant, null=True, on_delete=models.PROTECT, related_name="attempt")
    minted_at = models.DateTimeField()
    start_within_ms = models.IntegerField()
    request_within_ms = models.IntegerField()
    # After this instant the attempt can no longer reach the provider (DESIGN, quiet time).
    quiet_after_at = models.DateTimeField()
    outcome = models.CharField(max_length=20, default=AttemptOutcome.OPEN)
    ended_at = models.DateTimeField(null=True)
    # Digest of the report that ended it; the same report again gets the first answer.
    report_digest = models.CharField(max_length=DIGEST_LENGTH, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["operation", "attempt_id"], name="attempt_id_once"),
            models.UniqueConstraint(fields=["operation", "number"], name="attempt_number_once"),
            models.CheckConstraint(
                condition=Q(both_or_neither(Exact(F("outcome"), "open"), is_null("ended_at"))),
                name="attempt_whole",
            ),
        ]
        indexes = [
            # The sweeper: open attempts by the time they fall quiet.
            models.Index(fields=["quiet_after_at"], name="attempt_open_quiet", condition=Q(outcome="open")),
        ]


class Evidence(models.Model):
    """What we hold about an effect: replies, lookups, webhooks, attachments, late reports. Never changed."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    operation = models.ForeignKey(
        Operation, on_delete=models.PROTECT, related_name="evidence", db_index=False
    )
    attempt = models.ForeignKey(Attempt, null=True, on_delete=models.PROTECT, related_name="evidence")
    kind = models.CharField(max_length=20)
    claim = models.CharField(max_length=20)
    # The typed answer of a lookup; empty for everything else.
    finding = models.CharField(max_length=20, blank=True)
    summary = models.CharField(max_length=500)
    reference = models.CharField(max_length=300, blank=True)
    # What was seen, redacted and bounded: status, headers, error, phase, request.
    seen = models.JSONField(default=dict)
    body = models.BinaryField(null=True)
    body_length = models.BigIntegerField(default=0)
    body_digest = models.CharField(max_length=DIGEST_LENGTH, blank=True)
    # SHA-256 over what it says, not over when; the same again is not new evidence.
    digest = models.CharField(max_length=DIGEST_LENGTH)
    actor_kind = models.CharField(max_length=20)
    actor = models.CharField(max_length=NAME_LENGTH)
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.CheckConstraint(condition=one_of("kind", EvidenceKind), name="evidence_kind_known"),
            models.CheckConstraint(condition=one_of("claim", Claim), name="evidence_claim_known"),
        ]
        indexes = [models.Index(fields=["operation", "recorded_at", "id"], name="evidence_of_operation")]


class Report(models.Model):
    """The first answer to a report that took the slow path, so that the same report again gets it again."""

    id = models.BigAutoField(primary_key=True)
    operation = models.ForeignKey(Operation, on_delete=models.PROTECT, related_name="reports", db_index=False)
    attempt_id = models.CharField(max_length=64)
    digest = models.CharField(max_length=DIGEST_LENGTH)
    answer = models.JSONField()
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["operation", "attempt_id", "digest"], name="report_answered_once")
        ]


class Receipt(models.Model):
    """The provider's proof that confirmed an operation. One per operation, one operation per proof."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    operation = models.OneToOneField(Operation, on_delete=models.PROTECT, related_name="receipt")
    provider = models.ForeignKey(ProviderAccount, on_delete=models.PROTECT, db_index=False)
    reference = models.CharField(max_length=300)
    body = models.BinaryField()
    body_digest = models.CharField(max_length=DIGEST_LENGTH)
    matched_by = models.CharField(max_length=20)
    amount_currency = models.CharField(max_length=3, blank=True)
    amount_minor = models.BigIntegerField(null=True)
    attempt = models.ForeignKey(Attempt, null=True, on_delete=models.PROTECT, db_index=False)
    evidence = models.ForeignKey(Evidence, null=True, on_delete=models.PROTECT, db_index=False)
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["provider", "reference"], name="receipt_confirms_one_operation"),
            models.CheckConstraint(
                condition=~Q(reference="") & Q(OneOf("matched_by", words(MatchedBy))), name="receipt_whole"
            ),
        ]
