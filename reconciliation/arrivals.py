"""What follows from word of an effect that comes from outside an open attempt: late reports, webhooks.

Everything here needs a transaction that holds the run and the operation, and comes after the evidence was
kept. Word of an effect never rewrites what is settled: it opens a conflict case (DESIGN law 9).
"""

from __future__ import annotations

from reconciliation import cases, extra_effects, moves
from reconciliation.accounts import account_of
from reconciliation.models import Case
from reconciliation.providers.base import ReceiptMatch
from reconciliation.states import CaseKind, CaseState
from runs.journal import settling
from runs.locking import LockedOperation
from runs.models import Evidence, Receipt


def open_and_judge(locked: LockedOperation, *, kind: CaseKind, because: str) -> Case:
    """Open a case, or find the open one and note that more is known; then ask the policy."""
    case = moves.open_case_of(locked)
    if case is None:
        case = cases.open_case(locked, kind=kind, because=because)
    else:
        moves.note_new_evidence(locked, case)
        case = cases.open_case(locked, kind=kind, because=because)
        if case.state == CaseState.RETRYING and kind == CaseKind.UNKNOWN:
            contract = account_of(locked.operation.provider_id).contract
            moves.back_to_looking_up(locked, case, why=because, has_lookup=contract.has_lookup)
    cases.judge(locked, case)
    return case


def refuse_reused(
    locked: LockedOperation, *, match: ReceiptMatch | None, reference: str, evidence: Evidence
) -> settling.ReceiptReused | None:
    """Open a conflict on both if this receipt confirmed another operation; the refusal, or None."""
    if match is None or not match.matches:
        return None
    other = (
        Receipt.objects.filter(provider_id=locked.operation.provider_id, reference=reference)
        .exclude(operation=locked.operation)
        .select_related("operation")
        .first()
    )
    if other is None:
        return None
    reused = settling.ReceiptReused(locked.operation, reference, other.operation)
    cases.open_conflict_on_both(locked, reused, evidence)
    return reused


def receipt_after_settled(
    locked: LockedOperation, *, match: ReceiptMatch | None, reference: str, evidence: Evidence
) -> settling.ReceiptReused | None:
    """A receipt for a settled operation: the one that confirmed it is nothing new, any other a conflict."""
    confirmed = Receipt.objects.filter(operation=locked.operation).first()
    if confirmed is not None and confirmed.reference == reference:
        return None
    if extra_effects.dealt_with(locked.operation, reference):
        return None
    reused = refuse_reused(locked, match=match, reference=reference, evidence=evidence)
    if reused is None:
        because = f"Receipt {reference} was reported for an operation that is {locked.operation.state}."
        open_and_judge(locked, kind=CaseKind.CONFLICT, because=because)
    return reused


def judge_by_evidence(locked: LockedOperation, *, known: bool = False) -> None:
    """Ask the policy what follows from evidence that has just come, for an operation that is sent_unknown.

    `known`: it says nothing that wasn't on record, so whoever is deciding saw as much.
    """
    case = moves.open_case_of(locked)
    if case is not None:
        if not known:
            moves.note_new_evidence(locked, case)
        cases.judge(locked, case)
    else:
        cases.settle_now(locked, actor=moves.BY_POLICY)
