"""The `[make_absent]` of a declared provider: the request that makes sure of it, and how to read answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reconciliation.contracts import AnswerPattern, AskedAgain, KeyAfter, LateSend, MakeAbsent
from reconciliation.providers.contract_table import read_patterns
from reconciliation.providers.request_tables import EVERY_TOOL, RequestTemplate, read_requests
from reconciliation.providers.tables import Table
from reconciliation.providers.templates import Template

METHODS = ("POST", "PUT", "PATCH", "DELETE")
# What names the one effect that is meant: without it the request would be about something else.
_NAMES = frozenset({"key", "operation", "reference"})


@dataclass(frozen=True, kw_only=True, slots=True)
class AbsenceRules:
    """The request by tool ("" is every other tool), and which answers mean what; `unknown` counts first.

    An answer that none of them describes is a refusal where it is a definite 4xx, and unknown otherwise: only
    a declared answer says that the effect is absent.
    """

    requests: Mapping[str, RequestTemplate]
    absent: tuple[AnswerPattern, ...]
    refused: tuple[AnswerPattern, ...] = ()
    unknown: tuple[AnswerPattern, ...] = ()

    def request_for(self, tool: str) -> RequestTemplate | None:
        return self.requests.get(tool) or self.requests.get(EVERY_TOOL)


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclaredAbsence:
    """What the table says: to everyone, and to the adapter."""

    way: MakeAbsent
    rules: AbsenceRules


def read_make_absent(top: Table, known: Iterable[str]) -> DeclaredAbsence | None:
    """`[make_absent]`, None where the provider offers nothing of the kind."""
    table = top.table("make_absent")
    if table is None:
        return None
    title = table.text("title")
    says = table.text("says", allowed="a sentence: what it does, and what its answer doesn't prove")
    documentation_url = table.text("documentation_url", "")
    late_send = table.choice("late_send", LateSend)
    key_after = table.choice("key_after", KeyAfter)
    again = table.choice("again", AskedAgain)
    proves_within_ms = table.optional_whole("proves_within_ms", low=1)
    requests = read_requests(table, known, methods=METHODS, default_method="POST")
    for tool, request in requests.items():
        _check(table, tool, request)
    rules = _rules(table, requests)
    table.finish()
    way = MakeAbsent(
        title=title,
        request=_shown(requests),
        says=says,
        late_send=late_send,
        key_after=key_after,
        again=again,
        proves_within_ms=proves_within_ms,
        documentation_url=documentation_url,
    )
    return DeclaredAbsence(way=way, rules=rules)


def _rules(table: Table, requests: Mapping[str, RequestTemplate]) -> AbsenceRules:
    answer = table.table("answer", required=True)
    if answer is None:
        return AbsenceRules(requests=requests, absent=())
    rules = AbsenceRules(
        requests=requests,
        absent=read_patterns(answer, "absent"),
        refused=read_patterns(answer, "refused"),
        unknown=read_patterns(answer, "unknown"),
    )
    if not rules.absent:
        answer.fault("absent", found="nothing", allowed="which answers say that it is absent")
    answer.finish()
    return rules


def _check(table: Table, tool: str, request: RequestTemplate) -> None:
    where = f"requests {tool}" if tool else "request"
    if request.add:
        table.fault(where, found="add", allowed="body: the payload is never sent with it")
    named = {name for template in _templates(request) for name in template.names}
    if not named & _NAMES:
        allowed = "{key}, {operation} or {reference} in it: what names the one effect that is meant"
        table.fault(where, found="nothing of ours", allowed=allowed)


def _templates(request: RequestTemplate) -> Iterator[Template]:
    yield request.path
    for _, template in (*request.query, *request.headers):
        yield template
    yield from _inside(request.body)


def _inside(body: Any) -> Iterator[Template]:
    match body:
        case Template():
            yield body
        case dict():
            for inner in body.values():
                yield from _inside(inner)
        case list():
            for inner in body:
                yield from _inside(inner)
        case _:
            return


def _shown(requests: Mapping[str, RequestTemplate]) -> str:
    shown = [f"{one.method} {one.path.source}" for one in requests.values()]
    return ", ".join(dict.fromkeys(shown))
