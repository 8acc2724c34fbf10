"""Requests for a second person's consent: which wait, and the four-eyes decision about one of them."""

from __future__ import annotations

import hashlib
from typing import cast

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.cache import get_conditional_response

from console import access
from console.access import Deed
from console.pages import reauthentication
from console.pages.drafts import shown_facts
from console.pages.forms import clean
from console.pages.guards import Viewer, is_given_back, page
from console.pages.present.approval_told import ACKNOWLEDGED
from console.pages.present.approvals import (
    Typed,
    answered_banner,
    approval_page,
    list_page,
    news_text,
    refused_banner,
)
from console.pages.shapes import Banner, FieldError
from console.queries.approvals import (
    Asked,
    Asker,
    View,
    count_waiting,
    list_approvals,
    next_for,
    read_approval,
)
from reconciliation import approval_messages, approvals
from reconciliation.approval_checks import COMMENT_LENGTH_MIN
from reconciliation.approval_models import COMMENT_LENGTH_MAX
from reconciliation.approval_refusals import ApprovalAnswered, ApprovalExpired, ApprovalVoid, OwnApproval
from reconciliation.approving import approve
from reconciliation.persons import Forbidden, KeyReused
from runs.ids import new_id
from runs.refusals import Invalid, Refusal

APPROVE, REFUSE, ASK = "approve", "refuse", "ask"
REPLY, WITHDRAW = "reply", "withdraw"


def asker_of(viewer: Viewer) -> Asker:
    """The person as requests know them: by account, and by the human being behind it."""
    return Asker(actor=viewer.actor.id, principal=access.principal_of(viewer.person))


@page("GET", "HEAD")
def approval_list(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """List the requests of a view, by deadline; view, kind and place are in the address."""
    view = request.GET.get("view", "")
    asked = Asked(
        view=View(view) if view in set(View) else View.FOR_YOU,
        kind=clean(request.GET.get("kind", ""))[:40],
        after=request.GET.get("after", ""),
    )
    listed = list_approvals(teams=viewer.teams, asker=asker_of(viewer), asked=asked)
    why_not = viewer.why_not(Deed.APPROVE)
    shown = list_page(listed, asked, may_answer=not why_not, why_not=why_not)
    return render(request, "approvals.html", {"page": shown})


@page("GET", "HEAD")
def approval_news(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Say how many more wait than the list shows; it moves no row, and most of the time it is a 304."""
    seen = request.GET.get("seen", "")
    waiting = count_waiting(teams=viewer.teams, asker=asker_of(viewer))
    news = news_text(waiting, seen=int(seen) if seen.isdecimal() and len(seen) < 5 else 0)
    response = render(request, "approvals.html#news", {"page": {"news": news}})
    response["Cache-Control"] = "private, no-cache"
    etag = f'"{hashlib.sha256(response.content).hexdigest()}"'
    response["ETag"] = etag
    return cast("HttpResponse", get_conditional_response(request, etag=etag, response=response))


@page("GET", "HEAD")
def approval(request: HttpRequest, viewer: Viewer, approval_id: str) -> HttpResponse:
    """Show one request with everything that would be consented to."""
    return _show(request, viewer, approval_id, done=request.GET.get("done", ""))


@page("POST", gives_back=True)
def approval_answer(request: HttpRequest, viewer: Viewer, approval_id: str) -> HttpResponse:
    """Approve, refuse or ask back, with a comment, by somebody who has just shown that it is them."""
    found = approvals.find(approval_id=approval_id, teams=viewer.teams)
    posted, act = request.POST, request.POST.get("act", "")
    typed = _typed(request)
    if is_given_back(request):
        return _show(request, viewer, approval_id, typed=typed)
    why_not = viewer.why_not(Deed.APPROVE)
    if why_not:
        return _refused(request, viewer, approval_id, why_not, typed, status=403)
    errors = _missing(act, typed, needs_box=found.kind in ACKNOWLEDGED)
    if errors:
        wrong = Typed(comment=typed.comment, acknowledged=typed.acknowledged, key=typed.key, errors=errors)
        return _show(request, viewer, approval_id, typed=wrong, status=422)
    if not access.has_just_reauthenticated(request):
        return reauthentication.ask(request, target=reverse("approval", args=[found.pk]))
    try:
        match act:
            case "approve":
                approve(
                    approval_id=found.pk,
                    teams=viewer.teams,
                    worker=viewer.worker,
                    content_digest=posted.get("content_digest", ""),
                    comment=typed.comment,
                )
            case "refuse":
                approvals.refuse(
                    approval_id=found.pk, teams=viewer.teams, worker=viewer.worker, comment=typed.comment
                )
            case _:
                approval_messages.ask(
                    approval_id=found.pk,
                    teams=viewer.teams,
                    worker=viewer.worker,
                    text=typed.comment,
                    key=typed.key,
                )
    except Refusal as refusal:
        return _say(request, viewer, approval_id, refusal, typed)
    done = "asked" if act == ASK else "answered"
    return HttpResponseRedirect(reverse("approval", args=[found.pk], query={"done": done}))


@page("POST", gives_back=True)
def approval_own(request: HttpRequest, viewer: Viewer, approval_id: str) -> HttpResponse:
    """Reply to a question about one's own request, or take the request back."""
    found = approvals.find(approval_id=approval_id, teams=viewer.teams)
    typed = _typed(request)
    if is_given_back(request):
        return _show(request, viewer, approval_id, typed=typed)
    why_not = viewer.why_not(Deed.REQUEST)
    if why_not:
        return _refused(request, viewer, approval_id, why_not, typed, status=403)
    try:
        if request.POST.get("act") == WITHDRAW:
            approvals.withdraw(
                approval_id=found.pk, teams=viewer.teams, worker=viewer.worker, comment=typed.comment
            )
            messages.success(request, "Your request is withdrawn. Nothing was done.")
        else:
            approval_messages.reply(
                approval_id=found.pk,
                teams=viewer.teams,
                worker=viewer.worker,
                text=typed.comment,
                key=typed.key,
            )
            messages.success(request, "Your reply is with the request. What is asked for is as it was.")
    except Refusal as refusal:
        return _say(request, viewer, approval_id, refusal, typed)
    return HttpResponseRedirect(reverse("approval", args=[found.pk]))


def _typed(request: HttpRequest) -> Typed:
    posted = request.POST
    return Typed(
        comment=clean(posted.get("comment", ""))[: COMMENT_LENGTH_MAX * 4],
        acknowledged=posted.get("acknowledged") == "yes",
        key=posted.get("key", "")[:64],
    )


def _missing(act: str, typed: Typed, *, needs_box: bool) -> tuple[FieldError, ...]:
    """What the form lacks, in its order."""
    errors = []
    if act not in {APPROVE, REFUSE, ASK}:
        errors.append(FieldError(field="comment", sentence="Choose an answer: approve, refuse or ask back"))
    length = len(typed.comment.strip())
    if length < COMMENT_LENGTH_MIN:
        errors.append(FieldError(field="comment", sentence="Write a comment, in your own words"))
    if length > COMMENT_LENGTH_MAX:
        fits = f"{length:,} characters; {COMMENT_LENGTH_MAX:,} fit"
        errors.append(FieldError(field="comment", sentence=fits))
    if act == APPROVE and needs_box and not typed.acknowledged:
        errors.append(FieldError(field="acknowledged", sentence="Say that you accept what could go wrong"))
    return tuple(errors)


def _say(
    request: HttpRequest, viewer: Viewer, approval_id: str, refusal: Refusal, typed: Typed
) -> HttpResponse:
    """The page of a refusal, from its own sentence; the request is read anew, for it may have moved."""
    match refusal:
        case Invalid() if refusal.details.get("where") in {"comment", "text"}:
            error = FieldError(field="comment", sentence=refusal.sentence)
            wrong = Typed(
                comment=typed.comment, acknowledged=typed.acknowledged, key=typed.key, errors=(error,)
            )
            return _show(request, viewer, approval_id, typed=wrong, status=422)
        case OwnApproval() | Forbidden():
            status = 403
        case Invalid() | KeyReused() | ApprovalAnswered() | ApprovalExpired() | ApprovalVoid():
            status = 409
        case _:
            raise refusal
    return _refused(request, viewer, approval_id, refusal.sentence, typed, status=status)


def _refused(
    request: HttpRequest, viewer: Viewer, approval_id: str, sentence: str, typed: Typed, *, status: int
) -> HttpResponse:
    # What it refused for was this form; another has a key of its own.
    fresh = Typed(comment=typed.comment, acknowledged=typed.acknowledged)
    banner = refused_banner(sentence, kept=bool(typed.comment.strip()))
    return _show(request, viewer, approval_id, typed=fresh, banner=banner, status=status)


def _show(
    request: HttpRequest,
    viewer: Viewer,
    approval_id: str,
    *,
    typed: Typed | None = None,
    banner: Banner | None = None,
    done: str = "",
    status: int = 200,
) -> HttpResponse:
    read = read_approval(approval_id, teams=viewer.teams)
    asker = asker_of(viewer)
    if done and (done == "asked" or read.approval.answerer == asker.actor):
        following = next_for(teams=viewer.teams, asker=asker, but=read.approval.pk)
        banner = answered_banner(read, next_id=following, asked=done == "asked")
    shown = approval_page(
        read,
        asker=asker,
        viewer_name=viewer.name,
        why_not=viewer.why_not(Deed.APPROVE),
        form_key=new_id("form"),
        reauthenticated_at=access.reauthenticated_at(request),
        typed=typed or Typed(),
        banner=banner,
        kept=shown_facts(request.POST) if typed is not None else (),
    )
    return render(request, "approval.html", {"page": shown}, status=status)
