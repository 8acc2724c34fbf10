"""The decision panel: the form, what was decided, or why nothing can be decided by this person now."""

from __future__ import annotations

from typing import Final

from django.urls import reverse

from console.pages.forms import GIVEN, WITHOUT, DecisionForm
from console.pages.present.diff import records_shown
from console.pages.present.marks import RESOLUTIONS, actor_of, window_of
from console.pages.present.outcomes import consequences_in, in_words, last_word, run_in_words
from console.pages.shapes import (
    ActionView,
    Actor,
    Badge,
    Choice,
    Code,
    Consequence,
    DecisionAwaited,
    DecisionClosed,
    DecisionMade,
    DecisionPanel,
    Fact,
    FieldError,
    Link,
    Option,
    OptionGroup,
    Part,
    Phrase,
    TextField,
    Until,
)
from console.pages.shapes import DecisionForm as FormView
from console.queries.cases import CaseRead
from reconciliation.approval_checks import COMMENT_LENGTH_MIN
from reconciliation.approval_models import ApprovalKind, ApprovalRequest, ApprovalState
from reconciliation.asked import REASON_LENGTH_MIN, THEN_IS_SAID, ActionLocked, require_console_may_send
from reconciliation.choosing import against
from reconciliation.conclusions import matching_references
from reconciliation.foreseeing import Choices
from reconciliation.making_absent_rules import under_way, under_way_sentence
from reconciliation.models import Decision
from reconciliation.permissions import ActionStatus
from reconciliation.states import REASON_LABELS, Action, CaseState, Permission, ReasonCode, Resolution, Then
from runs.actors import ActorKind
from runs.states import OPERATION_SETTLED, Executor, GrantState

TITLES: Final[dict[Action, str]] = {
    Action.CONFIRM: "Confirm it happened",
    Action.RETRY: "Retry with the same key",
    Action.ABANDON: "Abandon",
    Action.MAKE_ABSENT: "Make sure it’s absent",
    Action.ACCEPT: "Let the extra effect stand",
    Action.COMPENSATE: "Record that it was undone",
}
ASKS_TWO: Final[Phrase] = (
    "Somebody else who approves for your team is asked. Until they answer, nothing is done and the case ",
    "waits; if it changes meanwhile, the request is void.",
)
_ASKED_FOR: Final[dict[ApprovalKind, str]] = {
    ApprovalKind.OVERRIDE: "Confirm it happened",
    ApprovalKind.RETRY: "Retry with the same key",
    ApprovalKind.ABANDONMENT: "Abandon it",
    ApprovalKind.MAKE_ABSENT: "Make sure it’s absent",
}
_DONE: Final[dict[str, Badge]] = {
    Action.CONFIRM: Badge(word="Confirmed", icon="circle-check", tone="green"),
    Action.RETRY: Badge(word="Retry decided", icon="rotate-ccw", tone="blue"),
    Action.ABANDON: Badge(word="Abandoned", icon="circle-slash", tone="grey"),
    Action.MAKE_ABSENT: Badge(word="Made absent", icon="undo-2", tone="green"),
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
    actor: str,
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
    if state is CaseState.AWAITING_APPROVAL and read.approval is not None:
        return _awaited(read, read.approval, actor)
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


def _awaited(read: CaseRead, approval: ApprovalRequest, actor: str) -> DecisionAwaited:
    own = approval.requester == actor
    code = approval.reason_code
    approved = approval.state == ApprovalState.APPROVED
    waiting = Badge(word="Waiting for approval", icon="shield-check", tone="violet")
    return DecisionAwaited(
        badge=Badge(word="Approved, not sent yet", icon="shield-check", tone="blue") if approved else waiting,
        by=actor_of(read.names, ActorKind.PERSON, approval.requester, known_as=approval.requester_name),
        at=approval.requested_at,
        until_at=approval.expires_at,
        reason_code=REASON_LABELS[ReasonCode(code)] if code in set(ReasonCode) else code,
        reason=approval.reason,
        href=reverse("approval", args=[approval.pk]),
        facts=(Fact(label="Asked for", value=(_ASKED_FOR[ApprovalKind(approval.kind)],)),),
        withdraw_href=reverse("approval_own", args=[approval.pk]) if own and not approved else "",
        approved=approved,
        comment_length_min=COMMENT_LENGTH_MIN,
    )


def _after_approval(read: CaseRead) -> Phrase:
    """Why the case is back with people, where a second person was asked about it and it wasn't done."""
    approval = read.approval
    if approval is None or read.case.state != CaseState.NEEDS_DECISION or approval.ended_at is None:
        return ()
    asked = _ASKED_FOR[ApprovalKind(approval.kind)].lower()
    link = Link("the request", reverse("approval", args=[approval.pk]))
    who = approval.answerer_name or approval.answerer
    match ApprovalState(approval.state):
        case ApprovalState.REFUSED:
            return (f"{who} refused to {asked} (", link, f"): {approval.comment}")
        case ApprovalState.WITHDRAWN:
            return (f"{approval.requester_name} withdrew ", link, f" to {asked}: {approval.comment}")
        case ApprovalState.EXPIRED | ApprovalState.VOIDED:
            return (f"A second person was asked to {asked}, and ", link, f" ended: {approval.voided_because}")
        case _:
            return ()


def _note(read: CaseRead) -> Phrase:
    ended = _after_approval(read)
    if ended:
        return ended
    absence = under_way(read.judged.facts)
    if absence is not None:
        return (under_way_sentence(absence),)
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
    """Whether a person can go on with this action: alone, or by asking a second one."""
    return status.permission is not Permission.LOCKED


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
    with_run = status.action not in THEN_IS_SAID
    done = consequences_in(read, status.action, Choices())
    return ActionView(
        action=view.action,
        title=view.title,
        text=view.text,
        standing=view.standing,
        selectable=True,
        locked_by=view.locked_by,
        consequences=(
            *_two(status),
            *in_words(read, done, with_run=with_run and status.action is not Action.RETRY),
            last_word(done),
        ),
        options=_options(read, status, form),
        fields=_fields(status, form),
    )


def _two(status: ActionStatus) -> tuple[Consequence, ...]:
    """What asking does, before what would follow from consent."""
    if status.permission is not Permission.SECOND_PERSON or status.receipt_unlocks:
        return ()
    return (Consequence(icon="users", text=ASKS_TWO),)


def _locked_by(status: ActionStatus) -> str:
    match status.permission:
        case Permission.ALLOWED:
            return ""
        case Permission.SECOND_PERSON:
            return "" if status.receipt_unlocks else "Takes a second person."
        case Permission.LOCKED:
            return f"Locked by question {status.question}." if status.question else "Locked."


def _text(status: ActionStatus) -> Phrase:
    parts: list[Part] = [status.sentence]
    if status.unlocks_at is not None:
        parts += [" Unlocks at ", status.unlocks_at, ", ", Until(status.unlocks_at), "."]
    if status.closes_at is not None and status.permission is not Permission.LOCKED:
        parts += [" Possible until ", status.closes_at, ", ", Until(status.closes_at), "."]
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
            return _receipt_options(read, status, form)
        case Action.RETRY:
            return (_executors(read, form),)
        case Action.ABANDON | Action.MAKE_ABSENT:
            return (_endings(read, form, status.action),)
        case _:
            return ()


def _receipt_options(read: CaseRead, status: ActionStatus, form: DecisionForm) -> tuple[OptionGroup, ...]:
    """The receipts that can be chosen, and the ways to give another one or none."""
    if status.permission is Permission.SECOND_PERSON:
        return (OptionGroup(name="receipt", legend="By what?", options=tuple(_of_two(read, status, form))),)
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


def _of_two(read: CaseRead, status: ActionStatus, form: DecisionForm) -> list[Option]:
    """What two people can confirm with; where one person is enough with a record that matches, that first."""
    options = []
    if status.receipt_unlocks:
        options.append(
            Option(
                value=GIVEN,
                label="The provider’s record, given below",
                text=("– if it matches, you decide alone; if not, a second person is asked",),
                selected=form["receipt"] in ("", GIVEN) and bool(form["given_body"]),
            )
        )
    chosen = form["receipt"].partition("/")[2]
    shown = {one.reference: one for one in read.judged.facts.receipts if not one.confirmed_other}
    records = {str(record.get("reference", "")): record for record, _ in records_shown(read)}
    for number, one in enumerate(shown.values(), start=1):
        differs = "" if one.matches else f"; it {against(records.get(one.reference))}"
        options.append(
            Option(
                value=f"{one.evidence_id}/{one.reference}",
                key=f"{number}",
                label=f"Receipt {one.reference}",
                text=("on record as ", Code(one.evidence_id), f"{differs}; a second person is asked"),
                selected=chosen == one.reference,
            )
        )
    if status.receipt_unlocks:
        options.append(
            Option(
                value=WITHOUT,
                label="No record of it can be given",
                text=("– a second person is asked; the record will say that there was none",),
                selected=form["receipt"] == WITHOUT,
            )
        )
    return options


def _fields(status: ActionStatus, form: DecisionForm) -> tuple[TextField, ...]:
    chosen_only = status.permission is Permission.SECOND_PERSON and not status.receipt_unlocks
    if status.action is not Action.CONFIRM or chosen_only:
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


def _endings(read: CaseRead, form: DecisionForm, action: Action) -> OptionGroup:
    labels = {Then.END: "It ends here", Then.CONTINUE: "It goes on without the effect"}
    name = "then_absent" if action is Action.MAKE_ABSENT else "then"
    options = []
    for then, label in labels.items():
        done = consequences_in(read, action, Choices(then=then))
        options.append(
            Option(
                value=then,
                label=label,
                text=("– ", *run_in_words(read, done.run)),
                selected=form[name] == then,
            )
        )
    return OptionGroup(name=name, legend="And the run?", options=tuple(options))


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
    if decision.approval_id is not None:
        request = Link(
            decision.approver_name or decision.approver, reverse("approval", args=[decision.approval_id])
        )
        facts.append(Fact(label="Approved by", value=(request,)))
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
