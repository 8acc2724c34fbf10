"""The `[webhook]` table of a declared provider: how its notices are signed, and what is in them.

The signing schemes are data: each says which header holds the signature, what was signed, and how it is
written. `docs/providers/webhooks.md` explains the table to the people who write one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from reconciliation.contracts import Contract, MatchField, ReceiptPaths, SuccessWhen
from reconciliation.providers.base import ReceiptState
from reconciliation.providers.contract_table import read_match_fields, read_receipt_paths, read_success_when
from reconciliation.providers.secrets import ALLOWED, Secret, env_name, read_secret
from reconciliation.providers.tables import Table, found_text

# How far a signed time may be from the database's clock: what Stripe, Slack and Standard Webhooks advise.
TOLERANCE_MS = 300_000
# A tolerance of hours would let a recorded notice be played again for as long.
TOLERANCE_MS_MAX = 3_600_000
# A rotation needs two at once; a handful leaves room for one that is being handed out.
SECRETS_MAX = 5
EVENTS_MAX = 50


class Scheme(StrEnum):
    STRIPE = "stripe"
    GITHUB = "github"
    SLACK = "slack"
    SVIX = "svix"  # also Resend
    STANDARD = "standard"  # Standard Webhooks: as svix, under other header names
    ZENDESK = "zendesk"
    SQUARE = "square"
    HMAC = "hmac"  # everything said in the table itself


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


class TimestampForm(StrEnum):
    UNIX = "unix"  # seconds
    ISO = "iso"  # 2026-11-29T12:00:00Z


@dataclass(frozen=True, kw_only=True, slots=True)
class Signing:
    """How one provider signs: HMAC-SHA256 over `signed`, written into `header`.

    `signed` is a template of `{body}` (its raw bytes), `{timestamp}`, `{id}` and `{url}`. The timestamp comes
    from `timestamp_header`, or, with PAIRS, from the pair `t`. Without one nothing tells an old notice from a
    new one, and only its id and content do.
    """

    header: str
    signed: str = "{body}"
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
}


@dataclass(frozen=True, kw_only=True, slots=True)
class EventRule:
    """What one kind of notice holds.

    A notice is of this kind if its type is one of `types` and, with `path`, the value there is one of
    `values`. `record` is where the provider's record of the effect is. `named_by` are places whose text is
    our key or holds our operation's id; without any, the record's own key and reference name the operation.
    `receipt`, `match_fields`, `success_when` and `state` replace the contract's, for notices that show the
    record in another form than a lookup does.
    """

    types: tuple[str, ...]
    path: str | None = None
    values: tuple[str, ...] = ()
    record: str = "$"
    named_by: tuple[str, ...] = ()
    receipt: ReceiptPaths | None = None
    match_fields: tuple[MatchField, ...] | None = None
    success_when: SuccessWhen | None = None
    state: ReceiptState | None = None

    def contract(self, contract: Contract) -> Contract:
        """The contract by which such a notice's record is read."""
        return replace(
            contract,
            receipt=self.receipt or contract.receipt,
            match_fields=contract.match_fields if self.match_fields is None else self.match_fields,
            success_when=self.success_when or contract.success_when,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class WebhookRules:
    """How notices of one account are checked and read. `secrets` are those that are there, any may sign."""

    scheme: Scheme
    signing: Signing
    tolerance_ms: int
    url: str
    events: tuple[EventRule, ...]
    # The variables that were named, whether set or not.
    secret_names: tuple[str, ...]
    secrets: tuple[str, ...] = field(repr=False)

    @property
    def configured(self) -> bool:
        """Whether a notice can be checked here: a secret is set, and the address where one is signed."""
        return bool(self.secrets) and (bool(self.url) or "{url}" not in self.signing.signed)


def read_webhook(top: Table, environ: Mapping[str, str]) -> WebhookRules | None:
    """Read the `[webhook]` table; None where there is none. Faults are noted in the table's own list."""
    table = top.table("webhook")
    if table is None:
        return None
    scheme = table.choice("scheme", Scheme)
    signing = _own_signing(table) if scheme is Scheme.HMAC else SIGNING[scheme]
    signing = replace(
        signing,
        id_path=table.path("id", signing.id_path),
        id_header=table.optional_text("id_header") or signing.id_header,
        type_path=table.path("type", signing.type_path),
        type_header=table.optional_text("type_header") or signing.type_header,
        challenge_path=table.path("challenge", signing.challenge_path),
    )
    secrets = _secrets(table, environ)
    rules = WebhookRules(
        scheme=scheme,
        signing=signing,
        tolerance_ms=table.whole("tolerance_ms", TOLERANCE_MS, low=1_000, high=TOLERANCE_MS_MAX),
        url=_url(table, environ),
        events=table.tables("events", _event),
        secret_names=tuple(one.env for one in secrets),
        secrets=tuple(one.value for one in secrets if one.value is not None),
    )
    if "{url}" in signing.signed and "url" not in table:
        table.fault("url", found="nothing", allowed="the address that the provider was given, which it signs")
    if signing.type_path is None and signing.type_header is None and any(one.types for one in rules.events):
        table.fault("type", found="nothing", allowed="type or type_header: where a notice says its type")
    if not rules.events or len(rules.events) > EVENTS_MAX:
        allowed = f"1 to {EVENTS_MAX} tables [[webhook.events]]"
        table.fault("events", found=str(len(rules.events)), allowed=allowed)
    table.finish()
    return rules


def _own_signing(table: Table) -> Signing:
    signed = table.text("signed", "{body}", allowed="text with {body}, and {timestamp}, {id}, {url}")
    rest = signed
    for name in ("{body}", "{timestamp}", "{id}", "{url}"):
        rest = rest.replace(name, "", 1)
    if "{body}" not in signed or "{" in rest or "}" in rest:
        table.fault(
            "signed",
            found=found_text(signed),
            allowed="text with {body} and, each once at most, {timestamp}, {id}, {url}",
        )
    timestamp_header = table.optional_text("timestamp_header")
    if ("{timestamp}" in signed) != (timestamp_header is not None):
        table.fault(
            "timestamp_header",
            found=found_text(timestamp_header),
            allowed="a header exactly where signed has {timestamp}: an unsigned time proves nothing",
        )
    return Signing(
        header=table.text("header", allowed="the header that holds the signature"),
        signed=signed,
        prefix=table.text("prefix", "", empty=True),
        encoding=table.choice("encoding", Encoding, Encoding.HEX),
        secret_form=table.choice("secret_form", SecretForm, SecretForm.TEXT),
        timestamp_header=timestamp_header,
        timestamp_form=table.choice("timestamp_form", TimestampForm, TimestampForm.UNIX),
    )


def _url(table: Table, environ: Mapping[str, str]) -> str:
    """The address as the provider was given it, as text or `{ env = "NAME" }`; empty while it isn't known."""
    written = table.text_if_written("url")
    if written is not None or "url" not in table:
        return written or ""
    reference = table.table("url")
    if reference is None:
        return ""
    name = env_name(reference, "env", allowed='an address, or { env = "NAME" }')
    reference.finish()
    return environ.get(name, "")


def _secrets(table: Table, environ: Mapping[str, str]) -> tuple[Secret, ...]:
    secrets = table.tables("secrets", lambda one: read_secret(one, environ), secret=True)
    if not 1 <= len(secrets) <= SECRETS_MAX:
        table.fault("secrets", found=str(len(secrets)), allowed=f"a list of 1 to {SECRETS_MAX} of {ALLOWED}")
    return secrets


def _event(table: Table) -> EventRule:
    rule = EventRule(
        types=table.words("types"),
        path=table.path("path"),
        values=table.words("values"),
        record=table.path("record", "$") or "$",
        named_by=table.paths("named_by"),
        receipt=read_receipt_paths(table) if "receipt" in table else None,
        match_fields=read_match_fields(table) if "match_fields" in table else None,
        success_when=read_success_when(table),
        state=table.choice("state", ReceiptState) if "state" in table else None,
    )
    if not rule.types and rule.path is None:
        table.fault("types", found="neither types nor path", allowed="what tells such a notice from others")
    if (rule.path is None) != (not rule.values):
        table.fault("values", found="not both", allowed="path and values together")
    if rule.state is not None and rule.success_when is not None:
        table.fault("state", found="state beside success_when", allowed="one of the two")
    return rule
