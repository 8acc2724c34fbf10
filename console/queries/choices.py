"""What the queue's filters offer: accounts, flows, tools and people, in one query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from django.db import connection

from console.queries.backlog import COUNT_MAX
from reconciliation.states import CaseState

# Longer lists of choices help nobody; what isn't offered can still be in an address.
OFFERED_MAX: Final = 200

# An account that a team may use, or at which it has done something: that stays, whoever may use it now. One
# look at an index for each team and account; without LIMIT the planner reads all there is once instead.
VISIBLE_ACCOUNT: Final = """(
    NOT EXISTS (SELECT FROM runs_accountteam AS named WHERE named.account_id = account.slug)
    OR EXISTS (
        SELECT FROM runs_accountteam AS named
        WHERE named.account_id = account.slug AND named.team_id = ANY(%(teams)s)
    )
    OR EXISTS (
        SELECT FROM unnest(%(teams)s::text[]) AS ours (slug)
        CROSS JOIN LATERAL (
            SELECT FROM console_historyentry AS filed
            WHERE filed.team_slug = ours.slug AND filed.provider = account.slug
            ORDER BY filed.at LIMIT 1
        ) AS had
    )
)"""
# The tools are those of the first cases of the list, each team's in the order of its index: not a census.
_CHOICES: Final = """
(SELECT 'provider', slug, '' FROM runs_provideraccount AS account WHERE {visible}
 ORDER BY slug LIMIT %(most)s)
UNION ALL
(SELECT DISTINCT 'flow', name, '' FROM runs_flow WHERE team_id = ANY(%(teams)s) ORDER BY name LIMIT %(most)s)
UNION ALL
(SELECT DISTINCT 'tool', listed.tool, '' FROM unnest(%(teams)s::text[]) AS team (slug)
 CROSS JOIN LATERAL (
    SELECT tool FROM reconciliation_case WHERE team_id = team.slug AND state = '{state}'
    ORDER BY {order} LIMIT %(cases)s
 ) AS listed
 ORDER BY listed.tool LIMIT %(most)s)
UNION ALL
(SELECT DISTINCT 'person', 'person:' || person.id,
        coalesce(nullif(trim(person.first_name || ' ' || person.last_name), ''), person.username) AS name
 FROM console_person AS person JOIN console_person_teams AS member ON member.person_id = person.id
 WHERE member.team_id = ANY(%(teams)s) AND person.is_active
 ORDER BY name LIMIT %(most)s)
"""
_ORDERS: Final = {
    CaseState.NEEDS_DECISION: "worsens_at, at_risk_minor DESC, id",
    CaseState.LOOKING_UP: "opened_at, id",
    CaseState.RETRYING: "opened_at, id",
    CaseState.RESOLVED: "resolved_at DESC, id DESC",
}


@dataclass(frozen=True, kw_only=True)
class Choices:
    """People as (actor, name), by name; everything else by its own name."""

    providers: tuple[str, ...] = ()
    flows: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    people: tuple[tuple[str, str], ...] = ()


def choices_of(*, teams: Sequence[str], state: CaseState) -> Choices:
    """What a list of cases in this state may be narrowed to."""
    found: dict[str, list[tuple[str, str]]] = {"provider": [], "flow": [], "tool": [], "person": []}
    with connection.cursor() as cursor:
        cursor.execute(
            _CHOICES.format(state=state, order=_ORDERS[state], visible=VISIBLE_ACCOUNT),
            {"teams": list(teams), "most": OFFERED_MAX, "cases": COUNT_MAX},
        )
        for kind, value, label in cursor.fetchall():
            found[kind].append((value, label))
    return Choices(
        providers=tuple(value for value, _ in found["provider"]),
        flows=tuple(value for value, _ in found["flow"]),
        tools=tuple(value for value, _ in found["tool"]),
        people=tuple(found["person"]),
    )
