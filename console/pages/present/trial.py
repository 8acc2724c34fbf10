"""A lookup on trial, in words: what was asked, what came back, and what would be concluded."""

from __future__ import annotations

from datetime import datetime
from typing import Final, assert_never

from django.urls import reverse

from console.pages.present.jsons import body_view
from console.pages.present.marks import FINDINGS, NEEDS, plural
from console.pages.present.panel import TITLES
from console.pages.provider_forms import TrialDraft
from console.pages.shapes import (
    Badge,
    Banner,
    Code,
    Fact,
    FieldError,
    JsonView,
    Phrase,
    Standing,
    TrialForm,
    TrialResult,
)
from console.pages.wording import clock
from console.queries.providers import ProviderRead
from reconciliation.conclusions import (
    AskPerson,
    Conclusion,
    ConfirmBy,
    KeepLooking,
    NotSent,
    RejectBy,
    RepeatByKey,
    Wait,
)
from reconciliation.gathering import INFORMATIVE
from reconciliation.providers.base import Exchange, MatchedBy, NotFound, Receipt
from reconciliation.providers.redaction import Redactor
from reconciliation.rehearsal import Rehearsed
from reconciliation.states import Permission

_STANDING: Final[dict[Permission, Badge]] = {
    Permission.ALLOWED: Badge(word="Allowed", icon="check", tone="green"),
    Permission.SECOND_PERSON: Badge(word="Two people", icon="users", tone="violet"),
    Permission.LOCKED: Badge(word="Locked", icon="lock", tone="red"),
}
_MATCHED: Final[dict[MatchedBy | None, str]] = {
    MatchedBy.KEY: "our key",
    MatchedBy.REFERENCE: "our reference",
    MatchedBy.REPLY_ONLY: "only the reply that it came with",
    None: "nothing of ours",
}
# Receipts beyond these are counted, not listed.
RECEIPTS_MAX: Final = 5
_WITHHELD: Final = (
    "Other teams may use this account too, so the answer itself isn’t shown: it may hold records of theirs. "
    "Shown is what carries the key or reference that you typed; the conclusion is of the whole answer."
)


def trial_form(
    read: ProviderRead, *, why_not: str, draft: TrialDraft, errors: tuple[FieldError, ...] = ()
) -> TrialForm:
    """The form, or why there is none."""
    closed = why_not
    if not closed and read.declared is None:
        closed = "This account isn’t used here, so it can’t be asked."
        if not read.offered:
            closed = "This account is no longer declared, so it can’t be asked."
    elif not closed and not read.account.contract.has_lookup:
        closed = "This account is asked nothing: it offers no lookup, or lookups are switched off."
    elif not closed and not read.account.configured:
        closed = "This account isn’t configured here, so it can’t be asked."
    return TrialForm(
        href=reverse("provider_test", args=[read.account.slug]),
        closed=closed,
        operation=draft["operation"],
        key=draft["key"],
        tool=draft["tool"],
        payload=draft["payload"],
        reference=draft["reference"],
        first_sent_at=draft["first_sent_at"],
        errors=errors,
        by_hand=draft.by_hand,
    )


def trial_result(done: Rehearsed, *, now: datetime) -> TrialResult:
    """Everything about one answer; nothing of it is kept."""
    finding = done.finding
    shown = FINDINGS[finding.kind.value]
    if isinstance(finding, NotFound) and finding.proof:
        shown = Badge(word="Not found: proves absence", icon="circle-check", tone="blue")
    concluded, why = concluded_in_words(done.assessment.conclusion, now)
    if finding.kind.value not in INFORMATIVE:
        why = f"This answer tells nothing, so what was known before decides. {why}"
    return TrialResult(
        finding=shown,
        summary=finding.summary,
        about=_about(done),
        asked_at=done.asked_at,
        concluded=concluded,
        why=why,
        actions=tuple(
            Standing(title=TITLES[one.action], badge=_STANDING[one.permission], text=one.sentence)
            for one in done.assessment.actions
        ),
        receipts=tuple(_receipt(one) for one in finding.receipts[:RECEIPTS_MAX]),
        bodies=tuple(_bodies(finding.exchange, done)),
        withheld=_WITHHELD if done.withheld else "",
    )


def _about(done: Rehearsed) -> Phrase:
    if done.operation is not None:
        return "Operation ", Code(done.operation.pk)
    return "Typed by hand: key ", Code(done.question.idempotency_key)


def concluded_in_words(conclusion: Conclusion, now: datetime) -> tuple[str, str]:
    """What would follow, and why; said of the policy's own conclusion, so it is what a lookup would do."""
    match conclusion:
        case ConfirmBy(reference=reference):
            return (
                f"It would be confirmed by itself, with receipt {reference}.",
                "One record carries our key or reference, is the same as what was asked, and has succeeded.",
            )
        case RejectBy():
            return (
                "It would be settled as rejected.",
                "The provider’s record ended without effect, and no other request can have worked.",
            )
        case NotSent(proof=proof):
            return (
                "It would become ready to be sent again, by itself.",
                "The contract lets “not found” prove absence, and every request is quiet."
                if proof == "absence"
                else "Every request is on record as never having left.",
            )
        case RepeatByKey():
            return (
                "It would be repeated once by itself, with the same key.",
                "Its flow lets the policy do so where one person may and the contract makes it safe.",
            )
        case AskPerson(need=need):
            return "A person would be asked.", f"{NEEDS[need]}."
        case KeepLooking(not_before_at=not_before_at):
            if not_before_at is not None:
                when = clock(not_before_at, now=now)
                return f"It would be looked up again, not before {when}.", "Then “not found” would be proof."
            return (
                "It would be looked up again.",
                "One answer like this settles nothing; after a few, or two minutes, a person is asked.",
            )
        case Wait():
            return "Nothing would happen.", "It isn’t an open question now, or a retry is under way."
    assert_never(conclusion)


def _receipt(receipt: Receipt) -> tuple[Fact, ...]:
    differing = [one.path for one in receipt.differences]
    same = (
        f"All {plural(len(receipt.comparisons), 'compared field')}"
        if receipt.comparisons
        else "Nothing compared"
    )
    return (
        Fact(label="Record", value=(Code(receipt.reference),)),
        Fact(label="Carries", value=(_MATCHED[receipt.matched_by],)),
        Fact(label="Says", value=(f"{receipt.status or '–'} ({receipt.state.value})",)),
        Fact(label="Differs in", value=(", ".join(differing),))
        if differing
        else Fact(label="The same", value=(same,)),
    )


def _bodies(exchange: Exchange | None, done: Rehearsed) -> list[JsonView]:
    if exchange is None:
        return []
    head = [f"{name}: {value}" for name, value in exchange.request_headers]
    views = [
        JsonView(
            title="Request, without its secrets", text="\n".join([f"{exchange.method} {exchange.url}", *head])
        )
    ]
    if exchange.status is None:
        error = f"{exchange.error_class} {exchange.error}".strip()
        views.append(JsonView(title="No answer", text=f"{exchange.phase.value}\n{error}".strip()))
        return views
    lines = [f"Status {exchange.status}", *(f"{name}: {value}" for name, value in exchange.response_headers)]
    views.append(JsonView(title="Answer’s head", text="\n".join(lines)))
    if exchange.body:
        redactor = Redactor().keeping(done.question.idempotency_key, done.question.operation_id)
        views.append(
            body_view(
                f"Answer’s body, {exchange.duration_ms:,} ms",
                exchange.body.encode("utf-8", "replace"),
                length=exchange.body_length,
                digest=exchange.body_sha256,
                redactor=redactor,
            )
        )
    return views


def not_asked(sentence: str) -> Banner:
    """Why the provider wasn't asked."""
    return Banner(
        title=("The provider was not asked.",),
        icon="octagon-x",
        tone="red",
        text=(sentence,),
        kept="What you typed is kept",
        focus=True,
    )
