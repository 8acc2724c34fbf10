"""Whose effects they are and where they happen: teams, flows, provider accounts, approvals."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from runs.models.columns import DIGEST_LENGTH, ID_LENGTH, NAME_LENGTH, one_of
from runs.states import Sending


class Team(models.Model):
    """Who may see what: every flow, run and token belongs to one team."""

    slug = models.SlugField(primary_key=True, max_length=NAME_LENGTH)
    name = models.CharField(max_length=NAME_LENGTH)
    created_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.name


class Flow(models.Model):
    """A kind of agent job, with what its team has decided about it."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="flows")
    name = models.CharField(max_length=NAME_LENGTH)
    # Minutes that a person may take before a case counts as overdue.
    decide_within_minutes = models.PositiveIntegerField(default=240)
    # Whether policy may repeat with the same key by itself where the contract makes that safe.
    automatic_repeat = models.CharField(
        max_length=10, default="off", choices=[("off", "Off"), ("safe", "Where the contract makes it safe")]
    )
    # How many people an abandonment takes.
    abandonment_people = models.PositiveSmallIntegerField(default=1)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["team", "name"], name="flow_name_once_in_team"),
            models.CheckConstraint(
                condition=Q(abandonment_people__in=[1, 2]), name="flow_abandonment_people_1_or_2"
            ),
            models.CheckConstraint(
                condition=Q(automatic_repeat__in=["off", "safe"]), name="flow_automatic_repeat_known"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class FlowVersion(models.Model):
    """An exact version that runs are pinned to. The digest, once recorded, never changes."""

    id = models.BigAutoField(primary_key=True)
    flow = models.ForeignKey(Flow, on_delete=models.PROTECT, related_name="versions")
    version = models.CharField(max_length=NAME_LENGTH)
    digest = models.CharField(max_length=DIGEST_LENGTH, blank=True)
    first_seen_at = models.DateTimeField(db_default=Now())
    # When a worker of this version last asked for a run; how we know that nobody runs it any more.
    last_worker_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["flow", "version"], name="flow_version_once")]

    def __str__(self) -> str:
        return f"{self.flow.name} {self.version}"


class ProviderAccount(models.Model):
    """An account at an outside system: the timing that the journal needs, and what a first send pins.

    The contract itself is data in `reconciliation.contracts`; `manage.py sync_providers` copies here what
    a send must know, so that begin_send asks nobody else.
    """

    slug = models.SlugField(primary_key=True, max_length=NAME_LENGTH)
    title = models.CharField(max_length=NAME_LENGTH)
    adapter_version = models.CharField(max_length=NAME_LENGTH)
    endpoint = models.CharField(max_length=300)
    region = models.CharField(max_length=NAME_LENGTH, blank=True)
    credential_fingerprint = models.CharField(max_length=DIGEST_LENGTH, blank=True)
    # How long after asking for "go" a sender may still start.
    start_within_ms = models.PositiveIntegerField()
    # The longest that one request may take.
    request_within_ms = models.PositiveIntegerField()
    # How long the provider's own network may hold a request that we have given up on.
    in_flight_ms = models.PositiveIntegerField()
    synced_at = models.DateTimeField(db_default=Now())
    # Whether anything may be sent here. Read by begin_send from the row that it reads anyway.
    sending = models.CharField(max_length=10, default=Sending.OPEN, db_default=Sending.OPEN)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=one_of("sending", Sending), name="account_sending_known")
        ]

    def __str__(self) -> str:
        return self.title


class AccountTeam(models.Model):
    """A team that may use an account. An account for which no team is named is open to every team."""

    id = models.BigAutoField(primary_key=True)
    account = models.ForeignKey(ProviderAccount, on_delete=models.PROTECT, related_name="named")
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="accounts_named")
    made_by = models.CharField(max_length=NAME_LENGTH)
    made_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["account", "team"], name="account_team_once")]

    def __str__(self) -> str:
        return f"{self.account_id} for {self.team_id}"


class Approval(models.Model):
    """A record that an approver made and that a run refers to; the agent can only name it."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    team = models.ForeignKey(Team, on_delete=models.PROTECT)
    subject = models.CharField(max_length=300)
    made_by = models.CharField(max_length=NAME_LENGTH)
    made_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()
    withdrawn_at = models.DateTimeField(null=True)
