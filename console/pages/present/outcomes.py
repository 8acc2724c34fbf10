"""The consequences of an action in words: said before the person acts, and again in the review."""

from __future__ import annotations

from typing import assert_never

from console.pages.present.marks import amount_of
from console.pages.present.naming import words_of
from console.pages.shapes import Change, Consequence, Part, Phrase, Strong, Until
from console.queries.cases import CaseRead
from console.templatetags.recourse import state_of
from reconciliation.consequences import (
    Books,
    BudgetMove,
    Consequences,
    RunThen,
    Sends,
)
from reconciliation.foreseeing import Choices, foresee
from reconciliation.states import Action
from runs.money import Money
from runs.states import OperationState, PauseReason


def consequences_in(read: CaseRead, action: Action, choices: Choices) -> Consequences:
    """What this action would do to the case as it was read."""
    return foresee(
        action,
        run=read.run,
        operation=read.operation,
        judged=read.judged,
        now=read.now,
        choices=choices,
        extra_minor=read.extra_minor,
    )


def in_words(read: CaseRead, done: Consequences, *, with_run: bool = True) -> tuple[Consequence, ...]:
    """The consequences as sentences. `with_run` False: what the run does is said beside its options."""
    said: list[Consequence] = []
    said += _sending(read, done)
    if with_run:
        said += _run(read, done)
    said += _budget(done)
    if done.key_retired and done.action in (Action.CONFIRM, Action.ABANDON, Action.MAKE_ABSENT):
        said.append(Consequence(icon="key-round", text=("The key is retired. ", Strong("No more requests"))))
    if done.asks_on:
        text: Phrase = ("What becomes of the other effect is asked next: the case ", Strong("stays open"))
        said.append(Consequence(icon="git-compare", text=text))
    if done.may_surprise and read.operation.attempts_count:
        sent = read.operation.attempts_count
        which = "the request" if sent == 1 else f"one of the {sent} requests"
        said.append(
            Consequence(
                icon="triangle-alert",
                bad=True,
                text=(f"If {which} shows an effect later, that opens a ", Strong("conflict")),
            )
        )
    return tuple(said)


def last_word(done: Consequences) -> Consequence:
    """What can't be undone; said in the review, last."""
    if done.final:
        text: Phrase = (Strong("Can’t be undone."), " A correction is a new, linked entry")
        return Consequence(icon="lock", bad=True, text=text)
    text = ("It can be withdrawn until it is used; ", Strong("what was sent can’t be"))
    return Consequence(icon="undo-2", text=text)


def _sending(read: CaseRead, done: Consequences) -> list[Consequence]:
    match done.sends:
        case Sends.NOTHING:
            return []
        case Sends.AFTER_LOOKUP:
            first = Consequence(
                icon="scan-search",
                text=("A fresh lookup comes first. If it finds the effect, ", Strong("nothing is sent")),
            )
            otherwise: list[Part] = ["Otherwise "]
        case Sends.WITHOUT_LOOKUP:
            first = Consequence(
                icon="circle-slash", bad=True, text=("Nothing can be looked up first at this provider",)
            )
            otherwise = []
        case Sends.UNDOING:
            return _undoing(done)
        case _:
            assert_never(done.sends)
    request: list[Part] = [
        *otherwise,
        Strong("1 request"),
        f" is sent, number {done.request_number}, with the same key and the same bytes",
    ]
    if done.not_before_at is not None:
        request += [", not before ", done.not_before_at, " (", Until(done.not_before_at), ")"]
    return [first, Consequence(icon="send", text=tuple(request))]


def _undoing(done: Consequences) -> list[Consequence]:
    """What a request to make it absent does, and what follows from each of its answers."""
    leaves = Consequence(
        icon="send",
        text=(
            Strong("1 request"),
            " leaves, by Recourse’s own worker, which undoes the effect if there is one; ",
            "its record is kept before it leaves",
        ),
    )
    if done.state is not OperationState.ABANDONED:
        open_still = (
            "Its success proves nothing by now: it is kept as evidence, and ",
            Strong("you decide again"),
        )
        return [leaves, Consequence(icon="info", bad=True, text=open_still)]
    absent: Phrase = (
        "If the provider says that it isn’t there, the operation is ",
        Strong("given up with that proof"),
        " and never sent again",
    )
    otherwise: Phrase = (
        "If it refuses, or nobody hears its answer, ",
        Strong("you decide again"),
        ", except that a retry with this key stays locked",
    )
    return [
        leaves,
        Consequence(icon="circle-check", text=absent),
        Consequence(icon="info", text=otherwise),
    ]


def _run(read: CaseRead, done: Consequences) -> list[Consequence]:
    return [Consequence(icon=_run_icon(done.run), text=run_in_words(read, done.run))]


def _run_icon(run: RunThen) -> str:
    match run:
        case RunThen.GOES_ON | RunThen.FOR_THE_REPEAT:
            return "play"
        case RunThen.STAYS_PAUSED | RunThen.WAITS:
            return "circle-pause"
        case RunThen.ENDS | RunThen.ENDED:
            return "circle-slash"


def run_in_words(read: CaseRead, run: RunThen) -> Phrase:
    """What becomes of the run, with where it goes on."""
    step = read.step_number
    match run:
        case RunThen.GOES_ON:
            tool = read.next_tool
            after = f" ({' '.join(words_of(tool)) or tool})" if tool else ", which its agent decides"
            return "The run goes on at ", Strong(f"step {step + 1}"), after
        case RunThen.STAYS_PAUSED:
            reasons = [one for one in read.run.paused_reasons if one != PauseReason.OUTCOME]
            why = f" ({', '.join(reasons).replace('_', ' ')})" if reasons else " by another open case"
            return "The run stays ", Strong("paused"), why
        case RunThen.ENDS:
            return "The run ", Strong("ends"), f": nothing after step {step} is done"
        case RunThen.ENDED:
            return (f"The run is {read.run.state} and stays so",)
        case RunThen.FOR_THE_REPEAT:
            return ("The run can be claimed again, for this request alone at first",)
        case RunThen.WAITS:
            return ("The run waits for the outcome",)


def _budget(done: Consequences) -> list[Consequence]:
    amount = amount_of(done.books.currency, done.budget_minor)
    if amount is None or done.budget is BudgetMove.NONE:
        return []
    freed = amount_of(done.books.currency, done.freed_minor)
    match done.budget:
        case BudgetMove.SPENT:
            text: Phrase = ("Books ", amount)
            if freed is not None and freed.minor:
                text = ("Books ", amount, " and frees ", freed, " of the reserved budget")
        case BudgetMove.ADDED:
            text = ("Books ", amount, " on top of what was booked before")
        case BudgetMove.HELD:
            text = (amount, " of the budget stays ", Strong("held"), ": neither spent nor free")
        case BudgetMove.RELEASED:
            text = ("Frees ", amount, " of the budget")
        case BudgetMove.STAYS:
            text = (amount, " of the budget stays reserved")
        case _:
            assert_never(done.budget)
    return [Consequence(icon="wallet", text=text)]


def changes_of(read: CaseRead, done: Consequences) -> tuple[Change, ...]:
    """Before and after, in numbers; only what moves."""
    operation, run, after = read.operation, read.run, done.books
    changes = [
        Change(
            label="State",
            before=(state_of("operation", operation.state).word,),
            after=(_state_after(done),),
        )
    ]
    for label, old, new in (
        ("Reserved", run.budget_reserved_minor, after.reserved_minor),
        ("Spent", run.budget_spent_minor, after.spent_minor),
        ("Held", run.budget_held_minor, after.held_minor),
        ("Remaining", _remaining(run.budget_limit_minor, read), _left(after)),
    ):
        before_money, after_money = _money(after, old), _money(after, new)
        if old != new and before_money is not None and after_money is not None:
            changes.append(Change(label=label, before=(before_money,), after=(after_money,)))
    return tuple(changes)


def _state_after(done: Consequences) -> str:
    if done.action is Action.RETRY:
        return "Sent, outcome unknown: a retry under way"
    if done.action in (Action.ACCEPT, Action.COMPENSATE):
        return f"{state_of('operation', done.state).word}, the conflict closed"
    return state_of("operation", str(OperationState(done.state))).word


def _money(books: Books, minor: int | None) -> Money | None:
    return amount_of(books.currency, minor)


def _remaining(limit: int | None, read: CaseRead) -> int | None:
    run = read.run
    if limit is None:
        return None
    return limit - run.budget_reserved_minor - run.budget_spent_minor - run.budget_held_minor


def _left(books: Books) -> int | None:
    if books.limit_minor is None:
        return None
    return books.limit_minor - books.reserved_minor - books.spent_minor - books.held_minor
