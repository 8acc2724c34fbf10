"""The backlog: how many cases wait, for how long and for how much. Every count stops at a cap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import connection
from django.db.models import QuerySet
from django.db.models.functions import Now

from reconciliation.models import Case
from reconciliation.snoozing import awake
from reconciliation.states import CaseState

# Counts stop here: "1,000+" says all that an operator can act on.
COUNT_MAX = 1_000
SOON = timedelta(hours=1)
# Upper ends of the waiting times that the histogram tells apart; the last bucket has none.
WAIT_ENDS: Final = (
    timedelta(minutes=5),
    timedelta(minutes=15),
    timedelta(hours=1),
    timedelta(hours=4),
    timedelta(hours=24),
)


@dataclass(frozen=True, kw_only=True)
class Backlog:
    """What waits, each count up to `COUNT_MAX`.

    `at_risk` has currency, minor units and cases, of the cases counted.
    """

    waiting: int = 0
    overdue: int = 0
    soon: int = 0
    conflicts: int = 0
    waits: tuple[int, ...] = (0,) * (len(WAIT_ENDS) + 1)
    at_risk: tuple[tuple[str, int, int], ...] = ()
    looking_up: int = 0
    retrying: int = 0
    retrying_since: datetime | None = None
    settled: int = 0
    settled_alone: int = 0


# The waiting cases once, up to a cap: a partial index of exactly these rows, in their order.
_WAITING = """
SELECT currency,
       count(*),
       sum(minor),
       count(*) FILTER (WHERE decide_by <= %(now)s),
       count(*) FILTER (WHERE worsens <= %(soon)s),
       count(*) FILTER (WHERE kind = 'conflict'),
       count(*) FILTER (WHERE waited < %(wait_0)s),
       count(*) FILTER (WHERE waited >= %(wait_0)s AND waited < %(wait_1)s),
       count(*) FILTER (WHERE waited >= %(wait_1)s AND waited < %(wait_2)s),
       count(*) FILTER (WHERE waited >= %(wait_2)s AND waited < %(wait_3)s),
       count(*) FILTER (WHERE waited >= %(wait_3)s AND waited < %(wait_4)s),
       count(*) FILTER (WHERE waited >= %(wait_4)s)
FROM (
    SELECT listed.* FROM unnest(%(teams)s::text[]) AS team (slug)
    CROSS JOIN LATERAL (
        SELECT at_risk_currency AS currency, at_risk_minor AS minor, decide_by_at AS decide_by,
               worsens_at AS worsens, kind, %(now)s - opened_at AS waited
        FROM reconciliation_case
        WHERE team_id = team.slug AND state = 'needs_decision'
              AND (snoozed_until_at IS NULL OR snoozed_until_at <= %(now)s)
        ORDER BY worsens_at, at_risk_minor DESC, id
        LIMIT %(cap)s
    ) AS listed
    LIMIT %(cap)s
) AS waiting
GROUP BY currency
ORDER BY sum(minor) DESC
"""


# Each state's cases in the order of its index, so that a count that stops early reads no others.
_UNDER_WAY = """
SELECT wanted.name, count(*), min(listed.at), count(*) FILTER (WHERE listed.alone)
FROM (VALUES ('looking_up'), ('retrying')) AS wanted (name)
CROSS JOIN unnest(%(teams)s::text[]) AS team (slug)
CROSS JOIN LATERAL (
    SELECT opened_at AS at, true AS alone FROM reconciliation_case
    WHERE team_id = team.slug AND state = wanted.name
    ORDER BY opened_at, id
    LIMIT %(cap)s
) AS listed
GROUP BY wanted.name
UNION ALL
SELECT 'resolved', count(*), min(listed.at), count(*) FILTER (WHERE listed.alone)
FROM unnest(%(teams)s::text[]) AS team (slug)
CROSS JOIN LATERAL (
    SELECT resolved_at AS at,
           NOT EXISTS (SELECT FROM reconciliation_decision WHERE case_id = reconciliation_case.id) AS alone
    FROM reconciliation_case
    WHERE team_id = team.slug AND state = 'resolved' AND resolved_at >= %(yesterday)s
    ORDER BY resolved_at DESC, id DESC
    LIMIT %(cap)s
) AS listed
"""


def backlog_of(*, teams: Sequence[str], now: datetime) -> Backlog:
    """Count what waits and what is under way, each count up to its cap: two queries."""
    if not teams:
        return Backlog()
    asked: dict[str, Any] = {
        "teams": list(teams),
        "now": now,
        "soon": now + SOON,
        "yesterday": now - timedelta(hours=24),
        "cap": COUNT_MAX + 1,
    }
    asked |= {f"wait_{number}": end for number, end in enumerate(WAIT_ENDS)}
    with connection.cursor() as cursor:
        cursor.execute(_WAITING, asked)
        waiting = cursor.fetchall()
        cursor.execute(_UNDER_WAY, asked)
        under_way = {name: (count, since, alone) for name, count, since, alone in cursor.fetchall()}
    sums = [sum(row[place] for row in waiting) for place in range(1, 12) if place != 2]
    retrying, retrying_since, _ = under_way.get(CaseState.RETRYING, (0, None, 0))
    settled, _, settled_alone = under_way.get(CaseState.RESOLVED, (0, None, 0))
    return Backlog(
        waiting=sums[0],
        overdue=sums[1],
        soon=sums[2],
        conflicts=sums[3],
        waits=tuple(sums[4:]),
        at_risk=tuple((currency, int(minor), count) for currency, count, minor, *_ in waiting if currency),
        looking_up=under_way.get(CaseState.LOOKING_UP, (0, None, 0))[0],
        retrying=retrying,
        retrying_since=retrying_since,
        settled=settled,
        settled_alone=settled_alone,
    )


def capped(rows: QuerySet[Any, Any]) -> int:
    """Count these rows up to the cap; an order that an index has keeps the count from reading others."""
    return rows[: COUNT_MAX + 1].count()


def waiting_count(*, teams: Sequence[str], count_max: int) -> int:
    """How many cases wait for a person, up to a cap: for the navigation."""
    waiting = Case.objects.filter(awake(Now()), team__in=teams, state=CaseState.NEEDS_DECISION)
    return waiting.order_by()[:count_max].count()
