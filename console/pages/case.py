"""One case: read it, review a decision, record it, look again, take a retry back."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse

from console.access import Deed
from console.pages.drafts import shown_facts, take_draft
from console.pages.forms import DecisionForm, idempotency_key_of, read_form
from console.pages.guards import Viewer, is_given_back, page, wants_partial
from console.pages.present.attaching import attach_form
from console.pages.present.case import case_page
from console.pages.present.desk import WorkDraft, has_form_for
from console.pages.present.review import (
    decided_banner,
    kept_facts,
    locked_banner,
    news_banner,
    refused_banner,
    review_page,
    stale_banner,
)
from console.pages.shapes import AttachForm, Banner, FieldError
from console.queries.cases import CaseRead, find_case, read_case, standing_of
from reconciliation.decisions import ActionLocked, DecisionStale, Forbidden, KeyReused, decide
from reconciliation.lookups import ask_again, why_not_looked_up
from reconciliation.retries import withdraw_grant
from reconciliation.reviewing import review
from reconciliation.states import Action
from reconciliation.working import be_there
from runs.ids import new_id
from runs.refusals import Invalid, Refusal

# From a refusal's `where` to the field of the form that it is about.
_FIELDS = {
    "reason_code": "reason_code",
    "reason": "reason",
    "executor": "executor",
    "then": "then",
    "receipt": "receipt",
}


@page("GET", "HEAD")
def case(request: HttpRequest, viewer: Viewer, case_id: str) -> HttpResponse:
    """Show the case as it stands, to somebody who is now seen to look at it and keeps their claim by it."""
    arrive(viewer, case_id, used=True)
    read = read_for(request, viewer, case_id)
    made = request.GET.get("decided", "")
    decision = next((one for one in read.decisions if one.pk == made), None)
    banner = decided_banner(read, decision) if decision is not None else None
    return show_case(request, viewer, read, DecisionForm(), banner=banner)


@page("GET", "HEAD")
def case_live(request: HttpRequest, viewer: Viewer, case_id: str) -> HttpResponse:
    """The verdict, questions and comparison, asked for again while something is under way."""
    read = read_for(request, viewer, case_id)
    return show_case(request, viewer, read, DecisionForm(), template="case.html#live")


@page("GET", "HEAD")
def case_news(request: HttpRequest, viewer: Viewer, case_id: str) -> HttpResponse:
    """Say that the case has moved since the version that the page shows; empty while it hasn't."""
    standing = standing_of(case_id, teams=viewer.teams)
    version = request.GET.get("version", "")
    seen = int(version) if version.isdecimal() and len(version) < 10 else 0
    same = (seen, request.GET.get("digest", "")) == (standing.version, standing.evidence_digest)
    news = (
        None
        if same
        else news_banner(
            case_id=case_id,
            version=standing.version,
            seen_version=seen,
            finding=standing.finding_summary,
        )
    )
    return render(request, "case.html#news", {"page": {"news": news}})


@page("GET", "HEAD", "POST")
def case_decide(request: HttpRequest, viewer: Viewer, case_id: str) -> HttpResponse:
    """Two steps: review, which writes nothing, and record; from the review back to the form is a third.

    Whatever was typed survives every refusal.
    """
    if request.method != "POST":
        # Where a sign-in leads back to, with what had been typed.
        draft = DecisionForm(take_draft(request, path=request.path))
        if not draft.fields:
            return HttpResponseRedirect(reverse("case", args=[case_id]) + "#decision")
        return show_case(request, viewer, read_for(request, viewer, case_id), draft)
    form = read_form(request.POST)
    read = read_for(request, viewer, case_id)
    why_not = viewer.why_not(Deed.DECIDE)
    if why_not:
        return _refused(request, viewer, case_id, form, refused_banner(why_not, kept=True), status=403)
    if request.POST.get("step") == "edit":
        # Back from the review without a script: nothing is recorded and nothing is lost.
        return show_case(request, viewer, read, form)
    action = form.action
    status = read.judged.assessment.action(action) if action is not None else None
    errors = form.check(
        permission=status.permission if status is not None else None,
        receipt_unlocks=status is not None and status.receipt_unlocks,
    )
    if errors or action is None:
        return show_case(request, viewer, read, form, errors=errors, status=422)
    try:
        if request.POST.get("step") == "record":
            return _record(viewer, read, form, action)
        return _review(request, viewer, read, form, action)
    except Refusal as refusal:
        return _say(request, viewer, case_id, form, refusal)


def _review(
    request: HttpRequest, viewer: Viewer, read: CaseRead, form: DecisionForm, action: Action
) -> HttpResponse:
    key = new_id("form")
    asked = form.asked(action, idempotency_key=key)
    reviewed = review(
        case=read.case, operation=read.operation, judged=read.judged, actor=viewer.actor, asked=asked
    )
    shown = review_page(read, reviewed, form, action=action, idempotency_key=key, recorded_as=viewer.name)
    template = "case_decide.html#sheet" if wants_partial(request) else "case_decide.html"
    return render(request, template, {"page": shown})


def _record(viewer: Viewer, read: CaseRead, form: DecisionForm, action: Action) -> HttpResponse:
    decided = decide(
        case_id=read.case.pk,
        team=read.case.team_id,
        actor=viewer.actor,
        asked=form.asked(action, idempotency_key=idempotency_key_of(form)),
        actor_name=viewer.name,
    )
    if decided.approval:
        return HttpResponseRedirect(reverse("case", args=[read.case.pk]) + "#decision")
    target = reverse("case", args=[read.case.pk], query={"decided": decided.answer["decision"]})
    return HttpResponseRedirect(target)


def _say(
    request: HttpRequest, viewer: Viewer, case_id: str, form: DecisionForm, refusal: Refusal
) -> HttpResponse:
    """The page of a refusal, from its own sentence; the case is read anew, for it may have moved."""
    match refusal:
        case DecisionStale():
            read = read_for(request, viewer, case_id)
            banner = stale_banner(refusal, now=read.now, kept=True)
            return _refused(request, viewer, case_id, form, banner, status=409, read=read)
        case ActionLocked():
            return _refused(request, viewer, case_id, form, locked_banner(refusal, kept=True), status=423)
        case KeyReused():
            banner = refused_banner(f"{refusal.sentence} Review it again.", kept=True)
            return _refused(request, viewer, case_id, form, banner, status=409)
        case Forbidden():
            banner = refused_banner(refusal.sentence, kept=True)
            return _refused(request, viewer, case_id, form, banner, status=403)
        case Invalid():
            where = str(refusal.details.get("where", ""))
            error = FieldError(field=_FIELDS.get(where, "action"), sentence=refusal.sentence)
            read = read_for(request, viewer, case_id)
            return show_case(request, viewer, read, form, errors=(error,), status=422)
        case _:
            raise refusal


def _refused(
    request: HttpRequest,
    viewer: Viewer,
    case_id: str,
    form: DecisionForm,
    banner: Banner,
    *,
    status: int,
    read: CaseRead | None = None,
) -> HttpResponse:
    shown = read or read_for(request, viewer, case_id)
    return show_case(request, viewer, shown, form, banner=banner, status=status)


@page("POST")
def case_lookup(request: HttpRequest, viewer: Viewer, case_id: str) -> HttpResponse:
    """Let the case be looked up now; that moves no version and voids no form."""
    found = find_case(case_id, teams=viewer.teams)
    why_not = viewer.why_not(Deed.LOOK_UP)
    if why_not:
        banner = refused_banner(why_not, kept=False)
        return _refused(request, viewer, case_id, DecisionForm(), banner, status=403)
    case = ask_again(case_id=found.pk, team=found.team_id, actor=viewer.actor)
    asked = "A lookup is asked for. It only reads, and its answer will show here."
    messages.info(request, why_not_looked_up(case) or asked)
    return HttpResponseRedirect(reverse("case", args=[found.pk]))


@page("POST", gives_back=True)
def case_withdraw(request: HttpRequest, viewer: Viewer, case_id: str) -> HttpResponse:
    """Take a granted retry back while it is unused."""
    read = read_for(request, viewer, case_id)
    form = read_form(request.POST)
    if is_given_back(request):
        return show_case(request, viewer, read, form)
    why_not = viewer.why_not(Deed.WITHDRAW_RETRY)
    if why_not:
        return _refused(request, viewer, case_id, form, refused_banner(why_not, kept=True), status=403)
    errors = tuple(one for one in form.check(permission=None) if one.field == "reason")
    if errors:
        return show_case(request, viewer, read, form, errors=errors, status=422)
    withdrawn = withdraw_grant(
        case_id=case_id, team=read.case.team_id, actor=viewer.actor, reason=form["reason"].strip()
    )
    if not withdrawn:
        sentence = "There is no unused retry any more: it was used, it ended, or somebody withdrew it before."
        return _refused(request, viewer, case_id, form, refused_banner(sentence, kept=True), status=409)
    messages.success(request, "The retry is withdrawn. Nothing was sent by it.")
    return HttpResponseRedirect(reverse("case", args=[case_id]))


def arrive(viewer: Viewer, case_id: str, *, used: bool) -> None:
    """Note that the person's page of the case is open, and keep their claim if they have one.

    Of a case that isn't their teams', nothing is noted; whoever reads it then is told that there is none.
    """
    be_there(case_id=case_id, teams=viewer.teams, worker=viewer.worker, used=used)


def read_for(request: HttpRequest, viewer: Viewer, case_id: str) -> CaseRead:
    """The case as this person may see it. Raises `NotFound`."""
    return read_case(case_id, teams=viewer.teams, evidence_before=request.GET.get("evidence_before", "")[:64])


def show_case(
    request: HttpRequest,
    viewer: Viewer,
    read: CaseRead,
    form: DecisionForm,
    *,
    errors: tuple[FieldError, ...] = (),
    banner: Banner | None = None,
    status: int = 200,
    template: str = "case.html",
    work: WorkDraft | None = None,
    attach: AttachForm | None = None,
) -> HttpResponse:
    """The page of the case as read, with what the person had typed and what came of it."""
    shown = case_page(
        read,
        form=form,
        errors=errors,
        banner=banner,
        decide_why_not=viewer.why_not(Deed.DECIDE),
        look_up_why_not=viewer.why_not(Deed.LOOK_UP),
        may_withdraw=not viewer.why_not(Deed.WITHDRAW_RETRY),
        recorded_as=viewer.name,
        actor=viewer.actor.id,
        work_why_not=viewer.why_not(Deed.WORK),
        work=work,
        attach=None if viewer.why_not(Deed.ATTACH) else attach or attach_form(read.case),
        kept=kept_facts(form) if form.fields else (),
    )
    lost = (work is not None and not has_form_for(shown, work)) or (
        attach is not None and shown.attach is None
    )
    typed_kept = shown_facts(request.POST) if lost else ()
    return render(request, template, {"page": shown, "typed_kept": typed_kept}, status=status)
