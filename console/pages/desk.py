"""Working on a case with others: who is there, claim it, give it back, take it over, take the next."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse

from console.access import Deed
from console.pages.case import arrive, read_for, show_case
from console.pages.forms import DecisionForm, clean
from console.pages.guards import Viewer, is_given_back, page
from console.pages.present.desk import LENGTHS, WorkDraft, desk_lines, unchanged_banner
from console.pages.provider_forms import instant_in
from console.pages.shapes import FieldError
from console.queries.cases import find_case, read_at
from console.queries.desk import desk_of
from reconciliation.decisions import KeyReused
from reconciliation.next_case import NothingToTake, next_for
from reconciliation.notes import NOTE_LENGTH_MAX, TooManyNotes, add_note
from reconciliation.snoozing import (
    ConflictStaysAwake,
    KeyEndsSoon,
    NotSnoozed,
    NotWaiting,
    snooze,
    unsnooze,
)
from reconciliation.working import (
    REASON_LENGTH_MAX,
    CaseSettled,
    CaseTaken,
    ClaimGone,
    claim_case,
    leave,
    release,
    take_over,
)
from runs.ids import could_be_id, new_id
from runs.locking import database_now
from runs.refusals import Invalid


@page("GET", "HEAD")
def case_desk(request: HttpRequest, viewer: Viewer, case_id: str) -> HttpResponse:
    """Who works on the case and who looks at it; asking says that this page is open still."""
    arrive(viewer, case_id, used=False)
    found = find_case(case_id, teams=viewer.teams)
    desk = desk_of(found, now=read_at(found))
    lines = desk_lines(desk, actor=viewer.actor.id)
    return render(request, "case.html#desk", {"page": {"desk": {"lines": lines}}})


@page("POST")
def case_claim(request: HttpRequest, viewer: Viewer, case_id: str) -> HttpResponse:
    """Claim the case for ten minutes."""
    found = find_case(case_id, teams=viewer.teams)
    why_not = viewer.why_not(Deed.WORK)
    if why_not:
        return _refused(request, viewer, case_id, why_not, status=403)
    try:
        claim_case(case_id=found.pk, team=found.team_id, worker=viewer.worker)
    except (CaseTaken, CaseSettled) as refusal:
        return _refused(request, viewer, case_id, refusal.sentence, status=409)
    return _back(case_id)


@page("POST")
def case_release(request: HttpRequest, viewer: Viewer, case_id: str) -> HttpResponse:
    """Give the person's own claim back."""
    found = find_case(case_id, teams=viewer.teams)
    try:
        release(case_id=found.pk, team=found.team_id, worker=viewer.worker)
    except ClaimGone as refusal:
        return _refused(request, viewer, case_id, refusal.sentence, status=409)
    messages.info(request, "You gave the case back. Colleagues can claim it now.")
    return _back(case_id)


@page("POST")
def case_leaving(_request: HttpRequest, viewer: Viewer, case_id: str) -> HttpResponse:
    """The person left the case's page: what was claimed as the next one is soon for others again."""
    leave(case_id=find_case(case_id, teams=viewer.teams).pk, worker=viewer.worker)
    return HttpResponse(status=204)


@page("POST", gives_back=True)
def case_takeover(request: HttpRequest, viewer: Viewer, case_id: str) -> HttpResponse:
    """Take a colleague's claim over, with a reason that stays on record."""
    found = find_case(case_id, teams=viewer.teams)
    why_not = viewer.why_not(Deed.WORK)
    number = request.POST.get("number", "")
    draft = WorkDraft(takeover=clean(request.POST.get("reason", ""))[: REASON_LENGTH_MAX * 4])
    if is_given_back(request):
        return _given_back(request, viewer, case_id, draft)
    if why_not:
        return _refused(request, viewer, case_id, why_not, status=403, work=draft)
    try:
        take_over(
            case_id=found.pk,
            team=found.team_id,
            worker=viewer.worker,
            reason=draft.takeover,
            seen_number=int(number) if number.isdecimal() and len(number) < 9 else 0,
        )
    except Invalid as refusal:
        wrong = WorkDraft(takeover=draft.takeover, takeover_error=refusal.sentence)
        read = read_for(request, viewer, case_id)
        return show_case(request, viewer, read, DecisionForm(), status=422, work=wrong)
    except (CaseTaken, CaseSettled) as refusal:
        return _refused(request, viewer, case_id, refusal.sentence, status=409, work=draft)
    messages.info(request, "You work on this case now. Your reason is on record.")
    return _back(case_id)


@page("POST", gives_back=True)
def case_snooze(request: HttpRequest, viewer: Viewer, case_id: str) -> HttpResponse:
    """Put the case off until a time, with a reason that stays on record."""
    found = find_case(case_id, teams=viewer.teams)
    posted = request.POST
    draft = WorkDraft(
        snooze_length=clean(posted.get("length", ""))[:20],
        snooze_until=clean(posted.get("until", ""))[:60],
        snooze_reason=clean(posted.get("reason", ""))[: REASON_LENGTH_MAX * 4],
    )
    if is_given_back(request):
        return _given_back(request, viewer, case_id, draft)
    why_not = viewer.why_not(Deed.WORK)
    if why_not:
        return _refused(request, viewer, case_id, why_not, status=403, work=draft)
    until_at = _until(draft, now=database_now())
    try:
        if until_at is None:
            raise Invalid("Choose how long, or write a time as 2026-11-30 14:05, in UTC.", where="until")
        wakes_at = snooze(
            case_id=found.pk,
            team=found.team_id,
            worker=viewer.worker,
            until_at=until_at,
            reason=draft.snooze_reason,
        )
    except Invalid as refusal:
        field = "snooze-reason" if refusal.details.get("where") == "reason" else "snooze-until"
        wrong = replace(draft, snooze_errors=(FieldError(field=field, sentence=refusal.sentence),))
        read = read_for(request, viewer, case_id)
        return show_case(request, viewer, read, DecisionForm(), status=422, work=wrong)
    except (NotWaiting, ConflictStaysAwake, KeyEndsSoon) as refusal:
        return _refused(request, viewer, case_id, refusal.sentence, status=409, work=draft)
    sooner = " That is sooner than you asked for: its key ends." if wakes_at < until_at else ""
    messages.success(request, f"Put off until {wakes_at:%d %b %H:%M}Z, or new evidence.{sooner}")
    return _back(case_id)


@page("POST")
def case_wake(request: HttpRequest, viewer: Viewer, case_id: str) -> HttpResponse:
    """Bring a case that is put off back into the list."""
    found = find_case(case_id, teams=viewer.teams)
    why_not = viewer.why_not(Deed.WORK)
    if why_not:
        return _refused(request, viewer, case_id, why_not, status=403)
    try:
        unsnooze(case_id=found.pk, team=found.team_id, worker=viewer.worker)
    except NotSnoozed as refusal:
        return _refused(request, viewer, case_id, refusal.sentence, status=409)
    messages.success(request, "The case waits in the list again.")
    return _back(case_id)


def _until(draft: WorkDraft, *, now: datetime) -> datetime | None:
    """The time that was written, else the end of the length that was chosen; None if neither can be read."""
    written = draft.snooze_until.strip()
    if written:
        return instant_in(written)
    lengths = {str(minutes): minutes for minutes in LENGTHS}
    minutes = lengths.get(draft.snooze_length)
    return None if minutes is None else now + timedelta(minutes=minutes)


@page("POST", gives_back=True)
def case_note(request: HttpRequest, viewer: Viewer, case_id: str) -> HttpResponse:
    """Add a note to the case; it stays in the timeline and decides nothing."""
    found = find_case(case_id, teams=viewer.teams)
    why_not = viewer.why_not(Deed.WORK)
    text, key = clean(request.POST.get("text", ""))[: NOTE_LENGTH_MAX * 4], request.POST.get("key", "")
    draft = WorkDraft(note=text, note_key=key if could_be_id(key) else new_id("form"))
    if is_given_back(request):
        return _given_back(request, viewer, case_id, draft)
    if why_not:
        return _refused(request, viewer, case_id, why_not, status=403, work=draft)
    try:
        add_note(case_id=found.pk, team=found.team_id, worker=viewer.worker, text=text, key=draft.note_key)
    except Invalid as refusal:
        read = read_for(request, viewer, case_id)
        wrong = replace(draft, note_error=refusal.sentence)
        return show_case(request, viewer, read, DecisionForm(), status=422, work=wrong)
    except (TooManyNotes, KeyReused) as refusal:
        # What it refuses for is the form; another has a key of its own.
        kept = replace(draft, note_key="")
        return _refused(request, viewer, case_id, refusal.sentence, status=409, work=kept)
    messages.success(request, "The note is in the timeline. It can’t be changed any more.")
    return HttpResponseRedirect(reverse("case", args=[case_id]) + "#timeline-title")


@page("POST")
def queue_next(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Claim the most urgent case that nobody works on, and go to it."""
    why_not = viewer.why_not(Deed.WORK)
    if why_not:
        messages.error(request, why_not)
        return HttpResponseRedirect(reverse("queue"))
    try:
        claim = next_for(teams=viewer.teams, worker=viewer.worker)
    except NothingToTake as refusal:
        messages.info(request, refusal.sentence)
        return HttpResponseRedirect(reverse("queue"))
    return _back(claim.case_id)


def _given_back(request: HttpRequest, viewer: Viewer, case_id: str, work: WorkDraft) -> HttpResponse:
    """The page of the case after a sign-in, with the form as it had been filled in."""
    return show_case(request, viewer, read_for(request, viewer, case_id), DecisionForm(), work=work)


def _back(case_id: str) -> HttpResponse:
    return HttpResponseRedirect(reverse("case", args=[case_id]))


def _refused(
    request: HttpRequest,
    viewer: Viewer,
    case_id: str,
    sentence: str,
    *,
    status: int,
    work: WorkDraft | None = None,
) -> HttpResponse:
    """The page of the case with the refusal's own sentence; what was typed is kept."""
    banner = unchanged_banner(sentence, kept=work is not None)
    read = read_for(request, viewer, case_id)
    return show_case(request, viewer, read, DecisionForm(), banner=banner, status=status, work=work)
