"""What the providers' notices came to: those that were signed, newest first, and counts of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Sum
from django.urls import reverse

from reconciliation.providers import registry
from reconciliation.providers.webhook_schemes import Scheme
from reconciliation.providers.webhook_signing import usable
from reconciliation.states import WebhookOutcome, WebhookRefusal
from reconciliation.webhook_models import WebhookEvent, WebhookRefusals

LISTED_MAX = 200
COUNT_MAX = 1_000
LOOKED_BACK = timedelta(days=1)


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


@dataclass(frozen=True, kw_only=True)
class Notices:
    """How an account's notices stand: how they are checked, and what came of those of the last day.

    `lacks` are variables beside the secrets that aren't set, and have to be; `usable` says whether anything
    can be checked now.
    `taken` counts the latest `COUNT_MAX` at most; `capped` says that there were more.
    """

    path: str
    scheme: Scheme
    secrets: tuple[str, ...]
    secrets_set: int
    lacks: tuple[str, ...]
    usable: bool
    taken: Mapping[WebhookOutcome, int]
    capped: bool
    refused: Mapping[WebhookRefusal, int]
    last_at: datetime | None


def notices_of(account: str, now: datetime) -> Notices | None:
    """How the account's notices stand; None where it takes none."""
    try:
        rules = registry.webhook_rules(account)
    except registry.UnknownProvider:
        rules = None
    if rules is None:
        return None
    since = now - LOOKED_BACK
    rows = WebhookEvent.objects.filter(provider_slug=account).order_by("-received_at", "-id")
    latest = list(rows.filter(received_at__gte=since).values_list("outcome", flat=True)[: COUNT_MAX + 1])
    refused = WebhookRefusals.objects.filter(provider_slug=account, last_at__gte=since)
    return Notices(
        path=reverse("webhook", args=[account]),
        scheme=rules.scheme,
        secrets=rules.secret_names,
        secrets_set=len(rules.secrets),
        lacks=rules.lacks,
        usable=usable(rules, now),
        taken=Counter(WebhookOutcome(outcome) for outcome in latest[:COUNT_MAX]),
        capped=len(latest) > COUNT_MAX,
        refused={
            WebhookRefusal(reason): count
            for reason, count in refused.values_list("reason").annotate(Sum("count")).order_by("reason")
        },
        last_at=rows.values_list("last_delivered_at", flat=True).first(),
    )


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
