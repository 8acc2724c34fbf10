"""What the drill begins with: cases that a sender left behind, and the effects that the provider has made.

One run goes through the journal's own doors; the others are copies of its rows, because ten thousand runs
would take longer to make than to look up. Copies differ in their ids, keys and ages.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

from console.sandbox.records import NewEffect, Status
from console.sandbox.store import Store
from console.sandbox.wire import JsonObject
from reconciliation.accounts import sync_accounts
from reconciliation.models import Case
from reconciliation.reports import SeenReply, Sender, report_unknown
from runs import leases
from runs.actors import Actor, ActorKind
from runs.journal.sending import begin_send
from runs.journal.starting import start_run
from runs.journal.turns import CallChosen, save_turn
from runs.models import Operation, Team
from runs.money import Money

ACCOUNT = "drill"
TEAM = "drill"
WORKER = Actor(ActorKind.TOKEN, "tok_drill")
MINOR = 1_240
PAYLOAD: JsonObject = {"sku": "FC-20", "quantity": 40, "amount_minor": MINOR, "currency": "EUR"}
# One operation in ten never arrived, and one in a thousand gets answers that can't be read.
MISSING_EVERY = 10
POISONED_EVERY = 1_000
# How far apart the cases became due; by it their order is known.
APART_MS = 1


@dataclass(frozen=True, kw_only=True)
class Staged:
    """The operations' keys in the order in which they became due, and what the provider knows of them."""

    keys: tuple[str, ...]
    found: frozenset[str]
    poisoned: frozenset[str]


def stage_cases(*, count: int) -> Staged:
    """Open `count` cases at the drill's account, all due, oldest first; nobody has asked yet."""
    sync_accounts()
    Team.objects.get_or_create(slug=TEAM, defaults={"name": "Drill"})
    operation = _one_left_behind()
    with transaction.atomic(), connection.cursor() as cursor:
        _age(cursor, operation)
        for table, source_id, changes in _copies(operation):
            _copy(cursor, table, source_id, count - 1, changes)
        cursor.execute(
            "UPDATE reconciliation_case"
            " SET next_lookup_at = next_lookup_at + numbered.n * %s * interval '1 ms'"
            " FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM reconciliation_case) AS numbered"
            " WHERE numbered.id = reconciliation_case.id",
            [APART_MS],
        )
    keys = tuple(
        Case.objects.order_by("next_lookup_at").values_list("operation__key", flat=True)[: count + 1]
    )
    poisoned = frozenset(keys[POISONED_EVERY // 2 :: POISONED_EVERY] or keys[-1:])
    missing = frozenset(keys[MISSING_EVERY // 2 :: MISSING_EVERY])
    return Staged(keys=keys, found=frozenset(keys) - missing - poisoned, poisoned=poisoned)


def _one_left_behind() -> Operation:
    """A worker sent its order, saw no answer, and said so."""
    run = start_run(
        team=TEAM,
        flow="drill",
        flow_version="1",
        external_id="DRILL-0",
        input={},
        actor=WORKER,
        budget_limit=Money("EUR", 1_000_000),
    ).run
    token = leases.claim(
        team=TEAM, run_id=run.id, claim_id="drill", worker="drill", flow_version="1", lease_seconds=60
    ).token
    order = CallChosen(
        call_id="c1",
        tool="place_order",
        effect=True,
        provider=ACCOUNT,
        args=PAYLOAD,
        amount=Money("EUR", MINOR),
    )
    save_turn(team=TEAM, run_id=run.id, token=token, index=1, decision={}, parallel=False, calls=(order,))
    operation = Operation.objects.get(run=run)
    begin_send(team=TEAM, operation_id=operation.pk, token=token, attempt_id="a1")
    report_unknown(
        sender=Sender(team=TEAM, token=token),
        operation_id=operation.pk,
        attempt_id="a1",
        seen=SeenReply(error="ReadTimeout", phase="waiting"),
    )
    return operation


def _age(cursor: CursorWrapper, operation: Operation) -> None:
    """Let the request be an hour old, so that it is quiet and what isn't found isn't merely late."""
    execute = cursor.execute
    hour = "interval '1 hour'"
    execute(
        f"UPDATE runs_attempt SET minted_at = minted_at - {hour}, quiet_after_at = quiet_after_at - {hour}"  # noqa: S608
        " WHERE operation_id = %s",
        [operation.pk],
    )
    execute(
        f"UPDATE runs_operation SET first_sent_at = first_sent_at - {hour},"  # noqa: S608
        f" last_quiet_at = last_quiet_at - {hour} WHERE id = %s",
        [operation.pk],
    )
    # Due for a moment already, the copies after it.
    execute(
        "UPDATE reconciliation_case SET next_lookup_at = clock_timestamp() - interval '30 s'"
        " WHERE operation_id = %s",
        [operation.pk],
    )


def _copies(operation: Operation) -> list[tuple[str, str | int, dict[str, str]]]:
    """Table, row to copy, and what a copy has of its own: SQL over the row (`source`) and its number `n`."""
    case = Case.objects.get(operation=operation)
    attempt = operation.attempts.get()
    tail = "lpad(n::text, 26, '0')"
    run, its, call = f"'run_' || {tail}", f"'op_' || {tail}", "source.id + n"
    return [
        ("runs_run", operation.run_id, {"id": run, "external_id": "'DRILL-' || n"}),
        (
            "runs_call",
            operation.call_id,
            {"id": call, "run_id": run, "call_id": "'c1-' || n", "position": "source.position + n"},
        ),
        (
            "runs_operation",
            operation.pk,
            {"id": its, "key": "'drill-' || n", "call_id": "source.call_id + n", "run_id": run},
        ),
        (
            "runs_attempt",
            attempt.pk,
            {"id": "source.id + n", "operation_id": its},
        ),
        ("reconciliation_case", case.pk, {"id": f"'case_' || {tail}", "operation_id": its, "run_id": run}),
    ]


def _copy(
    cursor: CursorWrapper, table: str, source_id: str | int, count: int, changes: dict[str, str]
) -> None:
    execute = cursor.execute
    execute(
        "SELECT attname FROM pg_attribute"
        " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        [table],
    )
    columns = [name for (name,) in cursor.fetchall()]
    names = ", ".join(f'"{name}"' for name in columns)
    values = ", ".join(changes.get(name, f'source."{name}"') for name in columns)
    execute(
        f"INSERT INTO {table} ({names}) SELECT {values} FROM {table} AS source,"  # noqa: S608
        " generate_series(1, %s) AS n WHERE source.id = %s",
        [count, source_id],
    )


def stage_effects(*, store: Path, staged: Staged) -> None:
    """Write what the provider has made into its store, while it isn't running."""
    opened = Store(store)
    try:
        for key in staged.keys:
            if key in staged.found:
                opened.make_by_hand(
                    ACCOUNT,
                    NewEffect(
                        kind="orders",
                        key=key,
                        payload=dict(PAYLOAD),
                        status=Status.SUCCEEDED,
                        visible_after_ms=0,
                        echoes_key=True,
                    ),
                )
    finally:
        opened.close()
