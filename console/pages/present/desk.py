"""Who works on a case and who looks at it, in words, with what this person can do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from django.urls import reverse

from console.pages.shapes import Banner, DeskView, Part, Phrase, Strong, Until
from console.queries.desk import Desk
from reconciliation.models import Case
from reconciliation.states import CaseState
from reconciliation.work_models import CaseClaim, CasePresence
from reconciliation.working import REASON_LENGTH_MIN

# More than these are a number.
_NAMES_MAX: Final = 4


@dataclass(frozen=True, kw_only=True)
class TakeoverDraft:
    """Why somebody wants to take a claim over, as typed, and what is wrong with it."""

    reason: str = ""
    error: str = ""


def desk_view(
    case: Case, desk: Desk, *, actor: str, may_work: bool, takeover: TakeoverDraft
) -> DeskView | None:
    """The strip under the heading; None for a resolved case, on which nobody works."""
    if case.state == CaseState.RESOLVED:
        return None
    claim = desk.claim
    mine = claim is not None and claim.actor == actor
    others = claim is not None and not mine
    return DeskView(
        lines=desk_lines(desk, actor=actor),
        tone="green" if mine else "amber" if others else "grey",
        live_href=reverse("case_desk", args=[case.pk]),
        claim_href=reverse("case_claim", args=[case.pk]) if may_work and claim is None else "",
        release_href=reverse("case_release", args=[case.pk]) if mine else "",
        takeover_href=reverse("case_takeover", args=[case.pk]) if may_work and others else "",
        takeover_number=claim.number if claim is not None else 0,
        takeover_reason=takeover.reason,
        takeover_error=takeover.error,
        holder=name_of(claim) if claim is not None else "",
        reason_length_min=REASON_LENGTH_MIN,
    )


def desk_lines(desk: Desk, *, actor: str) -> Phrase:
    """Who decides and who looks on, in one or two sentences."""
    claim = desk.claim
    parts: list[Part] = []
    if claim is None:
        parts.append("Nobody works on this case.")
    elif claim.actor == actor:
        parts += [Strong("You work on this case"), ", kept while this page is in use, ends "]
        parts += [Until(claim.until_at), "."]
    else:
        parts += [Strong(f"{name_of(claim)} works on this case"), ", until further use ends "]
        parts += [Until(claim.until_at), ". You can decide all the same: whoever is first has decided."]
    holder = claim.actor if claim is not None else ""
    looking = [name_of(one) for one in desk.present if one.actor not in (actor, holder)]
    if looking:
        shown = ", ".join(looking[:_NAMES_MAX])
        more = f" and {len(looking) - _NAMES_MAX} more" if len(looking) > _NAMES_MAX else ""
        parts.append(f" Also looking at it: {shown}{more}.")
    return tuple(parts)


def unchanged_banner(sentence: str, *, kept: bool) -> Banner:
    """A refusal of what isn't a decision, in its own words."""
    return Banner(
        title=("Nothing was changed.",),
        icon="octagon-x",
        tone="red",
        text=(sentence,),
        kept="What you typed is kept" if kept else "",
        focus=True,
    )


def name_of(one: CaseClaim | CasePresence) -> str:
    """What colleagues call whoever it is."""
    return one.actor_name or one.actor
