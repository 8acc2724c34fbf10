"""The effect history: the audit log's leaves of a person's teams, newest first.

A filter that no index serves reads a bounded stretch of the log at a time and says how far it came, so that
a page costs the same at ten million entries as at ten thousand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from django.db.models import Max, Q, QuerySet

from console.models import Person
from console.queries import keyset
from console.queries.finding import Named, find_named
from console.queries.people import Names
from reconciliation.models import Case, Decision
from runs.actors import ActorKind
from runs.locking import database_now
from runs.models import AuditLeaf, Operation

PAGE_ROWS = 50
# How many entries one page looks through for a filter that has no index of its own.
SCANNED_MAX = 5_000


class Kind(StrEnum):
    """Which entries are shown."""

    EVERYTHING = "all"
    # What people did; it has an index of its own.
    PEOPLE = "people"
    DECISIONS = "decisions"
    REQUESTS = "requests"
    LOOKUPS = "lookups"
    SETTLED = "settled"
    CONFLICTS = "conflicts"
    LEASES = "leases"


_ACTIONS: Final[dict[Kind, Q]] = {
    Kind.DECISIONS: Q(action__startswith="case.decided."),
    Kind.REQUESTS: Q(action__in=["operation.sent", "operation.sent_again", "operation.sent_by_unknown"]),
    Kind.LOOKUPS: Q(action="evidence.recorded"),
    Kind.SETTLED: Q(
        action__in=[
            "operation.confirmed",
            "operation.rejected",
            "operation.abandoned",
            "operation.not_sent",
        ]
    ),
    Kind.CONFLICTS: Q(action__startswith="conflict.") | Q(action="operation.sent_by_unknown"),
    Kind.LEASES: Q(action__in=["run.claimed", "lease.ended"]),
}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the history is narrowed to; empty is any."""

    kind: Kind = Kind.EVERYTHING
    text: str = ""
    actor: str = ""
    after: str = ""
    # The entry that is shown open.
    entry: str = ""


@dataclass(frozen=True, kw_only=True)
class About:
    """What an entry is about: the operation, and the page that shows it."""

    tool: str
    currency: str
    minor: int | None
    case_id: str


@dataclass(frozen=True, kw_only=True)
class Entries:
    """A page of the history. `scanned_to` is how far a bounded search came without filling the page."""

    now: datetime
    leaves: tuple[AuditLeaf, ...]
    about: dict[str, About]
    decisions: dict[str, Decision]
    names: Names
    people: tuple[tuple[str, str], ...]
    after: str = ""
    scanned_to: datetime | None = None


def list_entries(*, teams: Sequence[str], asked: Asked) -> Entries:
    """Read one page of the history. Raises `Invalid` for a cursor that can't be read."""
    people = _people(teams)
    before = _before(asked.after)
    leaves: list[AuditLeaf] = []
    scanned_to = None
    more = False
    named = find_named(asked.text, teams=teams) if asked.text else Named()
    if teams and (named or not asked.text):
        leaves, more, scanned_to = _page(teams, asked, named, before)
    shown = leaves[:PAGE_ROWS]
    after = ""
    if more and shown:
        after = keyset.pack(shown[-1].pk)
    elif scanned_to is not None:
        after = keyset.pack(scanned_to[0])
    operations = {one.operation_ref for one in shown if one.operation_ref}
    return Entries(
        now=database_now(),
        leaves=tuple(shown),
        about=_about(operations),
        decisions=_decisions(shown, asked.entry),
        names=Names({leaf.actor for leaf in shown}),
        people=people,
        after=after,
        scanned_to=scanned_to[1] if scanned_to is not None and not more else None,
    )


def _before(cursor: str) -> int | None:
    if not cursor:
        return None
    (pk,) = keyset.unpack(cursor, int)
    return pk if isinstance(pk, int) else None


def _page(
    teams: Sequence[str], asked: Asked, named: Named, before: int | None
) -> tuple[list[AuditLeaf], bool, tuple[int, datetime] | None]:
    """The leaves of one page and one more; and where a bounded search stopped, if it did."""
    filters = _ACTIONS.get(asked.kind, Q())
    if asked.actor:
        filters &= Q(actor=asked.actor)
    if named:
        # By the indexes of operation and run: what one of them did in its life is short.
        rows = AuditLeaf.objects.filter(filters, _of_named(named), team_slug__in=teams)
        leaves = list(_older(rows, before).order_by("-id")[: PAGE_ROWS + 1])
        return leaves, len(leaves) > PAGE_ROWS, None
    by_people = asked.kind in (Kind.PEOPLE, Kind.DECISIONS) or bool(asked.actor)
    if by_people:
        filters &= Q(actor_kind=ActorKind.PERSON)
    if by_people or asked.kind is Kind.EVERYTHING:
        ids = _merged(teams, filters, before, PAGE_ROWS + 1)
        return _by_ids(ids), len(ids) > PAGE_ROWS, None
    return _scan(teams, filters, before)


def _scan(
    teams: Sequence[str], filters: Q, before: int | None
) -> tuple[list[AuditLeaf], bool, tuple[int, datetime] | None]:
    """Look for rare entries in a bounded stretch of the log."""
    stretch = _merged(teams, Q(), before, SCANNED_MAX)
    if not stretch:
        return [], False, None
    rows = AuditLeaf.objects.filter(filters, pk__in=stretch).order_by("-id")
    leaves = list(rows[: PAGE_ROWS + 1])
    more = len(leaves) > PAGE_ROWS
    if more or len(stretch) < SCANNED_MAX:
        return leaves, more, None
    oldest = AuditLeaf.objects.values_list("pk", "at").get(pk=stretch[-1])
    return leaves, False, oldest


def _merged(teams: Sequence[str], filters: Q, before: int | None, rows_max: int) -> list[int]:
    """The newest ids of the teams taken together, each team's by its index."""
    parts = [
        _older(AuditLeaf.objects.filter(filters, team_slug=team), before)
        .order_by("-id")
        .values_list("id", flat=True)[:rows_max]
        for team in teams
    ]
    if len(parts) == 1:
        return list(parts[0])
    return list(parts[0].union(*parts[1:], all=True).order_by("-id")[:rows_max])


def _by_ids(ids: Sequence[int]) -> list[AuditLeaf]:
    return list(AuditLeaf.objects.filter(pk__in=ids).order_by("-id"))


def _older(rows: QuerySet[AuditLeaf], before: int | None) -> QuerySet[AuditLeaf]:
    return rows if before is None else rows.filter(pk__lt=before)


def _of_named(named: Named) -> Q:
    operations = [*named.operations]
    if named.cases:
        operations += Case.objects.filter(pk__in=named.cases).values_list("operation_id", flat=True)
    condition = Q(operation_ref__in=operations) if operations else Q()
    return condition | Q(run_ref__in=named.runs) if named.runs else condition


def _about(operations: set[str]) -> dict[str, About]:
    rows = (
        Operation.objects.filter(pk__in=operations)
        .annotate(case_id=Max("cases__id"))
        .values_list("pk", "tool", "amount_currency", "amount_minor", "case_id")
    )
    return {
        pk: About(tool=tool, currency=currency, minor=minor, case_id=case_id or "")
        for pk, tool, currency, minor, case_id in rows
    }


def _decisions(leaves: Sequence[AuditLeaf], entry: str) -> dict[str, Decision]:
    """The decisions of the operation whose entry is open, by id: their words are part of the entry."""
    opened = next((one for one in leaves if str(one.pk) == entry), None)
    if opened is None or not opened.action.startswith("case.decided."):
        return {}
    rows = Decision.objects.filter(operation=opened.operation_ref).order_by("-made_at")[:20]
    return {row.pk: row for row in rows}


def _people(teams: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The people of the teams, for the filter."""
    rows = Person.objects.filter(teams__in=teams).distinct().order_by("first_name", "username")[:200]
    return tuple((f"person:{person.pk}", str(person)) for person in rows)
