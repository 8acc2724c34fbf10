"""The forms on a run's page that ask a second person: which there are, what was typed, what it asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from django.urls import reverse

from console.pages.forms import clean
from console.pages.present.approval_told import BADGES
from console.pages.present.marks import amount_of
from console.pages.present.naming import title_of
from console.pages.shapes import Choice, FieldError, Link, Phrase
from console.pages.shapes.approval import AskField, RunAsk
from console.queries.runs import RunRead
from reconciliation.approval_checks import REASON_LENGTH_MAX
from reconciliation.approval_kinds import title_of as request_title
from reconciliation.approval_models import ApprovalKind
from reconciliation.run_approvals import (
    free_parameters,
    keep_parameters,
    move_parameters,
    raise_parameters,
    renewal_parameters,
)
from runs.canonical import INTEGER_MAX
from runs.ids import new_id
from runs.models import NAME_LENGTH, FlowVersion, Operation, Run
from runs.money import Money, exponent, format_money
from runs.refusals import Invalid
from runs.states import RUN_ENDED, OperationState, PauseReason, Reservation

RAISE, RENEW, VERSION, FREE = "raise", "renew", "version", "free"
KEEP: Final = "keep"
# Before a version's name in the select box, so that no version can be taken for keeping the pin.
MOVE_MARK: Final = "move:"
# How long a renewed approval may hold, and how long a kept version is waited for, as people say it.
HOURS: Final = {"1": "1 hour", "4": "4 hours", "24": "1 day", "168": "1 week"}
# A comma is taken where thousands are set apart alone: "30,00" is thirty to some, and never three thousand.
_AMOUNT: Final = re.compile(r"(?:[0-9]{1,16}|[0-9]{1,3}(?:,[0-9]{3}){1,5})(?:\.[0-9]{1,4})?")


@dataclass(frozen=True, kw_only=True)
class AskTyped:
    """What was typed into one of the forms; `ask` says which."""

    ask: str
    reason: str = ""
    limit: str = ""
    hours: str = ""
    version: str = ""
    operation: str = ""
    key: str = ""
    errors: tuple[FieldError, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a form asks for, in the domain's words."""

    kind: ApprovalKind
    parameters: dict[str, Any]
    operation_id: str = ""
    until_at: datetime | None = None


def read_ask(posted: Mapping[str, str]) -> AskTyped:
    """The form as it came, bounded."""

    def typed(name: str, length_max: int) -> str:
        return clean(str(posted.get(name, "")))[:length_max]

    return AskTyped(
        ask=typed("ask", 20),
        reason=typed("reason", REASON_LENGTH_MAX * 4),
        limit=typed("limit", 60).strip(),
        hours=typed("hours", 10),
        version=typed("version", NAME_LENGTH + len(MOVE_MARK)),
        operation=typed("operation", 64),
        key=typed("key", 64),
    )


def wanted_of(typed: AskTyped, run: Run, *, now: datetime) -> Wanted:
    """What the form asks for. Raises `Invalid`, with the field in `where`."""
    match typed.ask:
        case "raise":
            limit = Money(run.budget_currency or "EUR", _minor(typed.limit, run.budget_currency or "EUR"))
            return Wanted(kind=ApprovalKind.BUDGET_RAISE, parameters=raise_parameters(limit=limit))
        case "renew":
            expires_at = now + timedelta(hours=_hours(typed))
            return Wanted(
                kind=ApprovalKind.APPROVAL_RENEWAL,
                parameters=renewal_parameters(expires_at=expires_at),
                # Later than that there is nothing left to approve.
                until_at=expires_at,
            )
        case "version":
            return Wanted(kind=ApprovalKind.FLOW_VERSION, parameters=_version(typed, run))
        case "free":
            return _freeing(typed, run)
        case _:
            raise Invalid("Choose what to ask for.", where="reason")


def _minor(text: str, currency: str) -> int:
    plain = text.replace("€" if currency == "EUR" else currency, "").strip()
    digits = exponent(currency)
    if not _AMOUNT.fullmatch(plain):
        raise Invalid(f"Write the limit as an amount in {currency}, such as 1,240.00.", where="limit")
    minor = Decimal(plain.replace(",", "")).scaleb(digits)
    if minor != minor.to_integral_value() or minor > INTEGER_MAX:
        raise Invalid(f"{currency} has {digits} digits after the point.", where="limit")
    return int(minor)


def _hours(typed: AskTyped) -> int:
    if typed.hours not in HOURS:
        raise Invalid("Choose for how long.", where="hours")
    return int(typed.hours)


def _version(typed: AskTyped, run: Run) -> dict[str, Any]:
    if typed.version == KEEP:
        return keep_parameters(wait_seconds=_hours(typed) * 3_600)
    name = typed.version.removeprefix(MOVE_MARK)
    if name == typed.version:
        raise Invalid("Choose whether the version is kept, or which one the run moves to.", where="version")
    digest = (
        FlowVersion.objects.filter(flow=run.flow_id, version=name).values_list("digest", flat=True).first()
    )
    return move_parameters(version=name, digest=digest or "")


def _freeing(typed: AskTyped, run: Run) -> Wanted:
    held = Operation.objects.filter(pk=typed.operation, run=run, reservation=Reservation.HELD).first()
    if held is None:
        raise Invalid("Choose an operation of this run that holds an amount.", where="operation")
    amount = Money(held.amount_currency, held.settled_minor)
    return Wanted(
        kind=ApprovalKind.HELD_FREED, parameters=free_parameters(amount=amount), operation_id=held.pk
    )


# --- The forms ------------------------------------------------------------------------------------------


def pending_of(read: RunRead) -> tuple[Link, ...]:
    """What is asked about the run already, and not answered yet."""
    return tuple(Link(request_title(one), reverse("approval", args=[one.pk])) for one in read.asked)


def asks_of(read: RunRead, *, typed: AskTyped | None) -> tuple[RunAsk, ...]:
    """The forms that fit the run as it stands; one that is asked for already isn't offered again."""
    run, reasons = read.run, read.run.paused_reasons
    asked = {one.kind for one in read.asked}
    forms = []
    if run.state not in RUN_ENDED:
        if PauseReason.BUDGET in reasons and ApprovalKind.BUDGET_RAISE not in asked:
            forms.append(_raise(read, typed))
        if PauseReason.APPROVAL in reasons and ApprovalKind.APPROVAL_RENEWAL not in asked:
            forms.append(_renew(read, typed))
        if PauseReason.FLOW_VERSION in reasons and ApprovalKind.FLOW_VERSION not in asked:
            forms.append(_settle_version(read, typed))
    about = {one.operation_id for one in read.asked if one.kind == ApprovalKind.HELD_FREED}
    held = [
        one
        for one in read.operations.values()
        if one.reservation == Reservation.HELD and one.settled_minor and one.pk not in about
    ]
    if held:
        forms.append(_free(read, held, typed))
    return tuple(forms)


def _form(
    read: RunRead,
    typed: AskTyped | None,
    *,
    ask: str,
    kind: ApprovalKind,
    title: str,
    text: Phrase,
    button: str,
    fields: tuple[AskField, ...],
) -> RunAsk:
    mine = typed if typed is not None and typed.ask == ask else None
    return RunAsk(
        href=reverse("run_ask", args=[read.run.pk]),
        ask=ask,
        title=title,
        icon=BADGES[kind].icon,
        text=text,
        key=mine.key if mine is not None and mine.key else new_id("form"),
        button=button,
        fields=fields,
        reason=mine.reason if mine is not None else "",
        open=mine is not None,
        errors=mine.errors if mine is not None else (),
    )


def _raise(read: RunRead, typed: AskTyped | None) -> RunAsk:
    run = read.run
    used = run.budget_spent_minor + run.budget_reserved_minor + run.budget_held_minor
    waiting = [
        one
        for one in read.operations.values()
        if one.state == OperationState.READY and one.amount_minor is not None
    ]
    first = min(waiting, key=lambda one: (one.turn_index, one.position), default=None)
    least = Money(run.budget_currency, used + (first.amount_minor or 0)) if first is not None else None
    hint = f"{format_money(least)} lets the next effect through." if least is not None else ""
    return _form(
        read,
        typed,
        ask=RAISE,
        kind=ApprovalKind.BUDGET_RAISE,
        title="Ask to raise the budget limit…",
        text=("An approver of the team answers. Until then nothing of the run is sent.",),
        button="Ask for the new limit",
        fields=(
            AskField(
                name="limit",
                label=f"New limit, in {run.budget_currency}",
                kind="text",
                value=typed.limit if typed is not None and typed.ask == RAISE else "",
                hint=hint,
            ),
        ),
    )


def _lengths(chosen: str) -> tuple[Choice, ...]:
    return tuple(Choice(value=value, label=label, selected=value == chosen) for value, label in HOURS.items())


def _renew(read: RunRead, typed: AskTyped | None) -> RunAsk:
    hours = typed.hours if typed is not None and typed.ask == RENEW else "24"
    return _form(
        read,
        typed,
        ask=RENEW,
        kind=ApprovalKind.APPROVAL_RENEWAL,
        title="Ask to renew the approval…",
        text=("The new approval is the approver’s own; the old record stays as it was.",),
        button="Ask for the renewal",
        fields=(AskField(name="hours", label="To hold for", kind="select", choices=_lengths(hours)),),
    )


def _settle_version(read: RunRead, typed: AskTyped | None) -> RunAsk:
    mine = typed if typed is not None and typed.ask == VERSION else None
    pinned = read.run.flow_version.version
    chosen = mine.version if mine is not None else ""
    moves = tuple(
        Choice(
            value=f"{MOVE_MARK}{one}",
            label=f"Move the run to version {one}",
            selected=chosen == f"{MOVE_MARK}{one}",
        )
        for one in read.other_versions
    )
    keep = Choice(value=KEEP, label=f"Keep version {pinned}: its worker will come", selected=chosen == KEEP)
    return _form(
        read,
        typed,
        ask=VERSION,
        kind=ApprovalKind.FLOW_VERSION,
        title="Ask to keep or move the flow version…",
        text=(
            "What is settled stays settled under either version. ",
            "A run isn’t moved while an outcome of it is unknown.",
        ),
        button="Ask about the version",
        fields=(
            AskField(
                name="version",
                label="Keep or move",
                kind="select",
                choices=(Choice(value="", label="Choose one", selected=not chosen), keep, *moves),
            ),
            AskField(
                name="hours",
                label="If it is kept, wait for",
                kind="select",
                choices=_lengths(mine.hours if mine is not None else "4"),
            ),
        ),
    )


def _free(read: RunRead, held: list[Operation], typed: AskTyped | None) -> RunAsk:
    chosen = typed.operation if typed is not None and typed.ask == FREE else ""
    return _form(
        read,
        typed,
        ask=FREE,
        kind=ApprovalKind.HELD_FREED,
        title="Ask to free a held amount…",
        text=(
            "An operation that was given up with its outcome unknown holds its amount. ",
            "If its effect turns up later, that is a conflict and is booked there.",
        ),
        button="Ask to free it",
        fields=(
            AskField(
                name="operation",
                label="Held by",
                kind="select",
                choices=tuple(
                    Choice(value=one.pk, label=_held_label(one), selected=one.pk == chosen) for one in held
                ),
            ),
        ),
    )


def _held_label(operation: Operation) -> str:
    amount = amount_of(operation.amount_currency, operation.settled_minor)
    return f"{title_of(operation.tool, amount)}, {operation.pk}"
