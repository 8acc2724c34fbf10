"""Notices as PayPal, Adyen and Twilio sign them: not by an HMAC of the body in a header."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from urllib.parse import urlencode

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

from reconciliation.providers.webhook_opening import signed_text
from reconciliation.providers.webhook_signing import sign, signature_of
from reconciliation.providers.webhook_table import WebhookRules


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """What goes over the wire."""

    headers: dict[str, str]
    body: bytes
    query: str = ""


@cache
def private_key(name: str, bits: int) -> rsa.RSAPrivateKey:
    """One key per name and test run: making one takes a while."""
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def certificate(
    name: str = "paypal", *, bits: int = 2048, valid_from: datetime | None = None, days: int = 365
) -> str:
    """A certificate of that key, as PEM; from yesterday on if nothing is said."""
    key = private_key(name, bits)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name}.notices.example")])
    start = valid_from or datetime.now(UTC) - timedelta(days=1)
    made = x509.CertificateBuilder(
        issuer_name=subject,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=7,
        not_valid_before=start,
        not_valid_after=start + timedelta(days=days),
    ).sign(key, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM).decode()


def by_paypal(
    webhook_id: str, body: bytes, *, at: datetime, transmission: str = "69cd13f0-d67a", name: str = "paypal"
) -> Delivery:
    """As https://developer.paypal.com/api/rest/webhooks/rest describes it."""
    stamp = at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    signed = f"{transmission}|{stamp}|{webhook_id}|{zlib.crc32(body)}".encode()
    signature = private_key(name, 2048).sign(signed, padding.PKCS1v15(), hashes.SHA256())
    headers = {
        "paypal-auth-algo": "SHA256withRSA",
        "paypal-cert-url": "https://api.paypal.com/v1/notifications/certs/CERT-360caa42",
        "paypal-transmission-id": transmission,
        "paypal-transmission-time": stamp,
        "paypal-transmission-sig": base64.b64encode(signature).decode(),
    }
    return Delivery(headers=headers, body=body)


def by_twilio(rules: WebhookRules, fields: Mapping[str, str], *, query: str = "") -> Delivery:
    body = urlencode(fields).encode()
    headers = sign(rules, body=body, at=datetime.now(UTC), query=query)
    return Delivery(headers={name.lower(): value for name, value in headers.items()}, body=body, query=query)


def by_adyen(rules: WebhookRules, *items: Mapping[str, Any]) -> Delivery:
    listed = []
    for item in items:
        text = signed_text(item)
        assert text is not None
        signature = signature_of(rules, text.encode())
        listed.append({"NotificationRequestItem": {**item, "additionalData": {"hmacSignature": signature}}})
    body = json.dumps({"live": "false", "notificationItems": listed}).encode()
    return Delivery(headers={}, body=body)
