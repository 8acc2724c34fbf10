"""How a request for approval ends or is answered: one compare-and-set with its audit leaf, and no rule.

Everything here needs a transaction that holds the run (`approval_kinds.hold`, or a case's own lock), and none
of it decides whether the end is right. `cases` voids what a case's move has overtaken; `approvals` and
`approving` do the rest.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from reconciliation.approval_models import (
    APPROVAL_OPEN,
    BECAUSE_LENGTH,
    ApprovalRequest,
    ApprovalState,
)
from runs import audit
from runs.actors import Actor, ActorKind
from runs.journal.evidence import storable_text

# Who ends what time or events end.
BY_TIME: Final = Actor(ActorKind.SYSTEM, "approvals")


def open_of_case(case_id: str) -> ApprovalRequest | None:
    """The case's request that is open, or approved and not carried out yet; None if there is none."""
    return ApprovalRequest.objects.filter(case=case_id, state__in=APPROVAL_OPEN).first()


def void_for_case(*, case_id: str, because: str, actor: Actor, now: datetime) -> None:
    """Void whatever request of the case is open: the case has moved on without it."""
    approval = open_of_case(case_id)
    if approval is not None:
        end(approval, ApprovalState.VOIDED, because=because, actor=actor, now=now)


def end(
    approval: ApprovalRequest,
    state: ApprovalState,
    *,
    actor: Actor,
    now: datetime,
    because: str = "",
    comment: str = "",
    **answer: Any,
) -> bool:
    """Move an open request on; False if it isn't open any more. The row given is brought up to date.

    `because` for what expired or was voided; `comment` and the columns of whoever answered for the rest.
    """
    before = approval.state
    fields: dict[str, Any] = {"state": str(state), **answer}
    if state is not ApprovalState.APPROVED:
        fields["ended_at"] = now
    if because:
        fields["voided_because"] = storable_text(because)[:BECAUSE_LENGTH]
    if comment:
        fields["comment"] = comment
    moved = ApprovalRequest.objects.filter(pk=approval.pk, state=before, ended_at__isnull=True).update(
        **fields
    )
    if not moved:
        return False
    for name, value in fields.items():
        setattr(approval, name, value)
    append(
        approval,
        f"approval.{state}",
        actor,
        before={"state": before},
        after={"state": str(state)},
        reason=because or comment,
    )
    return True


def append(
    approval: ApprovalRequest,
    action: str,
    actor: Actor,
    *,
    before: dict[str, Any] | None = None,
    after: dict[str, Any],
    reason: str = "",
) -> None:
    """Append the leaf of what happened to a request; its evidence is the digest of what is consented to."""
    audit.append(
        audit.Event(
            action=action,
            actor=actor,
            team=approval.team_id,
            run=approval.run_id,
            operation=approval.operation_id or "",
            subject=approval.pk,
            before=before or {},
            after={
                "kind": str(approval.kind),
                **({"case": approval.case_id} if approval.case_id else {}),
                **after,
            },
            reason=reason,
            evidence=approval.content_digest,
        )
    )
