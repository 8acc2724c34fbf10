"""Which way each promise is tighter, as data; and a provider's account as it is when it is held to less.

Tighter is what makes Recourse conclude less, repeat less or ask the provider less. Pure: `tightening` writes,
`effective` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, assert_never

from reconciliation.contracts import Contract, LookupKind, ProviderAccount, WindowKind

# As for a declared span: longer would hold every retry back for as long.
SPAN_MS_MAX: Final = 24 * 3600 * 1000
# A window or a retention is hardly ever promised for longer than years.
PERIOD_MS_MAX: Final = 10 * 366 * 24 * 3600 * 1000
RATE_MIN: Final = 0.01

# What a tightened field may hold; None is "nobody states it".
Held = int | float | bool | None


class Tighter(StrEnum):
    """Which of two values of a field trusts the provider less."""

    # The smaller one; nothing stated is looser than any number.
    SMALLER = "smaller"
    # The larger one.
    LARGER = "larger"
    # `False`: a yes can be taken away and not given.
    OFF = "off"


class Unit(StrEnum):
    """What a field's number counts."""

    MILLISECONDS = "ms"
    PER_SECOND = "per_second"
    SWITCH = "switch"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One field that may be tightened: how it is read of an account, and which way is tighter.

    `applies` says whether there is anything to tighten: a provider without a key has no window.
    """

    field: str
    tighter: Tighter
    unit: Unit
    read: Callable[[ProviderAccount], Held]
    applies: Callable[[ProviderAccount], bool] = lambda _: True
    low: float = 0
    high: float = SPAN_MS_MAX

    def is_tighter(self, than: Held, wanted: Held) -> bool:
        """Whether `wanted` trusts the provider strictly less than `than`."""
        match self.tighter:
            case Tighter.SMALLER:
                return wanted is not None and (than is None or wanted < than)
            case Tighter.LARGER:
                return wanted is not None and than is not None and wanted > than
            case Tighter.OFF:
                return than is True and wanted is False
        assert_never(self.tighter)


def _has_window(account: ProviderAccount) -> bool:
    return account.contract.dedup_window_ms is not None


def _has_lookup(account: ProviderAccount) -> bool:
    return account.contract.has_lookup


def _trusts_key(account: ProviderAccount) -> bool:
    contract = account.contract
    return contract.honours_key and contract.window_kind is not WindowKind.UNPUBLISHED


RULES: Final[tuple[Rule, ...]] = (
    Rule(
        field="key_window_trusted",
        tighter=Tighter.OFF,
        unit=Unit.SWITCH,
        read=_trusts_key,
        applies=lambda account: account.contract.honours_key,
    ),
    Rule(
        field="dedup_window_ms",
        tighter=Tighter.SMALLER,
        unit=Unit.MILLISECONDS,
        read=lambda account: account.contract.dedup_window_ms,
        applies=_has_window,
        low=1,
        high=PERIOD_MS_MAX,
    ),
    Rule(
        field="window_margin_ms",
        tighter=Tighter.LARGER,
        unit=Unit.MILLISECONDS,
        read=lambda account: account.contract.window_margin_ms,
        applies=_has_window,
        high=PERIOD_MS_MAX,
    ),
    Rule(
        field="rejection_replays",
        tighter=Tighter.OFF,
        unit=Unit.SWITCH,
        read=lambda account: account.contract.rejection_replays,
    ),
    Rule(
        field="lookups",
        tighter=Tighter.OFF,
        unit=Unit.SWITCH,
        read=_has_lookup,
    ),
    Rule(
        field="visibility_lag_ms",
        tighter=Tighter.LARGER,
        unit=Unit.MILLISECONDS,
        read=lambda account: account.contract.visibility_lag_ms,
        applies=lambda account: account.contract.visibility_lag_ms is not None,
        high=PERIOD_MS_MAX,
    ),
    Rule(
        field="lookup_retention_ms",
        tighter=Tighter.SMALLER,
        unit=Unit.MILLISECONDS,
        read=lambda account: account.contract.lookup_retention_ms,
        applies=_has_lookup,
        low=1,
        high=PERIOD_MS_MAX,
    ),
    Rule(
        field="absence_is_proof",
        tighter=Tighter.OFF,
        unit=Unit.SWITCH,
        read=lambda account: account.contract.absence_is_proof,
    ),
    Rule(
        field="rate_limit_per_second",
        tighter=Tighter.SMALLER,
        unit=Unit.PER_SECOND,
        read=lambda account: account.contract.rate_limit_per_second,
        low=RATE_MIN,
        high=100_000,
    ),
    Rule(
        field="in_flight_bound_ms",
        tighter=Tighter.LARGER,
        unit=Unit.MILLISECONDS,
        read=lambda account: account.contract.in_flight_bound_ms,
    ),
    Rule(
        field="console_sends",
        tighter=Tighter.OFF,
        unit=Unit.SWITCH,
        read=lambda account: account.console_sends,
    ),
)
BY_FIELD: Final[dict[str, Rule]] = {rule.field: rule for rule in RULES}


def values_of(account: ProviderAccount) -> dict[str, Held]:
    """Every field that may be tightened, as this account has it."""
    return {rule.field: rule.read(account) for rule in RULES}


def held_to(account: ProviderAccount, values: Mapping[str, Any]) -> ProviderAccount:
    """The account with these fields tightened; a value that isn't tighter than the account's own is left out.

    The account's file may have become stricter since, and the stricter counts. Names that no rule knows are
    left out too: an older process may read what a newer one wrote.
    """
    tighter = {
        rule.field: values[rule.field]
        for rule in RULES
        if rule.field in values
        and rule.applies(account)
        and rule.is_tighter(rule.read(account), values[rule.field])
    }
    if not tighter:
        return account
    contract = _contract(account.contract, tighter)
    return replace(
        account,
        contract=contract,
        console_sends=account.console_sends and tighter.get("console_sends", True) is True,
    )


def _contract(contract: Contract, tighter: Mapping[str, Any]) -> Contract:
    plain = {
        name: tighter[name]
        for name in (
            "dedup_window_ms",
            "window_margin_ms",
            "rejection_replays",
            "visibility_lag_ms",
            "lookup_retention_ms",
            "absence_is_proof",
            "rate_limit_per_second",
            "in_flight_bound_ms",
        )
        if name in tighter
    }
    held = replace(contract, **plain)
    if tighter.get("key_window_trusted") is False:
        # Still sent and perhaps still recognised; no instant is relied on any more.
        held = replace(held, window_kind=WindowKind.UNPUBLISHED, dedup_window_ms=None)
    if tighter.get("lookups") is False:
        # What can't be asked can't prove absence either, whatever an earlier lookup said.
        held = replace(held, lookup=LookupKind.NONE, absence_is_proof=False)
    return held
