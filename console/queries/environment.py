"""What the environment page reads: where this database is, what froze it, how far each account is."""

from __future__ import annotations

from dataclasses import dataclass

from reconciliation import restoring
from reconciliation.restoring import Progress
from runs.models import AccountReturn, Environment, Freeze, Orphan, ProviderAccount

# Newest first; what is older is found by its key at the provider.
ORPHANS_SHOWN_MAX = 200


@dataclass(frozen=True, kw_only=True)
class AccountRead:
    account: ProviderAccount
    back: AccountReturn | None
    progress: Progress | None


@dataclass(frozen=True, kw_only=True)
class EnvironmentRead:
    environment: Environment | None
    freeze: Freeze | None
    accounts: tuple[AccountRead, ...]
    orphans: tuple[Orphan, ...]
    more_orphans: bool


def read_environment() -> EnvironmentRead:
    """Read it all; the few accounts of a deployment, and the newest orphans."""
    freeze = Freeze.objects.filter(ended_at__isnull=True).first()
    returns = (
        {one.account_id: one for one in AccountReturn.objects.filter(freeze=freeze).select_related("freeze")}
        if freeze is not None
        else {}
    )
    accounts = tuple(
        AccountRead(
            account=account,
            back=returns.get(account.slug),
            progress=(
                restoring.progress_of(returns[account.slug])
                if account.slug in returns and returns[account.slug].opened_at is None
                else None
            ),
        )
        for account in ProviderAccount.objects.order_by("slug")
    )
    # Open ones first: "open" sorts after "linked".
    orphans = list(
        Orphan.objects.select_related("account", "operation").order_by("-state", "-id")[
            : ORPHANS_SHOWN_MAX + 1
        ]
    )
    return EnvironmentRead(
        environment=Environment.objects.first(),
        freeze=freeze,
        accounts=accounts,
        orphans=tuple(orphans[:ORPHANS_SHOWN_MAX]),
        more_orphans=len(orphans) > ORPHANS_SHOWN_MAX,
    )
