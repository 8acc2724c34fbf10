"""Small signs that several pages share: what a finding is called, how long a key protects, who it was."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from console.pages.shapes import Actor, Answer, Badge, Counts, KeyWindow, Tone
from console.queries.people import Names
from reconciliation.contracts import Contract, WindowKind
from reconciliation.facts import Facts
from reconciliation.models import Case
from reconciliation.providers.base import FindingKind
from reconciliation.questions import Answer as QuestionAnswer
from reconciliation.questions import key_protection
from reconciliation.states import CaseKind, Need, Resolution, Truth
from runs.actors import ActorKind
from runs.models import Operation
from runs.money import Money
from runs.refusals import Refusal
from runs.states import OperationState, PauseReason

# A window that ends sooner than this is red, sooner than an hour amber: time for one look, one decision.
URGENT: Final = timedelta(minutes=20)
SOON: Final = timedelta(hours=1)

FINDINGS: Final[dict[str, Badge]] = {
    "found": Badge(word="Found, and it matches", icon="circle-check", tone="green"),
    "candidate": Badge(word="Something alike, for a person to tell", icon="unknown", tone="amber", open=True),
    "pending": Badge(word="Exists, not final", icon="hourglass", tone="amber", open=True),
    "refused": Badge(word="Ended without effect", icon="circle-x", tone="red"),
    "mismatch": Badge(word="Other content under our key", icon="equal-not", tone="red"),
    "several": Badge(word="More than one effect", icon="equal-not", tone="red"),
    "not_found": Badge(word="Not found, no proof", icon="unknown", tone="amber", open=True),
    "inconclusive": Badge(word="The answer says nothing", icon="unknown", tone="amber", open=True),
    "unavailable": Badge(word="Couldn’t be asked", icon="unplug", tone="grey", open=True),
}
# Which of the five asks whether anything may still be sent.
LAST_QUESTION: Final = 5
# Why a run is paused, as it goes on a sentence.
PAUSED_WHY: Final[dict[str, str]] = {
    PauseReason.OUTCOME: "waits for a decision about an unknown outcome",
    PauseReason.BUDGET: "the next effect would exceed its budget",
    PauseReason.APPROVAL: "its approval has ended",
    PauseReason.FLOW_VERSION: "no worker of its pinned flow version comes",
    PauseReason.FROZEN: "sending is frozen after a restore",
}
NEEDS: Final[dict[Need, str]] = {
    Need.NOT_FOUND: "Not found, which proves nothing",
    Need.NO_LOOKUP: "The provider offers no lookup",
    Need.CANDIDATE: "Something alike was found",
    Need.MISMATCH: "Other content than intended",
    Need.SEVERAL: "More effects than intended",
    Need.PENDING: "Not final for long",
    Need.REFUSED: "A refusal that doesn’t speak for every request",
    Need.PARKED: "The lookups keep failing",
    Need.CONFLICT: "The evidence contradicts itself",
    Need.GRANT_ENDED: "A granted retry wasn’t used",
    Need.APPROVAL_ENDED: "A second person didn’t consent",
}
RESOLUTIONS: Final[dict[Resolution, Badge]] = {
    Resolution.CONFIRMED: Badge(word="Confirmed", icon="circle-check", tone="green"),
    Resolution.REJECTED: Badge(word="Rejected", icon="circle-x", tone="red"),
    Resolution.NOT_SENT: Badge(word="Proved not to have happened", icon="undo-2", tone="blue"),
    Resolution.ABANDONED: Badge(word="Abandoned", icon="circle-slash", tone="grey"),
    Resolution.ACCEPTED: Badge(word="Extra effect accepted", icon="check", tone="green"),
    Resolution.COMPENSATED: Badge(word="Extra effect undone", icon="undo-2", tone="green"),
}


def actor_of(names: Names, kind: str, actor: str, *, known_as: str = "") -> Actor:
    """Somebody as a page shows them."""
    return Actor(name=names.of(kind, actor, known_as=known_as), is_person=kind == ActorKind.PERSON)


# How an effect is told that an answer or a notice speaks of, without a record that could be counted.
AT_LEAST_ONE: Final = "at least 1"
# Records that look alike and carry nothing of ours are no count of effects.
ALIKE: Final = "not known"


def counts_in_row(case: Case, operation: Operation, *, told: bool, has_lookup: bool) -> Counts:
    """What the case's page counts, from what a row of a list knows: it reads no evidence."""
    requests, seen = operation.attempts_count, case.effects_seen
    if case.kind == CaseKind.CONFLICT and operation.state == OperationState.CONFIRMED and seen < 2:
        # A receipt confirmed it, and something else came: whether of another effect is for a person.
        return Counts(requests=requests, effects=None, uncounted=AT_LEAST_ONE)
    if case.kind == CaseKind.CONFLICT and not seen and operation.state != OperationState.SENT_UNKNOWN:
        seen = 1
    if case.resolution == Resolution.CONFIRMED:
        seen = max(seen, 1)
    if case.finding == FindingKind.CANDIDATE and not seen:
        return Counts(requests=requests, effects=None, uncounted=ALIKE)
    return counts_of(requests, seen, told=told, has_lookup=has_lookup, carrying=None)


def counts_of(requests: int, effects: int, *, told: bool, has_lookup: bool, carrying: int | None) -> Counts:
    """Requests beside effects; `told`: a lookup has told something, so that 0 is a count and not a guess."""
    if told or effects:
        return Counts(requests=requests, effects=effects, carrying_key=carrying)
    uncounted = "not counted yet" if has_lookup else "can’t be counted"
    return Counts(requests=requests, effects=None, uncounted=uncounted)


def window_of(facts: Facts, contract: Contract, *, now: datetime) -> KeyWindow:
    """How long the same key protects a repeat, by the same rule as question 2."""
    truth, sentence, ends_at = key_protection(facts, contract, now)
    first = facts.first_sent_at
    if truth is Truth.YES and ends_at is not None and first is not None:
        left = ends_at - now
        tone: Tone = "red" if left <= URGENT else "amber" if left <= SOON else "green"
        return KeyWindow(
            label="Same key is safe for",
            tone=tone,
            first_sent_at=first,
            ends_at=ends_at,
            used_permille=_permille(first, ends_at, now),
        )
    closed_at = contract.key_ends_at(first) if first is not None else None
    if not contract.honours_key:
        return KeyWindow(label="The provider honours no key", tone="grey", note="No key support")
    if closed_at is not None and now >= closed_at and contract.window_kind is not WindowKind.UNPUBLISHED:
        return KeyWindow(
            label="The key’s window has closed",
            tone="red",
            locked=True,
            first_sent_at=first,
            ends_at=closed_at,
            used_permille=1000,
            note="Closed",
        )
    if truth is Truth.NO:
        return KeyWindow(
            label="The key may be unknown now",
            tone="red",
            locked=True,
            first_sent_at=first,
            note="Scope changed",
        )
    return KeyWindow(label=sentence.rstrip("."), tone="amber", first_sent_at=first, note="Length unknown")


def _permille(start: datetime, end: datetime, now: datetime) -> int:
    whole = (end - start).total_seconds()
    if whole <= 0:
        return 1000
    return max(0, min(1000, round((now - start).total_seconds() * 1000 / whole)))


def plural(number: int, one: str, more: str = "") -> str:
    """ "1 case", "2 cases"; `more` where the plural isn't made by an s."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def capped(number: int, cap: int) -> str:
    """A count that stopped at a cap: "1,000+"."""
    return f"{cap:,}+" if number > cap else f"{number:,}"


def amount_of(currency: str, minor: int | None) -> Money | None:
    """The stored amount; None where there is none, or where it isn't one that can be shown."""
    try:
        return Money(currency, minor) if currency and minor is not None else None
    except Refusal:
        return None


def answer_shown(answer: QuestionAnswer, *, settled: bool) -> Answer:
    """An answer as pages show it.

    The last question is whether approval, budget and version still let something be sent. Nothing is to be
    sent for a settled case, so that its "no" would be a warning about nothing.
    """
    return "settled" if settled and answer.number == LAST_QUESTION else answer.truth
