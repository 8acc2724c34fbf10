"""What became of a retry that was decided: requested, sent, verified, each as far as it is true by now."""

from __future__ import annotations

from typing import Final

from console.pages.shapes import Code, Phrase, ProgressStep, Until
from console.queries.cases import CaseRead
from reconciliation.models import Decision
from reconciliation.states import Action, CaseState, Resolution
from runs.models import Attempt

# In these the person is asked again: how far the last answer came is in the timeline.
_ASKED_AGAIN: Final = (CaseState.NEEDS_DECISION, CaseState.AWAITING_APPROVAL)
_ENDED: Final[dict[Resolution, str]] = {
    Resolution.NOT_SENT: "It is proved that nothing came of any request.",
    Resolution.ABANDONED: "It was given up before anybody knew.",
}


def progress_of(read: CaseRead) -> tuple[ProgressStep, ...]:
    """The three steps of the latest decision where that is a retry and still the last word; else nothing."""
    decision = read.decisions[0] if read.decisions else None
    if decision is None or decision.action != Action.RETRY or read.case.state in _ASKED_AGAIN:
        return ()
    sent = _sent_for(read, decision)
    by = f"By {decision.actor_name or decision.actor}."
    requested = ProgressStep(title="Requested", state="done", at=decision.made_at, text=(by,))
    return requested, _sending(read, sent), _verifying(read, sent)


def _sent_for(read: CaseRead, decision: Decision) -> Attempt | None:
    """The request that this decision let leave."""
    return next((one for one in read.attempts if one.minted_at >= decision.made_at), None)


def _sending(read: CaseRead, sent: Attempt | None) -> ProgressStep:
    if sent is not None:
        text: Phrase = (f"Request {sent.number}, the same key and the same bytes.",)
        return ProgressStep(title="Sent", state="done", at=sent.minted_at, text=text)
    if read.case.state == CaseState.RESOLVED:
        return ProgressStep(title="Not sent", state="ended", text=("Nothing left: it was settled before.",))
    if read.retry_pending or read.grant is None:
        return ProgressStep(
            title="To be sent", state="now", text=("After a fresh lookup, unless that finds it.",)
        )
    who = "the agent’s worker" if read.grant.executor == "agent" else "Recourse"
    text = (f"By {who}, ", Until(read.grant.not_after_at), " at the latest. Nothing has left yet.")
    return ProgressStep(title="To be sent", state="now", text=text)


def _verifying(read: CaseRead, sent: Attempt | None) -> ProgressStep:
    resolution = Resolution(read.case.resolution) if read.case.state == CaseState.RESOLVED else None
    if resolution is Resolution.CONFIRMED and read.receipt is not None:
        text: Phrase = ("It happened: receipt ", Code(read.receipt.reference), ".")
        return ProgressStep(title="Verified", state="done", at=read.receipt.recorded_at, text=text)
    if resolution is Resolution.REJECTED:
        text = ("The provider refused it, and nothing came of any request.",)
        return ProgressStep(title="Verified", state="done", at=read.case.resolved_at, text=text)
    if resolution is not None:
        ended = _ENDED.get(resolution, "It was settled in another way.")
        return ProgressStep(title="Not verified", state="ended", at=read.case.resolved_at, text=(ended,))
    if sent is not None:
        text = ("Its answer, or a lookup, shows whether it happened.",)
        return ProgressStep(title="To be verified", state="now", text=text)
    return ProgressStep(title="To be verified", state="ahead", text=("By a receipt that matches.",))
