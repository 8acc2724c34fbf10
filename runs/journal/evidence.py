"""Keep what was seen: bounded, hashed in full, never changed, and never thrown away (DESIGN law 8)."""

from __future__ import annotations

from typing import Any

from runs import audit
from runs.actors import Actor
from runs.canonical import canonicalise, digest
from runs.ids import new_id
from runs.locking import LockedOperation
from runs.models import Attempt, Evidence
from runs.states import Claim, EvidenceKind

# Longer is cut and marked with its full length and digest (API.md).
BODY_BYTES_MAX = 64 * 1024
SUMMARY_LENGTH_MAX = 500
REFERENCE_LENGTH_MAX = 300


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
    """Insert one piece of evidence and its leaf. `says_digest` is over what it says, by default its body."""
    operation = locked.operation
    content = digest(body) if body else ""
    says = (
        says_digest
        or canonicalise(
            {
                "kind": str(kind),
                "claim": str(claim),
                "reference": reference,
                "body": content,
                "seen": seen or {},
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
        seen=seen or {},
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
