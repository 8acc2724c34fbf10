"""What evidence settles by itself, and whom a case waits for otherwise."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from reconciliation.conclusions import (
    FAILED_LOOKUPS_MAX,
    LOOKING_UP_MAX,
    LOOKUPS_BEFORE_ASKING,
    PENDING_LOOKUPS_MAX,
    PROOF_WORTH_WAITING,
    AskPerson,
    Conclusion,
    ConfirmBy,
    KeepLooking,
    NotSent,
    RejectBy,
    Wait,
    conclude,
)
from reconciliation.contracts import Contract, LookupKind
from reconciliation.facts import AbsenceFacts, Facts, Holder, RejectionFacts
from reconciliation.policy import assess
from reconciliation.providers.base import FindingKind
from reconciliation.states import Action, CaseKind, CaseState, Need
from runs.states import AttemptOutcome, OperationState
from tests.policy_facts import (
    CALM,
    QUIET_AT,
    SENT_AT,
    TICK,
    attempt,
    contract,
    facts,
    lookup,
    receipt,
    sending,
)

LAG = timedelta(seconds=3)
PROVABLE_AT = QUIET_AT + LAG


def provable(**fields: object) -> Contract:
    return contract(absence_is_proof=True, visibility_lag_ms=3_000, **fields)


def what(known: Facts, promised: Contract | None = None, now: datetime = CALM) -> Conclusion:
    return conclude(known, promised or contract(), now)


def looking(**fields: object) -> Facts:
    return facts(case_state=CaseState.LOOKING_UP, **fields)


# --- confirming -----------------------------------------------------------------------------------------


def test_one_matching_receipt_confirms() -> None:
    assert what(facts(receipts=(receipt(),))) == ConfirmBy("ev_ord_1", "ord_1")
    # Also one that is taken: confirming with it is refused, and opens the conflict on both.
    taken = replace(receipt(), confirmed_other="op_2")
    assert what(facts(receipts=(taken,))) == ConfirmBy("ev_ord_1", "ord_1")
    assert what(facts(receipts=(receipt(), receipt("other", matches=False)))) == ConfirmBy(
        "ev_ord_1", "ord_1"
    )


@pytest.mark.parametrize(
    ("fields", "need"),
    [
        ({"receipts": (receipt("a"), receipt("b"))}, Need.SEVERAL),
        ({"receipts": (receipt(),), "lookup": lookup(FindingKind.SEVERAL)}, Need.SEVERAL),
        ({"receipts": (receipt(),), "lookup": lookup(FindingKind.MISMATCH)}, Need.MISMATCH),
        ({"receipts": (receipt(),), "mismatch_reported": "ev_2"}, Need.MISMATCH),
        ({"lookup": lookup(FindingKind.MISMATCH)}, Need.MISMATCH),
        ({"receipts": (receipt(),), "case_kind": CaseKind.CONFLICT}, Need.CONFLICT),
        ({"case_kind": CaseKind.CONFLICT, "lookup": lookup(FindingKind.SEVERAL)}, Need.SEVERAL),
        ({"lookup": lookup(FindingKind.CANDIDATE)}, Need.CANDIDATE),
    ],
)
def test_what_only_a_person_may_judge(fields: dict, need: Need) -> None:  # type: ignore[type-arg]
    assert what(looking(**fields)) == AskPerson(need)


# --- nothing happened -----------------------------------------------------------------------------------


def test_every_attempt_proved_not_sent_makes_it_ready_by_the_reports() -> None:
    proved = attempt(outcome=AttemptOutcome.NOT_SENT, proved_not_sent=True)
    assert what(facts(attempts=(proved,)), now=SENT_AT) == NotSent("reports", "")
    both = (replace(proved, number=1), replace(proved, number=2))
    assert what(facts(attempts=both), now=SENT_AT) == NotSent("reports", "")
    assert not isinstance(what(facts(attempts=(proved, attempt(2)))), NotSent)
    # No attempt of ours proves nothing about an effect that somebody else caused.
    assert not isinstance(what(facts(attempts=())), NotSent)


@pytest.mark.parametrize(
    ("asked_at", "proved"), [(PROVABLE_AT - TICK, False), (PROVABLE_AT, True), (PROVABLE_AT + TICK, True)]
)
def test_absence_is_proved_by_a_question_put_after_quiet_time_and_lag(
    asked_at: datetime, proved: bool
) -> None:
    known = looking(lookup=lookup(FindingKind.NOT_FOUND, proof=True, asked_at=asked_at), lookups_count=1)
    assert isinstance(what(known, provable()), NotSent) is proved


@pytest.mark.parametrize(("seconds", "proved"), [(1, True), (0, False), (-1, False)])
def test_absence_is_proved_only_while_the_provider_still_remembers(seconds: int, proved: bool) -> None:
    known = looking(lookup=lookup(FindingKind.NOT_FOUND, proof=True, asked_at=CALM), lookups_count=1)
    retention_ms = (CALM - SENT_AT) // timedelta(milliseconds=1) + seconds * 1000
    assert isinstance(what(known, provable(lookup_retention_ms=retention_ms)), NotSent) is proved


def test_absence_is_never_concluded_where_the_contract_proves_none() -> None:
    """Not even if the adapter of another day said so: the lookup is older than the contract."""
    known = looking(lookup=lookup(FindingKind.NOT_FOUND, proof=True), lookups_count=1)
    assert not isinstance(what(known, contract()), NotSent)
    lagless = contract(absence_is_proof=True, visibility_lag_ms=None)
    assert not isinstance(what(known, lagless), NotSent)


def test_reports_that_nothing_left_free_no_key_that_was_used_to_undo() -> None:
    undone = AbsenceFacts(number=1, sent_at=CALM, quiet_after_at=CALM + LAG, open=False)
    known = facts(
        attempts=(attempt(proved_not_sent=True),),
        lookup=lookup(FindingKind.FOUND, asked_at=CALM + 2 * LAG),
        case_state=CaseState.LOOKING_UP,
    )
    assert what(known, now=CALM + 3 * LAG) == NotSent(proof="reports", evidence_id="")
    assert what(replace(known, absences=(undone,)), now=CALM + 3 * LAG) == AskPerson(Need.CONFLICT)


def test_after_a_restore_absence_is_not_concluded_where_it_may_have_been_made() -> None:
    """What was forgotten may be a request that undid it: its key is then no key for another attempt."""
    found = lookup(FindingKind.NOT_FOUND, proof=True)
    known = facts(lookup=found, lookups_count=3, case_state=CaseState.LOOKING_UP)
    assert isinstance(what(known, provable()), NotSent)
    assert isinstance(what(replace(known, perhaps_made_absent=True), provable()), AskPerson)


def test_after_a_restore_one_person_repeats_nothing_that_may_have_been_made_absent() -> None:
    def permission(known: Facts) -> str:
        status = assess(known, contract(), CALM).action(Action.RETRY)
        return str(status.permission) if status is not None else ""

    assert permission(facts()) == "allowed"
    assert permission(facts(perhaps_made_absent=True)) == "second_person"


def test_absence_is_never_concluded_from_a_lookup_without_proof() -> None:
    known = looking(lookup=lookup(FindingKind.NOT_FOUND, proof=False), lookups_count=1)
    assert not isinstance(what(known, provable()), NotSent)


def test_absence_waits_for_an_attempt_that_was_made_after_the_question() -> None:
    second = attempt(2, minted_at=CALM, quiet_after_at=CALM + timedelta(seconds=11))
    known = looking(
        attempts=(attempt(), second),
        last_quiet_at=second.quiet_after_at,
        lookup=lookup(FindingKind.NOT_FOUND, proof=True, asked_at=CALM - TICK),
        lookups_count=1,
    )
    assert not isinstance(what(known, provable(), now=CALM + timedelta(minutes=5)), NotSent)


def test_absence_waits_for_a_worker_that_may_still_write() -> None:
    known = looking(
        attempts=(sending(outcome=AttemptOutcome.UNREPORTED),),
        lookup=lookup(FindingKind.NOT_FOUND, proof=True),
        lookups_count=1,
    )
    assert not isinstance(what(known, provable()), NotSent)


def test_what_was_seen_once_is_not_proved_absent_by_a_later_look() -> None:
    known = looking(lookup=lookup(FindingKind.NOT_FOUND, proof=True), shown_before="ev_1", lookups_count=2)
    assert what(known, provable()) == AskPerson(Need.CONFLICT)
    assert what(replace(known, shown_before=""), provable()) == NotSent("absence", "ev_lookup")


# --- refused --------------------------------------------------------------------------------------------


def rejection(number: int = 1) -> RejectionFacts:
    return RejectionFacts(attempt_number=number, evidence_id=f"ev_r{number}")


NOT_SENT = {"outcome": AttemptOutcome.NOT_SENT, "proved_not_sent": True}


@pytest.mark.parametrize(
    ("attempts", "rejections", "replays", "settles"),
    [
        ((attempt(),), (rejection(),), False, "ev_r1"),
        ((attempt(), attempt(2)), (rejection(2),), False, None),
        ((attempt(), attempt(2)), (rejection(1),), False, None),
        ((attempt(), attempt(2, **NOT_SENT)), (rejection(1),), False, "ev_r1"),
        ((attempt(**NOT_SENT), attempt(2)), (rejection(2),), False, "ev_r2"),
        ((attempt(), attempt(2)), (rejection(2),), True, "ev_r2"),
        # Each refused one of the two: neither speaks for the other, together they speak for all.
        ((attempt(), attempt(2)), (rejection(1), rejection(2)), False, "ev_r1"),
        ((attempt(), attempt(2), attempt(3)), (rejection(1), rejection(2)), False, None),
    ],
)
def test_a_refusal_settles_what_it_speaks_for(
    attempts: tuple,  # type: ignore[type-arg]
    rejections: tuple,  # type: ignore[type-arg]
    replays: bool,
    settles: str | None,
) -> None:
    got = what(looking(attempts=attempts, rejections=rejections), contract(rejection_replays=replays))
    assert got == RejectBy(settles) if settles else not isinstance(got, RejectBy)


@pytest.mark.parametrize(
    ("attempts", "replays", "expected"),
    [
        ((attempt(),), False, RejectBy("ev_lookup")),
        ((attempt(), attempt(2)), False, AskPerson(Need.REFUSED)),
        ((attempt(), attempt(2)), True, RejectBy("ev_lookup")),
        ((attempt(), attempt(2, **NOT_SENT)), False, RejectBy("ev_lookup")),
    ],
)
def test_a_refused_record_settles_where_no_other_attempt_can_have_worked(
    attempts: tuple,  # type: ignore[type-arg]
    replays: bool,
    expected: Conclusion,
) -> None:
    known = looking(attempts=attempts, lookup=lookup(FindingKind.REFUSED), lookups_count=1)
    assert what(known, contract(rejection_replays=replays)) == expected


# --- who is asked, and when -----------------------------------------------------------------------------


def test_a_provider_that_cannot_be_asked_leaves_it_to_people_at_once() -> None:
    blind = contract(lookup=LookupKind.NONE, visibility_lag_ms=None)
    assert what(looking(), blind, now=SENT_AT) == AskPerson(Need.NO_LOOKUP)
    assert what(looking(grant_ended_unused="grant_1"), blind) == AskPerson(Need.GRANT_ENDED)


def not_found(count: int, **fields: object) -> Facts:
    return looking(lookup=lookup(FindingKind.NOT_FOUND), lookups_count=count, **fields)


def test_a_person_is_asked_after_enough_complete_looks() -> None:
    assert what(not_found(LOOKUPS_BEFORE_ASKING - 1)) == KeepLooking()
    assert what(not_found(LOOKUPS_BEFORE_ASKING)) == AskPerson(Need.NOT_FOUND)
    assert what(not_found(LOOKUPS_BEFORE_ASKING, grant_ended_unused="g")) == AskPerson(Need.GRANT_ENDED)


def test_looks_before_quiet_time_and_lag_do_not_count_as_complete() -> None:
    lagging = contract(visibility_lag_ms=3_000)
    many = not_found(LOOKUPS_BEFORE_ASKING)
    assert what(many, lagging, now=PROVABLE_AT - TICK) == KeepLooking()
    assert what(many, lagging, now=PROVABLE_AT) == AskPerson(Need.NOT_FOUND)


@pytest.mark.parametrize(
    ("fields", "need"),
    [
        ({"lookup": lookup(FindingKind.NOT_FOUND), "lookups_count": 1}, Need.NOT_FOUND),
        ({"lookups_count": 2, "lookups_failed_count": 2}, Need.PARKED),
        # Nobody has looked at all: the lookups themselves are stuck.
        ({"lookups_count": 0}, Need.PARKED),
    ],
)
def test_a_person_is_asked_in_any_case_after_two_minutes(fields: dict, need: Need) -> None:  # type: ignore[type-arg]
    due_at = CALM + LOOKING_UP_MAX
    known = looking(**{**fields, "opened_at": CALM})
    assert what(known, now=due_at - TICK) == KeepLooking()
    assert what(known, now=due_at) == AskPerson(need)


def test_a_failing_lookup_is_parked_after_so_many_failures_in_a_row() -> None:
    def failing(count: int) -> Facts:
        return looking(lookups_count=count, lookups_failed_count=count, opened_at=CALM)

    assert what(failing(FAILED_LOOKUPS_MAX - 1)) == KeepLooking()
    assert what(failing(FAILED_LOOKUPS_MAX)) == AskPerson(Need.PARKED)


def test_what_is_not_final_is_looked_at_for_a_while_before_a_person_is_asked() -> None:
    def pending(count: int) -> Facts:
        return looking(lookup=lookup(FindingKind.PENDING), lookups_count=count)

    assert what(pending(PENDING_LOOKUPS_MAX - 1)) == KeepLooking()
    assert what(pending(PENDING_LOOKUPS_MAX)) == AskPerson(Need.PENDING)


def test_where_waiting_brings_proof_it_is_waited_for_after_a_first_look() -> None:
    assert what(looking(), provable(), now=SENT_AT) == KeepLooking()
    early = looking(
        lookup=lookup(FindingKind.NOT_FOUND, asked_at=PROVABLE_AT - TICK), lookups_count=LOOKUPS_BEFORE_ASKING
    )
    assert what(early, provable(), now=PROVABLE_AT - TICK) == KeepLooking(not_before_at=PROVABLE_AT)
    # Asked late enough, and still no proof: a person.
    late = replace(early, lookup=lookup(FindingKind.NOT_FOUND, asked_at=PROVABLE_AT))
    assert what(late, provable(), now=PROVABLE_AT) == AskPerson(Need.NOT_FOUND)


@pytest.mark.parametrize(("over", "waits"), [(timedelta(0), True), (TICK, False)])
def test_proof_is_waited_for_only_while_it_is_cheaper_than_a_person(over: timedelta, waits: bool) -> None:
    opened_at = PROVABLE_AT - PROOF_WORTH_WAITING - over
    known = looking(
        opened_at=opened_at,
        lookup=lookup(FindingKind.NOT_FOUND, asked_at=QUIET_AT),
        lookups_count=LOOKUPS_BEFORE_ASKING,
        attempts=(attempt(minted_at=opened_at),),
    )
    got = what(known, provable(), now=PROVABLE_AT - TICK)
    assert got == (KeepLooking(not_before_at=PROVABLE_AT) if waits else AskPerson(Need.NOT_FOUND))


def test_after_a_repeat_the_looks_before_it_say_nothing() -> None:
    """However old the case is: nobody is asked about the repeat before somebody has looked."""
    sent_again_at = CALM + timedelta(hours=1)
    quiet_at = sent_again_at + timedelta(seconds=11)
    repeated = looking(
        attempts=(attempt(), attempt(2, minted_at=sent_again_at, quiet_after_at=quiet_at)),
        last_quiet_at=quiet_at,
        lookup=lookup(FindingKind.NOT_FOUND, asked_at=CALM),
        lookups_count=LOOKUPS_BEFORE_ASKING,
    )
    assert isinstance(what(repeated, now=quiet_at), KeepLooking)
    # And the proof that waiting brings is as near as after the first attempt.
    proof_at = quiet_at + LAG
    assert what(repeated, provable(), now=quiet_at) == KeepLooking(not_before_at=proof_at)
    looked = replace(repeated, lookup=lookup(FindingKind.NOT_FOUND, asked_at=quiet_at))
    assert what(looked, now=quiet_at) == AskPerson(Need.NOT_FOUND)
    assert what(repeated, now=sent_again_at + LOOKING_UP_MAX) == AskPerson(Need.PARKED)


def test_nothing_is_asked_of_anybody_while_a_retry_is_under_way() -> None:
    waiting = facts(case_state=CaseState.RETRYING, lookup=lookup(FindingKind.NOT_FOUND), lookups_count=9)
    assert what(waiting) == Wait()
    assert what(facts(grant_open="grant_1", lookups_count=9)) == Wait()


@pytest.mark.parametrize(
    ("fields", "need"),
    [
        ({"lookup": lookup(FindingKind.PENDING)}, Need.PENDING),
        ({"lookup": lookup(FindingKind.MISMATCH)}, Need.MISMATCH),
        ({"lookup": lookup(FindingKind.SEVERAL)}, Need.SEVERAL),
        ({"lookup": lookup(FindingKind.NOT_FOUND), "shown_before": "ev_1"}, Need.CONFLICT),
    ],
)
def test_an_effect_that_shows_up_during_a_retry_stops_it(fields: dict, need: Need) -> None:  # type: ignore[type-arg]
    for state in ({"case_state": CaseState.RETRYING}, {"grant_open": "grant_1"}):
        assert what(facts(**{**fields, **state, "lookups_count": 1})) == AskPerson(need)


def test_an_effect_on_record_stops_no_repeat_that_is_already_on_its_way() -> None:
    """Its outcome is awaited: there is nothing to take back."""
    repeat = attempt(2, outcome=AttemptOutcome.OPEN, holder=Holder.CONSOLE)
    known = facts(
        case_state=CaseState.RETRYING, attempts=(attempt(), repeat), lookup=lookup(FindingKind.PENDING)
    )
    assert what(known) == Wait()


@pytest.mark.parametrize(
    "state", [OperationState.CONFIRMED, OperationState.REJECTED, OperationState.ABANDONED]
)
def test_a_conflict_over_a_settled_operation_asks_a_person_and_settles_nothing(state: OperationState) -> None:
    known = facts(operation_state=state, case_kind=CaseKind.CONFLICT, receipts=(receipt(),))
    assert what(known) == AskPerson(Need.CONFLICT)
    assert what(replace(known, case_kind=CaseKind.UNKNOWN)) == Wait()
