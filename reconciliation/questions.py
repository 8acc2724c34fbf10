"""The five questions of recovery, answered yes, no or unknown, each with a sentence that names its ground."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from reconciliation.contracts import Contract, WindowKind, key_still_protects
from reconciliation.facts import AttemptFacts, Facts, Holder
from reconciliation.states import Truth
from runs.states import RUN_ENDED, AttemptOutcome

# What the account needs from the environment isn't set: workers may send by themselves, and we can't ask.
_NOT_CONFIGURED = "This account isn't configured here, so Recourse can't ask there."


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One of the five questions, answered; `until_at` where time alone will change it."""

    number: int
    question: str
    truth: Truth
    sentence: str
    until_at: datetime | None = None


def answer_questions(facts: Facts, contract: Contract, now: datetime) -> tuple[Answer, ...]:
    """The five questions of DESIGN §6, in order, each with a sentence that names its ground."""
    return (
        _which_operation(facts),
        _key_or_lookup(facts, contract, now),
        _observable(facts, contract),
        _old_worker_gone(facts, now),
        _still_applies(facts, now),
    )


def _which_operation(facts: Facts) -> Answer:
    question = "Which logical operation is this?"
    count = len(facts.attempts)
    sent = f"{count} attempt{'' if count == 1 else 's'}, all with the same key and the same bytes"
    if facts.sent_by_unknown and not facts.attempts:
        sent = "sent by somebody who never asked for it here"
    return Answer(
        number=1,
        question=question,
        truth=Truth.YES,
        sentence=f"One journal entry: turn {facts.turn_index}, call {facts.call_id}; {sent}.",
    )


def key_protection(facts: Facts, contract: Contract, now: datetime) -> tuple[Truth, str, datetime | None]:
    """Whether the same key would still be recognised: the truth, a sentence, and when a yes ends."""
    if not contract.honours_key:
        return Truth.NO, "The provider honours no key.", None
    changed = (
        facts.pinned is not None
        and facts.current is not None
        and not key_still_protects(contract, pinned=facts.pinned, current=facts.current)
    )
    if changed:
        return (
            Truth.NO,
            "Adapter, endpoint, region or credential changed since the first send: the key may be unknown.",
            None,
        )
    if facts.first_sent_at is None:
        return Truth.UNKNOWN, "When the key was first used is not on record.", None
    ends_at = contract.key_ends_at(facts.first_sent_at)
    if ends_at is None or contract.window_kind is WindowKind.UNPUBLISHED:
        return Truth.UNKNOWN, "The provider honours the key for a time that it doesn't publish.", None
    if now >= ends_at:
        return Truth.NO, f"The key was safe until {_utc(ends_at)}; the provider may have forgotten it.", None
    return Truth.YES, f"The provider keeps the key until {_utc(ends_at)}.", ends_at


def _key_or_lookup(facts: Facts, contract: Contract, now: datetime) -> Answer:
    key, key_sentence, ends_at = key_protection(facts, contract, now)
    reliable = contract.has_reliable_lookup and facts.can_be_asked_here
    if contract.has_lookup and not facts.can_be_asked_here:
        lookup = f"It offers a lookup. {_NOT_CONFIGURED}"
    elif reliable:
        lookup = "It can be looked up exactly."
    elif contract.has_lookup:
        lookup = "Its lookup lags or ranks, and can't be relied on."
    else:
        lookup = "It offers no lookup."
    truth = Truth.YES if reliable else key
    return Answer(
        number=2,
        question="Does the provider honour the key, or offer a reliable lookup?",
        truth=truth,
        sentence=f"{key_sentence} {lookup}",
        until_at=None if reliable else ends_at,
    )


def _observable(facts: Facts, contract: Contract) -> Answer:
    seen = contract.has_lookup and facts.can_be_asked_here
    if seen:
        sentence = "Lookups only read."
    elif contract.has_lookup:
        sentence = f"Not from here. {_NOT_CONFIGURED}"
    else:
        sentence = "The provider shows nothing that we could ask for."
    return Answer(
        number=3,
        question="Can we see the effect without causing another change?",
        truth=Truth.YES if seen else Truth.NO,
        sentence=sentence,
    )


def silent(attempt: AttemptFacts, now: datetime) -> bool:
    """Whether an attempt can neither reach the provider any more nor be reported under a live token."""
    return attempt.proved_not_sent or (now >= attempt.quiet_after_at and not _may_write(attempt))


def _may_write(attempt: AttemptFacts) -> bool:
    # "Unreported" is our word for its silence: under a live lease its sender may still speak (DESIGN §4).
    unheard = attempt.outcome in (AttemptOutcome.OPEN, AttemptOutcome.UNREPORTED)
    return unheard and attempt.holder == Holder.LIVE


def silent_at(facts: Facts) -> datetime | None:
    """From when every attempt is silent if nobody reports before: the later of quiet time and lease end."""
    times = [attempt.quiet_after_at for attempt in facts.attempts if not attempt.proved_not_sent]
    times += [
        attempt.lease_ends_at
        for attempt in facts.attempts
        if attempt.lease_ends_at and _may_write(attempt) and not attempt.proved_not_sent
    ]
    return max(times, default=None)


def _old_worker_gone(facts: Facts, now: datetime) -> Answer:
    question = "Has the old worker lost its lease and its ability to write?"
    if not facts.attempts:
        return Answer(
            number=4,
            question=question,
            truth=Truth.UNKNOWN,
            sentence="No attempt is on record, so nobody can say who sent it or whether they still can.",
        )
    loud = [attempt for attempt in facts.attempts if not silent(attempt, now)]
    if not loud:
        return Answer(
            number=4,
            question=question,
            truth=Truth.YES,
            sentence="Every attempt has ended or is outdated, and can no longer reach the provider.",
        )
    until_at = silent_at(facts)
    who = loud[-1].worker or "its sender"
    return Answer(
        number=4,
        question=question,
        truth=Truth.NO,
        sentence=f"Attempt {loud[-1].number} by {who} can still reach the provider"
        + (f" until {_utc(until_at)}." if until_at else "."),
        until_at=until_at,
    )


def _still_applies(facts: Facts, now: datetime) -> Answer:
    truth, sentence = Truth.YES, "The run needs no approval; its budget is reserved and its version pinned."
    until_at = None
    if facts.run_state in RUN_ENDED:
        truth, sentence = Truth.NO, f"The run is {facts.run_state}: nothing more is sent for it."
    elif facts.approval_until_at is not None and facts.approval_until_at <= now:
        truth = Truth.NO
        sentence = f"The run's approval ended at {_utc(facts.approval_until_at)}."
    elif facts.paused_for_version:
        truth = Truth.UNKNOWN
        sentence = f"No worker of the pinned version {facts.paused_for_version} has come for it."
    elif facts.approval_until_at is not None:
        until_at = facts.approval_until_at
        sentence = f"The approval is valid until {_utc(facts.approval_until_at)}; the budget is reserved."
    return Answer(
        number=5,
        question="Do the approval, the budget and the flow version still apply?",
        truth=truth,
        sentence=sentence,
        until_at=until_at,
    )


def _utc(at: datetime) -> str:
    return at.strftime("%-d %b %H:%M:%S") + "Z"
