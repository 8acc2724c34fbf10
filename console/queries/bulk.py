"""A person's lists of cases and what came of each case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Q, QuerySet

from console.models import Person
from console.queries.queue import Asked, ids_matching
from reconciliation.bulk_models import BulkItem, BulkJob, ItemResult
from reconciliation.working import Worker

ROWS = 50
# What a list of outcomes is narrowed to; "left" has none.
LEFT = "left"
SHOWN = (*(str(one) for one in ItemResult), LEFT)
# People of one team who may be given a case; more would be a list to search through.
PEOPLE_MAX = 200


@dataclass(frozen=True, kw_only=True)
class Matching:
    """The cases that the filters let through: at most so many, and how many there were, capped one above."""

    case_ids: tuple[str, ...]
    count: int


def matching(*, teams: Sequence[str], asked: Asked, rows_max: int) -> Matching:
    """The first cases of the queue as it is narrowed now, in its order."""
    ids = ids_matching(teams=teams, asked=asked, rows_max=rows_max + 1)
    return Matching(case_ids=tuple(ids[:rows_max]), count=len(ids))


def jobs_of(worker: Worker, *, before: str = "") -> tuple[tuple[BulkJob, ...], str]:
    """The person's lists, newest first, and the id before which more follow, "" for none."""
    jobs = BulkJob.objects.filter(actor=worker.actor.id).order_by("-id")
    if before:
        jobs = jobs.filter(id__lt=before)
    rows = tuple(jobs[: ROWS + 1])
    return rows[:ROWS], rows[ROWS - 1].pk if len(rows) > ROWS else ""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What came of the cases of a list so far; `left` have no outcome."""

    done: int
    refused: int
    failed: int
    left: int


def counts_of(job: BulkJob) -> Counts:
    """Count the outcomes of one list, of at most a thousand cases."""
    return counts_by_list([job])[job.pk]


def counts_by_list(jobs: Sequence[BulkJob]) -> dict[str, Counts]:
    """Count the outcomes of each of these lists, by the list's id, in one query."""
    counted = (
        BulkItem.objects.filter(job__in=[one.pk for one in jobs])
        .order_by()
        .values("job_id")
        .annotate(
            **{str(one): Count("pk", filter=Q(outcome__result=one)) for one in ItemResult},
            left=Count("pk", filter=Q(outcome__isnull=True)),
        )
    )
    found = {one.pk: Counts(done=0, refused=0, failed=0, left=0) for one in jobs}
    for row in counted:
        numbers: dict[str, Any] = dict(row)
        job_id = numbers.pop("job_id")
        found[job_id] = Counts(**numbers)
    return found


def items_of(
    job: BulkJob, *, teams: Sequence[str], show: str = "", after: int = 0
) -> tuple[tuple[BulkItem, ...], int]:
    """A page of the list in its order, and the position after which more follow, 0 for none.

    Of a case that has gone out of the person's sight since the list was frozen, nothing is shown.
    """
    rows = tuple(_items(job, teams, show).filter(position__gt=after)[: ROWS + 1])
    return rows[:ROWS], rows[ROWS - 1].position if len(rows) > ROWS else 0


def all_items(job: BulkJob, *, teams: Sequence[str]) -> Iterator[BulkItem]:
    """Every case of the list that these teams have, with its outcome, if it has one."""
    return _items(job, teams, "").iterator(chunk_size=200)


def _items(job: BulkJob, teams: Sequence[str], show: str) -> QuerySet[BulkItem]:
    items = (
        BulkItem.objects.filter(job=job, case__team__in=teams)
        .select_related("case", "outcome__decision")
        .order_by("position")
    )
    if show == LEFT:
        return items.filter(outcome__isnull=True)
    return items.filter(outcome__result=show) if show in set(ItemResult) else items


def assignable(*, teams: Sequence[str], roles: Sequence[str]) -> tuple[Person, ...]:
    """The people of these teams who may work on cases, by name."""
    people = Person.objects.filter(teams__in=teams, is_active=True, roles__overlap=list(roles)).distinct()
    return tuple(people.order_by("first_name", "last_name", "username")[:PEOPLE_MAX])


def is_colleague(*, number: int, teams: Sequence[str]) -> bool:
    """Whether somebody of this number is in one of these teams; nobody else's name is shown to them."""
    return Person.objects.filter(pk=number, teams__in=teams).exists()
