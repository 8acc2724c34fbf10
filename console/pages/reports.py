"""A case on paper."""

from __future__ import annotations

from typing import Final

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from console.access import Deed
from console.pages.guards import Viewer, page
from console.pages.present.report import report_page
from console.queries.cases import read_case
from console.queries.operation import entries_of
from runs.models import Evidence

# A hundred sheets; the effect history and its export have no such end.
ENTRIES_MAX: Final = 1_000
EVIDENCE_MAX: Final = 500


@page("GET", "HEAD")
def case_report(request: HttpRequest, viewer: Viewer, case_id: str) -> HttpResponse:
    """Show everything about a case, to be printed."""
    read = read_case(case_id, teams=viewer.teams)
    # After it: another team's case isn't there, whoever asks.
    if viewer.why_not(Deed.EXPORT):
        raise PermissionDenied(viewer.why_not(Deed.EXPORT))
    leaves = list(entries_of(read.operation).order_by("id")[: ENTRIES_MAX + 1])
    evidence = list(reversed(read.evidence))
    if read.evidence_more:
        rows = Evidence.objects.filter(operation=read.operation).defer("body")
        evidence = list(rows.order_by("recorded_at", "id")[: EVIDENCE_MAX + 1])
    cut = ""
    if len(leaves) > ENTRIES_MAX or len(evidence) > EVIDENCE_MAX:
        cut = (
            f"Only the first {ENTRIES_MAX:,} entries and {EVIDENCE_MAX} pieces of evidence are on this paper;"
            " the effect history has all."
        )
    shown = report_page(
        read,
        leaves=leaves[:ENTRIES_MAX],
        evidence=evidence[:EVIDENCE_MAX],
        base=f"{request.scheme}://{request.get_host()}",
        viewer_name=viewer.name,
        cut=cut,
    )
    return render(request, "case_report.html", {"page": shown})
