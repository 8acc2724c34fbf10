"""What stands around every page: how much waits, and where sending is frozen. One query for all of it."""

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
), (
    SELECT count(*) FROM (
        SELECT FROM unnest(%(teams)s::text[]) AS team (slug)
        CROSS JOIN LATERAL (
            SELECT FROM reconciliation_approvalrequest
            WHERE team_id = team.slug AND state = 'requested' AND expires_at > clock_timestamp()
                  AND requester <> %(actor)s AND requester_principal <> %(principal)s
            ORDER BY expires_at, id
            LIMIT %(most)s
        ) AS asked
        LIMIT %(most)s
    ) AS approvals
), count(*), count(*) FILTER (WHERE sending = 'frozen')
FROM runs_provideraccount
"""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """How many cases wait, how many requests wait for this person, up to a cap, and frozen accounts."""

    waiting: int
    approvals: int
    accounts: int
    frozen: int


def read_frame(*, teams: Sequence[str], count_max: int, actor: str = "", principal: str = "") -> Frame:
    """Count them for somebody of these teams. Nobody's own requests wait for them."""
    with connection.cursor() as cursor:
        cursor.execute(
            _FRAME, {"teams": list(teams), "most": count_max, "actor": actor, "principal": principal}
        )
        waiting, approvals, accounts, frozen = cursor.fetchone()
    return Frame(waiting=waiting, approvals=approvals, accounts=accounts, frozen=frozen)
