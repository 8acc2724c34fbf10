"""What follows from the evidence by itself, and otherwise who or what a case waits for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from reconciliation import making_absent_rules
from reconciliation.contracts import Contract
from reconciliation.facts import Facts
from reconciliation.providers.base import FindingKind
from reconciliation.questions import silent
from reconciliation.states import CaseKind, CaseState, Need
from runs.states import AttemptOutcome, OperationState

# After this many complete lookups that found nothing, once every attempt is quiet, a person is asked:
# the third look costs seconds and finds what a provider shows late; more would only be waiting.
LOOKUPS_BEFORE_ASKING = 3
# A person is asked so long after the last attempt in any case, also when nobody has looked: an operator can
# see it and decide, also to wait.
LOOKING_UP_MAX = timedelta(minutes=2)
# Where waiting can turn "not found" into proof within this time, waiting is cheaper than a person.
PROOF_WORTH_WAITING = timedelta(minutes=10)
# An effect that exists and isn't final is normal for minutes (3-D Secure, bank review); then people look.
PENDING_LOOKUPS_MAX = 6
# So many failed lookups in a row are an outage or a wrong declaration; the case is parked with that reason.
FAILED_LOOKUPS_MAX = 8


@dataclass(frozen=True)
class ConfirmBy:
    evidence_id: str
    reference: str


@dataclass(frozen=True)
class RejectBy:
    evidence_id: str


@dataclass(frozen=True)
class NotSent:
    """Every attempt is proved to have had no effect; by `proof`: "reports" or "absence"."""

    proof: str
    evidence_id: str


@dataclass(frozen=True)
class RepeatByKey:
    """One more attempt with the same key, by a flow's own choice; only `policy.assess` concludes it."""


@dataclass(frozen=True)
class AskPerson:
    need: Need


@dataclass(frozen=True)
class KeepLooking:
    """Look again; `not_before_at` where an earlier look could not tell more."""

    not_before_at: datetime | None = None


@dataclass(frozen=True)
class Wait:
    """Nothing to do until somebody acts: a grant is open, or the case is settled."""


Conclusion = ConfirmBy | RejectBy | NotSent | RepeatByKey | AskPerson | KeepLooking | Wait


def conclude(facts: Facts, contract: Contract, now: datetime) -> Conclusion:
    """What evidence settles without a person; otherwise who or what the case waits for."""
    if facts.case_state == CaseState.RESOLVED or facts.operation_state != OperationState.SENT_UNKNOWN:
        return AskPerson(_conflict_need(facts)) if facts.case_kind == CaseKind.CONFLICT else Wait()
    if making_absent_rules.under_way(facts) is not None:
        # Its answer, or its time, comes first: what is seen meanwhile may be of before or after it.
        return Wait()
    if facts.case_kind == CaseKind.CONFLICT:
        return AskPerson(_conflict_need(facts))
    if making_absent_rules.is_overtaken(facts):
        return _after_making_absent(facts, contract)
    return (
        _by_receipts(facts)
        or _by_proof_of_nothing(facts, contract, now)
        or _by_refusal(facts, contract)
        or _who_is_asked(facts, contract, now)
    )


def _after_making_absent(facts: Facts, contract: Contract) -> Conclusion:
    """After a request to make it absent that proved nothing: a refusal settles, an older word doesn't."""
    refused = _by_refusal(facts, contract)
    if refused is not None:
        return refused
    if contract.has_lookup and facts.lookups_failed_count >= FAILED_LOOKUPS_MAX:
        return AskPerson(Need.PARKED)
    need = making_absent_rules.whom_to_ask(facts)
    if need is not None:
        return AskPerson(need)
    if not contract.has_lookup:
        return AskPerson(Need.NO_LOOKUP)
    return KeepLooking(not_before_at=max(one.quiet_after_at for one in facts.absences))


def _conflict_need(facts: Facts) -> Need:
    several = facts.lookup is not None and facts.lookup.finding == FindingKind.SEVERAL
    return Need.SEVERAL if several else Need.CONFLICT


def matching_references(facts: Facts) -> dict[str, str]:
    """The distinct references of receipts that match and are still free, each with its evidence."""
    return {
        one.reference: one.evidence_id for one in facts.receipts if one.matches and not one.confirmed_other
    }


def _by_receipts(facts: Facts) -> Conclusion | None:
    found = facts.lookup.finding if facts.lookup else None
    if found == FindingKind.SEVERAL:
        return AskPerson(Need.SEVERAL)
    if found == FindingKind.MISMATCH or facts.mismatch_reported:
        return AskPerson(Need.MISMATCH)
    # Also those that confirmed another operation: confirming with one opens the conflict on both.
    matching = {one.reference: one.evidence_id for one in facts.receipts if one.matches}
    if len(matching) > 1:
        return AskPerson(Need.SEVERAL)
    for reference, evidence_id in matching.items():
        return ConfirmBy(evidence_id=evidence_id, reference=reference)
    return None


def _by_proof_of_nothing(facts: Facts, contract: Contract, now: datetime) -> Conclusion | None:
    reported = bool(facts.attempts) and all(attempt.proved_not_sent for attempt in facts.attempts)
    if not reported and not _absence_proved(facts, contract, now):
        return None
    if facts.shown_before or facts.absences:
        # Also where it was undone by its key since: nothing is sent with that key again.
        return AskPerson(Need.CONFLICT)
    if facts.lookup is not None and facts.lookup.finding == FindingKind.PENDING:
        # No attempt of ours left, and there it is: whoever sent it, it isn't nothing.
        return None
    if reported:
        return NotSent(proof="reports", evidence_id="")
    return NotSent(proof="absence", evidence_id=facts.lookup.evidence_id if facts.lookup else "")


def _absence_proved(facts: Facts, contract: Contract, now: datetime) -> bool:
    lookup = facts.lookup
    if lookup is None or lookup.finding != FindingKind.NOT_FOUND or not lookup.proof:
        return False
    if facts.perhaps_made_absent:
        # It may not be there because it was undone: its key may be burnt, or answer from memory.
        return False
    # The adapter judged the proof by the time of its question; the attempts may have moved since.
    if not facts.attempts or facts.first_sent_at is None or facts.last_quiet_at is None:
        return False
    proved = contract.absence_is_proved(
        first_sent_at=facts.first_sent_at, last_quiet_at=facts.last_quiet_at, asked_at=lookup.asked_at
    )
    return proved and all(silent(attempt, now) for attempt in facts.attempts)


def _by_refusal(facts: Facts, contract: Contract) -> Conclusion | None:
    """A definite refusal settles only if no other attempt can have had an effect (DESIGN §3)."""
    open_effects = [one.number for one in facts.attempts if not one.proved_not_sent]
    if facts.lookup is not None and facts.lookup.finding == FindingKind.REFUSED:
        if contract.rejection_replays or len(open_effects) <= 1:
            return RejectBy(facts.lookup.evidence_id)
        return AskPerson(Need.REFUSED)
    refused = {rejection.attempt_number for rejection in facts.rejections}
    if facts.rejections and (contract.rejection_replays or not set(open_effects) - refused):
        return RejectBy(facts.rejections[0].evidence_id)
    return None


def _who_is_asked(facts: Facts, contract: Contract, now: datetime) -> Conclusion:
    if facts.grant_open or facts.case_state == CaseState.RETRYING:
        return _shown_during_retry(facts) or Wait()
    if facts.lookup is not None and facts.lookup.finding == FindingKind.CANDIDATE:
        return AskPerson(Need.CANDIDATE)
    if not contract.has_lookup:
        return AskPerson(Need.GRANT_ENDED if facts.grant_ended_unused else Need.NO_LOOKUP)
    if facts.lookups_failed_count >= FAILED_LOOKUPS_MAX:
        return AskPerson(Need.PARKED)
    if facts.lookup is not None and facts.lookup.finding == FindingKind.PENDING:
        return AskPerson(Need.PENDING) if facts.lookups_count >= PENDING_LOOKUPS_MAX else KeepLooking()
    return _after_not_found(facts, contract, now)


def _shown_during_retry(facts: Facts) -> Conclusion | None:
    """Whom to ask because the effect exists after all; not once the repeat is on its way."""
    if any(attempt.outcome == AttemptOutcome.OPEN for attempt in facts.attempts):
        return None
    if facts.lookup is not None and facts.lookup.finding == FindingKind.PENDING:
        return AskPerson(Need.PENDING)
    return AskPerson(Need.CONFLICT) if facts.shown_before else None


def _after_not_found(facts: Facts, contract: Contract, now: datetime) -> Conclusion:
    quiet_at = facts.last_quiet_at or facts.opened_at
    # A look before the latest attempt says nothing about it, and its question is as new as the attempt.
    minted_at = max((attempt.minted_at for attempt in facts.attempts), default=facts.opened_at)
    since = max(facts.opened_at, minted_at)
    last_asked = facts.lookup.asked_at if facts.lookup and facts.lookup.asked_at >= minted_at else None
    shown_by = quiet_at + timedelta(milliseconds=contract.visibility_lag_ms or 0)
    proof_at = contract.absence_provable_at(quiet_at)
    waits_for_proof = (
        proof_at is not None
        and proof_at - since <= PROOF_WORTH_WAITING
        and now < proof_at + LOOKING_UP_MAX
        and (last_asked is None or last_asked < proof_at)
    )
    if waits_for_proof:
        return KeepLooking(not_before_at=proof_at if facts.lookups_count else None)
    answered = last_asked is not None and facts.lookup and facts.lookup.finding == FindingKind.NOT_FOUND
    if answered and facts.lookups_count >= LOOKUPS_BEFORE_ASKING and now >= shown_by:
        return AskPerson(Need.GRANT_ENDED if facts.grant_ended_unused else Need.NOT_FOUND)
    if now - since >= LOOKING_UP_MAX:
        return AskPerson(Need.NOT_FOUND if answered else Need.PARKED)
    return KeepLooking()
