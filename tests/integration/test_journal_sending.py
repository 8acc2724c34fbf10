"""begin_send: what gets "go", what is refused with which reason, and what each refusal leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from runs.journal import sending
from runs.journal.ending import abandon_run
from runs.journal.evidence import record_evidence
from runs.journal.replies import confirm_by_reply
from runs.journal.sending import AttemptEnded, NotSendable, StartWindowPassed, begin_send
from runs.journal.settling import abandon, confirm, mark_sent_by_unknown, reject, return_to_ready
from runs.journal.turns import save_result
from runs.leases import RunEnded, RunPaused, StaleToken
from runs.locking import database_now
from runs.models import Approval, Attempt, AuditLeaf, Operation, Run
from runs.refusals import Invalid, NotFound
from runs.states import AttemptOutcome, Claim, EvidenceKind
from tests.factories import (
    PERSON,
    TEAM,
    Claimed,
    claim,
    doubt,
    effect,
    end_lease_in,
    fresh,
    held,
    make_account,
    make_claimed,
    make_team,
    read,
    receipt,
    reply,
    send,
)

pytestmark = pytest.mark.django_db(transaction=True)


def stray_success(operation: Operation) -> None:
    """Somebody sent it without asking, and the provider's receipt confirmed it."""
    with held(operation) as locked:
        evidence = record_evidence(
            locked, kind=EvidenceKind.WEBHOOK, claim=Claim.RECEIPT, summary="Order made", actor=PERSON
        )
        mark_sent_by_unknown(locked, actor=PERSON, evidence=evidence)
        confirm(locked, receipt=receipt("ord_stray"), actor=PERSON)


# --- Order and siblings --------------------------------------------------------------------------------


def test_a_call_settled_out_of_turn_does_not_let_its_sibling_overtake() -> None:
    claimed = make_claimed(effect("c1"), effect("c2"), effect("c3"))
    first, second, third = claimed.operations
    stray_success(third)

    with pytest.raises(NotSendable) as refused:
        send(claimed, operation=second)
    assert refused.value.details == {"reason": "blocked_by", "blocked_by": first.pk}
    assert fresh(second).state == "ready"


def test_a_call_settled_out_of_turn_does_not_let_an_effect_overtake_a_read() -> None:
    claimed = make_claimed(read("r1"), effect("c2"), effect("c3"))
    second, third = claimed.operations
    stray_success(third)

    with pytest.raises(NotSendable) as refused:
        send(claimed, operation=second)
    assert refused.value.details == {"reason": "blocked_by", "blocked_by": "r1"}


# --- The lease or the approval ends between our look and our write ----------------------------------------


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> Callable[[datetime], None]:
    """Send the next ask down the slow path, and let its own write wait until this instant has come."""

    def slow_until(until_at: datetime) -> None:
        really, asks = sending._try_statement, iter([False, True])

        def statement(asked: dict[str, Any]) -> sending.Go | None:
            if not next(asks):
                return None
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_sleep_until(%s)", [until_at])
            return really(asked)

        monkeypatch.setattr(sending, "_try_statement", statement)

    return slow_until


def test_a_lease_that_ends_between_the_checks_and_the_write_is_stale_and_not_a_crash(
    slowly: Callable[[datetime], None],
) -> None:
    claimed = make_claimed()
    end_lease_in(claimed.run, 0.3)
    until_at = fresh(claimed.run).lease_expires_at
    assert until_at is not None
    slowly(until_at)
    with pytest.raises(StaleToken):
        send(claimed)
    assert not Attempt.objects.exists()


def test_an_approval_that_ends_between_the_checks_and_the_write_pauses_the_run(
    slowly: Callable[[datetime], None],
) -> None:
    claimed = make_claimed()
    until_at = database_now() + timedelta(seconds=0.3)
    Run.objects.update(approval_until_at=until_at)
    slowly(until_at)
    with pytest.raises(RunPaused) as refused:
        send(claimed)
    assert refused.value.details["reasons"] == ["approval"]
    assert fresh(claimed.run).state == "paused"
    assert not Attempt.objects.exists()


def test_a_count_that_stopped_at_a_gap_is_taken_anew_by_the_next_send() -> None:
    claimed = make_claimed(effect("c1"), effect("c2"), effect("c3"))
    first, second, third = claimed.operations
    stray_success(second)
    send(claimed, operation=first)
    assert reply(claimed, operation=first) == 1
    # The first is counted; the second was settled before its turn came, and isn't.
    assert (fresh(claimed.run).turn_settled, fresh(claimed.run).turn_settled_through) == (2, 1)
    assert send(claimed, operation=third).number == 1
    assert fresh(claimed.run).turn_settled_through == 2


def test_ordered_calls_are_sent_one_after_the_other() -> None:
    claimed = make_claimed(effect("c1"), read("r2"), effect("c3"))
    first, third = claimed.operations
    with pytest.raises(NotSendable) as refused:
        send(claimed, operation=third)
    assert refused.value.details == {"reason": "blocked_by", "blocked_by": first.pk}
    send(claimed, operation=first)
    with pytest.raises(NotSendable):
        send(claimed, operation=third)
    assert reply(claimed) == 1
    with pytest.raises(NotSendable) as refused:
        send(claimed, operation=third)
    assert refused.value.details == {"reason": "blocked_by", "blocked_by": "r2"}
    save_result(team=TEAM, run_id=claimed.run.pk, token=claimed.token, index=1, call_id="r2", result=4)
    assert send(claimed, operation=third).number == 1


@pytest.mark.parametrize("settle", ["rejected", "abandoned"])
def test_a_settled_call_of_any_kind_lets_the_next_one_start(settle: str) -> None:
    claimed = make_claimed(effect("c1"), effect("c2"))
    first, second = claimed.operations
    send(claimed, operation=first)
    with held(first) as locked:
        if settle == "rejected":
            reject(locked, refusal=b'"no"', actor=PERSON)
        else:
            abandon(locked, actor=PERSON, known_effect="Not known.", reason="given up")
    assert send(claimed, operation=second).number == 1


def test_parallel_calls_are_sent_in_any_order() -> None:
    claimed = make_claimed(effect("c1"), effect("c2"), parallel=True)
    for operation in reversed(claimed.operations):
        assert send(claimed, operation=operation).number == 1


def test_an_unknown_outcome_blocks_its_unsent_siblings() -> None:
    claimed = make_claimed(effect("c1"), effect("c2"), effect("c3"), parallel=True)
    first, second, third = claimed.operations
    send(claimed, operation=first)
    send(claimed, operation=second, attempt_id="a2")
    doubt(first)
    with pytest.raises(NotSendable) as refused:
        send(claimed, operation=third)
    assert refused.value.details == {"reason": "blocked_by", "blocked_by": first.pk}
    assert fresh(third).state == "ready"


# --- The same ask again ----------------------------------------------------------------------------------


def move_minted(operation: Operation, *, ago_ms: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE runs_attempt SET minted_at = clock_timestamp() - %s * interval '1 ms'"
            " WHERE operation_id = %s",
            [ago_ms, operation.pk],
        )


def test_the_same_attempt_again_is_go_with_less_time_and_no_second_attempt() -> None:
    claimed = make_claimed(effect(minor=500), budget_minor=10_000)
    first = send(claimed)
    assert (first.start_within_ms, first.request_within_ms, first.replayed) == (5_000, 5_000, False)
    move_minted(claimed.operation, ago_ms=2_000)
    again = send(claimed)
    assert (again.number, again.replayed) == (1, True)
    assert 2_000 < again.start_within_ms <= 3_000
    assert (again.idempotency_key, again.payload) == (first.idempotency_key, first.payload)
    assert Attempt.objects.count() == 1
    assert fresh(claimed.run).budget_reserved_minor == 500
    assert AuditLeaf.objects.filter(action="operation.sent").count() == 1


def test_an_attempt_may_start_until_its_window_ends() -> None:
    claimed = make_claimed()
    make_account(start_within_ms=60_000)
    send(claimed)
    move_minted(claimed.operation, ago_ms=50_000)
    assert 0 < send(claimed).start_within_ms <= 10_000


@pytest.mark.parametrize("ago_ms", [60_000, 60_001, 600_000])
def test_an_attempt_whose_window_has_passed_must_not_start(ago_ms: int) -> None:
    claimed = make_claimed()
    make_account(start_within_ms=60_000)
    send(claimed)
    move_minted(claimed.operation, ago_ms=ago_ms)
    with pytest.raises(StartWindowPassed) as refused:
        send(claimed)
    assert refused.value.details["start_within_ms"] == 60_000
    assert refused.value.details["passed_ms"] >= ago_ms
    # Nothing moved: its sender may still report it.
    assert Attempt.objects.get().outcome == "open"


def test_an_attempt_of_a_settled_operation_has_ended() -> None:
    claimed = make_claimed()
    send(claimed)
    reply(claimed)
    with pytest.raises(AttemptEnded) as refused:
        send(claimed)
    assert refused.value.details == {"outcome": "receipt", "state": "confirmed"}


def test_an_attempt_that_was_reported_has_ended_also_while_its_operation_is_open() -> None:
    claimed = make_claimed(effect("c1"), effect("c2"), parallel=True)
    first, second = claimed.operations
    send(claimed, operation=first)
    send(claimed, operation=second, attempt_id="a2")
    doubt(first)
    with pytest.raises(AttemptEnded) as refused:
        send(claimed, operation=first)
    assert refused.value.details == {"outcome": "unknown", "state": "sent_unknown"}


def test_an_attempt_of_an_earlier_token_is_stale_under_the_next_one() -> None:
    claimed = make_claimed(effect("c1"), effect("c2"), parallel=True)
    first, second = claimed.operations
    send(claimed, operation=first)
    reply(claimed, operation=first)
    # The same word as an attempt id on another operation is another attempt.
    assert send(claimed, operation=second).number == 1
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runs_run SET lease_token = '2-next', lease_number = 2")
    with pytest.raises(StaleToken):
        send(Claimed(claimed.run, "2-next", claimed.operations), operation=second)


def test_another_attempt_while_the_first_is_open_is_not_sendable() -> None:
    claimed = make_claimed()
    send(claimed)
    with pytest.raises(NotSendable) as refused:
        send(claimed, attempt_id="a2")
    assert refused.value.details == {"reason": "outcome_unknown", "state": "sent_unknown"}
    assert Attempt.objects.count() == 1


@pytest.mark.parametrize("settled", ["confirmed", "rejected", "abandoned"])
def test_a_settled_operation_is_not_sendable(settled: str) -> None:
    claimed = make_claimed()
    send(claimed)
    with held(claimed.operation) as locked:
        match settled:
            case "confirmed":
                confirm(locked, receipt=receipt(), actor=PERSON)
            case "rejected":
                reject(locked, refusal=b'"no"', actor=PERSON)
            case _:
                abandon(locked, actor=PERSON, known_effect="Not known.", reason="given up")
    with pytest.raises(NotSendable) as refused:
        send(claimed, attempt_id="a2")
    assert refused.value.details == {"reason": "settled", "state": settled}


def test_an_operation_that_was_proved_not_sent_is_sent_with_the_same_key_and_its_own_reservation() -> None:
    claimed = make_claimed(effect(minor=500), budget_minor=500)
    first = send(claimed)
    doubt(claimed.operation, outcome=AttemptOutcome.NOT_SENT)
    with held(claimed.operation) as locked:
        return_to_ready(locked, actor=PERSON)
    again = send(Claimed(claimed.run, claim(claimed.run), claimed.operations), attempt_id="a2")
    assert (again.number, again.idempotency_key, again.payload) == (2, first.idempotency_key, first.payload)
    assert fresh(claimed.run).budget_reserved_minor == 500


# --- Refusals that pause -----------------------------------------------------------------------------------


def test_an_operation_that_would_exceed_the_budget_pauses_the_run_and_keeps_it_paused() -> None:
    claimed = make_claimed(effect(minor=501), budget_minor=500)
    with pytest.raises(RunPaused) as refused:
        send(claimed)
    assert refused.value.details == {"run": claimed.run.pk, "reasons": ["budget"]}
    run = fresh(claimed.run)
    assert (run.state, run.paused_reasons, run.lease_token) == ("paused", ["budget"], None)
    assert (run.budget_reserved_minor, fresh(claimed.operation).state) == (0, "ready")
    with pytest.raises(RunPaused):
        send(claimed)
    with pytest.raises(RunPaused):
        claim(run)
    assert not Attempt.objects.exists()


def test_an_operation_that_uses_up_the_budget_exactly_is_sent() -> None:
    claimed = make_claimed(effect(minor=500), budget_minor=500)
    assert send(claimed).number == 1


@pytest.mark.parametrize("part", ["reserved", "spent", "held"])
def test_what_is_reserved_spent_and_held_all_count_against_the_limit(part: str) -> None:
    claimed = make_claimed(effect(minor=500), budget_minor=1_000)
    Run.objects.update(**{f"budget_{part}_minor": 501})
    with pytest.raises(RunPaused):
        send(claimed)


def test_an_operation_without_an_amount_is_sent_over_any_budget() -> None:
    claimed = make_claimed(effect(), budget_minor=0)
    assert send(claimed).number == 1
    assert (fresh(claimed.operation).reservation, fresh(claimed.run).budget_reserved_minor) == ("none", 0)


def test_a_run_without_a_limit_still_keeps_its_books() -> None:
    claimed = make_claimed(effect(minor=500))
    send(claimed)
    assert fresh(claimed.run).budget_reserved_minor == 500


def make_approval(*, ends_in: timedelta, withdrawn_in: timedelta | None = None) -> Approval:
    make_team()
    now = database_now()
    return Approval.objects.create(
        id=f"appr_{Approval.objects.count()}",
        team_id=TEAM,
        subject="Restock",
        made_by="person:ines",
        expires_at=now + ends_in,
        withdrawn_at=None if withdrawn_in is None else now + withdrawn_in,
    )


def test_an_approval_that_has_ended_pauses_the_run_and_keeps_it_paused() -> None:
    approval = make_approval(ends_in=timedelta(seconds=-1))
    claimed = make_claimed(approval_id=approval.pk)
    with pytest.raises(RunPaused) as refused:
        send(claimed)
    assert refused.value.details["reasons"] == ["approval"]
    assert fresh(claimed.run).state == "paused"
    assert fresh(claimed.operation).state == "ready"


def test_an_approval_that_holds_lets_the_operation_be_sent() -> None:
    approval = make_approval(ends_in=timedelta(hours=1))
    assert send(make_claimed(approval_id=approval.pk)).number == 1


@pytest.mark.parametrize(
    ("ends_in", "withdrawn_in"),
    [
        (timedelta(hours=1), timedelta(seconds=-1)),
        # Withdrawn after it had expired: it ended when it expired.
        (timedelta(seconds=-1), timedelta(hours=1)),
    ],
)
def test_an_approval_ends_when_it_expires_or_is_withdrawn_whichever_comes_first(
    ends_in: timedelta, withdrawn_in: timedelta
) -> None:
    approval = make_approval(ends_in=ends_in, withdrawn_in=withdrawn_in)
    with pytest.raises(RunPaused):
        send(make_claimed(approval_id=approval.pk))


# --- Who may ask -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation_id", ["op_unknown", "", "op_\x00", "x" * 300])
def test_an_operation_that_is_not_there_is_not_found(operation_id: str) -> None:
    with pytest.raises(NotFound):
        begin_send(team=TEAM, operation_id=operation_id, token="1-x", attempt_id="a1")


def test_an_operation_of_another_team_is_not_found() -> None:
    claimed = make_claimed()
    make_team("other")
    with pytest.raises(NotFound):
        begin_send(team="other", operation_id=claimed.operation.pk, token=claimed.token, attempt_id="a1")
    assert confirm_by_other_team(claimed) is None
    assert fresh(claimed.operation).state == "ready"


def confirm_by_other_team(claimed: Claimed) -> int | None:
    return confirm_by_reply(
        team="other",
        operation_id=claimed.operation.pk,
        token=claimed.token,
        attempt_id="a1",
        receipt=receipt(),
        report_digest="d" * 64,
    )


@pytest.mark.parametrize("token", ["", "1-", "2-x", "1-x\x00", "1-é"])
def test_a_token_that_is_not_the_current_one_gets_no_go(token: str) -> None:
    claimed = make_claimed()
    with pytest.raises(StaleToken):
        send(Claimed(claimed.run, token, claimed.operations))
    assert not Attempt.objects.exists()


@pytest.mark.parametrize("attempt_id", ["", "a b", "a" * 65, 'a"', "a\\", "a\x00", "é"])
def test_an_attempt_id_that_could_break_a_leaf_is_refused(attempt_id: str) -> None:
    claimed = make_claimed()
    with pytest.raises(Invalid) as refused:
        send(claimed, attempt_id=attempt_id)
    assert refused.value.details["where"] == "attempt_id"


def test_a_lease_that_has_ended_gets_no_go() -> None:
    claimed = make_claimed()
    end_lease_in(claimed.run, -0.001)
    with pytest.raises(StaleToken):
        send(claimed)


def test_a_run_that_has_ended_gets_no_go() -> None:
    claimed = make_claimed()
    abandon_run(team=TEAM, run_id=claimed.run.pk, actor=PERSON, reason="over")
    with pytest.raises(RunEnded) as refused:
        send(claimed)
    assert refused.value.details["state"] == "abandoned"


def test_go_is_not_said_inside_a_transaction_that_could_still_be_undone() -> None:
    claimed = make_claimed()
    with pytest.raises(RuntimeError), transaction.atomic():
        send(claimed)
    assert fresh(claimed.operation).state == "ready"


# --- What a send pins --------------------------------------------------------------------------------------


def test_the_first_send_pins_who_sends_and_through_what() -> None:
    make_account(
        adapter_version="3",
        endpoint="http://127.0.0.1/orders",
        region="eu",
        credential_fingerprint="f" * 64,
        start_within_ms=1_000,
        request_within_ms=2_000,
        in_flight_ms=4_000,
    )
    claimed = make_claimed()
    send(claimed)
    operation = fresh(claimed.operation)
    assert (
        operation.sent_by,
        operation.sent_adapter_version,
        operation.sent_endpoint,
        operation.sent_region,
        operation.sent_credential_fingerprint,
    ) == ("agent", "3", "http://127.0.0.1/orders", "eu", "f" * 64)
    attempt = Attempt.objects.get()
    assert operation.first_sent_at == attempt.minted_at
    assert operation.last_quiet_at == attempt.quiet_after_at
    # Quiet time: the window to start, the longest request, and what the provider may still hold.
    assert attempt.quiet_after_at - attempt.minted_at == timedelta(seconds=7)
    assert (attempt.lease_token, attempt.lease_number, attempt.worker) == (claimed.token, 1, "worker-1")


def test_a_later_send_keeps_what_the_first_one_pinned() -> None:
    claimed = make_claimed()
    send(claimed)
    first = fresh(claimed.operation)
    doubt(claimed.operation, outcome=AttemptOutcome.NOT_SENT)
    with held(claimed.operation) as locked:
        return_to_ready(locked, actor=PERSON)
    make_account(endpoint="http://127.0.0.1/moved", adapter_version="9")
    send(Claimed(claimed.run, claim(claimed.run), claimed.operations), attempt_id="a2")
    again = fresh(claimed.operation)
    assert again.sent_endpoint == first.sent_endpoint
    assert again.first_sent_at == first.first_sent_at
    assert (again.last_quiet_at or first.created_at) > (first.last_quiet_at or first.created_at)
