"""Copy what a send must know from the declared provider accounts into the journal's own table."""

from __future__ import annotations

from django.db import transaction

from reconciliation.providers import registry
from runs.locking import database_now
from runs.models import ProviderAccount


def sync_accounts() -> list[str]:
    """Bring `runs.ProviderAccount` in line with the declarations; returns the slugs. Owns its transaction.

    Accounts that are no longer declared stay, for operations refer to them.
    """
    now = database_now()
    slugs = []
    with transaction.atomic():
        for account in registry.all_accounts():
            pin, contract = account.pin, account.contract
            ProviderAccount.objects.update_or_create(
                slug=account.slug,
                defaults={
                    "title": account.title,
                    "adapter_version": pin.adapter,
                    "endpoint": pin.endpoint,
                    "region": pin.region,
                    "credential_fingerprint": pin.credential_fingerprint,
                    "start_within_ms": contract.start_within_ms,
                    "request_within_ms": contract.request_within_ms,
                    "in_flight_ms": contract.in_flight_bound_ms,
                    "synced_at": now,
                },
            )
            slugs.append(account.slug)
    return slugs
