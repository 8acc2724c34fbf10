"""Grants: one more attempt with the same key, once, in its window, and never after events moved on."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection

from runs.actors import Actor, ActorKind
from runs.journal.ending import abandon_run
from runs.journal.evidence import record_evidence
from runs.journal.grants import make_grant
from runs.journal.pausing import add_pause_reason
from runs.journal.sending import (
    AttemptEnded,
    NotSendable,
    StartWindowPassed,
    begin_repeat_by_console,
)
from runs.journal.settling import (
    MoveRefused,
    abandon,
    conclude_not_sent,
    confirm,
    mark_sent_by_unknown,
    open_doubt,
    reject,
    return_to_ready,
)
from runs.leases import RunEnded, RunPaused, StaleToken
from runs.models import Attempt, AuditLeaf, Grant, Operation, Run
from runs.refusals import Invalid
from runs.states import AttemptOutcome, Claim, EvidenceKind, Executor, GrantState, PauseReason
from tests.factories import (
    PERSON,
    TEAM,
    Claimed,
    claim,
    doubt,
    effect,
    end_lease_in,
    fresh,
    grant,
    held,
    make_account,
    make_claimed,
    quieten,
    receipt,
    reply,
    send,
)

pytestmark = pytest.mark.django_db(transaction=True)


def in_question(*, minor: int | None = 500) -> Claimed:
    """An operation whose first attempt is quiet and whose outcome nobody knows."""
    claimed = make_claimed(effect(minor=minor), budget_minor=None if minor is None else 10_000)
    send(claimed)
    doubt(claimed.operation)
    quieten(claimed.operation)
    return claimed


def resumed(claimed: Claimed) -> Claimed:
    return Claimed(claimed.run, claim(claimed.run), claimed.operations)


def move_grant(made: Grant, **instants_ms: int) -> None:
    """Set `not_before_at` or `not_after_at` to so many milliseconds from now."""
    with connection.cursor() as cursor:
        for name, ms in instants_ms.items():
            assert name in {"not_before_at", "not_after_at"}
            cursor.execute(
                f"UPDATE runs_grant SET {name} = clock_timestamp() + %s * interval '1 ms' WHERE id = %s",
                [ms, made.pk],
            )


# --- The agent's repeat ------------------------------------------------------------------------------------


def test_a_granted_repeat_has_the_same_key_and_bytes_and_no_second_reservation() -> None:
    claimed = in_question()
    made = grant(claimed.operation)
    go = send(resumed(claimed), attempt_id="a2")
    operation = fresh(claimed.operation)
    assert (go.number, go.replayed) == (2, False)
    assert (go.idempotency_key, go.payload) == (operation.key, bytes(operation.payload))
    assert (operation.state, operation.attempts_count) == ("sent_unknown", 2)
    assert fresh(claimed.run).budget_reserved_minor == 500
    made = fresh(made)
    assert (made.state, made.end_reason) == ("consumed", "attempt a2")
    attempt = Attempt.objects.get(attempt_id="a2")
    assert attempt.grant_id == made.pk
    assert operation.last_quiet_at == attempt.quiet_after_at
    assert AuditLeaf.objects.filter(action="operation.sent_again").count() == 1


def test_the_same_repeat_again_is_go_with_less_time() -> None:
    claimed = in_question()
    grant(claimed.operation)
    second = resumed(claimed)
    send(second, attempt_id="a2")
    again = send(second, attempt_id="a2")
    assert (again.number, again.replayed) == (2, True)
    assert Attempt.objects.count() == 2


def test_a_grant_is_good_for_one_attempt() -> None:
    claimed = in_question()
    grant(claimed.operation)
    second = resumed(claimed)
    send(second, attempt_id="a2")
    with pytest.raises(NotSendable) as refused:
        send(second, attempt_id="a3")
    assert refused.value.details["reason"] == "outcome_unknown"


def test_without_a_grant_an_unknown_outcome_is_never_sent_again() -> None:
    claimed = make_claimed(effect("c1"), effect("c2"), parallel=True)
    first, second = claimed.operations
    send(claimed, operation=first)
    send(claimed, operation=second, attempt_id="a2")
    doubt(first)
    quieten(first)
    with pytest.raises(NotSendable) as refused:
        send(claimed, operation=first, attempt_id="a3")
    assert refused.value.details == {"reason": "outcome_unknown", "state": "sent_unknown"}


def test_a_grant_does_not_hold_before_its_time() -> None:
    claimed = in_question()
    made = grant(claimed.operation)
    second = resumed(claimed)
    move_grant(made, not_before_at=60_000)
    with pytest.raises(NotSendable) as refused:
        send(second, attempt_id="a2")
    assert refused.value.details["reason"] == "grant_not_yet"
    assert 59_000 < refused.value.details["starts_in_ms"] <= 60_001
    assert fresh(made).state == "open"
    move_grant(made, not_before_at=0)
    assert send(second, attempt_id="a2").number == 2


def test_an_expired_grant_never_sends() -> None:
    claimed = in_question()
    made = grant(claimed.operation)
    second = resumed(claimed)
    move_grant(made, not_after_at=-1)
    with pytest.raises(NotSendable) as refused:
        send(second, attempt_id="a2")
    assert refused.value.details["reason"] == "grant_expired"
    assert (fresh(made).state, Attempt.objects.count()) == ("open", 1)
    move_grant(made, not_after_at=60_000)
    assert send(second, attempt_id="a2").number == 2


def test_a_grant_is_void_when_the_attempts_have_moved() -> None:
    claimed = in_question()
    made = grant(claimed.operation)
    second = resumed(claimed)
    Operation.objects.update(attempts_count=2)
    with pytest.raises(NotSendable) as refused:
        send(second, attempt_id="a3")
    assert refused.value.details["reason"] == "grant_void"
    assert fresh(made).state == "open"


@pytest.mark.parametrize("settle", ["confirm", "reject", "abandon", "return"])
def test_a_grant_is_void_as_soon_as_the_operation_leaves_sent_unknown(settle: str) -> None:
    claimed = in_question()
    made = grant(claimed.operation)
    with held(claimed.operation) as locked:
        match settle:
            case "confirm":
                confirm(locked, receipt=receipt(), actor=PERSON)
            case "reject":
                reject(locked, refusal=b'"no"', actor=PERSON)
            case "abandon":
                abandon(locked, actor=PERSON, known_effect="Not known.", reason="given up")
            case _:
                conclude_not_sent(locked, Attempt.objects.get())
                return_to_ready(locked, actor=PERSON)
    made = fresh(made)
    assert (made.state, made.ended_at is not None) == ("void", True)


def test_a_later_grant_voids_the_earlier() -> None:
    claimed = in_question()
    first = grant(claimed.operation)
    second = grant(claimed.operation, executor=Executor.CONSOLE)
    assert (fresh(first).state, fresh(second).state) == ("void", "open")
    assert fresh(claimed.run).state == "paused"


@pytest.mark.parametrize("outcome", [AttemptOutcome.UNKNOWN, AttemptOutcome.UNREPORTED])
def test_no_repeat_starts_while_an_earlier_attempt_can_still_reach_the_provider(
    outcome: AttemptOutcome,
) -> None:
    """Whatever the grant says: quiet time is the journal's own rule."""
    claimed = make_claimed()
    send(claimed)
    doubt(claimed.operation, outcome=outcome)
    grant(claimed.operation)
    second = resumed(claimed)
    with pytest.raises(NotSendable) as refused:
        send(second, attempt_id="a2")
    assert refused.value.details["reason"] == "grant_not_yet"
    assert 0 < refused.value.details["starts_in_ms"] <= 10_001
    quieten(claimed.operation)
    assert send(second, attempt_id="a2").number == 2


def test_an_attempt_that_ended_for_certain_is_not_waited_for() -> None:
    """After a refusal of the second attempt only the first one's quiet time counts."""
    claimed = in_question()
    grant(claimed.operation)
    second = resumed(claimed)
    send(second, attempt_id="a2")
    doubt(claimed.operation, outcome=AttemptOutcome.REJECTED)
    grant(claimed.operation)
    assert send(resumed(claimed), attempt_id="a3").number == 3


def test_no_repeat_is_granted_for_what_nobody_asks_about() -> None:
    """The usual reply confirms what isn't in doubt, and would leave the grant open."""
    claimed = make_claimed()
    send(claimed)
    with pytest.raises(MoveRefused):
        grant(claimed.operation)
    assert not Grant.objects.exists()
    assert reply(claimed) == 1


@pytest.mark.parametrize("state", ["ready", "confirmed"])
def test_no_repeat_is_granted_for_an_operation_that_is_not_sent_unknown(state: str) -> None:
    claimed = make_claimed()
    if state == "confirmed":
        send(claimed)
        reply(claimed)
    with pytest.raises(MoveRefused) as refused:
        grant(claimed.operation)
    assert refused.value.details["state"] == state


def test_a_repeat_waits_for_an_approval_that_holds() -> None:
    claimed = in_question()
    made = grant(claimed.operation)
    second = resumed(claimed)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runs_run SET approval_until_at = clock_timestamp()")
    with pytest.raises(NotSendable) as refused:
        send(second, attempt_id="a2")
    assert refused.value.details["reason"] == "approval"
    assert fresh(made).state == "open"


def test_a_refused_repeat_changes_nothing_in_the_operation() -> None:
    claimed = in_question()
    second = make_grant_and_claim(claimed)
    send(second, attempt_id="a2")
    doubt(claimed.operation, outcome=AttemptOutcome.NOT_SENT)
    operation = fresh(claimed.operation)
    assert (operation.state, operation.reservation) == ("sent_unknown", "reserved")
    assert fresh(claimed.run).paused_reasons == ["outcome"]


def make_grant_and_claim(claimed: Claimed) -> Claimed:
    grant(claimed.operation)
    return resumed(claimed)


def test_what_somebody_else_sent_is_pinned_by_our_first_own_send() -> None:
    make_account(endpoint="http://127.0.0.1/orders", region="eu", adapter_version="4")
    claimed = make_claimed()
    operation = claimed.operation
    with held(operation) as locked:
        evidence = record_evidence(
            locked, kind=EvidenceKind.STRAY_REPORT, claim=Claim.RECEIPT, summary="Made", actor=PERSON
        )
        mark_sent_by_unknown(locked, actor=PERSON, evidence=evidence)
        open_doubt(locked)
    assert fresh(operation).sent_by == ""
    grant(operation)
    send(resumed(claimed))
    operation = fresh(operation)
    assert (operation.sent_by, operation.sent_endpoint, operation.sent_region) == (
        "agent",
        "http://127.0.0.1/orders",
        "eu",
    )
    assert operation.sent_adapter_version == "4"


# --- The console's repeat ----------------------------------------------------------------------------------


def console(made: Grant, attempt_id: str = "console-1") -> object:
    return begin_repeat_by_console(grant_id=made.pk, attempt_id=attempt_id)


def test_the_console_repeats_without_a_lease_and_leaves_the_run_paused() -> None:
    claimed = in_question()
    made = grant(claimed.operation, executor=Executor.CONSOLE)
    go = begin_repeat_by_console(grant_id=made.pk, attempt_id="console-1")
    assert (go.number, go.idempotency_key) == (2, claimed.operation.key)
    attempt = Attempt.objects.get(attempt_id="console-1")
    assert (attempt.executor, attempt.lease_token, attempt.lease_number) == ("console", "", None)
    assert fresh(claimed.run).state == "paused"
    leaf = AuditLeaf.objects.get(action="operation.sent_again")
    assert (leaf.actor_kind, leaf.actor) == ("system", "console-sender")


def test_a_grant_to_the_console_is_not_the_agents() -> None:
    claimed = make_claimed(effect("c1"), effect("c2"), parallel=True)
    first, second = claimed.operations
    send(claimed, operation=first)
    send(claimed, operation=second, attempt_id="a2")
    doubt(first)
    quieten(first)
    made = grant(first, executor=Executor.CONSOLE)
    with pytest.raises(NotSendable):
        send(claimed, operation=first, attempt_id="a3")
    assert fresh(made).state == "open"


def test_a_grant_to_the_agent_is_not_the_consoles() -> None:
    made = grant(in_question().operation)
    with pytest.raises(NotSendable) as refused:
        console(made)
    assert refused.value.details["reason"] == "outcome_unknown"


def test_a_grant_that_is_not_there_sends_nothing() -> None:
    with pytest.raises(NotSendable) as refused:
        begin_repeat_by_console(grant_id="grant_none", attempt_id="console-1")
    assert refused.value.details["reason"] == "no_grant"


def test_the_console_repeats_nothing_for_a_run_that_was_given_up() -> None:
    claimed = in_question()
    made = grant(claimed.operation, executor=Executor.CONSOLE)
    abandon_run(team=TEAM, run_id=claimed.run.pk, actor=PERSON, reason="customer cancelled")
    with pytest.raises(RunEnded):
        console(made)
    assert Attempt.objects.count() == 1


def test_the_console_repeats_nothing_while_sending_is_frozen() -> None:
    claimed = in_question()
    made = grant(claimed.operation, executor=Executor.CONSOLE)
    with held(claimed.operation) as locked:
        add_pause_reason(locked.locked_run, PauseReason.FROZEN)
    with pytest.raises(RunPaused) as refused:
        console(made)
    assert refused.value.details["reasons"] == ["frozen", "outcome"]
    assert (fresh(made).state, Attempt.objects.count()) == ("open", 1)


def test_an_attempt_id_of_another_grant_is_not_this_ones() -> None:
    claimed = in_question()
    console(grant(claimed.operation, executor=Executor.CONSOLE))
    doubt(claimed.operation)
    quieten(claimed.operation)
    later = grant(claimed.operation, executor=Executor.CONSOLE)
    with pytest.raises(AttemptEnded):
        console(later)
    assert fresh(later).state == "open"


def test_an_attempt_id_of_an_agent_is_not_the_consoles() -> None:
    claimed = in_question()
    made = grant(claimed.operation, executor=Executor.CONSOLE)
    with pytest.raises(StaleToken):
        console(made, "a1")


def test_a_console_attempt_whose_window_has_passed_must_not_start() -> None:
    claimed = in_question()
    made = grant(claimed.operation, executor=Executor.CONSOLE)
    console(made)
    Attempt.objects.filter(attempt_id="console-1").update(
        minted_at=fresh(claimed.operation).created_at - timedelta(hours=1)
    )
    with pytest.raises(StartWindowPassed):
        console(made)


@pytest.mark.parametrize("attempt_id", ["", "a b", "a" * 65, "a\x00"])
def test_a_console_attempt_needs_an_id_of_the_usual_form(attempt_id: str) -> None:
    made = grant(in_question().operation, executor=Executor.CONSOLE)
    with pytest.raises(Invalid):
        console(made, attempt_id)


def test_a_grant_names_who_made_it_and_its_window_on_record() -> None:
    claimed = in_question()
    with held(claimed.operation) as locked:
        made = make_grant(
            locked,
            executor=Executor.AGENT,
            not_before_at=locked.now,
            not_after_at=locked.now + timedelta(minutes=5),
            actor=Actor(ActorKind.PERSON, "person:ines", "approver"),
            reason="key holds until noon",
            approval_digest="a" * 64,
        )
    made = fresh(made)
    assert (made.made_by, made.follows_attempt, made.approval_digest) == ("person:ines", 1, "a" * 64)
    body = bytes(AuditLeaf.objects.get(action="grant.made").body)
    assert b"key holds until noon" in body
    assert made.not_after_at.isoformat().encode() in body


def test_a_worker_that_dies_over_its_repeat_leaves_neither_a_grant_nor_a_second_request() -> None:
    claimed = in_question()
    made = grant(claimed.operation)
    send(resumed(claimed), attempt_id="a2")
    end_lease_in(claimed.run, -1)
    doubt(claimed.operation, outcome=AttemptOutcome.UNREPORTED)
    with pytest.raises(RunPaused):
        claim(claimed.run)
    assert fresh(made).state == GrantState.CONSUMED
    assert Run.objects.get(pk=claimed.run.pk).in_doubt_count == 1
