"""Declaring a provider in the console: fields or text, previewed before it is saved."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse

from console.access import Deed
from console.pages.declaration_forms import Act, DeclarationDraft, digest_of, read_declaration
from console.pages.drafts import shown_facts, take_draft
from console.pages.guards import Viewer, page
from console.pages.present.declaring import (
    closed_page,
    declared_meanwhile,
    declaring_page,
    look_first,
    not_declared,
)
from console.pages.shapes import Banner, Fact, FieldError
from console.pages.shapes.declaring import DeclaringPage
from reconciliation.declaring import (
    DeclarationMoved,
    NoTeam,
    NothingDeclared,
    OpenOperationsHold,
    declare,
    faults_of,
    judge,
    newest_declaration,
    without_secrets,
)
from reconciliation.providers.declaration import Declared
from reconciliation.providers.tables import DeclarationInvalid
from reconciliation.sampling import Sampled, sample
from runs import account_access
from runs.refusals import Invalid, NotFound, Refusal

_REFUSED = "It is refused as a file would be: each sentence says what was found and what is allowed."


@page("GET", "HEAD", "POST")
def provider_new(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Show the form, what its declaration would promise, or save it."""
    why_not = viewer.why_not(Deed.DECLARE)
    if why_not:
        posted = request.method == "POST"
        typed_kept = shown_facts(request.POST) if posted else ()
        return _render(request, closed_page(why_not), status=403 if posted else 200, typed_kept=typed_kept)
    if request.method != "POST":
        return _open(request, viewer)
    draft = read_declaration(request.POST)
    text, unread, places = draft.declaration()
    shown = DeclarationDraft({**draft.typed, "text": text})
    try:
        declared = judge(text)
    except DeclarationInvalid as error:
        unreadable = {one.field for one in unread}
        faults = tuple(
            # The reader misses what couldn't be written, and that is said already.
            one
            for one in draft.placed(faults_of(error), places)
            if one.field not in unreadable
        )
        if error.details.get("secret_places"):
            # What may be a secret isn't shown again, not even to whoever typed it.
            shown = shown.without({one.field for one in faults} - {"text"}, text=without_secrets(text))
        return _again(request, shown, errors=(*unread, *faults), banner=not_declared(_REFUSED), status=422)
    if unread:
        return _again(request, shown, errors=unread, banner=not_declared(_REFUSED), status=422)
    match draft.act:
        case Act.PREVIEW:
            return _again(request, shown, declared=declared)
        case Act.SAMPLE:
            return _sampled(request, shown, declared)
        case Act.SAVE:
            return _saved(request, viewer, shown, declared)


def _open(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """A fresh form, one that a lost session had kept, or the declaration in force to be changed."""
    if kept := take_draft(request, path=request.path):
        return _again(request, read_declaration(kept))
    slug = request.GET.get("account", "")[:64]
    if not slug:
        return _again(request, DeclarationDraft(fresh=True))
    newest = None if slug in account_access.closed_to(viewer.teams) else newest_declaration(slug)
    if newest is None:
        raise NotFound(f"“{slug}” isn't declared in the console.", account=slug)
    typed = {"counts": "text", "text": newest.text, "seen_number": str(newest.number)}
    return _again(request, DeclarationDraft(typed, fresh=True), slug=slug)


def _sampled(request: HttpRequest, draft: DeclarationDraft, declared: Declared) -> HttpResponse:
    try:
        done = sample(text=draft["text"], sample=draft.sample())
    except Invalid as refusal:
        where = str(refusal.details.get("where", ""))
        field = where if where in ("sample_payload", "sample_status") else "sample_body"
        error = FieldError(field=field, sentence=refusal.sentence)
        return _again(request, draft, declared=declared, errors=(error,), status=422)
    return _again(request, draft, declared=declared, sampled=done)


def _saved(request: HttpRequest, viewer: Viewer, draft: DeclarationDraft, declared: Declared) -> HttpResponse:
    if draft["shown_digest"] != digest_of(draft["text"]):
        return _again(request, draft, declared=declared, banner=look_first(), status=409)
    try:
        made = declare(
            text=draft["text"],
            reason=draft["reason"],
            seen_number=draft.seen_number,
            actor=viewer.actor,
            actor_name=viewer.name,
            teams=viewer.teams,
        )
    except DeclarationMoved as refusal:
        return _again(request, draft, declared=declared, banner=declared_meanwhile(refusal), status=409)
    except (OpenOperationsHold, NothingDeclared, NoTeam) as refusal:
        status = (
            409 if isinstance(refusal, NoTeam) else 423 if isinstance(refusal, OpenOperationsHold) else 422
        )
        banner = not_declared(refusal.sentence)
        return _again(request, draft, declared=declared, banner=banner, status=status)
    except Invalid as refusal:
        return _again(request, draft, declared=declared, errors=(_misplaced(draft, refusal),), status=422)
    new = made.number == 1
    whose = (
        f" It is there for {' and '.join(viewer.teams)} alone; Account access changes that." if new else ""
    )
    messages.success(request, f"Declared. It counts from now on, in every process within seconds.{whose}")
    return HttpResponseRedirect(reverse("provider", args=[made.account]))


def _misplaced(draft: DeclarationDraft, refusal: Refusal) -> FieldError:
    where = str(refusal.details.get("where", ""))
    if where == "slug":
        return FieldError(field="text" if draft.by_text else "slug", sentence=refusal.sentence)
    return FieldError(field="reason", sentence=refusal.sentence)


def _again(
    request: HttpRequest,
    draft: DeclarationDraft,
    *,
    slug: str = "",
    declared: Declared | None = None,
    sampled: Sampled | None = None,
    errors: tuple[FieldError, ...] = (),
    banner: Banner | None = None,
    status: int = 200,
) -> HttpResponse:
    if not slug and draft.seen_number > 0 and declared is not None:
        slug = declared.account.slug
    shown = declaring_page(draft, slug=slug, declared=declared, sampled=sampled, errors=errors, banner=banner)
    return _render(request, shown, status=status)


def _render(
    request: HttpRequest, shown: DeclaringPage, *, status: int, typed_kept: tuple[Fact, ...] = ()
) -> HttpResponse:
    return render(request, "provider_new.html", {"page": shown, "typed_kept": typed_kept}, status=status)
