"""A decision that takes two people, in words: what is consented to, and what could go wrong."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from console.pages.present.approval_told import ACKNOWLEDGED, APPROVE, NOTHING, Told, short
from console.pages.present.diff import diff_of_given, diffs_of
from console.pages.present.marks import amount_of, plural
from console.pages.present.naming import noun_of
from console.pages.present.outcomes import consequences_in, in_words
from console.pages.shapes import Banner, Code, Consequence, DiffView, Fact, Phrase, Strong
from console.queries.approvals import ApprovalRead
from reconciliation.approval_models import ApprovalKind
from reconciliation.asked import GivenReceipt, amount_stated
from reconciliation.decision_approvals import receipt_asked_for
from reconciliation.foreseeing import Choices
from reconciliation.permissions import GIVE_ONE
from reconciliation.providers.redaction import Redactor
from reconciliation.revealing import redactor_of
from reconciliation.states import Action
from runs.money import format_money

# Of a record that was given: far more than the fields that are compared. The digest is of all of it.
RECORD_LENGTH_MAX: Final = 4_000


def told_decision(read: ApprovalRead, kind: ApprovalKind) -> Told:
    parameters, facts, case = read.parameters, read.facts, read.case
    action = Action(parameters["action"])
    said: tuple[Consequence, ...] = ()
    if case is not None:
        receipt = receipt_asked_for(parameters) or GivenReceipt()
        choices = Choices(
            executor=str(parameters.get("executor", "")),
            then=str(parameters.get("then", "")),
            receipt_amount=amount_stated(case.operation, case.judged, receipt),
        )
        said = in_words(case, consequences_in(case, action, choices))
    return Told(
        approve=APPROVE[kind],
        content=_decision_content(read, action, parameters, facts),
        if_approved=said,
        if_refused=(
            NOTHING,
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
        Action.MAKE_ABSENT: "Let the provider make sure that it isn’t there, and give it up with that proof",
    }
    shown = [Fact(label="Action", value=(words.get(action, str(action)),))]
    if request := facts.get("request"):
        shown.append(
            Fact(label="Request", value=(Code(str(request)),), note=("sent by Recourse’s own worker",))
        )
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
        Fact(label="Payload", value=("sha256 ", Code(short(facts.get("payload_digest"))))),
        Fact(label="Account", value=(str(facts.get("account", "")),), note=(str(facts.get("endpoint", "")),)),
        Fact(
            label="Rests on",
            value=(
                f"case version {facts.get('case_version')}, evidence ",
                Code(short(facts.get("evidence_digest"))),
            ),
            note=(f"· {plural(int(facts.get('attempts') or 0), 'request')} sent so far",),
        ),
    ]
    return tuple(shown)


def compared(read: ApprovalRead) -> tuple[tuple[DiffView, ...], str]:
    """What is compared with the intended effect, a given record first, and what is said where nothing is."""
    if read.case is None:
        return (), ""
    on_record, receipt = diffs_of(read.case), receipt_asked_for(read.parameters)
    if receipt is None or not receipt.body:
        return on_record, "Nothing to compare: no record of the effect is known."
    given, why = diff_of_given(read.case, receipt)
    shown = on_record if given is None else (given, *on_record)
    return shown, f"Nothing to compare: no lookup found a record, and of the one that was given: {why}"


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
        note=(f"{plural(len(body), 'byte')}, sha256 ", Code(short(receipt["body_sha256"]))),
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
    # What whoever asks could give instead is nothing that an approver can do.
    why = str(read.parameters.get("why_two", "")).replace(f" {GIVE_ONE}", "")
    noun, money = _noun(read), _money_words(read)
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
    if kind is ApprovalKind.MAKE_ABSENT:
        return Banner(
            title=("This changes the provider.",),
            icon="triangle-alert",
            tone="red",
            text=(f"{why} Worst case: the {noun}", *money, " had happened as it should, and is undone."),
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
    if kind is ApprovalKind.MAKE_ABSENT:
        return f"I accept that this {_noun(read)}{about} is undone if it happened"
    return ""
