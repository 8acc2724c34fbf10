"""Effects beyond the one that confirmed an operation: which were told of, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet

from reconciliation.conclusions import matching_references
from reconciliation.facts import Facts
from reconciliation.models import Case
from reconciliation.providers.base import FindingKind, ReceiptState
from reconciliation.states import Resolution
from runs.models import Evidence, Operation, Receipt
from runs.states import Claim


def dealt_with(operation: Operation, reference: str) -> bool:
    """Whether an extra effect of this reference was accepted or compensated before: no new question.

    Only what was told of while such a case was open was asked about there, and booked (`extra_minor`): what
    had been told before, of another content perhaps, was not.
    """
    asked_about = Case.objects.filter(
        operation=operation,
        resolution__in=[Resolution.ACCEPTED, Resolution.COMPENSATED],
        opened_at__lte=OuterRef("recorded_at"),
        resolved_at__gt=OuterRef("recorded_at"),
    )
    shown = Q(finding=FindingKind.SEVERAL, seen__receipts__contains=[{"reference": reference}])
    told = Evidence.objects.filter(Q(claim=Claim.RECEIPT, reference=reference) | shown, operation=operation)
    return told.filter(Exists(asked_about)).exists()


def others_on_record(facts: Facts, told: Sequence[Evidence], *, confirmed: str) -> tuple[str, ...]:
    """What is on record of further effects of ours, beside the one that an operation is confirmed with.

    By reference: receipts that match, and what a look that showed several named as ours, whatever it holds.
    A receipt that has confirmed another operation is that one's.
    """
    theirs = {one.reference for one in facts.receipts if one.confirmed_other}
    shown = {reference for evidence in told for reference in _shown_by(evidence)}
    return tuple(sorted((shown | matching_references(facts).keys()) - theirs - {confirmed}))


def extra_minor(operation: Operation, *, since: datetime) -> int:
    """What the extra effects told of since then cost, in the operation's currency: each reference once.

    The effect that confirmed the operation is booked already. One that states no amount, or another currency,
    counts as the operation's own amount: the budget can hold no other. So does one that an answer proved
    without a receipt.
    """
    confirmed = Receipt.objects.filter(operation=operation).values_list("reference", flat=True).first()
    return extra_of(operation, confirmed=confirmed, told=tuple(told_since(operation, since)))


def told_since(operation: Operation, since: datetime) -> QuerySet[Evidence]:
    """The evidence since then of effects: receipts, looks that showed several, and answers that prove one
    without a receipt.
    """
    told = Evidence.objects.filter(operation=operation, recorded_at__gte=since)
    tells = Q(claim=Claim.RECEIPT) | Q(finding=FindingKind.SEVERAL) | Q(seen__effect_exists=True)
    return told.filter(tells).defer("body").order_by("recorded_at", "id")


def extra_of(operation: Operation, *, confirmed: str | None, told: Sequence[Evidence]) -> int:
    """As `extra_minor`, from the reference that confirmed the operation, if any, and from `told_since`."""
    extra: dict[str, int] = {}
    for evidence in told:
        for reference, amount in {**_reported_by(evidence), **_shown_by(evidence)}.items():
            if reference == (confirmed or ""):
                continue
            minor = int(amount[1]) if amount and amount[0] == operation.amount_currency else None
            extra[reference] = operation.amount_minor or 0 if minor is None else minor
    if not extra and confirmed is None and any(one.seen.get("effect_exists") is True for one in told):
        return operation.amount_minor or 0
    return sum(extra.values())


def _reported_by(evidence: Evidence) -> dict[str, Any]:
    """The receipt that was reported, with its amount as [currency, minor units]; {} where it is none."""
    if evidence.claim != Claim.RECEIPT:
        return {}
    return {evidence.reference: (evidence.seen.get("match", {}).get("receipt") or {}).get("amount")}


def _shown_by(evidence: Evidence) -> dict[str, Any]:
    """The effects of ours that a look showed, each with its amount; {} where it found no several."""
    if evidence.finding != FindingKind.SEVERAL:
        return {}
    return {
        one["reference"]: one.get("amount")
        for one in evidence.seen.get("receipts", [])
        if one.get("named") and one.get("state") != ReceiptState.REFUSED
    }
