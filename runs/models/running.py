"""A run, who may advance it, and what its model decided."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from runs.models.columns import DIGEST_LENGTH, ID_LENGTH, NAME_LENGTH, TURN_ORDERS, one_of
from runs.models.parties import Approval, Flow, FlowVersion, Team
from runs.states import RUN_ENDED, LeaseEnd, RunState

# In the order of the states, which a migration is compared with.
RUN_ENDED_STATES = [str(state) for state in RunState if state in RUN_ENDED]


class Run(models.Model):
    """One execution of a flow. Its row is the lock that everything about the run is decided under.

    The counters exist so that begin_send decides on this row alone, which it has locked, and never on
    rows that another transaction may just have changed (DESIGN law 7).
    """

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="runs", db_index=False)
    flow = models.ForeignKey(Flow, on_delete=models.PROTECT, related_name="runs", db_index=False)
    flow_version = models.ForeignKey(FlowVersion, on_delete=models.PROTECT, related_name="runs")
    external_id = models.CharField(max_length=200)
    goal = models.CharField(max_length=500, blank=True)
    input = models.BinaryField()
    input_digest = models.CharField(max_length=DIGEST_LENGTH)
    state = models.CharField(max_length=20, default=RunState.OPEN)
    paused_reasons = ArrayField(models.CharField(max_length=20), default=list)
    paused_at = models.DateTimeField(null=True)

    # The lease: who may advance the run, until when. Null token: nobody holds it.
    lease_number = models.BigIntegerField(default=0)
    lease_token = models.CharField(max_length=60, null=True)
    lease_holder = models.CharField(max_length=NAME_LENGTH, blank=True)
    lease_expires_at = models.DateTimeField(null=True)

    # The current turn: its index (0 before the first), its calls, and how many of them are settled.
    turn_index = models.IntegerField(default=0)
    turn_parallel = models.CharField(
        max_length=10, default="ordered", choices=[("ordered", "In order"), ("parallel", "In parallel")]
    )
    turn_calls = models.IntegerField(default=0)
    turn_settled = models.IntegerField(default=0)
    # How many of them, from the first one on, are settled without a gap. It may lag behind, never be ahead:
    # what comes after a gap isn't counted when the gap is closed; begin_send's slow path then counts anew.
    turn_settled_through = models.IntegerField(default=0, db_default=0)
    # Operations whose outcome is an open question; while there is one, nothing new is sent.
    in_doubt_count = models.IntegerField(default=0)

    budget_currency = models.CharField(max_length=3, blank=True)
    budget_limit_minor = models.BigIntegerField(null=True)
    budget_reserved_minor = models.BigIntegerField(default=0)
    budget_spent_minor = models.BigIntegerField(default=0)
    budget_held_minor = models.BigIntegerField(default=0)

    approval = models.ForeignKey(Approval, null=True, on_delete=models.PROTECT, related_name="runs")
    # Copied from the approval, shortened when it is withdrawn; null when the run needs none.
    approval_until_at = models.DateTimeField(null=True)
    # Somebody said that a worker of the pinned version will come: nobody is asked about it until then.
    version_awaited_until_at = models.DateTimeField(null=True)

    output = models.BinaryField(null=True)
    output_digest = models.CharField(max_length=DIGEST_LENGTH, blank=True)
    end_reason = models.TextField(blank=True)
    created_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["flow", "external_id"], name="run_external_id_once_in_flow"),
            # Few and compact: every effect writes this row twice (`runs.constraints`). A value's own limits
            # are its column's domain, and what holds a state together is the trigger `run_state_whole`, which
            # no effect sets off (migration 0009).
            models.CheckConstraint(
                condition=Q(turn_settled__lte=F("turn_calls"), turn_settled_through__lte=F("turn_settled"))
                & (Q(budget_limit_minor__isnull=True) | ~Q(budget_currency="")),
                name="run_counters_whole",
            ),
        ]
        indexes = [
            # GET /runs?claimable=1: open runs of a flow that nobody holds, oldest first.
            models.Index(
                fields=["flow", "created_at", "id"], name="run_claimable", condition=Q(state="open")
            ),
            # The sweeper: leases that have run out.
            models.Index(
                fields=["lease_expires_at"], name="run_lease_end", condition=Q(lease_token__isnull=False)
            ),
            # The run list, newest first, by team and state.
            models.Index(fields=["team", "-created_at", "-id"], name="run_list"),
            models.Index(fields=["team", "state", "-created_at", "-id"], name="run_list_by_state"),
            models.Index(fields=["external_id"], name="run_by_external_id"),
        ]

    def __str__(self) -> str:
        return self.id


class Lease(models.Model):
    """One claim of a run; kept for ever, so that a late report can be tied to who made it."""

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="leases", db_index=False)
    number = models.BigIntegerField()
    token = models.CharField(max_length=60)
    claim_id = models.CharField(max_length=64)
    worker = models.CharField(max_length=NAME_LENGTH)
    flow_version = models.CharField(max_length=NAME_LENGTH)
    # What the claim asked for; a renewal extends by as much again.
    seconds = models.PositiveIntegerField()
    claimed_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    ended_by = models.CharField(max_length=20, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "number"], name="lease_number_once_in_run"),
            models.UniqueConstraint(fields=["run", "claim_id"], name="lease_claim_once_in_run"),
            models.UniqueConstraint(fields=["token"], name="lease_token_once"),
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True, ended_by="")
                | Q(ended_at__isnull=False) & one_of("ended_by", LeaseEnd),
                name="lease_end_has_its_time",
            ),
        ]


class Turn(models.Model):
    """One model decision, saved before any of its calls starts."""

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="turns", db_index=False)
    index = models.IntegerField()
    decision = models.BinaryField()
    # SHA-256 over decision, parallel and the calls in order: what "the same turn again" is judged by.
    digest = models.CharField(max_length=DIGEST_LENGTH)
    parallel = models.CharField(
        max_length=10, default="ordered", choices=[("ordered", "In order"), ("parallel", "In parallel")]
    )
    saved_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "index"], name="turn_index_once_in_run"),
            models.CheckConstraint(condition=Q(index__gte=1), name="turn_index_from_1"),
            models.CheckConstraint(condition=Q(parallel__in=TURN_ORDERS), name="turn_order_known"),
        ]


class Call(models.Model):
    """One tool call chosen in a turn: a read, whose result is saved here, or an effect."""

    id = models.BigAutoField(primary_key=True)
    turn = models.ForeignKey(Turn, on_delete=models.PROTECT, related_name="calls", db_index=False)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="calls")
    call_id = models.CharField(max_length=64)
    position = models.IntegerField()
    tool = models.CharField(max_length=NAME_LENGTH)
    kind = models.CharField(max_length=10, choices=[("read", "Read"), ("effect", "Effect")])
    args = models.BinaryField()
    args_digest = models.CharField(max_length=DIGEST_LENGTH)
    result = models.BinaryField(null=True)
    result_digest = models.CharField(max_length=DIGEST_LENGTH, blank=True)
    result_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["turn", "call_id"], name="call_id_once_in_turn"),
            models.UniqueConstraint(fields=["turn", "position"], name="call_position_once_in_turn"),
            models.CheckConstraint(
                condition=Q(kind="read") | Q(kind="effect", result__isnull=True, result_at__isnull=True),
                name="call_effect_has_no_result",
            ),
        ]
