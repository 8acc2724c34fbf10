"""Approve: look again at everything that is consented to, under the lock, and carry it out once.

Whatever differs from the content that was asked for voids the request, and the approver is told what. The
approver's right is asked for here, and for what is carried out later once more (`still_stands`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.db import transaction

from reconciliation import approval_ending
from reconciliation.approval_checks import check_comment, require_person
from reconciliation.approval_kinds import Consent, Held, Kind, content_of, hold_of, kind_of
from reconciliation.approval_models import APPROVAL_OPEN, ApprovalDeed, ApprovalRequest, ApprovalState
from reconciliation.approval_refusals import ended_refusal, own_refusal, void_refusal
from reconciliation.approvals import Answered, answerer_fields, end_if_over, find, is_own, reopen
from reconciliation.persons import Forbidden, Worker
from reconciliation.standing import Standing, standing_of
from runs.actors import Actor
from runs.refusals import Invalid, Refusal

_APPROVED = (ApprovalState.APPROVED, ApprovalState.CARRIED_OUT)


def approve(
    *,
    approval_id: str,
    teams: Collection[str] | None,
    worker: Worker,
    content_digest: str,
    comment: str,
) -> Answered:
    """Consent as the second person, and carry out what was asked for. Owns its transaction.

    `content_digest` names the content that the person saw. The same approval by the same person again is
    `replayed`. Refuses in this order: `NotFound`, `Forbidden` (no person), `Invalid` (comment),
    `OwnApproval`, `Forbidden`, by how it ended `ApprovalAnswered`, `ApprovalExpired` or `ApprovalVoid`,
    `Invalid` (another content), and `ApprovalVoid` for what changed since. Nothing is carried out by a
    refusal. What it keeps: the leaf of an attempt to approve one's own request, and the end of a request
    that is found to be over or void.
    """
    found = find(approval_id=approval_id, teams=teams)
    require_person(worker)
    said = check_comment(comment)
    with transaction.atomic():
        outcome = _approve(found, worker, content_digest, said)
    # What is kept of a refusal is kept: it is raised after its commit.
    if isinstance(outcome, Refusal):
        raise outcome
    return outcome


def _approve(found: ApprovalRequest, worker: Worker, content_digest: str, comment: str) -> Answered | Refusal:
    held, approval = hold_of(found)
    same = (worker.actor.id, comment, content_digest)
    if approval.state in _APPROVED and same == (
        approval.answerer,
        approval.comment,
        approval.content_digest,
    ):
        return Answered(approval=approval, replayed=True)
    standing = standing_of(actor=worker.actor.id, deed=ApprovalDeed.APPROVE, team=approval.team_id)
    if is_own(approval, standing):
        approval_ending.append(
            approval,
            "approval.own_attempt_refused",
            worker.actor,
            after={"requester": approval.requester},
            reason=comment,
        )
        return own_refusal(approval)
    if standing.why_not:
        return Forbidden(standing.why_not, actor=worker.actor.id)
    # On record with the role that they answer by, whatever else they are.
    worker = Worker(actor=standing.worker.actor, name=worker.name)
    over = end_if_over(held, approval)
    if over is not None:
        return over
    if approval.state != ApprovalState.REQUESTED:
        return ended_refusal(approval)
    if content_digest != approval.content_digest:
        return Invalid(
            "That isn’t the content of this request. Read the request, and name what it asks for.",
            where="content_digest",
        )
    kind = kind_of(approval.kind)
    asker = standing_of(actor=approval.requester, deed=kind.deed, team=approval.team_id)
    changed = [asker.why_not] if asker.why_not else changes(held, approval, kind)
    if changed:
        return _void(held, approval, changed, worker.actor)
    return _carry_out(held, approval, kind, asker, worker, standing, comment)


def _carry_out(
    held: Held,
    approval: ApprovalRequest,
    kind: Kind,
    asker: Standing,
    worker: Worker,
    standing: Standing,
    comment: str,
) -> Answered | Refusal:
    consent = Consent(
        approval=approval,
        requester=Worker(actor=asker.worker.actor, name=approval.requester_name),
        approver=worker,
        comment=comment,
        parameters=content_of(approval)["parameters"],
    )
    try:
        # A savepoint: of what can't be carried out, nothing is left.
        with transaction.atomic():
            approval_ending.end(
                approval,
                ApprovalState.APPROVED,
                actor=worker.actor,
                now=held.now,
                comment=comment,
                **answerer_fields(worker, standing, held.now),
            )
            if not kind.later:
                # First of all it is used: what follows may settle the case, which voids what is still open.
                approval_ending.end(approval, ApprovalState.CARRIED_OUT, actor=worker.actor, now=held.now)
            kind.carry_out(held, consent)
            approval.refresh_from_db(fields=["state", "voided_because"])
            if approval.state not in _APPROVED:
                raise void_refusal(approval, [approval.voided_because])
    except Refusal as refusal:
        held, approval = hold_of(approval)
        changed = refusal.details.get("changed")
        return _void(held, approval, changed or [refusal.sentence], worker.actor)
    return Answered(approval=approval, replayed=False)


def _void(held: Held, approval: ApprovalRequest, changed: list[str], actor: Actor) -> Refusal:
    because = " ".join(changed)
    approval_ending.end(approval, ApprovalState.VOIDED, because=because, actor=actor, now=held.now)
    reopen(held, approval, because)
    return void_refusal(approval, changed)


def changes(held: Held, approval: ApprovalRequest, kind: Kind) -> list[str]:
    """What is otherwise than it was when the request was made, in sentences; empty if nothing is."""
    content = content_of(approval)
    try:
        now = kind.facts(held, content["parameters"])
    except Refusal as refusal:
        return [refusal.sentence]
    before: dict[str, Any] = content["facts"]
    return [
        _change(kind.fact_words.get(name, name.replace("_", " ")), before.get(name), now.get(name))
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]


# Longer than this, two values beside each other say less than that they differ.
_TELLING_LENGTH_MAX = 40


def _change(what: str, before: object, now: object) -> str:
    what = what[:1].upper() + what[1:]
    told = all(isinstance(one, str | int) and len(str(one)) <= _TELLING_LENGTH_MAX for one in (before, now))
    return f"{what} changed from {before} to {now}." if told else f"{what} changed."


def still_stands(approval: ApprovalRequest) -> str:
    """Why something that was approved may not be carried out now after all; "" if it may.

    Asked before what is carried out later leaves: the approver must still be one, and the request open.
    """
    if approval.state not in APPROVAL_OPEN:
        return f"its approval is {approval.state}."
    standing = standing_of(actor=approval.answerer, deed=ApprovalDeed.APPROVE, team=approval.team_id)
    if standing.why_not:
        return f"whoever approved it may not any more. {standing.why_not}"
    if is_own(approval, standing):
        return "whoever approved it is the human being who asked for it."
    return ""
