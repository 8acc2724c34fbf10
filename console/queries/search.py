"""Search: what has exactly this name, then what has it as a part of its own, and the pages of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery

from console.queries.finding import Named, find_named
from console.queries.parts import Match, Parts, find_parts
from console.search_models import TermKind
from reconciliation.models import Case
from runs.models import Operation, Run


@dataclass(frozen=True, kw_only=True)
class Hits:
    """What a search found. `cases_of` names the latest case of each operation that has one.

    `parts.matches` name operations and runs of `by_part`, best first; those found exactly aren't among them.
    """

    runs: tuple[Run, ...] = ()
    operations: tuple[Operation, ...] = ()
    cases: tuple[Case, ...] = ()
    cases_of: Mapping[str, str] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()
    named_by: Mapping[str, TermKind] = field(default_factory=dict)
    parts: Parts = field(default_factory=Parts)
    by_part: Mapping[str, Operation | Run] = field(default_factory=dict)

    @property
    def exact_count(self) -> int:
        return len(self.runs) + len(self.operations) + len(self.cases)


def search(query: str, *, teams: Sequence[str], after: str = "", rows_max: int, sole: bool = False) -> Hits:
    """Find by the whole name, on the first page, and by a part of it. Raises `Invalid` for a bad cursor.

    `sole`: one thing that has exactly this name is all that is wanted, where there is one.
    """
    named = Named() if after else find_named(query, teams=teams)
    enough = sole and len(named.runs) + len(named.operations) + len(named.cases) == 1
    parts = Parts() if enough else find_parts(query, teams=teams, after=after, rows_max=rows_max)
    return _read(named, parts)


def _read(named: Named, parts: Parts) -> Hits:
    exact = {*named.operations, *named.runs}
    matches = tuple(one for one in parts.matches if one.subject not in exact)
    of_runs = {one.subject for one in matches if one.kind is TermKind.EXTERNAL_ID}
    of_operations = {one.subject for one in matches} - of_runs
    operations = {one.pk: one for one in _operations([*named.operations, *of_operations])}
    runs = {one.pk: one for one in _runs([*named.runs, *of_runs])}
    return Hits(
        runs=tuple(runs[pk] for pk in named.runs if pk in runs),
        operations=tuple(operations[pk] for pk in named.operations if pk in operations),
        cases=tuple(Case.objects.filter(pk__in=named.cases)) if named.cases else (),
        cases_of={one.pk: one.latest_case for one in operations.values() if one.latest_case},
        evidence=named.evidence,
        named_by=named.named_by,
        parts=_known(parts, matches, {**operations, **runs}),
        by_part={**operations, **runs},
    )


def _known(parts: Parts, matches: Sequence[Match], by_part: Mapping[str, object]) -> Parts:
    kept = tuple(one for one in matches if one.subject in by_part)
    return Parts(matches=kept, after=parts.after, through_at=parts.through_at, stopped=parts.stopped)


def _operations(ids: Sequence[str]) -> QuerySet[Any]:
    """The operations with their receipts and latest cases."""
    latest = Case.objects.filter(operation=OuterRef("pk")).order_by("-number").values("pk")[:1]
    if not ids:
        return Operation.objects.none()
    return (
        Operation.objects.filter(pk__in=ids)
        .select_related("receipt")
        .defer("payload", "refusal", "receipt__body")
        .annotate(latest_case=Subquery(latest))
    )


def _runs(ids: Sequence[str]) -> QuerySet[Run]:
    if not ids:
        return Run.objects.none()
    return Run.objects.select_related("flow", "flow_version").filter(pk__in=ids).defer("input", "output")
