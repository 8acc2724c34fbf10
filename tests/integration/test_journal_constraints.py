"""What the database itself refuses, whoever asks: stray states, half rows, and second receipts."""

from __future__ import annotations

import psycopg
import pytest

from tests.concurrency import Connect
from tests.factories import (
    claim,
    doubt,
    effect,
    grant,
    make_claimed,
    make_run,
    quieten,
    reply,
    send,
)

pytestmark = pytest.mark.django_db(transaction=True)


def furnish() -> None:
    """One row at least of everything that has a state."""
    claimed = make_claimed(effect(minor=500), budget_minor=1_000)
    send(claimed)
    doubt(claimed.operation)
    quieten(claimed.operation)
    grant(claimed.operation)
    second = make_claimed(effect("c1"), effect("c2"), parallel=True)
    send(second)
    reply(second)
    claim(make_run())


REFUSED: list[tuple[str, str]] = [
    ("UPDATE runs_run SET state = 'failed'", "run_state_whole"),
    ("UPDATE runs_run SET turn_parallel = 'maybe'", "run_turn_order_known"),
    ("UPDATE runs_run SET state = 'completed'", "run_state_whole"),
    ("UPDATE runs_run SET ended_at = now()", "run_state_whole"),
    ("UPDATE runs_run SET state = 'paused', lease_token = NULL, lease_expires_at = NULL", "run_state_whole"),
    ("UPDATE runs_run SET paused_reasons = '{outcome}'", "run_state_whole"),
    (
        (
            "UPDATE runs_run SET state = 'paused', paused_at = now(), paused_reasons = '{tired}',"
            " lease_token = NULL, lease_expires_at = NULL"
        ),
        "run_state_whole",
    ),
    (
        "UPDATE runs_run SET state = 'paused', paused_at = now(), paused_reasons = '{outcome}'",
        "run_state_whole",
    ),
    ("UPDATE runs_run SET lease_expires_at = NULL", "run_state_whole"),
    ("UPDATE runs_run SET turn_settled = turn_calls + 1", "run_counters_whole"),
    ("UPDATE runs_run SET turn_settled_through = turn_settled + 1", "run_counters_whole"),
    ("UPDATE runs_run SET turn_settled_through = -1", "whole_count_not_negative"),
    ("UPDATE runs_run SET in_doubt_count = -1", "whole_count_not_negative"),
    ("UPDATE runs_run SET budget_reserved_minor = -1", "minor_units_not_negative"),
    ("UPDATE runs_run SET budget_spent_minor = -1", "minor_units_not_negative"),
    ("UPDATE runs_run SET budget_held_minor = -1", "minor_units_not_negative"),
    ("UPDATE runs_run SET budget_limit_minor = 5, budget_currency = ''", "run_counters_whole"),
    ("UPDATE runs_turn SET parallel = 'maybe'", "turn_order_known"),
    ("UPDATE runs_turn SET index = 0", "turn_index_from_1"),
    ("UPDATE runs_call SET kind = 'guess'", "call_effect_has_no_result"),
    ("UPDATE runs_call SET result = 'x' WHERE kind = 'effect'", "call_effect_has_no_result"),
    ("UPDATE runs_operation SET state = 'failed'", "operation_state_known"),
    ("UPDATE runs_operation SET state = 'failed' WHERE in_doubt_since_at IS NULL", "operation_state_known"),
    (
        "UPDATE runs_operation SET state = 'confirmed' WHERE state = 'ready'",
        "operation_state_whole",
    ),
    ("UPDATE runs_operation SET settled_at = now() WHERE state = 'ready'", "operation_state_whole"),
    (
        "UPDATE runs_operation SET state = 'sent_unknown' WHERE state = 'ready'",
        "operation_state_whole",
    ),
    ("UPDATE runs_operation SET reservation = 'lost'", "operation_reservation_known"),
    (
        "UPDATE runs_operation SET reserved_minor = 5 WHERE reservation = 'none'",
        "operation_amount_whole",
    ),
    ("UPDATE runs_operation SET reserved_minor = -1", "minor_units_not_negative"),
    (
        "UPDATE runs_operation SET in_doubt_since_at = now() WHERE state = 'ready'",
        "operation_state_whole",
    ),
    ("UPDATE runs_operation SET amount_minor = -1", "minor_units_not_negative"),
    ("UPDATE runs_operation SET amount_currency = '', amount_minor = 5", "operation_amount_whole"),
    ("UPDATE runs_operation SET key = 'same', provider_id = 'sandbox-supplier'", "operation_key_once"),
    ("UPDATE runs_grant SET state = 'lost'", "grant_end_has_its_time"),
    ("UPDATE runs_grant SET state = 'lost', ended_at = now()", "grant_state_known"),
    ("UPDATE runs_grant SET executor = 'cron'", "grant_executor_known"),
    ("UPDATE runs_grant SET state = 'void'", "grant_end_has_its_time"),
    ("UPDATE runs_attempt SET outcome = 'failed'", "attempt_outcome_known"),
    ("UPDATE runs_attempt SET executor = 'cron'", "attempt_executor_known"),
    ("UPDATE runs_attempt SET ended_at = NULL", "attempt_whole"),
    ("UPDATE runs_attempt SET start_within_ms = -1", "whole_count_not_negative"),
    ("UPDATE runs_attempt SET request_within_ms = -1", "whole_count_not_negative"),
    (
        (
            "INSERT INTO runs_attempt (operation_id, attempt_id, number, executor, lease_token, worker,"
            " minted_at, start_within_ms, request_within_ms, quiet_after_at, outcome, report_digest)"
            " SELECT operation_id, attempt_id, 9, executor, '', '', now(), 1, 1, now(), 'open', ''"
            " FROM runs_attempt"
        ),
        "attempt_id_once",
    ),
    ("UPDATE runs_lease SET ended_by = 'boredom', ended_at = now()", "lease_end_has_its_time"),
    ("UPDATE runs_lease SET ended_by = 'expired', ended_at = NULL", "lease_end_has_its_time"),
    ("UPDATE runs_receipt SET reference = ''", "receipt_whole"),
    ("UPDATE runs_receipt SET matched_by = 'hope'", "receipt_whole"),
    (
        (
            "INSERT INTO runs_receipt (id, operation_id, provider_id, reference, body, body_digest,"
            " matched_by, amount_currency, recorded_at)"
            " SELECT 'rcpt_2', o.id, r.provider_id, r.reference, '', '', 'key', '', now()"
            " FROM runs_receipt r, runs_operation o WHERE o.state = 'sent_unknown'"
        ),
        "receipt_confirms_one_operation",
    ),
    ("UPDATE runs_flow SET abandonment_people = 3", "flow_abandonment_people_1_or_2"),
    ("UPDATE runs_flow SET automatic_repeat = 'always'", "flow_automatic_repeat_known"),
    (
        (
            "INSERT INTO runs_evidence (id, operation_id, kind, claim, finding, summary, reference, seen,"
            " body_length, body_digest, digest, actor_kind, actor, recorded_at)"
            " SELECT 'ev_x', id, 'rumour', 'receipt', '', '', '', '{}', 0, '', '', 'system', 'x', now()"
            " FROM runs_operation LIMIT 1"
        ),
        "evidence_kind_known",
    ),
    (
        (
            "INSERT INTO runs_evidence (id, operation_id, kind, claim, finding, summary, reference, seen,"
            " body_length, body_digest, digest, actor_kind, actor, recorded_at)"
            " SELECT 'ev_x', id, 'report', 'hope', '', '', '', '{}', 0, '', '', 'system', 'x', now()"
            " FROM runs_operation LIMIT 1"
        ),
        "evidence_claim_known",
    ),
]


def test_the_application_cannot_store_what_the_machines_do_not_have(
    connect: Connect, subtests: pytest.Subtests
) -> None:
    furnish()
    application = connect()
    for statement, constraint in REFUSED:
        with subtests.test(statement):
            with pytest.raises(psycopg.errors.IntegrityError) as refused:
                application.execute(statement)
            assert constraint in (refused.value.diag.constraint_name or "")


def test_the_same_login_may_store_what_the_machines_have(connect: Connect) -> None:
    """Else the refusals above would prove nothing."""
    furnish()
    for statement in (
        "UPDATE runs_run SET state = 'open'",
        "UPDATE runs_operation SET known_effect = known_effect",
        "UPDATE runs_attempt SET worker = worker",
    ):
        assert connect().execute(statement).rowcount > 0
