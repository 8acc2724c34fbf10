"""What each kind of request asks for, in words: what is consented to, and what each answer would do."""

from __future__ import annotations

from datetime import datetime

from console.pages import wording
from console.pages.present.approval_budget import told_budget, told_held
from console.pages.present.approval_decision import told_decision
from console.pages.present.approval_told import APPROVE, NOTHING, Told, released, run_link
from console.pages.present.approval_version import told_version
from console.pages.shapes import Code, Consequence, Fact, Phrase
from console.queries.approvals import ApprovalRead
from reconciliation.approval_models import DECISION_KINDS, ApprovalKind
from runs.states import PauseReason


def told_of(read: ApprovalRead) -> Told:
    """Word one request, from what it asks for and how things are now."""
    kind = ApprovalKind(read.approval.kind)
    if kind in DECISION_KINDS:
        return told_decision(read, kind)
    match kind:
        case ApprovalKind.BUDGET_RAISE:
            return told_budget(read)
        case ApprovalKind.APPROVAL_RENEWAL:
            return _renewal(read)
        case ApprovalKind.FLOW_VERSION:
            return told_version(read)
        case ApprovalKind.HELD_FREED:
            return told_held(read)
        case _:
            return Told(approve=APPROVE[kind], content=(), if_approved=(), if_refused=(NOTHING,))


def _renewal(read: ApprovalRead) -> Told:
    run, facts = read.run, read.facts
    until_at = datetime.fromisoformat(str(read.parameters["expires_at"]))
    was_until = str(facts.get("until", ""))
    old: Phrase = (Code(str(facts.get("approval", ""))),)
    note: Phrase = ("until ", datetime.fromisoformat(was_until)) if was_until else ()
    others = [one for one in run.paused_reasons if one != PauseReason.APPROVAL]
    return Told(
        approve=APPROVE[ApprovalKind.APPROVAL_RENEWAL],
        content=(
            Fact(
                label="Holds until",
                value=(until_at,),
                note=(f"{wording.span(until_at - read.now)} from now",),
            ),
            Fact(label="In place of", value=old, note=note),
            Fact(label="Run", value=run_link(run)),
        ),
        if_approved=(
            Consequence(
                icon="shield-check",
                text=("A new approval, made by you, takes the place of the one that ended.",),
            ),
            released(run, others),
            Consequence(
                icon="triangle-alert",
                text=("Whatever this run still sends until ", until_at, " is sent under your approval."),
            ),
        ),
        if_refused=(
            NOTHING,
            Consequence(
                icon="circle-pause", text=("The run stays as it is; without an approval it is paused.",)
            ),
        ),
    )
