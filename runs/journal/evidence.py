"""Keep what was seen: bounded, hashed in full, never changed, and never thrown away (DESIGN law 8)."""

from __future__ import annotations

import math
import re
from typing import Any

from runs import audit
from runs.actors import Actor
from runs.canonical import INTEGER_MAX, canonicalise, digest
from runs.ids import new_id
from runs.locking import LockedOperation
from runs.models import Attempt, Evidence
from runs.states import Claim, EvidenceKind

# Longer is cut and marked with its full length and digest (API.md).
BODY_BYTES_MAX = 64 * 1024
SUMMARY_LENGTH_MAX = 500
REFERENCE_LENGTH_MAX = 300


# What PostgreSQL's text and JSON can't hold: NUL, and half of a surrogate pair.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
# Deeper than any header, and far from every recursion limit.
SEEN_DEPTH_MAX = 32


def storable_text(text: str) -> str:
    """Return the text with each character that the database can't hold replaced by U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


def _storable(value: Any, depth: int = 0) -> Any:
    """Return the value in a form that JSON in the database can hold, losing as little as can be.

    What was seen is somebody else's: it must not be able to keep itself out of the record.
    """
    match value:
        case str():
            return storable_text(value)
        case None | bool():
            return value
        case int():
            return value if -INTEGER_MAX <= value <= INTEGER_MAX else str(value)
        case float():
            return value if math.isfinite(value) and abs(value) <= INTEGER_MAX else str(value)
        case dict() | list() | tuple() if depth >= SEEN_DEPTH_MAX:
            return "…"
        case dict():
            return {storable_text(str(name)): _storable(one, depth + 1) for name, one in value.items()}
        case list() | tuple():
            return [_storable(one, depth + 1) for one in value]
        case _:
            return storable_text(str(value))


def record_evidence(
    locked: LockedOperation,
    *,
    kind: EvidenceKind,
    claim: Claim,
    summary: str,
    actor: Actor,
    attempt: Attempt | None = None,
    finding: str = "",
    reference: str = "",
    seen: dict[str, Any] | None = None,
    body: bytes = b"",
    says_digest: str = "",
) -> Evidence:
    """Insert one piece of evidence and its leaf. `says_digest` is over what it says, by default its body.

    Whatever was seen is kept: cut to its bound, and with what the database can't hold replaced.
    """
    operation = locked.operation
    content = digest(body) if body else ""
    summary, reference, seen = storable_text(summary), storable_text(reference), _storable(seen or {})
    says = (
        says_digest
        or canonicalise(
            {
                "kind": str(kind),
                "claim": str(claim),
                "reference": reference,
                "body": content,
                "seen": seen,
            }
        ).digest
    )
    row = Evidence.objects.create(
        id=new_id("ev"),
        operation=operation,
        attempt=attempt,
        kind=kind,
        claim=claim,
        finding=finding,
        summary=summary[:SUMMARY_LENGTH_MAX],
        reference=reference[:REFERENCE_LENGTH_MAX],
        seen=seen,
        body=body[:BODY_BYTES_MAX] if body else None,
        body_length=len(body),
        body_digest=content,
        digest=says,
        actor_kind=str(actor.kind),
        actor=actor.id,
        recorded_at=locked.now,
    )
    audit.append(
        audit.Event(
            action="evidence.recorded",
            actor=actor,
            team=operation.team_id,
            run=operation.run_id,
            operation=operation.pk,
            subject=row.pk,
            after={
                "kind": str(kind),
                "claim": str(claim),
                **({"finding": finding} if finding else {}),
                **({"attempt": attempt.number} if attempt else {}),
            },
            evidence=says,
        )
    )
    return row
