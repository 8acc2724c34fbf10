"""The decision panel: the form, what was decided, or why nothing can be decided by this person now."""

from __future__ import annotations

from typing import Final

from django.urls import reverse

from console.pages.forms import GIVEN, DecisionForm
from console.pages.present.marks import RESOLUTIONS, actor_of, window_of
from console.pages.present.outcomes import consequences_in, in_words, last_word, run_in_words
from console.pages.shapes import (
    ActionView,
    Actor,
    Badge,
    Choice,
    Code,
    DecisionClosed,
    DecisionMade,
    DecisionPanel,
    Fact,
    FieldError,
    Option,
    OptionGroup,
    Part,
    Phrase,
    TextField,
    Until,
)
from console.pages.shapes import DecisionForm as FormView
from console.queries.cases import CaseRead
from reconciliation.asked import REASON_LENGTH_MIN, ActionLocked, require_console_may_send
from reconciliation.conclusions import matching_references
from reconciliation.foreseeing import Choices
from reconciliation.models import Decision
from reconciliation.permissions import ActionStatus
from reconciliation.states import REASON_LABELS, Action, CaseState, Permission, ReasonCode, Resolution, Then
from runs.states import OPERATION_SETTLED, Executor, GrantState

TITLES: Final[dict[Action, str]] = {
    Action.CONFIRM: "Confirm it happened",
    Action.RETRY: "Retry with the same key",
    Action.ABANDON: "Abandon",
    Action.ACCEPT: "Let the extra effect stand",
    Action.COMPENSATE: "Record that it was undone",
}
NO_APPROVALS: Final = "It takes a second person, and approvals can’t be asked for here yet."
_DONE: Final[dict[str, Badge]] = {
    Action.CONFIRM: Badge(word="Confirmed", icon="circle-check", tone="green"),
    Action.RETRY: Badge(word="Retry decided", icon="rotate-ccw", tone="blue"),
    Action.ABANDON: Badge(word="Abandoned", icon="circle-slash", tone="grey"),
    Action.ACCEPT: Badge(word="Accepted", icon="check", tone="green"),
    Action.COMPENSATE: Badge(word="Undone", icon="undo-2", tone="green"),
}


def panel_of(
    read: CaseRead,
    *,
    form: DecisionForm,
    errors: tuple[FieldError, ...] = (),
    closed_by: str = "",
    recorded_as: str,
    may_withdraw: bool,
) -> DecisionPanel:
    """The panel of a case. `closed_by` is the sentence that says why this person decides nothing."""
    state = CaseState(read.case.state)
    window = None
    if read.operation.state not in OPERATION_SETTLED:
        window = window_of(read.judged.facts, read.judged.contract, now=read.now)
    if state is CaseState.RESOLVED or (state is CaseState.RETRYING and read.decisions):
        if not read.decisions:
            return _settled_alone(read)
        return _made(read, may_withdraw=may_withdraw, form=form, errors=errors)
    if closed_by:
        return DecisionClosed(
            text=(closed_by,), window=window, actions=_actions(read, form, open_to_all=False)
        )
    return FormView(
        href=reverse("case_decide", args=[read.case.pk]),
        version=read.case.version,
        evidence_digest=read.judged.evidence_digest,
        actions=_actions(read, form, open_to_all=True),
        reason_codes=tuple(Choice(value=str(code), label=label) for code, label in REASON_LABELS.items()),
        reason_length_min=REASON_LENGTH_MIN,
        recorded_as=recorded_as,
        window=window,
        note=_note(read),
        draft=form.draft,
        errors=errors,
    )


def _note(read: CaseRead) -> Phrase:
    if read.case.state == CaseState.LOOKING_UP:
        return (
            "Recourse is still looking, and asks for a decision only if lookups can’t settle it. ",
            "You can decide now, or wait.",
        )
    return ()


# --- The actions ----------------------------------------------------------------------------------------


def _actions(read: CaseRead, form: DecisionForm, *, open_to_all: bool) -> tuple[ActionView, ...]:
    return tuple(_action(read, one, form, open_to_all) for one in read.judged.assessment.actions)


def selectable(status: ActionStatus) -> bool:
    """Whether one person can go on with this action: it is allowed, or a record given may make it so."""
    return status.permission is Permission.ALLOWED or (
        status.permission is Permission.SECOND_PERSON and status.receipt_unlocks
    )


def _action(read: CaseRead, status: ActionStatus, form: DecisionForm, open_to_all: bool) -> ActionView:
    view = ActionView(
        action=status.action,
        title=TITLES[status.action],
        text=_text(status),
        standing=status.permission,
        selectable=selectable(status) and open_to_all,
        locked_by=_locked_by(status),
    )
    if not view.selectable:
        return view
    with_run = status.action is not Action.ABANDON
    done = consequences_in(read, status.action, Choices())
    return ActionView(
        action=view.action,
        title=view.title,
        text=view.text,
        standing=view.standing,
        selectable=True,
        consequences=(
            *in_words(read, done, with_run=with_run and status.action is not Action.RETRY),
            last_word(done),
        ),
        options=_options(read, status, form),
        fields=_fields(status, form),
    )


def _locked_by(status: ActionStatus) -> str:
    match status.permission:
        case Permission.ALLOWED:
            return ""
        case Permission.SECOND_PERSON:
            return "" if status.receipt_unlocks else "Needs a second person."
        case Permission.LOCKED:
            return f"Locked by question {status.question}." if status.question else "Locked."


def _text(status: ActionStatus) -> Phrase:
    parts: list[Part] = [status.sentence]
    if status.unlocks_at is not None:
        parts += [" Unlocks at ", status.unlocks_at, ", ", Until(status.unlocks_at), "."]
    if status.closes_at is not None and status.permission is not Permission.LOCKED:
        parts += [" Possible until ", status.closes_at, ", ", Until(status.closes_at), "."]
    if status.permission is Permission.SECOND_PERSON and not status.receipt_unlocks:
        parts.append(" Approvals can’t be asked for here yet.")
    return tuple(parts)


def _console_may_send(read: CaseRead) -> bool:
    """Whether a repeat by the console would not be refused; the same question as the decision asks."""
    try:
        require_console_may_send(read.operation, read.judged)
    except ActionLocked:
        return False
    return True


def _options(read: CaseRead, status: ActionStatus, form: DecisionForm) -> tuple[OptionGroup, ...]:
    match status.action:
        case Action.CONFIRM:
            return _receipt_options(read, form) if status.permission is Permission.ALLOWED else ()
        case Action.RETRY:
            return (_executors(read, form),)
        case Action.ABANDON:
            return (_endings(read, form),)
        case _:
            return ()


def _receipt_options(read: CaseRead, form: DecisionForm) -> tuple[OptionGroup, ...]:
    """The receipts on record that match, and the way to give another one."""
    matching = matching_references(read.judged.facts)
    options = [
        Option(
            value=f"{evidence_id}/{reference}",
            key=f"{number}",
            label=f"Receipt {reference}",
            text=("on record as ", Code(evidence_id), "; nothing of it differs"),
            # Chosen before the same answer came again, it is still the one.
            selected=form["receipt"].partition("/")[2] == reference,
        )
        for number, (reference, evidence_id) in enumerate(matching.items(), start=1)
    ]
    options.append(
        Option(
            value=GIVEN,
            label="Another record of the provider’s, given below",
            selected=form["receipt"] == GIVEN,
        )
    )
    return (OptionGroup(name="receipt", legend="Which receipt?", options=tuple(options)),)


def _fields(status: ActionStatus, form: DecisionForm) -> tuple[TextField, ...]:
    if status.action is not Action.CONFIRM:
        return ()
    return (
        TextField(
            name="given_reference",
            label="Provider’s id of it",
            value=form["given_reference"],
            hint="As the provider writes it; may be left empty if the record has it.",
        ),
        TextField(
            name="given_body",
            label="Provider’s record, as JSON",
            value=form["given_body"],
            rows=5,
            hint="Kept as evidence. It must carry our key or reference and match the payload.",
        ),
    )


def _executors(read: CaseRead, form: DecisionForm) -> OptionGroup:
    by_agent = consequences_in(read, Action.RETRY, Choices(executor=Executor.AGENT))
    options = [
        Option(
            value=Executor.AGENT,
            label="The agent’s worker",
            text=(
                "when it comes for the run; within 15 minutes, or you are asked again. ",
                *run_in_words(read, by_agent.run),
            ),
            selected=form["executor"] == Executor.AGENT,
        )
    ]
    if _console_may_send(read):
        by_console = consequences_in(read, Action.RETRY, Choices(executor=Executor.CONSOLE))
        options.append(
            Option(
                value=Executor.CONSOLE,
                label="Recourse itself",
                text=(
                    "as soon as the lookup has found nothing. ",
                    *run_in_words(read, by_console.run),
                ),
                selected=form["executor"] == Executor.CONSOLE,
            )
        )
    return OptionGroup(name="executor", legend="Who sends it?", options=tuple(options))


def _endings(read: CaseRead, form: DecisionForm) -> OptionGroup:
    labels = {Then.END: "It ends here", Then.CONTINUE: "It goes on without the effect"}
    options = []
    for then, label in labels.items():
        done = consequences_in(read, Action.ABANDON, Choices(then=then))
        options.append(
            Option(
                value=then,
                label=label,
                text=("– ", *run_in_words(read, done.run)),
                selected=form["then"] == then,
            )
        )
    return OptionGroup(name="then", legend="And the run?", options=tuple(options))


# --- What was decided -----------------------------------------------------------------------------------


def _made(
    read: CaseRead, *, may_withdraw: bool, form: DecisionForm, errors: tuple[FieldError, ...]
) -> DecisionMade:
    decision = read.decisions[0]
    retrying = read.case.state == CaseState.RETRYING
    grant_open = read.grant is not None and read.grant.state == GrantState.OPEN
    withdrawable = retrying and (grant_open or read.retry_pending)
    note: Phrase = ()
    if withdrawable and not may_withdraw:
        note = ("An operator can withdraw it while it is unused.",)
    elif retrying and not withdrawable:
        note = ("The request has been permitted and used; its outcome comes next.",)
    code = decision.reason_code
    return DecisionMade(
        title="Decided",
        badge=_badge(read, decision),
        by=_decider(read, decision),
        at=decision.made_at,
        reason_code=REASON_LABELS[ReasonCode(code)] if code in set(ReasonCode) else code or "None: by policy",
        reason=decision.reason,
        facts=tuple(_decided_facts(read, decision)),
        window=window_of(read.judged.facts, read.judged.contract, now=read.now) if retrying else None,
        note=note,
        withdraw_href=reverse("case_withdraw", args=[read.case.pk]) if withdrawable and may_withdraw else "",
        withdraw_reason=form["reason"] if errors else "",
        reason_length_min=REASON_LENGTH_MIN,
        errors=errors,
    )


def _badge(read: CaseRead, decision: Decision) -> Badge:
    """How the case stands, where it was resolved otherwise than the decision said."""
    if read.case.state == CaseState.RESOLVED:
        return RESOLUTIONS[Resolution(read.case.resolution)]
    return _DONE[decision.action]


def _decider(read: CaseRead, decision: Decision) -> Actor:
    return actor_of(read.names, decision.actor_kind, decision.actor, known_as=decision.actor_name)


def _decided_facts(read: CaseRead, decision: Decision) -> list[Fact]:
    facts = [Fact(label="Decision", value=(TITLES[Action(decision.action)],))]
    if decision.executor:
        who = "the agent’s worker" if decision.executor == Executor.AGENT else "Recourse itself"
        facts.append(Fact(label="Sent by", value=(who,)))
    if decision.then:
        facts.append(
            Fact(label="The run", value=("ends" if decision.then == Then.END else "goes on without it",))
        )
    if decision.reference:
        facts.append(Fact(label="Receipt", value=(Code(decision.reference),)))
    facts.append(Fact(label="Case version", value=(f"{decision.seen_version}",)))
    if read.grant is not None and read.case.state == CaseState.RETRYING:
        facts.append(Fact(label="Not before", value=(read.grant.not_before_at,)))
        facts.append(Fact(label="Not after", value=(read.grant.not_after_at,)))
    return facts


def _settled_alone(read: CaseRead) -> DecisionClosed:
    if read.case.state == CaseState.RESOLVED:
        badge = RESOLUTIONS[Resolution(read.case.resolution)]
        text: Phrase = (f"{badge.word} without a person: the evidence settled it, by policy.",)
        return DecisionClosed(text=text, icon=badge.icon)
    return DecisionClosed(text=("A retry is under way; nobody has to decide now.",), icon="rotate-ccw")
