"""What one worker process of the benchmark does; each has its own connection and its own runs."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

# What a model chooses in one turn is a handful; a share of effects is spread over as many runs as it needs.
CALLS_PER_TURN = 5
PROVIDER = "sandbox-supplier"
PAYLOAD = {"sku": "FC-20", "quantity": 40, "amount_minor": 1200, "currency": "EUR"}


@dataclass(frozen=True)
class Prepared:
    """A share of effects, ready to be journaled: (operation, token) pairs in sending order."""

    kind: str
    share: int
    url: str = ""
    token: str = ""
    operations: list[tuple[str, str, str]] = field(default_factory=list)


def start_worker() -> None:
    """Make this process a Django process of its own."""
    import django

    django.setup()


def prepare(task: tuple[str, int, str, str]) -> Prepared:
    """Make a share's runs, turns and operations outside of the measured time."""
    kind, share, url, token = task
    if kind == "plain":
        return Prepared(kind, share)
    return Prepared(kind, share, url, token, _make_operations(share))


def run(prepared: Prepared) -> tuple[float, float]:
    """Journal the share and return when it began and ended, on the machine's monotonic clock."""
    act = {"plain": _plain, "domain": _domain, "api": _api}[prepared.kind]
    return act(prepared)


def _make_operations(share: int) -> list[tuple[str, str, str]]:
    from runs import leases
    from runs.actors import Actor, ActorKind
    from runs.journal.starting import start_run
    from runs.journal.turns import CallChosen, save_turn
    from runs.models import Operation, Team
    from runs.money import Money

    Team.objects.get_or_create(slug="bench", defaults={"name": "Bench"})
    made: list[tuple[str, str, str]] = []
    while len(made) < share:
        count = min(CALLS_PER_TURN, share - len(made))
        started = start_run(
            team="bench",
            flow="bench",
            flow_version="1",
            external_id=uuid.uuid4().hex,
            input={},
            actor=Actor(ActorKind.TOKEN, "bench"),
            budget_limit=Money("EUR", 10**9),
        ).run
        lease = leases.claim(
            team="bench",
            run_id=started.id,
            claim_id=uuid.uuid4().hex,
            worker="bench",
            flow_version="1",
            lease_seconds=3600,
        )
        calls = tuple(
            CallChosen(
                call_id=f"c{number}",
                tool="orders",
                effect=True,
                provider=PROVIDER,
                args=PAYLOAD,
                amount=Money("EUR", 1200),
            )
            for number in range(count)
        )
        save_turn(
            team="bench",
            run_id=started.id,
            token=lease.token,
            index=1,
            decision={},
            parallel=False,
            calls=calls,
        )
        rows = Operation.objects.filter(run=started).order_by("position").values_list("pk", "key")
        made += [(pk, key, lease.token) for pk, key in rows]
    return made


def _domain(prepared: Prepared) -> tuple[float, float]:
    from reconciliation import reports
    from runs.journal.sending import begin_send

    began = time.monotonic()
    for operation, key, token in prepared.operations:
        begin_send(team="bench", operation_id=operation, token=token, attempt_id="a1")
        reference = uuid.uuid4().hex
        answer = reports.report_receipt(
            sender=reports.Sender(team="bench", token=token),
            operation_id=operation,
            attempt_id="a1",
            reference=reference,
            seen=reports.SeenReply(status=201, body=_receipt(reference, key)),
        )
        assert answer["operation"]["state"] == "confirmed", answer
    return began, time.monotonic()


def _receipt(reference: str, key: str) -> bytes:
    return json.dumps(
        {"id": reference, "kind": "orders", "status": "succeeded", "idempotency_key": key, **PAYLOAD}
    ).encode()


def _api(prepared: Prepared) -> tuple[float, float]:
    import httpx

    headers = {"Authorization": f"Bearer {prepared.token}"}
    with httpx.Client(base_url=f"{prepared.url}/api/v1", headers=headers, timeout=30) as client:
        began = time.monotonic()
        for operation, key, token in prepared.operations:
            go = client.post(f"/operations/{operation}/send", json={"token": token, "attempt_id": "a1"})
            go.raise_for_status()
            reference = uuid.uuid4().hex
            report: dict[str, Any] = {
                "token": token,
                "attempt_id": "a1",
                "reference": reference,
                "status": 201,
                "body": _receipt(reference, key).decode(),
            }
            answer = client.post(f"/operations/{operation}/receipt", json=report)
            answer.raise_for_status()
            assert answer.json()["operation"]["state"] == "confirmed", answer.text
        return began, time.monotonic()


# --- the plain loop -------------------------------------------------------------------------------------


def _plain_connection() -> Any:
    import os

    import psycopg

    return psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)


def _plain(prepared: Prepared) -> tuple[float, float]:
    connection = _plain_connection()
    payload = json.dumps(PAYLOAD).encode()
    began = time.monotonic()
    with connection.cursor() as cursor:
        for _ in range(prepared.share):
            key = uuid.uuid4().hex
            cursor.execute(
                "INSERT INTO bench_operation (id, state, payload) VALUES (%s, 'sent_unknown', %s)",
                (key, payload),
            )
            with connection.transaction():
                cursor.execute("UPDATE bench_operation SET state = 'confirmed' WHERE id = %s", (key,))
                cursor.execute(
                    "INSERT INTO bench_receipt (operation, reference) VALUES (%s, %s)",
                    (key, uuid.uuid4().hex),
                )
    ended = time.monotonic()
    connection.close()
    return began, ended


PLAIN_TABLES = """
CREATE TABLE IF NOT EXISTS bench_operation (id text PRIMARY KEY, state text NOT NULL, payload bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE IF NOT EXISTS bench_receipt (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    operation text NOT NULL REFERENCES bench_operation, reference text NOT NULL UNIQUE,
    recorded_at timestamptz NOT NULL DEFAULT now());
GRANT SELECT, INSERT, UPDATE ON bench_operation, bench_receipt TO recourse_app;
"""


def create_plain_tables(owner_url: str) -> None:
    """Make the plain loop's two tables, as the owner: the application's role makes none."""
    import psycopg

    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute(PLAIN_TABLES)


# --- counting -------------------------------------------------------------------------------------------

COUNTED = 50


def count_queries() -> dict[str, float]:
    """Queries and durable commits of one effect through the domain functions, counted over 50 of them.

    Queries are counted on the wire, in libpq's own trace of what it sends: the hot statements don't go
    through Django's cursors, nor psycopg's. Commits that write are counted by the transaction numbers that
    PostgreSQL has given out: a transaction that only reads gets none.
    """
    import re
    import tempfile

    from django.db import connection

    prepared = Prepared("domain", COUNTED, operations=_make_operations(COUNTED))
    connection.ensure_connection()
    wire = connection.connection.pgconn
    before = _transactions_given_out()
    with tempfile.TemporaryFile() as trace:
        wire.trace(trace.fileno())
        try:
            _domain(prepared)
        finally:
            wire.untrace()
        trace.seek(0)
        # Sent by the front end: a query in one message, or the execution of a prepared one.
        queries = len(re.findall(rb"(?m)^(?:[^\t\n]*\t)?F\t\d+\t(?:Query|Execute)\b", trace.read()))
    after = _transactions_given_out()
    return {
        "queries_per_effect": round(queries / COUNTED, 2),
        "commits_per_effect": round((after - before) / COUNTED, 2),
    }


def _transactions_given_out() -> int:
    with _plain_connection() as connection:
        row = connection.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint").fetchone()
    return int(row[0])
