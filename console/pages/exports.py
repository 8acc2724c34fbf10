"""Exports of the effect history: ask for one, see how far it is, fetch it with its manifest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.shortcuts import render
from django.urls import reverse

from console import exporting
from console.access import Deed
from console.export_models import ExportForm, ExportState, HistoryExport
from console.pages.guards import Viewer, page, wants_partial
from console.pages.present.exports import export_list_page, export_page, manifest_of
from runs.locking import database_now
from runs.refusals import NotFound

LISTED_MAX: Final = 50
_TYPES: Final = {
    ExportForm.CSV: "text/csv; charset=utf-8",
    ExportForm.JSONL: "application/x-ndjson; charset=utf-8",
}


@page("GET", "HEAD", "POST")
def export_list(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """List the person's own exports; a POST asks for one."""
    _require(viewer)
    if request.method == "POST":
        export = exporting.ask_export(
            worker=viewer.worker,
            teams=viewer.teams,
            query=request.POST.get("query", ""),
            form=request.POST.get("form", ""),
        )
        return HttpResponseRedirect(reverse("export", args=[export.pk]))
    exports = HistoryExport.objects.filter(actor=viewer.actor.id).order_by("-id")[:LISTED_MAX]
    shown = [one for one in exports if set(one.teams) <= set(viewer.teams)]
    return render(request, "exports.html", {"page": export_list_page(shown, now=database_now())})


@page("GET", "HEAD")
def export(request: HttpRequest, viewer: Viewer, export_id: str) -> HttpResponse:
    """Show how far an export is, and then its manifest; a script asks for that part alone."""
    found = _find(viewer, export_id)
    template = "export.html#progress" if wants_partial(request) else "export.html"
    return render(request, template, {"page": export_page(found, now=database_now())})


@page("GET", "HEAD")
def export_file(request: HttpRequest, viewer: Viewer, export_id: str) -> HttpResponse:
    """The bytes, a piece at a time."""
    found = _find(viewer, export_id)
    if request.method == "HEAD":
        # Nothing is taken out by looking how much there is.
        if found.state != ExportState.DONE:
            raise NotFound("There is no file of this export now.", export=found.pk)
        content: Iterator[bytes] = iter(())
    else:
        content = exporting.fetch(export=found, worker=viewer.worker)
    response = StreamingHttpResponse(content, content_type=_TYPES[ExportForm(found.form)])
    response["Content-Length"] = str(found.bytes_count)
    response["Content-Disposition"] = f'attachment; filename="{found.pk}.{found.form}"'
    return response  # type: ignore[return-value]


@page("GET", "HEAD")
def export_manifest(request: HttpRequest, viewer: Viewer, export_id: str) -> HttpResponse:
    """What the file is: filters, counts, hash, by whom and when."""
    found = _find(viewer, export_id)
    if found.state == ExportState.RUNNING:
        raise NotFound("There is no manifest of this export yet.", export=found.pk)
    content = json.dumps(manifest_of(found), indent=2, ensure_ascii=False) + "\n"
    response = HttpResponse(content, content_type="application/json")
    response["Content-Disposition"] = f'attachment; filename="{found.pk}.manifest.json"'
    return response


def _find(viewer: Viewer, export_id: str) -> HistoryExport:
    """The person's own, if they may still take history out; to everybody else there is none."""
    found = exporting.find_export(export_id=export_id, worker=viewer.worker, teams=viewer.teams)
    _require(viewer)
    return found


def _require(viewer: Viewer) -> None:
    if viewer.why_not(Deed.EXPORT):
        raise PermissionDenied(viewer.why_not(Deed.EXPORT))
