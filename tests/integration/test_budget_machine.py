"""Any order of sends, reports, retries, grants and endings leaves the books and counters true.

A Hypothesis state machine drives the journal's own functions against the real database. Every example has
a run of its own, so that nothing need be cleaned up between them.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from django.db import connection, transaction
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from runs import leases
from runs.journal import settling
from runs.journal.ending import abandon_run, complete_run
from runs.journal.evidence import record_evidence
from runs.journal.grants import end_grant
from runs.journal.sending import begin_repeat_by_console
from runs.journal.turns import CallChosen, save_turn
from runs.leases import LeaseEnd, drop_pause_reason, end_lease
from runs.locking import lock_run
from runs.models import Attempt, Grant, Operation, Run
from runs.refusals import Refusal
from runs.states import (
    OPERATION_SETTLED,
    RUN_ENDED,
    AttemptOutcome,
    Claim,
    EvidenceKind,
    Executor,
    GrantState,
    OperationState,
    PauseReason,
    Reservation,
)
from tests.factories import (
    PERSON,
    TEAM,
    Claimed,
    claim,
    effect,
    end_lease_in,
    grant,
    held,
    make_account,
    make_run,
    quieten,
    receipt,
    reply,
    send,
)

# Enough to meet every rule a few times in a few seconds; what it finds, it finds at once again.
EXAMPLES = 10
STEPS = 25
OPERATIONS = 3

AMOUNTS = st.sampled_from([400, 600, 1, 0, None])
WHICH = st.integers(0, OPERATIONS - 1)
_references = itertools.count(1)


class Books(RuleBasedStateMachine):
    """One run at a time: a parallel turn of effects with and without amounts, under a tight limit."""

    def __init__(self) -> None:
        super().__init__()
        self.token = ""
        self.index = 0
        self.attempts = itertools.count(1)

    @initialize(amounts=st.lists(AMOUNTS, min_size=OPERATIONS, max_size=OPERATIONS), limit=st.booleans())
    def begin(self, amounts: list[int | None], limit: bool) -> None:
        make_account()
        self.run = make_run(budget_minor=1_000 if limit else None)
        self.token = claim(self.run)
        self.decide(amounts)

    # --- What a worker does ---------------------------------------------------------------------------

    @rule(amounts=st.lists(AMOUNTS, min_size=OPERATIONS, max_size=OPERATIONS))
    def decide(self, amounts: list[int | None]) -> None:
        calls: tuple[CallChosen, ...] = tuple(
            effect(f"c{number}", minor=minor) for number, minor in enumerate(amounts)
        )
        try:
            save_turn(
                team=TEAM,
                run_id=self.run.pk,
                token=self.token,
                index=self.index + 1,
                decision={},
                parallel=True,
                calls=calls,
            )
        except Refusal:
            return
        self.index += 1

    @rule(which=WHICH, same=st.booleans())
    def send(self, which: int, same: bool) -> None:
        self.claim_again()
        operation, run = self.pick(which, OperationState.READY, OperationState.SENT_UNKNOWN), self.fresh()
        earlier = list(operation.attempts.order_by("number"))
        attempt_id = earlier[-1].attempt_id if same and earlier else f"a{next(self.attempts)}"
        try:
            go = send(self.claimed(), operation=operation, attempt_id=attempt_id)
        except Refusal:
            return
        if go.replayed:
            return
        attempt = Attempt.objects.get(operation=operation, attempt_id=attempt_id)
        if attempt.grant_id is None:
            # Without a grant only what is proved not sent is sent again.
            assert all(one.outcome == AttemptOutcome.NOT_SENT for one in earlier)
            assert operation.state == OperationState.READY
            assert run.in_doubt_count == 0
        if operation.reservation == Reservation.NONE and run.budget_limit_minor is not None:
            taken = run.budget_reserved_minor + run.budget_spent_minor + run.budget_held_minor
            assert operation.amount_minor is None or taken + operation.amount_minor <= run.budget_limit_minor

    @rule(which=WHICH, minor=st.sampled_from([None, 0, 300, 700]))
    def reply(self, which: int, minor: int | None) -> None:
        operation = self.pick(which, OperationState.SENT_UNKNOWN)
        for attempt in operation.attempts.filter(outcome=AttemptOutcome.OPEN):
            reply(
                self.claimed(),
                f"ord_{next(_references)}",
                operation=operation,
                attempt_id=attempt.attempt_id,
                minor=minor,
            )

    @rule(
        which=WHICH,
        outcome=st.sampled_from(
            [
                AttemptOutcome.RECEIPT,
                AttemptOutcome.REJECTED,
                AttemptOutcome.NOT_SENT,
                AttemptOutcome.UNKNOWN,
                AttemptOutcome.UNREPORTED,
            ]
        ),
        minor=st.sampled_from([None, 300, 700]),
        release=st.booleans(),
    )
    def report(self, which: int, outcome: AttemptOutcome, minor: int | None, release: bool) -> None:
        """The slow path: the attempt ends, and what that settles is settled; else it is in doubt."""
        operation = self.pick(which, OperationState.SENT_UNKNOWN)
        if operation.state != OperationState.SENT_UNKNOWN:
            return
        with held(operation) as locked:
            for attempt in operation.attempts.filter(outcome=AttemptOutcome.OPEN):
                settling.end_attempt(locked, attempt, outcome=outcome)
            others = operation.attempts.exclude(outcome=AttemptOutcome.NOT_SENT)
            if outcome == AttemptOutcome.RECEIPT:
                facts = receipt(f"ord_{next(_references)}", minor=minor)
                settling.confirm(locked, receipt=facts, actor=PERSON)
            elif outcome == AttemptOutcome.REJECTED and others.count() <= 1:
                settling.reject(locked, refusal=b'"no"', actor=PERSON)
            elif outcome == AttemptOutcome.NOT_SENT and operation.attempts.exists() and not others.exists():
                settling.return_to_ready(locked, actor=PERSON, release=release)
            else:
                settling.open_doubt(locked)

    def give_back(self) -> None:
        self.quietly(leases.release, team=TEAM, run_id=self.run.pk, token=self.token)

    def claim_again(self) -> None:
        try:
            self.token = claim(self.run)
        except Refusal:
            return

    def complete(self) -> None:
        if self.index < 3:
            return
        self.quietly(complete_run, team=TEAM, run_id=self.run.pk, token=self.token, output=None)

    @rule(
        kind=st.sampled_from(
            ["give_back", "lose_the_lease", "take_in", "raise_the_limit", "complete", "give_up"]
        )
    )
    def something_happens_to_the_run(self, kind: str) -> None:
        getattr(self, kind)()

    @rule(which=WHICH, kind=st.sampled_from(["end_the_grant", "stray_success"]))
    def something_happens_to_an_operation(self, which: int, kind: str) -> None:
        getattr(self, kind)(which)

    # --- What time and others do ------------------------------------------------------------------------

    def lose_the_lease(self) -> None:
        if self.fresh().lease_token is not None:
            end_lease_in(self.run, -1)

    def take_in(self) -> None:
        """What the sweeper does with a run whose lease has run out."""
        with transaction.atomic():
            locked = lock_run(run_id=self.run.pk, team=None)
            if locked.run.lease_expires_at is None or locked.run.lease_expires_at > locked.now:
                return
            for operation in leases.left_unreported(locked.run):
                with held(operation) as one:
                    for attempt in operation.attempts.filter(outcome=AttemptOutcome.OPEN):
                        settling.end_attempt(one, attempt, outcome=AttemptOutcome.UNREPORTED)
                    settling.open_doubt(one)
            end_lease(lock_run(run_id=self.run.pk, team=None), by=LeaseEnd.EXPIRED)

    @rule(which=WHICH, executor=st.sampled_from(Executor))
    def grant(self, which: int, executor: Executor) -> None:
        operation = self.pick(which, OperationState.SENT_UNKNOWN)
        quieten(operation)
        self.quietly(grant, operation, executor=executor)

    @rule(which=WHICH)
    def repeat(self, which: int) -> None:
        self.repeat_by_the_console()
        self.send(which, same=False)

    def end_the_grant(self, which: int) -> None:
        operation = self.pick(which, OperationState.SENT_UNKNOWN)
        for made in Grant.objects.filter(operation=operation, state=GrantState.OPEN):
            with held(operation) as locked:
                end_grant(locked, made, state=GrantState.EXPIRED, actor=PERSON, why="unused")

    def repeat_by_the_console(self) -> None:
        for made in Grant.objects.filter(operation__run=self.run, state=GrantState.OPEN):
            self.quietly(begin_repeat_by_console, grant_id=made.pk, attempt_id=f"console-{made.pk}")

    def stray_success(self, which: int) -> None:
        with held(self.pick(which, OperationState.READY)) as locked:
            evidence = record_evidence(
                locked, kind=EvidenceKind.WEBHOOK, claim=Claim.RECEIPT, summary="Made", actor=PERSON
            )
            try:
                settling.mark_sent_by_unknown(locked, actor=PERSON, evidence=evidence)
            except settling.MoveRefused:
                return
            settling.open_doubt(locked)

    # --- What people do ---------------------------------------------------------------------------------

    @rule(which=WHICH)
    def abandon(self, which: int) -> None:
        with held(self.pick(which, OperationState.SENT_UNKNOWN, OperationState.READY)) as locked:
            unknown, reserved = (
                locked.operation.state == OperationState.SENT_UNKNOWN,
                locked.operation.reservation,
            )
            try:
                settling.abandon(locked, actor=PERSON, known_effect="Not known.", reason="given up")
            except settling.MoveRefused:
                return
            if reserved == Reservation.RESERVED:
                after = Reservation.HELD if unknown else Reservation.RELEASED
                assert locked.operation.reservation == after

    @rule(which=WHICH, minor=st.sampled_from([0, 300]), stands=st.booleans())
    def book(self, which: int, minor: int, stands: bool) -> None:
        with held(self.pick(which, *OPERATION_SETTLED)) as locked:
            try:
                settling.book_conflict(locked, minor=minor, stands=stands, actor=PERSON, reason="seen")
            except settling.MoveRefused:
                return

    def raise_the_limit(self) -> None:
        with transaction.atomic():
            locked = lock_run(run_id=self.run.pk, team=None)
            if locked.run.budget_limit_minor is not None:
                Run.objects.filter(pk=self.run.pk).update(
                    budget_limit_minor=locked.run.budget_limit_minor + 500
                )
            drop_pause_reason(locked, PauseReason.BUDGET)

    def give_up(self) -> None:
        if self.index < 3:
            return
        self.quietly(abandon_run, team=TEAM, run_id=self.run.pk, actor=PERSON, reason="cancelled")

    # --- What is always true ----------------------------------------------------------------------------

    @invariant()
    def books_counters_and_pauses_are_true(self) -> None:
        run = self.fresh()
        operations = list(Operation.objects.filter(run=run))
        attempts = list(Attempt.objects.filter(operation__run=run).order_by("number"))
        grants = list(Grant.objects.filter(operation__run=run, state=GrantState.OPEN))
        books_are_the_sum_of_the_operations(run, operations)
        counters_tell_the_truth(run, operations, attempts, grants)
        paused_when_and_only_when_there_is_a_reason(run, operations, attempts, grants)

    # --- The run as it is -------------------------------------------------------------------------------

    def fresh(self) -> Run:
        return Run.objects.get(pk=self.run.pk)

    def pick(self, which: int, *states: OperationState) -> Operation:
        """An operation of the current turn, in one of these states if there is one."""
        operations = list(Operation.objects.filter(run=self.run, turn_index=self.index).order_by("position"))
        wanted = [one for one in operations if one.state in states] or operations
        return wanted[which % len(wanted)]

    def claimed(self) -> Claimed:
        return Claimed(self.run, self.token, [])

    def quietly(self, act: Any, *args: Any, **kwargs: Any) -> None:
        """Do it or be refused: both are what a caller may meet."""
        try:
            act(*args, **kwargs)
        except Refusal:
            assert not connection.in_atomic_block


def books_are_the_sum_of_the_operations(run: Run, operations: list[Operation]) -> None:
    booked = {kind: [one for one in operations if one.reservation == kind] for kind in Reservation}
    assert run.budget_reserved_minor == sum(one.reserved_minor for one in operations)
    assert run.budget_spent_minor == sum(one.settled_minor for one in booked[Reservation.SETTLED])
    assert run.budget_held_minor == sum(one.settled_minor for one in booked[Reservation.HELD])
    for one in operations:
        reserved = one.reservation == Reservation.RESERVED
        # Never reserved twice, never for less than its amount.
        assert one.reserved_minor == ((one.amount_minor or 0) if reserved else 0)
        if one.state in OPERATION_SETTLED:
            assert not reserved
        if one.state == OperationState.SENT_UNKNOWN:
            assert reserved == (one.amount_minor is not None)


def counters_tell_the_truth(
    run: Run, operations: list[Operation], attempts: list[Attempt], grants: list[Grant]
) -> None:
    assert run.in_doubt_count == sum(one.in_doubt_since_at is not None for one in operations)
    current = [one for one in operations if one.turn_index == run.turn_index]
    assert run.turn_settled == sum(one.state in OPERATION_SETTLED for one in current)
    assert run.turn_calls == len(current)
    settled = [one.state in OPERATION_SETTLED for one in sorted(current, key=lambda one: one.position)]
    # It may lag behind the truth, for a send then asks; ahead of it, a call would overtake another.
    assert all(settled[: run.turn_settled_through])
    for one in operations:
        if one.state == OperationState.SENT_UNKNOWN and one.in_doubt_since_at is None:
            # What the sweeper finds it by.
            assert any(a.outcome == "open" for a in attempts if a.operation_id == one.pk)
        numbers = [attempt.number for attempt in attempts if attempt.operation_id == one.pk]
        assert numbers == list(range(1, one.attempts_count + 1))
        if one.turn_index < run.turn_index:
            assert one.state in OPERATION_SETTLED
        open_grants = sum(made.operation_id == one.pk for made in grants)
        assert open_grants <= (1 if one.state == OperationState.SENT_UNKNOWN else 0)


def paused_when_and_only_when_there_is_a_reason(
    run: Run, operations: list[Operation], attempts: list[Attempt], grants: list[Grant]
) -> None:
    assert (run.state == "paused") == bool(run.paused_reasons)
    granted = any(made.executor == Executor.AGENT for made in grants)
    waits = run.in_doubt_count > 0 and not granted
    if PauseReason.OUTCOME in run.paused_reasons:
        assert waits
    elif waits and run.state not in RUN_ENDED:
        # Then somebody is sending under the current lease, or was until it ran out.
        unknown = {one.pk for one in operations if one.state == OperationState.SENT_UNKNOWN}
        assert any(
            attempt.outcome == AttemptOutcome.OPEN
            and attempt.lease_token == run.lease_token
            and attempt.operation_id in unknown
            for attempt in attempts
        )


@pytest.mark.django_db(transaction=True)
def test_the_books_and_counters_are_true_after_any_order_of_events() -> None:
    run_state_machine_as_test(
        Books,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            # Not shrunk: that takes minutes against a database, and 25 steps can be read.
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
