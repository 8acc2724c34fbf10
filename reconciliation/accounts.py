"""Provider accounts: the journal's own table of them, and those that are no longer declared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from django.db import transaction

from reconciliation import effective, place
from reconciliation.contracts import (
    Contract,
    KeyFormat,
    KeyScope,
    LookupKind,
    OnInFlight,
    OnOtherPayload,
    Replays,
    Verification,
    VerifiedWith,
    WindowKind,
)
from reconciliation.contracts import ProviderAccount as DeclaredAccount
from reconciliation.providers import registry
from reconciliation.providers.base import ReceiptMatch
from runs.locking import database_now
from runs.models import ProviderAccount

# What a declaration says of an account's row; the rest of it is the journal's own.
BROUGHT: Final = (
    "title",
    "adapter_version",
    "endpoint",
    "region",
    "credential_fingerprint",
    "start_within_ms",
    "request_within_ms",
    "in_flight_ms",
    "synced_at",
)


def sync_accounts() -> list[str]:
    """Bring `runs.ProviderAccount` in line with the declarations; returns the slugs. Owns its transaction.

    Accounts that are no longer declared stay, for operations refer to them.
    """
    now = database_now()
    with transaction.atomic():
        # Whoever tightens or declares an account holds its row, so what they did is read once we hold it:
        # what had been read before would take back the longer quiet time that somebody has just set.
        rows = ProviderAccount.objects.select_for_update(no_key=True).order_by("slug")
        list(rows.values_list("slug", flat=True))
        effective.forget()
        accounts = effective.all_accounts()
        _bring(accounts, now=now)
    return [account.slug for account in accounts]


def sync_account(account: DeclaredAccount, *, now: datetime) -> None:
    """Bring the journal's row of one account in line with it; needs a transaction."""
    _bring([account], now=now)


def _bring(accounts: Sequence[DeclaredAccount], *, now: datetime) -> None:
    """In one statement, and in the order of the slugs, so that two who bring them wait for each other."""
    slugs = [account.slug for account in accounts]
    known = set(ProviderAccount.objects.filter(slug__in=slugs).values_list("slug", flat=True))
    rows = sorted((_row(account, now=now) for account in accounts), key=lambda row: row.slug)
    ProviderAccount.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["slug"], update_fields=BROUGHT
    )
    if known != set(slugs):
        # Those that were made may be new to a database whose sending is frozen.
        place.check_place()


def _row(account: DeclaredAccount, *, now: datetime) -> ProviderAccount:
    pin, contract = account.pin, account.contract
    return ProviderAccount(
        slug=account.slug,
        title=account.title,
        adapter_version=pin.adapter,
        endpoint=pin.endpoint,
        region=pin.region,
        credential_fingerprint=pin.credential_fingerprint,
        start_within_ms=contract.start_within_ms,
        request_within_ms=contract.request_within_ms,
        in_flight_ms=contract.in_flight_bound_ms,
        synced_at=now,
    )


_UNDECLARED = "undeclared"
# What is promised by an account that nobody describes any more: nothing at all.
_NO_PROMISE = Contract(
    key_field=None,
    key_format=KeyFormat.NONE,
    key_scope=KeyScope.NONE,
    dedup_window_ms=None,
    window_kind=WindowKind.NONE,
    window_margin_ms=0,
    on_other_payload=OnOtherPayload.UNKNOWN,
    on_in_flight=OnInFlight.UNKNOWN,
    replays=Replays.UNKNOWN,
    rejection_replays=False,
    proves_existence=(),
    lookup=LookupKind.NONE,
    visibility_lag_ms=None,
    lookup_retention_ms=None,
    absence_is_proof=False,
    match_fields=(),
    success_when=None,
    rate_limit_per_second=1,
    # An attempt's own quiet time is on record with it; these would be for attempts that can't be made.
    in_flight_bound_ms=0,
    start_within_ms=0,
    request_within_ms=0,
)


def account_of(slug: str) -> DeclaredAccount:
    """The account with the contract in force; one that promises nothing where its declaration is gone.

    Its operations stay: people must still see them and decide. Raises `DeclarationInvalid` if a file of the
    declarations can't be used, for then nothing is known to be gone.
    """
    try:
        return effective.account(slug)
    except registry.UnknownProvider:
        return DeclaredAccount(
            slug=slug,
            title=f"{slug} (no longer declared)",
            adapter=_UNDECLARED,
            adapter_version="",
            base_url=None,
            endpoint="",
            region="",
            credentials=(),
            missing=("its declaration",),
            console_sends=False,
            contract=_NO_PROMISE,
            tested=Verification(kind=VerifiedWith.NOTHING),
            facts=(),
        )


def is_declared(account: DeclaredAccount) -> bool:
    return account.adapter != _UNDECLARED


def not_comparable(match: ReceiptMatch) -> ReceiptMatch:
    """The match of a receipt that can't be held against anything: which fields must be equal is not known."""
    return replace(
        match, problems=("Its provider account is no longer declared: it can't be compared.", *match.problems)
    )
