"""The review before a decision is recorded, and what is said when it can't be."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from django.urls import reverse

from console.pages import wording
from console.pages.forms import DecisionForm
from console.pages.present.case import title_in
from console.pages.present.naming import TO_QUESTION, noun_of
from console.pages.present.outcomes import changes_of, consequences_in, in_words, last_word
from console.pages.present.panel import ASKS_TWO
from console.pages.shapes import (
    Banner,
    Code,
    Consequence,
    Fact,
    FieldError,
    Link,
    Part,
    Phrase,
    ReviewPage,
    Strong,
)
from console.queries.cases import CaseRead
from console.queries.people import Names
from reconciliation.decisions import REASON_LENGTH_MIN, ActionLocked, DecisionStale
from reconciliation.foreseeing import Choices
from reconciliation.models import Decision
from reconciliation.reviewing import Reviewed
from reconciliation.states import Action, Then

_ACTED: Final[dict[str, str]] = {
    Action.CONFIRM: "confirmed that it happened",
    Action.RETRY: "chose a retry with the same key",
    Action.ABANDON: "gave it up",
    Action.MAKE_ABSENT: "let the provider make sure that it’s absent",
    Action.ACCEPT: "let the extra effect stand",
    Action.COMPENSATE: "recorded that the extra effect was undone",
}


def review_page(
    read: CaseRead,
    reviewed: Reviewed,
    form: DecisionForm,
    *,
    action: Action,
    idempotency_key: str,
    recorded_as: str,
    errors: tuple[FieldError, ...] = (),
) -> ReviewPage:
    """The last look: everything that the decision would do, and nothing done."""
    choices = Choices(executor=form["executor"], then=form.then, receipt_amount=reviewed.amount)
    done = consequences_in(read, action, choices)
    title, heading, primary = _headings(read, action)
    said = [*_receipt(reviewed), *in_words(read, done), last_word(done)]
    if reviewed.why_two:
        title, heading, primary = _headings_of_two(title, heading)
        said.insert(0, Consequence(icon="users", text=ASKS_TWO))
    return ReviewPage(
        now=read.now,
        case_id=read.case.pk,
        case_href=reverse("case", args=[read.case.pk]),
        href=reverse("case_decide", args=[read.case.pk]),
        title=title,
        lead=(
            f"{title_in(read)}, ",
            Code(read.operation.pk),
            f". You are deciding on version {read.case.version}.",
        ),
        heading=heading,
        consequences=tuple(said),
        primary=primary,
        reason=form["reason"],
        recorded_as=recorded_as,
        hidden=form.hidden(idempotency_key=idempotency_key),
        reason_length_min=REASON_LENGTH_MIN,
        danger=action is Action.ABANDON and not reviewed.why_two,
        changes=changes_of(read, done),
        warning=_why_two(reviewed) if reviewed.why_two else _warning(action, form),
        errors=errors,
    )


def _headings(read: CaseRead, action: Action) -> tuple[str, str, str]:
    noun = noun_of(read.operation.tool)
    match action:
        case Action.CONFIRM:
            return f"Confirm that the {noun} happened?", "If you confirm", "Confirm it happened"
        case Action.RETRY:
            return f"Retry the {noun} with the same key?", "If you retry", "Retry with the same key"
        case Action.ABANDON:
            return f"Abandon this {noun}?", "If you abandon it", f"Abandon the {noun}"
        case Action.MAKE_ABSENT:
            return (
                f"Make sure that the {noun} is absent?",
                "If the provider is asked to make it absent",
                "Make sure it’s absent",
            )
        case Action.ACCEPT:
            return f"Let the extra {noun} stand?", "If you accept it", "Let it stand"
        case Action.COMPENSATE:
            return (
                f"Record that the extra {noun} was undone?",
                "If you record it",
                "Record that it was undone",
            )


def _headings_of_two(title: str, heading: str) -> tuple[str, str, str]:
    """As above, where the next step asks a second person and does nothing else."""
    return (
        f"Ask a second person: {title[:1].lower()}{title[1:]}",
        f"What is asked, and what follows if they agree: {heading[:1].lower()}{heading[1:]}",
        "Ask for approval",
    )


def _why_two(reviewed: Reviewed) -> Banner:
    return Banner(
        title=("One person can’t decide this alone",), icon="users", tone="amber", text=(reviewed.why_two,)
    )


def _receipt(reviewed: Reviewed) -> list[Consequence]:
    if not reviewed.reference:
        return []
    text: Phrase = (Code(reviewed.reference), " becomes the receipt")
    if reviewed.evidence_id:
        text = (*text, ", as ", Code(reviewed.evidence_id), " shows it")
    return [Consequence(icon="receipt-text", text=text)]


def _warning(action: Action, form: DecisionForm) -> Banner | None:
    if action is not Action.ABANDON:
        return None
    run = "The run ends with it." if form["then"] == Then.END else "The run is told that it was given up."
    return Banner(
        title=("Whether it happened stays unknown",),
        icon="triangle-alert",
        tone="amber",
        text=(f"Nobody looks for it again unless new evidence arrives. {run}",),
    )


# --- Banners --------------------------------------------------------------------------------------------


def stale_banner(refusal: DecisionStale, *, now: datetime, kept: bool) -> Banner:
    """Who decided first, what changed and when; never only that something did."""
    details = refusal.details
    # Who decided; where only evidence came, the details name its actor and no action.
    by = str(details.get("by", "")) if details.get("action") else ""
    text: list[Part] = []
    if by:
        at = datetime.fromisoformat(str(details["at"]))
        acted = _ACTED.get(str(details["action"]), "decided")
        text += ["At ", at, f", {wording.span(now - at)} ago, {by} ", Strong(acted), ". "]
    elif details.get("at"):
        at = datetime.fromisoformat(str(details["at"]))
        who = Names({str(details.get("by"))}).of("", str(details.get("by")))
        text += ["At ", at, f", new evidence by {who}: {details.get('evidence', '')} "]
    else:
        text += [" ".join(str(one) for one in details.get("changed", [])), " "]
    seen, version = details.get("seen_version"), details.get("version")
    if seen != version:
        text += [f"You decided on version {seen}; this is ", Strong(f"version {version}"), "."]
    else:
        text += ["Read the answers below before you decide."]
    return Banner(
        title=(
            f"{by} decided first." if by else "This case changed while you were deciding.",
            " Your decision was not recorded.",
        ),
        icon="users" if by else "refresh-cw",
        tone="red",
        text=tuple(text),
        quote=str(details.get("their_reason", "")),
        kept="What you typed is kept" if kept else "",
        links=(Link("See what changed", "#timeline-title"),),
        focus=True,
    )


def locked_banner(refusal: ActionLocked, *, kept: bool) -> Banner:
    """Why the policy doesn't allow it now, and what would."""
    text: list[Part] = [refusal.sentence]
    unlocks = refusal.details.get("unlocks_at")
    if isinstance(unlocks, str):
        text += [" It unlocks at ", datetime.fromisoformat(unlocks), "."]
    question = refusal.details.get("question")
    links = (Link(f"Question {question}", f"#question-{question}"),) if question else ()
    return Banner(
        title=("This can’t be recorded now. Nothing was changed and nothing was sent.",),
        icon="lock",
        tone="red",
        text=tuple(text),
        kept="What you typed is kept" if kept else "",
        links=links,
        focus=True,
    )


def refused_banner(sentence: str, *, kept: bool) -> Banner:
    """Any other refusal, in its own words."""
    return Banner(
        title=("Your decision was not recorded.",),
        icon="octagon-x",
        tone="red",
        text=(sentence,),
        kept="What you typed is kept" if kept else "",
        focus=True,
    )


def decided_banner(read: CaseRead, decision: Decision) -> Banner:
    """What was recorded just now, what became of it, and the way to the next case."""
    words: dict[str, tuple[str, Phrase]] = {
        Action.CONFIRM: ("Recorded: it happened.", ("The receipt is on record and the run is told.",)),
        Action.RETRY: (
            "Recorded: retry with the same key.",
            ("A fresh lookup comes first where there is one; if it finds the effect, nothing is sent.",)
            if read.judged.contract.has_lookup
            else ("One request with the same key is permitted.",),
        ),
        Action.ABANDON: ("Recorded: given up.", ("Its run has been told.",)),
        Action.MAKE_ABSENT: ("Recorded: make sure that it’s absent.", ()),
        Action.ACCEPT: ("Recorded: the extra effect stands.", ()),
        Action.COMPENSATE: ("Recorded: the extra effect was undone.", ()),
    }
    title, text = words[decision.action]
    run = f" The run is {read.run.state}."
    following = reverse("case", args=[read.place.next]) + TO_QUESTION if read.place.next else ""
    next_case = Link("Next case", following) if following else None
    return Banner(
        title=(title,),
        icon="circle-check",
        tone="green",
        text=(*text, run),
        action=next_case or Link("Back to the queue", reverse("queue")),
        focus=True,
    )


def news_banner(*, case_id: str, version: int, seen_version: int, finding: str) -> Banner:
    """The case has moved under the reader; nothing of the page is swapped by this."""
    moved = version != seen_version
    what = finding if moved and finding else "An answer, or what is allowed, changed."
    return Banner(
        title=("This case has changed since you opened it.",),
        icon="refresh-cw",
        tone="blue",
        text=(what, " What you typed stays here until you load the page anew; copy it first."),
        links=(Link(f"Show version {version}", reverse("case", args=[case_id])),),
    )


def kept_facts(form: DecisionForm) -> tuple[Fact, ...]:
    """What the person typed, given back where no form is left for it."""
    labels = (
        ("reason", "Your reason"),
        ("given_reference", "Provider’s id"),
        ("given_body", "Provider’s record"),
    )
    return tuple(Fact(label=label, value=(form[name],)) for name, label in labels if form[name].strip())
