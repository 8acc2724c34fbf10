"""Find what an exact id, key or reference names, among what the person's teams own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from django.db import connection

from console.search_models import TermKind
from reconciliation.models import Case, Decision
from runs.models import Evidence, Grant, Operation, Receipt, Run

# A key or reference names one thing; an external id may be used by several flows.
HITS_MAX = 20
QUERY_LENGTH_MAX = 300


@dataclass(frozen=True, kw_only=True)
class Named:
    """What was found, by its kind; each list bounded. `cut`: more has this name than that."""

    runs: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    # Evidence is shown on the page of its operation's latest case.
    evidence: tuple[str, ...] = ()
    # Where it was another's name and no id of ours: what the name is, by the id of what it names.
    named_by: Mapping[str, TermKind] = field(default_factory=dict)
    cut: bool = False

    def __bool__(self) -> bool:
        return bool(self.runs or self.operations or self.cases)


def clean(query: str) -> str:
    """The words as they can be looked up: bounded, and without what the database can't hold."""
    text = query.strip()[:QUERY_LENGTH_MAX]
    return "" if "\x00" in text or any(0xD800 <= ord(one) < 0xE000 for one in text) else text


def find_named(query: str, *, teams: Sequence[str], hits_max: int = HITS_MAX) -> Named:
    """Find by exact id, idempotency key, external id of a run, or reference of a receipt.

    At most two queries, each by indexes that those names have of their own. Of more runs than `hits_max` that
    share an external id, the newest.
    """
    text = clean(query)
    if not text or not teams:
        return Named()
    prefix = text.partition("_")[0]
    match prefix:
        case "run":
            return Named(runs=_ids(Run.objects.filter(pk=text, team__in=teams)))
        case "op":
            return Named(operations=_ids(Operation.objects.filter(pk=text, team__in=teams)))
        case "case":
            return Named(cases=_ids(Case.objects.filter(pk=text, team__in=teams)))
        case "ev" | "rcpt" | "grant" | "dec":
            return _by_part(prefix, text, teams) or _by_outside_name(text, teams, hits_max)
        case _:
            return _by_outside_name(text, teams, hits_max)


def _ids(rows: object) -> tuple[str, ...]:
    return tuple(rows.values_list("pk", flat=True)[:HITS_MAX])  # type: ignore[attr-defined]


def _by_part(prefix: str, text: str, teams: Sequence[str]) -> Named:
    """By the id of something that belongs to an operation."""
    model = {"ev": Evidence, "rcpt": Receipt, "grant": Grant, "dec": Decision}[prefix]
    rows = model._default_manager.filter(pk=text, operation__team__in=teams)
    operations = tuple(rows.values_list("operation_id", flat=True)[:HITS_MAX])
    return Named(operations=operations, evidence=(text,) if prefix == "ev" and operations else ())


# Receipts through every account, because their index starts with it; there are few accounts.
_OUTSIDE_NAMES: Final = """
(SELECT 'key', id FROM runs_operation WHERE key = %(name)s AND team_id = ANY(%(teams)s) LIMIT %(most)s)
UNION ALL
(SELECT 'receipt', operation.id FROM runs_provideraccount AS account
 CROSS JOIN LATERAL (
    SELECT operation_id FROM runs_receipt WHERE provider_id = account.slug AND reference = %(name)s LIMIT 1
 ) AS receipt
 JOIN runs_operation AS operation ON operation.id = receipt.operation_id
 WHERE operation.team_id = ANY(%(teams)s) LIMIT %(most)s)
UNION ALL
(SELECT 'external_id', id FROM runs_run WHERE external_id = %(name)s AND team_id = ANY(%(teams)s)
 ORDER BY created_at DESC LIMIT %(most)s)
"""


def _by_outside_name(text: str, teams: Sequence[str], hits_max: int) -> Named:
    with connection.cursor() as cursor:
        # One more than is taken says that there are more.
        cursor.execute(_OUTSIDE_NAMES, {"name": text, "teams": list(teams), "most": hits_max + 1})
        found: dict[TermKind, list[str]] = {}
        for kind, pk in cursor.fetchall():
            found.setdefault(TermKind(kind), []).append(pk)
    rows = [(kind, pk) for kind, pks in found.items() for pk in pks[:hits_max]]
    runs = tuple(pk for kind, pk in rows if kind is TermKind.EXTERNAL_ID)
    operations = dict.fromkeys(pk for kind, pk in rows if kind is not TermKind.EXTERNAL_ID)
    return Named(
        runs=runs,
        operations=tuple(operations),
        named_by={pk: kind for kind, pk in reversed(rows)},
        cut=any(len(pks) > hits_max for pks in found.values()),
    )
