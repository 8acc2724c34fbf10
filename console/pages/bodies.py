"""One body that a case is about: read it whole, download it, or be shown what is hidden in it, on record."""

from __future__ import annotations

from typing import Final

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from console.access import Deed
from console.pages.drafts import shown_facts
from console.pages.forms import clean
from console.pages.guards import Viewer, is_given_back, page
from console.pages.present.bodies import body_page
from console.pages.present.desk import unchanged_banner
from console.pages.shapes import Banner
from console.queries.cases import find_case
from reconciliation.models import Case
from reconciliation.revealing import NothingHidden, Part, find_part, reveal
from reconciliation.working import REASON_LENGTH_MAX
from runs.refusals import Invalid

# A browser that showed such a file after all would run nothing of it and send nothing.
_INERT_POLICY: Final = "sandbox; default-src 'none'; frame-ancestors 'none'"


@page("GET", "HEAD")
def case_body(request: HttpRequest, viewer: Viewer, case_id: str, name: str) -> HttpResponse:
    """Show the body without what looks secret."""
    found = find_case(case_id, teams=viewer.teams)
    return _show(request, viewer, found, find_part(case=found, name=name))


@page("GET", "HEAD")
def case_body_file(request: HttpRequest, viewer: Viewer, case_id: str, name: str) -> HttpResponse:
    """The body as a file: its bytes, or where something is hidden the text without it."""
    found = find_case(case_id, teams=viewer.teams)
    part = find_part(case=found, name=name)
    if part.hidden_count:
        return inert_file(part.redacted.encode("utf-8", "replace"), name=f"{part.name}-redacted.txt")
    return inert_file(part.content, name=f"{part.name}.txt")


@page("POST", gives_back=True)
def case_body_reveal(request: HttpRequest, viewer: Viewer, case_id: str, name: str) -> HttpResponse:
    """Show the body with nothing hidden, in this answer alone; who, what and why goes on record."""
    found = find_case(case_id, teams=viewer.teams)
    part = find_part(case=found, name=name)
    reason = clean(request.POST.get("reason", ""))[: REASON_LENGTH_MAX * 4]
    if is_given_back(request):
        return _show(request, viewer, found, part, reason=reason)
    why_not = viewer.why_not(Deed.REVEAL)
    if why_not:
        banner = unchanged_banner(why_not, kept=True)
        return _show(request, viewer, found, part, reason=reason, banner=banner, status=403)
    try:
        shown = reveal(case_id=found.pk, team=found.team_id, worker=viewer.worker, name=name, reason=reason)
    except Invalid as refusal:
        return _show(request, viewer, found, part, reason=reason, error=refusal.sentence, status=422)
    except NothingHidden as refusal:
        banner = unchanged_banner(refusal.sentence, kept=True)
        return _show(request, viewer, found, part, reason=reason, banner=banner, status=409)
    if request.POST.get("as") == "file":
        return inert_file(shown.content, name=f"{shown.name}.txt")
    return _show(request, viewer, found, shown, revealed=True)


def _show(
    request: HttpRequest,
    viewer: Viewer,
    case: Case,
    part: Part,
    *,
    revealed: bool = False,
    reason: str = "",
    error: str = "",
    banner: Banner | None = None,
    status: int = 200,
) -> HttpResponse:
    shown = body_page(
        case,
        part,
        reveal_why_not=viewer.why_not(Deed.REVEAL),
        revealed=revealed,
        reason=reason,
        error=error,
        banner=banner,
    )
    typed_kept = () if shown.reveal_href or revealed else shown_facts(request.POST)
    return render(request, "case_body.html", {"page": shown, "typed_kept": typed_kept}, status=status)


def inert_file(content: bytes, *, name: str, media_type: str = "text/plain; charset=utf-8") -> HttpResponse:
    """Somebody else's bytes as a download that no browser opens, sniffs or runs. `name` is ours."""
    return HttpResponse(
        content,
        content_type=media_type,
        headers={
            "Content-Disposition": f'attachment; filename="{name}"',
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": _INERT_POLICY,
        },
    )
