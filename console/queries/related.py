"""Cases that may have to do with another: of its run, with its payload, at its account around its time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from django.db.models import QuerySet, Value

from reconciliation.models import Case

# Of each kind; who wants more asks the queue, by provider or run.
ROWS_MAX: Final = 5
# On each side of the case's own opening, as its neighbours in time.
NEIGHBOURS_MAX: Final = 3
# An outage or a bad deployment shows within it; what is further apart has other causes.
WINDOW: Final = timedelta(hours=1)


class Why(StrEnum):
    """What ties a case to another, the closest first."""

    OPERATION = "operation"
    PAYLOAD = "payload"
    RUN = "run"
    PROVIDER = "provider"


@dataclass(frozen=True, kw_only=True)
class Related:
    """One other case, with everything that ties it, the closest first."""

    case_id: str
    operation_id: str
    tool: str
    kind: str
    state: str
    resolution: str
    currency: str
    minor: int
    opened_at: datetime
    why: tuple[Why, ...]


_FIELDS: Final = (
    "pk",
    "operation",
    "tool",
    "kind",
    "state",
    "resolution",
    "at_risk_currency",
    "at_risk_minor",
    "opened_at",
)


def related_to(case: Case) -> tuple[Related, ...]:
    """Other cases of the same team that share something with this one, in one query of bounded parts."""
    others = Case.objects.filter(team=case.team_id).exclude(pk=case.pk)
    near = others.filter(provider_slug=case.provider_slug)
    before = near.filter(opened_at__lte=case.opened_at, opened_at__gte=case.opened_at - WINDOW)
    after = near.filter(opened_at__gt=case.opened_at, opened_at__lte=case.opened_at + WINDOW)
    latest = ("-opened_at", "-id")
    parts = [
        # A run is of one team; naming the team would offer the planner indexes that read all of the team's.
        _part(Why.RUN, Case.objects.exclude(pk=case.pk).filter(run=case.run_id).order_by(*latest)[:ROWS_MAX]),
        _part(Why.PROVIDER, before.order_by(*latest)[:NEIGHBOURS_MAX]),
        _part(Why.PROVIDER, after.order_by("opened_at", "id")[:NEIGHBOURS_MAX]),
    ]
    if case.payload_digest:
        same = others.filter(payload_digest=case.payload_digest).order_by(*latest)
        parts.append(_part(Why.PAYLOAD, same[:ROWS_MAX]))
    found: dict[str, tuple[set[Why], tuple[Any, ...]]] = {}
    for why, *row in parts[0].union(*parts[1:], all=True):
        reasons, _ = found.setdefault(row[0], (set(), tuple(row)))
        reasons.add(Why(why))
        if row[1] == case.operation_id:
            reasons.add(Why.OPERATION)
    listed = [_related(row, reasons) for reasons, row in found.values()]
    closest = list(Why)
    return tuple(
        sorted(listed, key=lambda one: (closest.index(one.why[0]), -one.opened_at.timestamp(), one.case_id))
    )


def _part(why: Why, cases: QuerySet[Case]) -> QuerySet[Case, tuple[Any, ...]]:
    return cases.annotate(tied_by=Value(str(why))).values_list("tied_by", *_FIELDS)


def _related(row: tuple[Any, ...], reasons: set[Why]) -> Related:
    pk, operation, tool, kind, state, resolution, currency, minor, opened_at = row
    return Related(
        case_id=pk,
        operation_id=operation,
        tool=tool,
        kind=kind,
        state=state,
        resolution=resolution,
        currency=currency,
        minor=minor,
        opened_at=opened_at,
        why=tuple(one for one in Why if one in reasons),
    )
