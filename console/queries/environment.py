"""What the environment page reads: where this database is, what froze it, how far each account is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reconciliation import restoring
from reconciliation.accounts import account_of
from reconciliation.restoring import Progress
from runs import account_access
from runs.models import AccountReturn, Environment, Freeze, Orphan, ProviderAccount

# Newest first; what is older is found by its key at the provider.
ORPHANS_SHOWN_MAX = 200


@dataclass(frozen=True, kw_only=True)
class AccountRead:
    account: ProviderAccount
    # What it needs from the environment and doesn't find here, () where it is configured.
    missing: tuple[str, ...]
    back: AccountReturn | None
    progress: Progress | None


@dataclass(frozen=True, kw_only=True)
class EnvironmentRead:
    environment: Environment | None
    freeze: Freeze | None
    accounts: tuple[AccountRead, ...]
    orphans: tuple[Orphan, ...]
    more_orphans: bool


def read_environment(*, teams: Sequence[str]) -> EnvironmentRead:
    """Read it all; the few accounts that are there for these teams, and the newest orphans of them."""
    freeze = Freeze.objects.filter(ended_at__isnull=True).first()
    returns = (
        {one.account_id: one for one in AccountReturn.objects.filter(freeze=freeze).select_related("freeze")}
        if freeze is not None
        else {}
    )
    visible = list(account_access.open_to(teams))
    accounts = tuple(
        AccountRead(
            account=account,
            missing=account_of(account.slug).missing,
            back=returns.get(account.slug),
            progress=(
                restoring.progress_of(returns[account.slug])
                if account.slug in returns and returns[account.slug].opened_at is None
                else None
            ),
        )
        for account in visible
    )
    # Open ones first: "open" sorts after "linked".
    orphans = list(
        Orphan.objects.filter(account__in=[one.pk for one in visible])
        .select_related("account", "operation")
        .order_by("-state", "-id")[: ORPHANS_SHOWN_MAX + 1]
    )
    return EnvironmentRead(
        environment=Environment.objects.first(),
        freeze=freeze,
        accounts=accounts,
        orphans=tuple(orphans[:ORPHANS_SHOWN_MAX]),
        more_orphans=len(orphans) > ORPHANS_SHOWN_MAX,
    )
