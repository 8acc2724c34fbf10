"""What follows from the records that a question brought up."""

from __future__ import annotations

from collections.abc import Iterable

from reconciliation.providers.base import (
    Exchange,
    Finding,
    Found,
    Inconclusive,
    Mismatch,
    Pending,
    Receipt,
    ReceiptState,
    Refused,
    Several,
)


def judge_ours(ours: tuple[Receipt, ...], exchange: Exchange, *, incomplete: bool) -> Finding:
    """Conclude from the records that carry our key or reference, one for each id.

    Records that ended without effect step back behind one that took effect or still may.
    """
    live = tuple(one for one in ours if one.state is not ReceiptState.REFUSED)
    if len(live) > 1:
        return Several(
            exchange=exchange,
            receipts=live,
            summary=f"The provider shows {len(live)} records of this operation:"
            " it may have happened more than once.",
        )
    different = [one for one in live or ours if not one.same]
    if different:
        fields = ", ".join(one.path for one in different[0].differences)
        return Mismatch(
            exchange=exchange,
            receipts=ours,
            summary=f"The provider's record {different[0].reference} carries our key"
            f" or reference and differs from what was asked: {fields}.",
        )
    if incomplete:
        return inconclusive(
            exchange, "incomplete", "it shows a record of this operation, and not the whole list", ours
        )
    if not live:
        return Refused(
            exchange=exchange,
            receipts=ours,
            summary=f"The provider's record {ours[0].reference} says “{ours[0].status}”:"
            " it ended without effect.",
        )
    only = live[0]
    if only.state is ReceiptState.PENDING:
        return Pending(
            exchange=exchange,
            receipts=live,
            summary=f"The provider has it as {only.reference}; it says"
            f" “{only.status}”, which is not success yet.",
        )
    return Found(
        exchange=exchange,
        receipts=live,
        summary=f"The provider has it: receipt {only.reference} carries our key or reference"
        " and equals what was asked.",
    )


def inconclusive(
    exchange: Exchange, reason: str, because: str, receipts: tuple[Receipt, ...] = ()
) -> Inconclusive:
    return Inconclusive(
        reason=reason,
        exchange=exchange,
        receipts=receipts,
        summary=f"Nothing follows from the provider's answer: {because}.",
    )


def by_reference(receipts: Iterable[Receipt]) -> tuple[Receipt, ...]:
    """One receipt for each id, in order; a record that a list shows twice is one record, as shown first.

    Lists of events, which show a record once for each change, are read the newest first.
    """
    first: dict[str, Receipt] = {}
    for one in receipts:
        first.setdefault(one.reference, one)
    return tuple(first.values())


def count(receipts: tuple[Receipt, ...]) -> str:
    return "One record" if len(receipts) == 1 else f"Each of {len(receipts)} records"
