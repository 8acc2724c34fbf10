"""What each kind of request asks for, in words: what is consented to, and what each answer would do."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.urls import reverse

from console.pages import wording
from console.pages.present.marks import PAUSED_WHY, amount_of, plural
from console.pages.present.naming import noun_of, title_of
from console.pages.present.outcomes import consequences_in, in_words
from console.pages.shapes import Badge, Banner, Code, Consequence, Fact, Link, Phrase, Strong
from console.pages.shapes.approval import AmountRow, Outcome
from console.queries.approvals import ApprovalRead
from reconciliation.approval_models import DECISION_KINDS, ApprovalKind
from reconciliation.foreseeing import Choices
from reconciliation.providers.redaction import Redactor
from reconciliation.revealing import redactor_of
from reconciliation.run_approvals import MOVE
from reconciliation.states import Action
from runs.models import FlowVersion, Operation, Run
from runs.money import Money, format_money, parse_money
from runs.states import OPERATION_SETTLED, OperationState, PauseReason

BADGES: Final[dict[str, Badge]] = {
    ApprovalKind.OVERRIDE: Badge(word="Override", icon="shield-check", tone="violet"),
    ApprovalKind.RETRY: Badge(word="Four-eyes retry", icon="shield-check", tone="violet"),
    ApprovalKind.ABANDONMENT: Badge(word="Abandonment", icon="shield-check", tone="violet"),
    ApprovalKind.BUDGET_RAISE: Badge(word="Budget", icon="wallet", tone="violet"),
    ApprovalKind.APPROVAL_RENEWAL: Badge(word="Expired approval", icon="hourglass", tone="violet"),
    ApprovalKind.FLOW_VERSION: Badge(word="Flow version", icon="git-compare", tone="violet"),
    ApprovalKind.HELD_FREED: Badge(word="Held budget", icon="lock-open", tone="violet"),
    ApprovalKind.MAKE_ABSENT: Badge(word="Make absent", icon="undo-2", tone="violet"),
}
_APPROVE: Final[dict[str, str]] = {
    ApprovalKind.OVERRIDE: "Approve the override",
    ApprovalKind.RETRY: "Approve the retry",
    ApprovalKind.ABANDONMENT: "Approve the abandonment",
    ApprovalKind.BUDGET_RAISE: "Approve the new limit",
    ApprovalKind.APPROVAL_RENEWAL: "Approve the renewal",
    ApprovalKind.FLOW_VERSION: "Approve it",
    ApprovalKind.HELD_FREED: "Approve freeing it",
    ApprovalKind.MAKE_ABSENT: "Approve it",
}


# Where what could go wrong is an effect too many, or none at all: whoever approves says that they know.
ACKNOWLEDGED: Final = frozenset({ApprovalKind.RETRY, ApprovalKind.OVERRIDE})


# Of a record that was given: far more than the fields that are compared. The digest is of all of it.
RECORD_LENGTH_MAX: Final = 4_000


@dataclass(frozen=True, kw_only=True)
class Told:
    """Everything about one request that depends on its kind."""

    approve: str
    # What is consented to, field by field.
    content: tuple[Fact, ...]
    if_approved: tuple[Consequence, ...]
    if_refused: tuple[Consequence, ...]
    acknowledgement: str = ""
    danger: bool = False
    warning: Banner | None = None
    amounts: tuple[AmountRow, ...] = ()
    versions: tuple[Fact, ...] = ()
    plans: tuple[Outcome, ...] = ()


def told_of(read: ApprovalRead) -> Told:
    """Word one request, from what it asks for and how things are now."""
    kind = ApprovalKind(read.approval.kind)
    if kind in DECISION_KINDS:
        return _decision(read, kind)
    match kind:
        case ApprovalKind.BUDGET_RAISE:
            return _budget(read)
        case ApprovalKind.APPROVAL_RENEWAL:
            return _renewal(read)
        case ApprovalKind.FLOW_VERSION:
            return _version(read)
        case ApprovalKind.HELD_FREED:
            return _held(read)
        case _:
            return Told(approve=_APPROVE[kind], content=(), if_approved=(), if_refused=(_NOTHING,))


_NOTHING: Final = Consequence(icon="circle-slash", text=("Nothing changes and nothing is sent.",))


# --- A decision about a case ----------------------------------------------------------------------------


def _decision(read: ApprovalRead, kind: ApprovalKind) -> Told:
    parameters, facts, case = read.parameters, read.facts, read.case
    action = Action(parameters["action"])
    said: tuple[Consequence, ...] = ()
    if case is not None:
        choices = Choices(
            executor=str(parameters.get("executor", "")),
            then=str(parameters.get("then", "")),
            receipt_minor=None,
        )
        said = in_words(case, consequences_in(case, action, choices))
    return Told(
        approve=_APPROVE[kind],
        content=_decision_content(read, action, parameters, facts),
        if_approved=said,
        if_refused=(
            _NOTHING,
            Consequence(icon="inbox", text=("The case goes back to the queue with your comment.",)),
        ),
        acknowledgement=_acknowledgement(read, kind),
        danger=kind in ACKNOWLEDGED,
        warning=_risk(read, kind),
    )


def _decision_content(
    read: ApprovalRead, action: Action, parameters: Mapping[str, Any], facts: Mapping[str, Any]
) -> tuple[Fact, ...]:
    words = {
        Action.CONFIRM: "Confirm that it happened",
        Action.RETRY: "One more request with the same key",
        Action.ABANDON: "Give it up",
    }
    shown = [Fact(label="Action", value=(words.get(action, str(action)),))]
    if executor := parameters.get("executor"):
        who = "the agent’s worker" if executor == "agent" else "Recourse’s own worker"
        shown.append(Fact(label="Sent by", value=(who,)))
    if then := parameters.get("then"):
        shown.append(
            Fact(label="The run", value=("ends with it" if then == "end" else "goes on without the effect",))
        )
    receipt = parameters.get("receipt") or {}
    if receipt.get("reference"):
        shown.append(Fact(label="Receipt", value=(Code(str(receipt["reference"])),)))
    if receipt.get("body_sha256"):
        shown.append(_record_given(read, receipt))
    amount = facts.get("amount") or {}
    money = amount_of(str(amount.get("currency") or ""), amount.get("minor"))
    if money is not None:
        shown.append(Fact(label="Amount", value=(money,)))
    shown += [
        Fact(label="Key", value=(Code(str(facts.get("idempotency_key", ""))),)),
        Fact(label="Payload", value=("sha256 ", Code(_short(facts.get("payload_digest"))))),
        Fact(label="Account", value=(str(facts.get("account", "")),), note=(str(facts.get("endpoint", "")),)),
        Fact(
            label="Rests on",
            value=(
                f"case version {facts.get('case_version')}, evidence ",
                Code(_short(facts.get("evidence_digest"))),
            ),
            note=(f"{plural(int(facts.get('attempts') or 0), 'request')} sent so far",),
        ),
    ]
    return tuple(shown)


def _record_given(read: ApprovalRead, receipt: Mapping[str, Any]) -> Fact:
    """The provider's record that the requester gave, to be read before it is consented to.

    It is evidence only once it is, so nothing else on the page shows it. What looks secret is hidden.
    """
    body = base64.b64decode(receipt["body_base64"])
    operation = read.approval.operation
    redactor = redactor_of(operation) if operation is not None else Redactor()
    text = redactor.text(body.decode("utf-8", "replace"))
    cut = "…" if len(text) > RECORD_LENGTH_MAX else ""
    return Fact(
        label="Record given",
        value=(Code(f"{text[:RECORD_LENGTH_MAX]}{cut}"),),
        note=(f"{plural(len(body), 'byte')}, sha256 ", Code(_short(receipt["body_sha256"]))),
    )


def _noun(read: ApprovalRead) -> str:
    operation = read.approval.operation
    return noun_of(operation.tool) if operation is not None else "effect"


def _money_words(read: ApprovalRead) -> Phrase:
    operation = read.approval.operation
    money = amount_of(operation.amount_currency, operation.amount_minor) if operation is not None else None
    return (" of ", money) if money is not None else ()


def _risk(read: ApprovalRead, kind: ApprovalKind) -> Banner | None:
    """What could go wrong, before anything else: where two people are asked, one of these is why."""
    why, noun, money = str(read.parameters.get("why_two", "")), _noun(read), _money_words(read)
    if kind is ApprovalKind.RETRY:
        return Banner(
            title=("The provider may treat this as a new request.",),
            icon="triangle-alert",
            tone="red",
            text=(f"{why} Worst case: a ", Strong(f"second {noun}"), *money, "."),
        )
    if kind is ApprovalKind.OVERRIDE:
        return Banner(
            title=("Nothing that matches proves this.",),
            icon="triangle-alert",
            tone="red",
            text=(
                f"{why} Worst case: the {noun}",
                *money,
                " never happened, and the run goes on as if it had.",
            ),
        )
    return Banner(
        title=("Whether it happened stays unknown.",),
        icon="triangle-alert",
        tone="amber",
        text=(f"{why} Worst case: the {noun}", *money, " happened, and nobody counts on it."),
    )


def _acknowledgement(read: ApprovalRead, kind: ApprovalKind) -> str:
    operation = read.approval.operation
    money = amount_of(operation.amount_currency, operation.amount_minor) if operation is not None else None
    about = f" of {format_money(money)}" if money is not None else ""
    if kind is ApprovalKind.RETRY:
        return f"I accept that this can make a second {_noun(read)}{about}"
    if kind is ApprovalKind.OVERRIDE:
        return f"I accept that no matching receipt proves this {_noun(read)}{about}"
    return ""


def _short(digest: object) -> str:
    text = str(digest or "")
    return f"{text[:10]}…{text[-6:]}" if len(text) > 20 else text


# --- Budget ---------------------------------------------------------------------------------------------


def _budget(read: ApprovalRead) -> Told:
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
    return Told(
        approve=f"Approve {format_money(limit)}",
        content=(
            Fact(label="New limit", value=(limit,), note=("up by ", Money(currency, more))),
            Fact(label="Old limit", value=(Money(currency, before),)),
            Fact(label="Run", value=_run_link(run)),
            Fact(label="Waits to be sent", value=_waiting(order, waiting)),
        ),
        if_approved=_budget_then(run, first, fits=fits),
        if_refused=(
            _NOTHING,
            Consequence(icon="circle-pause", text=("The run stays paused. It can be asked for again.",)),
        ),
        amounts=amounts,
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
    said = [_released(run, others)]
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


def _released(run: Run, others: list[str]) -> Consequence:
    if others:
        why = "; ".join(PAUSED_WHY.get(one, one) for one in others)
        return Consequence(icon="circle-pause", text=(f"The run stays paused for another reason: {why}.",))
    return Consequence(icon="play", text=("1 run is released: a worker can claim ", *_run_link(run), "."))


def _run_link(run: Run) -> Phrase:
    return (
        Link(run.external_id, reverse("run", args=[run.pk])),
        f", {run.flow.name} {run.flow_version.version}",
    )


# --- Approval -------------------------------------------------------------------------------------------


def _renewal(read: ApprovalRead) -> Told:
    run, facts = read.run, read.facts
    until_at = datetime.fromisoformat(str(read.parameters["expires_at"]))
    was_until = str(facts.get("until", ""))
    old: Phrase = (Code(str(facts.get("approval", ""))),)
    note: Phrase = ("until ", datetime.fromisoformat(was_until)) if was_until else ()
    others = [one for one in run.paused_reasons if one != PauseReason.APPROVAL]
    return Told(
        approve=_APPROVE[ApprovalKind.APPROVAL_RENEWAL],
        content=(
            Fact(
                label="Holds until",
                value=(until_at,),
                note=(f"{wording.span(until_at - read.now)} from now",),
            ),
            Fact(label="In place of", value=old, note=note),
            Fact(label="Run", value=_run_link(run)),
        ),
        if_approved=(
            Consequence(
                icon="shield-check",
                text=("A new approval, made by you, takes the place of the one that ended.",),
            ),
            _released(run, others),
            Consequence(
                icon="triangle-alert",
                text=("Whatever this run still sends until then is sent under your approval.",),
            ),
        ),
        if_refused=(
            _NOTHING,
            Consequence(
                icon="circle-pause", text=("The run stays as it is; without an approval it is paused.",)
            ),
        ),
    )


# --- Flow version ---------------------------------------------------------------------------------------


def _version(read: ApprovalRead) -> Told:
    run, facts, parameters = read.run, read.facts, read.parameters
    move = parameters.get("do") == MOVE
    others = [one for one in run.paused_reasons if one != PauseReason.FLOW_VERSION]
    pinned = str(facts.get("version", ""))
    to = str(facts.get("to", ""))
    wait = timedelta(seconds=int(parameters.get("wait_seconds") or 0))
    content = [Fact(label="Run", value=_run_link(run))]
    if move:
        content.append(Fact(label="Moves", value=(f"from version {pinned} to ", Strong(f"version {to}"))))
    else:
        content.append(Fact(label="Keeps", value=(Strong(f"version {pinned}"),)))
        content.append(Fact(label="Waits for its worker", value=(wording.span(wait),)))
    content.append(Fact(label="Operations in flight", value=_in_flight(read)))
    first = (
        Consequence(icon="git-compare", text=("The run is pinned to ", Strong(f"version {to}"), "."))
        if move
        else Consequence(
            icon="hourglass",
            text=(f"Nobody is asked again for {wording.span(wait)}, or until its worker comes.",),
        )
    )
    return Told(
        approve=f"Approve version {to}" if move else f"Approve keeping version {pinned}",
        content=tuple(content),
        if_approved=(first, _released(run, others)),
        if_refused=(
            _NOTHING,
            Consequence(icon="circle-pause", text=(f"The run stays paused, pinned to version {pinned}.",)),
        ),
        versions=_versions(read, pinned, to),
        plans=(
            _plan(read, f"Under version {pinned}", moved=False),
            _plan(read, _other(read, to), moved=True),
        ),
    )


def _other(read: ApprovalRead, to: str) -> str:
    return f"Under version {to}" if to else "Under another version"


def _in_flight(read: ApprovalRead) -> Phrase:
    sent = [one for one in read.operations if one.state == OperationState.SENT_UNKNOWN]
    if not sent:
        return ("none",)
    parts: list[Any] = [plural(len(sent), "operation"), " with an unknown outcome: "]
    for one in sent[:5]:
        parts += [Code(one.pk), " "]
    return tuple(parts)


def _versions(read: ApprovalRead, pinned: str, to: str) -> tuple[Fact, ...]:
    by_name: dict[str, FlowVersion] = {one.version: one for one in read.versions}
    shown = []
    for name, label in ((pinned, "pinned"), (to, "asked for")):
        version = by_name.get(name)
        if version is None:
            continue
        digest: Phrase = (
            ("sha256 ", Code(_short(version.digest))) if version.digest else ("no digest on record",)
        )
        seen: Phrase = (
            ("a worker was last seen ", version.last_worker_at)
            if version.last_worker_at is not None
            else ("no worker of it was ever seen",)
        )
        shown.append(Fact(label=f"Version {name}, {label}", value=digest, note=seen))
    if to:
        same = by_name.get(pinned), by_name.get(to)
        told = all(one is not None and one.digest for one in same)
        differ = told and same[0] is not None and same[1] is not None and same[0].digest != same[1].digest
        shown.append(
            Fact(
                label="What differs",
                value=(
                    "the program: its digests differ"
                    if differ
                    else "not known here: Recourse holds digests, not programs, and one of them is missing",
                ),
                note=("What it does otherwise is in your own repository, under these versions.",),
            )
        )
    return tuple(shown)


def _plan(read: ApprovalRead, title: str, *, moved: bool) -> Outcome:
    by_call = {one.call_id: one for one in read.operations}
    settled = send = reads = waits = 0
    for call in read.calls:
        operation = by_call.get(call.pk)
        if operation is None:
            settled, reads = (settled + 1, reads) if call.result_at is not None else (settled, reads + 1)
        elif operation.state in OPERATION_SETTLED:
            settled += 1
        elif operation.state == OperationState.READY:
            send += 1
        else:
            waits += 1
    said = [
        Consequence(
            icon="skip-forward", text=(f"{plural(settled, 'step')} on record skipped, never repeated",)
        )
    ]
    if reads:
        said.append(Consequence(icon="eye", text=(f"{plural(reads, 'read')} made",)))
    if send:
        said.append(
            Consequence(
                icon="send", text=(f"{plural(send, 'effect')} decided already, sent with the stored key",)
            )
        )
    if waits:
        said.append(
            Consequence(icon="hourglass", bad=moved, text=(f"{plural(waits, 'outcome')} looked up first",))
        )
    said.append(
        Consequence(
            icon="cpu",
            text=(
                "Then the other version’s program decides the next turn"
                if moved
                else "Then the pinned version’s program decides the next turn",
            ),
        )
    )
    return Outcome(title=title, consequences=tuple(said))


# --- What is held ---------------------------------------------------------------------------------------


def _held(read: ApprovalRead) -> Told:
    run, operation, facts = read.run, read.approval.operation, read.facts
    amount = parse_money(read.parameters["amount"])
    case: Phrase = ("–",)
    if operation is not None:
        case = (title_of(operation.tool, amount), " ", Code(operation.pk))
    return Told(
        approve=f"Approve freeing {format_money(amount)}",
        content=(
            Fact(label="Frees", value=(amount,)),
            Fact(label="Held by", value=case, note=(str(facts.get("known_effect", "")),)),
            Fact(label="Run", value=_run_link(run)),
            Fact(label="Rests on", value=("evidence ", Code(_short(facts.get("evidence"))))),
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
        if_refused=(_NOTHING, Consequence(icon="lock", text=("The amount stays held.",))),
    )
