"""A provider declared as data: what a TOML file says, checked and typed.

`docs/providers/declared.md` explains the file to the people who write one. Reading is strict: a file either
is wholly understood or is refused with every fault in it.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import date
from pathlib import Path
from typing import Any

from reconciliation.contracts import (
    Contract,
    Fact,
    KeyFormat,
    ProviderAccount,
    Verification,
    VerifiedWith,
)
from reconciliation.providers.contract_table import read_contract
from reconciliation.providers.environment import (
    Authorization,
    Surroundings,
    read_authorization,
    read_surroundings,
)
from reconciliation.providers.listing_table import ListingRules, read_listing
from reconciliation.providers.lookup_tables import LookupStep, check_lookups, read_lookups
from reconciliation.providers.making_absent_table import AbsenceRules, read_make_absent
from reconciliation.providers.reach import LISTABLE, AddressRange, ListedHost, own_host
from reconciliation.providers.request_tables import (
    EVERY_TOOL,
    AnswerRules,
    RequestTemplate,
    is_free_header,
    read_answers,
    read_headers,
    read_requests,
)
from reconciliation.providers.tables import DeclarationInvalid, Faults, Table, found_text
from reconciliation.providers.templates import Template
from reconciliation.providers.webhook_table import WebhookRules, read_webhook

ADAPTER = "http_declared"
# Goes up when the adapter sends something else for the same declaration: a key sent by the old code is then
# not taken to protect what the new code would send.
ADAPTER_CODE_VERSION = 1
FILE_BYTES_MAX = 256 * 1024
# Nothing that is declared has half as many.
LEVELS_MAX = 20

# What a fact may be about beside the fields of the contract.
LISTING = "listing"
MAKE_ABSENT = "make_absent"

_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?\Z")


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpDeclaration:
    """What the declared HTTP adapter needs beyond the account: requests by tool ("" is every other tool).

    `lookups` are the ways to ask, the strongest first.
    """

    headers: tuple[tuple[str, Template], ...]
    sends: Mapping[str, RequestTemplate]
    answers: AnswerRules
    lookups: tuple[LookupStep, ...]
    authorization: Authorization | None = None
    redact_names: tuple[str, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    settings: Mapping[str, str] = field(default_factory=dict)
    # How to list what was made in a span of time, without an operation to ask about; None where it can't be.
    listing: ListingRules | None = None
    # How to make sure that an effect isn't there; None where the provider offers nothing of the kind.
    absence: AbsenceRules | None = None

    def send_for(self, tool: str) -> RequestTemplate | None:
        return self.sends.get(tool) or self.sends.get(EVERY_TOOL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Declared:
    """One file, read: the account that everyone sees, and what its adapter needs."""

    account: ProviderAccount
    http: HttpDeclaration
    # How the provider's own notices are checked and read; None where it sends none.
    webhook: WebhookRules | None = None
    # Where this account's requests may go: its own host, with the ranges that the file lists it with.
    own_hosts: tuple[ListedHost, ...] = ()
    # Whether it was declared in the console; a file otherwise.
    stored: bool = False


def read_file(path: Path, *, shown_as: str, environ: Mapping[str, str] | None = None) -> Declared:
    """Read one declaration; raises `DeclarationInvalid` with every fault that is in it.

    `shown_as` names the file in sentences. `environ` holds the values of `{ env = … }` references; one that
    isn't set makes the account "not configured" and is no fault.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _unreadable(shown_as, error) from None
    return read_content(content, shown_as=shown_as, environ=environ)


def parse_toml(text: str) -> dict[str, Any]:
    """What the text says; raises `ValueError`, also for more levels than anything declared has.

    A dotted name has as many levels as it has dots, and whoever walks through those would fall.
    """
    too_deep = f"more than {LEVELS_MAX} levels of tables"
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise ValueError(too_deep) from None
    level: list[Any] = [data]
    for _ in range(LEVELS_MAX):
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
    if level:
        raise ValueError(too_deep)
    return data


def read_content(content: bytes, *, shown_as: str, environ: Mapping[str, str] | None = None) -> Declared:
    """Read one declaration from its bytes; as `read_file`."""
    environ = os.environ if environ is None else environ
    faults = Faults(shown_as)
    try:
        if len(content) > FILE_BYTES_MAX:
            raise ValueError(f"more than {FILE_BYTES_MAX} bytes")
        data = parse_toml(content.decode("utf-8"))
    except ValueError as error:
        raise _unreadable(shown_as, error) from None
    declared = _read(
        Table(data, name="", faults=faults),
        data=data,
        digest=hashlib.sha256(content).hexdigest(),
        shown_as=shown_as,
        environ=environ,
    )
    if faults.sentences or declared is None:
        raise DeclarationInvalid(
            " ".join(faults.sentences), problems=list(faults.sentences), places=list(faults.places)
        )
    return declared


def _unreadable(shown_as: str, error: Exception) -> DeclarationInvalid:
    sentence = f"{shown_as}: not a TOML file that can be read: {error}."
    return DeclarationInvalid(sentence, problems=[sentence], places=[""])


def _read(
    top: Table, *, data: Mapping[str, Any], digest: str, shown_as: str, environ: Mapping[str, str]
) -> Declared | None:
    slug = top.text("slug", allowed="1 to 64 of a-z, 0-9 and hyphens")
    if slug and not _SLUG.match(slug):
        top.fault("slug", found=found_text(slug), allowed="1 to 64 of a-z, 0-9 and hyphens")
    adapter = top.text("adapter", ADAPTER)
    if adapter != ADAPTER:
        # Adapters that are code are read by it, and import what is above.
        from reconciliation.providers.code_adapters import CODE_ADAPTERS, read_code_account

        if (code := CODE_ADAPTERS.get(adapter)) is not None:
            return read_code_account(
                code, data, top=top, digest=digest, shown_as=shown_as, environ=environ, slug=slug
            )
        adapters = [ADAPTER, *CODE_ADAPTERS]
        near = difflib.get_close_matches(adapter, adapters, n=1)
        hint = f"Did you mean {near[0]}?" if near else ""
        top.fault("adapter", found=found_text(adapter), allowed=", ".join(adapters), hint=hint)
    title = top.text("title")
    around = read_surroundings(top, environ)
    known = around.known
    contract_table = top.table("contract", required=True)
    contract = read_contract(contract_table) if contract_table else None
    send = top.table("send", required=True)
    listing = read_listing(top, known)
    absence = read_make_absent(top, known)
    http = HttpDeclaration(
        headers=read_headers(top, "headers", known),
        authorization=read_authorization(top, known),
        sends=read_requests(send, known, methods=("POST", "PUT", "PATCH"), default_method="POST")
        if send
        else {},
        answers=read_answers(send) if send else AnswerRules(),
        lookups=read_lookups(top, known),
        listing=listing.rules,
        absence=absence.rules if absence is not None else None,
        redact_names=top.words("redact"),
        secrets={name: value for name, value in around.secrets.items() if value is not None},
        settings=around.settings,
    )
    webhook = read_webhook(top, environ)
    own_hosts = own_host(around.base_url, read_ranges(top))
    tested = _tested(top)
    facts = tuple(one for group in top.tables("facts", _facts) for one in group)
    region = top.text("region", "", empty=True)
    endpoint = top.optional_text("endpoint")
    documentation_url = top.optional_text("documentation_url")
    console_sends = top.flag("console_sends", False)
    worker_sends = top.text("worker_sends", "")
    top.finish()
    if contract is None:
        return None
    if not top.faults.sentences:
        _check_together(top, contract, http)
    contract = replace(contract, receipt=replace(contract.receipt, answer_at=http.answers.receipt_at))
    account = ProviderAccount(
        slug=slug,
        title=title,
        adapter=ADAPTER,
        adapter_version=f"{ADAPTER_CODE_VERSION}.{_sending_digest(data)}",
        base_url=around.base_url,
        endpoint=_with_settings(endpoint or _every_path(http), around),
        region=region,
        credentials=around.credentials,
        missing=around.missing,
        console_sends=console_sends,
        contract=contract,
        tested=tested,
        facts=facts,
        documentation_url=documentation_url or "",
        declaration_digest=digest,
        declared_in=shown_as,
        lookups=tuple(step.way(contract) for step in http.lookups),
        listing=listing.way(contract),
        make_absent=absence.way if absence is not None else None,
        worker_sends=worker_sends,
    )
    return Declared(account=account, http=http, webhook=webhook, own_hosts=own_hosts)


def read_ranges(top: Table) -> tuple[AddressRange, ...]:
    """What the account's host may lead to beside public addresses: `reach = ["private", "loopback"]`."""
    written = top.words("reach")
    for word in written:
        if word not in LISTABLE:
            top.fault("reach", found=found_text(word), allowed="a list of private and loopback")
            return ()
    return tuple(AddressRange(word) for word in written)


def _sending_digest(data: Mapping[str, Any]) -> str:
    """What the declaration says about sending, in eight hex digits: other requests may be other effects."""
    contract = data.get("contract")
    contract = contract if isinstance(contract, dict) else {}
    parts = [data.get("headers"), data.get("send"), contract.get("key_field"), contract.get("key_format")]
    if "authorization" in data:
        parts.append(data["authorization"])
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:8]


def _every_path(http: HttpDeclaration) -> str:
    every_tool = http.sends.get(EVERY_TOOL)
    return every_tool.path.source if every_tool else ""


def _with_settings(path: str, around: Surroundings) -> str:
    """The path with its settings filled in: the same file for another account is another endpoint."""
    for name, value in around.settings.items():
        path = path.replace(f"{{setting.{name}}}", value)
    return path


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


def _facts(table: Table) -> tuple[Fact, ...]:
    """One source may be where several fields come from: `field`, or a list `fields`."""
    known = sorted([*(one.name for one in fields(Contract)), LISTING, MAKE_ABSENT])
    names = table.words("fields")
    if not names or "field" in table:
        names = (*names, table.text("field", allowed="a field of [contract], or fields = [several]"))
    for name in names:
        if name and name not in known:
            table.fault("field", found=found_text(name), allowed=", ".join(known))
    source = table.text("source", allowed="where a person can read it")
    read_on = table.day("read_on")
    if read_on is None:
        table.fault("read_on", found="nothing", allowed="the day it was read, such as 2026-11-29")
    note = table.text("note", "", empty=True)
    return tuple(Fact(field=name, source=source, read_on=read_on or date.min, note=note) for name in names)


def _check_together(top: Table, contract: Contract, http: HttpDeclaration) -> None:
    """Note what is fine by itself and makes no sense beside the rest."""
    check_lookups(top, contract, http.lookups)
    written = [*http.headers, *(pair for request in http.sends.values() for pair in request.headers)]
    if http.authorization is not None and any(name.lower() == "authorization" for name, _ in written):
        top.fault("headers", found="Authorization", allowed="nothing beside [authorization]")
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
            if contract.key_field in {**(request.body or {}), **request.add}:
                found = f"body.{contract.key_field}"
                top.fault(f"send {tool}", found=found, allowed="no second place for the key")
