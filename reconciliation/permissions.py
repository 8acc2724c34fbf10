"""What a person may do with a case now, derived from the five answers: the second half of the policy."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from reconciliation import making_absent_rules
from reconciliation.conclusions import matching_references
from reconciliation.contracts import Contract
from reconciliation.facts import AttemptFacts, Facts, Holder
from reconciliation.providers.base import FindingKind
from reconciliation.questions import Answer, key_protection, silent_at
from reconciliation.states import Action, CaseKind, CaseState, Permission, Truth
from runs.states import OPERATION_SETTLED, AttemptOutcome, OperationState

_LOCKED, _ALLOWED, _SECOND = Permission.LOCKED, Permission.ALLOWED, Permission.SECOND_PERSON
NO_MATCH: Final = "No matching receipt is on record."
# What whoever decides can do about it.
GIVE_ONE: Final = (
    "Give the provider's record of it: if it carries our key or reference and matches the payload, one "
    "person is enough; without one it takes a second person."
)


@dataclass(frozen=True, kw_only=True)
class ActionStatus:
    """Whether an action may be done now, and why; `question` is the answer that locks it, 0 for none."""

    action: Action
    permission: Permission
    sentence: str
    question: int = 0
    unlocks_at: datetime | None = None
    closes_at: datetime | None = None
    # Confirming without a receipt takes two; with a receipt that matches, one person is enough.
    receipt_unlocks: bool = False


def allowed_actions(
    facts: Facts, contract: Contract, now: datetime, answers: tuple[Answer, ...]
) -> tuple[ActionStatus, ...]:
    """Each action with its permission and the reason; locked actions say which question locks them."""
    if facts.operation_state in OPERATION_SETTLED:
        return _after_the_fact(facts)
    if facts.case_state in (CaseState.RESOLVED, CaseState.AWAITING_APPROVAL):
        waiting = (
            "This case is resolved." if facts.case_state == CaseState.RESOLVED else "It waits for approval."
        )
        return tuple(
            ActionStatus(action=action, permission=_LOCKED, sentence=waiting)
            for action in (Action.CONFIRM, Action.RETRY, Action.ABANDON, *_offered(facts))
        )
    absence = making_absent_rules.under_way(facts)
    if absence is not None:
        return tuple(
            ActionStatus(
                action=action,
                permission=_LOCKED,
                sentence=making_absent_rules.under_way_sentence(absence),
                unlocks_at=max(absence.quiet_after_at, now),
            )
            for action in (Action.CONFIRM, Action.RETRY, Action.ABANDON, *_offered(facts))
        )
    three = (_confirm(facts), _retry(facts, contract, now, answers), _abandon(facts, now))
    absent = _make_absent(facts, contract, now, answers)
    return three if absent is None else (*three, absent)


def _offered(facts: Facts) -> tuple[Action, ...]:
    """The fourth action, where the provider offers it."""
    return () if facts.absence_way is None else (Action.MAKE_ABSENT,)


def _after_the_fact(facts: Facts) -> tuple[ActionStatus, ...]:
    if facts.case_state == CaseState.RESOLVED:
        return ()
    return (
        ActionStatus(
            action=Action.ACCEPT,
            permission=_ALLOWED,
            sentence=f"The operation is {facts.operation_state} and stays so; the extra effect is let stand, "
            "and its amount is booked.",
        ),
        ActionStatus(
            action=Action.COMPENSATE,
            permission=_ALLOWED,
            sentence=f"The operation is {facts.operation_state} and stays so; you record that its extra "
            "effect was undone outside the run.",
        ),
    )


def _confirm(facts: Facts) -> ActionStatus:
    matching = matching_references(facts)
    finding = facts.lookup.finding if facts.lookup else None
    # A worker may report a wrong record; what the provider itself shows under our key outweighs it, but only
    # a person may say so (the policy asks one).
    sure = finding == FindingKind.FOUND or not facts.mismatch_reported
    overtaken = making_absent_rules.is_overtaken(facts)
    if matching and overtaken:
        return ActionStatus(
            action=Action.CONFIRM,
            permission=_SECOND,
            sentence="A request to make it absent has left since; what is on record may be of what it undid. "
            "Confirming takes a second person.",
        )
    if len(matching) == 1 and finding not in (FindingKind.SEVERAL, FindingKind.MISMATCH) and sure:
        reference = next(iter(matching))
        return ActionStatus(
            action=Action.CONFIRM,
            permission=_ALLOWED,
            sentence=f"Receipt {reference} carries our key or reference and matches the payload.",
        )
    if finding == FindingKind.PENDING:
        return ActionStatus(
            action=Action.CONFIRM,
            permission=_LOCKED,
            sentence="The effect exists at the provider and isn't final: found is not yet succeeded.",
        )
    if len(matching) > 1 or finding == FindingKind.SEVERAL:
        sentence = "More than one effect is on record; choosing one as the receipt takes a second person."
    elif finding == FindingKind.MISMATCH or facts.mismatch_reported:
        sentence = (
            "What the provider shows differs from what was intended; accepting that takes a second person."
        )
    else:
        return ActionStatus(
            action=Action.CONFIRM, permission=_SECOND, sentence=f"{NO_MATCH} {GIVE_ONE}", receipt_unlocks=True
        )
    return ActionStatus(action=Action.CONFIRM, permission=_SECOND, sentence=sentence)


def _retry(facts: Facts, contract: Contract, now: datetime, answers: tuple[Answer, ...]) -> ActionStatus:
    def locked(sentence: str, question: int = 0, unlocks_at: datetime | None = None) -> ActionStatus:
        return ActionStatus(
            action=Action.RETRY,
            permission=_LOCKED,
            sentence=sentence,
            question=question,
            unlocks_at=unlocks_at,
        )

    if facts.absences:
        return locked(
            "A request to make it absent has left: the provider may refuse the same key now, or answer it "
            "from memory, and no answer to it would say what is so."
        )
    shown = _effect_on_record(facts)
    if shown:
        return locked(f"{shown} Sending again could only make a second one.")
    if facts.case_kind == CaseKind.CONFLICT:
        return locked("The evidence contradicts itself: another request would add to it.")
    if facts.grant_open or facts.case_state == CaseState.RETRYING:
        sentence, ends_at = _retry_under_way(facts, now)
        return locked(sentence, unlocks_at=ends_at)
    gone, applies = answers[3], answers[4]
    if gone.truth is not Truth.YES:
        return locked(gone.sentence, question=4, unlocks_at=gone.until_at)
    if applies.truth is not Truth.YES:
        return locked(applies.sentence, question=5)
    key, key_sentence, ends_at = key_protection(facts, contract, now)
    if facts.perhaps_made_absent:
        return ActionStatus(
            action=Action.RETRY,
            permission=_SECOND,
            sentence=f"{key_sentence} The journal was restored, and has forgotten whether a request to make "
            "it absent left: the provider may then answer the same key from memory, of what was undone. "
            "So it takes a second person.",
            question=2,
            closes_at=ends_at if key is Truth.YES else None,
        )
    starts_by = contract.repeat_starts_by(facts.first_sent_at) if facts.first_sent_at else None
    if key is Truth.YES and starts_by is not None and now < starts_by:
        return ActionStatus(
            action=Action.RETRY,
            permission=_ALLOWED,
            sentence=f"{key_sentence} The same key and bytes are sent once more, after a fresh lookup.",
            closes_at=min(starts_by, facts.approval_until_at or starts_by),
        )
    late = " Too little of it is left for a request to arrive in time." if key is Truth.YES else ""
    return ActionStatus(
        action=Action.RETRY,
        permission=_SECOND,
        sentence=f"{key_sentence}{late} A duplicate is possible, so it takes a second person.",
        question=2,
        closes_at=ends_at if key is Truth.YES else None,
    )


def _effect_on_record(facts: Facts) -> str:
    finding = facts.lookup.finding if facts.lookup else None
    if matching_references(facts) or finding == FindingKind.FOUND:
        return "The effect is on record at the provider."
    if finding in (FindingKind.PENDING, FindingKind.MISMATCH, FindingKind.SEVERAL) or facts.mismatch_reported:
        return "An effect with our key or reference is on record at the provider."
    if facts.shown_before:
        return "An effect with our key or reference was on record; the latest lookup doesn't show it."
    return ""


def _retry_under_way(facts: Facts, now: datetime) -> tuple[str, datetime | None]:
    """What a retry that was decided waits for, and when time ends the waiting, if time does.

    What should have ended already ends with the sweeper's next pass: that is now, not an instant in the past.
    """
    if facts.grant_open:
        ends_at = facts.grant_ends_at
        return "A retry is granted and not yet sent.", max(ends_at, now) if ends_at else None
    if any(attempt.outcome == AttemptOutcome.OPEN for attempt in facts.attempts):
        quiet_at = silent_at(facts)
        if quiet_at is not None and quiet_at <= now:
            return "The repeat was sent and not reported in time; it is looked up next.", now
        return "The repeat is being sent; its outcome comes first.", quiet_at
    return "A retry is decided; the fresh lookup before it comes first.", None


def _abandon(facts: Facts, now: datetime) -> ActionStatus:
    sending = [one for one in facts.attempts if _is_sending(one, now)]
    if sending:
        return ActionStatus(
            action=Action.ABANDON,
            permission=_LOCKED,
            sentence=f"{sending[-1].worker or 'A worker'} is sending attempt {sending[-1].number}.",
            question=4,
            unlocks_at=max(
                min(one.quiet_after_at, one.lease_ends_at or one.quiet_after_at) for one in sending
            ),
        )
    if facts.grant_open or facts.case_state == CaseState.RETRYING:
        sentence, ends_at = _retry_under_way(facts, now)
        return ActionStatus(action=Action.ABANDON, permission=_LOCKED, sentence=sentence, unlocks_at=ends_at)
    if matching_references(facts) and not making_absent_rules.is_overtaken(facts):
        return ActionStatus(
            action=Action.ABANDON,
            permission=_LOCKED,
            sentence="The effect is proved by a matching receipt: there is nothing to give up.",
        )
    if facts.abandonment_people > 1:
        return ActionStatus(
            action=Action.ABANDON,
            permission=_SECOND,
            sentence="This flow's policy asks two people before an obligation is given up.",
        )
    return ActionStatus(
        action=Action.ABANDON,
        permission=_ALLOWED,
        sentence="The obligation is given up. Whether it happened stays unknown, and the record says so.",
    )


def _make_absent(
    facts: Facts, contract: Contract, now: datetime, answers: tuple[Answer, ...]
) -> ActionStatus | None:
    """Let the provider make sure that the effect isn't there; None where it offers nothing of the kind."""
    way = facts.absence_way
    if way is None:
        return None

    def locked(sentence: str, question: int = 0, unlocks_at: datetime | None = None) -> ActionStatus:
        return ActionStatus(
            action=Action.MAKE_ABSENT,
            permission=_LOCKED,
            sentence=sentence,
            question=question,
            unlocks_at=unlocks_at,
        )

    if facts.operation_state != OperationState.SENT_UNKNOWN:
        return locked(
            f"The operation is {facts.operation_state}: nothing that was sent for it is in doubt, so"
            " there is nothing to make absent."
        )
    if facts.grant_open or facts.case_state == CaseState.RETRYING:
        sentence, ends_at = _retry_under_way(facts, now)
        return locked(sentence, unlocks_at=ends_at)
    gone = answers[3]
    if gone.truth is not Truth.YES:
        return locked(gone.sentence, question=4, unlocks_at=gone.until_at)
    why = making_absent_rules.why_not(facts)
    if why:
        return locked(why)
    if facts.case_kind == CaseKind.CONFLICT and not facts.absences:
        return locked("The evidence contradicts itself: another change would add to it.")
    return ActionStatus(
        action=Action.MAKE_ABSENT,
        permission=_SECOND,
        sentence=making_absent_rules.sentence(facts, contract, way, now),
    )


def _is_sending(attempt: AttemptFacts, now: datetime) -> bool:
    """Whether its sender is at it: not reported, and still expected to (`intake.still_expected`)."""
    expected = attempt.holder in (Holder.LIVE, Holder.CONSOLE) and now < attempt.quiet_after_at
    return attempt.outcome == AttemptOutcome.OPEN and expected and not attempt.proved_not_sent
