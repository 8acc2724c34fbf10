"""The contract in force: the declared account, held to what an administrator has tightened.

Everything that concludes, sends or asks goes through here. What is tightened is kept for a moment in each
process, so that a report or a row of the queue costs no query of its own; a change counts at once in the
process that made it and within `RECOURSE_PROVIDERS_CHECK_SECONDS` in every other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from reconciliation.contracts import ProviderAccount
from reconciliation.models import Tightening
from reconciliation.providers import registry
from reconciliation.providers.base import Adapter
from reconciliation.strictness import held_to


@dataclass(frozen=True)
class _Read:
    """What was tightened, by account, and when by this process's clock that was read."""

    values: Mapping[str, Mapping[str, Any]]
    at: float


_lock = threading.Lock()
_last: _Read | None = None


def account(slug: str) -> ProviderAccount:
    """The account with the contract in force; raises as `registry.account` does."""
    return held_to(registry.account(slug), _tightened().get(slug, {}))


def all_accounts() -> tuple[ProviderAccount, ...]:
    """Every declared account with the contract in force, by slug."""
    tightened = _tightened()
    return tuple(held_to(one, tightened.get(one.slug, {})) for one in registry.all_accounts())


def adapter(slug: str) -> Adapter:
    """The account's adapter, concluding by the contract in force."""
    return registry.adapter(slug, contract=account(slug).contract)


def forget() -> None:
    """Read anew when somebody next asks; for the process that has just changed something."""
    global _last  # noqa: PLW0603 - one copy for each process
    with _lock:
        _last = None


def _tightened() -> Mapping[str, Mapping[str, Any]]:
    global _last  # noqa: PLW0603 - one copy for each process
    last, now = _last, time.monotonic()
    if last is not None and now - last.at < settings.RECOURSE_PROVIDERS_CHECK_SECONDS:
        return last.values
    newest = Tightening.objects.order_by("account", "-number").distinct("account")
    read = _Read(values=dict(newest.values_list("account", "values")), at=now)
    with _lock:
        # Whoever was told to forget meanwhile is read for again.
        if _last is last:
            _last = read
    return read.values
