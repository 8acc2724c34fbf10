"""Notices whose signature is no HMAC of their body: by published examples, and by what forges one."""

from __future__ import annotations

import hashlib
import hmac
import json
import zlib
from base64 import b64encode
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from reconciliation.providers.webhook_opening import ITEMS_MAX, Part, open_notice, signed_text
from reconciliation.providers.webhook_schemes import SIGNING, Scheme
from reconciliation.providers.webhook_signing import (
    FORM_FIELDS_MAX,
    WebhookForged,
    WebhookNotReady,
    WebhookStale,
    sign,
)
from reconciliation.providers.webhook_table import EventRule, WebhookRules
from tests.contract.declaring import declare
from tests.signed_notices import Delivery, by_adyen, by_paypal, by_twilio, certificate

NOW = datetime.now(UTC).replace(microsecond=0)
# From Twilio's own library: https://github.com/twilio/twilio-python/blob/main/tests/unit/test_request_validator.py
TWILIO_URL = "https://mycompany.com/myapp.php"
TWILIO_FORM = (
    "CallSid=CA1234567890ABCDE&Digits=1234&From=%2B14158675309&To=%2B18005551212&Caller=%2B14158675309"
)
# From Adyen's: https://github.com/Adyen/adyen-python-api-library/blob/main/test/UtilTest.py
ADYEN_KEY = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056"
ADYEN_ITEM: dict[str, Any] = {
    "pspReference": "7914073381342284",
    "merchantReference": "TestPayment-1407325143704",
    "merchantAccountCode": "TestMerchant",
    "amount": {"currency": "EUR", "value": 1130},
    "eventCode": "AUTHORISATION",
    "success": "true",
    "eventDate": "2019-05-06T17:15:34.121+02:00",
    "operations": ["CANCEL", "CAPTURE", "REFUND"],
    "paymentMethod": "visa",
    "additionalData": {"hmacSignature": "coqCmt/IZ4E3CzPvMY8zTjQVL5hYJUiBRg8UU+iCWo0="},
}
WEBHOOK_ID = "1JE4291016473214C"


def rules(scheme: Scheme, *secrets: str, url: str = "", webhook_id: str = "") -> WebhookRules:
    return WebhookRules(
        scheme=scheme,
        signing=SIGNING[scheme],
        tolerance_ms=300_000,
        url=url,
        webhook_id=webhook_id,
        events=(EventRule(types=("any",)),),
        secret_names=("HOOK_SECRET",),
        secrets=secrets,
    )


TWILIO = rules(Scheme.TWILIO, "12345", url=TWILIO_URL)
ADYEN = rules(Scheme.ADYEN, ADYEN_KEY)
PAYPAL = rules(Scheme.PAYPAL, certificate(), webhook_id=WEBHOOK_ID)


def opened(by: WebhookRules, came: Delivery, *, now: datetime = NOW) -> tuple[Part, ...]:
    return open_notice(
        by, headers=came.headers, body=came.body, query=came.query, now=now, bytes_max=1024 * 1024
    )


def forged(by: WebhookRules, came: Delivery) -> None:
    with pytest.raises(WebhookForged):
        opened(by, came)


def batch(*items: Any) -> Delivery:
    body = json.dumps({"notificationItems": [{"NotificationRequestItem": one} for one in items]})
    return Delivery(headers={}, body=body.encode())


# --- Twilio ---------------------------------------------------------------------------------------------


def twilio(form: str, signature: str, query: str = "foo=1&bar=2") -> Delivery:
    return Delivery(headers={"x-twilio-signature": signature}, body=form.encode(), query=query)


def test_twilios_own_examples_hold() -> None:
    (one,) = opened(TWILIO, twilio(TWILIO_FORM, "RSOYDt4T1cUTdK1PDd93/VVr8B8="))
    assert one.document["form"]["From"] == "+14158675309"
    assert one.document["query"] == {"foo": "1", "bar": "2"}
    assert (one.signed.signed_at, one.id, one.id_elsewhere) == (None, None, False)
    doubled = "Sid=CA123&SidAccount=AC123&Digits=5678&Digits=1234"
    (one,) = opened(TWILIO, twilio(doubled, "IK+Dwps556ElfBT0I3Rgjkr1wJU="))
    assert one.document["form"]["Digits"] == ["5678", "1234"]


@pytest.mark.parametrize(
    ("form", "query"),
    [
        (TWILIO_FORM.replace("Digits=1234", "Digits=1235"), "foo=1&bar=2"),
        (TWILIO_FORM + "&More=1", "foo=1&bar=2"),
        (TWILIO_FORM.replace("&Digits=1234", ""), "foo=1&bar=2"),
        (TWILIO_FORM, "foo=1&bar=3"),
        (TWILIO_FORM, ""),
        (TWILIO_FORM, "foo=1&bar=2" + "&" * 5_000),
        ('{"MessageStatus": "delivered"}', "foo=1&bar=2"),
        ("&".join(f"a{number}=" for number in range(FORM_FIELDS_MAX + 1)), "foo=1&bar=2"),
    ],
)
def test_what_twilio_did_not_sign_is_forged(form: str, query: str) -> None:
    forged(TWILIO, twilio(form, "RSOYDt4T1cUTdK1PDd93/VVr8B8=", query))


def test_a_twilio_notice_is_signed_for_one_address_and_token() -> None:
    genuine = twilio(TWILIO_FORM, "RSOYDt4T1cUTdK1PDd93/VVr8B8=")
    forged(replace(TWILIO, url="https://mycompany.com/other"), genuine)
    forged(replace(TWILIO, secrets=("12346",)), genuine)
    with pytest.raises(WebhookNotReady):
        opened(replace(TWILIO, url=""), genuine)


def test_the_same_twilio_notice_in_another_order_or_cut_elsewhere_is_the_same() -> None:
    """Twilio joins names and values without anything between them, so these have one signature."""
    genuine = twilio(TWILIO_FORM, "RSOYDt4T1cUTdK1PDd93/VVr8B8=")
    turned = "&".join(reversed(TWILIO_FORM.split("&")))
    cut = TWILIO_FORM.replace("Digits=1234", "Digits12=34")
    contents = {
        opened(TWILIO, twilio(form, genuine.headers["x-twilio-signature"]))[0].content
        for form in (TWILIO_FORM, turned, cut)
    }
    assert len(contents) == 1


def test_a_form_that_is_no_utf_8_is_read_as_far_as_it_can_be() -> None:
    body = b"To=%ff&Body=%C3%A9"
    headers = {name.lower(): value for name, value in sign(TWILIO, body=body, at=NOW).items()}
    (one,) = opened(TWILIO, Delivery(headers=headers, body=body))
    assert one.document["form"] == {"To": "\ufffd", "Body": "é"}


# --- Adyen ----------------------------------------------------------------------------------------------


def test_adyens_own_example_holds_and_only_what_was_signed_is_read() -> None:
    (one,) = opened(ADYEN, batch(ADYEN_ITEM))
    assert one.document == {
        "pspReference": "7914073381342284",
        "merchantAccountCode": "TestMerchant",
        "merchantReference": "TestPayment-1407325143704",
        "amount": {"value": 1130, "currency": "EUR"},
        "eventCode": "AUTHORISATION",
        "success": "true",
    }
    assert one.id == "7914073381342284:AUTHORISATION:true"
    assert one.signed.signed_at is None


def test_an_adyen_notice_with_other_unsigned_fields_is_the_same_notice() -> None:
    (genuine,) = opened(ADYEN, batch(ADYEN_ITEM))
    (changed,) = opened(ADYEN, batch({**ADYEN_ITEM, "reason": "attacker", "eventDate": "2030-01-01"}))
    assert (changed.content, changed.document) == (genuine.content, genuine.document)


@pytest.mark.parametrize(
    "changes",
    [
        {"success": "false"},
        {"amount": {"currency": "EUR", "value": 1131}},
        {"amount": {"currency": "USD", "value": 1130}},
        {"merchantReference": "another"},
        {"pspReference": "7914073381342285"},
        {"originalReference": "7914073381342284"},
        {"merchantAccountCode": "OtherMerchant"},
        {"eventCode": "REFUND"},
        {"additionalData": {}},
        {"additionalData": None},
        {"additionalData": {"hmacSignature": ""}},
        {"additionalData": {"hmacSignature": 7}},
        {"merchantReference": ["TestPayment-1407325143704"]},
        {"amount": {"currency": "EUR", "value": 1130.5}},
    ],
)
def test_an_adyen_item_of_which_any_signed_part_differs_is_forged(changes: dict[str, Any]) -> None:
    forged(ADYEN, batch({**ADYEN_ITEM, **changes}))


@pytest.mark.parametrize(
    "cut",
    [
        {"merchantAccountCode": "TestMerchant:shop", "merchantReference": "order-1042"},
        {"merchantReference": "shop", "amount": {"currency": "EUR", "value": "order-1042:1130"}},
    ],
)
def test_what_adyen_signed_of_one_reference_is_not_cut_into_another(cut: dict[str, Any]) -> None:
    """Its parts are joined by colons and nothing else; only the merchant's own reference may hold one."""
    theirs = {**ADYEN_ITEM, "merchantReference": "shop:order-1042"}
    came = by_adyen(ADYEN, theirs)
    (one,) = opened(ADYEN, came)
    assert one.document["merchantReference"] == "shop:order-1042"
    item = json.loads(came.body)["notificationItems"][0]["NotificationRequestItem"]
    assert signed_text({**item, **cut}) == signed_text(item)
    forged(ADYEN, batch({**item, **cut}))


def test_one_forged_item_makes_the_whole_batch_forged() -> None:
    other = {**ADYEN_ITEM, "pspReference": "8814073381342284"}
    two = by_adyen(ADYEN, ADYEN_ITEM, other)
    assert len(opened(ADYEN, two)) == 2
    forged(ADYEN, batch(ADYEN_ITEM, other))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"notificationItems": []}',
        b'{"notificationItems": [1]}',
        b'{"notificationItems": {}}',
        b'{"notificationItems": [{"NotificationRequestItem": []}]}',
        b'{"notificationItems": [{"NotificationRequestItem": {}}]}',
    ],
)
def test_a_body_without_signed_items_is_forged(body: bytes) -> None:
    forged(ADYEN, Delivery(headers={}, body=body))


def test_more_items_than_adyen_ever_sends_are_not_looked_at() -> None:
    forged(ADYEN, batch(*[ADYEN_ITEM] * (ITEMS_MAX + 1)))


def test_an_adyen_key_is_hexadecimal() -> None:
    with pytest.raises(WebhookNotReady):
        opened(replace(ADYEN, secrets=("not hex",)), batch(ADYEN_ITEM))
    opened(replace(ADYEN, secrets=("00" * 32, ADYEN_KEY)), batch(ADYEN_ITEM))
    text = hmac.new(ADYEN_KEY.encode(), b"", hashlib.sha256).digest()
    forged(ADYEN, batch({**ADYEN_ITEM, "additionalData": {"hmacSignature": b64encode(text).decode()}}))


# --- PayPal ---------------------------------------------------------------------------------------------

BODY = b'{"id":"WH-2WR32451HC0233532","event_type":"PAYMENT.CAPTURE.REFUNDED"}'


def paypal(**how: Any) -> Delivery:
    return by_paypal(WEBHOOK_ID, BODY, at=how.pop("at", NOW), **how)


def test_a_paypal_notice_is_checked_by_the_certificate_given_here_alone() -> None:
    (one,) = opened(PAYPAL, paypal())
    assert one.signed.signed_at == NOW
    assert one.document["event_type"] == "PAYMENT.CAPTURE.REFUNDED"
    forged(PAYPAL, paypal(name="somebody-else"))
    # Whatever it points to is not asked for.
    pointing = {
        **paypal(name="somebody-else").headers,
        "paypal-cert-url": "https://api.paypal.com.evil.example/",
    }
    forged(PAYPAL, replace(paypal(name="somebody-else"), headers=pointing))


@pytest.mark.parametrize(
    "header", ["paypal-transmission-id", "paypal-transmission-time", "paypal-transmission-sig"]
)
@pytest.mark.parametrize("value", ["", "2026-01-01T00:00:00Z", "bm90aGluZw==", "é"])
def test_every_part_that_paypal_signs_counts(header: str, value: str) -> None:
    came = paypal()
    forged(PAYPAL, replace(came, headers={**came.headers, header: value}))


def test_another_body_or_webhook_is_forged() -> None:
    came = paypal()
    forged(PAYPAL, replace(came, body=BODY + b" "))
    forged(replace(PAYPAL, webhook_id="other"), came)
    with pytest.raises(WebhookNotReady):
        opened(replace(PAYPAL, webhook_id=""), came)


def test_an_old_paypal_notice_is_stale() -> None:
    with pytest.raises(WebhookStale):
        opened(PAYPAL, paypal(at=NOW - timedelta(seconds=301)))


def test_the_checksum_protects_no_body_so_the_transmission_is_the_id() -> None:
    """Who has one notice can make another body of the same CRC-32: only that the id is used up stops it."""
    forged_body = b'{"id":"WH-other","event_type":"PAYMENT.CAPTURE.REFUNDED","pad":"____"}'
    wanted, at = zlib.crc32(BODY), forged_body.index(b"____")
    made = _with_checksum(forged_body, at, wanted)
    assert zlib.crc32(made) == wanted
    came = paypal()
    (one,) = opened(PAYPAL, replace(came, body=made))
    assert one.id_elsewhere
    assert SIGNING[Scheme.PAYPAL].id_header == "PAYPAL-TRANSMISSION-ID"
    assert SIGNING[Scheme.PAYPAL].id_path is None


def _with_checksum(body: bytes, at: int, wanted: int) -> bytes:
    """The body with four bytes changed so that its CRC-32 is `wanted`: 32 equations in 32 bits."""

    def filled(bits: int) -> bytes:
        return body[:at] + bits.to_bytes(4, "little") + body[at + 4 :]

    base = zlib.crc32(filled(0))
    rows = [(zlib.crc32(filled(1 << bit)) ^ base, 1 << bit) for bit in range(32)]
    left, chosen = wanted ^ base, 0
    for place in reversed(range(32)):
        pivot = next((row for row in rows if row[0] >> place & 1), None)
        if pivot is None:
            continue
        rows.remove(pivot)
        rows = [(row[0] ^ pivot[0], row[1] ^ pivot[1]) if row[0] >> place & 1 else row for row in rows]
        if left >> place & 1:
            left, chosen = left ^ pivot[0], chosen ^ pivot[1]
    return filled(chosen)


@pytest.mark.parametrize(
    "unusable",
    [
        "",
        "no certificate",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
        certificate(valid_from=NOW - timedelta(days=30), days=1),
        certificate(valid_from=NOW + timedelta(days=1)),
        certificate("short", bits=1024),
    ],
    ids=["empty", "text", "broken", "ended", "not yet", "short key"],
)
def test_a_certificate_that_may_not_be_used_checks_nothing(unusable: str) -> None:
    with pytest.raises(WebhookNotReady, match="HOOK_SECRET"):
        opened(replace(PAYPAL, secrets=(unusable,)), paypal())
    # Beside one that may, it is passed over.
    opened(replace(PAYPAL, secrets=(unusable, certificate())), paypal())


def test_of_a_chain_the_first_certificate_signs() -> None:
    chain = certificate() + certificate("issuer")
    opened(replace(PAYPAL, secrets=(chain,)), paypal())
    forged(replace(PAYPAL, secrets=(chain,)), paypal(name="issuer"))


def test_a_twilio_delivery_of_ours_is_what_the_check_expects() -> None:
    came = by_twilio(TWILIO, {"MessageSid": "SM1", "To": "+49 30"}, query="operation=op_1")
    assert opened(TWILIO, came)[0].document["query"] == {"operation": "op_1"}


def test_an_address_for_notices_may_be_left_unsaid_and_is_then_no_want(tmp_path: Path) -> None:
    optional = (
        "[contract]\nkey_field",
        '[settings]\nhook = { env = "SHOP_HOOK", optional = true }\n[contract]\nkey_field',
    )
    url = "https://api.shop.example"
    assert declare(tmp_path, url, optional).account.missing == ()
    said = declare(tmp_path, url, optional, environ={"SHOP_HOOK": "https://a.example/"})
    assert said.http.settings == {"hook": "https://a.example/"}
