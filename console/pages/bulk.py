"""Many cases at once: freeze a list, look at what would happen, start it, watch it, read what came of it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Final, cast
from urllib.parse import parse_qsl

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.cache import get_conditional_response

from console.access import ACTOR_PREFIX, DEEDS_IN_BULK, ROLES_BY_DEED, Deed
from console.models import Person
from console.pages.bulk_forms import CHOICES, BulkDraft, read_draft
from console.pages.forms import clean
from console.pages.guards import Viewer, is_given_back, page
from console.pages.present.bulk import list_page, preview_page, progress_of, running_page
from console.pages.present.bulk_file import csv_of
from console.pages.present.bulk_forecast import case_row, forecast_of
from console.pages.present.desk import unchanged_banner
from console.pages.present.queue import Chosen
from console.pages.present.queue_filters import read_address
from console.pages.queue import show_queue
from console.pages.shapes import Banner, FieldError
from console.queries import bulk as lists
from reconciliation import bulk
from reconciliation.bulk import AlreadyEnded, AlreadyStarted, NotAlike
from reconciliation.bulk_models import ITEMS_MAX, BulkDeed, BulkJob, BulkState
from reconciliation.bulk_preview import preview
from runs.ids import could_be_id
from runs.locking import database_now
from runs.refusals import Invalid

QUERY_TAKEN_MAX: Final = 4_000
# No person has a longer number.
NUMBER_DIGITS_MAX: Final = 10
# What a person is to do about a field that is missing.
_SENTENCES: Final = {"action": "Choose what to decide", "assignee": "Choose who gets the cases"}


@page("GET", "HEAD")
def bulk_list(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """List the person's own lists."""
    before = request.GET.get("before", "")
    jobs, more = lists.jobs_of(viewer.worker, before=before if could_be_id(before) else "")
    ended = lists.counts_by_list([one for one in jobs if one.state == BulkState.DONE])
    shown = list_page(jobs, ended, now=database_now(), before=more)
    return render(request, "bulk_list.html", {"page": shown})


@page("POST")
def bulk_freeze(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Keep the chosen rows, or everything that matches, as a list; nothing is done with it yet."""
    query = clean(request.POST.get("query", ""))[:QUERY_TAKEN_MAX]
    address = read_address({**dict(parse_qsl(query)), "after": ""}, me=viewer.actor.id)
    chosen = request.POST.getlist("case")[: ITEMS_MAX + 1]
    everything = request.POST.get("every", "") == "yes"

    def refused(sentence: str, *, status: int) -> HttpResponse:
        """The queue as it was, with the rows still chosen."""
        messages.error(request, sentence)
        kept = Chosen(case_ids=frozenset(chosen), everything=everything)
        return show_queue(request, viewer, address, chosen=kept, status=status)

    wanted = request.POST.get("deed", "")
    if wanted not in set(BulkDeed):
        return refused("Choose what to do with the cases.", status=422)
    deed = BulkDeed(wanted)
    why_not = viewer.why_not(DEEDS_IN_BULK[deed])
    if why_not:
        return refused(why_not, status=403)
    count = None
    case_ids = [one for one in chosen if could_be_id(one)]
    if everything:
        found = lists.matching(teams=viewer.teams, asked=address.asked, rows_max=bulk.list_max(deed))
        case_ids, count = list(found.case_ids), found.count
    try:
        job = bulk.freeze(
            worker=viewer.worker,
            teams=viewer.teams,
            deed=deed,
            case_ids=case_ids,
            query=(address.query or "everything") if everything else "",
            matched_count=count,
        )
    except Invalid as refusal:
        return refused(refusal.sentence, status=422)
    return HttpResponseRedirect(reverse("bulk", args=[job.pk]))


@page("GET", "HEAD")
def bulk_job(request: HttpRequest, viewer: Viewer, job_id: str) -> HttpResponse:
    """One list: before it starts what it would do, afterwards how far it is and what came of each case."""
    return _show(request, viewer, _find(viewer, job_id), BulkDraft())


@page("POST", gives_back=True)
def bulk_start(request: HttpRequest, viewer: Viewer, job_id: str) -> HttpResponse:
    """Show what a choice would do, or start it. What was typed survives both, and every refusal."""
    job = _find(viewer, job_id)
    draft = _among_colleagues(read_draft(request.POST), viewer)
    if is_given_back(request):
        return _show(request, viewer, job, draft)
    why_not = viewer.why_not(DEEDS_IN_BULK[BulkDeed(job.deed)])
    if why_not:
        return _refused(request, viewer, job, draft, why_not, status=403)
    decides = job.deed == BulkDeed.DECIDE
    unseen = decides and draft.choice != draft.seen
    if request.POST.get("step") != "start" or (unseen and draft.choice in CHOICES):
        # Another choice than the one on the page is first looked at.
        errors = () if draft.choice in CHOICES or not decides else (_error("choice", _SENTENCES["action"]),)
        return _show(request, viewer, job, draft, errors=errors, status=422 if errors else 200)
    try:
        bulk.start(job_id=job.pk, worker=viewer.worker, wanted=draft.wanted(BulkDeed(job.deed)))
    except Invalid as refusal:
        where = str(refusal.details.get("where", ""))
        error = _error("choice" if where == "action" else where, _SENTENCES.get(where, refusal.sentence))
        return _show(request, viewer, job, draft, errors=(error,), status=422)
    except (NotAlike, AlreadyStarted) as refusal:
        return _refused(request, viewer, _find(viewer, job_id), draft, refusal.sentence, status=409)
    return HttpResponseRedirect(reverse("bulk", args=[job.pk]))


@page("POST")
def bulk_narrow(request: HttpRequest, viewer: Viewer, job_id: str) -> HttpResponse:
    """Go on with the cases of one kind: a new list, frozen now."""
    job = _find(viewer, job_id)
    deed = BulkDeed(job.deed)
    why_not = viewer.why_not(DEEDS_IN_BULK[deed])
    if why_not:
        return _refused(request, viewer, job, BulkDraft(), why_not, status=403)
    number = request.POST.get("kind", "")
    kinds = dict(enumerate(bulk.kinds_of(job)))
    kind = kinds.get(int(number)) if number.isdecimal() and len(number) < 5 else None
    if kind is None:
        return _refused(request, viewer, job, BulkDraft(), "This list has no such kind.", status=422)
    narrowed = bulk.freeze(
        worker=viewer.worker, teams=viewer.teams, deed=deed, case_ids=bulk.cases_of_kind(job, kind)
    )
    return HttpResponseRedirect(reverse("bulk", args=[narrowed.pk]))


@page("POST")
def bulk_stop(request: HttpRequest, viewer: Viewer, job_id: str) -> HttpResponse:
    """Stop what hasn't been done."""
    job = _find(viewer, job_id)
    try:
        bulk.stop(job_id=job.pk, worker=viewer.worker)
    except AlreadyEnded as refusal:
        return _refused(request, viewer, _find(viewer, job_id), BulkDraft(), refusal.sentence, status=409)
    messages.info(request, "Stopped. What was done stays done, and the rest is as it was.")
    return HttpResponseRedirect(reverse("bulk", args=[job.pk]))


@page("GET", "HEAD")
def bulk_progress(request: HttpRequest, viewer: Viewer, job_id: str) -> HttpResponse:
    """How far it is, asked for again while it runs; 304 while nothing has changed."""
    job = _find(viewer, job_id)
    progress = progress_of(job, lists.counts_of(job))
    response = render(request, "bulk.html#progress", {"page": {"progress": progress}})
    response["Cache-Control"] = "private, no-cache"
    # The token of the form in it differs with each answer and says nothing of the progress.
    etag = f'"{hashlib.sha256(repr(progress).encode()).hexdigest()}"'
    response["ETag"] = etag
    return cast("HttpResponse", get_conditional_response(request, etag=etag, response=response))


@page("GET", "HEAD")
def bulk_csv(request: HttpRequest, viewer: Viewer, job_id: str) -> HttpResponse:
    """Every case of the list with its outcome, as a file."""
    job = _find(viewer, job_id)
    base = f"{request.scheme}://{request.get_host()}"
    content = "".join(csv_of(job, lists.all_items(job, teams=viewer.teams), base=base))
    response = HttpResponse(content, content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{job.pk}.csv"'
    return response


def _among_colleagues(draft: BulkDraft, viewer: Viewer) -> BulkDraft:
    """Without somebody of a team that isn't theirs: a page would give the name to any number."""
    number = draft.assignee.removeprefix(ACTOR_PREFIX)
    known = (
        number.isdecimal()
        and len(number) < NUMBER_DIGITS_MAX
        and lists.is_colleague(number=int(number), teams=viewer.teams)
    )
    return draft if known or not draft.assignee else replace(draft, assignee="")


def _find(viewer: Viewer, job_id: str) -> BulkJob:
    return bulk.find_job(job_id=job_id if could_be_id(job_id) else "", worker=viewer.worker)


def _refused(
    request: HttpRequest, viewer: Viewer, job: BulkJob, draft: BulkDraft, sentence: str, *, status: int
) -> HttpResponse:
    banner = unchanged_banner(sentence, kept=bool(draft.reason))
    return _show(request, viewer, job, draft, banner=banner, status=status)


def _show(
    request: HttpRequest,
    viewer: Viewer,
    job: BulkJob,
    draft: BulkDraft,
    *,
    banner: Banner | None = None,
    errors: tuple[FieldError, ...] = (),
    status: int = 200,
) -> HttpResponse:
    now = database_now()
    if job.state != BulkState.FROZEN:
        show, after = request.GET.get("show", ""), request.GET.get("after", "")
        show = show if show in lists.SHOWN else ""
        position = int(after) if after.isdecimal() and len(after) < 6 else 0
        items, more = lists.items_of(job, teams=viewer.teams, show=show, after=position)
        counts = lists.counts_of(job)
        shown = running_page(job, counts, now=now, items=items, show=show, more=more, banner=banner)
        return render(request, "bulk.html", {"page": shown}, status=status)
    deed = BulkDeed(job.deed)
    kinds = bulk.kinds_of(job) if deed is BulkDeed.DECIDE else ()
    forecast = None
    if len(kinds) < 2 and (deed is not BulkDeed.DECIDE or draft.choice in CHOICES):
        wanted = draft.wanted(deed)
        foreseen = preview(job=job, wanted=wanted, now=now, teams=viewer.teams)
        going = [case_row(one.position, one.case) for one in foreseen if not one.why_not]
        forecast = forecast_of(
            foreseen,
            deed=deed,
            action=wanted.action,
            executor=wanted.executor,
            assignee=wanted.assignee.name if wanted.assignee is not None else "whoever you choose",
        )
    else:
        going = [case_row(one.position, one.case) for one in lists.all_items(job, teams=viewer.teams)]
    people: tuple[Person, ...] = ()
    if deed is BulkDeed.ASSIGN:
        people = lists.assignable(teams=viewer.teams, roles=ROLES_BY_DEED[Deed.WORK])
    shown = preview_page(
        job,
        now=now,
        draft=draft,
        kinds=kinds,
        people=people,
        forecast=forecast,
        going=going,
        banner=banner,
        errors=errors,
    )
    return render(request, "bulk.html", {"page": shown}, status=status)


def _error(field: str, sentence: str) -> FieldError:
    return FieldError(field=field, sentence=sentence)
