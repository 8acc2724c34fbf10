"""What people give with a request for approval and its answers: who may, and what is kept of their words."""

from __future__ import annotations

from typing import Final

from reconciliation.approval_models import COMMENT_LENGTH_MAX
from reconciliation.persons import Forbidden, Worker
from runs.actors import ActorKind
from runs.journal.evidence import storable_text
from runs.refusals import Invalid

# As for a decision: a reason that an auditor can use has a few words in it.
REASON_LENGTH_MIN: Final = 10
REASON_LENGTH_MAX: Final = 4_000
# An approver's comment may be as short as "Agreed with finance."
COMMENT_LENGTH_MIN: Final = 3
KEY_LENGTH_MAX: Final = 100


def require_person(worker: Worker) -> None:
    """Raise `Forbidden` for anybody else."""
    if worker.actor.kind is not ActorKind.PERSON:
        raise Forbidden("Only a person asks for approvals and answers them.", actor=str(worker.actor.kind))


def check_reason(reason: str) -> str:
    said = storable_text(reason).strip()
    if not REASON_LENGTH_MIN <= len(said) <= REASON_LENGTH_MAX:
        raise Invalid(
            f"Give a reason of {REASON_LENGTH_MIN} to {REASON_LENGTH_MAX:,} characters.", where="reason"
        )
    return said


def check_comment(comment: str) -> str:
    """The comment as it is kept; `Invalid` if it says nothing or too much."""
    said = storable_text(comment).strip()
    if not COMMENT_LENGTH_MIN <= len(said) <= COMMENT_LENGTH_MAX:
        raise Invalid(
            f"Give a comment of {COMMENT_LENGTH_MIN} to {COMMENT_LENGTH_MAX:,} characters.", where="comment"
        )
    return said


def check_key(key: str) -> None:
    if not 1 <= len(key) <= KEY_LENGTH_MAX or storable_text(key) != key:
        raise Invalid(f"Idempotency-Key must be 1 to {KEY_LENGTH_MAX} characters.", where="Idempotency-Key")
