"""Many cases at once: the frozen list, the job over it, and what came of each case.

`bulk` and `bulk_running` are the only writers. A list and its outcomes are never changed and never deleted;
a job's row says how far it is.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from django.db import models
from django.db.models import Q

from reconciliation.states import Action, ReasonCode, Then
from runs.models import DIGEST_LENGTH, ID_LENGTH, NAME_LENGTH, one_of
from runs.states import Executor

# What a person can look through before it starts; a longer list is cut, and the page says so.
ITEMS_MAX: Final = 1_000
QUERY_LENGTH: Final = 1_500
SENTENCE_LENGTH: Final = 1_000


class BulkDeed(StrEnum):
    """What is done with each case of a list."""

    # Tell colleagues that this person works on it.
    CLAIM = "claim"
    # Give it to somebody: a claim that is theirs.
    ASSIGN = "assign"
    # Let it be looked up now.
    LOOK_UP = "look_up"
    # Confirm, retry or abandon it: for cases that are alike.
    DECIDE = "decide"


class BulkState(StrEnum):
    # Enters: the list is frozen. Leaves: its person starts it. Nothing was done with any case.
    FROZEN = "frozen"
    # Enters: started. Leaves: every case has its outcome, or its person stops the rest. A Celery worker moves
    # it on; the sweeper calls one.
    RUNNING = "running"
    # Enters: every case has its outcome. Final.
    DONE = "done"
    # Enters: its person stopped it. Final; cases without an outcome were left as they were.
    STOPPED = "stopped"


class ItemResult(StrEnum):
    """What came of one case."""

    # It was done.
    DONE = "done"
    # It was refused with a reason, and the case is as it was.
    REFUSED = "refused"
    # Recourse itself failed on it, and the case is as it was.
    FAILED = "failed"


# What can be decided for many cases at once; a conflict is settled one by one.
BULK_ACTIONS: Final = (Action.CONFIRM, Action.RETRY, Action.ABANDON)


class BulkJob(models.Model):
    """One person's list and what they want done with it."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    deed = models.CharField(max_length=10)
    state = models.CharField(max_length=10, default=BulkState.FROZEN)
    actor = models.CharField(max_length=NAME_LENGTH)
    actor_name = models.CharField(max_length=NAME_LENGTH, blank=True)
    # How the list came about: the queue's own words, empty where rows were chosen; and how many matched, at
    # most one more than was looked for.
    query = models.CharField(max_length=QUERY_LENGTH, blank=True)
    matched_count = models.IntegerField()
    items_count = models.IntegerField()
    # Over the cases, in order, with the version and evidence that each had: what the person was shown.
    list_digest = models.CharField(max_length=DIGEST_LENGTH)

    # What was asked for, from the start on.
    action = models.CharField(max_length=10, blank=True)
    executor = models.CharField(max_length=10, blank=True)
    then = models.CharField(max_length=10, blank=True)
    assignee = models.CharField(max_length=NAME_LENGTH, blank=True)
    assignee_name = models.CharField(max_length=NAME_LENGTH, blank=True)
    reason_code = models.CharField(max_length=40, blank=True)
    reason = models.TextField(blank=True)

    # How far it is: the position of the next case. Moves in the transaction that writes an outcome.
    next_position = models.IntegerField(default=1)
    # How often the next case was tried and its transaction lost.
    tries_count = models.IntegerField(default=0)
    # The stretch that a worker is to begin next: a call for any other comes to nothing.
    next_chunk = models.IntegerField(default=1)
    # When a worker was last called or began.
    called_at = models.DateTimeField(null=True)

    frozen_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=one_of("deed", BulkDeed), name="bulk_deed_known"),
            models.CheckConstraint(condition=one_of("state", BulkState), name="bulk_state_known"),
            models.CheckConstraint(condition=~Q(actor=""), name="bulk_is_somebodys"),
            models.CheckConstraint(
                condition=Q(items_count__gte=1, items_count__lte=ITEMS_MAX), name="bulk_list_bounded"
            ),
            models.CheckConstraint(
                condition=Q(next_position__gte=1, next_position__lte=models.F("items_count") + 1),
                name="bulk_position_within_list",
            ),
            models.CheckConstraint(
                condition=Q(state="frozen", started_at__isnull=True, called_at__isnull=True, next_position=1)
                | ~Q(state="frozen") & Q(started_at__isnull=False, called_at__isnull=False),
                name="bulk_frozen_until_started",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["done", "stopped"], ended_at__isnull=False)
                | Q(state__in=["frozen", "running"], ended_at__isnull=True),
                name="bulk_ended_has_its_time",
            ),
            models.CheckConstraint(
                condition=~Q(state="done") | Q(next_position=models.F("items_count") + 1),
                name="bulk_done_after_every_case",
            ),
            models.CheckConstraint(
                condition=~Q(deed="decide") & Q(action="", reason_code="", reason="")
                | Q(deed="decide", state="frozen", action="", reason_code="", reason="")
                | Q(deed="decide", action__in=[str(one) for one in BULK_ACTIONS])
                & one_of("reason_code", ReasonCode)
                & ~Q(reason="")
                & ~Q(state="frozen"),
                name="bulk_decision_says_what_and_why",
            ),
            models.CheckConstraint(
                condition=Q(action="retry") & one_of("executor", Executor)
                | ~Q(action="retry") & Q(executor=""),
                name="bulk_retry_says_who_sends",
            ),
            models.CheckConstraint(
                condition=Q(action="abandon") & one_of("then", Then) | ~Q(action="abandon") & Q(then=""),
                name="bulk_abandon_says_what_then",
            ),
            models.CheckConstraint(
                condition=~Q(deed="assign") & Q(assignee="")
                | Q(deed="assign", state="frozen", assignee="")
                | Q(deed="assign") & ~Q(state="frozen") & ~Q(assignee=""),
                name="bulk_assign_says_to_whom",
            ),
        ]
        indexes = [
            models.Index(fields=["actor", "-id"], name="bulk_of_actor"),
            # The sweeper: whatever runs, few at a time.
            models.Index(fields=["called_at"], name="bulk_running", condition=Q(state="running")),
        ]

    def __str__(self) -> str:
        return self.id


class BulkItem(models.Model):
    """One case of a list, as it stood when the list was frozen."""

    id = models.BigAutoField(primary_key=True)
    job = models.ForeignKey(BulkJob, on_delete=models.PROTECT, related_name="items", db_index=False)
    position = models.IntegerField()
    case = models.ForeignKey(
        "reconciliation.Case", on_delete=models.PROTECT, related_name="bulk_items", db_index=False
    )
    seen_version = models.IntegerField()
    # Of what a decision would be made on; empty where nothing is decided.
    evidence_digest = models.CharField(max_length=DIGEST_LENGTH, blank=True)
    # What cases must be alike in to be decided together: provider, verdict, what one person may do.
    provider = models.CharField(max_length=NAME_LENGTH)
    kind = models.CharField(max_length=10)
    finding = models.CharField(max_length=20, blank=True)
    offers = models.CharField(max_length=60, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "position"], name="bulk_item_position_once_in_job"),
            models.UniqueConstraint(fields=["job", "case"], name="bulk_item_case_once_in_job"),
            models.CheckConstraint(
                condition=Q(position__gte=1, position__lte=ITEMS_MAX), name="bulk_item_numbered_from_one"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} {self.position}"


class BulkOutcome(models.Model):
    """What came of one case of a list: one outcome, once."""

    id = models.BigAutoField(primary_key=True)
    item = models.OneToOneField(BulkItem, on_delete=models.PROTECT, related_name="outcome")
    result = models.CharField(max_length=10)
    # A refusal's word and sentence; empty where it was done.
    word = models.CharField(max_length=60, blank=True)
    sentence = models.CharField(max_length=SENTENCE_LENGTH, blank=True)
    decision = models.OneToOneField(
        "reconciliation.Decision", null=True, on_delete=models.PROTECT, related_name="bulk_outcome"
    )
    made_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=one_of("result", ItemResult), name="bulk_outcome_known"),
            models.CheckConstraint(
                condition=Q(result="done", word="", sentence="")
                | ~Q(result="done") & ~Q(word="") & ~Q(sentence="") & Q(decision__isnull=True),
                name="bulk_outcome_says_why_not",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.item_id} {self.result}"
