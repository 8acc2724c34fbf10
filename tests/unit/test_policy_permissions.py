"""What people may do with a case: each action allowed, for two, or locked, and until when."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from reconciliation.contracts import (
    AskedAgain,
    Contract,
    KeyAfter,
    LateSend,
    LookupKind,
    MakeAbsent,
    WindowKind,
)
from reconciliation.facts import Facts, Holder
from reconciliation.permissions import ActionStatus
from reconciliation.policy import assess
from reconciliation.providers.base import FindingKind
from reconciliation.states import Action, CaseKind, CaseState, Permission
from runs.states import AttemptOutcome, OperationState, RunState
from tests.policy_facts import (
    CALM,
    KEY_ENDS_AT,
    PIN,
    QUIET_AT,
    REPEAT_STARTS_BY,
    SENT_AT,
    TICK,
    attempt,
    contract,
    facts,
    keyless,
    lookup,
    receipt,
    sending,
)

ALLOWED, SECOND, LOCKED = Permission.ALLOWED, Permission.SECOND_PERSON, Permission.LOCKED
LEASE_ENDS_AT = SENT_AT + timedelta(minutes=10)
TAKEN = replace(receipt(), confirmed_other="op_2")
GRANT_ENDS_AT = CALM + timedelta(minutes=15)


def status(
    action: Action, known: Facts, promised: Contract | None = None, now: datetime = CALM
) -> ActionStatus:
    found = assess(known, promised or contract(), now).action(action)
    assert found is not None
    assert found.sentence.strip().endswith(".")
    return found


# --- confirm --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "permission", "receipt_unlocks"),
    [
        ({}, SECOND, True),
        ({"lookup": lookup(FindingKind.NOT_FOUND)}, SECOND, True),
        ({"receipts": (receipt(),)}, ALLOWED, False),
        ({"receipts": (receipt(matches=False),)}, SECOND, True),
        # The same receipt seen twice is one.
        ({"receipts": (receipt(), receipt())}, ALLOWED, False),
        # One that confirmed another operation confirms no second; what is left is as if it weren't there.
        ({"receipts": (TAKEN,), "case_kind": CaseKind.CONFLICT}, SECOND, True),
        ({"receipts": (receipt("a"), receipt("b"))}, SECOND, False),
        ({"receipts": (receipt(),), "lookup": lookup(FindingKind.SEVERAL)}, SECOND, False),
        ({"receipts": (receipt(),), "lookup": lookup(FindingKind.MISMATCH)}, SECOND, False),
        ({"lookup": lookup(FindingKind.MISMATCH)}, SECOND, False),
        ({"receipts": (receipt(),), "mismatch_reported": "ev_2"}, SECOND, False),
        # What the provider shows under our key outweighs what a worker said; a person says so.
        (
            {
                "receipts": (receipt(),),
                "mismatch_reported": "ev_2",
                "lookup": lookup(FindingKind.FOUND),
            },
            ALLOWED,
            False,
        ),
        ({"lookup": lookup(FindingKind.PENDING)}, LOCKED, False),
        ({"lookup": lookup(FindingKind.CANDIDATE)}, SECOND, True),
        ({"receipts": (receipt(),), "case_kind": CaseKind.CONFLICT}, ALLOWED, False),
    ],
)
def test_confirming(fields: dict, permission: Permission, receipt_unlocks: bool) -> None:  # type: ignore[type-arg]
    found = status(Action.CONFIRM, facts(**fields))
    assert (found.permission, found.receipt_unlocks) == (permission, receipt_unlocks)


# --- retry ----------------------------------------------------------------------------------------------


def test_one_person_may_retry_until_a_repeat_would_arrive_too_late() -> None:
    last = status(Action.RETRY, facts(), now=REPEAT_STARTS_BY - TICK)
    assert (last.permission, last.closes_at) == (ALLOWED, REPEAT_STARTS_BY)
    late = status(Action.RETRY, facts(), now=REPEAT_STARTS_BY)
    assert late.permission is SECOND
    assert "Too little of it is left" in late.sentence
    assert "A duplicate is possible" in late.sentence
    gone = status(Action.RETRY, facts(), now=KEY_ENDS_AT)
    assert gone.permission is SECOND
    assert "may have forgotten" in gone.sentence
    assert "A duplicate is possible" in gone.sentence


def test_a_retry_closes_with_the_approval_if_that_ends_first() -> None:
    ends_at = CALM + timedelta(hours=1)
    assert status(Action.RETRY, facts(approval_until_at=ends_at)).closes_at == ends_at
    after = status(Action.RETRY, facts(approval_until_at=ends_at), now=ends_at)
    assert (after.permission, after.question) == (LOCKED, 5)


@pytest.mark.parametrize(
    "promised",
    [
        keyless(),
        contract(window_kind=WindowKind.UNPUBLISHED),
        contract(window_kind=WindowKind.UNPUBLISHED, dedup_window_ms=None),
    ],
)
def test_without_a_key_that_certainly_protects_a_retry_takes_two(promised: Contract) -> None:
    found = status(Action.RETRY, facts(), promised)
    assert (found.permission, found.question) == (SECOND, 2)
    assert "A duplicate is possible" in found.sentence


def test_a_retry_after_a_changed_pin_takes_two() -> None:
    assert status(Action.RETRY, facts(current=replace(PIN, endpoint="other"))).permission is SECOND


def test_a_retry_is_locked_until_quiet_time_and_says_until_when() -> None:
    early = status(Action.RETRY, facts(), now=QUIET_AT - TICK)
    assert (early.permission, early.question, early.unlocks_at) == (LOCKED, 4, QUIET_AT)
    assert status(Action.RETRY, facts(), now=QUIET_AT).permission is ALLOWED


def test_a_retry_is_locked_until_the_lease_over_an_unreported_attempt_ends() -> None:
    silent_worker = facts(attempts=(sending(outcome=AttemptOutcome.UNREPORTED),))
    held = status(Action.RETRY, silent_worker)
    assert (held.permission, held.question, held.unlocks_at) == (LOCKED, 4, LEASE_ENDS_AT)


@pytest.mark.parametrize(
    ("fields", "question"),
    [
        ({"receipts": (receipt(),)}, 0),
        ({"lookup": lookup(FindingKind.FOUND)}, 0),
        ({"lookup": lookup(FindingKind.PENDING)}, 0),
        ({"lookup": lookup(FindingKind.MISMATCH)}, 0),
        ({"lookup": lookup(FindingKind.SEVERAL)}, 0),
        ({"mismatch_reported": "ev_2"}, 0),
        # It was there once, and a later look doesn't show it.
        ({"lookup": lookup(FindingKind.NOT_FOUND), "shown_before": "ev_2"}, 0),
        ({"case_kind": CaseKind.CONFLICT}, 0),
        ({"attempts": ()}, 4),
        ({"run_state": RunState.ABANDONED}, 5),
        ({"approval_until_at": CALM}, 5),
        ({"paused_for_version": "6"}, 5),
    ],
)
def test_what_locks_a_retry(fields: dict, question: int) -> None:  # type: ignore[type-arg]
    found = status(Action.RETRY, facts(**fields))
    assert (found.permission, found.question) == (LOCKED, question)


def test_a_granted_retry_locks_retry_and_abandonment_until_the_grant_ends() -> None:
    granted = facts(case_state=CaseState.RETRYING, grant_open="grant_1", grant_ends_at=GRANT_ENDS_AT)
    for action in (Action.RETRY, Action.ABANDON):
        found = status(action, granted)
        assert (found.permission, found.unlocks_at) == (LOCKED, GRANT_ENDS_AT)


def test_a_repeat_under_way_locks_retry_and_abandonment_until_it_is_quiet() -> None:
    repeat = attempt(2, outcome=AttemptOutcome.OPEN, holder=Holder.CONSOLE, quiet_after_at=GRANT_ENDS_AT)
    known = facts(case_state=CaseState.RETRYING, attempts=(attempt(), repeat))
    for action in (Action.RETRY, Action.ABANDON):
        found = status(action, known)
        assert (found.permission, found.unlocks_at) == (LOCKED, GRANT_ENDS_AT)


def test_a_repeat_that_stayed_unreported_names_no_time_that_has_passed() -> None:
    repeat = attempt(2, outcome=AttemptOutcome.OPEN, holder=Holder.CONSOLE, quiet_after_at=GRANT_ENDS_AT)
    known = facts(case_state=CaseState.RETRYING, attempts=(attempt(), repeat))
    for action in (Action.RETRY, Action.ABANDON):
        found = status(action, known, now=GRANT_ENDS_AT + timedelta(seconds=1))
        assert found.unlocks_at == GRANT_ENDS_AT + timedelta(seconds=1)


def test_a_retry_whose_fresh_lookup_is_awaited_locks_retry_and_abandonment() -> None:
    known = facts(case_state=CaseState.RETRYING)
    for action in (Action.RETRY, Action.ABANDON):
        found = status(action, known)
        assert (found.permission, found.unlocks_at) == (LOCKED, None)


# --- abandon --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "permission"),
    [
        ({}, ALLOWED),
        ({"lookup": lookup(FindingKind.NOT_FOUND)}, ALLOWED),
        ({"lookup": lookup(FindingKind.MISMATCH)}, ALLOWED),
        ({"abandonment_people": 2}, SECOND),
        ({"receipts": (receipt(),)}, LOCKED),
        ({"receipts": (receipt(matches=False),)}, ALLOWED),
        ({"receipts": (TAKEN,), "case_kind": CaseKind.CONFLICT}, ALLOWED),
        ({"case_kind": CaseKind.CONFLICT}, ALLOWED),
        ({"run_state": RunState.ABANDONED}, ALLOWED),
    ],
)
def test_abandoning(fields: dict, permission: Permission) -> None:  # type: ignore[type-arg]
    assert status(Action.ABANDON, facts(**fields)).permission is permission


def test_nothing_is_abandoned_under_a_worker_that_is_sending_it() -> None:
    """Until the sweeper takes it in: at the lease's end or at quiet time, whichever is first."""
    known = facts(attempts=(sending(),), case_state=CaseState.LOOKING_UP)
    found = status(Action.ABANDON, known, now=SENT_AT)
    assert (found.permission, found.question, found.unlocks_at) == (LOCKED, 4, QUIET_AT)
    short = facts(attempts=(sending(lease_ends_at=SENT_AT + timedelta(seconds=5)),))
    assert status(Action.ABANDON, short, now=SENT_AT).unlocks_at == SENT_AT + timedelta(seconds=5)


def test_nothing_is_abandoned_while_the_console_is_sending_it() -> None:
    """A conflict can come up while the console's repeat is on its way."""
    repeat = attempt(2, outcome=AttemptOutcome.OPEN, holder=Holder.CONSOLE, quiet_after_at=CALM)
    known = facts(attempts=(attempt(), repeat), case_kind=CaseKind.CONFLICT)
    found = status(Action.ABANDON, known, now=CALM - TICK)
    assert (found.permission, found.unlocks_at) == (LOCKED, CALM)
    assert status(Action.ABANDON, known, now=CALM).permission is ALLOWED


# --- after the fact -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "state", [OperationState.CONFIRMED, OperationState.REJECTED, OperationState.ABANDONED]
)
def test_a_conflict_over_a_settled_operation_is_accepted_or_compensated(state: OperationState) -> None:
    known = facts(operation_state=state, case_kind=CaseKind.CONFLICT)
    actions = assess(known, contract(), CALM).actions
    assert {one.action: one.permission for one in actions} == {
        Action.ACCEPT: ALLOWED,
        Action.COMPENSATE: ALLOWED,
    }
    assert all(f"The operation is {state} and stays so" in one.sentence for one in actions)


def test_a_resolved_case_offers_nothing() -> None:
    known = facts(case_state=CaseState.RESOLVED, operation_state=OperationState.CONFIRMED)
    assert assess(known, contract(), CALM).actions == ()
    anew = facts(case_state=CaseState.RESOLVED, operation_state=OperationState.READY)
    assert {one.permission for one in assess(anew, contract(), CALM).actions} == {LOCKED}


def test_what_is_in_no_doubt_is_not_made_absent() -> None:
    way = MakeAbsent(
        title="Cancel it",
        request="POST /cancel",
        says="It cancels.",
        late_send=LateSend.MAY_LAND,
        key_after=KeyAfter.UNKNOWN,
        again=AskedAgain.UNKNOWN,
        proves_within_ms=3_600_000,
    )
    known = facts(absence_way=way)
    assert status(Action.MAKE_ABSENT, known).permission is SECOND
    ready = status(Action.MAKE_ABSENT, replace(known, operation_state=OperationState.READY))
    assert (ready.permission, "nothing to make absent" in ready.sentence) == (LOCKED, True)


def test_a_case_that_waits_for_approval_is_locked_for_everybody_else() -> None:
    actions = assess(facts(case_state=CaseState.AWAITING_APPROVAL), contract(), CALM).actions
    assert {one.permission for one in actions} == {LOCKED}


def test_the_digest_is_of_answers_and_permissions_and_not_of_times() -> None:
    one = assess(facts(), contract(), CALM).digested()
    assert one == assess(facts(), contract(), CALM + timedelta(hours=1)).digested()
    assert one != assess(facts(), contract(), KEY_ENDS_AT).digested()
    assert one != assess(facts(), contract(lookup=LookupKind.NONE), CALM).digested()
