"""Cases: the open questions about operations, what was asked and answered, and what was decided.

`cases`, `lookups` and `decisions` are the only writers. A case repeats what the queue sorts and filters by
from its operation, all of it immutable, so that a queue page is one index scan.
"""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

import reconciliation.approval_models
import reconciliation.attachment_models
import reconciliation.bulk_models
import reconciliation.making_absent_models
import reconciliation.webhook_models
import reconciliation.work_models  # noqa: F401

# With these imports Django knows the tables of those modules too.
from reconciliation.gate_models import BECAUSE_LENGTH_MAX
from reconciliation.states import Action, CaseKind, CaseState, Resolution
from runs.models import DIGEST_LENGTH, ID_LENGTH, NAME_LENGTH, Evidence, Grant, Operation, Run, Team, one_of


class Case(models.Model):
    """One open question about one operation; an operation has at most one open, numbered from 1."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    operation = models.ForeignKey(Operation, on_delete=models.PROTECT, related_name="cases")
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="cases")
    team = models.ForeignKey(Team, on_delete=models.PROTECT, db_index=False)
    number = models.IntegerField()
    kind = models.CharField(max_length=10, default=CaseKind.UNKNOWN)
    state = models.CharField(max_length=20, default=CaseState.LOOKING_UP)
    # Why a person is asked; empty while nobody is.
    need = models.CharField(max_length=20, blank=True)
    opened_because = models.CharField(max_length=300)
    resolution = models.CharField(max_length=20, blank=True)
    # Moves with the state and with every new distinct piece of evidence; a decision names the one it saw.
    version = models.IntegerField(default=1)

    # The latest finding in a word and a sentence, and how many effects of ours the provider has shown.
    finding = models.CharField(max_length=20, blank=True)
    finding_summary = models.CharField(max_length=500, blank=True)
    effects_seen = models.IntegerField(default=0)

    # Lookups: when the next is due (null: none planned), how many were made since the case was opened or the
    # operation sent again, how many failed in a row, and who is making one until when.
    next_lookup_at = models.DateTimeField(null=True)
    lookups_count = models.IntegerField(default=0)
    lookups_failed_count = models.IntegerField(default=0)
    # The claim carries the number, which grows with each, so that a later claim outdates every earlier one.
    lookup_claim = models.CharField(max_length=40, blank=True)
    lookup_claim_number = models.IntegerField(db_default=0)
    lookup_claimed_until_at = models.DateTimeField(null=True)
    # How many lookups in a row were begun and never came back: each may have taken its worker with it.
    lookups_lost_count = models.IntegerField(db_default=0)
    # Why it was parked; empty while it isn't.
    parked_because = models.CharField(max_length=BECAUSE_LENGTH_MAX, blank=True, db_default="")

    # Until when it is put off; null: it isn't, or something woke it. Past that time it is awake all the same.
    snoozed_until_at = models.DateTimeField(null=True)

    # What the queue is sorted and filtered by.
    provider_slug = models.CharField(max_length=NAME_LENGTH)
    flow_name = models.CharField(max_length=NAME_LENGTH)
    tool = models.CharField(max_length=NAME_LENGTH)
    at_risk_currency = models.CharField(max_length=3, blank=True)
    at_risk_minor = models.BigIntegerField(default=0)
    # Also its operation's: cases of one payload are found without an index that each effect would pay for.
    payload_digest = models.CharField(max_length=DIGEST_LENGTH, blank=True, db_default="")
    decide_by_at = models.DateTimeField()
    key_ends_at = models.DateTimeField(null=True)
    # The sooner of the two: what gets worse first.
    worsens_at = models.DateTimeField()

    opened_at = models.DateTimeField(db_default=Now())
    needs_decision_since_at = models.DateTimeField(null=True)
    resolved_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["operation", "number"], name="case_number_once_in_operation"),
            models.UniqueConstraint(
                fields=["operation"], name="case_one_open_per_operation", condition=~Q(state="resolved")
            ),
            models.CheckConstraint(condition=one_of("kind", CaseKind), name="case_kind_known"),
            models.CheckConstraint(condition=one_of("state", CaseState), name="case_state_known"),
            models.CheckConstraint(
                condition=Q(state="resolved", resolved_at__isnull=False) & one_of("resolution", Resolution)
                | ~Q(state="resolved") & Q(resolved_at__isnull=True, resolution=""),
                name="case_resolved_has_its_time",
            ),
            models.CheckConstraint(
                condition=~Q(state="needs_decision") | Q(needs_decision_since_at__isnull=False) & ~Q(need=""),
                name="case_needs_decision_says_why",
            ),
            models.CheckConstraint(
                condition=Q(snoozed_until_at__isnull=True) | Q(state="needs_decision", kind="unknown"),
                name="case_sleeps_only_where_it_may",
            ),
        ]
        indexes = [
            # The queue: what needs a decision, by what gets worse first, then amount.
            models.Index(
                fields=["team", "worsens_at", "-at_risk_minor", "id"],
                name="case_queue",
                condition=Q(state="needs_decision"),
            ),
            # What is put off: few among all cases.
            models.Index(
                fields=["team", "worsens_at", "-at_risk_minor", "id"],
                name="case_put_off",
                condition=Q(snoozed_until_at__isnull=False),
            ),
            # The sweeper and the lookup workers: what is due at an account, oldest first.
            models.Index(
                fields=["provider_slug", "next_lookup_at", "id"],
                name="case_lookup_due_here",
                condition=Q(next_lookup_at__isnull=False),
            ),
            # How many lookups of an account are being made: never more than the cap, so a few rows.
            models.Index(
                fields=["provider_slug", "lookup_claimed_until_at"],
                name="case_lookup_under_way",
                condition=~Q(lookup_claim=""),
            ),
            models.Index(fields=["team", "state", "-opened_at", "-id"], name="case_by_state"),
            # What else may have to do with a case: the same payload, and the same account at that time.
            models.Index(
                fields=["team", "payload_digest", "-opened_at", "-id"],
                name="case_by_payload",
                condition=~Q(payload_digest=""),
            ),
            models.Index(fields=["team", "provider_slug", "-opened_at", "-id"], name="case_by_provider"),
            models.Index(
                fields=["team", "-resolved_at", "-id"], name="case_settled", condition=Q(state="resolved")
            ),
        ]

    def __str__(self) -> str:
        return self.id


class Lookup(models.Model):
    """One read-only question to a provider, and its typed answer. Never changed."""

    id = models.BigAutoField(primary_key=True)
    case = models.ForeignKey(Case, on_delete=models.PROTECT, related_name="lookups")
    operation = models.ForeignKey(Operation, on_delete=models.PROTECT, related_name="lookups")
    number = models.IntegerField()
    evidence = models.OneToOneField(Evidence, on_delete=models.PROTECT, related_name="lookup")
    asked_by = models.CharField(max_length=NAME_LENGTH)
    asked_at = models.DateTimeField()
    duration_ms = models.IntegerField(default=0)
    finding = models.CharField(max_length=20)
    proof = models.CharField(
        max_length=10, default="none", choices=[("none", "No proof"), ("absence", "Proves absence")]
    )
    summary = models.CharField(max_length=500)
    # Redacted and bounded by the adapter.
    exchange = models.JSONField(null=True)
    receipts = models.JSONField(default=list)
    digest = models.CharField(max_length=DIGEST_LENGTH)
    # What came of it: "judged", or "evidence_only" when the case had moved meanwhile.
    used = models.CharField(max_length=20, default="judged")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["case", "number"], name="lookup_number_once_in_case"),
        ]
        indexes = [models.Index(fields=["operation", "-id"], name="lookup_of_operation")]

    def __str__(self) -> str:
        return f"lookup {self.number} of {self.case_id}"


class Decision(models.Model):
    """What a person or a named policy decided about a case. Never changed, except how it ended."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    case = models.ForeignKey(Case, on_delete=models.PROTECT, related_name="decisions")
    operation = models.ForeignKey(Operation, on_delete=models.PROTECT, related_name="decisions")
    action = models.CharField(max_length=20)
    actor_kind = models.CharField(max_length=20)
    actor = models.CharField(max_length=NAME_LENGTH)
    actor_name = models.CharField(max_length=NAME_LENGTH, blank=True)
    actor_role = models.CharField(max_length=40, blank=True)
    policy = models.CharField(max_length=60)
    reason_code = models.CharField(max_length=40, blank=True)
    reason = models.TextField(blank=True)
    seen_version = models.IntegerField()
    evidence_digest = models.CharField(max_length=DIGEST_LENGTH)
    executor = models.CharField(max_length=10, blank=True)
    then = models.CharField(max_length=10, blank=True)
    reference = models.CharField(max_length=300, blank=True)
    evidence = models.ForeignKey(Evidence, null=True, on_delete=models.PROTECT)
    grant = models.OneToOneField(Grant, null=True, on_delete=models.PROTECT, related_name="decision")
    # Where it took two: the request, and the second person. The decision is the requester's.
    approval = models.OneToOneField(
        "reconciliation.ApprovalRequest", null=True, on_delete=models.PROTECT, related_name="decision"
    )
    approver = models.CharField(max_length=NAME_LENGTH, blank=True, db_default="")
    approver_name = models.CharField(max_length=NAME_LENGTH, blank=True, db_default="")
    # The caller's key, and a digest of everything asked under it: the same again gets the same answer.
    idempotency_key = models.CharField(max_length=100)
    content_digest = models.CharField(max_length=DIGEST_LENGTH)
    answer = models.JSONField(default=dict)
    made_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["actor", "idempotency_key"], name="decision_key_once_per_actor"),
            models.CheckConstraint(condition=one_of("action", Action), name="decision_action_known"),
            models.CheckConstraint(
                condition=Q(approval__isnull=True, approver="")
                | Q(approval__isnull=False) & ~Q(approver="") & ~Q(approver=F("actor")),
                name="decision_approved_by_another",
            ),
        ]
        indexes = [models.Index(fields=["case", "made_at"], name="decision_of_case")]

    def __str__(self) -> str:
        return self.id


class Declaration(models.Model):
    """A provider account that an administrator declared in the console; an account's newest is in force.

    Never changed and never deleted: `declaring` is the only writer. `text` is what a file would say, so it
    holds no secret: those are named by reference.
    """

    id = models.BigAutoField(primary_key=True)
    account = models.CharField(max_length=NAME_LENGTH)
    number = models.IntegerField()
    text = models.TextField()
    reason = models.TextField()
    actor = models.CharField(max_length=NAME_LENGTH)
    actor_name = models.CharField(max_length=NAME_LENGTH, blank=True)
    made_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["account", "number"], name="declaration_number_once_in_account"),
            models.CheckConstraint(condition=Q(number__gte=1), name="declaration_numbered_from_one"),
        ]

    def __str__(self) -> str:
        return f"declaration {self.number} of {self.account}"


class Tightening(models.Model):
    """Where an administrator trusts a provider less than its promises; an account's newest is in force.

    Never changed and never deleted: `tightening` is the only writer.
    """

    id = models.BigAutoField(primary_key=True)
    # Not a reference: a declaration may be gone, and what was tightened is still on record.
    account = models.CharField(max_length=NAME_LENGTH)
    number = models.IntegerField()
    # Everything that is tightened from here on, by the field's name; not only what this row added.
    values = models.JSONField()
    reason = models.TextField()
    actor = models.CharField(max_length=NAME_LENGTH)
    actor_name = models.CharField(max_length=NAME_LENGTH, blank=True)
    made_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["account", "number"], name="tightening_number_once_in_account"),
            models.CheckConstraint(condition=Q(number__gte=1), name="tightening_numbered_from_one"),
        ]

    def __str__(self) -> str:
        return f"tightening {self.number} of {self.account}"
