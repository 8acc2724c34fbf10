"""The `[listing]` of a declared provider: how to list what was made in a span of time, or why nobody can."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciliation.contracts import Contract, ListingWay
from reconciliation.providers.lookup_tables import LookupStep, read_step
from reconciliation.providers.request_tables import EVERY_TOOL, RequestTemplate
from reconciliation.providers.tables import Table, found_text
from reconciliation.providers.templates import Template

UNDECLARED = "Its file doesn't say how to list what was made in a span of time."
# Where nobody states how late a list shows what was made, it is asked for the last time so long after what
# was under way has ended. Our own choice: no list that we know of was seen to lag that long by itself.
LAG_MS_UNSTATED = 300_000
LAG_MS_MAX = 7 * 24 * 3600 * 1000
SPAN_MS_MAX = 3 * 366 * 24 * 3600 * 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class ListingRules:
    """How to list. With `places` the list is asked for once in each of them: a channel, a repository.

    `place_paths` are where a place says what stands for it in the request, by name. A place is left out where
    it doesn't say yes at `only_if`. A span of more than `span_ms_max` is asked for in parts.
    """

    step: LookupStep
    places: LookupStep | None = None
    place_paths: Mapping[str, str] = field(default_factory=dict)
    only_if: str | None = None
    span_ms_max: int = SPAN_MS_MAX


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclaredListing:
    """What the table says; `lag_ms` is None where the contract's own lag holds."""

    rules: ListingRules | None = None
    why_not: str = UNDECLARED
    leaves_out: str = ""
    lag_ms: int | None = None

    def way(self, contract: Contract) -> ListingWay:
        if self.rules is None:
            return ListingWay(why_not=self.why_not)
        lag_ms = contract.visibility_lag_ms if self.lag_ms is None else self.lag_ms
        return ListingWay(
            offered=True,
            leaves_out=self.leaves_out,
            lag_ms=LAG_MS_UNSTATED if lag_ms is None else lag_ms,
        )


def read_listing(top: Table, known: Iterable[str]) -> DeclaredListing:
    """`[listing]`: the question for everything made between `{window_start_…}` and `{window_end_…}`.

    Or `not_possible`, a sentence that says why there is no such question. There is no operation to ask about,
    so nothing of one may stand in a request.
    """
    table = top.table("listing")
    if table is None:
        return DeclaredListing()
    allowed = "a sentence that says why nobody can list this, and nothing beside it"
    why_not = table.text("not_possible", "", allowed=allowed)
    if why_not:
        if not why_not.endswith("."):
            table.fault("not_possible", found=found_text(why_not), allowed=allowed)
        table.finish()
        return DeclaredListing(why_not=why_not)
    leaves_out = table.text("leaves_out", "")
    lag_ms = table.whole("lag_ms", 0, high=LAG_MS_MAX) if "lag_ms" in table else None
    span_ms_max = table.whole("span_ms_max", SPAN_MS_MAX, low=3600 * 1000, high=SPAN_MS_MAX)
    known = tuple(known)
    places, paths, only_if = _places(table, known)
    step = read_step(table, (*known, *(f"place.{name}" for name in paths)), named=False)
    _check_requests(table, step, [f"place.{name}" for name in paths])
    table.finish()
    return DeclaredListing(
        rules=ListingRules(
            step=step, places=places, place_paths=paths, only_if=only_if, span_ms_max=span_ms_max
        ),
        leaves_out=leaves_out,
        lag_ms=lag_ms,
    )


def _places(listing: Table, known: tuple[str, ...]) -> tuple[LookupStep | None, dict[str, str], str | None]:
    table = listing.table("places")
    if table is None:
        return None, {}, None
    paths: dict[str, str] = {}
    values = table.table("values", required=True)
    if values is not None:
        for name in values.members():
            paths[name] = values.path(name) or "$"
        if not paths:
            table.fault(
                "values", found="nothing", allowed="a name and a JSONPath for what stands for a place"
            )
    only_if = table.path("only_if")
    step = read_step(table, known, named=False)
    _check_requests(table, step, [])
    table.finish()
    return step, paths, only_if


def _check_requests(table: Table, step: LookupStep, more: list[str]) -> None:
    if set(step.requests) != {EVERY_TOOL}:
        table.fault("requests", found="requests by tool", allowed="one request for all of them")
    said = "window_start_… and window_end_…, secrets and settings: there is no operation"
    for request in step.requests.values():
        for name in sorted({name for one in _templates(request) for name in one.names}):
            if not name.startswith(("window_", "secret.", "setting.")) and name not in more:
                table.fault("request", found=f"{{{name}}}", allowed=said)


def _templates(request: RequestTemplate) -> Iterator[Template]:
    yield request.path
    yield from (one for _, one in (*request.query, *request.headers))
    yield from _within(request.body)


def _within(body: Any) -> Iterator[Template]:
    match body:
        case Template():
            yield body
        case dict():
            for inner in body.values():
                yield from _within(inner)
        case list():
            for inner in body:
                yield from _within(inner)
        case _:
            return
