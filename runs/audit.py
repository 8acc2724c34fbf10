"""The audit log's leaves: one per event, appended in the event's own transaction.

A leaf's body is canonical JSON `{"at": …, "event": {…}}`. "at" sorts before "event", so the database can
put its own time in front of event bytes that Python made, and the whole is canonical again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.db import connection

from runs.actors import Actor
from runs.canonical import canonical_bytes

# The body as SQL, from a timestamptz `at` and the event's canonical bytes: used by every insert of a
# leaf, here and in the hand-written statements of `runs.journal`.
AT_TEXT = """to_char({at} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
BODY = (
    'convert_to(\'{{"at":"\' || '
    + AT_TEXT
    + " || '\",\"event\":', 'UTF8') || {event} || convert_to('}}', 'UTF8')"
)

_INSERT = f"""
INSERT INTO runs_auditleaf (body, at, action, team_slug, run_ref, operation_ref, actor_kind, actor)
SELECT {BODY.format(at="clock.at", event="%(event)s::bytea")}, clock.at,
       %(action)s, %(team)s, %(run)s, %(operation)s, %(actor_kind)s, %(actor)s
FROM (SELECT clock_timestamp() AS at) AS clock
"""


@dataclass(frozen=True)
class Event:
    """What happened: the words that a leaf keeps. Values are JSON; bodies appear by their digests."""

    action: str
    actor: Actor
    team: str = ""
    run: str = ""
    operation: str = ""
    subject: str = ""
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    evidence: str = ""

    def canonical(self) -> bytes:
        """Return the event's canonical JSON bytes; empty parts are left out."""
        parts: dict[str, Any] = {
            "action": self.action,
            "actor": {
                "id": self.actor.id,
                "kind": str(self.actor.kind),
                **({"role": self.actor.role} if self.actor.role else {}),
            },
        }
        for name in ("team", "run", "operation", "subject", "before", "after", "reason", "evidence"):
            value = getattr(self, name)
            if value:
                parts[name] = value
        return canonical_bytes(parts)


def append(event: Event) -> None:
    """Append one leaf in the caller's transaction, with the database's time."""
    with connection.cursor() as cursor:
        cursor.execute(
            _INSERT,
            {
                "event": event.canonical(),
                "action": event.action,
                "team": event.team,
                "run": event.run,
                "operation": event.operation,
                "actor_kind": str(event.actor.kind),
                "actor": event.actor.id,
            },
        )
