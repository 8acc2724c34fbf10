"""The page of one case, put together."""

from __future__ import annotations

from contextlib import suppress
from typing import Final
from urllib.parse import quote

from django.urls import reverse

from console.pages import wording
from console.pages.forms import DecisionForm
from console.pages.present import naming
from console.pages.present.desk import WorkDraft, desk_view, note_form, snooze_view
from console.pages.present.diff import diffs_of
from console.pages.present.evidence import evidence_of
from console.pages.present.jsons import part_view
from console.pages.present.marks import amount_of, answer_shown, capped
from console.pages.present.panel import panel_of, selectable
from console.pages.present.progress import progress_of
from console.pages.present.related import related_view
from console.pages.present.timeline import history_href, note_of, timeline_of
from console.pages.present.verdict import state_badge, verdict_of
from console.pages.shapes import (
    AttachForm,
    Banner,
    CasePage,
    Code,
    Fact,
    FieldError,
    Link,
    NextPage,
    Phrase,
    QuestionView,
)
from console.queries.backlog import COUNT_MAX
from console.queries.cases import CaseRead
from reconciliation.permissions import ActionStatus
from reconciliation.questions import Answer
from reconciliation.revealing import payload_part, redactor_of
from reconciliation.states import Action, CaseKind, CaseState, Need, Permission, Truth
from runs.canonical import parse
from runs.keys import key_words
from runs.money import Money, format_money
from runs.refusals import Refusal
from runs.states import OPERATION_SETTLED

_ACTION_WORDS: Final = {
    Action.CONFIRM: "Confirm",
    Action.RETRY: "Retry",
    Action.ABANDON: "Abandon",
    Action.MAKE_ABSENT: "Make absent",
    Action.ACCEPT: "Accept",
    Action.COMPENSATE: "Compensate",
}


def question_in(read: CaseRead) -> str:
    """The human question about the operation; for an effect after the fact, what is to become of it."""
    tool, amount, payload = _named(read)
    settled = read.operation.state in OPERATION_SETTLED
    if read.case.kind == CaseKind.CONFLICT and settled and read.case.state != CaseState.RESOLVED:
        about = f" of {format_money(amount)}" if amount is not None else ""
        return f"What is to become of the extra {naming.noun_of(tool)}{about}?"
    if read.case.need == Need.SEVERAL and not settled:
        about = f" of {format_money(amount)}" if amount is not None else ""
        return f"Which {naming.noun_of(tool)}{about} is the one that was intended?"
    return naming.question_of(tool, amount, payload)


def title_in(read: CaseRead) -> str:
    """The operation's name."""
    return naming.title_of(*_named(read))


def _named(read: CaseRead) -> tuple[str, Money | None, object]:
    operation = read.operation
    amount = amount_of(operation.amount_currency, operation.amount_minor)
    payload: object = None
    with suppress(Refusal):
        payload = parse(bytes(operation.payload))
    return operation.tool, amount, payload


def case_page(
    read: CaseRead,
    *,
    form: DecisionForm,
    errors: tuple[FieldError, ...] = (),
    banner: Banner | None = None,
    kept: tuple[Fact, ...] = (),
    decide_why_not: str = "",
    look_up_why_not: str = "",
    may_withdraw: bool = False,
    recorded_as: str,
    actor: str,
    work_why_not: str = "",
    work: WorkDraft | None = None,
    attach: AttachForm | None = None,
) -> CasePage:
    """Everything that the page shows; `…_why_not` is "" for what this person may do."""
    case, operation, run = read.case, read.operation, read.run
    diffs = diffs_of(read)
    due = case.next_lookup_at is not None and case.next_lookup_at <= read.now
    moving = case.state in (CaseState.LOOKING_UP, CaseState.RETRYING) or due
    seen = f"?version={case.version}&digest={read.judged.evidence_digest}"
    return CasePage(
        now=read.now,
        case_id=case.pk,
        question=question_in(read),
        state=state_badge(read),
        is_conflict=case.kind == CaseKind.CONFLICT,
        subject=_subject(read),
        operation_id=operation.pk,
        run_id=run.pk,
        run_href=reverse("run", args=[run.pk]),
        position=f"Turn {operation.turn_index}, step {read.step_number}",
        verdict=verdict_of(read, may_look_up=not look_up_why_not, why_not=look_up_why_not),
        questions=tuple(
            question_view(one, read.judged.assessment.actions, settled=case.state == CaseState.RESOLVED)
            for one in read.judged.assessment.answers
        ),
        questions_summary=summary_of_answers(
            read.judged.assessment.answers, settled=case.state == CaseState.RESOLVED
        ),
        panel=panel_of(
            read,
            form=form,
            errors=errors,
            closed_by=decide_why_not,
            recorded_as=recorded_as,
            may_withdraw=may_withdraw,
            actor=actor,
        ),
        version=case.version,
        keyfacts=_keyfacts(read),
        progress=progress_of(read),
        banner=banner,
        kept=kept,
        diff=diffs[0] if diffs else None,
        other_diffs=diffs[1:],
        no_diff="" if diffs else _no_diff(read),
        evidence=evidence_of(read),
        evidence_more=_older(read),
        related=tuple(related_view(one) for one in read.related),
        related_href=f"{reverse('queue')}?provider={quote(case.provider_slug)}",
        timeline=timeline_of(read),
        timeline_note=note_of(read),
        record=_record(read),
        payload=part_view(payload_part(operation, redactor_of(operation)), case_id=case.pk),
        previous_href=reverse("case", args=[read.place.previous]) + naming.TO_QUESTION
        if read.place.previous
        else "",
        next_href=reverse("case", args=[read.place.next]) + naming.TO_QUESTION if read.place.next else "",
        place=_place(read),
        live_href=reverse("case_live", args=[case.pk]) if moving else "",
        news_href=reverse("case_news", args=[case.pk]) + seen if case.state != CaseState.RESOLVED else "",
        mobile_note=_mobile_note(read),
        desk=desk_view(
            read.case, read.desk, actor=actor, may_work=not work_why_not, draft=work or WorkDraft()
        ),
        snooze=snooze_view(case, read.desk, may_work=not work_why_not, draft=work or WorkDraft()),
        attach=attach,
        note=note_form(case, draft=work or WorkDraft()) if not work_why_not else None,
    )


def _subject(read: CaseRead) -> Phrase:
    run = read.run
    tool = " ".join(naming.words_of(read.operation.tool)) or read.operation.tool
    return (
        f"{read.judged.account.title} · {tool} · ",
        Link(f"{run.flow.name} {run.flow_version.version}", reverse("run", args=[run.pk])),
        f" · {run.external_id}",
    )


def _place(read: CaseRead) -> str:
    if read.place.number is None:
        return ""
    return f"{read.place.number:,} of {capped(read.place.total, COUNT_MAX)}"


def _keyfacts(read: CaseRead) -> tuple[Fact, ...]:
    case, operation = read.case, read.operation
    amount = amount_of(operation.amount_currency, operation.amount_minor)
    facts = (
        [Fact(label="At risk" if case.state != CaseState.RESOLVED else "Amount", value=(amount,))]
        if amount
        else []
    )
    if case.state == CaseState.RESOLVED and case.resolved_at is not None:
        facts.append(Fact(label="Resolved", value=(case.resolved_at,)))
        facts.append(Fact(label="It took", value=(wording.span(case.resolved_at - case.opened_at),)))
        return tuple(facts)
    if case.kind == CaseKind.CONFLICT:
        # That there is an effect is known; what is to become of it isn't.
        facts.append(Fact(label="Open for", value=(wording.span(read.now - case.opened_at),)))
    else:
        since = operation.first_sent_at or case.opened_at
        facts.append(Fact(label="Outcome unknown for", value=(wording.span(read.now - since),)))
    if case.state not in (CaseState.NEEDS_DECISION, CaseState.LOOKING_UP):
        # Nobody is asked: it was decided, or it is the second person's turn, whose request ends by itself.
        return tuple(facts)
    left = case.decide_by_at - read.now
    late = left.total_seconds() <= 0
    facts.append(
        Fact(
            label="Past the time limit for" if late else "Decide within",
            value=(wording.span(left),),
            note=("since " if late else "by ", case.decide_by_at),
        )
    )
    return tuple(facts)


# --- The five questions ---------------------------------------------------------------------------------


def question_view(answer: Answer, actions: tuple[ActionStatus, ...], *, settled: bool) -> QuestionView:
    locks = [
        f"Locks {_ACTION_WORDS[one.action]}"
        if one.permission is Permission.LOCKED
        else f"{_ACTION_WORDS[one.action]} takes two people"
        for one in actions
        if one.question == answer.number and one.permission is not Permission.ALLOWED
    ]
    return QuestionView(
        number=answer.number,
        question=answer.question,
        answer=answer_shown(answer, settled=settled),
        why=(answer.sentence,),
        locks=tuple(locks),
    )


def summary_of_answers(answers: tuple[Answer, ...], *, settled: bool) -> str:
    asked = [one for one in answers if answer_shown(one, settled=settled) != "settled"]
    counted = [(truth, sum(1 for one in asked if one.truth is truth)) for truth in Truth]
    # Once it is settled, whether anything may still be sent is asked no more.
    told = [*counted, ("settled", len(answers) - len(asked))]
    words = ", ".join(f"{number} {truth}" for truth, number in told if number)
    limited = not settled and any(truth is not Truth.YES and number for truth, number in counted)
    return f"{words}. Every “no” or “unknown” limits what you can do." if limited else f"{words}."


def _mobile_note(read: CaseRead) -> str:
    actions = read.judged.assessment.actions
    possible = sum(1 for one in actions if selectable(one))
    return f"{possible} of {len(actions)} actions open" if actions else ""


# --- The rest -------------------------------------------------------------------------------------------


def _no_diff(read: CaseRead) -> str:
    if not read.judged.contract.has_lookup:
        return "Nothing to compare: this provider offers no lookup, and nobody has given its record."
    if read.lookup is None:
        return "Nothing to compare: no lookup has told anything yet."
    return "Nothing to compare: lookups have found no effect."


def _older(read: CaseRead) -> NextPage | None:
    if not read.evidence_more:
        return None
    oldest = read.evidence[-1].pk
    return NextPage(href=f"?evidence_before={oldest}#evidence", label="Show older evidence")


def _record(read: CaseRead) -> tuple[Fact, ...]:
    case, operation, run = read.case, read.operation, read.run
    pinned = "pinned by the first send" if operation.sent_by else "not sent yet"
    lease: Phrase = ("nobody holds the run",)
    if run.lease_token is not None and run.lease_expires_at is not None:
        lease = (run.lease_holder, ", token ", f"{run.lease_number}", ", until ", run.lease_expires_at)
    facts = [
        Fact(label="Operation id", value=(Code(operation.pk),), copy=operation.pk),
        Fact(label="Idempotency key", value=(Code(operation.key),), copy=operation.key),
        Fact(
            label="Key minted from",
            value=(Code(_key_words(read)),),
            note=("and a secret of this deployment, which no database holds: the same words, the same key",),
        ),
        Fact(label="Case", value=(Code(case.pk),), note=(f"number {case.number}, version {case.version}",)),
        Fact(label="Run", value=(Link(run.pk, reverse("run", args=[run.pk])),), note=(run.external_id,)),
        Fact(label="Payload digest", value=(Code(operation.payload_digest),), copy=operation.payload_digest),
        Fact(label="Call", value=(Code(operation.call.call_id),), note=(f"turn {operation.turn_index}",)),
        Fact(label="Flow, version", value=(f"{run.flow.name} {run.flow_version.version}",), note=("pinned",)),
        Fact(label="Provider account", value=(Code(operation.provider_id),), note=(pinned,)),
        Fact(label="Lease", value=lease),
        Fact(label="Why there is a case", value=(case.opened_because,)),
        Fact(label="History", value=(Link("Every entry about it", history_href(operation.pk)),)),
    ]
    if operation.first_sent_at is not None:
        facts.insert(6, Fact(label="First sent", value=(operation.first_sent_at,)))
    return tuple(facts)


def _key_words(read: CaseRead) -> str:
    operation, run = read.operation, read.run
    return key_words(
        team=operation.team_id,
        provider=operation.provider_id,
        flow=run.flow.name,
        external_id=run.external_id,
        turn_index=operation.turn_index,
        call_id=operation.call.call_id,
    )
