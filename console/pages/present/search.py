"""What a search found, and where one exact hit leads."""

from __future__ import annotations

from datetime import datetime

from django.urls import reverse

from console.pages.present import naming
from console.pages.present.marks import amount_of
from console.pages.shapes import Code, EmptyState, SearchHit, SearchPage
from console.queries.search import Hits
from console.templatetags.recourse import state_of
from reconciliation.models import Case
from runs.models import Operation, Run


def search_page(hits: Hits, query: str, *, now: datetime) -> SearchPage:
    """Every hit, each with its kind and state."""
    found = tuple(_hits(hits))
    empty = None
    if not found:
        empty = EmptyState(
            title="Nothing found" if query else "What are you looking for?",
            text="No run, operation, case or evidence that you can see has exactly this id, key or reference."
            if query
            else "Ids, keys and references are found as they are written, not by a part of them.",
            icon="search",
        )
    return SearchPage(now=now, query=query, hits=found, empty=empty)


def only_hit(hits: Hits) -> str:
    """Where a search that found one thing leads; "" if it found none or several."""
    found = _hits(hits)
    return found[0].href if len(found) == 1 else ""


def _hits(hits: Hits) -> list[SearchHit]:
    return [
        *(_case(one) for one in hits.cases),
        *(_operation(one, hits) for one in hits.operations),
        *(_run(one) for one in hits.runs),
    ]


def _case(case: Case) -> SearchHit:
    amount = amount_of(case.at_risk_currency, case.at_risk_minor)
    return SearchHit(
        title=naming.title_of(case.tool, amount),
        href=reverse("case", args=[case.pk]),
        kind="Case",
        badge=state_of("case", case.state),
        detail=(Code(case.pk),),
    )


def _operation(operation: Operation, hits: Hits) -> SearchHit:
    """An operation is read on its case's page; without a case, on its run's."""
    case_id = (hits.cases_of or {}).get(operation.pk, "")
    href = reverse("case", args=[case_id]) if case_id else reverse("run", args=[operation.run_id])
    if hits.evidence and case_id:
        href += f"#{hits.evidence[0]}"
    return SearchHit(
        title=naming.title_of(operation.tool, amount_of(operation.amount_currency, operation.amount_minor)),
        href=href,
        kind="Operation",
        badge=state_of("operation", operation.state),
        detail=(Code(operation.pk),),
    )


def _run(run: Run) -> SearchHit:
    return SearchHit(
        title=run.external_id,
        href=reverse("run", args=[run.pk]),
        kind="Run",
        badge=state_of("run", run.state),
        detail=(f"{run.flow.name} {run.flow_version.version} · ", Code(run.pk)),
    )
