"""What is said about a request for approval before it is answered: questions, and the requester's replies.

Nothing said changes what is consented to, and each message is a leaf of the audit log.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from django.db import IntegrityError, transaction

from reconciliation import approval_ending
from reconciliation.approval_checks import check_comment, check_key, require_person
from reconciliation.approval_kinds import hold_of
from reconciliation.approval_models import (
    ApprovalDeed,
    ApprovalMessage,
    ApprovalRequest,
    ApprovalState,
    MessageKind,
)
from reconciliation.approval_refusals import ended_refusal, key_reused_refusal, own_refusal
from reconciliation.approvals import find, is_own
from reconciliation.persons import Forbidden, Worker
from reconciliation.standing import standing_of
from runs.ids import new_id
from runs.journal.evidence import storable_text
from runs.models import NAME_LENGTH
from runs.refusals import Invalid

# More than this is a conversation for another place.
MESSAGES_MAX: Final = 50


@dataclass(frozen=True, kw_only=True)
class Said:
    """A message that was kept, or that the same had made before (`replayed`)."""

    message: ApprovalMessage
    replayed: bool


def ask(*, approval_id: str, teams: Collection[str] | None, worker: Worker, text: str, key: str) -> Said:
    """Ask the requester something about the request, which stays open. Owns its transaction.

    The same under the same key is the message that is there, `replayed`. Refuses as `refuse` does, and
    `KeyReused`.
    """
    return _say(MessageKind.QUESTION, approval_id, teams, worker, text, key)


def reply(*, approval_id: str, teams: Collection[str] | None, worker: Worker, text: str, key: str) -> Said:
    """Answer a question as the requester. Owns its transaction. Refuses as `ask` does.

    It changes nothing of what is consented to: if that is to be something else, it is asked for anew.
    """
    return _say(MessageKind.REPLY, approval_id, teams, worker, text, key)


def _say(
    kind: MessageKind, approval_id: str, teams: Collection[str] | None, worker: Worker, text: str, key: str
) -> Said:
    found = find(approval_id=approval_id, teams=teams)
    require_person(worker)
    said = check_comment(text)
    check_key(key)
    with transaction.atomic():
        held, approval = hold_of(found)
        again = ApprovalMessage.objects.filter(actor=worker.actor.id, key=key).first()
        if again is not None:
            if (again.approval_id, again.kind, again.text) != (approval.pk, str(kind), said):
                raise key_reused_refusal(again.approval_id)
            return Said(message=again, replayed=True)
        _require_speaker(kind, approval, worker)
        if approval.state != ApprovalState.REQUESTED:
            raise ended_refusal(approval)
        if approval.messages.count() >= MESSAGES_MAX:
            raise Invalid(f"A request takes {MESSAGES_MAX} messages, and this one has them.", where="text")
        try:
            with transaction.atomic():
                made = ApprovalMessage.objects.create(
                    id=new_id("msg"),
                    approval=approval,
                    kind=str(kind),
                    text=said,
                    actor=worker.actor.id,
                    actor_name=storable_text(worker.name)[:NAME_LENGTH],
                    key=key,
                    made_at=held.now,
                )
        except IntegrityError as error:
            # Under the lock of another run, the same key can only have come for something there.
            if "approval_message_key_once_per_actor" not in str(error):
                raise
            raise key_reused_refusal("") from error
        word = "approval.asked" if kind is MessageKind.QUESTION else "approval.replied"
        approval_ending.append(approval, word, worker.actor, after={"message": made.pk}, reason=said)
        return Said(message=made, replayed=False)


def _require_speaker(kind: MessageKind, approval: ApprovalRequest, worker: Worker) -> None:
    standing = standing_of(actor=worker.actor.id, deed=ApprovalDeed.APPROVE, team=approval.team_id)
    own = is_own(approval, standing)
    if kind is MessageKind.REPLY:
        if not own:
            raise Forbidden("Whoever asked for the approval answers questions about it.")
        return
    if own:
        raise own_refusal(approval)
    if standing.why_not:
        raise Forbidden(standing.why_not, actor=worker.actor.id)
