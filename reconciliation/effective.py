"""The contract in force: the declared account, held to what an administrator has tightened.

Everything that concludes, sends or asks goes through here. What is tightened, and what is declared in the
console, is kept for a moment in each process, so that a report or a row of the queue costs no query of its
own; a change counts at once in the process that made it and within `RECOURSE_PROVIDERS_CHECK_SECONDS` in
every other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import F, QuerySet, Value

from reconciliation.contracts import ProviderAccount
from reconciliation.models import Declaration, Tightening
from reconciliation.providers import registry
from reconciliation.providers.base import Adapter
from reconciliation.strictness import held_to


@dataclass(frozen=True)
class _Read:
    """What was tightened, by account, and when by this process's clock that was read.

    What is declared in the console is read with it, and held by the registry.
    """

    values: Mapping[str, Mapping[str, Any]]
    at: float


# Cases of an account that is gone must not cost a query each.
UNKNOWN_AGAIN_SECONDS = 0.2

_lock = threading.Lock()
_last: _Read | None = None


def account(slug: str) -> ProviderAccount:
    """The account with the contract in force; raises as `registry.account` does."""
    tightened = _tightened()
    try:
        declared = registry.account(slug)
    except registry.UnknownProvider:
        # It may have been declared a moment ago, in another process.
        if not _read_again():
            raise
        tightened = _tightened()
        declared = registry.account(slug)
    return held_to(declared, tightened.get(slug, {}))


def all_accounts() -> tuple[ProviderAccount, ...]:
    """Every declared account with the contract in force, by slug."""
    tightened = _tightened()
    return tuple(held_to(one, tightened.get(one.slug, {})) for one in registry.all_accounts())


def adapter(slug: str) -> Adapter:
    """The account's adapter, concluding by the contract in force."""
    return registry.adapter(slug, contract=account(slug).contract)


def refresh() -> None:
    """Let the registry hold what is declared in the console, for whoever asks it directly."""
    _tightened()


def forget() -> None:
    """Read anew when somebody next asks; for the process that has just changed something."""
    global _last  # noqa: PLW0603 - one copy for each process
    with _lock:
        _last = None


def _read_again() -> bool:
    """Whether what was read is old enough to be read again, for the sake of an account that isn't there."""
    last = _last
    if last is not None and time.monotonic() - last.at < UNKNOWN_AGAIN_SECONDS:
        return False
    forget()
    return True


def _tightened() -> Mapping[str, Mapping[str, Any]]:
    global _last  # noqa: PLW0603 - one copy for each process
    last, now = _last, time.monotonic()
    if last is not None and now - last.at < settings.RECOURSE_PROVIDERS_CHECK_SECONDS:
        return last.values
    rows = list(_newest())
    registry.hold(tuple(registry.Stored(slug, number, text) for slug, number, _, text in rows if text))
    read = _Read(values={slug: held for slug, _, held, text in rows if not text}, at=now)
    with _lock:
        # Whoever was told to forget meanwhile is read for again.
        if _last is last:
            _last = read
    return read.values


def _newest() -> QuerySet[Any, tuple[Any, ...]]:
    """Account, number, what is tightened, and the declaration's text, of the newest of each, in one query."""
    tightened = Tightening.objects.annotate(
        held=F("values"), declared=Value("", output_field=models.TextField())
    )
    declared = Declaration.objects.annotate(
        held=Value(None, output_field=models.JSONField()), declared=F("text")
    )
    newest, and_of_declared = (
        rows.order_by("account", "-number")
        .distinct("account")
        .values_list("account", "number", "held", "declared")
        for rows in (tightened, declared)
    )
    return newest.union(and_of_declared, all=True)
