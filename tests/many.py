"""Thousands of rows like one that the domain made, by one statement a table: for what a list costs."""

from __future__ import annotations

import psycopg
from django.db import connection

from runs.models import Operation
from tests.cases import Opened


def copy_rows(table: str, source_id: object, number: int, /, **changes: str) -> None:
    """Insert `number` copies of a row; `changes` are SQL expressions over the row (`source`) and `n`."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT array_agg(attname::text ORDER BY attnum) FROM pg_attribute"
            " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
            [table],
        )
        columns = cursor.fetchone()[0]
        values = ", ".join(changes.get(name, f'source."{name}"') for name in columns)
        names = ", ".join(f'"{name}"' for name in columns)
        cursor.execute(
            f"INSERT INTO {table} ({names}) SELECT {values} FROM {table} AS source,"
            " generate_series(1, %s) AS n WHERE source.id = %s",
            [number, source_id],
        )


def more_cases(opened: Opened, number: int, *, batch: int = 1) -> None:
    """Make so many more cases like this one, each with a run, a call and an operation of its own.

    `batch` tells apart what several calls make. A case made so stands in its list after the one before it.
    """
    case, operation = opened.case, opened.operation
    tail = f"{batch} || lpad(n::text, 25, '0')"
    copy_rows("runs_run", operation.run_id, number, id=f"'run_' || {tail}", external_id=f"'m' || {tail}")
    copy_rows(
        "runs_call",
        operation.call_id,
        number,
        id=f"source.id + {batch} * 1000000 + n",
        call_id="'m' || n",
        position="source.position + n",
        run_id=f"'run_' || {tail}",
    )
    copy_rows(
        "runs_operation",
        operation.pk,
        number,
        id=f"'op_' || {tail}",
        key=f"'key-' || {tail}",
        call_id=f"source.call_id + {batch} * 1000000 + n",
        run_id=f"'run_' || {tail}",
    )
    copy_rows(
        "reconciliation_case",
        case.pk,
        number,
        id=f"'case_' || {tail}",
        operation_id=f"'op_' || {tail}",
        run_id=f"'run_' || {tail}",
        worsens_at="source.worsens_at + n * interval '1 s'",
        opened_at="source.opened_at - n * interval '1 s'",
    )


def more_leaves(operation: Operation, number: int) -> None:
    """Make so many entries of a worker's in the audit log, about other operations of the same team."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO runs_auditleaf"
            " (body, at, action, team_slug, run_ref, operation_ref, actor_kind, actor)"
            " SELECT body, at, 'operation.sent', %s, %s, 'op_x' || n, 'worker', 'w'"
            " FROM (SELECT body, at FROM runs_auditleaf LIMIT 1) AS one, generate_series(1, %s) AS n",
            [operation.team_id, operation.run_id, number],
        )


def analyze(owner_url: str) -> None:
    """Let the planner know how much there is now; only the owner may, and it must be committed."""
    with psycopg.connect(owner_url, autocommit=True) as connected:
        connected.execute("ANALYZE")
