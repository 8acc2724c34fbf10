"""Attach a file or a text to a case, and download what was attached."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from console.access import Deed
from console.pages.bodies import inert_file
from console.pages.case import read_for, show_case
from console.pages.forms import DecisionForm, clean
from console.pages.guards import Viewer, is_given_back, page
from console.pages.present.attaching import attach_form
from console.pages.present.desk import unchanged_banner
from console.pages.shapes import FieldError
from console.queries.cases import find_case
from reconciliation.attaching import TooManyAttachments, TypeNotTaken, attach_file
from reconciliation.attachment_models import ATTACHMENT_BYTES_MAX, CaseAttachment, MediaType
from reconciliation.decisions import KeyReused
from runs.canonical import TooLarge
from runs.ids import could_be_id, new_id
from runs.journal.evidence import SUMMARY_LENGTH_MAX
from runs.refusals import Invalid, NotFound, Refusal

_ENDINGS: Final[dict[str, str]] = {
    MediaType.TEXT: "txt",
    MediaType.JSON: "json.txt",
    MediaType.PNG: "png",
    MediaType.JPEG: "jpg",
    MediaType.PDF: "pdf",
}
_TEXTS: Final = frozenset({MediaType.TEXT, MediaType.JSON})


@page("POST", gives_back=True)
def case_attach(request: HttpRequest, viewer: Viewer, case_id: str) -> HttpResponse:
    """Attach what somebody found out; it is evidence, and settles nothing by itself."""
    found = find_case(case_id, teams=viewer.teams)
    posted = request.POST
    summary = clean(posted.get("summary", ""))[: SUMMARY_LENGTH_MAX * 4]
    text = clean(posted.get("text", ""))[: ATTACHMENT_BYTES_MAX + 1]
    key = posted.get("key", "")
    key = key if could_be_id(key) else new_id("form")
    sent = request.FILES.get("file")
    read = read_for(request, viewer, case_id)
    typed = attach_form(found, key=key, summary=summary, text=text, file_again=sent is not None)
    if is_given_back(request):
        return show_case(request, viewer, read, DecisionForm(), attach=typed)
    why_not = viewer.why_not(Deed.ATTACH)
    if why_not:
        banner = unchanged_banner(why_not, kept=True)
        return show_case(request, viewer, read, DecisionForm(), banner=banner, status=403, attach=typed)
    try:
        if sent is not None and text.strip():
            raise Invalid("Choose a file or write a text: each is attached by itself.", where="content")
        attached = attach_file(
            case_id=found.pk,
            team=found.team_id,
            worker=viewer.worker,
            summary=summary,
            content=sent.read() if sent is not None else text.strip().encode("utf-8", "replace"),
            name=(sent.name or "") if sent is not None else "",
            key=key,
        )
    except (Invalid, TooLarge, TypeNotTaken, KeyReused, TooManyAttachments) as refusal:
        refused = replace(
            typed,
            # What it refuses for is the form; another has a key of its own.
            key=new_id("form") if isinstance(refusal, KeyReused) else key,
            errors=(FieldError(field=_field(refusal), sentence=refusal.sentence),),
        )
        # The case is read anew: it may have moved.
        read = read_for(request, viewer, case_id)
        status = _status(refusal)
        return show_case(request, viewer, read, DecisionForm(), status=status, attach=refused)
    was = "was attached already" if attached.replayed else "is attached, and whoever decides is told of it"
    messages.success(request, f"It {was}. It decides nothing by itself.")
    return HttpResponseRedirect(reverse("case", args=[found.pk]) + f"#{attached.evidence_id}")


def _field(refusal: Refusal) -> str:
    return "attach-summary" if refusal.details.get("where") == "summary" else "attach-file"


def _status(refusal: Refusal) -> int:
    match refusal:
        case TooLarge():
            return 413
        case TypeNotTaken():
            return 415
        case Invalid():
            return 422
        case _:
            return 409


@page("GET", "HEAD")
def case_attachment(request: HttpRequest, viewer: Viewer, case_id: str, evidence_id: str) -> HttpResponse:
    """An attached picture or PDF as a file; texts are downloaded where what is hidden in them is."""
    found = find_case(case_id, teams=viewer.teams)
    kept = (
        CaseAttachment.objects.filter(evidence=evidence_id, evidence__operation=found.operation_id)
        .exclude(media_type__in=_TEXTS)
        .first()
        if could_be_id(evidence_id)
        else None
    )
    if kept is None:
        raise NotFound(f"This case has no file {evidence_id!r}.", case=case_id)
    name = f"{kept.evidence_id}.{_ENDINGS[kept.media_type]}"
    return inert_file(bytes(kept.content), name=name, media_type=kept.media_type)
