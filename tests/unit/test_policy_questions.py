"""The five questions, on both sides of every boundary."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from reconciliation.contracts import Contract, KeyScope, LookupKind, WindowKind
from reconciliation.facts import Facts, Holder
from reconciliation.questions import Answer, answer_questions
from reconciliation.states import Truth
from runs.states import AttemptOutcome, RunState
from tests.policy_facts import (
    CALM,
    KEY_ENDS_AT,
    PIN,
    QUIET_AT,
    SENT_AT,
    TICK,
    attempt,
    contract,
    facts,
    keyless,
    sending,
)

LEASE_ENDS_AT = SENT_AT + timedelta(minutes=10)


def ask(number: int, known: Facts, promised: Contract | None = None, now: datetime = CALM) -> Answer:
    answer = answer_questions(known, promised or contract(), now)[number - 1]
    assert answer.number == number
    return answer


def test_the_first_question_names_the_entry_and_counts_its_requests() -> None:
    one = ask(1, facts())
    assert one.truth is Truth.YES
    assert "turn 1, call c1" in one.sentence
    assert "1 attempt," in one.sentence
    assert "2 attempts" in ask(1, facts(attempts=(attempt(), attempt(2)))).sentence


def test_the_first_question_says_that_somebody_else_sent_it() -> None:
    assert "never asked" in ask(1, facts(attempts=(), sent_by_unknown="ev_1")).sentence


def test_an_account_that_is_not_configured_here_cannot_be_asked_from_here() -> None:
    known = facts(can_be_asked_here=False)
    # The key still answers the second question, for as long as it protects.
    second = ask(2, known)
    assert (second.truth, second.until_at) == (Truth.YES, KEY_ENDS_AT)
    assert "can't ask there" in second.sentence
    assert ask(2, known, keyless()).truth is Truth.NO
    third = ask(3, known)
    assert third.truth is Truth.NO
    assert third.sentence.startswith("Not from here. This account isn't configured here")
    # Where nothing can be asked anyway, that is what is said.
    nothing = ask(3, known, contract(**NO_LOOKUP))
    assert nothing.sentence == "The provider shows nothing that we could ask for."


# --- 2: the key, or a reliable lookup -------------------------------------------------------------------

NO_LOOKUP = {"lookup": LookupKind.NONE, "visibility_lag_ms": None}


@pytest.mark.parametrize(
    ("promised", "now", "truth", "until_at"),
    [
        (contract(**NO_LOOKUP), KEY_ENDS_AT - TICK, Truth.YES, KEY_ENDS_AT),
        (contract(**NO_LOOKUP), KEY_ENDS_AT, Truth.NO, None),
        (contract(**NO_LOOKUP, window_kind=WindowKind.MINIMUM), KEY_ENDS_AT - TICK, Truth.YES, KEY_ENDS_AT),
        (
            contract(**NO_LOOKUP, window_kind=WindowKind.UNPUBLISHED, dedup_window_ms=None),
            CALM,
            Truth.UNKNOWN,
            None,
        ),
        # A duration beside "unpublished" is hearsay.
        (contract(**NO_LOOKUP, window_kind=WindowKind.UNPUBLISHED), CALM, Truth.UNKNOWN, None),
        (keyless(**NO_LOOKUP), CALM, Truth.NO, None),
        # An exact lookup answers the question whatever the key does, for all time.
        (contract(), KEY_ENDS_AT, Truth.YES, None),
        (keyless(), CALM, Truth.YES, None),
        # A lookup that ranks, or lags for nobody knows how long, doesn't.
        (keyless(lookup=LookupKind.BY_SEARCH), CALM, Truth.NO, None),
        (keyless(visibility_lag_ms=None), CALM, Truth.NO, None),
    ],
)
def test_the_second_question(
    promised: Contract, now: datetime, truth: Truth, until_at: datetime | None
) -> None:
    answer = ask(2, facts(), promised, now)
    assert (answer.truth, answer.until_at) == (truth, until_at)


@pytest.mark.parametrize("changed", ["adapter", "endpoint", "region", "credential_fingerprint"])
def test_a_changed_pin_ends_the_keys_protection(changed: str) -> None:
    answer = ask(2, facts(current=replace(PIN, **{changed: "other"})), contract(**NO_LOOKUP))
    assert answer.truth is Truth.NO
    assert "changed since the first send" in answer.sentence


def test_a_key_without_a_scope_protects_nothing() -> None:
    assert ask(2, facts(), contract(**NO_LOOKUP, key_scope=KeyScope.NONE)).truth is Truth.NO


def test_an_unrecorded_first_send_leaves_the_second_question_open() -> None:
    assert ask(2, facts(first_sent_at=None), contract(**NO_LOOKUP)).truth is Truth.UNKNOWN


# --- 3: seeing without changing -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LookupKind)
def test_the_third_question_is_whether_there_is_any_lookup(kind: LookupKind) -> None:
    expected = Truth.NO if kind is LookupKind.NONE else Truth.YES
    assert ask(3, facts(), contract(lookup=kind)).truth is expected


# --- 4: the old worker ----------------------------------------------------------------------------------

OPEN, UNREPORTED = AttemptOutcome.OPEN, AttemptOutcome.UNREPORTED


@pytest.mark.parametrize(
    ("attempts", "now", "truth", "until_at"),
    [
        ((attempt(),), QUIET_AT - TICK, Truth.NO, QUIET_AT),
        ((attempt(),), QUIET_AT, Truth.YES, None),
        # Reported, and its worker still holds the run: it has nothing more to write about this attempt.
        ((attempt(holder=Holder.LIVE, lease_ends_at=LEASE_ENDS_AT),), QUIET_AT, Truth.YES, None),
        # Unreported under a live lease: its worker may still write, so the lease's end is waited for.
        ((sending(),), QUIET_AT, Truth.NO, LEASE_ENDS_AT),
        ((sending(outcome=UNREPORTED),), QUIET_AT, Truth.NO, LEASE_ENDS_AT),
        ((attempt(outcome=UNREPORTED),), QUIET_AT, Truth.YES, None),
        # The lease's end before quiet time changes nothing: a request may be on its way.
        ((attempt(outcome=OPEN),), QUIET_AT - TICK, Truth.NO, QUIET_AT),
        # The console holds no lease: its attempt is over with its quiet time.
        ((attempt(outcome=OPEN, holder=Holder.CONSOLE),), QUIET_AT - TICK, Truth.NO, QUIET_AT),
        ((attempt(outcome=OPEN, holder=Holder.CONSOLE),), QUIET_AT, Truth.YES, None),
        # Proved not to have left: nothing to wait for.
        ((attempt(outcome=AttemptOutcome.NOT_SENT, proved_not_sent=True),), SENT_AT, Truth.YES, None),
        # The loudest of several counts.
        ((attempt(), attempt(2, quiet_after_at=CALM)), CALM - TICK, Truth.NO, CALM),
        ((attempt(), attempt(2, quiet_after_at=CALM)), CALM, Truth.YES, None),
        # Somebody sent it without asking: nobody can say when they stop.
        ((), CALM, Truth.UNKNOWN, None),
    ],
)
def test_the_fourth_question(attempts: tuple, now: datetime, truth: Truth, until_at: datetime | None) -> None:  # type: ignore[type-arg]
    answer = ask(4, facts(attempts=attempts), now=now)
    assert (answer.truth, answer.until_at) == (truth, until_at)


def test_the_fourth_question_names_who_may_still_send() -> None:
    sentence = ask(4, facts(attempts=(sending(worker="ordering-7"),)), now=SENT_AT).sentence
    assert "Attempt 1 by ordering-7" in sentence
    assert "29 Nov 12:10:00Z" in sentence


# --- 5: what still applies ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "truth", "until_at"),
    [
        ({}, Truth.YES, None),
        ({"run_state": RunState.PAUSED}, Truth.YES, None),
        ({"run_state": RunState.COMPLETED}, Truth.NO, None),
        ({"run_state": RunState.ABANDONED}, Truth.NO, None),
        ({"approval_until_at": CALM}, Truth.NO, None),
        ({"approval_until_at": CALM + TICK}, Truth.YES, CALM + TICK),
        ({"paused_for_version": "6"}, Truth.UNKNOWN, None),
        ({"approval_until_at": CALM, "paused_for_version": "6"}, Truth.NO, None),
    ],
)
def test_the_fifth_question(fields: dict, truth: Truth, until_at: datetime | None) -> None:  # type: ignore[type-arg]
    answer = ask(5, facts(**fields))
    assert (answer.truth, answer.until_at) == (truth, until_at)
