"""The journal's two hot writes, each one statement and so one commit (DESIGN §10, law 7).

Both follow the same order. `run` locks the run's row and only then reads the time; `go` locks what else is
decided on and makes the whole decision on locked rows alone; every write after it hangs on `go` by a primary
key and can't come out at zero. So either all of it happens or nothing does, and a wait for the lock can't let
an ended lease through. Immutable columns (a run's team, an operation's run)
may be read from the statement's snapshot.

No row back means: not on this path. `sending` and `reports` then take the slow path under the same lock,
which either finds the reason or goes on.
"""

from __future__ import annotations

from runs.audit import BODY
from runs.journal.prepared import Statement

# What a report is matched against; all of it immutable, so no lock is needed.
READ_OPERATION = Statement.of("""
SELECT id, team_id, provider_id, key, payload, amount_currency, amount_minor, tool FROM runs_operation
WHERE id = %(operation)s AND (%(team)s::text IS NULL OR team_id = %(team)s)
""")

# Text that goes into a leaf here is free of quotes and backslashes by its own rules (ids, worker names,
# digests), so it can be put between quotes as it is; a test reads each leaf back as canonical JSON.
_SENT_EVENT = """convert_to(
    '{"action":"operation.sent","actor":{"id":"' || go.lease_holder || '","kind":"worker"}'
    || ',"after":{"attempt":' || go.number || ',"attempt_id":"' || %(attempt_id)s
    || '","lease":' || go.lease_number || ',"state":"sent_unknown"},"before":{"state":"ready"}'
    || ',"operation":"' || go.operation_id || '","run":"' || go.run_id || '","team":"' || go.team_id || '"}',
    'UTF8')"""

BEGIN_SEND = Statement.of(f"""
WITH run AS MATERIALIZED (
    -- The lock that everything about the run is decided under; the time is read once it is held.
    SELECT locked.*, clock_timestamp() AS at FROM (
        SELECT r.id, r.team_id, r.state, r.lease_number, r.lease_token, r.lease_holder, r.lease_expires_at,
               r.in_doubt_count, r.turn_index, r.turn_parallel, r.turn_settled_through, r.approval_until_at,
               r.budget_limit_minor,
               r.budget_reserved_minor + r.budget_spent_minor + r.budget_held_minor AS budget_taken_minor
        FROM runs_operation mine JOIN runs_run r ON r.id = mine.run_id
        WHERE mine.id = %(operation)s AND (%(team)s::text IS NULL OR mine.team_id = %(team)s)
        FOR UPDATE OF r
    ) locked
), go AS MATERIALIZED (
    SELECT run.id AS run_id, run.team_id, run.lease_number, run.lease_token, run.lease_holder,
           op.id AS operation_id, op.attempts_count + 1 AS number, op.key, op.payload, op.tool,
           op.amount_currency, op.amount_minor,
           -- One reservation per operation, at its first send (law 12).
           CASE WHEN op.reservation = 'none' THEN coalesce(op.amount_minor, 0) ELSE 0 END AS reserve_minor,
           p.slug, p.start_within_ms, p.request_within_ms, p.adapter_version, p.endpoint, p.region,
           p.credential_fingerprint, run.at,
           run.at + (p.start_within_ms + p.request_within_ms + p.in_flight_ms) * interval '1 ms' AS quiet_at
    FROM run, runs_operation op, runs_provideraccount p
    WHERE op.id = %(operation)s AND p.slug = op.provider_id
      -- The fence: this token, not ended by the time that was read after the lock.
      AND run.state = 'open' AND run.lease_token = %(token)s AND run.lease_expires_at > run.at
      AND op.state = 'ready'
      AND p.sending = 'open'
      -- An unknown outcome blocks what isn't sent yet.
      AND run.in_doubt_count = 0
      AND op.turn_index = run.turn_index
      -- In order: every call before it is settled.
      AND (run.turn_parallel = 'parallel' OR op.position <= run.turn_settled_through)
      AND (run.approval_until_at IS NULL OR run.approval_until_at > run.at)
      AND (run.budget_limit_minor IS NULL OR op.reservation <> 'none' OR op.amount_minor IS NULL
           OR run.budget_taken_minor + op.amount_minor <= run.budget_limit_minor)
    -- If another transaction has just changed the row, all of this is asked again of what it left behind.
    FOR UPDATE OF op
), attempt AS (
    INSERT INTO runs_attempt (operation_id, attempt_id, number, executor, lease_number, lease_token, worker,
                              minted_at, start_within_ms, request_within_ms, quiet_after_at, outcome,
                              report_digest)
    SELECT operation_id, %(attempt_id)s, number, 'agent', lease_number, lease_token, lease_holder,
           at, start_within_ms, request_within_ms, quiet_at, 'open', ''
    FROM go
), operation AS (
    UPDATE runs_operation o
    SET state = 'sent_unknown', attempts_count = go.number,
        first_sent_at = coalesce(o.first_sent_at, go.at),
        last_quiet_at = greatest(o.last_quiet_at, go.quiet_at),
        reservation = CASE WHEN o.reservation = 'none' AND o.amount_minor IS NOT NULL
                           THEN 'reserved' ELSE o.reservation END,
        reserved_minor = o.reserved_minor + go.reserve_minor,
        -- The first send pins who sends and through what (law 5).
        sent_by = CASE WHEN o.sent_by = '' THEN 'agent' ELSE o.sent_by END,
        sent_adapter_version = CASE WHEN o.sent_by = '' THEN go.adapter_version
                                    ELSE o.sent_adapter_version END,
        sent_endpoint = CASE WHEN o.sent_by = '' THEN go.endpoint ELSE o.sent_endpoint END,
        sent_region = CASE WHEN o.sent_by = '' THEN go.region ELSE o.sent_region END,
        sent_credential_fingerprint = CASE WHEN o.sent_by = '' THEN go.credential_fingerprint
                                           ELSE o.sent_credential_fingerprint END
    FROM go WHERE o.id = go.operation_id
), budget AS (
    UPDATE runs_run r SET budget_reserved_minor = r.budget_reserved_minor + go.reserve_minor
    FROM go WHERE r.id = go.run_id AND go.reserve_minor > 0
), leaf AS (
    INSERT INTO runs_auditleaf (body, at, action, team_slug, run_ref, operation_ref, actor_kind, actor)
    SELECT {BODY.format(at="go.at", event=_SENT_EVENT)},
           go.at, 'operation.sent', go.team_id, go.run_id, go.operation_id, 'worker', go.lease_holder
    FROM go
)
SELECT key, payload, slug, number, start_within_ms, request_within_ms, team_id, amount_currency, amount_minor,
       tool
FROM go
""")

_CONFIRMED_EVENT = """convert_to(
    '{"action":"operation.confirmed","actor":{"id":"' || go.lease_holder || '","kind":"worker"}'
    || ',"after":{"attempt":' || go.number || ',"matched_by":"' || %(matched_by)s
    || '","receipt":"' || %(body_digest)s || '","receipt_id":"' || %(receipt_id)s
    || '","state":"confirmed"},"before":{"state":"sent_unknown"}'
    || ',"operation":"' || go.operation_id || '","run":"' || go.run_id || '","team":"' || go.team_id || '"}',
    'UTF8')"""

CONFIRM_BY_REPLY = Statement.of(f"""
WITH run AS MATERIALIZED (
    SELECT locked.*, clock_timestamp() AS at FROM (
        SELECT r.id, r.team_id, r.state, r.lease_token, r.lease_holder, r.lease_expires_at, r.in_doubt_count
        FROM runs_operation mine JOIN runs_run r ON r.id = mine.run_id
        WHERE mine.id = %(operation)s AND (%(team)s::text IS NULL OR mine.team_id = %(team)s)
        FOR UPDATE OF r
    ) locked
), go AS MATERIALIZED (
    SELECT run.id AS run_id, run.team_id, run.lease_holder, op.id AS operation_id, op.provider_id,
           op.position, att.id AS attempt_pk, att.number, op.reserved_minor, run.at,
           coalesce(%(amount_minor)s::bigint, op.amount_minor, 0) AS spent_minor,
           op.amount_currency AS currency, op.amount_minor IS NOT NULL AS has_amount
    FROM run, runs_operation op, runs_attempt att
    WHERE op.id = %(operation)s AND att.operation_id = %(operation)s AND att.attempt_id = %(attempt_id)s
      AND run.state = 'open' AND run.lease_token = %(token)s AND run.lease_expires_at > run.at
      AND op.state = 'sent_unknown'
      -- In a doubt, its own or a sibling's, this reply may leave the run nothing to do: the slow path then
      -- pauses it.
      AND run.in_doubt_count = 0
      -- Its own sender, with the token that it was minted under, and nothing reported yet.
      AND att.outcome = 'open' AND att.lease_token = %(token)s AND att.number = op.attempts_count
      -- The budget can't hold another currency: the slow path books what was reserved.
      AND (%(amount_currency)s = '' OR op.amount_minor IS NULL OR op.amount_currency = %(amount_currency)s)
    FOR UPDATE OF op, att
), attempt AS (
    UPDATE runs_attempt a SET outcome = 'receipt', ended_at = go.at, report_digest = %(report_digest)s
    FROM go WHERE a.id = go.attempt_pk
), receipt AS (
    -- A reference that confirmed another operation breaks the unique constraint, and all of this with it.
    INSERT INTO runs_receipt (id, operation_id, provider_id, reference, body, body_digest, matched_by,
                              amount_currency, amount_minor, attempt_id, recorded_at)
    SELECT %(receipt_id)s, operation_id, provider_id, %(reference)s, %(body)s, %(body_digest)s,
           %(matched_by)s, CASE WHEN has_amount THEN currency ELSE '' END,
           CASE WHEN has_amount THEN spent_minor END, attempt_pk, at
    FROM go
), operation AS (
    UPDATE runs_operation o
    SET state = 'confirmed', settled_at = go.at,
        reservation = CASE WHEN o.reservation = 'reserved' THEN 'settled' ELSE o.reservation END,
        settled_minor = CASE WHEN o.reservation = 'reserved' THEN go.spent_minor ELSE 0 END,
        reserved_minor = 0
    FROM go WHERE o.id = go.operation_id
), budget AS (
    UPDATE runs_run r
    SET turn_settled = r.turn_settled + 1,
        turn_settled_through = r.turn_settled_through
                               + CASE WHEN go.position = r.turn_settled_through THEN 1 ELSE 0 END,
        budget_reserved_minor = r.budget_reserved_minor - go.reserved_minor,
        budget_spent_minor = r.budget_spent_minor + CASE WHEN go.has_amount THEN go.spent_minor ELSE 0 END
    FROM go WHERE r.id = go.run_id
), leaf AS (
    INSERT INTO runs_auditleaf (body, at, action, team_slug, run_ref, operation_ref, actor_kind, actor)
    SELECT {BODY.format(at="go.at", event=_CONFIRMED_EVENT)},
           go.at, 'operation.confirmed', go.team_id, go.run_id, go.operation_id, 'worker', go.lease_holder
    FROM go
)
SELECT number FROM go
""")
