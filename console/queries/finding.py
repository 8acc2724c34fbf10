"""Find what an exact id, key or reference names, among what the person's teams own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reconciliation.models import Case, Decision
from runs.models import Evidence, Grant, Operation, ProviderAccount, Receipt, Run

# A key or reference names one thing; an external id may be used by several flows.
HITS_MAX = 20
QUERY_LENGTH_MAX = 300


@dataclass(frozen=True, kw_only=True)
class Named:
    """What was found, by its kind; each list bounded by `HITS_MAX`."""

    runs: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    # Evidence is shown on the page of its operation's latest case.
    evidence: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.runs or self.operations or self.cases)


def clean(query: str) -> str:
    """The words as they can be looked up: bounded, and without what the database can't hold."""
    text = query.strip()[:QUERY_LENGTH_MAX]
    return "" if "\x00" in text or any(0xD800 <= ord(one) < 0xE000 for one in text) else text


def find_named(query: str, *, teams: Sequence[str]) -> Named:
    """Find by exact id, idempotency key, external id of a run, or reference of a receipt.

    At most three queries; each by a unique or an ordinary index.
    """
    text = clean(query)
    if not text or not teams:
        return Named()
    prefix = text.partition("_")[0]
    match prefix:
        case "run":
            return Named(runs=_ids(Run.objects.filter(pk=text, team__in=teams)))
        case "op":
            return Named(operations=_ids(Operation.objects.filter(pk=text, team__in=teams)))
        case "case":
            return Named(cases=_ids(Case.objects.filter(pk=text, team__in=teams)))
        case "ev" | "rcpt" | "grant" | "dec":
            return _by_part(prefix, text, teams) or _by_outside_name(text, teams)
        case _:
            return _by_outside_name(text, teams)


def _ids(rows: object) -> tuple[str, ...]:
    return tuple(rows.values_list("pk", flat=True)[:HITS_MAX])  # type: ignore[attr-defined]


def _by_part(prefix: str, text: str, teams: Sequence[str]) -> Named:
    """By the id of something that belongs to an operation."""
    model = {"ev": Evidence, "rcpt": Receipt, "grant": Grant, "dec": Decision}[prefix]
    rows = model._default_manager.filter(pk=text, operation__team__in=teams)
    operations = tuple(rows.values_list("operation_id", flat=True)[:HITS_MAX])
    return Named(operations=operations, evidence=(text,) if prefix == "ev" and operations else ())


def _by_outside_name(text: str, teams: Sequence[str]) -> Named:
    operations = list(
        Operation.objects.filter(key=text, team__in=teams).values_list("pk", flat=True)[:HITS_MAX]
    )
    # Through every account, because the index starts with it; there are few accounts.
    accounts = list(ProviderAccount.objects.values_list("slug", flat=True))
    operations += Receipt.objects.filter(
        provider__in=accounts, reference=text, operation__team__in=teams
    ).values_list("operation_id", flat=True)[:HITS_MAX]
    runs = Run.objects.filter(external_id=text, team__in=teams).order_by("-created_at")
    return Named(operations=tuple(dict.fromkeys(operations)), runs=_ids(runs))
