"""How providers sign their notices, as data: which header holds a signature, and what was signed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum


class Scheme(StrEnum):
    STRIPE = "stripe"
    GITHUB = "github"
    SLACK = "slack"
    SVIX = "svix"  # also Resend
    STANDARD = "standard"  # Standard Webhooks: as svix, under other header names
    ZENDESK = "zendesk"
    SQUARE = "square"
    TWILIO = "twilio"
    ADYEN = "adyen"
    PAYPAL = "paypal"
    HMAC = "hmac"  # everything said in the table itself


class Algorithm(StrEnum):
    HMAC_SHA256 = "hmac_sha256"
    # Only where the provider signs so and in no other way: SHA-1 still holds inside an HMAC.
    HMAC_SHA1 = "hmac_sha1"
    RSA_SHA256 = "rsa_sha256"  # PKCS #1 v1.5, by the key of a certificate that the administrator gives


class Carrier(StrEnum):
    """What was signed, and so what may be read."""

    BODY = "body"  # one notice: the body, as JSON
    FORM = "form"  # one notice: a form's fields and the address's own parameters
    ITEMS = "items"  # several notices in one body, each with a signature over some of its fields


class Acknowledgement(StrEnum):
    """What the provider wants to hear once everything is committed."""

    JSON = "json"  # 200 and a document: nobody looks at it
    ACCEPTED = "accepted"  # 200 and the word [accepted]
    NOTHING = "nothing"  # 204


class HeaderForm(StrEnum):
    """How signatures stand in their header."""

    PLAIN = "plain"  # one signature, perhaps behind a prefix
    PAIRS = "pairs"  # t=1492774577,v1=5257a8…,v1=…
    LIST = "list"  # v1,K5oZfz… v1,…


class Encoding(StrEnum):
    HEX = "hex"
    BASE64 = "base64"


class SecretForm(StrEnum):
    """How the HMAC's key is made of the secret's text."""

    TEXT = "text"
    BASE64 = "base64"  # decoded, without a prefix of the form "whsec_"
    HEX = "hex"
    CERTIFICATE = "certificate"  # PEM: what it signs with is the first one's key


class TimestampForm(StrEnum):
    UNIX = "unix"  # seconds
    ISO = "iso"  # 2026-11-29T12:00:00Z


@dataclass(frozen=True, kw_only=True, slots=True)
class Signing:
    """How one provider signs: `algorithm` over `signed`, written into `header`.

    `signed` is a template of `{body}` (its raw bytes) or `{crc32}` (their checksum, in decimal),
    `{timestamp}`, `{id}`, `{url}`, `{webhook_id}`; of a form, `{query}` (the address's own parameters, behind
    their "?") and `{parameters}` (names and values by name, one behind the other); of items, `{fields}`. The
    timestamp comes from `timestamp_header`, or, with PAIRS, from the pair `t`. Without one nothing tells an
    old notice from a new one, and only its id and content do.
    """

    header: str
    signed: str = "{body}"
    algorithm: Algorithm = Algorithm.HMAC_SHA256
    carrier: Carrier = Carrier.BODY
    acknowledgement: Acknowledgement = Acknowledgement.JSON
    form: HeaderForm = HeaderForm.PLAIN
    # PAIRS and LIST: the name of the signatures that count.
    version: str = "v1"
    prefix: str = ""
    encoding: Encoding = Encoding.HEX
    secret_form: SecretForm = SecretForm.TEXT
    timestamp_header: str | None = None
    timestamp_form: TimestampForm = TimestampForm.UNIX
    id_header: str | None = None
    type_header: str | None = None
    id_path: str | None = None
    type_path: str | None = None
    challenge_path: str | None = None

    @property
    def has_timestamp(self) -> bool:
        return "{timestamp}" in self.signed

    @property
    def covers_body(self) -> bool:
        """Whether nobody can make another body for a signature that they have: not so of a checksum."""
        return "{crc32}" not in self.signed


_SVIX = Signing(
    header="svix-signature",
    signed="{id}.{timestamp}.{body}",
    form=HeaderForm.LIST,
    encoding=Encoding.BASE64,
    secret_form=SecretForm.BASE64,
    timestamp_header="svix-timestamp",
    id_header="svix-id",
    type_path="$.type",
)

# As each provider documents it; docs/providers/webhooks.md has the sources.
SIGNING: Mapping[Scheme, Signing] = {
    Scheme.STRIPE: Signing(
        header="Stripe-Signature",
        signed="{timestamp}.{body}",
        form=HeaderForm.PAIRS,
        id_path="$.id",
        type_path="$.type",
    ),
    Scheme.GITHUB: Signing(
        header="X-Hub-Signature-256",
        prefix="sha256=",
        id_header="X-GitHub-Delivery",
        type_header="X-GitHub-Event",
    ),
    Scheme.SLACK: Signing(
        header="X-Slack-Signature",
        signed="v0:{timestamp}:{body}",
        prefix="v0=",
        timestamp_header="X-Slack-Request-Timestamp",
        id_path="$.event_id",
        type_path="$.event.type",
        challenge_path="$.challenge",
    ),
    Scheme.SVIX: _SVIX,
    Scheme.STANDARD: replace(
        _SVIX, header="webhook-signature", timestamp_header="webhook-timestamp", id_header="webhook-id"
    ),
    Scheme.ZENDESK: Signing(
        header="X-Zendesk-Webhook-Signature",
        signed="{timestamp}{body}",
        encoding=Encoding.BASE64,
        timestamp_header="X-Zendesk-Webhook-Signature-Timestamp",
        timestamp_form=TimestampForm.ISO,
        id_path="$.id",
        type_path="$.type",
    ),
    Scheme.SQUARE: Signing(
        header="x-square-hmacsha256-signature",
        signed="{url}{body}",
        encoding=Encoding.BASE64,
        id_path="$.event_id",
        type_path="$.type",
    ),
    # https://www.twilio.com/docs/usage/security. No time and no id are signed.
    Scheme.TWILIO: Signing(
        header="X-Twilio-Signature",
        signed="{url}{query}{parameters}",
        algorithm=Algorithm.HMAC_SHA1,
        carrier=Carrier.FORM,
        acknowledgement=Acknowledgement.NOTHING,
        encoding=Encoding.BASE64,
        type_path="$.form.MessageStatus",
    ),
    # Neither is here; and what isn't among the fields isn't signed.
    Scheme.ADYEN: Signing(
        header="additionalData.hmacSignature",
        signed="{fields}",
        carrier=Carrier.ITEMS,
        acknowledgement=Acknowledgement.ACCEPTED,
        encoding=Encoding.BASE64,
        secret_form=SecretForm.HEX,
        type_path="$.eventCode",
    ),
    # The transmission is the id, not the event: it is what was signed, and a checksum of 32 bits is no
    # protection of the body, so that each signature may count once (docs/decisions/0027).
    Scheme.PAYPAL: Signing(
        header="PAYPAL-TRANSMISSION-SIG",
        signed="{id}|{timestamp}|{webhook_id}|{crc32}",
        algorithm=Algorithm.RSA_SHA256,
        encoding=Encoding.BASE64,
        secret_form=SecretForm.CERTIFICATE,
        timestamp_header="PAYPAL-TRANSMISSION-TIME",
        timestamp_form=TimestampForm.ISO,
        id_header="PAYPAL-TRANSMISSION-ID",
        type_path="$.event_type",
    ),
}
