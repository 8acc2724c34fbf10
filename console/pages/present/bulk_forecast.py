"""What starting over a list would do, in numbers and sentences, before anything is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from django.urls import reverse

from console.pages.present import naming
from console.pages.present.marks import amount_of, plural
from console.pages.shapes import Consequence, Phrase, Strong
from console.pages.shapes.bulk import BulkCase, BulkForecast
from reconciliation.bulk_models import BulkDeed
from reconciliation.bulk_preview import Foreseen
from reconciliation.consequences import BudgetMove, Consequences, RunThen, Sends
from reconciliation.models import Case
from reconciliation.states import Action
from runs.money import format_money
from runs.states import Executor

# Cases that would be left as they are, as the preview lists them; the rest are counted.
LEFT_SHOWN_MAX: Final = 200

_RUNS: Final[dict[RunThen, tuple[str, str, str]]] = {
    RunThen.GOES_ON: ("play", "its run goes on", "their runs go on"),
    RunThen.FOR_THE_REPEAT: (
        "play",
        "its run can be claimed for this request alone",
        "their runs can be claimed for these requests alone",
    ),
    RunThen.STAYS_PAUSED: (
        "circle-pause",
        "its run stays paused for another reason",
        "their runs stay paused for other reasons",
    ),
    RunThen.WAITS: ("circle-pause", "its run waits for the outcome", "their runs wait for the outcome"),
    RunThen.ENDS: ("circle-slash", "its run ends", "their runs end"),
    RunThen.ENDED: ("circle-slash", "its run has ended and stays so", "their runs have ended and stay so"),
}
_BUDGET: Final[dict[BudgetMove, str]] = {
    BudgetMove.SPENT: "is booked as spent",
    BudgetMove.ADDED: "is booked on top of what was booked before",
    BudgetMove.HELD: "of the budgets stays held: neither spent nor free",
    BudgetMove.RELEASED: "of the budgets is freed",
    BudgetMove.STAYS: "of the budgets stays reserved",
}


def forecast_of(
    foreseen: Sequence[Foreseen], *, deed: BulkDeed, action: Action | None, executor: str, assignee: str
) -> BulkForecast:
    """The preview: how many, what with them, and which are left as they are and why."""
    going = [one for one in foreseen if not one.why_not]
    left = [one for one in foreseen if one.why_not]
    said: list[Consequence] = []
    if going:
        said = _work(deed, len(going), assignee)
        if deed is BulkDeed.DECIDE and action is not None:
            said += _colleagues(going)
            said += _decision(action, executor, [one.consequences for one in going if one.consequences])
    if left:
        text: Phrase = (
            Strong(plural(len(left), "case")),
            " stay as they are" if len(left) > 1 else " stays as it is",
        )
        said.append(Consequence(icon="lock", text=(*text, ", for the reasons below")))
    more = len(left) - LEFT_SHOWN_MAX
    return BulkForecast(
        heading="What this would do" if going else "Nothing would be done",
        said=tuple(said),
        left=tuple(case_row(one.position, one.case, note=one.why_not) for one in left[:LEFT_SHOWN_MAX]),
        left_heading=f"Left as {'they are' if len(left) > 1 else 'it is'} ({len(left):,})",
        left_more=f"And {more:,} more." if more > 0 else "",
    )


def _work(deed: BulkDeed, count: int, assignee: str) -> list[Consequence]:
    cases = Strong(plural(count, "case"))
    are, each = ("are", " each") if count > 1 else ("is", "")
    match deed:
        case BulkDeed.CLAIM:
            return [
                Consequence(
                    icon="user-check", text=(cases, f" {are} claimed for you, for ten minutes{each}")
                ),
                Consequence(icon="info", text=("A claim ends by itself unless its page is in use",)),
            ]
        case BulkDeed.ASSIGN:
            return [
                Consequence(icon="users", text=(cases, f" {are} given to {assignee}, for eight hours")),
                Consequence(icon="info", text=("Colleagues can still decide, and take over with a reason",)),
            ]
        case BulkDeed.LOOK_UP:
            return [
                Consequence(icon="scan-search", text=(cases, f" {are} looked up now. That only reads")),
                Consequence(icon="timer", text=("No faster than each provider account’s limit allows",)),
            ]
        case BulkDeed.DECIDE:
            own = "with a decision and an audit entry of its own"
            return [Consequence(icon="gavel", text=(cases, f" {are} decided,{each} {own}"))]


def _colleagues(going: Sequence[Foreseen]) -> Iterable[Consequence]:
    """Who works on some of them: a claim warns, and whoever decides first has decided."""
    for name, count in Counter(one.claimant for one in going if one.claimant).most_common():
        text: Phrase = (
            Strong(name),
            f" works on {plural(count, 'case')} of these. You can decide all the same",
        )
        yield Consequence(icon="users", text=text)


def _decision(action: Action, executor: str, done: Sequence[Consequences]) -> list[Consequence]:
    said: list[Consequence] = []
    if action is Action.CONFIRM:
        said.append(
            Consequence(
                icon="receipt-text", text=("Each with the matching receipt that is on record for it",)
            )
        )
    if action is Action.RETRY:
        said += _requests(executor, done)
    said += [
        Consequence(icon=icon, text=(Strong(plural(count, "case")), ": ", many if count > 1 else one))
        for run, count in Counter(one.run for one in done).most_common()
        for icon, one, many in [_RUNS[run]]
    ]
    said += [Consequence(icon="wallet", text=text) for text in _budgets(done)]
    surprising = sum(1 for one in done if one.may_surprise)
    if surprising:
        text: Phrase = ("If one of their requests shows an effect later, that opens a ", Strong("conflict"))
        said.append(Consequence(icon="triangle-alert", bad=True, text=text))
    if any(one.key_retired for one in done):
        said.append(
            Consequence(icon="key-round", text=("The keys are retired. ", Strong("No more requests")))
        )
    if any(one.final for one in done):
        said.append(Consequence(icon="lock", bad=True, text=(Strong("Can’t be undone."), " Look twice")))
    elif done:
        text = ("Each can be withdrawn until it is used; ", Strong("what was sent can’t be"))
        said.append(Consequence(icon="undo-2", text=text))
    return said


def _requests(executor: str, done: Sequence[Consequences]) -> Iterable[Consequence]:
    first = sum(1 for one in done if one.sends is Sends.AFTER_LOOKUP)
    blind = sum(1 for one in done if one.sends is Sends.WITHOUT_LOOKUP)
    if first:
        text: Phrase = ("A fresh lookup comes first. Where it finds the effect, ", Strong("nothing is sent"))
        yield Consequence(icon="scan-search", text=text)
    if blind:
        unasked = "Nothing can be looked up first at this provider"
        yield Consequence(icon="circle-slash", bad=True, text=(unasked,))
    if first or blind:
        by = "the console" if executor == Executor.CONSOLE else "their agents"
        most = "At most " if first else ""
        count = Strong(f"{most}{plural(first + blind, 'request')}")
        yield Consequence(icon="send", text=(count, f" by {by}, each with its own key and the same bytes"))


def _budgets(done: Sequence[Consequences]) -> Iterable[Phrase]:
    sums: Counter[tuple[BudgetMove, str]] = Counter()
    for one in done:
        if one.budget is not BudgetMove.NONE and one.books.currency:
            sums[one.budget, one.books.currency] += one.budget_minor
    for (move, currency), minor in sorted(sums.items()):
        amount = amount_of(currency, minor)
        if amount is not None and minor:
            yield Strong(format_money(amount)), f" {_BUDGET[move]}"


def case_row(position: int, case: Case, *, note: str = "") -> BulkCase:
    """One case of a list, by the name that its page has."""
    amount = amount_of(case.at_risk_currency, case.at_risk_minor if case.at_risk_currency else None)
    return BulkCase(
        position=position,
        case_id=case.pk,
        href=reverse("case", args=[case.pk]),
        title=naming.title_of(case.tool, amount),
        provider=case.provider_slug,
        amount=amount,
        note=note,
    )
