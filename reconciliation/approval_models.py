"""Requests for a second person's consent, and what was asked and answered about them.

`approvals`, `approving` and `approval_ending` are the only writers. What is consented to never changes, nor
who asked; a request that has ended stays as it ended. Both are refused by triggers, for everybody.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from django.db import models
from django.db.models import F, Q

from runs.models import DIGEST_LENGTH, ID_LENGTH, NAME_LENGTH, Operation, Run, Team, one_of

SUBJECT_LENGTH: Final = 120
COMMENT_LENGTH_MAX: Final = 4_000
BECAUSE_LENGTH: Final = 500


class ApprovalKind(StrEnum):
    """What a second person may be asked about. `approval_kinds` says how each is checked and carried out."""

    # Confirm without a receipt that matches, or choose among several.
    OVERRIDE = "override"
    # Send again where a duplicate is possible.
    RETRY = "retry"
    # Give an obligation up where its flow asks two people.
    ABANDONMENT = "abandonment"
    # Raise a run's budget limit.
    BUDGET_RAISE = "budget_raise"
    # Put a new approval in place of the one that a run refers to.
    APPROVAL_RENEWAL = "approval_renewal"
    # Keep a run's flow version, or move the run to another.
    FLOW_VERSION = "flow_version"
    # Free the amount that an abandoned operation holds.
    HELD_FREED = "held_freed"
    # Let the provider make sure that the effect isn't there.
    MAKE_ABSENT = "make_absent"


# Those that decide a case; the case waits for them.
DECISION_KINDS: Final = frozenset(
    {ApprovalKind.OVERRIDE, ApprovalKind.RETRY, ApprovalKind.ABANDONMENT, ApprovalKind.MAKE_ABSENT}
)


class ApprovalState(StrEnum):
    # Enters: somebody asked. Leaves: a second person answers, the requester withdraws it, its time ends, or
    # what it is about changes.
    REQUESTED = "requested"
    # Enters: consent is given to what is carried out later (a retry, by whoever sends). Leaves: it is sent,
    # its time ends, or something changes before.
    APPROVED = "approved"
    # What was asked for was done, once. Final, as are all below.
    CARRIED_OUT = "carried_out"
    # A second person said no.
    REFUSED = "refused"
    # Whoever asked took it back.
    WITHDRAWN = "withdrawn"
    # Nobody answered in time, or what was approved wasn't sent in time.
    EXPIRED = "expired"
    # What it was about changed before it was carried out.
    VOIDED = "voided"


APPROVAL_OPEN: Final = frozenset({ApprovalState.REQUESTED, ApprovalState.APPROVED})


class ApprovalDeed(StrEnum):
    """What somebody's standing is asked for (`standing`): at the asking, the answering and the sending."""

    # Ask for a decision about a case.
    DECIDE = "decide"
    # Ask for something about a run.
    REQUEST = "request"
    # Answer as the second person.
    APPROVE = "approve"


class MessageKind(StrEnum):
    # By a second person: the request stays open.
    QUESTION = "question"
    # By whoever asked for the approval.
    REPLY = "reply"


_OPEN = Q(state__in=sorted(str(one) for one in APPROVAL_OPEN))
_UNANSWERED = Q(answered_at__isnull=True, answerer="", answerer_principal="")
_ANSWERED = (
    Q(answered_at__isnull=False) & ~Q(answerer="") & ~Q(answerer_principal="") & Q(comment__regex=r"\S")
)
_ENDED = Q(ended_at__isnull=False)


class ApprovalRequest(models.Model):
    """One request, bound to the exact content that a second person consents to. Used at most once.

    `content` is canonical JSON: `kind`, `subject`, `team`, `run`, `operation`, `case`, `requester` (`actor`,
    `principal`), `reason_code`, `reason`, `expires_at`, `parameters` (what was asked for) and `facts` (what
    it rests on: asked anew when it is approved, and any difference voids the request).
    """

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    kind = models.CharField(max_length=20)
    state = models.CharField(max_length=12, default=ApprovalState.REQUESTED)
    # What has one open request at a time: `case:<id>`, `run:<id>:budget_raise`, and so on.
    subject = models.CharField(max_length=SUBJECT_LENGTH)
    team = models.ForeignKey(Team, on_delete=models.PROTECT, db_index=False)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="approval_requests")
    operation = models.ForeignKey(
        Operation, null=True, on_delete=models.PROTECT, related_name="approval_requests"
    )
    case = models.ForeignKey(
        "reconciliation.Case",
        null=True,
        on_delete=models.PROTECT,
        related_name="approval_requests",
        db_index=False,
    )
    requester = models.CharField(max_length=NAME_LENGTH)
    requester_name = models.CharField(max_length=NAME_LENGTH, blank=True)
    requester_role = models.CharField(max_length=40, blank=True)
    # The human being behind the account.
    requester_principal = models.CharField(max_length=NAME_LENGTH)
    reason_code = models.CharField(max_length=40, blank=True)
    reason = models.TextField()
    content = models.BinaryField()
    content_digest = models.CharField(max_length=DIGEST_LENGTH)
    # The requester's own key, a digest of everything asked under it, and the answer it got: the same again
    # gets the same answer.
    key = models.CharField(max_length=100)
    asked_digest = models.CharField(max_length=DIGEST_LENGTH)
    answer = models.JSONField(default=dict)
    requested_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    # The second person, where one approved or refused.
    answerer = models.CharField(max_length=NAME_LENGTH, blank=True)
    answerer_name = models.CharField(max_length=NAME_LENGTH, blank=True)
    answerer_role = models.CharField(max_length=40, blank=True)
    answerer_principal = models.CharField(max_length=NAME_LENGTH, blank=True)
    answered_at = models.DateTimeField(null=True)
    # The second person's; or the requester's, of a request that was withdrawn.
    comment = models.TextField(blank=True)
    ended_at = models.DateTimeField(null=True)
    # Why it expired or was voided, in words.
    voided_because = models.CharField(max_length=BECAUSE_LENGTH, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=one_of("kind", ApprovalKind), name="approval_kind_known"),
            models.CheckConstraint(condition=one_of("state", ApprovalState), name="approval_state_known"),
            models.CheckConstraint(
                condition=Q(state="requested", ended_at__isnull=True, voided_because="") & _UNANSWERED
                | Q(state="approved", ended_at__isnull=True, voided_because="") & _ANSWERED
                | Q(state__in=["carried_out", "refused"], voided_because="") & _ANSWERED & _ENDED
                | Q(state="withdrawn", voided_because="", comment__regex=r"\S") & _UNANSWERED & _ENDED
                | Q(state__in=["expired", "voided"], voided_because__regex=r"\S")
                & (_UNANSWERED | _ANSWERED)
                & _ENDED,
                name="approval_state_has_its_times",
            ),
            # Four eyes are two human beings.
            models.CheckConstraint(
                condition=Q(requester__regex=r"\S", requester_principal__regex=r"\S")
                & ~Q(answerer=F("requester"))
                & ~Q(answerer_principal=F("requester_principal")),
                name="approval_by_two_people",
            ),
            models.CheckConstraint(condition=Q(reason__regex=r"\S"), name="approval_says_why"),
            models.CheckConstraint(
                condition=Q(expires_at__gt=F("requested_at")), name="approval_expires_after_request"
            ),
            models.UniqueConstraint(
                fields=["subject"], name="approval_one_open_for_subject", condition=_OPEN
            ),
            models.UniqueConstraint(fields=["requester", "key"], name="approval_key_once_per_requester"),
        ]
        indexes = [
            # An approver's page: what waits, by deadline.
            models.Index(
                fields=["team", "expires_at", "id"],
                name="approval_by_deadline",
                condition=Q(state="requested"),
            ),
            # The sweeper: whose time has ended.
            models.Index(fields=["expires_at"], name="approval_time_over", condition=_OPEN),
            models.Index(fields=["case", "-requested_at", "-id"], name="approval_of_case"),
            models.Index(fields=["team", "-requested_at", "-id"], name="approval_latest"),
        ]

    def __str__(self) -> str:
        return self.id


class ApprovalMessage(models.Model):
    """A question about a request, or the requester's reply. Never changed and never deleted."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    approval = models.ForeignKey(
        ApprovalRequest, on_delete=models.PROTECT, related_name="messages", db_index=False
    )
    kind = models.CharField(max_length=10)
    text = models.TextField()
    actor = models.CharField(max_length=NAME_LENGTH)
    actor_name = models.CharField(max_length=NAME_LENGTH, blank=True)
    # The writer's own, so that a message which arrives twice is one message.
    key = models.CharField(max_length=100)
    made_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=one_of("kind", MessageKind), name="approval_message_kind_known"),
            models.CheckConstraint(condition=Q(text__regex=r"\S"), name="approval_message_says_something"),
            models.UniqueConstraint(fields=["actor", "key"], name="approval_message_key_once_per_actor"),
        ]
        indexes = [models.Index(fields=["approval", "made_at", "id"], name="approval_message_order")]

    def __str__(self) -> str:
        return self.id
