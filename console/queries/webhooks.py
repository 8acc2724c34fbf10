"""What the providers' notices came to: those that were signed, newest first, and counts of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from reconciliation.states import WebhookOutcome, WebhookRefusal
from reconciliation.webhook_models import WebhookEvent, WebhookRefusals

LISTED_MAX = 200


@dataclass(frozen=True, kw_only=True)
class ListedNotice:
    """One notice that the provider signed. `operation` is "" unless it became evidence.

    Ids, types, references and summaries are the provider's text: shown as it is, never as markup.
    """

    id: str
    account: str
    event_id: str
    event_type: str
    outcome: WebhookOutcome
    summary: str
    reference: str
    received_at: datetime
    deliveries_count: int
    operation: str


@dataclass(frozen=True, kw_only=True)
class ListedRefusals:
    """How many notices of one account met one reason in one hour; digest and length are of the latest."""

    account: str
    reason: WebhookRefusal
    hour_at: datetime
    count: int
    last_at: datetime
    last_digest: str
    last_length: int
    last_from: str


def latest_notices(*, account: str | None = None, limit: int = 50) -> Sequence[ListedNotice]:
    """The latest notices of an account, or of all; one index scan. They belong to no team: ask for who may
    see a provider's account as a whole.
    """
    notices = WebhookEvent.objects.order_by("-received_at", "-id")
    if account is not None:
        notices = notices.filter(provider_slug=account)
    return [
        ListedNotice(
            id=one.pk,
            account=one.provider_slug,
            event_id=one.event_id,
            event_type=one.event_type,
            outcome=WebhookOutcome(one.outcome),
            summary=one.summary,
            reference=one.reference,
            received_at=one.received_at,
            deliveries_count=one.deliveries_count,
            operation=one.operation_id or "",
        )
        for one in notices[: min(limit, LISTED_MAX)]
    ]


def latest_refusals(*, account: str | None = None, limit: int = 50) -> Sequence[ListedRefusals]:
    """The latest counts of refused and unused notices, of an account or of all, newest hour first."""
    refusals = WebhookRefusals.objects.order_by("-hour_at", "-id")
    if account is not None:
        refusals = refusals.filter(provider_slug=account)
    return [
        ListedRefusals(
            account=one.provider_slug,
            reason=WebhookRefusal(one.reason),
            hour_at=one.hour_at,
            count=one.count,
            last_at=one.last_at,
            last_digest=one.last_digest,
            last_length=one.last_length,
            last_from=one.last_from,
        )
        for one in refusals[: min(limit, LISTED_MAX)]
    ]
