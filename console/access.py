"""Who may do what, and under which name a person acts: asked by pages and API alike.

What a person sees is limited by their teams, what they do by their roles; no role reaches beyond the teams.
Another team's id is answered like one that doesn't exist.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from console.models import Person, Role
from runs.actors import Actor, ActorKind


class Deed(StrEnum):
    """What somebody may want to do in the console."""

    # Read cases, runs and the effect history.
    VIEW = "view"
    # Confirm, retry, abandon, accept, compensate.
    DECIDE = "decide"
    # Let a case be looked up now: read-only at the provider, but it costs its rate limit.
    LOOK_UP = "look_up"
    # Attach what they found out to a case; it settles nothing by itself.
    ATTACH = "attach"
    # Be shown what is hidden in a payload or in evidence, with a reason that stays on record.
    REVEAL = "reveal"
    # Work on a case with others: claim it, note something, put it off.
    WORK = "work"
    # Take a worker's lease away.
    REVOKE_LEASE = "revoke_lease"
    # Take back a granted retry that nobody has used.
    WITHDRAW_RETRY = "withdraw_retry"
    # Put one question to a provider on trial: it changes nothing, and it is a request with our credentials.
    TEST_LOOKUP = "test_lookup"
    # Trust a provider less than it promises.
    TIGHTEN = "tighten"
    # Say which database this is after a restore or copy, and let accounts send again.
    STATE_ENVIRONMENT = "state_environment"
    # Say which in-house API there is to send to, and what it promises.
    DECLARE = "declare"


# An approver consents to what an operator asks for and so decides nothing alone; an auditor reads; an
# administrator runs the deployment.
ROLES_BY_DEED: Final[dict[Deed, tuple[Role, ...]]] = {
    Deed.VIEW: (Role.OPERATOR, Role.APPROVER, Role.AUDITOR, Role.ADMINISTRATOR, Role.VIEWER),
    Deed.DECIDE: (Role.OPERATOR,),
    Deed.LOOK_UP: (Role.OPERATOR, Role.APPROVER),
    Deed.ATTACH: (Role.OPERATOR, Role.APPROVER),
    Deed.REVEAL: (Role.OPERATOR, Role.APPROVER),
    Deed.WORK: (Role.OPERATOR, Role.APPROVER),
    Deed.REVOKE_LEASE: (Role.OPERATOR,),
    Deed.WITHDRAW_RETRY: (Role.OPERATOR,),
    Deed.TEST_LOOKUP: (Role.OPERATOR,),
    Deed.TIGHTEN: (Role.ADMINISTRATOR,),
    Deed.STATE_ENVIRONMENT: (Role.ADMINISTRATOR,),
    Deed.DECLARE: (Role.ADMINISTRATOR,),
}


# What a page says of whom a deed is for, after who is signed in.
_FOR_WHOM: Final[dict[Deed, str]] = {
    Deed.VIEW: "and only people with a role see cases and runs",
    Deed.DECIDE: "and decisions are for operators",
    Deed.LOOK_UP: "and lookups are asked for by operators and approvers",
    Deed.ATTACH: "and evidence is attached by operators and approvers",
    Deed.REVEAL: "and what is hidden is shown to operators and approvers",
    Deed.WORK: "and cases are worked on by operators and approvers",
    Deed.REVOKE_LEASE: "and leases are revoked by operators",
    Deed.WITHDRAW_RETRY: "and retries are withdrawn by operators",
    Deed.TEST_LOOKUP: "and lookups are tested by operators",
    Deed.TIGHTEN: "and contracts are tightened by administrators",
    Deed.STATE_ENVIRONMENT: "and which database this is, and what sends again, is said by administrators",
    Deed.DECLARE: "and providers are declared by administrators",
}


def may(person: Person, deed: Deed) -> bool:
    """Whether the person's roles include this deed, in whatever teams they have."""
    return person.is_active and person.has_role(*ROLES_BY_DEED[deed])


def why_not(person: Person, deed: Deed) -> str:
    """Say why the person may not do it: one sentence for the page, "" if they may."""
    if may(person, deed):
        return ""
    held = ", ".join(str(Role(role).label).lower() for role in person.roles if role in set(Role))
    who = f"You are signed in as {held}" if held else "You hold no role"
    return f"{who}, {_FOR_WHOM[deed]}."


def teams_of(person: Person) -> tuple[str, ...]:
    """The slugs of the person's teams, in order: everything they can see belongs to one of these."""
    return tuple(person.teams.order_by("slug").values_list("slug", flat=True))


def person_actor(person: Person) -> Actor:
    """The human being as the journal names them: one principal, whatever session or token they used.

    By primary key, which a change of login doesn't change; so four eyes are two human beings.
    """
    order = (Role.OPERATOR, Role.APPROVER, Role.ADMINISTRATOR, Role.AUDITOR, Role.VIEWER)
    role = next((one for one in order if person.has_role(one)), None)
    return Actor(ActorKind.PERSON, f"person:{person.pk}", str(role) if role else "")
