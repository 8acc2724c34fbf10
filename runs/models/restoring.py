"""Which database this is: the deployment's environment, what froze its sending, and what it has forgotten.

`reconciliation.restoring` is the only writer. Nothing here is read by the journal's hot path: what a send has
to know stands in the provider account's own row.
"""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.db.models.lookups import IsNull

from runs.models.columns import DIGEST_LENGTH, ID_LENGTH, NAME_LENGTH, one_of
from runs.models.effects import KEY_LENGTH_MAX, Operation
from runs.models.parties import ProviderAccount
from runs.states import FreezeAnswer, ListingState, OrphanState


class Environment(models.Model):
    """The deployment that this database belongs to, and the server that it last ran on. One row."""

    one = models.SmallIntegerField(primary_key=True, default=1)
    id_text = models.CharField(max_length=ID_LENGTH, unique=True)
    # pg_control_system().system_identifier, pg_control_checkpoint().timeline_id and the database's own oid;
    # null where this role may not read them.
    system_identifier = models.BigIntegerField(null=True)
    timeline = models.BigIntegerField(null=True)
    database_oid = models.BigIntegerField(null=True)
    made_at = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(one=1), name="environment_is_one")]

    def __str__(self) -> str:
        return self.id_text


class Binding(models.Model):
    """The environment that may send at an account. A copy with an id of its own is bound to none of them."""

    account = models.OneToOneField(ProviderAccount, on_delete=models.PROTECT, primary_key=True)
    environment = models.CharField(max_length=ID_LENGTH)
    bound_at = models.DateTimeField()
    bound_by = models.CharField(max_length=NAME_LENGTH)

    def __str__(self) -> str:
        return f"{self.account_id} in {self.environment}"


class Freeze(models.Model):
    """One time that sending was frozen: why, what an administrator said it was, and when it was over."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    found_at = models.DateTimeField()
    because = models.CharField(max_length=500)
    answer = models.CharField(max_length=20, default=FreezeAnswer.AWAITED)
    answered_at = models.DateTimeField(null=True)
    answered_by = models.CharField(max_length=NAME_LENGTH, blank=True)
    answered_by_name = models.CharField(max_length=NAME_LENGTH, blank=True)
    reason = models.TextField(blank=True)
    backup_taken_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=one_of("answer", FreezeAnswer), name="freeze_answer_known"),
            models.CheckConstraint(
                condition=Q(answer="awaited", answered_at__isnull=True)
                | ~Q(answer="awaited") & Q(answered_at__isnull=False),
                name="freeze_answer_has_its_time",
            ),
            models.CheckConstraint(
                condition=~Q(answer="production") | Q(backup_taken_at__isnull=False),
                name="freeze_production_says_since_when",
            ),
            # Of the rows where it is true, one: a freeze is open.
            models.UniqueConstraint(
                IsNull(F("ended_at"), True), name="freeze_one_open", condition=Q(ended_at__isnull=True)
            ),
        ]

    def __str__(self) -> str:
        return self.id


class AccountReturn(models.Model):
    """How far one account is on its way back to sending, after one freeze."""

    id = models.BigAutoField(primary_key=True)
    freeze = models.ForeignKey(Freeze, on_delete=models.PROTECT, related_name="returns")
    account = models.ForeignKey(ProviderAccount, on_delete=models.PROTECT, db_index=False)
    # Operations that were ready, and count as perhaps sent until they are looked up.
    marked_count = models.IntegerField(default=0)
    marked_at = models.DateTimeField(null=True)
    listing = models.CharField(max_length=20, default=ListingState.DUE)
    listing_note = models.CharField(max_length=500, blank=True)
    listed_at = models.DateTimeField(null=True)
    listing_failures_count = models.IntegerField(default=0)
    listing_not_before_at = models.DateTimeField()
    # Of the records listed: known to the journal, forgotten by it, and carrying somebody else's key or none.
    known_count = models.IntegerField(default=0)
    orphans_count = models.IntegerField(default=0)
    others_count = models.IntegerField(default=0)
    opened_at = models.DateTimeField(null=True)
    opened_by = models.CharField(max_length=NAME_LENGTH, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["freeze", "account"], name="return_once_in_freeze"),
            models.CheckConstraint(condition=one_of("listing", ListingState), name="return_listing_known"),
        ]

    def __str__(self) -> str:
        return f"{self.account_id} after {self.freeze_id}"


class Orphan(models.Model):
    """An effect at a provider that carries something of ours and that the journal doesn't know."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    account = models.ForeignKey(ProviderAccount, on_delete=models.PROTECT, db_index=False)
    freeze = models.ForeignKey(Freeze, on_delete=models.PROTECT, related_name="orphans")
    reference = models.CharField(max_length=300)
    # What it carries of ours: our key, or the operation's id that this journal has forgotten.
    key = models.CharField(max_length=KEY_LENGTH_MAX, blank=True)
    our_reference = models.CharField(max_length=255, blank=True)
    state_there = models.CharField(max_length=20)
    amount_currency = models.CharField(max_length=3, blank=True)
    amount_minor = models.BigIntegerField(null=True)
    # The provider's record, redacted and bounded.
    body = models.JSONField(default=dict)
    body_digest = models.CharField(max_length=DIGEST_LENGTH)
    found_at = models.DateTimeField()
    state = models.CharField(max_length=20, default=OrphanState.OPEN)
    operation = models.ForeignKey(
        Operation, null=True, on_delete=models.PROTECT, related_name="orphans", db_index=False
    )
    linked_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["account", "reference"], name="orphan_once_at_account"),
            models.CheckConstraint(condition=one_of("state", OrphanState), name="orphan_state_known"),
            models.CheckConstraint(
                condition=Q(state="open", operation__isnull=True, linked_at__isnull=True)
                | Q(state="linked", operation__isnull=False, linked_at__isnull=False),
                name="orphan_linked_whole",
            ),
        ]
        indexes = [
            # The sweeper: those whose run may have been redone meanwhile; and the page.
            models.Index(fields=["id"], name="orphan_open", condition=Q(state="open")),
        ]

    def __str__(self) -> str:
        return self.id
