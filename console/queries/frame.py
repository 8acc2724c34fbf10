"""What stands around every page: how many cases wait, and where sending is frozen. One query for both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from django.db import connection

# Each team's in the order of an index, so that a count that stops early reads no others.
_FRAME: Final = """
SELECT (
    SELECT count(*) FROM (
        SELECT FROM unnest(%(teams)s::text[]) AS team (slug)
        CROSS JOIN LATERAL (
            SELECT FROM reconciliation_case
            WHERE team_id = team.slug AND state = 'needs_decision'
                  AND (snoozed_until_at IS NULL OR snoozed_until_at <= clock_timestamp())
            ORDER BY worsens_at, at_risk_minor DESC, id
            LIMIT %(most)s
        ) AS listed
        LIMIT %(most)s
    ) AS waiting
), count(*), count(*) FILTER (WHERE sending = 'frozen')
FROM runs_provideraccount
"""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """How many cases wait for a person, up to a cap, and how many of the accounts are frozen."""

    waiting: int
    accounts: int
    frozen: int


def read_frame(*, teams: Sequence[str], count_max: int) -> Frame:
    """Count both for somebody of these teams; whoever has none is shown no cases."""
    with connection.cursor() as cursor:
        cursor.execute(_FRAME, {"teams": list(teams), "most": count_max})
        waiting, accounts, frozen = cursor.fetchone()
    return Frame(waiting=waiting, accounts=accounts, frozen=frozen)
