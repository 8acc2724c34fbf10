"""Which receipt on record a person chose to confirm with, and why one may not be chosen by one person.

A choice names evidence and a reference, as the person saw them. What it names is looked for in stored
evidence, and judged by what the latest look shows: the same answer again makes no choice void.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from reconciliation.facts import ANOTHER_TEAMS, Facts, SeenReceipt
from reconciliation.providers.base import ReceiptState
from runs.models import Evidence, Operation
from runs.refusals import Invalid


def chosen_receipt(
    *, operation: Operation, facts: Facts, evidence_id: str = "", reference: str = ""
) -> SeenReceipt | None:
    """The receipt that is named, as it is known now; None where nothing is named and there is none to take.

    Without a name it is the one that matches and is free. Raises `Invalid` if no evidence of the operation
    names such a receipt, or if the latest look doesn't show it any more.
    """
    if not evidence_id and not reference:
        free = (one for one in facts.receipts if one.matches and not one.confirmed_other)
        return next(free, None)
    exact = [
        one
        for one in facts.receipts
        if evidence_id in ("", one.evidence_id) and reference in ("", one.reference)
    ]
    if exact:
        # One piece of evidence may show several: what is named by it alone is the one that can be taken.
        return next((one for one in exact if one.matches and not one.confirmed_other), exact[0])
    shown = references_of(operation, evidence_id) if evidence_id else set()
    if not shown or (reference and reference not in shown):
        what = f"receipt {reference}" if reference else "such a receipt"
        raise Invalid(f"No evidence on record names {what}.", where="receipt", evidence=evidence_id)
    wanted = {reference} if reference else shown
    now = [one for one in facts.receipts if one.reference in wanted]
    if not now:
        raise Invalid(
            "The latest lookup doesn’t show this receipt any more.", where="receipt", evidence=evidence_id
        )
    return next((one for one in now if one.matches and not one.confirmed_other), now[0])


def references_of(operation: Operation, evidence_id: str) -> set[str]:
    """The references of receipts that a stored piece of the operation's evidence names; empty for none."""
    evidence = Evidence.objects.filter(operation=operation, pk=evidence_id).defer("body").first()
    if evidence is None:
        return set()
    seen: dict[str, Any] = evidence.seen if isinstance(evidence.seen, dict) else {}
    listed: Any = seen.get("receipts")
    named = {str(one.get("reference", "")) for one in listed or [] if isinstance(one, dict)}
    return {one for one in named | {evidence.reference} if one}


def record_of(operation: Operation, receipt: SeenReceipt) -> Mapping[str, Any] | None:
    """The record of a receipt that doesn't match, as its evidence keeps it; None where there is none."""
    if receipt.matches:
        return None
    evidence = Evidence.objects.filter(operation=operation, pk=receipt.evidence_id).defer("body").first()
    seen: Any = evidence.seen if evidence is not None and isinstance(evidence.seen, dict) else {}
    match: Any = seen.get("match")
    reported = match.get("receipt") if isinstance(match, dict) else None
    listed = [*(seen.get("receipts") or []), reported]
    return next(
        (one for one in listed if isinstance(one, dict) and one.get("reference") == receipt.reference), None
    )


def why_not_chosen(receipt: SeenReceipt, record: Mapping[str, Any] | None = None) -> str:
    """Why this receipt can't confirm by one person; "" if nothing about it stands against that.

    `record` is the provider's record of it, as a lookup or a match keeps it: with it, no reason is named that
    doesn't hold.
    """
    if receipt.confirmed_other:
        other = receipt.confirmed_other
        which = "another operation" if other == ANOTHER_TEAMS else f"operation {other}"
        return (
            f"Receipt {receipt.reference} has confirmed {which} already, and one receipt confirms one"
            " operation."
        )
    if not receipt.matches:
        return f"Receipt {receipt.reference} {against(record)}."
    return ""


def against(record: Mapping[str, Any] | None) -> str:
    """What stands against a record that doesn't match, as it goes on a sentence about it."""
    known = record or {}
    holds = [
        words
        for name, words in _AGAINST.items()
        if name in known and known[name] not in (True, ReceiptState.SUCCEEDED.value)
    ]
    if not holds:
        return "doesn’t match: one that does carries our key or reference, is final, and equals the payload"
    *first, last = holds
    return f"{', '.join(first)} and {last}" if first else last


_AGAINST: Final = {
    "named": "doesn’t carry our key or reference",
    "state": "isn’t a final success",
    "same": "differs from the payload",
}
