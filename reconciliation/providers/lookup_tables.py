"""The lookups of a declared provider: which questions may be put, in what order, and how answers are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from reconciliation.contracts import (
    AnswerPattern,
    Contract,
    LookupKind,
    LookupWay,
    MatchField,
    ReceiptPaths,
    SuccessWhen,
)
from reconciliation.providers.contract_table import (
    read_match_fields,
    read_patterns,
    read_receipt_paths,
    read_success_when,
)
from reconciliation.providers.request_tables import EVERY_TOOL, RequestTemplate, read_requests
from reconciliation.providers.tables import Table, found_text

LOOKUP_WITHIN_MS = 10_000
# How far a list reaches before the first send and beyond the last attempt's quiet time: providers' clocks
# differ by seconds, and an effect that lands late must still be inside.
WINDOW_BEFORE_MS = 300_000
WINDOW_AFTER_MS = 3_600_000
WINDOW_MS_MAX = 31 * 24 * 3600 * 1000
# Pages of one list that are read unless the file says otherwise, and the most that it may say.
PAGES_MAX = 10
PAGES_MAX_MAX = 50
# Questions that one lookup may consist of, beside the pages of each.
STEPS_MAX = 6


class NextBy(StrEnum):
    """How the next page of a list is asked for."""

    LAST_RECORD = "last_record"  # by something of the page's last record
    CURSOR = "cursor"  # by a value in the answer
    LINK = "link"  # by the query of a URL in the answer, or in its Link header
    NUMBER = "number"  # by counting


@dataclass(frozen=True, kw_only=True, slots=True)
class Pages:
    """How to go on after one page of a list, and how far.

    `parameter` carries the value at the JSONPath `at` (in the last record, or in the answer), or the page's
    number; a page of fewer than `size` records is then the last. Of a link only its query is used: where the
    next page is asked for is never the provider's choice. `newest_first` is where a record of a list that
    starts with the newest says when it was made: what is older than the time asked about isn't needed. `last`
    is where an answer says of itself that it is the last page, for lists that always name a next one.
    """

    by: NextBy
    parameter: str = ""
    at: str | None = None
    size: int = 0
    newest_first: str | None = None
    last: str | None = None
    pages_max: int = PAGES_MAX


@dataclass(frozen=True, kw_only=True, slots=True)
class LookupRules:
    """How to read the answer to a question. `items` must be one list or one object, or nothing follows.

    `record` is where the receipt is inside an item, `key` where an item (not the record) carries our key: an
    event that names the request that caused it. With `more` or `incomplete` true the answer isn't the whole
    list. `unavailable` are answers that say "not now" or "not you", whatever their status. With
    `missing_is_empty` an object without `items` is an empty list, for providers that leave empty lists out.
    """

    items: str = "$"
    missing_is_empty: bool = False
    record: str | None = None
    key: str | None = None
    more: str | None = None
    incomplete: str | None = None
    pages: Pages | None = None
    not_found_statuses: tuple[int, ...] = ()
    unavailable: tuple[AnswerPattern, ...] = ()
    within_ms: int = LOOKUP_WITHIN_MS


@dataclass(frozen=True, kw_only=True, slots=True)
class LookupStep:
    """One way to ask. `when` and `unless` are JSONPaths that the payload must have, or not, for it to apply.

    A `hint` may show something for a person to look at; it confirms nothing, and its silence says nothing.
    `receipt`, `success_when` and `match_fields` hold where its records differ from the contract's.
    """

    name: str = "lookup"
    kind: LookupKind | None = None
    hint: bool = False
    note: str = ""
    when: str | None = None
    unless: str | None = None
    window_before_ms: int = WINDOW_BEFORE_MS
    window_after_ms: int = WINDOW_AFTER_MS
    requests: Mapping[str, RequestTemplate]
    rules: LookupRules = LookupRules()
    receipt: ReceiptPaths | None = None
    success_when: SuccessWhen | None = None
    match_fields: tuple[MatchField, ...] | None = None

    def request_for(self, tool: str) -> RequestTemplate | None:
        return self.requests.get(tool) or self.requests.get(EVERY_TOOL)

    def kind_under(self, contract: Contract) -> LookupKind:
        return self.kind or contract.lookup

    def contract_under(self, contract: Contract) -> Contract:
        """The contract by which this way's records are read."""
        return replace(
            contract,
            receipt=self.receipt or contract.receipt,
            success_when=self.success_when or contract.success_when,
            match_fields=contract.match_fields if self.match_fields is None else self.match_fields,
        )

    def way(self, contract: Contract) -> LookupWay:
        return LookupWay(name=self.name, kind=self.kind_under(contract), hint=self.hint, note=self.note)


def read_lookups(top: Table, known: Iterable[str]) -> tuple[LookupStep, ...]:
    """`[lookup]` for the one way to ask, or `[[lookups]]` for several, the strongest first."""
    known = tuple(known)
    single = top.table("lookup")
    several = top.tables("lookups", lambda table: read_step(table, known))
    if single is None:
        if len(several) > STEPS_MAX:
            top.fault("lookups", found=f"{len(several)} tables", allowed=f"at most {STEPS_MAX}")
        return several
    if several:
        top.fault("lookups", found="lookups beside lookup", allowed="one of them")
    step = read_step(single, known, named=False)
    single.finish()
    return (step,)


def read_step(table: Table, known: tuple[str, ...], *, named: bool = True) -> LookupStep:
    """One way to ask: how it is asked, and how its answers are read. Leaves the table open."""
    name = table.text("name") if named else "lookup"
    kinds = [kind.value for kind in LookupKind if kind is not LookupKind.NONE]
    kind = table.choice("kind", LookupKind, LookupKind.NONE)
    if "kind" in table and kind is LookupKind.NONE:
        table.fault("kind", found=found_text(kind.value), allowed=", ".join(kinds))
    overridden = "match_fields" in table
    match_fields = read_match_fields(table)
    return LookupStep(
        name=name,
        kind=kind if "kind" in table else None,
        hint=table.flag("hint", False),
        note=table.text("note", "", empty=True),
        when=table.path("when"),
        unless=table.path("unless"),
        window_before_ms=table.whole("window_before_ms", WINDOW_BEFORE_MS, high=WINDOW_MS_MAX),
        window_after_ms=table.whole("window_after_ms", WINDOW_AFTER_MS, high=WINDOW_MS_MAX),
        requests=read_requests(table, known, methods=("GET", "POST"), default_method="GET"),
        rules=_rules(table),
        receipt=read_receipt_paths(table) if "receipt" in table else None,
        success_when=read_success_when(table),
        match_fields=match_fields if overridden else None,
    )


def _rules(step: Table) -> LookupRules:
    table = step.table("answer")
    if table is None:
        return LookupRules()
    rules = LookupRules(
        items=table.path("items", "$") or "$",
        missing_is_empty=table.flag("missing_is_empty", False),
        record=table.path("record"),
        key=table.path("key"),
        more=table.path("more"),
        incomplete=table.path("incomplete"),
        pages=_pages(table),
        not_found_statuses=table.statuses("not_found_statuses"),
        unavailable=read_patterns(table, "unavailable"),
        within_ms=table.whole("within_ms", LOOKUP_WITHIN_MS, low=100, high=60_000),
    )
    if rules.pages is not None and rules.pages.by is NextBy.LAST_RECORD and rules.more is None:
        table.fault("more", found="nothing", allowed="where the answer says whether more follows")
    table.finish()
    return rules


def _pages(answer: Table) -> Pages | None:
    table = answer.table("pages")
    if table is None:
        return None
    by = table.choice("next", NextBy)
    parameter = table.optional_text("parameter")
    at = table.path("at")
    size = table.whole("size", 0, high=10_000)
    if (parameter is None) != (by is NextBy.LINK):
        allowed = "nothing: a link has its own" if by is NextBy.LINK else "the parameter's name"
        table.fault("parameter", found=found_text(parameter), allowed=allowed)
    if at is None and by in (NextBy.LAST_RECORD, NextBy.CURSOR):
        table.fault("at", found="nothing", allowed="a JSONPath: where the parameter's value is")
    if at is not None and by is NextBy.NUMBER:
        table.fault("at", found=found_text(at), allowed="nothing: pages are counted")
    if (size > 0) != (by is NextBy.NUMBER):
        allowed = "how many records a full page has" if by is NextBy.NUMBER else "nothing"
        table.fault("size", found=found_text(size), allowed=allowed)
    pages = Pages(
        by=by,
        parameter=parameter or "",
        at=at,
        size=size,
        newest_first=table.path("newest_first"),
        last=table.path("last"),
        pages_max=table.whole("pages_max", PAGES_MAX, low=1, high=PAGES_MAX_MAX),
    )
    table.finish()
    return pages


def check_lookups(top: Table, contract: Contract, steps: tuple[LookupStep, ...]) -> None:
    """Note ways to ask that contradict the contract or each other."""
    if steps and contract.lookup is LookupKind.NONE:
        top.fault("lookup", found="a table", allowed="none, since [contract] lookup is none")
    if not steps:
        if contract.lookup is not LookupKind.NONE:
            top.fault("lookup", found="nothing", allowed="a table that says how to ask")
        return
    if steps[0].hint:
        top.fault("lookups", found="a hint in front", allowed="what can be relied on most comes first")
    if steps[0].kind_under(contract) is not contract.lookup:
        top.fault(
            "lookups",
            found=f"{steps[0].kind} in front",
            allowed=f"{contract.lookup} as in [contract], the strongest way first",
        )
    names = [step.name for step in steps]
    if len(set(names)) < len(names):
        top.fault("lookups", found="two of one name", allowed="a name of its own for each")
    for step in steps:
        paths = step.contract_under(contract).receipt
        named = step.rules.key is not None or paths.key is not None or paths.reference is not None
        if not named and step.kind_under(contract) is not LookupKind.BY_RESEMBLANCE:
            top.fault(
                f"lookups {step.name}",
                found="nothing that carries our key or reference",
                allowed="answer.key, receipt.key or receipt.reference; or kind by_resemblance",
            )
