"""The journal's tables. `runs.journal` is their only writer; nothing here changes a state.

Integrity lives in the constraints: a state is tied to its times, a key is unique at its provider
account, a provider's receipt confirms one operation, and audit leaves can't be changed (triggers and
grants in the migrations).
"""

from __future__ import annotations

from enum import StrEnum

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.db.models.lookups import Exact

from runs.constraints import AllOf, NotEmpty, OneOf, both_or_neither, is_null, is_set
from runs.states import (
    OPERATION_SETTLED,
    RUN_ENDED,
    AttemptOutcome,
    Claim,
    EvidenceKind,
    Executor,
    GrantState,
    LeaseEnd,
    MatchedBy,
    OperationState,
    PauseReason,
    Reservation,
    RunState,
)

ID_LENGTH = 40
NAME_LENGTH = 100
DIGEST_LENGTH = 64
TURN_ORDERS = ["ordered", "parallel"]
# Square takes the shortest key of the providers we know: 45 characters (DESIGN law 3).
KEY_LENGTH_MAX = 45


def words(states: type[StrEnum]) -> list[str]:
    """The words of a closed set, as a migration keeps them: it must not change when the set does."""
    return [str(state) for state in states]


# In the order of the states, which a migration is compared with.
RUN_ENDED_STATES = [str(state) for state in RunState if state in RUN_ENDED]
OPERATION_SETTLED_STATES = [str(state) for state in OperationState if state in OPERATION_SETTLED]


def one_of(column: str, states: type) -> Q:
    """A CHECK that a text column holds a member of the enum, so that a stray state can't be stored."""
    return Q(**{f"{column}__in": [str(member) for member in states]})  # type: ignore[attr-defined]


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

    def __str__(self) -> str:
        return self.title


class Approval(models.Model):
    """A record that an approver made and that a run refers to; the agent can only name it."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    team = models.ForeignKey(Team, on_delete=models.PROTECT)
    subject = models.CharField(max_length=300)
    made_by = models.CharField(max_length=NAME_LENGTH)
    made_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()
    withdrawn_at = models.DateTimeField(null=True)


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

    output = models.BinaryField(null=True)
    output_digest = models.CharField(max_length=DIGEST_LENGTH, blank=True)
    end_reason = models.TextField(blank=True)
    created_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["flow", "external_id"], name="run_external_id_once_in_flow"),
            # Few and compact: every effect writes this row twice (`runs.constraints`).
            models.CheckConstraint(
                condition=Q(OneOf("state", words(RunState)))
                & Q(both_or_neither(OneOf("state", RUN_ENDED_STATES), is_set("ended_at")))
                & Q(both_or_neither(Exact(F("state"), "paused"), is_set("paused_at")))
                & Q(both_or_neither(Exact(F("state"), "paused"), NotEmpty("paused_reasons")))
                & Q(AllOf("paused_reasons", words(PauseReason)))
                # A lease is whole, and only an open run has one.
                & Q(both_or_neither(is_set("lease_token"), is_set("lease_expires_at")))
                & (Q(lease_token__isnull=True) | Q(state="open")),
                name="run_state_whole",
            ),
            models.CheckConstraint(
                condition=Q(OneOf("turn_parallel", TURN_ORDERS))
                & Q(turn_settled__gte=0, turn_settled__lte=F("turn_calls"), in_doubt_count__gte=0)
                & Q(budget_reserved_minor__gte=0, budget_spent_minor__gte=0, budget_held_minor__gte=0)
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
            # Few and compact, as on the run.
            models.CheckConstraint(
                condition=Q(OneOf("state", words(OperationState)))
                & Q(both_or_neither(OneOf("state", OPERATION_SETTLED_STATES), is_set("settled_at")))
                & (Q(first_sent_at__isnull=False) | ~Q(OneOf("state", ["sent_unknown", "rejected"])))
                & (Q(in_doubt_since_at__isnull=True) | Q(state="sent_unknown")),
                name="operation_state_whole",
            ),
            models.CheckConstraint(
                condition=Q(both_or_neither(Exact(F("amount_currency"), ""), is_null("amount_minor")))
                & (Q(amount_minor__isnull=True) | Q(amount_minor__gte=0))
                & Q(OneOf("reservation", words(Reservation)))
                & Q(reserved_minor__gte=0)
                & (Q(reservation="reserved") | Q(reserved_minor=0)),
                name="operation_amount_whole",
            ),
        ]
        indexes = [
            models.Index(fields=["run", "turn_index", "position"], name="operation_in_run"),
            # Effect history: a team's operations, newest first.
            models.Index(fields=["team", "-created_at", "-id"], name="operation_history"),
            models.Index(fields=["team", "state", "-created_at", "-id"], name="operation_history_by_state"),
            # The sweeper: sent, not in doubt yet, quiet time passed.
            models.Index(
                fields=["last_quiet_at"],
                name="operation_unreported",
                condition=Q(state="sent_unknown", in_doubt_since_at__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return self.id


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
    start_within_ms = models.PositiveIntegerField()
    request_within_ms = models.PositiveIntegerField()
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
                condition=Q(OneOf("outcome", words(AttemptOutcome)))
                & Q(OneOf("executor", words(Executor)))
                & Q(both_or_neither(Exact(F("outcome"), "open"), is_null("ended_at"))),
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


class AuditLeaf(models.Model):
    """One event, in the transaction that made it. INSERT and SELECT only, for everybody.

    `body` is canonical JSON: {"at": database time, "event": {…}}. Leaves hold digests, not bodies.
    The columns beside it repeat parts of the body for searching and prove nothing.
    """

    id = models.BigAutoField(primary_key=True)
    body = models.BinaryField()
    at = models.DateTimeField()
    action = models.CharField(max_length=40)
    team_slug = models.CharField(max_length=NAME_LENGTH, blank=True)
    run_ref = models.CharField(max_length=ID_LENGTH, blank=True)
    operation_ref = models.CharField(max_length=ID_LENGTH, blank=True)
    actor_kind = models.CharField(max_length=20)
    actor = models.CharField(max_length=NAME_LENGTH)

    class Meta:
        indexes = [
            models.Index(fields=["operation_ref", "id"], name="leaf_of_operation"),
            models.Index(fields=["run_ref", "id"], name="leaf_of_run"),
            models.Index(fields=["team_slug", "-id"], name="leaf_of_team"),
            # The history of what people did: rare among what workers do, and asked for most. Workers' leaves
            # aren't in it, so an effect pays nothing for it.
            models.Index(
                fields=["team_slug", "-id"], name="leaf_by_people", condition=Q(actor_kind="person")
            ),
        ]
