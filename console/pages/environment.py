"""The environment: which database this is, said by administrators, and opening accounts after a restore."""

from __future__ import annotations

from datetime import UTC, datetime

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse

from console.access import Deed
from console.pages.drafts import shown_facts
from console.pages.forms import clean
from console.pages.guards import Viewer, is_given_back, page
from console.pages.present.environment import environment_page
from console.pages.shapes import Banner, FieldError
from console.queries.environment import read_environment
from reconciliation import restoring
from reconciliation.restoring import NothingFrozen, NotReconciled
from runs.locking import database_now
from runs.refusals import Invalid
from runs.states import FreezeAnswer

_FIELDS = {"answer": 20, "backup_taken_at": 40, "reason": 4_000}


@page("GET", "HEAD")
def environment(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Show where this database is, what sends, and what was forgotten."""
    return _show(request, viewer)


@page("POST", gives_back=True)
def environment_answer(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Say which database this is."""
    draft = {
        name: clean(request.POST[name])[:length] for name, length in _FIELDS.items() if name in request.POST
    }
    if is_given_back(request):
        return _show(request, viewer, draft=draft)
    why_not = viewer.why_not(Deed.STATE_ENVIRONMENT)
    if why_not:
        return _show(request, viewer, draft=draft, banner=_refused(why_not), status=403)
    taken_at, errors = _read(draft)
    if errors:
        return _show(request, viewer, draft=draft, errors=errors, status=422)
    try:
        restoring.answer_freeze(
            freeze_id=clean(request.POST.get("freeze", ""))[:40],
            answer=FreezeAnswer(draft["answer"]),
            backup_taken_at=taken_at,
            actor=viewer.actor,
            actor_name=viewer.name,
            reason=draft.get("reason", ""),
        )
    except NothingFrozen as refusal:
        return _show(request, viewer, draft=draft, banner=_refused(refusal.sentence), status=409)
    except Invalid as refusal:
        error = FieldError(field=str(refusal.details.get("where", "reason")), sentence=refusal.sentence)
        return _show(request, viewer, draft=draft, errors=(error,), status=422)
    messages.success(request, "Recorded. What that means for each account is shown below.")
    return HttpResponseRedirect(reverse("environment"))


@page("POST")
def environment_open(request: HttpRequest, viewer: Viewer, slug: str) -> HttpResponse:
    """Let one account send again."""
    why_not = viewer.why_not(Deed.STATE_ENVIRONMENT)
    if why_not:
        return _show(request, viewer, banner=_refused(why_not), status=403)
    try:
        restoring.open_account(
            account=slug,
            actor=viewer.actor,
            reason="Opened on the environment page.",
            teams=viewer.teams,
        )
    except (NothingFrozen, NotReconciled) as refusal:
        return _show(request, viewer, banner=_refused(refusal.sentence), status=409)
    messages.success(request, f"{slug} sends again. What stays unknown there still waits for its decision.")
    return HttpResponseRedirect(reverse("environment"))


def _read(draft: dict[str, str]) -> tuple[datetime | None, tuple[FieldError, ...]]:
    errors = []
    if draft.get("answer") not in set(FreezeAnswer) - {FreezeAnswer.AWAITED}:
        errors.append(FieldError(field="answer", sentence="Choose which database this is"))
    taken_at = None
    written = draft.get("backup_taken_at", "").strip()
    if written:
        try:
            at = datetime.fromisoformat(written)
            taken_at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        except (ValueError, OverflowError):
            sentence = "Write it as 2026-11-30 14:05, in UTC"
            errors.append(FieldError(field="backup_taken_at", sentence=sentence))
    return taken_at, tuple(errors)


def _refused(sentence: str) -> Banner:
    return Banner(tone="red", icon="octagon-x", title=("Nothing was changed.",), text=(sentence,), focus=True)


def _show(
    request: HttpRequest,
    viewer: Viewer,
    *,
    draft: dict[str, str] | None = None,
    errors: tuple[FieldError, ...] = (),
    banner: Banner | None = None,
    status: int = 200,
) -> HttpResponse:
    shown = environment_page(
        read_environment(teams=viewer.teams),
        now=database_now(),
        why_not=viewer.why_not(Deed.STATE_ENVIRONMENT),
        draft=draft or {},
        errors=errors,
        banner=banner,
    )
    has_form = shown.form is not None and not shown.form.closed
    typed_kept = shown_facts(request.POST) if draft is not None and not has_form else ()
    return render(request, "environment.html", {"page": shown, "typed_kept": typed_kept}, status=status)
