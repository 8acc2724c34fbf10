"""The `[smtp]` table of an account, and what SMTP promises: next to nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import date

from reconciliation.contracts import (
    Contract,
    KeyFormat,
    KeyScope,
    ListingWay,
    LookupKind,
    OnInFlight,
    OnOtherPayload,
    ReceiptPaths,
    Replays,
    Verification,
    VerifiedWith,
    WindowKind,
)
from reconciliation.providers.code_accounts import CodeAdapter, Described, facts_from, text_or_env
from reconciliation.providers.environment import Surroundings
from reconciliation.providers.smtp import PASSWORD, USERNAME, Smtp
from reconciliation.providers.smtp_message import message_id_of
from reconciliation.providers.tables import Table, found_text

_DOMAIN = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*\Z"
)
_MAILBOX = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@[A-Za-z0-9.-]{1,250}\Z")
STARTTLS = ("required", "never")

CONTRACT = Contract(
    key_field=None,
    key_format=KeyFormat.NONE,
    key_scope=KeyScope.NONE,
    dedup_window_ms=None,
    window_kind=WindowKind.NONE,
    window_margin_ms=0,
    on_other_payload=OnOtherPayload.PERFORMED,
    on_in_flight=OnInFlight.PERFORMED,
    replays=Replays.NOTHING,
    rejection_replays=False,
    proves_existence=(),
    lookup=LookupKind.NONE,
    visibility_lag_ms=None,
    lookup_retention_ms=None,
    absence_is_proof=False,
    match_fields=(),
    # Accepted is all that a server ever says; it isn't "delivered", and the receipt doesn't claim so.
    success_when=None,
    rate_limit_per_second=1.0,
    # A server may take this long to answer the end of a message (RFC 5321, section 4.5.3.2.6).
    in_flight_bound_ms=600_000,
    start_within_ms=10_000,
    request_within_ms=60_000,
    receipt=ReceiptPaths(id="$.message_id", reference="$.message_id"),
)

_RFC = "https://www.rfc-editor.org/rfc/rfc5321"
_READ_ON = date(2026, 11, 30)

FACTS = (
    *facts_from(
        _RFC,
        _READ_ON,
        {
            "key_format": "no command carries a key",
            "key_field": "there is none",
            "key_scope": "there is no key",
            "window_kind": "there is no key",
            "dedup_window_ms": "there is no key",
            "on_other_payload": "every accepted message is a message",
            "on_in_flight": "every accepted message is a message",
            "rejection_replays": "there is no key",
            "proves_existence": "no reply says that a message was accepted before",
            "lookup": "there is no way to ask for a message; its Message-ID can be searched for in logs and"
            " mailboxes",
            "visibility_lag_ms": "there is no lookup",
            "lookup_retention_ms": "there is no lookup",
            "absence_is_proof": "there is no lookup",
            "listing": "no command lists what a server has taken",
        },
    ),
    *facts_from(
        f"{_RFC}#section-4.5.3.2.6",
        _READ_ON,
        {"in_flight_bound_ms": "ten minutes are to be allowed for the answer to the end of a message"},
    ),
    *facts_from(
        f"{_RFC}#section-4.2.5",
        _READ_ON,
        {
            "success_when": "with 250 after the end of the message the server takes responsibility for it",
            "receipt": "the server's own id stands in the text of its reply, in a form of its choosing",
        },
    ),
    *facts_from(
        "https://www.rfc-editor.org/rfc/rfc1047",
        _READ_ON,
        {"replays": "a lost reply after the end of the message makes duplicates, whatever their Message-ID"},
    ),
)


def _describe(own: Table, region: str, environ: Mapping[str, str], missing: list[str]) -> Described:
    allowed = "a domain of yours, such as mail.example.com"
    domain = text_or_env(own, "message_id_domain", environ, missing, allowed=allowed)
    if domain and not _DOMAIN.match(domain):
        own.fault("message_id_domain", found=found_text(domain), allowed=allowed)
    helo = own.text("helo", domain or "localhost", allowed="this host's name")
    if not _DOMAIN.match(helo):
        own.fault("helo", found=found_text(helo), allowed="this host's name")
    envelope_from = own.text("envelope_from", "", allowed="an address, for bounces")
    if envelope_from and not _MAILBOX.match(envelope_from):
        own.fault("envelope_from", found=found_text(envelope_from), allowed="an address, for bounces")
    starttls = own.text("starttls", "required")
    if starttls not in STARTTLS:
        own.fault("starttls", found=found_text(starttls), allowed=", ".join(STARTTLS))
    receipt = replace(CONTRACT.receipt, our_reference=message_id_of("{key}", domain or "localhost"))
    return Described(
        contract=replace(CONTRACT, receipt=receipt),
        settings={
            "message_id_domain": domain,
            "helo": helo,
            "envelope_from": envelope_from,
            "starttls": starttls,
        },
        listing=ListingWay(
            why_not="A mail server keeps no list of what it took that could be asked for: its logs and the"
            " mailboxes have our Message-IDs."
        ),
        worker_sends=f"The mail with the Message-ID {message_id_of('KEY', domain)}, KEY being the idempotency"
        " key; then report the server's reply after the end of the message.",
    )


def _check_together(top: Table, described: Described, around: Surroundings) -> None:
    clear = described.settings["starttls"] == "never" and (around.base_url or "").startswith("smtp://")
    if clear and around.credentials:
        top.fault(
            "smtp.starttls",
            found='"never" beside credentials',
            allowed="required, or smtps://: a password is never sent in the clear",
        )


SMTP = CodeAdapter(
    name="smtp",
    code_version=1,
    describe=_describe,
    make=Smtp,
    facts=FACTS,
    tested=Verification(kind=VerifiedWith.INDEPENDENT_PEER, peer="aiosmtpd 1.4.6", tested_on=_READ_ON),
    documentation_url=_RFC,
    schemes=("smtp", "smtps"),
    credentials=(USERNAME, PASSWORD),
    credentials_required=False,
    check_together=_check_together,
)
