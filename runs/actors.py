"""Who did it: the one shape in which a person, a worker, a token, a policy or the system is named."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ActorKind(StrEnum):
    # A human being, by their principal, whatever account or token they used.
    PERSON = "person"
    # An agent's worker, by the name it claimed with.
    WORKER = "worker"
    # An API token, where no worker or person is named.
    TOKEN = "token"
    # A named rule, with its version.
    POLICY = "policy"
    # Recourse itself: the sweeper, the console's own sender.
    SYSTEM = "system"


@dataclass(frozen=True)
class Actor:
    """An actor as the journal and the audit log record it: kind, stable id, the role it acted in."""

    kind: ActorKind
    id: str
    role: str = ""


# What follows from a rule of the journal itself: a lease that ran out, a pause.
JOURNAL = Actor(ActorKind.SYSTEM, "journal")
SWEEPER = Actor(ActorKind.SYSTEM, "sweeper")
CONSOLE_SENDER = Actor(ActorKind.SYSTEM, "console-sender")
