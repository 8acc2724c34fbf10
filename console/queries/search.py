"""Search by exact id, key or reference: what was found, with the page that shows each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from console.queries.finding import Named, find_named
from reconciliation.models import Case
from runs.models import Operation, Run


@dataclass(frozen=True, kw_only=True)
class Hits:
    """What a search found, each kind bounded; `cases_of` names the latest case of each operation."""

    runs: tuple[Run, ...] = ()
    operations: tuple[Operation, ...] = ()
    cases: tuple[Case, ...] = ()
    cases_of: dict[str, str] | None = None
    evidence: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return len(self.runs) + len(self.operations) + len(self.cases)


def search(query: str, *, teams: Sequence[str]) -> Hits:
    """Find what the query names exactly, in at most seven queries."""
    named: Named = find_named(query, teams=teams)
    operations = tuple(Operation.objects.filter(pk__in=named.operations).defer("payload", "refusal"))
    latest = Case.objects.filter(operation__in=named.operations).order_by("operation", "number")
    return Hits(
        runs=tuple(
            Run.objects.select_related("flow", "flow_version")
            .filter(pk__in=named.runs)
            .defer("input", "output")
            .order_by("-created_at")
        ),
        operations=operations,
        cases=tuple(Case.objects.filter(pk__in=named.cases)),
        cases_of=dict(latest.values_list("operation_id", "pk")),
        evidence=named.evidence,
    )
