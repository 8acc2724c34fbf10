"""The `[webhook]` table of a declared provider: how its notices are signed, and what is in them.

The signing schemes are data: each says which header holds the signature, what was signed, and how it is
written. `docs/providers/webhooks.md` explains the table to the people who write one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from reconciliation.contracts import Contract, MatchField, ReceiptPaths, SuccessWhen
from reconciliation.providers.base import ReceiptState
from reconciliation.providers.contract_table import read_match_fields, read_receipt_paths, read_success_when
from reconciliation.providers.secrets import ALLOWED, Secret, env_name, read_secret
from reconciliation.providers.tables import Table, found_text
from reconciliation.providers.webhook_schemes import (
    SIGNING,
    Encoding,
    Scheme,
    SecretForm,
    Signing,
    TimestampForm,
)

# How far a signed time may be from the database's clock: what Stripe, Slack and Standard Webhooks advise.
TOLERANCE_MS = 300_000
# A tolerance of hours would let a recorded notice be played again for as long.
TOLERANCE_MS_MAX = 3_600_000
# A rotation needs two at once; a handful leaves room for one that is being handed out.
SECRETS_MAX = 5
EVENTS_MAX = 50


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
    # The provider's own id of this subscription, where it signs that.
    webhook_id: str = ""
    # The variables of these two that were named and aren't set.
    lacks: tuple[str, ...] = ()
    events: tuple[EventRule, ...]
    # The variables that were named, whether set or not.
    secret_names: tuple[str, ...]
    secrets: tuple[str, ...] = field(repr=False)

    @property
    def configured(self) -> bool:
        """Whether a notice can be checked here: a secret is set, and what else is signed and isn't in it."""
        signed = self.signing.signed
        return (
            bool(self.secrets)
            and (bool(self.url) or "{url}" not in signed)
            and (bool(self.webhook_id) or "{webhook_id}" not in signed)
        )


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
    secrets = _secrets(table, signing, environ)
    url, *lacks = _of_environment(table, "url", environ, allowed="an address")
    webhook_id, *more = _of_environment(table, "webhook_id", environ, allowed="an id")
    rules = WebhookRules(
        scheme=scheme,
        signing=signing,
        tolerance_ms=table.whole("tolerance_ms", TOLERANCE_MS, low=1_000, high=TOLERANCE_MS_MAX),
        url=url,
        webhook_id=webhook_id,
        lacks=(*lacks, *more),
        events=table.tables("events", _event),
        secret_names=tuple(one.env for one in secrets),
        secrets=tuple(one.value for one in secrets if one.value is not None),
    )
    if "{url}" in signing.signed and "url" not in table:
        table.fault("url", found="nothing", allowed="the address that the provider was given, which it signs")
    if "{webhook_id}" in signing.signed and "webhook_id" not in table:
        allowed = "the provider's id of the subscription, which it signs"
        table.fault("webhook_id", found="nothing", allowed=allowed)
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
        secret_form=_own_secret_form(table),
        timestamp_header=timestamp_header,
        timestamp_form=table.choice("timestamp_form", TimestampForm, TimestampForm.UNIX),
    )


def _own_secret_form(table: Table) -> SecretForm:
    form = table.choice("secret_form", SecretForm, SecretForm.TEXT)
    if form is SecretForm.CERTIFICATE:
        table.fault(
            "secret_form", found="certificate", allowed="text, base64 or hex: an HMAC's key is secret"
        )
        return SecretForm.TEXT
    return form


def _of_environment(
    table: Table, name: str, environ: Mapping[str, str], *, allowed: str
) -> tuple[str, *tuple[str, ...]]:
    """What the provider was given or gave, as text or `{ env = "NAME" }`.

    While the variable isn't set it is empty, and the variable's name stands behind it.
    """
    written = table.text_if_written(name)
    if written is not None or name not in table:
        return (written or "",)
    reference = table.table(name)
    if reference is None:
        return ("",)
    variable = env_name(reference, "env", allowed=f'{allowed}, or {{ env = "NAME" }}')
    reference.finish()
    value = environ.get(variable, "")
    return (value,) if value or not variable else (value, variable)


def _secrets(table: Table, signing: Signing, environ: Mapping[str, str]) -> tuple[Secret, ...]:
    """What signatures are checked with: `secrets`, or `certificates`, which come by the same ways."""
    name = "certificates" if signing.secret_form is SecretForm.CERTIFICATE else "secrets"
    secrets = table.tables(name, lambda one: read_secret(one, environ), secret=True)
    if not 1 <= len(secrets) <= SECRETS_MAX:
        table.fault(name, found=str(len(secrets)), allowed=f"a list of 1 to {SECRETS_MAX} of {ALLOWED}")
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
