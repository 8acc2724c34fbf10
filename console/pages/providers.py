"""Provider accounts: the list, one of them, a lookup on trial, and tightening."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse

from console.access import Deed
from console.pages.drafts import shown_facts
from console.pages.guards import Viewer, is_given_back, page
from console.pages.present.account_access import access_form
from console.pages.present.providers import provider_list_page, provider_page
from console.pages.present.tightening import moved_banner, not_tightened
from console.pages.present.trial import not_asked, trial_form, trial_result
from console.pages.provider_forms import TighteningDraft, TrialDraft, read_tightening, read_trial
from console.pages.shapes import Banner, FieldError, TrialResult
from console.pages.shapes.administration import ChangeForm
from console.queries import administration
from console.queries.providers import ProviderRead, list_providers, read_provider
from reconciliation.rehearsal import CannotBeAsked, rehearse
from reconciliation.strictness import BY_FIELD
from reconciliation.tightening import (
    ContractMoved,
    LooseningNeedsApproval,
    NothingTightened,
    tighten,
)
from runs.refusals import Invalid, NotFound, Refusal

# From a refusal's `where` to the field of the form that it is about.
_TRIAL_FIELDS = ("operation", "key", "tool", "payload", "reference", "first_sent_at")


@page("GET", "HEAD")
def provider_list(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """List every provider account."""
    listed = list_providers(teams=viewer.teams)
    shown = provider_list_page(listed, declares=not viewer.why_not(Deed.DECLARE))
    return render(request, "provider_list.html", {"page": shown})


@page("GET", "HEAD")
def provider(request: HttpRequest, viewer: Viewer, slug: str) -> HttpResponse:
    """Show one account: what it promises, how that was tested, how it is doing."""
    return _show(request, viewer, slug)


@page("POST", gives_back=True)
def provider_test(request: HttpRequest, viewer: Viewer, slug: str) -> HttpResponse:
    """Ask the provider one question on trial; the answer is shown and not kept."""
    read_provider(slug, teams=viewer.teams)
    draft = read_trial(request.POST)
    if is_given_back(request):
        return _show(request, viewer, slug, trial=draft)
    why_not = viewer.why_not(Deed.TEST_LOOKUP)
    if why_not:
        return _show(request, viewer, slug, trial=draft, banner=not_asked(why_not), status=403)
    about = draft.about()
    if isinstance(about, FieldError):
        return _show(request, viewer, slug, trial=draft, trial_errors=(about,), status=422)
    try:
        done = rehearse(account=slug, about=about, teams=viewer.teams, actor=viewer.actor)
    except CannotBeAsked as refusal:
        return _show(request, viewer, slug, trial=draft, banner=not_asked(refusal.sentence), status=409)
    except NotFound as refusal:
        missing = FieldError(field="operation", sentence=refusal.sentence)
        return _show(request, viewer, slug, trial=draft, trial_errors=(missing,), status=404)
    except Invalid as refusal:
        where = str(refusal.details.get("where", ""))
        field = where if where in _TRIAL_FIELDS else "operation"
        error = FieldError(field=field, sentence=refusal.sentence)
        return _show(request, viewer, slug, trial=draft, trial_errors=(error,), status=422)
    return _show(request, viewer, slug, trial=draft, result=trial_result(done, now=done.asked_at))


@page("POST", gives_back=True)
def provider_tighten(request: HttpRequest, viewer: Viewer, slug: str) -> HttpResponse:
    """Hold the account to less than it promises."""
    read_provider(slug, teams=viewer.teams)
    draft = read_tightening(request.POST)
    if is_given_back(request):
        return _show(request, viewer, slug, draft=draft)
    why_not = viewer.why_not(Deed.TIGHTEN)
    if why_not:
        return _show(request, viewer, slug, draft=draft, banner=not_tightened(why_not), status=403)
    wanted, errors = draft.wanted()
    if errors:
        return _show(request, viewer, slug, draft=draft, errors=errors, status=422)
    try:
        tighten(
            account=slug,
            wanted=wanted,
            reason=draft["reason"],
            seen_number=draft.seen_number,
            actor=viewer.actor,
            actor_name=viewer.name,
            teams=viewer.teams,
        )
    except Refusal as refusal:
        return _say(request, viewer, slug, draft, refusal)
    messages.success(request, "Tightened. It counts from now on, in every process within seconds.")
    return HttpResponseRedirect(reverse("provider", args=[slug]) + "#tightened")


def _say(
    request: HttpRequest, viewer: Viewer, slug: str, draft: TighteningDraft, refusal: Refusal
) -> HttpResponse:
    """The page of a refusal, from its own sentence; nothing typed is lost."""
    match refusal:
        case ContractMoved():
            banner = moved_banner(refusal, read_provider(slug, teams=viewer.teams))
            return _show(request, viewer, slug, draft=draft, banner=banner, status=409)
        case LooseningNeedsApproval():
            looser = refusal.details.get("fields", [])
            errors = tuple(FieldError(field=name, sentence="Looser than what is in force") for name in looser)
            banner = not_tightened(refusal.sentence)
            return _show(request, viewer, slug, draft=draft, banner=banner, errors=errors, status=423)
        case NothingTightened():
            return _show(
                request, viewer, slug, draft=draft, banner=not_tightened(refusal.sentence), status=422
            )
        case Invalid():
            where = str(refusal.details.get("where", ""))
            field = where if where in BY_FIELD else "reason"
            error = FieldError(field=field, sentence=refusal.sentence)
            return _show(request, viewer, slug, draft=draft, errors=(error,), status=422)
        case _:
            raise refusal


def _access(viewer: Viewer, read: ProviderRead) -> ChangeForm | None:
    """The form that says who may use it, for whoever may say so; None until the journal knows the account."""
    if viewer.why_not(Deed.ADMINISTER) or not read.known_to_journal:
        return None
    return access_form(read.account.slug, named=read.named_teams, teams=administration.teams())


def _show(
    request: HttpRequest,
    viewer: Viewer,
    slug: str,
    *,
    trial: TrialDraft | None = None,
    trial_errors: tuple[FieldError, ...] = (),
    result: TrialResult | None = None,
    draft: TighteningDraft | None = None,
    errors: tuple[FieldError, ...] = (),
    banner: Banner | None = None,
    status: int = 200,
) -> HttpResponse:
    read = read_provider(slug, teams=viewer.teams)
    shown = provider_page(
        read,
        trial=trial_form(
            read,
            why_not=viewer.why_not(Deed.TEST_LOOKUP),
            draft=trial or TrialDraft(),
            errors=trial_errors,
        ),
        tighten_why_not=viewer.why_not(Deed.TIGHTEN),
        draft=draft or TighteningDraft(),
        errors=errors,
        result=result,
        banner=banner,
        access=_access(viewer, read),
    )
    closed = (trial is not None and shown.trial.closed) or (draft is not None and shown.tighten.closed)
    typed_kept = shown_facts(request.POST) if closed else ()
    return render(request, "provider.html", {"page": shown, "typed_kept": typed_kept}, status=status)
