"""Who works on a case and who looks at it, in words, with what this person can do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from django.urls import reverse

from console.pages.shapes import (
    Banner,
    CasePage,
    Choice,
    DeskView,
    FieldError,
    NoteForm,
    Part,
    Phrase,
    SnoozeView,
    Strong,
    Until,
)
from console.queries.desk import Desk
from reconciliation.models import Case
from reconciliation.notes import NOTE_LENGTH_MAX
from reconciliation.states import CaseKind, CaseState, TakenAs
from reconciliation.work_models import CaseClaim, CasePresence
from reconciliation.working import REASON_LENGTH_MIN
from runs.ids import new_id

# How long a case is put off, in minutes, as a person says it.
LENGTHS: Final = {
    30: "30 minutes",
    60: "1 hour",
    240: "4 hours",
    1_440: "1 day",
    4_320: "3 days",
    10_080: "7 days",
}
# More than these are a number.
_NAMES_MAX: Final = 4


@dataclass(frozen=True, kw_only=True)
class WorkDraft:
    """What somebody typed beside the decision, and what is wrong with it; every refusal gives it back."""

    takeover: str = ""
    takeover_error: str = ""
    snooze_length: str = ""
    snooze_until: str = ""
    snooze_reason: str = ""
    snooze_errors: tuple[FieldError, ...] = ()
    note: str = ""
    note_error: str = ""
    note_key: str = ""


def has_form_for(page: CasePage, draft: WorkDraft) -> bool:
    """Whether the page still has the form that this was typed into."""
    if draft.takeover:
        return page.desk is not None and bool(page.desk.takeover_href)
    if draft.snooze_reason or draft.snooze_until:
        return page.snooze is not None and bool(page.snooze.href)
    return not draft.note or page.note is not None


def desk_view(case: Case, desk: Desk, *, actor: str, may_work: bool, draft: WorkDraft) -> DeskView | None:
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
        leave_href=reverse("case_leaving", args=[case.pk]) if mine and ends_on_leaving(claim) else "",
        takeover_href=reverse("case_takeover", args=[case.pk]) if may_work and others else "",
        takeover_number=claim.number if claim is not None else 0,
        takeover_reason=draft.takeover,
        takeover_error=draft.takeover_error,
        holder=name_of(claim) if claim is not None else "",
        reason_length_min=REASON_LENGTH_MIN,
    )


def snooze_view(case: Case, desk: Desk, *, may_work: bool, draft: WorkDraft) -> SnoozeView | None:
    """Putting the case off, where it waits for a person and this one may; while it is, until when and why."""
    sleeps = desk.snooze
    waits = case.state == CaseState.NEEDS_DECISION and case.kind != CaseKind.CONFLICT
    if not waits or (not may_work and sleeps is None):
        return None
    lines: Phrase = ()
    if sleeps is not None and case.snoozed_until_at is not None:
        lines = (f"{sleeps.actor_name or sleeps.actor} put this case off. It comes back ",)
        lines = (
            *lines,
            Until(case.snoozed_until_at),
            ", at ",
            case.snoozed_until_at,
            ", or with new evidence.",
        )
    return SnoozeView(
        href=reverse("case_snooze", args=[case.pk]) if may_work else "",
        wake_href=reverse("case_wake", args=[case.pk]) if may_work and sleeps is not None else "",
        lines=lines,
        quote=sleeps.reason if sleeps is not None else "",
        lengths=tuple(
            Choice(value=str(minutes), label=label, selected=draft.snooze_length == str(minutes))
            for minutes, label in LENGTHS.items()
        ),
        until=draft.snooze_until,
        reason=draft.snooze_reason,
        errors=draft.snooze_errors,
        error_fields=tuple(one.field for one in draft.snooze_errors),
        reason_length_min=REASON_LENGTH_MIN,
    )


def note_form(case: Case, *, draft: WorkDraft) -> NoteForm:
    """The field under the timeline; each form has a key of its own, so that sent twice it is one note."""
    return NoteForm(
        href=reverse("case_note", args=[case.pk]),
        key=draft.note_key or new_id("form"),
        length_max=NOTE_LENGTH_MAX,
        text=draft.note,
        error=draft.note_error,
    )


def desk_lines(desk: Desk, *, actor: str) -> Phrase:
    """Who decides and who looks on, in one or two sentences."""
    claim = desk.claim
    parts: list[Part] = []
    if claim is None:
        parts.append("Nobody works on this case.")
    elif claim.actor == actor:
        parts += [Strong("You work on this case"), ". The claim ends "]
        parts += [Until(claim.until_at), ", unless this page stays in use."]
        if ends_on_leaving(claim):
            parts.append(" Leaving it gives the case back.")
    else:
        unopened = claim.given_by and claim.used_at == claim.claimed_at
        given = f"{claim.given_by} gave this case to {name_of(claim)}"
        parts += [Strong(given if unopened else f"{name_of(claim)} works on this case"), ". The claim ends "]
        parts += [
            Until(claim.until_at),
            ", unless it is kept in use. You can decide all the same: whoever is first has decided.",
        ]
    holder = claim.actor if claim is not None else ""
    looking = [name_of(one) for one in desk.present if one.actor not in (actor, holder)]
    if looking:
        shown = ", ".join(looking[:_NAMES_MAX])
        more = f" and {len(looking) - _NAMES_MAX} more" if len(looking) > _NAMES_MAX else ""
        parts.append(f" Also looking at it: {shown}{more}.")
    return tuple(parts)


def ends_on_leaving(claim: CaseClaim | None) -> bool:
    """Whether the claim is given back by leaving the page."""
    return claim is not None and claim.taken_as == TakenAs.NEXT


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
