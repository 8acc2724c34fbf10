"""Everything that happened to one operation, in order; and what was known when somebody decided about it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from django.urls import reverse

from console.pages import wording
from console.pages.present import naming
from console.pages.present.case import question_view, summary_of_answers
from console.pages.present.effects import PROOF
from console.pages.present.jsons import part_view
from console.pages.present.marks import FINDINGS, RESOLUTIONS, actor_of, amount_of, plural
from console.pages.present.panel import TITLES
from console.pages.present.timeline import event_of, leaf_digest, text_of, title_of
from console.pages.present.verdict import NOT_FOUND
from console.pages.shapes import Badge, Banner, Code, Fact, JsonView, Link, Part, Phrase, Tone
from console.pages.shapes.history import (
    HistoryItem,
    KnownEvidence,
    KnownPage,
    Moved,
    Offer,
    OperationPage,
)
from console.queries.operation import ENTRIES_MAX, OperationRead, is_of_turn
from console.queries.people import Names
from reconciliation.models import Case
from reconciliation.retrospect import Known
from reconciliation.revealing import payload_part, redactor_of
from reconciliation.states import REASON_LABELS, Action, CaseKind, Permission, ReasonCode, Resolution
from runs.canonical import parse
from runs.models import AuditLeaf, Evidence, Operation
from runs.refusals import Refusal
from runs.states import Reservation

_VALUE_LENGTH_MAX: Final = 400
# From a first of these nobody knows the outcome, until one of the others says it.
_OPENS_GAP: Final = ("operation.sent", "operation.sent_again", "operation.perhaps_sent")
_CLOSES_GAP: Final = (
    "operation.confirmed",
    "operation.rejected",
    "operation.abandoned",
    "operation.not_sent",
)
_RESERVATIONS: Final = {
    Reservation.NONE: "nothing is reserved",
    Reservation.RESERVED: "reserved",
    Reservation.SETTLED: "spent",
    Reservation.RELEASED: "released",
    Reservation.HELD: "held: neither spent nor free",
}


def entry_href(number: int) -> str:
    """The address of an entry, which never changes."""
    return reverse("effect_entry", args=[number])


def operation_page(
    read: OperationRead, *, entry: int, viewer_name: str, may_export: bool = False
) -> OperationPage:
    """A page of the history of one operation; `entry` is the one that a link led to, 0 if none did."""
    operation = read.operation
    path = reverse("effect", args=[operation.pk])
    later = Link("Later entries", f"{path}?from={read.next_leaf}") if read.next_leaf else None
    return OperationPage(
        now=read.now,
        title=title_of_operation(operation),
        operation_id=operation.pk,
        state=str(operation.state),
        facts=tuple(_facts(read, may_export=may_export)),
        items=items_of(read.leaves, operation, read.names, entry=entry),
        note=f"Oldest first, {ENTRIES_MAX} entries a page, times by the database’s clock",
        proof=PROOF,
        printed=f"Printed {wording.full(read.now)} by {viewer_name}. Operation {operation.pk}.",
        payload=payload_of(operation, read.cases),
        earlier=Link("From the first entry", path) if read.earlier else None,
        later=later,
    )


def title_of_operation(operation: Operation) -> str:
    """The operation's name."""
    amount = amount_of(operation.amount_currency, operation.amount_minor)
    payload: object = None
    with suppress(Refusal):
        payload = parse(bytes(operation.payload))
    return naming.title_of(operation.tool, amount, payload)


def payload_of(operation: Operation, cases: Iterable[Case]) -> JsonView:
    """The payload without what looks secret; its own page is that of a case, where there is one."""
    part = payload_part(operation, redactor_of(operation))
    latest = max((case.pk for case in cases), default="")
    if latest:
        return part_view(part, case_id=latest)
    return replace(part_view(part, case_id="", whole=True), digest=part.digest)


def _facts(read: OperationRead, *, may_export: bool) -> Iterable[Fact]:
    operation, run = read.operation, read.operation.run
    yield Fact(label="Operation", value=(Code(operation.pk),), copy=operation.pk)
    yield Fact(label="Idempotency key", value=(Code(operation.key),), copy=operation.key)
    yield Fact(label="Provider account", value=(Code(operation.provider_id),))
    amount = amount_of(operation.amount_currency, operation.amount_minor)
    if amount is not None:
        kept = _RESERVATIONS[Reservation(operation.reservation)]
        yield Fact(label="Amount", value=(amount,), note=(f"of the run’s budget: {kept}",))
    yield Fact(label="Payload digest", value=(Code(operation.payload_digest),), copy=operation.payload_digest)
    yield Fact(
        label="Run",
        value=(Link(run.pk, reverse("run", args=[run.pk])),),
        note=(f"{run.flow.name} {run.flow_version.version}, {run.external_id}, turn {operation.turn_index}",),
    )
    yield Fact(label="Requests sent", value=(f"{operation.attempts_count}",))
    if read.receipt is not None:
        how = str(read.receipt.matched_by).replace("_", " ")
        yield Fact(label="Receipt", value=(Code(read.receipt.reference),), note=(f"matched by {how}",))
    for case in read.cases:
        yield Fact(
            label=f"Case {case.number}", value=_case(case, may_export=may_export), note=(case.opened_because,)
        )


def _case(case: Case, *, may_export: bool) -> Phrase:
    word = RESOLUTIONS[Resolution(case.resolution)].word if case.resolution else case.state.replace("_", " ")
    shown: Phrase = (Link(case.pk, reverse("case", args=[case.pk])), f", {word[:1].lower()}{word[1:]}")
    if not may_export:
        return shown
    return (*shown, ", ", Link("report for paper", reverse("case_report", args=[case.pk])))


# --- The entries ----------------------------------------------------------------------------------------


def items_of(
    leaves: Iterable[AuditLeaf], operation: Operation, names: Names, *, entry: int = 0
) -> tuple[HistoryItem, ...]:
    """Entries in their order; those of the run's other turns are left out."""
    items: list[HistoryItem] = []
    gap = False
    for leaf in leaves:
        if not leaf.operation_ref and not is_of_turn(leaf, operation):
            continue
        gap = leaf.action not in _CLOSES_GAP and (gap or leaf.action in _OPENS_GAP)
        item = _item(leaf, operation, names)
        before = items[-1].at if items else None
        items.append(
            replace(
                item,
                gap=gap,
                current=leaf.pk == entry,
                elapsed=_elapsed(leaf.at - before) if before is not None else "",
            )
        )
    return tuple(items)


def _elapsed(passed: timedelta) -> str:
    return f"{wording.span(passed)} later" if passed >= timedelta(seconds=1) else "< 1 s later"


def _item(leaf: AuditLeaf, operation: Operation, names: Names) -> HistoryItem:
    event = event_of(leaf)
    title, icon, tone = title_of(leaf.action, event)
    # A case moves for a word of the rules, which is told in a sentence.
    reason = "" if leaf.action == "case.moved" else str(event.get("reason", ""))
    actor = event.get("actor")
    after = event.get("after")
    decided = str(after.get("decision", "")) if isinstance(after, dict) else ""
    known = leaf.action.startswith("case.decided.") and decided
    return HistoryItem(
        number=leaf.pk,
        href=entry_href(leaf.pk),
        title=title,
        icon=icon,
        tone=tone,
        at=leaf.at,
        actor=actor_of(names, leaf.actor_kind, leaf.actor),
        role=str(actor.get("role", "")) if isinstance(actor, dict) else "",
        text=() if reason else text_of(leaf.action, event),
        reason=reason,
        evidence=str(event.get("evidence", "")),
        digest=leaf_digest(leaf),
        moved=tuple(moved_in(event)),
        known_href=reverse("effect_known", args=[operation.pk, decided]) if known else "",
    )


def moved_in(event: dict[str, Any]) -> Iterable[Moved]:
    """What an entry holds as it was before and after, by name, then what it is about."""
    before, after = (
        part if isinstance(part, dict) else {} for part in (event.get("before"), event.get("after"))
    )
    for name in dict.fromkeys([*before, *after]):
        yield Moved(
            name=name.replace("_", " "),
            before=_text(before[name]) if name in before else "",
            after=_text(after[name]) if name in after else "",
        )
    if event.get("subject"):
        yield Moved(name="subject", after=_text(event["subject"]))


def _text(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return wording.inert(text, length_max=_VALUE_LENGTH_MAX)


# --- As known when it was decided -----------------------------------------------------------------------

_STANDINGS: Final = {
    Permission.ALLOWED: Badge(word="Open to one person", icon="circle-check", tone="green"),
    Permission.SECOND_PERSON: Badge(word="Took two people", icon="users", tone="violet"),
    Permission.LOCKED: Badge(word="Locked", icon="lock", tone="amber"),
}


def known_page(known: Known, *, names: Names, now: datetime) -> KnownPage:
    """What was known at a decision."""
    decision, operation = known.decision, known.operation
    title, icon, tone, text, still_open = _verdict(known)
    assessment = known.judged.assessment
    later = "Nothing came with the decision or after it."
    if known.later_count:
        pieces = f"{plural(known.later_count, 'piece')} of evidence"
        later = f"{pieces} came with the decision or after it: not shown here."
    return KnownPage(
        now=now,
        title=title_of_operation(operation),
        operation_id=operation.pk,
        operation_href=reverse("effect", args=[operation.pk]),
        proof=_proof(known),
        decided=tuple(_decided(known, names)),
        reason=decision.reason,
        verdict_title=title,
        verdict_icon=icon,
        verdict_tone=tone,
        verdict_open=still_open,
        verdict_text=text,
        questions=tuple(question_view(one, assessment.actions, settled=False) for one in assessment.answers),
        questions_summary=summary_of_answers(assessment.answers, settled=False),
        offers=tuple(
            Offer(
                title=TITLES[one.action],
                standing=_STANDINGS[one.permission],
                text=one.sentence,
                taken=one.action == decision.action,
            )
            for one in assessment.actions
        ),
        evidence=tuple(evidence_item(one, decision.case_id) for one in known.evidence),
        attempts=tuple(
            Fact(
                label=f"Attempt {one.number}",
                value=(one.minted_at, f", {one.worker}: {str(one.outcome).replace('_', ' ')}"),
            )
            for one in known.attempts
        ),
        later=later,
        payload=payload_of(operation, [known.case]),
    )


_AGREES: Final = (
    "Evidence, answers and permissions were put together anew from what is on record, and their digest is the"
    " one that the decision named."
)


def _proof(known: Known) -> Banner:
    digests: Phrase = ("Named by the decision: ", Code(known.named))
    if known.agrees:
        return Banner(
            title=("What is shown is what the decision was made on",),
            icon="circle-check",
            tone="green",
            text=(f"{_AGREES} ", *digests),
        )
    why = " ".join(known.moved) or (
        "Something that the answers depend on, such as the flow’s rules or the contract in a file, isn’t"
        " kept as it was then."
    )
    return Banner(
        title=("The digest isn’t the one that the decision named",),
        icon="triangle-alert",
        tone="amber",
        text=(
            f"The evidence below is what was on record. The answers are today’s policy on it: {why} ",
            *digests,
            ". Put together anew: ",
            Code(known.judged.evidence_digest),
        ),
    )


def _decided(known: Known, names: Names) -> Iterable[Fact]:
    decision = known.decision
    who = names.of(decision.actor_kind, decision.actor, known_as=decision.actor_name)
    role = f"as {decision.actor_role}" if decision.actor_role else ""
    receipt: tuple[Part, ...] = (", receipt ", Code(decision.reference)) if decision.reference else ()
    yield Fact(label="Decided", value=(TITLES[Action(decision.action)], *receipt))
    yield Fact(label="By", value=(who,), note=(role,) if role else ())
    yield Fact(label="When", value=(wording.full(known.at),), note=("by the database’s clock",))
    code = decision.reason_code
    label = REASON_LABELS[ReasonCode(code)] if code in set(ReasonCode) else code
    if label:
        yield Fact(label="Reason code", value=(label,))
    yield Fact(label="Case version", value=(f"{decision.seen_version}",))
    yield Fact(label="Policy", value=(Code(decision.policy),))
    if known.entry:
        yield Fact(label="Entry", value=(Link(str(known.entry), entry_href(known.entry)),))


def _verdict(known: Known) -> tuple[str, str, Tone, Phrase, bool]:
    lookup = known.lookup
    if known.case.kind == CaseKind.CONFLICT:
        return "The evidence contradicted itself", "git-compare", "red", (known.case.opened_because,), False
    if lookup is None:
        text = "Nothing that a lookup told was on record."
        return "No lookup had told anything", "scan-search", "amber", (text,), True
    shown = FINDINGS.get(lookup.finding)
    title = shown.word if shown is not None else lookup.finding
    if lookup.finding == "not_found":
        title = NOT_FOUND
    if lookup.finding == "not_found" and lookup.proof == "absence":
        title = "Not found, and here that is proof"
    text_parts: Phrase = (f"Lookup {lookup.number} at ", lookup.asked_at, ": ", lookup.summary)
    if shown is None:
        return title, "scan-search", "grey", text_parts, False
    return title, shown.icon, shown.tone, text_parts, shown.open


def evidence_item(evidence: Evidence, case_id: str) -> KnownEvidence:
    """A piece of evidence without its body."""
    after = {"kind": evidence.kind, "claim": evidence.claim, "finding": evidence.finding}
    title, icon, tone = title_of("evidence.recorded", {"after": after})
    return KnownEvidence(
        evidence_id=evidence.pk,
        title=title,
        icon=icon,
        tone=tone,
        at=evidence.recorded_at,
        text=(evidence.summary,),
        digest=evidence.digest,
        href=f"{reverse('case', args=[case_id])}#{evidence.pk}",
    )
