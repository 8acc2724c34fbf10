"""The backlog: how many cases wait, for how long and for how much. Every count stops at a cap.

One query, which tells the time as well.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import connection
from django.db.models import QuerySet

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
    """What waits at `now`, each count up to `COUNT_MAX`.

    `at_risk` has currency, minor units and cases, of the cases counted.
    """

    now: datetime
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
       sum(minor) AS minor,
       count(*) FILTER (WHERE decide_by <= now) AS overdue,
       count(*) FILTER (WHERE worsens <= now + %(soon)s) AS soon,
       count(*) FILTER (WHERE kind = 'conflict') AS conflicts,
       count(*) FILTER (WHERE waited < %(wait_0)s) AS wait_0,
       count(*) FILTER (WHERE waited >= %(wait_0)s AND waited < %(wait_1)s) AS wait_1,
       count(*) FILTER (WHERE waited >= %(wait_1)s AND waited < %(wait_2)s) AS wait_2,
       count(*) FILTER (WHERE waited >= %(wait_2)s AND waited < %(wait_3)s) AS wait_3,
       count(*) FILTER (WHERE waited >= %(wait_3)s AND waited < %(wait_4)s) AS wait_4,
       count(*) FILTER (WHERE waited >= %(wait_4)s) AS wait_5
FROM (
    SELECT clock.now, listed.* FROM clock CROSS JOIN unnest(%(teams)s::text[]) AS team (slug)
    CROSS JOIN LATERAL (
        SELECT at_risk_currency AS currency, at_risk_minor AS minor, decide_by_at AS decide_by,
               worsens_at AS worsens, kind, clock.now - opened_at AS waited
        FROM reconciliation_case
        WHERE team_id = team.slug AND state = 'needs_decision'
              AND (snoozed_until_at IS NULL OR snoozed_until_at <= clock.now)
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
SELECT wanted.name, count(*), min(listed.at) AS since, count(*) FILTER (WHERE listed.alone) AS alone
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
FROM clock CROSS JOIN unnest(%(teams)s::text[]) AS team (slug)
CROSS JOIN LATERAL (
    SELECT resolved_at AS at,
           NOT EXISTS (SELECT FROM reconciliation_decision WHERE case_id = reconciliation_case.id) AS alone
    FROM reconciliation_case
    WHERE team_id = team.slug AND state = 'resolved' AND resolved_at >= clock.now - %(day)s
    ORDER BY resolved_at DESC, id DESC
    LIMIT %(cap)s
) AS listed
"""


_BOTH = f"""
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now)
SELECT clock.now,
       (SELECT coalesce(jsonb_agg(to_jsonb(one)), '[]') FROM ({_WAITING}) AS one),
       (SELECT coalesce(jsonb_agg(to_jsonb(one)), '[]') FROM ({_UNDER_WAY}) AS one)
FROM clock
"""  # noqa: S608 - put together of what stands above


def backlog_of(*, teams: Sequence[str], now: datetime | None = None) -> Backlog:
    """Count what waits and what is under way, each count up to its cap; at `now`, or at the database's."""
    asked: dict[str, Any] = {
        "teams": list(teams),
        "now": now,
        "soon": SOON,
        "day": timedelta(hours=24),
        "cap": COUNT_MAX + 1,
    }
    asked |= {f"wait_{number}": end for number, end in enumerate(WAIT_ENDS)}
    with connection.cursor() as cursor:
        cursor.execute(_BOTH, asked)
        at, waiting, listed = cursor.fetchone()
    rows: list[dict[str, Any]] = json.loads(waiting)
    under_way = {row["name"]: row for row in json.loads(listed)}
    retrying = under_way.get(CaseState.RETRYING, _NONE)
    settled = under_way.get(CaseState.RESOLVED, _NONE)
    return Backlog(
        now=at,
        waiting=sum(row["count"] for row in rows),
        overdue=sum(row["overdue"] for row in rows),
        soon=sum(row["soon"] for row in rows),
        conflicts=sum(row["conflicts"] for row in rows),
        waits=tuple(sum(row[f"wait_{place}"] for row in rows) for place in range(len(WAIT_ENDS) + 1)),
        at_risk=tuple((row["currency"], int(row["minor"]), row["count"]) for row in rows if row["currency"]),
        looking_up=under_way.get(CaseState.LOOKING_UP, _NONE)["count"],
        retrying=retrying["count"],
        retrying_since=datetime.fromisoformat(retrying["since"]) if retrying["since"] else None,
        settled=settled["count"],
        settled_alone=settled["alone"],
    )


_NONE: Final[dict[str, Any]] = {"count": 0, "since": None, "alone": 0}


def capped(rows: QuerySet[Any, Any]) -> int:
    """Count these rows up to the cap; an order that an index has keeps the count from reading others."""
    return rows[: COUNT_MAX + 1].count()
