"""Providers: the list of accounts, and one with its contract in force, its tightenings and its open cases."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db.models import Q, QuerySet

from console.queries.people import Names
from console.queries.webhooks import Notices, notices_of
from reconciliation import effective
from reconciliation.accounts import account_of
from reconciliation.breaking import BreakerState
from reconciliation.contracts import ProviderAccount
from reconciliation.declaring import newest_declaration
from reconciliation.gate_models import AccountGate
from reconciliation.health import AccountHealth, account_health
from reconciliation.models import Case, Declaration, Tightening
from reconciliation.providers import registry
from reconciliation.providers.tables import DeclarationInvalid
from reconciliation.states import CaseState
from runs import account_access
from runs.locking import database_now
from runs.models import ProviderAccount as JournalAccount

# Open cases are looked through once for all accounts; beyond this many the counts say "+".
CASES_MAX: Final = 10_000
TIGHTENINGS_MAX: Final = 50
_OPEN: Final = tuple(str(state) for state in CaseState if state is not CaseState.RESOLVED)


@dataclass(frozen=True, kw_only=True)
class OpenCases:
    """How many cases of an account are open, and how many of them wait for a person; `capped` at a limit."""

    open: int = 0
    waiting: int = 0
    capped: bool = False


@dataclass(frozen=True, kw_only=True)
class Listed:
    """Every account with the contract in force; those that are no longer declared come last."""

    now: datetime
    accounts: tuple[ProviderAccount, ...]
    # Shipped for well-known providers, and not named by this installation.
    offered: tuple[ProviderAccount, ...]
    undeclared: tuple[ProviderAccount, ...]
    tightened: frozenset[str]
    cases: Mapping[str, OpenCases]
    # The accounts that aren't asked as usual: breaker not closed, or a pause that the provider asked for.
    held: Mapping[str, AccountGate]
    problems: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ProviderRead:
    """One account: as it is declared, as it is held, and what is open there."""

    now: datetime
    account: ProviderAccount
    # None where the account isn't used here: its declaration is gone, or it is only offered.
    declared: ProviderAccount | None
    tightenings: tuple[Tightening, ...]
    names: Names
    cases: OpenCases
    # None where the declaration is gone: nothing is asked there.
    health: AccountHealth | None
    # None where the account takes no notices of its provider.
    notices: Notices | None
    # Whether the journal has taken the account in, so that an effect can be sent there.
    known_to_journal: bool
    # Shipped with Recourse, and not named by this installation.
    offered: bool
    # Declared in the console, where an administrator may declare it anew; the declaration that is in force.
    stored: bool
    declaration: Declaration | None
    # The teams that alone may use it, () where every team may; and those of them that are the viewer's.
    named_teams: tuple[str, ...]
    own_named: tuple[str, ...]

    @property
    def number(self) -> int:
        """The number of the tightening in force, 0 for none."""
        return self.tightenings[0].number if self.tightenings else 0


def list_providers(*, teams: Sequence[str]) -> Listed:
    """Read every account that is there for these teams; where a file can't be used, what is wrong with it."""
    problems = registry.problems()
    try:
        everybodys = effective.all_accounts()
        problems += registry.set_aside()
    except DeclarationInvalid:
        everybodys = ()
    closed = account_access.closed_to(teams)
    accounts = tuple(one for one in everybodys if one.slug not in closed)
    declared = {one.slug for one in everybodys}
    offered = tuple(one for one in _catalogue() if one.slug not in declared | closed)
    known = JournalAccount.objects.exclude(pk__in=declared).order_by("slug").values_list("slug", flat=True)
    tightened = Tightening.objects.order_by("account").values_list("account", flat=True).distinct()
    now = database_now()
    return Listed(
        now=now,
        accounts=accounts,
        offered=offered,
        undeclared=()
        if problems and not everybodys
        else tuple(account_of(slug) for slug in known if slug not in closed),
        tightened=frozenset(tightened),
        cases=open_cases(teams=teams),
        held={gate.account_id: gate for gate in _held(now)},
        problems=_told_to(problems, everybodys, closed),
    )


def _told_to(
    problems: tuple[str, ...], everybodys: tuple[ProviderAccount, ...], closed: frozenset[str]
) -> tuple[str, ...]:
    """Without the faults of what declares others' accounts: a file goes by its name, which may tell theirs.

    A declaration of the console is named by its account.
    """
    files = [one.declared_in for one in everybodys if one.slug in closed and one.declared_in]
    return tuple(
        one
        for one in problems
        if one.partition(",")[0] not in closed
        and not any(one.startswith(f"{file}:") or f" {file} " in one for file in files)
    )


def read_provider(slug: str, *, teams: Sequence[str]) -> ProviderRead:
    """Read one account; raises `NotFound` where no declaration, shipped or own, nor the journal knows it.

    So it does where the account is there for other teams alone.
    """
    effective.refresh()
    declared = next((one for one in registry.all_accounts() if one.slug == slug), None)
    offered = next((one for one in _catalogue() if one.slug == slug), None) if declared is None else None
    # One row for each team that is named, one without a team where none is, none where it isn't known.
    rows = (
        JournalAccount.objects.filter(pk=slug).order_by("named__team").values_list("named__team", flat=True)
    )
    known = list[str | None](rows)
    named = tuple(team for team in known if team is not None)
    closed = bool(named) and set(named).isdisjoint(teams)
    if closed or (declared is None and offered is None and not known):
        raise account_access.not_there(slug)
    tightenings = tuple(Tightening.objects.filter(account=slug).order_by("-number")[:TIGHTENINGS_MAX])
    now, stored = database_now(), registry.is_stored(slug)
    declaration = newest_declaration(slug) if stored else None
    return ProviderRead(
        now=now,
        account=offered or account_of(slug),
        declared=declared,
        tightenings=tightenings,
        names=Names([*(one.actor for one in tightenings), *([declaration.actor] if declaration else [])]),
        cases=open_cases(teams=teams, slug=slug).get(slug, OpenCases()),
        health=account_health(slug, now) if declared is not None else None,
        notices=notices_of(slug, now),
        known_to_journal=bool(known),
        offered=offered is not None,
        stored=stored,
        declaration=declaration,
        named_teams=named,
        own_named=tuple(one for one in named if one in teams),
    )


def _held(now: datetime) -> QuerySet[AccountGate]:
    return AccountGate.objects.filter(~Q(breaker_state=BreakerState.CLOSED) | Q(paused_until_at__gt=now))


def _catalogue() -> tuple[ProviderAccount, ...]:
    try:
        return registry.catalogue()
    except DeclarationInvalid:
        # A fault in what is shipped shows among the faults as soon as somebody names the account.
        return ()


def open_cases(*, teams: Sequence[str], slug: str = "") -> dict[str, OpenCases]:
    """Count the teams' open cases of each account (or of one), up to `CASES_MAX` in all."""
    rows = Case.objects.filter(team__in=teams, state__in=_OPEN)
    if slug:
        rows = rows.filter(provider_slug=slug)
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    read = list(rows.values_list("provider_slug", "state")[: CASES_MAX + 1])
    for account, state in read[:CASES_MAX]:
        counts[account][0] += 1
        counts[account][1] += state == CaseState.NEEDS_DECISION
    capped = len(read) > CASES_MAX
    return {
        account: OpenCases(open=opened, waiting=waiting, capped=capped)
        for account, (opened, waiting) in counts.items()
    }
