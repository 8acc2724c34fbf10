"""The shipped accounts' `[webhook]` tables, each against a notice of the form that its provider documents.

Made up by us from documentation: they show that a table reads what we took from there, not what is sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from reconciliation import moves, webhooks
from reconciliation.accounts import sync_accounts
from reconciliation.models import Case
from reconciliation.providers import registry
from reconciliation.providers.webhook_signing import WebhookForged, sign
from reconciliation.providers.webhook_table import WebhookRules
from reconciliation.states import CaseKind, Need, Resolution, WebhookOutcome
from reconciliation.webhook_models import WebhookEvent, WebhookRefusals
from reconciliation.webhooks import Notice, Taken
from runs.journal import settling
from runs.locking import database_now
from runs.models import Operation, Receipt
from tests.cases_world import case_of, report, state_of
from tests.factories import PERSON, Claimed, effect, held, make_claimed, send
from tests.signed_notices import Delivery, by_adyen, by_paypal, by_twilio, certificate

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "whsec_QW5vdGhlciBzZWNyZXQ="
WEBHOOK_ID = "1JE4291016473214C"
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
    "TWILIO_AUTH_TOKEN",
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


def twilio(operation: Operation, changes: dict[str, Any]) -> dict[str, Any]:
    return {
        "AccountSid": "AC1",
        "MessageSid": "SM1",
        "SmsSid": "SM1",
        "SmsStatus": "sent",
        "MessageStatus": "sent",
        "To": "+15558675310",
        "From": "+15017122661",
        "ApiVersion": "2010-04-01",
        **changes,
    }


def adyen(operation: Operation, changes: dict[str, Any]) -> dict[str, Any]:
    return {
        "pspReference": "NC6HT9CRT65ZGN82",
        "merchantAccountCode": "AcmeCOM",
        "merchantReference": json.loads(bytes(operation.payload))["reference"],
        "amount": {"currency": "EUR", "value": 2000},
        "eventCode": "AUTHORISATION",
        "success": "true",
        "reason": "033899:1111:03/2030",
        **changes,
    }


def paypal(operation: Operation, changes: dict[str, Any]) -> dict[str, Any]:
    refund = {
        "id": "1Y107995YT783435V",
        "status": "COMPLETED",
        "amount": {"currency_code": "EUR", "value": "20.00"},
        "custom_id": operation.pk,
        "invoice_id": "INVOICE-123",
        **changes,
    }
    return {
        "id": "WH-5LU83456KL930432J-7YB0258893124415L",
        "event_version": "1.0",
        "resource_type": "refund",
        "resource_version": "2.0",
        "event_type": "PAYMENT.CAPTURE.REFUNDED",
        "resource": refund,
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
    "twilio": Sample(
        payload={"To": "+15558675310", "From": "+15017122661", "Body": "Your code is 7"},
        told=twilio,
        other={"To": "+15558675311"},
        reference="SM1",
    ),
    "adyen": Sample(
        payload={"reference": "order-1042", "amount": {"currency": "EUR", "value": 2000}},
        told=adyen,
        other={"amount": {"currency": "EUR", "value": 3000}},
        reference="NC6HT9CRT65ZGN82",
    ),
    "paypal": Sample(
        payload={"capture_id": "2GG279541U471931P", "invoice_id": "INVOICE-123"},
        told=paypal,
        other={"invoice_id": "INVOICE-124"},
        reference="1Y107995YT783435V",
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
    monkeypatch.setenv("TWILIO_WEBHOOK_URL", "https://recourse.example/api/v1/providers/twilio/webhook")
    monkeypatch.setenv("ADYEN_HMAC_KEY", "44" * 32)
    monkeypatch.setenv("PAYPAL_WEBHOOK_CERTIFICATE", certificate())
    monkeypatch.setenv("PAYPAL_WEBHOOK_ID", WEBHOOK_ID)
    monkeypatch.setattr(settings, "RECOURSE_PROVIDERS", list(SAMPLES))
    registry.reload()
    sync_accounts()
    yield
    monkeypatch.undo()
    registry.reload()


def test_every_shipped_account_that_takes_notices_has_a_sample() -> None:
    taking = {path.stem for path in registry.CATALOGUE.glob("*.toml") if "[webhook]" in path.read_text()}
    assert taking == set(SAMPLES)


def sent(account: str, **changes: Any) -> Claimed:
    chosen = effect(tool="make", provider=account, args={**SAMPLES[account].payload, **changes})
    claimed = make_claimed(chosen)
    send(claimed)
    return claimed


def deliver(account: str, claimed: Claimed, changes: dict[str, Any]) -> Taken:
    came = delivery(account, claimed.operation, changes)
    notice = Notice(account=account, headers=came.headers, body=came.body, query=came.query)
    return webhooks.receive(notice=notice)


def delivery(account: str, operation: Operation, changes: dict[str, Any]) -> Delivery:
    """What this provider would send about the operation."""
    sample, rules = SAMPLES[account], registry.webhook_rules(account)
    assert rules is not None
    told = sample.told(operation, changes)
    match account:
        case "twilio":
            return by_twilio(rules, told, query=f"operation={operation.pk}")
        case "adyen":
            return by_adyen(rules, told)
        case "paypal":
            return by_paypal(WEBHOOK_ID, json.dumps(told).encode(), at=database_now())
        case _:
            return _by_header(rules, sample.kind, json.dumps(told).encode())


def _by_header(rules: WebhookRules, kind: str, body: bytes) -> Delivery:
    headers = sign(rules, body=body, at=database_now(), id_given="msg_1")
    if rules.signing.type_header is not None:
        headers[rules.signing.type_header] = kind
    return Delivery(headers={name.lower(): value for name, value in headers.items()}, body=body)


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


# --- what only some of them do --------------------------------------------------------------------------


def receive(account: str, came: Delivery) -> Taken:
    return webhooks.receive(
        notice=Notice(account=account, headers=came.headers, body=came.body, query=came.query)
    )


def rules_of(account: str) -> WebhookRules:
    found = registry.webhook_rules(account)
    assert found is not None
    return found


@pytest.mark.parametrize("account", ["twilio", "adyen", "paypal"])
def test_a_notice_that_ended_without_effect_rejects_and_one_not_final_settles_nothing(account: str) -> None:
    said = {
        "twilio": ({"MessageStatus": "undelivered"}, {"MessageStatus": "failed"}),
        "adyen": ({"success": ""}, {"success": "false"}),
        "paypal": ({"status": "PENDING"}, {"status": "FAILED"}),
    }
    claimed = sent(account)
    pending, refused = (delivery(account, claimed.operation, changes) for changes in said[account])
    if account == "paypal":
        body = refused.body.replace(b"WH-5LU8", b"WH-5LU9")
        refused = by_paypal(WEBHOOK_ID, body, at=database_now(), transmission="another")
    receive(account, pending)
    assert state_of(claimed) == "sent_unknown"
    receive(account, refused)
    assert state_of(claimed) == "rejected"


@pytest.mark.parametrize("account", ["twilio", "adyen"])
def test_what_was_recorded_and_written_differently_around_its_signature_changes_nothing(account: str) -> None:
    """These sign no time: only that the same signed content counts once stops it from being played again."""
    claimed = sent(account)
    came = delivery(account, claimed.operation, {"MessageStatus": "undelivered", "success": ""})
    receive(account, came)
    if account == "twilio":
        turned = b"&".join(reversed(came.body.split(b"&")))
        again = replace(came, body=turned, headers={**came.headers, "i-twilio-idempotency-token": "new"})
    else:
        again = replace(came, body=came.body.replace(b"033899", b"attacker"))
    assert again.body != came.body
    assert receive(account, again).replayed
    assert WebhookEvent.objects.get().deliveries_count == 2


def test_a_paypal_transmission_counts_once_whatever_came_with_it() -> None:
    """Its signature covers a checksum of the body only, and another body of the same one is soon made."""
    claimed = sent("paypal")
    deliver("paypal", claimed, {"status": "PENDING"})
    other = json.dumps(paypal(claimed.operation, {})).encode()
    came = by_paypal(WEBHOOK_ID, other, at=database_now())
    assert receive("paypal", came).replayed
    assert state_of(claimed) == "sent_unknown"


def test_a_paypal_transmission_of_a_kind_that_is_not_used_is_used_up_too() -> None:
    """Whoever reads such a notice on its way has a signature that nothing was done with yet."""
    claimed = sent("paypal")
    unused = json.dumps({**paypal(claimed.operation, {}), "event_type": "PAYMENT.CAPTURE.DENIED"}).encode()
    receive("paypal", by_paypal(WEBHOOK_ID, unused, at=database_now()))
    came = by_paypal(WEBHOOK_ID, json.dumps(paypal(claimed.operation, {})).encode(), at=database_now())
    assert receive("paypal", came).replayed
    assert state_of(claimed) == "sent_unknown"
    assert WebhookRefusals.objects.get().reason == "other_type"


def test_a_batch_of_adyen_is_taken_item_by_item_and_wholly_or_not_at_all() -> None:
    first, second = sent("adyen"), sent("adyen", reference="order-1043")
    told = [
        adyen(first.operation, {}),
        adyen(second.operation, {"pspReference": "second"}),
        adyen(second.operation, {"pspReference": "third", "eventCode": "CAPTURE"}),
    ]
    came = by_adyen(rules_of("adyen"), *told)
    forged = replace(came, body=came.body.replace(b'"third"', b'"fourth"'))
    with pytest.raises(WebhookForged):
        receive("adyen", forged)
    assert (state_of(first), state_of(second)) == ("sent_unknown", "sent_unknown")
    taken = receive("adyen", came)
    assert [one.outcome for one in (taken, *taken.more)] == ["evidence", "evidence", None]
    assert (state_of(first), state_of(second)) == ("confirmed", "confirmed")
    reasons = WebhookRefusals.objects.order_by("reason").values_list("reason", "count")
    assert list(reasons) == [("forged", 1), ("other_type", 1)]
    assert receive("adyen", came).nothing_new is False, "one of them is only ever counted"


def test_two_adyen_payments_with_one_reference_are_told_apart_by_nobody() -> None:
    first, second = sent("adyen"), sent("adyen")
    assert deliver("adyen", first, {}).outcome == WebhookOutcome.UNMATCHED
    assert (state_of(first), state_of(second)) == ("sent_unknown", "sent_unknown")


@pytest.mark.parametrize("success", ["true", "false"])
def test_an_adyen_notice_that_may_be_of_a_payment_that_was_given_up_settles_no_other(success: str) -> None:
    """It was asked for anew, for the same order, and the notice of the first comes late."""
    first = sent("adyen")
    give_up(first)
    second = sent("adyen")
    assert deliver("adyen", first, {"success": success}).outcome == WebhookOutcome.UNMATCHED
    assert (state_of(first), state_of(second)) == ("abandoned", "sent_unknown")


def test_an_adyen_notice_of_a_payment_that_was_given_up_opens_a_conflict() -> None:
    claimed = sent("adyen")
    give_up(claimed)
    assert deliver("adyen", claimed, {}).outcome == WebhookOutcome.EVIDENCE
    assert state_of(claimed) == "abandoned"
    assert Case.objects.filter(operation=claimed.operation, kind=CaseKind.CONFLICT, state="needs_decision")


def test_an_adyen_notice_of_a_payment_after_one_that_is_known_by_its_receipt_settles_it() -> None:
    first = sent("adyen")
    report("unknown", first)
    deliver("adyen", first, {})
    second = sent("adyen")
    deliver("adyen", second, {"pspReference": "SECOND"})
    assert (state_of(first), state_of(second)) == ("confirmed", "confirmed")
    assert Receipt.objects.get(operation=second.operation).reference == "SECOND"


def give_up(claimed: Claimed) -> None:
    report("unknown", claimed)
    case = case_of(claimed)
    with held(claimed.operation) as locked:
        settling.abandon(locked, actor=PERSON, known_effect="Nobody knows.", reason="It took too long.")
        moves.resolve(locked, case, Resolution.ABANDONED, actor=PERSON)


def test_an_adyen_notice_about_what_is_settled_is_known_by_its_receipt() -> None:
    claimed = sent("adyen")
    deliver("adyen", claimed, {})
    late = deliver("adyen", claimed, {"success": "false"})
    assert (late.outcome, state_of(claimed)) == (WebhookOutcome.EVIDENCE, "confirmed")
    assert Case.objects.get(operation=claimed.operation).kind == CaseKind.CONFLICT


def test_a_twilio_notice_at_an_address_without_our_operation_is_unmatched() -> None:
    claimed = sent("twilio")
    came = by_twilio(rules_of("twilio"), twilio(claimed.operation, {}))
    assert receive("twilio", came).outcome == WebhookOutcome.UNMATCHED
    assert state_of(claimed) == "sent_unknown"


@pytest.mark.parametrize(
    ("account", "status", "text"), [("twilio", 204, ""), ("adyen", 200, "[accepted]"), ("paypal", 200, None)]
)
def test_each_hears_what_it_takes_for_a_yes(account: str, status: int, text: str | None) -> None:
    claimed = sent(account)
    came = delivery(account, claimed.operation, {})
    address = f"/api/v1/providers/{account}/webhook" + (f"?{came.query}" if came.query else "")
    kind = "application/x-www-form-urlencoded" if account == "twilio" else "application/json"
    answer = Client().post(address, data=came.body, content_type=kind, headers=came.headers)
    assert answer.status_code == status
    assert text is None or answer.content.decode() == text
    assert state_of(claimed) == "confirmed"
    refused = Client().post(address, data=came.body + b"&x=1 ", content_type=kind)
    assert (refused.status_code, refused.json()["type"].rpartition("/")[2]) == (403, "webhook_forged")
