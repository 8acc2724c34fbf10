"""Effects beyond the one that confirmed an operation: which were told of, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db.models import Exists, OuterRef, Q, QuerySet

from reconciliation.models import Case
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
    told = Evidence.objects.filter(operation=operation, claim=Claim.RECEIPT, reference=reference)
    return told.filter(Exists(asked_about)).exists()


def extra_minor(operation: Operation, *, since: datetime) -> int:
    """What the extra effects told of since then cost, in the operation's currency: each reference once.

    The effect that confirmed the operation is booked already. One that states no amount, or another currency,
    counts as the operation's own amount: the budget can hold no other. So does one that an answer proved
    without a receipt.
    """
    confirmed = Receipt.objects.filter(operation=operation).values_list("reference", flat=True).first()
    return extra_of(operation, confirmed=confirmed, told=tuple(told_since(operation, since)))


def told_since(operation: Operation, since: datetime) -> QuerySet[Evidence]:
    """The evidence since then of effects: receipts, and answers that prove one without a receipt."""
    told = Evidence.objects.filter(operation=operation, recorded_at__gte=since)
    tells = Q(claim=Claim.RECEIPT) | Q(seen__effect_exists=True)
    return told.filter(tells).defer("body").order_by("recorded_at", "id")


def extra_of(operation: Operation, *, confirmed: str | None, told: Sequence[Evidence]) -> int:
    """As `extra_minor`, from the reference that confirmed the operation, if any, and from `told_since`."""
    extra: dict[str, int] = {}
    for evidence in told:
        if evidence.claim != Claim.RECEIPT or evidence.reference == (confirmed or ""):
            continue
        amount = (evidence.seen.get("match", {}).get("receipt") or {}).get("amount")
        minor = int(amount[1]) if amount and amount[0] == operation.amount_currency else None
        extra[evidence.reference] = operation.amount_minor or 0 if minor is None else minor
    if not extra and confirmed is None and any(one.seen.get("effect_exists") is True for one in told):
        return operation.amount_minor or 0
    return sum(extra.values())
