"""What a search found and why, and where one exact hit leads."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final
from urllib.parse import urlencode

from django.urls import reverse

from console.pages.present import naming
from console.pages.present.marks import amount_of
from console.pages.shapes import Code, EmptyState, NextPage, SearchHit, SearchPage
from console.queries.parts import PART_LENGTH_MIN, How, Match
from console.queries.search import Hits
from console.search_models import TermKind
from console.templatetags.recourse import state_of
from reconciliation.models import Case
from runs.models import Operation, Run

_NAMES: Final = {
    TermKind.OPERATION: "Operation id",
    TermKind.KEY: "Idempotency key",
    TermKind.RECEIPT: "Receipt’s reference",
    TermKind.EXTERNAL_ID: "External id",
}
_HOW: Final = {How.BEGINS: "begins with it:", How.CONTAINS: "contains it:", How.ALIKE: "is written alike:"}


def search_page(hits: Hits, query: str, *, now: datetime, after: str = "") -> SearchPage:
    """Every hit, each with its kind, its state and why it is here; exact ones first."""
    found = (*_exact(hits), *(_by_part(one, hits, query) for one in hits.parts.matches))
    following = None
    if hits.parts.after:
        words = urlencode({"q": query, "after": hits.parts.after})
        following = NextPage(href=f"{reverse('search')}?{words}", label="More that match")
    return SearchPage(
        now=now,
        query=query,
        hits=found,
        empty=None if found else _empty(query, hits, after),
        next=following,
        through_at=hits.parts.through_at,
        notice=_notice(query, hits, after),
    )


def only_hit(hits: Hits) -> str:
    """Where a search leads that found one thing of exactly this name; "" if it found none or several."""
    found = _exact(hits)
    return found[0].href if len(found) == 1 and not hits.parts.matches else ""


def _notice(query: str, hits: Hits, after: str) -> str:
    """What isn't in the list, where something may be missing from it."""
    if hits.parts.stopped:
        return (
            "Looking through every name that has this part would take too long, so not all are listed. "
            "Write more of the name, or its beginning."
        )
    unknown = hits.parts.through_at is None and not after
    if unknown and len(query) >= PART_LENGTH_MIN and hits.exact_count != 1:
        return "Only whole names are found so far: the index of their parts is still being made."
    return ""


def _empty(query: str, hits: Hits, after: str) -> EmptyState:
    if after:
        return EmptyState(title="The list ends here", text="No further name matches.", icon="search")
    if not query:
        return EmptyState(
            title="What are you looking for?",
            text="Whole ids, keys and references are found at once, whatever was recorded last; of a part, "
            f"at least {PART_LENGTH_MIN} characters are needed.",
            icon="search",
        )
    text = "No run, operation, case or evidence that you can see has exactly this id, key or reference"
    if len(query) < PART_LENGTH_MIN:
        text += f", and a part needs at least {PART_LENGTH_MIN} characters."
    elif hits.parts.stopped or hits.parts.through_at is None:
        text += "."
    else:
        text += ", and none that is known by its parts contains it."
    return EmptyState(title="Nothing found", text=text, icon="search")


def _exact(hits: Hits) -> list[SearchHit]:
    return [
        *(_case(one) for one in hits.cases),
        *(_named(_operation(one, hits), one, hits) for one in hits.operations),
        *(_named(_run(one), one, hits) for one in hits.runs),
    ]


def _named(hit: SearchHit, subject: Operation | Run, hits: Hits) -> SearchHit:
    kind = hits.named_by.get(subject.pk)
    if kind is None:
        return hit
    return replace(hit, why=f"{_NAMES[kind]} is exactly this:", marked=("", _name_of(subject, kind), ""))


def _by_part(match: Match, hits: Hits, query: str) -> SearchHit:
    subject = hits.by_part[match.subject]
    hit = _run(subject) if isinstance(subject, Run) else _operation(subject, hits)
    name = _name_of(subject, match.kind)
    why = f"{_NAMES[match.kind]} {_HOW[match.how]}"
    return replace(hit, why=why, marked=_marked(name, query if match.how is not How.ALIKE else ""))


def _name_of(subject: Operation | Run, kind: TermKind) -> str:
    if isinstance(subject, Run):
        return subject.external_id
    match kind:
        case TermKind.KEY:
            return subject.key
        case TermKind.RECEIPT:
            receipt = getattr(subject, "receipt", None)
            return receipt.reference if receipt is not None else ""
        case _:
            return subject.pk


def _marked(name: str, query: str) -> tuple[str, str, str]:
    """The name as it is written, in three: before what was asked for, that, and after it."""
    place = name.lower().find(query.lower()) if query else -1
    if place < 0:
        return name, "", ""
    end = place + len(query)
    return name[:place], name[place:end], name[end:]


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
    case_id = hits.cases_of.get(operation.pk, "")
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
