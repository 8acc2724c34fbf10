"""What each shipped account puts on the wire, and what it makes of answers in its provider's documented form.

These answers are ours: that the real provider gives them is what the facts in the files are about. The suite
in `test_contract.py` holds the accounts against servers that others wrote, where there is one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from reconciliation.providers import registry
from reconciliation.providers.base import (
    Candidate,
    Finding,
    Found,
    Inconclusive,
    Mismatch,
    NotFound,
    OutgoingOperation,
    Pending,
    Question,
    ReceiptSeen,
    Refused,
    RejectedSeen,
    SendOutcome,
    Several,
    Unavailable,
    UnknownSeen,
    elapsed_seconds,
)
from reconciliation.providers.declaration import read_file
from reconciliation.providers.http_declared import HttpDeclared
from runs.canonical import canonical_bytes
from runs.ids import new_id
from runs.money import Money
from tests.contract.fault_server import FaultServer
from tests.contract.scripted import Scripted, answer

OPERATION = new_id("op")
KEY = "rk-0123456789abcdefghijklmnopqrstuvwxyzABCDEF"
SENT_AT = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
ENVIRON = {
    "stripe-refunds": {"STRIPE_URL": "", "STRIPE_API_KEY": "sk_test_1"},
    "stripe-charges": {"STRIPE_URL": "", "STRIPE_API_KEY": "sk_test_1"},
    "stripe-payments": {"STRIPE_URL": "", "STRIPE_API_KEY": "sk_test_1"},
    "resend": {"RESEND_URL": "", "RESEND_API_KEY": "re_1"},
    "github-issues": {"GITHUB_API_URL": "", "GITHUB_TOKEN": "ghp_1"},
    "slack": {"SLACK_API_URL": "/api", "SLACK_BOT_TOKEN": "xoxb-1"},
    "twilio": {"TWILIO_URL": "", "TWILIO_ACCOUNT_SID": "AC1", "TWILIO_AUTH_TOKEN": "t-1"},
    "zendesk": {"ZENDESK_URL": "", "ZENDESK_EMAIL": "a@b.example", "ZENDESK_API_TOKEN": "t-1"},
    "paypal": {"PAYPAL_URL": "", "PAYPAL_CLIENT_ID": "c-1", "PAYPAL_CLIENT_SECRET": "s-1"},
    "adyen": {"ADYEN_URL": "/checkout/v72", "ADYEN_MERCHANT_ACCOUNT": "Shop", "ADYEN_API_KEY": "k-1"},
    "square": {"SQUARE_URL": "", "SQUARE_ACCESS_TOKEN": "t-1"},
}
PAYLOADS: dict[str, dict[str, Any]] = {
    "stripe-refunds": {"charge": "ch_1", "amount": 1200, "reason": "requested_by_customer"},
    "stripe-charges": {"amount": 1200, "currency": "eur", "source": "tok_visa", "customer": "cus_1"},
    "stripe-payments": {"amount": 1200, "currency": "eur", "payment_method": "pm_1", "confirm": True},
    "resend": {"from": "a@b.example", "to": ["c@d.example"], "subject": "Hello", "text": "Hi"},
    "github-issues": {"owner": "acme", "repo": "shop", "title": "Broken", "body": "It is broken."},
    "slack": {"channel": "C1", "text": "Hello"},
    "twilio": {"To": "+15550100", "From": "+15550101", "Body": "Your code is 7"},
    "zendesk": {"ticket": {"subject": "Broken", "comment": {"body": "It is broken."}}},
    "paypal": {"capture_id": "2GG27", "invoice_id": "INV-1"},
    "adyen": {"reference": "order-1", "amount": {"value": 1200, "currency": "EUR"}},
    "square": {"source_id": "cnon:1", "amount_money": {"amount": 1200, "currency": "EUR"}},
}
TOKEN = answer({"access_token": "at-1", "expires_in": 32400})


def account(slug: str, url: str) -> HttpDeclared:
    environ = {
        name: f"{url}{value}" if name.endswith("_URL") else value for name, value in ENVIRON[slug].items()
    }
    path = registry.CATALOGUE / f"{slug}.toml"
    return HttpDeclared(read_file(path, shown_as=path.name, environ=environ))


def with_token(slug: str, answers: tuple[bytes, ...]) -> tuple[bytes, ...]:
    return (TOKEN, *answers) if slug == "paypal" else answers


def send(slug: str, said: bytes, *, attempt: int = 1) -> tuple[SendOutcome, Scripted]:
    peer = Scripted(*with_token(slug, (said,)))
    with FaultServer(peer) as server:
        adapter = account(slug, server.url)
        outcome = adapter.send(
            OutgoingOperation(
                operation_id=OPERATION,
                idempotency_key=KEY,
                tool="tool",
                payload_bytes=canonical_bytes(PAYLOADS[slug]),
                payload=PAYLOADS[slug],
                amount=Money("EUR", 1200),
                attempt_id="attempt-1",
                attempt_number=attempt,
                start_by=elapsed_seconds() + 10,
                request_within_ms=10_000,
            )
        )
        adapter.close()
    return outcome, peer


def ask(slug: str, *answers: bytes, payload: Mapping[str, Any] | None = None) -> tuple[Finding, Scripted]:
    peer = Scripted(*with_token(slug, answers))
    with FaultServer(peer) as server:
        adapter = account(slug, server.url)
        finding = adapter.look_up(
            Question(
                operation_id=OPERATION,
                idempotency_key=KEY,
                tool="tool",
                payload={**PAYLOADS[slug], **(payload or {})},
                amount=Money("EUR", 1200),
                first_sent_at=SENT_AT,
                last_quiet_at=SENT_AT + timedelta(minutes=2),
                asked_at=SENT_AT + timedelta(hours=5),
            )
        )
        adapter.close()
    assert peer.answers == []
    return finding, peer


# --- what is sent ---

BEARER = {"stripe-refunds": "sk_test_1", "resend": "re_1", "github-issues": "ghp_1", "slack": "xoxb-1"}
MARK = f"<!-- recourse:{OPERATION} -->"


@pytest.mark.parametrize(
    ("slug", "path", "headers", "body"),
    [
        (
            "stripe-refunds",
            "/v1/refunds",
            {"idempotency-key": KEY, "authorization": "Bearer sk_test_1"},
            {
                "charge": "ch_1",
                "amount": "1200",
                "reason": "requested_by_customer",
                "metadata[recourse_operation]": OPERATION,
            },
        ),
        (
            "stripe-payments",
            "/v1/payment_intents",
            {"idempotency-key": KEY},
            {
                "amount": "1200",
                "currency": "eur",
                "payment_method": "pm_1",
                "confirm": "true",
                "metadata[recourse_operation]": OPERATION,
            },
        ),
        (
            "resend",
            "/emails",
            {"idempotency-key": KEY, "authorization": "Bearer re_1"},
            {**PAYLOADS["resend"], "tags": [{"name": "recourse_operation", "value": OPERATION}]},
        ),
        (
            "github-issues",
            "/repos/acme/shop/issues",
            {"authorization": "Bearer ghp_1", "accept": "application/vnd.github+json"},
            {"title": "Broken", "body": f"It is broken.\n\n{MARK}"},
        ),
        (
            "slack",
            "/api/chat.postMessage",
            {"authorization": "Bearer xoxb-1"},
            {
                **PAYLOADS["slack"],
                "metadata": {"event_type": "recourse_operation", "event_payload": {"operation": OPERATION}},
            },
        ),
        (
            "twilio",
            "/2010-04-01/Accounts/AC1/Messages.json",
            {"authorization": "Basic " + base64.b64encode(b"AC1:t-1").decode()},
            PAYLOADS["twilio"],
        ),
        (
            "zendesk",
            "/api/v2/tickets",
            {
                "idempotency-key": KEY,
                "authorization": "Basic " + base64.b64encode(b"a@b.example/token:t-1").decode(),
            },
            {"ticket": {**PAYLOADS["zendesk"]["ticket"], "external_id": OPERATION}},
        ),
        (
            "paypal",
            "/v2/payments/captures/2GG27/refund",
            {"paypal-request-id": KEY, "authorization": "Bearer at-1", "prefer": "return=representation"},
            {
                "amount": {"value": "12.00", "currency_code": "EUR"},
                "custom_id": OPERATION,
                "invoice_id": "INV-1",
            },
        ),
        (
            "adyen",
            "/checkout/v72/payments",
            {"idempotency-key": KEY, "x-api-key": "k-1"},
            {**PAYLOADS["adyen"], "merchantAccount": "Shop"},
        ),
        (
            "square",
            "/v2/payments",
            {"authorization": "Bearer t-1"},
            {**PAYLOADS["square"], "idempotency_key": KEY, "reference_id": OPERATION},
        ),
    ],
)
def test_each_account_sends_what_its_provider_reads(
    slug: str, path: str, headers: dict[str, str], body: dict[str, Any]
) -> None:
    outcome, peer = send(slug, answer({}, status="500 Oh"))
    assert isinstance(outcome, UnknownSeen)
    asked = peer.asked[-1]
    assert (asked.method, asked.path) == ("POST", path)
    assert {name: asked.headers.get(name) for name in headers} == headers
    form = asked.headers["content-type"] == "application/x-www-form-urlencoded"
    assert (asked.form if form else json.loads(asked.body)) == body
    honours = registry_contract(slug).honours_key
    assert (KEY in str(asked.headers) + asked.body.decode()) == honours
    secrets = [
        value for name, value in ENVIRON[slug].items() if not name.endswith(("_URL", "_ACCOUNT", "_SID"))
    ]
    kept = json.dumps(outcome.exchange.as_json())
    assert [one for one in secrets if len(one) > 5 and one in kept] == []


def registry_contract(slug: str) -> Any:
    path = registry.CATALOGUE / f"{slug}.toml"
    return read_file(path, shown_as=path.name, environ={}).account.contract


# --- what replies mean ---

STRIPE_REFUND = {
    "id": "re_1",
    "charge": "ch_1",
    "amount": 1200,
    "currency": "eur",
    "reason": "requested_by_customer",
    "status": "succeeded",
    "metadata": {"recourse_operation": OPERATION},
}
PAYPAL_REFUND = {
    "id": "1JU08",
    "status": "COMPLETED",
    "amount": {"value": "12.00", "currency_code": "EUR"},
    "custom_id": OPERATION,
    "invoice_id": "INV-1",
}
ADYEN_PAYMENT = {
    "pspReference": "NC6HT9CRT65ZGN82",
    "resultCode": "Authorised",
    "merchantReference": "order-1",
    "amount": {"value": 1200, "currency": "EUR"},
}
SQUARE_PAYMENT = {
    "id": "pay_1",
    "status": "COMPLETED",
    "amount_money": {"amount": 1200, "currency": "EUR"},
    "reference_id": OPERATION,
}
SLACK_MARK = {"event_type": "recourse_operation", "event_payload": {"operation": OPERATION}}
TWILIO_MESSAGE = {
    "sid": "SM1",
    "to": "+15550100",
    "from": "+15550101",
    "body": "Your code is 7",
    "status": "queued",
    "date_created": "Sun, 29 Nov 2026 12:00:01 +0000",
}


@pytest.mark.parametrize(
    ("slug", "said", "kind"),
    [
        ("stripe-refunds", STRIPE_REFUND, ReceiptSeen),
        ("stripe-refunds", {**STRIPE_REFUND, "status": "pending"}, UnknownSeen),
        ("stripe-refunds", {**STRIPE_REFUND, "status": "failed"}, RejectedSeen),
        ("stripe-refunds", {**STRIPE_REFUND, "amount": 1300}, UnknownSeen),
        ("stripe-refunds", {**STRIPE_REFUND, "metadata": {}}, UnknownSeen),
        ("resend", {"id": "4ef9a417"}, ReceiptSeen),
        ("resend", {"object": "email"}, UnknownSeen),
        ("slack", {"ok": True, "ts": "1.2", "message": {"ts": "1.2", "metadata": SLACK_MARK}}, ReceiptSeen),
        ("slack", {"ok": True, "ts": "1.2", "message": {"ts": "1.2", "text": "Hello"}}, ReceiptSeen),
        ("slack", {"ok": False, "error": "channel_not_found"}, RejectedSeen),
        ("slack", {"ok": False, "error": "internal_error"}, UnknownSeen),
        ("slack", {"ok": False, "error": "ratelimited"}, UnknownSeen),
        ("twilio", TWILIO_MESSAGE, ReceiptSeen),
        ("twilio", {**TWILIO_MESSAGE, "status": "failed"}, RejectedSeen),
        ("twilio", {**TWILIO_MESSAGE, "status": "undelivered"}, UnknownSeen),
        ("zendesk", {"ticket": {"id": 35, "subject": "Broken", "external_id": OPERATION}}, ReceiptSeen),
        ("zendesk", {"ticket": {"id": 35, "subject": "Broken", "external_id": "x"}}, UnknownSeen),
        ("paypal", PAYPAL_REFUND, ReceiptSeen),
        ("paypal", {"id": "1JU08", "status": "COMPLETED"}, ReceiptSeen),
        ("paypal", {**PAYPAL_REFUND, "status": "PENDING"}, UnknownSeen),
        ("paypal", {**PAYPAL_REFUND, "amount": {"value": "12.01", "currency_code": "EUR"}}, UnknownSeen),
        ("paypal", {**PAYPAL_REFUND, "amount": {"value": "12.00", "currency_code": "USD"}}, UnknownSeen),
        ("adyen", ADYEN_PAYMENT, ReceiptSeen),
        ("adyen", {**ADYEN_PAYMENT, "resultCode": "Refused"}, RejectedSeen),
        ("adyen", {**ADYEN_PAYMENT, "resultCode": "Error"}, UnknownSeen),
        ("adyen", {**ADYEN_PAYMENT, "resultCode": "RedirectShopper"}, UnknownSeen),
        ("square", {"payment": SQUARE_PAYMENT}, ReceiptSeen),
        ("square", {"payment": {**SQUARE_PAYMENT, "status": "CANCELED"}}, RejectedSeen),
        ("square", {"payment": {**SQUARE_PAYMENT, "status": "PENDING"}}, UnknownSeen),
    ],
)
def test_each_provider_confirms_in_its_own_words(slug: str, said: dict[str, Any], kind: type) -> None:
    outcome, _ = send(slug, answer(said))
    assert isinstance(outcome, kind), outcome.summary


@pytest.mark.parametrize(
    ("slug", "status", "said", "extra"),
    [
        ("stripe-refunds", "400 Bad", {"error": {"type": "idempotency_error"}}, ""),
        ("stripe-refunds", "409 Busy", {"error": {"code": "idempotency_key_in_use"}}, ""),
        ("stripe-refunds", "500 Oh", {}, "Idempotent-Replayed: true\r\n"),
        ("resend", "409 Busy", {"name": "concurrent_idempotent_requests"}, ""),
        ("github-issues", "403 No", {}, "Retry-After: 60\r\n"),
        ("github-issues", "403 No", {}, "X-RateLimit-Remaining: 0\r\n"),
        ("zendesk", "400 Bad", {"error": "IdempotentRequestError"}, "x-idempotency-lookup: hit\r\n"),
        ("paypal", "422 No", {"details": [{"issue": "PREVIOUS_REQUEST_IN_PROGRESS"}]}, ""),
        ("adyen", "422 No", {"errorCode": "167"}, "Transient-Error: true\r\n"),
        ("adyen", "422 No", {"errorCode": "704"}, ""),
        ("square", "400 Bad", {"errors": [{"code": "IDEMPOTENCY_KEY_REUSED"}]}, ""),
    ],
)
def test_a_4xx_that_says_nothing_about_the_effect_is_unknown(
    slug: str, status: str, said: dict[str, Any], extra: str
) -> None:
    outcome, _ = send(slug, answer(said, status=status, extra=extra))
    assert isinstance(outcome, UnknownSeen), outcome.summary
    assert not outcome.effect_exists


@pytest.mark.parametrize("slug", sorted(ENVIRON))
def test_a_refusal_of_a_repeat_says_nothing_about_the_first_attempt_anywhere(slug: str) -> None:
    outcome, _ = send(slug, answer({}, status="422 No"), attempt=2)
    assert isinstance(outcome, RejectedSeen)
    assert not outcome.speaks_for_first


def test_a_used_invoice_number_proves_that_something_exists() -> None:
    outcome, _ = send("paypal", answer({"details": [{"issue": "DUPLICATE_INVOICE_ID"}]}, status="422 No"))
    assert isinstance(outcome, UnknownSeen)
    assert outcome.effect_exists


# --- what lookups mean ---


def listed(*records: object, more: bool = False) -> bytes:
    return answer({"data": list(records), "has_more": more})


def test_stripes_list_is_asked_over_the_window_and_then_its_events() -> None:
    event = {
        "id": "evt_1",
        "request": {"idempotency_key": KEY},
        "data": {"object": {**STRIPE_REFUND, "metadata": {}}},
    }
    finding, peer = ask("stripe-refunds", listed(), listed(event))
    assert isinstance(finding, Found)
    assert peer.paths == ["/v1/refunds", "/v1/events"]
    asked = dict(peer.asked[0].query)
    assert asked["charge"] == "ch_1"
    assert "payment_intent" not in asked
    assert int(asked["created[gte]"]) < SENT_AT.timestamp() < int(asked["created[lte]"])
    assert ("types[]", "refund.created") in peer.asked[1].query


def test_a_failed_charge_with_our_metadata_is_refused_and_not_found() -> None:
    charge = {
        "id": "ch_1",
        "amount": 1200,
        "currency": "eur",
        "customer": "cus_1",
        "status": "failed",
        "metadata": {"recourse_operation": OPERATION},
    }
    finding, _ = ask("stripe-charges", listed(charge))
    assert isinstance(finding, Refused)
    finding, _ = ask("stripe-charges", listed(charge, {**charge, "id": "ch_2", "status": "succeeded"}))
    assert isinstance(finding, Found)
    assert finding.receipts[0].reference == "ch_2"
    finding, peer = ask("stripe-charges", listed(), listed(), listed({**charge, "status": "succeeded"}))
    assert isinstance(finding, Candidate)
    assert peer.paths[-1] == "/v1/charges/search"
    assert peer.asked[-1].query[0] == ("query", f"metadata['recourse_operation']:'{OPERATION}'")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("succeeded", Found),
        ("requires_capture", Found),
        ("requires_payment_method", Pending),
        ("processing", Pending),
        ("canceled", Refused),
    ],
)
def test_a_payment_intent_is_done_only_where_money_moved_or_is_held(status: str, kind: type) -> None:
    intent = {
        "id": "pi_1",
        "amount": 1200,
        "currency": "eur",
        "status": status,
        "metadata": {"recourse_operation": OPERATION},
    }
    finding, _ = ask("stripe-payments", listed(intent))
    assert isinstance(finding, kind)


def test_a_listed_mail_shows_no_tag_and_is_alike_at_best() -> None:
    mail = {
        "id": "m-1",
        "from": "a@b.example",
        "to": ["c@d.example"],
        "subject": "Hello",
        "created_at": "2026-11-29 12:00:01.5+00",
    }
    finding, _ = ask("resend", listed(mail))
    assert isinstance(finding, Candidate)
    tagged = {
        **mail,
        "tags": [{"name": "x", "value": "1"}, {"name": "recourse_operation", "value": OPERATION}],
    }
    finding, _ = ask("resend", listed(tagged))
    assert isinstance(finding, Found)
    old = {**mail, "id": "m-0", "subject": "Old", "created_at": "2026-11-29 09:00:00.000000+00"}
    finding, _ = ask("resend", listed(old, more=True))
    assert isinstance(finding, NotFound)


ISSUE = {
    "id": 7,
    "number": 3,
    "title": "Broken",
    "body": f"It is broken.\r\n\r\n{MARK}",
    "created_at": "2026-11-29T12:00:01Z",
}


def test_an_issue_is_found_by_our_marker_in_its_text() -> None:
    finding, peer = ask("github-issues", answer([{**ISSUE, "id": 6, "body": None}, ISSUE]))
    assert isinstance(finding, Found)
    assert peer.paths == ["/repos/acme/shop/issues"]
    assert dict(peer.asked[0].query)["state"] == "all"
    finding, _ = ask("github-issues", answer([ISSUE, {**ISSUE, "id": 8}]))
    assert isinstance(finding, Several)
    finding, _ = ask("github-issues", answer([{**ISSUE, "title": "Other"}]))
    assert isinstance(finding, Mismatch)


def test_an_issue_with_another_operations_marker_is_anothers() -> None:
    other = {**ISSUE, "body": f"It is broken.\n\n<!-- recourse:{new_id('op')} -->"}
    finding, _ = ask("github-issues", answer([other]), answer({"items": [], "incomplete_results": False}))
    assert isinstance(finding, NotFound)
    unmarked = {**ISSUE, "body": "It is broken."}
    finding, _ = ask("github-issues", answer([unmarked]), answer({"items": []}))
    assert isinstance(finding, Candidate)


def test_a_search_at_github_only_hints() -> None:
    finding, peer = ask("github-issues", answer([]), answer({"items": [ISSUE], "incomplete_results": False}))
    assert isinstance(finding, Candidate)
    assert dict(peer.asked[1].query)["q"] == f'"recourse:{OPERATION}" in:body repo:acme/shop'
    finding, _ = ask("github-issues", answer([]), answer({"items": [], "incomplete_results": True}))
    assert isinstance(finding, NotFound)


def test_a_message_is_found_in_the_channel_and_a_reply_in_its_thread() -> None:
    page = answer({"ok": True, "messages": [{"ts": "1.1"}, {"ts": "1.2", "metadata": SLACK_MARK}]})
    finding, peer = ask("slack", page)
    assert isinstance(finding, Found)
    assert (peer.paths, peer.asked[0].form["channel"]) == (["/api/conversations.history"], "C1")
    assert peer.asked[0].form["include_all_metadata"] == "true"
    reply = {"ts": "1.3", "thread_ts": "1.0", "metadata": SLACK_MARK}
    page = answer({"ok": True, "messages": [reply]})
    finding, peer = ask("slack", page, payload={"thread_ts": "1.0"})
    assert isinstance(finding, Found)
    assert (peer.paths, peer.asked[0].form["ts"]) == (["/api/conversations.replies"], "1.0")


def test_a_channel_that_we_cant_read_tells_nothing() -> None:
    finding, _ = ask("slack", answer({"ok": False, "error": "not_in_channel"}))
    assert isinstance(finding, Unavailable)


def test_two_texts_alike_can_only_be_told_apart_by_a_person() -> None:
    page = {"messages": [TWILIO_MESSAGE, {**TWILIO_MESSAGE, "sid": "SM2"}], "next_page_uri": None}
    finding, peer = ask("twilio", answer(page))
    assert isinstance(finding, Candidate)
    assert len(finding.receipts) == 2
    assert dict(peer.asked[0].query)["To"] == "+15550100"
    finding, _ = ask("twilio", answer({"messages": [{**TWILIO_MESSAGE, "body": "Your code is 8"}]}))
    assert isinstance(finding, NotFound)
    assert not finding.proof


def test_a_ticket_is_found_by_our_reference_and_an_unfiltered_list_tells_nothing() -> None:
    ticket = {"id": 35, "subject": "Broken", "external_id": OPERATION}
    finding, peer = ask("zendesk", answer({"tickets": [ticket], "next_page": None}))
    assert isinstance(finding, Found)
    assert ("external_id", OPERATION) in peer.asked[0].query
    others = answer({"tickets": [{**ticket, "external_id": "theirs"}], "next_page": None})
    finding, _ = ask("zendesk", others, answer({"results": [], "next_page": None}))
    assert isinstance(finding, Inconclusive)
    assert finding.reason == "not_filtered"


def test_a_refund_is_found_among_transactions_as_money_that_left() -> None:
    info = {
        "transaction_id": "1JU08",
        "transaction_status": "S",
        "transaction_amount": {"value": "-12.00", "currency_code": "EUR"},
        "custom_field": OPERATION,
        "invoice_id": "INV-1",
    }
    finding, peer = ask("paypal", answer({"transaction_details": [{"transaction_info": info}]}))
    assert isinstance(finding, Found)
    assert finding.receipts[0].amount == Money("EUR", 1200)
    assert peer.paths == ["/v1/oauth2/token", "/v1/reporting/transactions"]
    paid_in = {**info, "transaction_amount": {"value": "12.00", "currency_code": "EUR"}}
    finding, _ = ask("paypal", answer({"transaction_details": [{"transaction_info": paid_in}]}))
    assert isinstance(finding, Mismatch)


def test_adyen_is_never_asked() -> None:
    finding, peer = ask("adyen")
    assert isinstance(finding, Inconclusive)
    assert finding.reason == "no_lookup"
    assert peer.asked == []


def test_squares_list_finds_and_proves_nothing_by_silence() -> None:
    pages = [
        answer({"payments": [{**SQUARE_PAYMENT, "id": "pay_0", "reference_id": "x"}], "cursor": "c-2"}),
        answer({"payments": [SQUARE_PAYMENT]}),
    ]
    finding, peer = ask("square", *pages)
    assert isinstance(finding, Found)
    assert dict(peer.asked[1].query)["cursor"] == "c-2"
    finding, _ = ask("square", answer({}))
    assert isinstance(finding, NotFound)
    assert not finding.proof
    finding, _ = ask("square", answer([]))
    assert isinstance(finding, Inconclusive)
