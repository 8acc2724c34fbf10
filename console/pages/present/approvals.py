"""The list of requests for a second person's consent, and the page of one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlencode

from django.urls import reverse

from console.access import REAUTHENTICATED_SECONDS_MAX
from console.pages.drafts import FORM_ID_PREFIX
from console.pages.present.approval_decision import compared
from console.pages.present.approval_kinds import told_of
from console.pages.present.approval_told import BADGES, Told
from console.pages.present.case import question_view, summary_of_answers, title_in
from console.pages.present.jsons import payload_view
from console.pages.present.marks import actor_of, amount_of, capped
from console.pages.present.naming import title_of as operation_title
from console.pages.present.verdict import verdict_of
from console.pages.shapes import (
    Actor,
    Badge,
    Banner,
    Choice,
    Code,
    Consequence,
    EmptyState,
    Fact,
    FieldError,
    Link,
    NextPage,
    Phrase,
    QuestionView,
    Since,
    Tab,
)
from console.pages.shapes.approval import (
    AmountRow,
    AnswerForm,
    ApprovalListPage,
    ApprovalPage,
    ApprovalRow,
    Outcome,
    OwnForm,
    Said,
)
from console.queries.approvals import COUNT_MAX, ApprovalRead, Asked, Asker, Listed, View, Waiting
from console.queries.cases import CaseRead
from console.queries.people import Names
from reconciliation.approval_kinds import title_of
from reconciliation.approval_models import APPROVAL_OPEN, ApprovalRequest, ApprovalState, MessageKind
from reconciliation.states import REASON_LABELS, CaseState, ReasonCode
from runs.actors import ActorKind

# Sooner than this a deadline is red.
LATE: Final = timedelta(hours=1)
STATES: Final[dict[str, Badge]] = {
    ApprovalState.REQUESTED: Badge(
        word="Waits for a second person", icon="hourglass", tone="violet", open=True
    ),
    ApprovalState.APPROVED: Badge(word="Approved, not carried out yet", icon="shield-check", tone="blue"),
    ApprovalState.CARRIED_OUT: Badge(word="Approved and carried out", icon="circle-check", tone="green"),
    ApprovalState.REFUSED: Badge(word="Refused", icon="circle-x", tone="red"),
    ApprovalState.WITHDRAWN: Badge(word="Withdrawn", icon="undo-2", tone="grey"),
    ApprovalState.EXPIRED: Badge(word="Expired", icon="timer", tone="grey"),
    ApprovalState.VOIDED: Badge(word="Void", icon="circle-slash", tone="grey"),
}
_CONSENTED: Final = (ApprovalState.APPROVED, ApprovalState.CARRIED_OUT)
_EMPTY: Final[dict[View, EmptyState]] = {
    View.FOR_YOU: EmptyState(
        title="Nothing waits for you",
        text="A request shows here when a colleague of your team asks for something that takes two people. "
        "Your own requests are under “Asked by you”.",
        icon="shield-check",
    ),
    View.OWN: EmptyState(
        title="You wait for nobody",
        text="What you ask a second person for shows here until it is answered or its time ends.",
        icon="shield-check",
    ),
    View.DECIDED: EmptyState(
        title="No request has ended yet",
        text="What was approved, refused, withdrawn, void or not answered in time shows here.",
        icon="history",
    ),
}


# --- The list -------------------------------------------------------------------------------------------


def list_page(listed: Listed, asked: Asked, *, may_answer: bool, why_not: str) -> ApprovalListPage:
    """One page of requests; the address keeps the view and the kind."""
    path = reverse("approval_list")
    kept = {"kind": asked.kind} if asked.kind else {}
    waiting = listed.waiting
    tabs = tuple(
        Tab(
            label=label,
            href=f"{path}?{urlencode({'view': str(view), **kept})}",
            current=view is asked.view,
            count=capped(count, COUNT_MAX) if count else "",
        )
        for view, label, count in (
            (View.FOR_YOU, "For you" if may_answer else "Waiting", waiting.for_you),
            (View.OWN, "Asked by you", waiting.own),
            (View.DECIDED, "Decided", 0),
        )
    )
    after = None
    if listed.after:
        words = {"view": str(asked.view), **kept, "after": listed.after}
        after = NextPage(href=f"?{urlencode(words)}", label="Load more")
    decided = asked.view is View.DECIDED
    return ApprovalListPage(
        now=listed.now,
        lead=lead_of(waiting, why_not=why_not),
        rows=tuple(_row(one, listed) for one in listed.rows),
        tabs=tabs,
        kinds=(
            Choice(value="", label="Any kind", selected=not asked.kind),
            *(
                Choice(value=str(kind), label=badge.word, selected=asked.kind == kind)
                for kind, badge in BADGES.items()
            ),
        ),
        view=str(asked.view),
        time_heading="Ended" if decided else "Ends",
        news_href=f"{reverse('approval_news')}?{urlencode({'seen': waiting.for_you})}",
        next=after,
        empty=None if listed.rows else _empty(asked),
    )


def lead_of(waiting: Waiting, *, why_not: str) -> str:
    """How much waits, and who can't answer what."""
    if why_not:
        return f"{why_not} You can read what is asked for and how it was answered."
    count = capped(waiting.for_you, COUNT_MAX)
    many = f"{count} {'waits' if waiting.for_you == 1 else 'wait'}" if waiting.for_you else "Nothing waits"
    return f"{many} for you. You can’t approve what you asked for yourself."


def news_text(waiting: Waiting, *, seen: int) -> str:
    """What the list doesn't show yet: "" if as many wait as when it was read."""
    more = waiting.for_you - seen
    if more > 0:
        return f"{more} more {'waits' if more == 1 else 'wait'} for you"
    return f"{-more} fewer {'waits' if more == -1 else 'wait'} now" if more else ""


def _empty(asked: Asked) -> EmptyState:
    if asked.kind or asked.after:
        return EmptyState(
            title="No request matches",
            text="None of the requests that you can see is of this kind here.",
            icon="list-filter",
            action=Link("Show all kinds", f"{reverse('approval_list')}?view={asked.view}"),
        )
    return _EMPTY[asked.view]


def _row(approval: ApprovalRequest, listed: Listed) -> ApprovalRow:
    ended = approval.state not in APPROVAL_OPEN
    operation = approval.operation
    amount = amount_of(operation.amount_currency, operation.amount_minor) if operation is not None else None
    return ApprovalRow(
        approval_id=approval.pk,
        href=reverse("approval", args=[approval.pk]),
        title=title_of(approval),
        badge=BADGES[approval.kind],
        about=_about(approval),
        reason=approval.reason,
        asked_by=_requester(approval, listed.names),
        asked_at=approval.requested_at,
        amount=amount,
        expires_at=approval.ended_at if ended else approval.expires_at,
        late=not ended and approval.expires_at - listed.now < LATE,
        ended=STATES[approval.state] if ended or approval.state == ApprovalState.APPROVED else None,
        answer=_answer(approval, listed.names) if ended else (),
    )


def _about(approval: ApprovalRequest) -> Phrase:
    run, operation = approval.run, approval.operation
    where: Phrase = (
        Link(run.external_id, reverse("run", args=[run.pk])),
        f", {run.flow.name} {run.flow_version.version}",
    )
    if operation is None:
        return where
    money = amount_of(operation.amount_currency, operation.amount_minor)
    what = operation_title(operation.tool, money)
    if approval.case_id:
        return (Link(what, reverse("case", args=[approval.case_id])), " ", Code(operation.pk), " · ", *where)
    return (what, " ", Code(operation.pk), " · ", *where)


def _requester(approval: ApprovalRequest, names: Names) -> Actor:
    return actor_of(names, ActorKind.PERSON, approval.requester, known_as=approval.requester_name)


def _answerer(approval: ApprovalRequest, names: Names) -> Actor | None:
    if not approval.answerer:
        return None
    return actor_of(names, ActorKind.PERSON, approval.answerer, known_as=approval.answerer_name)


def _answer(approval: ApprovalRequest, names: Names) -> Phrase:
    who = _answerer(approval, names)
    if who is not None:
        return (f"{who.name}: {approval.comment}",)
    return (approval.comment or approval.voided_because,)


# --- One request ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Typed:
    """What the person had typed on this page before; kept through every refusal."""

    comment: str = ""
    acknowledged: bool = False
    key: str = ""
    errors: tuple[FieldError, ...] = ()


def approval_page(
    read: ApprovalRead,
    *,
    asker: Asker,
    viewer_name: str,
    why_not: str,
    form_key: str,
    reauthenticated_at: datetime | None,
    typed: Typed,
    banner: Banner | None = None,
    kept: tuple[Fact, ...] = (),
) -> ApprovalPage:
    """The page of one request; `why_not` is "" if this person may answer requests of others."""
    approval = read.approval
    told = told_of(read)
    own = asker.owns(approval.requester, approval.requester_principal)
    waits = approval.state == ApprovalState.REQUESTED and approval.expires_at > read.now
    stands = approval.state in APPROVAL_OPEN and not _over(read)
    state = STATES[ApprovalState.EXPIRED] if _over(read) else STATES[approval.state]
    reason_codes = {str(code): label for code, label in REASON_LABELS.items()}
    may_answer = waits and not own and not why_not
    case = read.case
    key = typed.key if typed.key.startswith(FORM_ID_PREFIX) else form_key
    diffs, no_diff = compared(read)
    return ApprovalPage(
        now=read.now,
        approval_id=approval.pk,
        title=title_of(approval) if case is None else f"{title_of(approval)}: {title_in(case)}",
        badge=BADGES[approval.kind],
        state=state,
        about=_about(approval),
        asked_by=_requester(approval, read.names),
        asked_at=approval.requested_at,
        expires_at=approval.expires_at,
        open=waits,
        reason=approval.reason,
        reason_code=reason_codes.get(approval.reason_code, "")
        if approval.reason_code in set(ReasonCode)
        else "",
        content_title=_content_title(approval, waits=waits),
        content=told.content,
        exact=payload_view(
            "Exact content, as it was hashed", bytes(approval.content), approval.content_digest
        ),
        content_digest=approval.content_digest,
        answered_by=_answerer(approval, read.names),
        answered_at=approval.answered_at,
        answer_word="refused" if approval.state == ApprovalState.REFUSED else "approved",
        answer="" if waits else approval.comment or approval.voided_because,
        stands=stands,
        viewer=Actor(name=viewer_name, is_person=True),
        banner=banner or _state_banner(read, own=own),
        warning=told.warning if waits else None,
        form=_form(read, told, key=key, typed=typed, name=viewer_name, at=reauthenticated_at)
        if may_answer
        else None,
        own=_own(read, key=key, typed=typed) if waits and own else None,
        closed=() if may_answer or (waits and own) else _closed(read, waits=waits, why_not=why_not),
        said=_said(read),
        amounts=told.amounts if stands else _over_amounts(told.amounts, approval.state),
        bar=told.bar,
        versions=told.versions,
        plans=told.plans,
        verdict=verdict_of(case, may_look_up=False, why_not="") if case is not None else None,
        questions=_questions(case) if case is not None else (),
        questions_summary=_questions_summary(case) if case is not None else "",
        diffs=diffs,
        no_diff=no_diff,
        kept=kept if not may_answer and not (waits and own) else (),
    )


def _questions(case: CaseRead) -> tuple[QuestionView, ...]:
    assessment = case.judged.assessment
    settled = case.case.state == CaseState.RESOLVED
    return tuple(question_view(one, assessment.actions, settled=settled) for one in assessment.answers)


def _questions_summary(case: CaseRead) -> str:
    settled = case.case.state == CaseState.RESOLVED
    return summary_of_answers(case.judged.assessment.answers, settled=settled)


def _over(read: ApprovalRead) -> bool:
    """Its time has ended, and the sweeper hasn't said so yet."""
    return read.approval.state in APPROVAL_OPEN and read.approval.expires_at <= read.now


def _form(
    read: ApprovalRead, told: Told, *, key: str, typed: Typed, name: str, at: datetime | None
) -> AnswerForm:
    approval = read.approval
    who = _requester(approval, read.names).name
    recent = at is not None and (read.now - at).total_seconds() < REAUTHENTICATED_SECONDS_MAX
    minutes = REAUTHENTICATED_SECONDS_MAX // 60
    sign_in: Phrase = () if recent else (f"An answer takes a sign-in of the last {minutes} minutes. ",)
    if not recent and at is not None:
        sign_in = (*sign_in, "Yours was ", Since(at), ".")
    href = reverse("approval", args=[approval.pk])
    return AnswerForm(
        href=reverse("approval_answer", args=[approval.pk]),
        key=key,
        content_digest=approval.content_digest,
        approve=told.approve,
        danger=told.danger,
        comment=typed.comment,
        outcomes=(
            Outcome(title="If you approve", consequences=told.if_approved),
            Outcome(title="If you refuse", consequences=told.if_refused),
            Outcome(title="If you ask back", consequences=(_asking(who),)),
        ),
        recorded_as=name,
        acknowledgement=told.acknowledgement,
        acknowledged=typed.acknowledged,
        errors=typed.errors,
        sign_in=sign_in,
        sign_in_href="" if recent else f"{reverse('reauthenticate')}?{urlencode({'next': href})}",
    )


def _asking(who: str) -> Consequence:
    return Consequence(
        icon="message-square", text=(f"{who} sees your question and can reply. The request stays open.",)
    )


def _own(read: ApprovalRead, *, key: str, typed: Typed) -> OwnForm:
    asked = any(one.kind == MessageKind.QUESTION for one in read.messages)
    return OwnForm(
        href=reverse("approval_own", args=[read.approval.pk]),
        key=key,
        text=typed.comment,
        may_reply=asked,
        errors=typed.errors,
    )


def _closed(read: ApprovalRead, *, waits: bool, why_not: str) -> Phrase:
    if waits:
        return (why_not,)
    if read.approval.state == ApprovalState.APPROVED and not _over(read):
        return ("It is approved. It is carried out once, if everything still stands then.",)
    return ("It has ended, so nothing can be answered any more.",)


def _over_amounts(rows: tuple[AmountRow, ...], state: str) -> tuple[AmountRow, ...]:
    """The run's money as it was told, of a request that has ended: nothing of it is "now" or to come."""
    names = ("Before", "As approved" if state in _CONSENTED else "As it would have been")
    return tuple(replace(row, name=name) for row, name in zip(rows, names, strict=False))


def _content_title(approval: ApprovalRequest, *, waits: bool) -> str:
    if waits:
        return "What would be consented to"
    return "What was consented to" if approval.state in _CONSENTED else "What was asked for"


def _state_banner(read: ApprovalRead, *, own: bool) -> Banner | None:
    """What became of a request that waits for nobody any more: what, who and when."""
    approval = read.approval
    who = _answerer(approval, read.names)
    at: Phrase = (approval.ended_at,) if approval.ended_at is not None else ()
    if _over(read) or approval.state == ApprovalState.EXPIRED:
        return Banner(
            title=("Nobody approved it in time. Time never approves.",),
            icon="timer",
            tone="grey",
            text=("Its time ended ", approval.expires_at, ". Nothing was done; it can be asked for again."),
        )
    match ApprovalState(approval.state):
        case ApprovalState.REQUESTED | ApprovalState.EXPIRED:
            return None
        case ApprovalState.VOIDED:
            return Banner(
                title=("What it was about changed, so it is void. Nothing was done.",),
                icon="circle-slash",
                tone="amber",
                text=(*at, ": ", approval.voided_because),
            )
        case ApprovalState.WITHDRAWN:
            by = "You" if own else _requester(approval, read.names).name
            return Banner(
                title=(f"{by} took it back. Nothing was done.",),
                icon="undo-2",
                tone="grey",
                text=at,
                quote=approval.comment,
            )
        case ApprovalState.REFUSED:
            return Banner(
                title=(f"{who.name if who else 'Somebody'} refused it. Nothing was done.",),
                icon="circle-x",
                tone="red",
                text=(approval.answered_at,) if approval.answered_at is not None else (),
                quote=approval.comment,
            )
        case ApprovalState.APPROVED | ApprovalState.CARRIED_OUT:
            done = approval.state == ApprovalState.CARRIED_OUT
            return Banner(
                title=(
                    f"{who.name if who else 'Somebody'} approved it"
                    + (", and it was carried out." if done else "; it is carried out once."),
                ),
                icon="circle-check" if done else "shield-check",
                tone="green" if done else "blue",
                text=(approval.answered_at,) if approval.answered_at is not None else (),
                quote=approval.comment,
            )


def answered_banner(read: ApprovalRead, *, next_id: str, asked: bool) -> Banner:
    """What this person just answered, and the way to the next request."""
    action = (
        Link("Next request", reverse("approval", args=[next_id]))
        if next_id
        else Link("Back to approvals", reverse("approval_list"))
    )
    if asked:
        who = _requester(read.approval, read.names).name
        title = f"Asked. {who} sees your question; the request stays open."
        return Banner(title=(title,), icon="message-square", tone="blue", action=action, focus=True)
    state = ApprovalState(read.approval.state)
    refused = state is ApprovalState.REFUSED
    carried_out = state is ApprovalState.CARRIED_OUT
    title = (
        "You refused it. Nothing was done."
        if refused
        else "You approved it, and it was carried out."
        if carried_out
        else "You approved it. It is carried out once, after the same checks again."
    )
    text: Phrase = ()
    if carried_out and read.approval.case_id is None:
        text = (f"The run is {read.run.state}.",)
    return Banner(
        title=(title,),
        icon="circle-x" if refused else "circle-check",
        tone="grey" if refused else "green",
        text=text,
        action=action,
        focus=True,
    )


def refused_banner(sentence: str, *, kept: bool) -> Banner:
    """Why the answer wasn't taken, in the refusal's own words."""
    return Banner(
        title=("Your answer was not recorded.",),
        icon="octagon-x",
        tone="red",
        text=(sentence,),
        kept="What you typed is kept" if kept else "",
        focus=True,
    )


def _said(read: ApprovalRead) -> tuple[Said, ...]:
    return tuple(
        Said(
            by=actor_of(read.names, ActorKind.PERSON, one.actor, known_as=one.actor_name),
            at=one.made_at,
            text=one.text,
            kind="question" if one.kind == MessageKind.QUESTION else "reply",
        )
        for one in read.messages
    )
