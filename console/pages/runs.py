"""Runs: the list, one of them, taking its lease away, and asking a second person about it."""

from __future__ import annotations

from dataclasses import replace

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse

from console.access import Deed
from console.pages.drafts import shown_facts
from console.pages.forms import DecisionForm, read_form
from console.pages.guards import Viewer, is_given_back, page
from console.pages.present.asking_two import AskTyped, read_ask, wanted_of
from console.pages.present.review import refused_banner
from console.pages.present.runs import run_list_page, run_page
from console.pages.shapes import Banner, FieldError
from console.queries.finding import clean
from console.queries.runs import Asked, View, find_run, list_runs, read_run
from reconciliation import approvals
from reconciliation.persons import Forbidden
from runs.leases import StaleToken, revoke
from runs.locking import database_now
from runs.refusals import Invalid, NotFound, Refusal


@page("GET", "HEAD")
def run_list(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """List runs, newest first; filters and place are in the address."""
    view = request.GET.get("view", "")
    asked = Asked(
        view=View(view) if view in set(View) else View.ALL,
        text=clean(request.GET.get("q", "")),
        flow=clean(request.GET.get("flow", "")),
        after=request.GET.get("after", ""),
    )
    listed = list_runs(teams=viewer.teams, asked=asked)
    query = {name: str(value) for name, value in request.GET.items() if name != "after" and value}
    return render(request, "run_list.html", {"page": run_list_page(listed, asked, query=query)})


@page("GET", "HEAD")
def run(request: HttpRequest, viewer: Viewer, run_id: str) -> HttpResponse:
    """Show one run: its plan, its time, its budget and leases."""
    return _show(request, viewer, run_id)


@page("POST", gives_back=True)
def run_revoke(request: HttpRequest, viewer: Viewer, run_id: str) -> HttpResponse:
    """Take the lease away from its holder."""
    found = find_run(run_id, teams=viewer.teams)
    form = read_form(request.POST)
    if is_given_back(request):
        return _show(request, viewer, run_id, form=form)
    why_not = viewer.why_not(Deed.REVOKE_LEASE)
    if why_not:
        return _show(request, viewer, run_id, form=form, banner=_not_revoked(why_not), status=403)
    errors = tuple(one for one in form.check(permission=None) if one.field == "reason")
    if errors:
        return _show(request, viewer, run_id, form=form, errors=errors, status=422)
    try:
        revoke(team=found.team_id, run_id=found.pk, actor=viewer.actor, reason=form["reason"].strip())
    except StaleToken as refusal:
        return _show(request, viewer, run_id, form=form, banner=_not_revoked(refusal.sentence), status=409)
    messages.success(
        request, "The lease is revoked. Its holder's later writes are refused and kept as evidence."
    )
    return HttpResponseRedirect(reverse("run", args=[found.pk]))


@page("POST", gives_back=True)
def run_ask(request: HttpRequest, viewer: Viewer, run_id: str) -> HttpResponse:
    """Ask a second person for something about the run; it is answered on a page of its own."""
    found = find_run(run_id, teams=viewer.teams)
    typed = read_ask(request.POST)
    if is_given_back(request):
        return _show(request, viewer, run_id, typed=typed)
    why_not = viewer.why_not(Deed.REQUEST)
    if why_not:
        return _show(request, viewer, run_id, typed=typed, banner=_not_asked(why_not), status=403)
    try:
        wanted = wanted_of(typed, found, now=database_now())
        made = approvals.request(
            kind=wanted.kind,
            worker=viewer.worker,
            team=found.team_id,
            parameters=wanted.parameters,
            reason=typed.reason,
            key=typed.key,
            run_id=found.pk,
            operation_id=wanted.operation_id,
            until_at=wanted.until_at,
        )
    except Invalid as refusal:
        field = f"{typed.ask}-{refusal.details.get('where', 'reason')}"
        wrong = replace(typed, errors=(FieldError(field=field, sentence=refusal.sentence),))
        return _show(request, viewer, run_id, typed=wrong, status=422)
    except NotFound:
        raise
    except Refusal as refusal:
        fresh = replace(typed, key="")
        status = 403 if isinstance(refusal, Forbidden) else 409
        return _show(request, viewer, run_id, typed=fresh, banner=_not_asked(refusal.sentence), status=status)
    messages.success(request, "Asked. A second person of the team answers here; nothing is done until then.")
    return HttpResponseRedirect(reverse("approval", args=[made.approval.pk]))


def _not_asked(sentence: str) -> Banner:
    return replace(refused_banner(sentence, kept=True), title=("Nothing was asked for.",))


def _not_revoked(sentence: str) -> Banner:
    banner = refused_banner(sentence, kept=False)
    return Banner(
        title=("The lease was not revoked.",),
        icon=banner.icon,
        tone=banner.tone,
        text=banner.text,
        focus=True,
    )


def _show(
    request: HttpRequest,
    viewer: Viewer,
    run_id: str,
    *,
    form: DecisionForm | None = None,
    errors: tuple[FieldError, ...] = (),
    banner: Banner | None = None,
    typed: AskTyped | None = None,
    status: int = 200,
) -> HttpResponse:
    shown = run_page(
        read_run(run_id, teams=viewer.teams),
        revoke_why_not=viewer.why_not(Deed.REVOKE_LEASE),
        ask_why_not=viewer.why_not(Deed.REQUEST),
        banner=banner,
        typed=typed,
        reason=form["reason"] if form is not None else "",
        errors=errors,
    )
    lost = form is not None and not shown.revoke_href
    lost = lost or (typed is not None and not any(one.open for one in shown.asks))
    typed_kept = shown_facts(request.POST) if lost else ()
    return render(request, "run.html", {"page": shown, "typed_kept": typed_kept}, status=status)
