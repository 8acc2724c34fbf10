"""Evidence beyond lookups: how a sender's words are bounded, and what a person attaches to a case."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import transaction

from reconciliation import moves
from reconciliation.decisions import find_case
from reconciliation.models import Case
from reconciliation.states import CaseState
from runs.actors import Actor
from runs.canonical import TooLarge, canonicalise, digest
from runs.journal.evidence import BODY_BYTES_MAX, REFERENCE_LENGTH_MAX, SUMMARY_LENGTH_MAX, record_evidence
from runs.locking import lock_operation
from runs.models import Evidence
from runs.refusals import Invalid
from runs.states import Claim, EvidenceKind

# A sender's own words about an error: a sentence, or a traceback's end. Longer ones are cut and marked.
TEXT_SEEN_MAX = 4_000


def cut_texts(seen: dict[str, Any]) -> dict[str, Any]:
    """Return what a sender saw with its own words cut to length; `cut` has their full length and digest."""
    cut = {
        name: {"length": len(text), "sha256": digest(text.encode())}
        for name, text in seen.items()
        if isinstance(text, str) and len(text) > TEXT_SEEN_MAX
    }
    shortened = {name: value[:TEXT_SEEN_MAX] if name in cut else value for name, value in seen.items()}
    return {**shortened, "cut": cut} if cut else shortened


@dataclass(frozen=True)
class Attached:
    evidence_id: str
    case: Case
    replayed: bool


def says_digest(*, actor: Actor, summary: str, reference: str, body: bytes) -> str:
    """The digest over what an attachment says: the same words and bytes by the same person are the same."""
    return canonicalise(
        {
            "kind": str(EvidenceKind.ATTACHMENT),
            "by": actor.id,
            "summary": summary,
            "reference": reference,
            "body": digest(body) if body else "",
        }
    ).digest


def attach(
    *, case_id: str, team: str | None, actor: Actor, summary: str, reference: str = "", body: bytes = b""
) -> Attached:
    """Attach what a person found out to a case's operation. Owns its transaction.

    The same content by the same person again is the evidence that is already there, `replayed`. Whoever is
    deciding saw less: the case's version moves, unless it is resolved. A body that couldn't be kept whole is
    refused, for the person still has it. Raises `NotFound`, `Invalid`, `TooLarge`.
    """
    if not summary.strip() or len(summary) > SUMMARY_LENGTH_MAX:
        raise Invalid(f"summary must be text of 1 to {SUMMARY_LENGTH_MAX} characters.", where="summary")
    if len(reference) > REFERENCE_LENGTH_MAX:
        raise Invalid(f"reference must be at most {REFERENCE_LENGTH_MAX} characters.", where="reference")
    if len(body) > BODY_BYTES_MAX:
        raise TooLarge(
            f"An attachment is kept whole, so at most {BODY_BYTES_MAX:,} bytes are taken.",
            bytes_max=BODY_BYTES_MAX,
            bytes_seen=len(body),
        )
    says = says_digest(actor=actor, summary=summary, reference=reference, body=body)
    found = find_case(case_id=case_id, team=team)
    with transaction.atomic():
        locked = lock_operation(operation_id=found.operation_id, team=team)
        case = Case.objects.select_for_update().get(pk=case_id)
        known = Evidence.objects.filter(operation=locked.operation, digest=says).first()
        if known is not None:
            return Attached(known.pk, case, replayed=True)
        kept = record_evidence(
            locked,
            kind=EvidenceKind.ATTACHMENT,
            claim=Claim.UNKNOWN,
            summary=summary,
            actor=actor,
            reference=reference,
            body=body,
            says_digest=says,
        )
        if case.state != CaseState.RESOLVED:
            moves.note_new_evidence(locked, case)
        return Attached(kept.pk, case, replayed=False)
