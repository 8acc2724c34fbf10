"""A raised limit and a freed amount, in words: the run's money before and after, and what goes on with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from console.pages.present.approval_told import NOTHING, Told, released, run_link, short
from console.pages.present.marks import amount_of
from console.pages.present.naming import title_of
from console.pages.shapes import Code, Consequence, Fact, Phrase, Strong
from console.pages.shapes.approval import AmountRow, BudgetBar, Stretch
from console.queries.approvals import ApprovalRead
from runs.models import Operation, Run
from runs.money import Money, format_money, parse_money
from runs.states import PauseReason

# --- A new limit ----------------------------------------------------------------------------------------


def told_budget(read: ApprovalRead) -> Told:
    run, facts = read.run, read.facts
    limit = parse_money(read.parameters["limit"])
    currency = limit.currency
    waiting = {one.pk: one for one in read.operations}
    order = [str(pk) for pk, _ in facts.get("waiting", [])]
    first = waiting.get(order[0]) if order else None
    first_minor = (first.amount_minor or 0) if first is not None else 0
    used = int(facts["spent_minor"]) + int(facts["reserved_minor"]) + int(facts["held_minor"])
    before = int(facts["limit_minor"] or 0)
    fits = first is not None and used + first_minor <= limit.minor
    more = limit.minor - before
    percent = f", +{round(more * 100 / before)} %" if before else ""
    spent, held = Money(currency, int(facts["spent_minor"])), Money(currency, int(facts["held_minor"]))
    reserved = int(facts["reserved_minor"])
    amounts = (
        AmountRow(
            name="Now",
            limit=Money(currency, before),
            reserved=Money(currency, reserved),
            remaining=Money(currency, max(0, before - used)),
            spent=spent,
            held=held,
        ),
        AmountRow(
            name="If approved",
            limit=limit,
            reserved=Money(currency, reserved + (first_minor if fits else 0)),
            remaining=Money(currency, max(0, limit.minor - used - (first_minor if fits else 0))),
            strong=True,
            note=f"+{format_money(Money(currency, more))}{percent}",
            spent=spent,
            held=held,
        ),
    )
    used_by = {"spent": spent, "reserved": Money(currency, reserved), "held": held}
    if fits:
        used_by["next"] = Money(currency, first_minor)
    return Told(
        approve=f"Approve {format_money(limit)}",
        content=(
            Fact(label="New limit", value=(limit,), note=("up by ", Money(currency, more))),
            Fact(label="Old limit", value=(Money(currency, before),)),
            Fact(label="Run", value=run_link(run)),
            Fact(label="Waits to be sent", value=_waiting(order, waiting)),
        ),
        if_approved=_budget_then(run, first, fits=fits),
        if_refused=(
            NOTHING,
            Consequence(icon="circle-pause", text=("The run stays paused. It can be asked for again.",)),
        ),
        amounts=amounts,
        bar=bar_of(limit, Money(currency, before), used_by),
    )


_STRETCHES: Final[tuple[tuple[Literal["spent", "reserved", "held", "next"], str], ...]] = (
    ("spent", "Spent"),
    ("reserved", "Reserved"),
    ("held", "Held, outcome given up unknown"),
    ("next", "Reserved by what waits"),
)
# Between two parts of the bar, and for the old limit: thousandths that can be seen.
GAP_WIDTH: Final = 2
MARK_WIDTH: Final = 4


def bar_of(limit: Money, old: Money, used_by: Mapping[str, Money]) -> BudgetBar:
    """The new limit as a bar, with where the old one was; its text says the same in words.

    What is used may be more than the limit: an effect was dearer than it was to be. Then the whole is that.
    """
    used = sum(one.minor for one in used_by.values())
    whole = max(limit.minor, used, 1)
    x, stretches = 0, []
    for name, label in _STRETCHES:
        amount = used_by.get(name)
        if amount is None or amount.minor <= 0:
            continue
        # A small part is still there to be seen, and no part reaches beyond the bar.
        width = min(max(1, round(amount.minor * 1000 / whole)), 1000 - x)
        stretches.append(Stretch(name=name, label=label, amount=amount, x=x, width=max(0, width)))
        x = min(1000, x + width + GAP_WIDTH)
    remaining = Money(limit.currency, max(0, limit.minor - used))
    said = [f"{one.label.lower()} {format_money(one.amount)}" for one in stretches]
    return BudgetBar(
        text=f"Of the new limit of {format_money(limit)}: "
        + ", ".join([*said, f"remaining {format_money(remaining)}"])
        + f". The old limit was {format_money(old)}.",
        stretches=tuple(stretches),
        remaining=remaining,
        old=old,
        mark_x=min(1000 - MARK_WIDTH, round(old.minor * 1000 / whole)) if old.minor else None,
    )


def _waiting(order: list[str], waiting: Mapping[str, Operation]) -> Phrase:
    parts: list[Any] = []
    for pk in order[:5]:
        one = waiting.get(pk)
        if one is None:
            continue
        money = amount_of(one.amount_currency, one.amount_minor)
        parts += ["; " if parts else "", title_of(one.tool, money), " ", Code(pk)]
    if len(order) > 5:
        parts.append(f"; and {len(order) - 5} more")
    return tuple(parts) or ("nothing",)


def _budget_then(run: Run, first: Operation | None, *, fits: bool) -> tuple[Consequence, ...]:
    others = [one for one in run.paused_reasons if one != PauseReason.BUDGET]
    if first is not None and not fits:
        money = amount_of(first.amount_currency, first.amount_minor)
        return (
            Consequence(
                icon="circle-pause",
                bad=True,
                text=("The run stays paused: ", title_of(first.tool, money), " still doesn’t fit."),
            ),
        )
    said = [released(run, others)]
    if first is not None:
        money = amount_of(first.amount_currency, first.amount_minor)
        said.append(
            Consequence(
                icon="send",
                text=(
                    "Its worker then sends ",
                    Strong(title_of(first.tool, money)),
                    " for the first time. Its key is ",
                    Code(first.key),
                    ".",
                ),
            )
        )
    return tuple(said)


# --- What is held ---------------------------------------------------------------------------------------


def told_held(read: ApprovalRead) -> Told:
    run, operation, facts = read.run, read.approval.operation, read.facts
    amount = parse_money(read.parameters["amount"])
    case: Phrase = ("–",)
    if operation is not None:
        case = (title_of(operation.tool, amount), " ", Code(operation.pk))
    return Told(
        approve=f"Approve freeing {format_money(amount)}",
        content=(
            Fact(label="Frees", value=(amount,)),
            Fact(
                label="Held by",
                value=case,
                note=(f"· {facts.get('known_effect') or 'what became of it is unknown'}",),
            ),
            Fact(label="Run", value=run_link(run)),
            Fact(label="Rests on", value=("evidence ", Code(short(facts.get("evidence"))))),
        ),
        if_approved=(
            Consequence(icon="wallet", text=(amount, " can be spent by the run again.")),
            Consequence(
                icon="triangle-alert",
                bad=True,
                text=(
                    "If the effect turns up after all, that is a ",
                    Strong("conflict"),
                    " and is booked there.",
                ),
            ),
        ),
        if_refused=(NOTHING, Consequence(icon="lock", text=("The amount stays held.",))),
    )
