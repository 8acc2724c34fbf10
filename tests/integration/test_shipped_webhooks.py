"""The shipped accounts' `[webhook]` tables, each against a notice of the form that its provider documents.

Made up by us from documentation: they show that a table reads what we took from there, not what is sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.conf import settings

from reconciliation import webhooks
from reconciliation.accounts import sync_accounts
from reconciliation.models import Case
from reconciliation.providers import registry
from reconciliation.providers.webhook_signing import sign
from reconciliation.states import Need, WebhookOutcome
from reconciliation.webhooks import Notice, Taken
from runs.locking import database_now
from runs.models import Operation, Receipt
from tests.cases_world import state_of
from tests.factories import Claimed, effect, make_claimed, send

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "whsec_QW5vdGhlciBzZWNyZXQ="
VARIABLES = (
    "STRIPE_API_KEY",
    "STRIPE_PAYMENTS_WEBHOOK_SECRET",
    "STRIPE_REFUNDS_WEBHOOK_SECRET",
    "STRIPE_CHARGES_WEBHOOK_SECRET",
    "RESEND_API_KEY",
    "RESEND_WEBHOOK_SECRET",
    "GITHUB_TOKEN",
    "GITHUB_WEBHOOK_SECRET",
    "SLACK_BOT_TOKEN",
    "SLACK_SIGNING_SECRET",
    "SQUARE_ACCESS_TOKEN",
    "SQUARE_WEBHOOK_SIGNATURE_KEY",
    "ZENDESK_WEBHOOK_SECRET",
)
Told = Callable[[Operation, dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Sample:
    """A payload, the notice about its effect, what differs in one of other content, and the effect's id."""

    payload: dict[str, Any]
    told: Told
    other: dict[str, Any]
    reference: str
    kind: str = ""


def stripe(kind: str, record: dict[str, Any]) -> Told:
    def told(operation: Operation, changes: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": "evt_1NG8Du2eZvKYlo2CUI79vXWy",
            "object": "event",
            "api_version": "2026-09-30",
            "created": 1_795_953_600,
            "type": kind,
            "data": {
                "object": {
                    **record,
                    "metadata": {"recourse_operation": operation.pk},
                    "livemode": False,
                    **changes,
                }
            },
            "request": {"id": "req_wKEL", "idempotency_key": operation.key},
        }

    return told


def resend(operation: Operation, changes: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "email.sent",
        "created_at": "2026-11-29T12:00:00.000Z",
        "data": {
            "email_id": "56761188-7520-42d8-8898-ff6fc54ce618",
            "from": "Acme <onboarding@resend.dev>",
            "to": ["delivered@resend.dev"],
            "subject": "Sending this example",
            "tags": {"recourse_operation": operation.pk},
            **changes,
        },
    }


def github(operation: Operation, changes: dict[str, Any]) -> dict[str, Any]:
    issue = {
        "id": 73464126,
        "number": 2,
        "state": "open",
        "title": "Spelling error in the README file",
        "body": f"It says teh.\n\n<!-- recourse:{operation.pk} -->",
        **changes,
    }
    return {"action": "opened", "issue": issue, "repository": {"full_name": "acme/shop"}}


def slack(operation: Operation, changes: dict[str, Any]) -> dict[str, Any]:
    event = {
        "type": "message_metadata_posted",
        "app_id": "A222222",
        "channel_id": "C444444",
        "metadata": {"event_type": "recourse_operation", "event_payload": {"operation": operation.pk}},
        "message_ts": "1660398079.756349",
        "event_ts": "1660398079.756349",
        **changes,
    }
    return {"type": "event_callback", "event_id": "Ev123ABC456", "event_time": 1660398079, "event": event}


def square(operation: Operation, changes: dict[str, Any]) -> dict[str, Any]:
    payment = {
        "id": "bP9mAsEMYPUGjjGNaNO5ZDVyLhSZY",
        "status": "COMPLETED",
        "amount_money": {"amount": 2000, "currency": "EUR"},
        "location_id": "L88917AVBK2S5",
        "reference_id": operation.pk,
        **changes,
    }
    return {
        "merchant_id": "6SSW7HV8K2ST5",
        "type": "payment.updated",
        "event_id": "13b867cf-db3d-4b1c-90b6-2f32a9d78124",
        "data": {"type": "payment", "id": payment["id"], "object": {"payment": payment}},
    }


def zendesk(operation: Operation, changes: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "zen:event-type:ticket.created",
        "id": "cbe4028c-7239-495d-b020-f22348516046",
        "time": "2026-11-29T12:00:00Z",
        "subject": "zen:ticket:5158",
        "detail": {
            "id": "5158",
            "external_id": operation.pk,
            "subject": "Parcel is late",
            "requester_id": "8447388090494",
            "status": "OPEN",
            **changes,
        },
    }


SAMPLES = {
    "stripe-payments": Sample(
        payload={"amount": 2000, "currency": "eur", "customer": "cus_1", "confirm": True},
        told=stripe(
            "payment_intent.succeeded",
            {"id": "pi_1", "amount": 2000, "currency": "eur", "customer": "cus_1", "status": "succeeded"},
        ),
        other={"amount": 3000},
        reference="pi_1",
    ),
    "stripe-refunds": Sample(
        payload={"charge": "ch_1", "amount": 2000},
        told=stripe(
            "refund.created",
            {"id": "re_1", "charge": "ch_1", "amount": 2000, "currency": "eur", "status": "succeeded"},
        ),
        other={"amount": 3000},
        reference="re_1",
    ),
    "stripe-charges": Sample(
        payload={"amount": 2000, "currency": "eur", "source": "tok_1"},
        told=stripe(
            "charge.succeeded", {"id": "ch_1", "amount": 2000, "currency": "eur", "status": "succeeded"}
        ),
        other={"amount": 3000},
        reference="ch_1",
    ),
    "resend": Sample(
        payload={
            "from": "Acme <onboarding@resend.dev>",
            "to": ["delivered@resend.dev"],
            "subject": "Sending this example",
        },
        told=resend,
        other={"subject": "Another one"},
        reference="56761188-7520-42d8-8898-ff6fc54ce618",
    ),
    "github-issues": Sample(
        payload={
            "owner": "acme",
            "repo": "shop",
            "title": "Spelling error in the README file",
            "body": "It says teh.",
        },
        told=github,
        other={"title": "Another one"},
        reference="73464126",
        kind="issues",
    ),
    "square": Sample(
        payload={
            "source_id": "cnon:1",
            "amount_money": {"amount": 2000, "currency": "EUR"},
            "location_id": "L88917AVBK2S5",
        },
        told=square,
        other={"amount_money": {"amount": 3000, "currency": "EUR"}},
        reference="bP9mAsEMYPUGjjGNaNO5ZDVyLhSZY",
    ),
    "zendesk": Sample(
        payload={"ticket": {"subject": "Parcel is late", "requester_id": 8447388090494}},
        told=zendesk,
        other={"subject": "Another one"},
        reference="5158",
    ),
    "slack": Sample(
        payload={"channel": "C444444", "text": "Hello"}, told=slack, other={}, reference="1660398079.756349"
    ),
}


@pytest.fixture(autouse=True)
def _accounts(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in VARIABLES:
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("SQUARE_WEBHOOK_URL", "https://recourse.example/api/v1/providers/square/webhook")
    monkeypatch.setattr(settings, "RECOURSE_PROVIDERS", list(SAMPLES))
    registry.reload()
    sync_accounts()
    yield
    monkeypatch.undo()
    registry.reload()


def test_every_shipped_account_that_takes_notices_has_a_sample() -> None:
    taking = {path.stem for path in registry.CATALOGUE.glob("*.toml") if "[webhook]" in path.read_text()}
    assert taking == set(SAMPLES)


def sent(account: str) -> Claimed:
    chosen = effect(tool="make", provider=account, args=SAMPLES[account].payload)
    claimed = make_claimed(chosen)
    send(claimed)
    return claimed


def deliver(account: str, claimed: Claimed, changes: dict[str, Any]) -> Taken:
    sample, rules = SAMPLES[account], registry.webhook_rules(account)
    assert rules is not None
    body = json.dumps(sample.told(claimed.operation, changes)).encode()
    headers = sign(rules, body=body, at=database_now(), id_given="msg_1")
    if rules.signing.type_header is not None:
        headers[rules.signing.type_header] = sample.kind
    lower = {name.lower(): value for name, value in headers.items()}
    return webhooks.receive(notice=Notice(account=account, headers=lower, body=body))


@pytest.mark.parametrize("account", SAMPLES)
def test_a_notice_of_the_effect_confirms_it_by_the_id_that_a_lookup_would_find(account: str) -> None:
    claimed = sent(account)
    assert deliver(account, claimed, {}).outcome == WebhookOutcome.EVIDENCE
    assert state_of(claimed) == "confirmed"
    receipt = Receipt.objects.get(operation=claimed.operation)
    assert receipt.reference == SAMPLES[account].reference
    assert receipt.matched_by in {"key", "reference"}


@pytest.mark.parametrize("account", [account for account, sample in SAMPLES.items() if sample.other])
def test_a_notice_of_another_content_confirms_nothing(account: str) -> None:
    claimed = sent(account)
    deliver(account, claimed, SAMPLES[account].other)
    assert state_of(claimed) == "sent_unknown"
    assert Case.objects.get(operation=claimed.operation).need == Need.MISMATCH


@pytest.mark.parametrize("account", [account for account in SAMPLES if account.startswith("stripe-")])
def test_an_unfinished_or_failed_stripe_object_confirms_nothing(account: str) -> None:
    pending, failed = sent(account), sent(account)
    deliver(account, pending, {"status": "requires_action"})
    assert state_of(pending) == "sent_unknown"
    refused = "canceled" if account == "stripe-payments" else "failed"
    body = SAMPLES[account].told(failed.operation, {"status": refused})
    body["id"] = "evt_2"
    rules = registry.webhook_rules(account)
    assert rules is not None
    content = json.dumps(body).encode()
    headers = {name.lower(): value for name, value in sign(rules, body=content, at=database_now()).items()}
    webhooks.receive(notice=Notice(account=account, headers=headers, body=content))
    assert state_of(failed) == "rejected"
