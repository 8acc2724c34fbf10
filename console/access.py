"""Who may do what, and under which name a person acts: asked by pages and API alike."""

from __future__ import annotations

from typing import Final

from console.models import Person, Role
from runs.actors import Actor, ActorKind

# Those who answer for effects. An auditor reads; an administrator runs the deployment and decides nothing.
DECIDING_ROLES: Final = (Role.OPERATOR, Role.APPROVER)


def may_decide(person: Person) -> bool:
    """Whether the person may confirm, retry or abandon, ask for lookups, attach evidence, end leases."""
    return person.is_active and person.has_role(*DECIDING_ROLES)


def person_actor(person: Person) -> Actor:
    """The human being as the journal names them: one principal, whatever session or token they used.

    By primary key, which a change of login doesn't change; so four eyes are two human beings.
    """
    role = next((one for one in DECIDING_ROLES if person.has_role(one)), None)
    return Actor(ActorKind.PERSON, f"person:{person.pk}", str(role) if role else "")
