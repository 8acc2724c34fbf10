"""A provider declared as data: what a TOML file says, checked and typed.

`docs/providers/declared.md` explains the file to the people who write one. Reading is strict: a file either
is wholly understood or is refused with every fault in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from reconciliation.contracts import (
    Contract,
    CredentialReference,
    Fact,
    KeyFormat,
    LookupKind,
    ProviderAccount,
    Verification,
    VerifiedWith,
)
from reconciliation.providers.contract_table import read_contract
from reconciliation.providers.reach import LISTABLE, AddressRange, ListedHost, own_host
from reconciliation.providers.request_tables import (
    EVERY_TOOL,
    AnswerRules,
    HttpDeclaration,
    LookupRules,
    is_free_header,
    read_answers,
    read_headers,
    read_lookup_rules,
    read_requests,
)
from reconciliation.providers.secrets import ALLOWED as SECRET_ALLOWED
from reconciliation.providers.secrets import env_name, read_secret
from reconciliation.providers.tables import DeclarationInvalid, Faults, Table, found_text
from reconciliation.providers.webhook_table import WebhookRules, read_webhook

ADAPTER = "http_declared"
# Goes up when the adapter sends something else for the same declaration: a key sent by the old code is then
# not taken to protect what the new code would send.
ADAPTER_CODE_VERSION = 1
FILE_BYTES_MAX = 256 * 1024

_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?\Z")


@dataclass(frozen=True, kw_only=True, slots=True)
class Declared:
    """One file, read: the account that everyone sees, and what its adapter needs."""

    account: ProviderAccount
    http: HttpDeclaration
    # How the provider's own notices are checked and read; None where it sends none.
    webhook: WebhookRules | None = None
    # Where this account's requests may go: its own host, with the ranges that the file lists it with.
    own_hosts: tuple[ListedHost, ...] = ()


def read_file(path: Path, *, shown_as: str, environ: Mapping[str, str] | None = None) -> Declared:
    """Read one declaration; raises `DeclarationInvalid` with every fault that is in it.

    `shown_as` names the file in sentences. `environ` holds the values of `{ env = … }` references; one that
    isn't set makes the account "not configured" and is no fault.
    """
    environ = os.environ if environ is None else environ
    faults = Faults(shown_as)
    content = b""
    try:
        content = path.read_bytes()
        if len(content) > FILE_BYTES_MAX:
            raise ValueError(f"more than {FILE_BYTES_MAX} bytes")
        data = tomllib.loads(content.decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        sentence = f"{shown_as}: not a TOML file that can be read: {error}."
        raise DeclarationInvalid(sentence, problems=[sentence]) from None
    declared = _read(
        Table(data, name="", faults=faults),
        data=data,
        digest=hashlib.sha256(content).hexdigest(),
        shown_as=shown_as,
        environ=environ,
    )
    if faults.sentences or declared is None:
        raise DeclarationInvalid(" ".join(faults.sentences), problems=list(faults.sentences))
    return declared


def _read(
    top: Table, *, data: Mapping[str, Any], digest: str, shown_as: str, environ: Mapping[str, str]
) -> Declared | None:
    slug = top.text("slug", allowed="1 to 64 of a-z, 0-9 and hyphens")
    if slug and not _SLUG.match(slug):
        top.fault("slug", found=found_text(slug), allowed="1 to 64 of a-z, 0-9 and hyphens")
    title = top.text("title")
    adapter = top.text("adapter", ADAPTER)
    if adapter != ADAPTER:
        top.fault("adapter", found=found_text(adapter), allowed=ADAPTER)
    base_url, url_missing = _base_url(top, environ)
    credentials, secrets = _credentials(top, environ)
    names = tuple(secrets)
    contract_table = top.table("contract", required=True)
    contract = read_contract(contract_table) if contract_table else None
    send = top.table("send", required=True)
    lookup = top.table("lookup")
    http = HttpDeclaration(
        headers=read_headers(top, "headers", names),
        sends=read_requests(send, names, methods=("POST", "PUT", "PATCH"), default_method="POST")
        if send
        else {},
        answers=read_answers(send) if send else AnswerRules(),
        lookups=read_requests(lookup, names, methods=("GET",), default_method="GET") if lookup else {},
        lookup=read_lookup_rules(lookup) if lookup else LookupRules(),
        redact_names=top.words("redact"),
        secrets={name: value for name, value in secrets.items() if value is not None},
    )
    webhook = read_webhook(top, environ)
    own_hosts = own_host(base_url, read_ranges(top))
    tested = _tested(top)
    facts = top.tables("facts", _fact)
    region = top.text("region", "", empty=True)
    endpoint = top.optional_text("endpoint")
    documentation_url = top.optional_text("documentation_url")
    console_sends = top.flag("console_sends", False)
    top.finish()
    if contract is None:
        return None
    if not top.faults.sentences:
        _check_together(top, contract, http, has_lookup=lookup is not None)
    missing = [*url_missing, *(one.env for one in credentials if one.fingerprint is None)]
    every_tool = http.sends.get(EVERY_TOOL)
    account = ProviderAccount(
        slug=slug,
        title=title,
        adapter=ADAPTER,
        adapter_version=f"{ADAPTER_CODE_VERSION}.{_sending_digest(data)}",
        base_url=base_url,
        endpoint=endpoint or (every_tool.path.source if every_tool else ""),
        region=region,
        credentials=credentials,
        missing=tuple(missing),
        console_sends=console_sends,
        contract=contract,
        tested=tested,
        facts=facts,
        documentation_url=documentation_url or "",
        declaration_digest=digest,
        declared_in=shown_as,
    )
    return Declared(account=account, http=http, webhook=webhook, own_hosts=own_hosts)


def _sending_digest(data: Mapping[str, Any]) -> str:
    """What the declaration says about sending, in eight hex digits: other requests may be other effects."""
    contract = data.get("contract")
    contract = contract if isinstance(contract, dict) else {}
    parts = [data.get("headers"), data.get("send"), contract.get("key_field"), contract.get("key_format")]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:8]


# --- environment references ------------------------------------------------------------------------------


def _base_url(top: Table, environ: Mapping[str, str]) -> tuple[str | None, tuple[str, ...]]:
    allowed = 'a URL such as "https://api.example.com", or { env = "NAME" }'
    written = top.text_if_written("base_url")
    if written is not None:
        return _checked_url(top, "base_url", written), ()
    reference = top.table("base_url", required=True)
    if reference is None:
        return None, ()
    name = env_name(reference, "env", allowed=allowed)
    reference.finish()
    value = environ.get(name, "")
    if not value:
        return None, (name,) if name else ()
    return _checked_url(top, f"base_url = {{ env = {name} }}", value), ()


def _checked_url(top: Table, name: str, url: str) -> str | None:
    """The URL without a slash at its end. A wrong one isn't repeated: it may hold a password."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        top.fault(name, found="something else", allowed="http:// or https:// with a host, perhaps a path")
    elif parts.username is not None or parts.query or parts.fragment:
        top.fault(name, found="a user, a query or a fragment", allowed="scheme, host, port and path only")
    elif not re.fullmatch(r"[!-~]+", url):
        top.fault(name, found="spaces or characters beyond ASCII", allowed="a URL as it is sent")
    else:
        return url.rstrip("/")
    return None


def read_ranges(top: Table) -> tuple[AddressRange, ...]:
    """What the account's host may lead to beside public addresses: `reach = ["private", "loopback"]`."""
    written = top.words("reach")
    for word in written:
        if word not in LISTABLE:
            top.fault("reach", found=found_text(word), allowed="a list of private and loopback")
            return ()
    return tuple(AddressRange(word) for word in written)


def _credentials(
    top: Table, environ: Mapping[str, str]
) -> tuple[tuple[CredentialReference, ...], dict[str, str | None]]:
    table = top.table("credentials")
    if table is None:
        return (), {}
    references = []
    secrets: dict[str, str | None] = {}
    for name, value in table.members().items():
        if not isinstance(value, dict):
            # What stands there may be the secret itself, so it isn't repeated.
            table.fault(name, found="a value", allowed=SECRET_ALLOWED)
            continue
        inner = table.inner(name, value)
        secret = read_secret(inner, environ)
        inner.finish()
        secrets[name] = secret.value
        references.append(CredentialReference(name=name, env=secret.env, fingerprint=secret.fingerprint))
    return tuple(references), secrets


# --- what is known about it ------------------------------------------------------------------------------


def _tested(top: Table) -> Verification:
    table = top.table("tested")
    if table is None:
        return Verification(kind=VerifiedWith.NOTHING)
    tested = Verification(
        kind=table.choice("kind", VerifiedWith),
        peer=table.text("peer", "", empty=True),
        tested_on=table.day("tested_on"),
    )
    table.finish()
    return tested


def _fact(table: Table) -> Fact:
    known = sorted(one.name for one in fields(Contract))
    name = table.text("field", allowed="a field of [contract]")
    if name and name not in known:
        table.fault("field", found=found_text(name), allowed=", ".join(known))
    source = table.text("source", allowed="where a person can read it")
    read_on = table.day("read_on")
    if read_on is None:
        table.fault("read_on", found="nothing", allowed="the day it was read, such as 2026-11-29")
    return Fact(
        field=name, source=source, read_on=read_on or date.min, note=table.text("note", "", empty=True)
    )


def _check_together(top: Table, contract: Contract, http: HttpDeclaration, *, has_lookup: bool) -> None:
    """Note what is fine by itself and makes no sense beside the rest."""
    if has_lookup and contract.lookup is LookupKind.NONE:
        top.fault("lookup", found="a table", allowed="none, since [contract] lookup is none")
    if not has_lookup and contract.lookup is not LookupKind.NONE:
        top.fault("lookup", found="nothing", allowed="a table that says how to ask")
    if contract.key_format in (KeyFormat.HEADER_BARE, KeyFormat.HEADER_QUOTED) and contract.key_field:
        header = contract.key_field
        if not is_free_header(header):
            allowed = "a header that isn't the transport's own"
            top.fault("contract.key_field", found=found_text(header), allowed=allowed)
        for headers in (http.headers, *(request.headers for request in http.sends.values())):
            if any(name.lower() == header.lower() for name, _ in headers):
                top.fault("headers", found=header, allowed="no second place for the key")
    if contract.key_format is KeyFormat.BODY_FIELD:
        for tool, request in http.sends.items():
            if isinstance(request.body, dict) and contract.key_field in request.body:
                found = f"body.{contract.key_field}"
                top.fault(f"send {tool}", found=found, allowed="no second place for the key")
