"""A case on paper: everything about it, with absolute times, digests, and addresses written out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.urls import reverse

from console.pages import wording
from console.pages.present.case import question_in, question_view, summary_of_answers, title_in
from console.pages.present.effects import PROOF
from console.pages.present.operation import evidence_item, items_of, payload_of
from console.pages.present.panel import TITLES
from console.pages.present.verdict import state_badge, verdict_of
from console.pages.shapes import Badge, Code, Fact, JsonView, Part, QuestionView, VerdictView
from console.pages.shapes.history import HistoryItem, KnownEvidence
from console.queries.cases import CaseRead
from reconciliation.models import Decision
from reconciliation.states import REASON_LABELS, Action, CaseState, ReasonCode
from runs.models import AuditLeaf, Evidence


@dataclass(frozen=True, kw_only=True, slots=True)
class DecisionOnPaper:
    """One decision with its words, and the address of what was known then."""

    title: str
    facts: tuple[Fact, ...]
    reason: str
    href: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NoteOnPaper:
    """What somebody wrote down about the case."""

    at: datetime
    who: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportPage:
    """`case_report.html`. `base` is what comes before every address; `cut` says what doesn't fit on it."""

    now: datetime
    title: str
    question: str
    case_id: str
    case_href: str
    state: Badge
    base: str
    printed: str
    proof: str
    facts: tuple[Fact, ...]
    verdict: VerdictView
    questions: tuple[QuestionView, ...]
    questions_summary: str
    decisions: tuple[DecisionOnPaper, ...]
    attempts: tuple[Fact, ...]
    evidence: tuple[KnownEvidence, ...]
    notes: tuple[NoteOnPaper, ...]
    items: tuple[HistoryItem, ...]
    payload: JsonView
    cut: str = ""


def report_page(
    read: CaseRead,
    *,
    leaves: Sequence[AuditLeaf],
    evidence: Sequence[Evidence],
    base: str,
    viewer_name: str,
    cut: str,
) -> ReportPage:
    """Everything about a case, for paper."""
    case, operation = read.case, read.operation
    settled = case.state == CaseState.RESOLVED
    assessment = read.judged.assessment
    return ReportPage(
        now=read.now,
        title=title_in(read),
        question=question_in(read),
        case_id=case.pk,
        case_href=reverse("case", args=[case.pk]),
        state=state_badge(read),
        base=base,
        printed=f"As of {wording.full(read.now)}, by the database’s clock, for {viewer_name}.",
        proof=PROOF,
        facts=_facts(read),
        verdict=_on_paper(verdict_of(read, may_look_up=False, why_not="")),
        questions=tuple(
            question_view(one, assessment.actions, settled=settled) for one in assessment.answers
        ),
        questions_summary=summary_of_answers(assessment.answers, settled=settled),
        decisions=tuple(_decision(read, one) for one in reversed(read.decisions)),
        attempts=tuple(
            Fact(
                label=f"Attempt {one.number}",
                value=(wording.full(one.minted_at),),
                note=(f"{one.worker}, {one.attempt_id}: {str(one.outcome).replace('_', ' ')}",),
            )
            for one in read.attempts
        ),
        evidence=tuple(evidence_item(one, case.pk) for one in evidence),
        notes=tuple(
            NoteOnPaper(at=one.made_at, who=one.actor_name, text=one.text)
            for one in sorted(read.notes.values(), key=lambda note: note.made_at)
        ),
        items=tuple(_said_once(one) for one in items_of(leaves, operation, read.names)),
        payload=payload_of(operation, [case]),
        cut=cut,
    )


def _on_paper(verdict: VerdictView) -> VerdictView:
    """With every time in full: paper is read on another day."""
    text = tuple(wording.full(part) if isinstance(part, datetime) else part for part in verdict.text)
    return replace(verdict, text=text)


def _said_once(item: HistoryItem) -> HistoryItem:
    """Without the value that is quoted as its reason already."""
    return replace(item, moved=tuple(one for one in item.moved if one.after != item.reason))


def _facts(read: CaseRead) -> tuple[Fact, ...]:
    case, operation, run = read.case, read.operation, read.run
    facts = [
        Fact(label="Case", value=(Code(case.pk),), note=(f"number {case.number}, version {case.version}",)),
        Fact(label="Operation", value=(Code(operation.pk),)),
        Fact(label="Idempotency key", value=(Code(operation.key),)),
        Fact(label="Payload digest", value=(Code(operation.payload_digest),)),
        Fact(label="Provider account", value=(Code(operation.provider_id),)),
        Fact(label="Run", value=(Code(run.pk),), note=(run.external_id,)),
        Fact(label="Flow, version", value=(f"{run.flow.name} {run.flow_version.version}",)),
        Fact(label="Why there is a case", value=(case.opened_because,)),
        Fact(label="Opened", value=(wording.full(case.opened_at),)),
        Fact(label="Requests sent", value=(f"{operation.attempts_count}",)),
        Fact(label="Evidence digest now", value=(Code(read.judged.evidence_digest),)),
    ]
    if case.resolved_at is not None:
        facts.append(Fact(label="Resolved", value=(wording.full(case.resolved_at),)))
    if read.receipt is not None:
        how = str(read.receipt.matched_by).replace("_", " ")
        facts.append(Fact(label="Receipt", value=(Code(read.receipt.reference),), note=(f"by {how}",)))
    return tuple(facts)


def _decision(read: CaseRead, decision: Decision) -> DecisionOnPaper:
    who = read.names.of(decision.actor_kind, decision.actor, known_as=decision.actor_name)
    code = decision.reason_code
    label = REASON_LABELS[ReasonCode(code)] if code in set(ReasonCode) else code
    receipt: tuple[Part, ...] = (Code(decision.reference),) if decision.reference else ()
    facts = [
        Fact(label="By", value=(who,), note=(f"as {decision.actor_role}",) if decision.actor_role else ()),
        Fact(label="When", value=(wording.full(decision.made_at),)),
        Fact(label="Reason code", value=(label or "none",)),
        Fact(label="Case version", value=(f"{decision.seen_version}",)),
        Fact(label="Policy", value=(Code(decision.policy),)),
        Fact(label="Evidence digest", value=(Code(decision.evidence_digest),)),
    ]
    if receipt:
        facts.append(Fact(label="Receipt", value=receipt))
    return DecisionOnPaper(
        title=TITLES[Action(decision.action)],
        facts=tuple(facts),
        reason=decision.reason,
        href=reverse("effect_known", args=[decision.operation_id, decision.pk]),
    )
