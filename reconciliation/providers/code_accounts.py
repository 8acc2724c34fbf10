"""Accounts whose adapter is code: their files, checked as strictly as declared ones.

What such a provider promises is known and stands in the code, with its sources. The file says which account
it is, where its secrets are, what the adapter's own table asks for, and how much time we give ourselves.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Protocol

from reconciliation.contracts import Contract, Fact, ListingWay, LookupWay, ProviderAccount, Verification
from reconciliation.providers.base import Adapter
from reconciliation.providers.contract_table import SPAN_MS_MAX
from reconciliation.providers.declaration import Declared, HttpDeclaration, read_ranges
from reconciliation.providers.environment import Surroundings, read_surroundings
from reconciliation.providers.reach import own_host
from reconciliation.providers.request_tables import AnswerRules
from reconciliation.providers.secrets import env_name
from reconciliation.providers.tables import Table, found_text

# Where what we chose ourselves is written down.
OURS = "docs/providers/code.md"
_REGION = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}[A-Za-z0-9])?\Z")
_TEXT = re.compile(r"[!-~]{1,500}\Z")


def facts_from(source: str, read_on: date, notes: Mapping[str, str]) -> tuple[Fact, ...]:
    """What one source says of several of the contract's fields, a note for each."""
    return tuple(Fact(field=name, source=source, read_on=read_on, note=note) for name, note in notes.items())


class OpenAdapter(Adapter, Protocol):
    """An adapter that holds connections."""

    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Described:
    """What an adapter makes of its own table: what is promised there, and where effects are asked for."""

    contract: Contract
    # Where effects are asked for, relative to the base URL.
    endpoint: str = ""
    # Answers that the adapter calls unknown although their status would say more.
    answers: AnswerRules = field(default_factory=AnswerRules)
    settings: Mapping[str, str] = field(default_factory=dict)
    lookups: tuple[LookupWay, ...] = ()
    listing: ListingWay = field(default_factory=ListingWay)
    worker_sends: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeAdapter:
    """One adapter that is code.

    `describe` reads the adapter's own table, with the region and the environment; it notes faults there, and
    names of variables that aren't set in its last argument. `default_url` makes the base URL of a region,
    None where there is no such thing and the file must say it. `credentials` must be there, all or none of
    them where `credentials_required` is False.
    """

    name: str
    # Goes up when the adapter sends something else for the same operation.
    code_version: int
    describe: Callable[[Table, str, Mapping[str, str], list[str]], Described]
    make: Callable[[Declared], OpenAdapter]
    facts: tuple[Fact, ...]
    tested: Verification
    documentation_url: str
    schemes: tuple[str, ...] = ("https", "http")
    default_url: Callable[[str], str | None] = lambda region: None
    needs_region: bool = False
    credentials: tuple[str, ...] = ()
    optional_credentials: tuple[str, ...] = ()
    credentials_required: bool = True
    # Notes what is fine by itself and isn't beside the rest of the file.
    check_together: Callable[[Table, Described, Surroundings], None] = lambda top, described, around: None


def read_code_account(
    adapter: CodeAdapter,
    data: Mapping[str, Any],
    *,
    top: Table,
    digest: str,
    shown_as: str,
    environ: Mapping[str, str],
    slug: str,
) -> Declared | None:
    """Read the rest of a file that names this adapter; `top` already knows its slug and adapter."""
    title = top.text("title")
    missing: list[str] = []
    region = _region(adapter, top, environ, missing)
    # Without the region that it follows from, the URL is not a second thing that is missing.
    default_url = adapter.default_url(region) if region or not adapter.needs_region else ""
    around = read_surroundings(top, environ, schemes=adapter.schemes, default_url=default_url)
    own_hosts = own_host(around.base_url, read_ranges(top))
    _check_credentials(adapter, top, around)
    missing.extend(around.missing)
    own = top.table(adapter.name, required=True)
    described = None
    if own is not None:
        described = adapter.describe(own, region, environ, missing)
        own.finish()
        adapter.check_together(top, described, around)
    spans = _spans(top, described.contract) if described is not None else {}
    console_sends = top.flag("console_sends", False)
    documentation_url = top.optional_text("documentation_url")
    redact_names = top.words("redact")
    top.finish()
    if described is None:
        return None
    account = ProviderAccount(
        slug=slug,
        title=title,
        adapter=adapter.name,
        adapter_version=f"{adapter.code_version}.{_digest_of(data.get(adapter.name))}",
        base_url=around.base_url,
        endpoint=described.endpoint,
        region=region,
        credentials=around.credentials,
        missing=tuple(dict.fromkeys(missing)),
        console_sends=console_sends,
        contract=replace(described.contract, **spans),
        tested=adapter.tested,
        facts=adapter.facts,
        documentation_url=documentation_url or adapter.documentation_url,
        declaration_digest=digest,
        declared_in=shown_as,
        lookups=described.lookups,
        listing=described.listing,
        worker_sends=described.worker_sends,
    )
    http = HttpDeclaration(
        headers=(),
        sends={},
        answers=described.answers,
        lookups=(),
        redact_names=redact_names,
        secrets={name: value for name, value in around.secrets.items() if value is not None},
        settings=described.settings,
    )
    return Declared(account=account, http=http, own_hosts=own_hosts)


def _region(adapter: CodeAdapter, top: Table, environ: Mapping[str, str], missing: list[str]) -> str:
    if not adapter.needs_region and "region" not in top:
        return ""
    allowed = "a region's name, such as eu-west-1"
    region = text_or_env(top, "region", environ, missing, allowed=allowed)
    if region and not _REGION.match(region):
        top.fault("region", found=found_text(region), allowed=allowed)
        return ""
    return region


def text_or_env(
    table: Table, name: str, environ: Mapping[str, str], missing: list[str], *, allowed: str
) -> str:
    """A text, or the value of `{ env = "NAME" }`; empty where there is none, which is then missing."""
    written = table.text_if_written(name)
    if written is None:
        reference = table.table(name, required=True)
        if reference is None:
            return ""
        variable = env_name(reference, "env", allowed=f'{allowed}, or {{ env = "NAME" }}')
        default = reference.optional_text("default")
        reference.finish()
        written = environ.get(variable, "") or default or ""
        if not written:
            if variable:
                missing.append(variable)
            return ""
    if not _TEXT.match(written):
        table.fault(name, found=found_text(written), allowed=allowed)
        return ""
    return written


def _check_credentials(adapter: CodeAdapter, top: Table, around: Surroundings) -> None:
    known = (*adapter.credentials, *adapter.optional_credentials)
    names = [one.name for one in around.credentials]
    for name in names:
        if name not in known:
            top.fault("credentials", found=found_text(name), allowed=", ".join(known) or "nothing")
    lacking = [name for name in adapter.credentials if name not in names]
    if lacking and (adapter.credentials_required or names):
        top.fault(
            "credentials",
            found=f"nothing for {' and '.join(lacking)}",
            allowed='{ env = "NAME" } for ' + " and ".join(adapter.credentials),
        )


def _spans(top: Table, contract: Contract) -> dict[str, Any]:
    """The few fields of the contract that are ours to choose; what the provider promises isn't."""
    table = top.table("contract")
    if table is None:
        return {}
    chosen = {
        "in_flight_bound_ms": table.whole(
            "in_flight_bound_ms",
            contract.in_flight_bound_ms,
            low=contract.in_flight_bound_ms,
            high=SPAN_MS_MAX,
        ),
        "start_within_ms": table.whole(
            "start_within_ms", contract.start_within_ms, low=100, high=SPAN_MS_MAX
        ),
        "request_within_ms": table.whole(
            "request_within_ms", contract.request_within_ms, low=100, high=SPAN_MS_MAX
        ),
        "rate_limit_per_second": table.rate("rate_limit_per_second")
        if "rate_limit_per_second" in table
        else contract.rate_limit_per_second,
    }
    table.finish()
    return chosen


def _digest_of(own: object) -> str:
    return hashlib.sha256(json.dumps(own, sort_keys=True, default=str).encode()).hexdigest()[:8]
