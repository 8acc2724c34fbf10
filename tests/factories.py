"""The least that a test needs to begin with, made through the journal's own doors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from django.db import connection, transaction
from django.db.models import F, Model

from runs import leases
from runs.actors import Actor, ActorKind
from runs.journal.grants import make_grant
from runs.journal.replies import confirm_by_reply
from runs.journal.sending import Go, begin_send
from runs.journal.settling import ReceiptFacts, end_attempt, open_doubt
from runs.journal.starting import start_run
from runs.journal.turns import CallChosen, save_turn
from runs.locking import LockedOperation, lock_operation
from runs.models import Attempt, Grant, Operation, ProviderAccount, Run, Team
from runs.money import Money
from runs.states import AttemptOutcome, Executor, MatchedBy

M = TypeVar("M", bound=Model)

TEAM = "ops"
FLOW = "order-agent"
VERSION = "6"
WORKER = "worker-1"
PERSON = Actor(ActorKind.PERSON, "person:maya", "operator")
TOKEN_ACTOR = Actor(ActorKind.TOKEN, "tok_test")

_numbers = itertools.count(1)


def make_team(slug: str = TEAM) -> Team:
    return Team.objects.get_or_create(slug=slug, defaults={"name": slug.title()})[0]


def make_account(slug: str = "sandbox-supplier", **fields: Any) -> ProviderAccount:
    defaults: dict[str, Any] = {
        "title": slug,
        "adapter_version": "1",
        "endpoint": "http://127.0.0.1/acct",
        "start_within_ms": 5_000,
        "request_within_ms": 5_000,
        "in_flight_ms": 0,
    }
    return ProviderAccount.objects.update_or_create(slug=slug, defaults={**defaults, **fields})[0]


@dataclass(frozen=True)
class Claimed:
    """A run under a live lease, with the operations of its first turn in order."""

    run: Run
    token: str
    operations: list[Operation]

    @property
    def operation(self) -> Operation:
        return self.operations[0]


def effect(call_id: str = "c1", *, minor: int | None = None, **fields: Any) -> CallChosen:
    chosen: dict[str, Any] = {
        "tool": "place_order",
        "effect": True,
        "provider": "sandbox-supplier",
        "args": {"sku": "FC-20", "quantity": 40},
        "amount": None if minor is None else Money("EUR", minor),
    }
    return CallChosen(call_id=call_id, **{**chosen, **fields})


def read(call_id: str = "r1") -> CallChosen:
    return CallChosen(call_id=call_id, tool="read_stock", effect=False, args={"sku": "FC-20"})


def make_run(*, team: str = TEAM, budget_minor: int | None = None, **fields: Any) -> Run:
    make_team(team)
    number = next(_numbers)
    chosen: dict[str, Any] = {
        "flow": FLOW,
        "flow_version": VERSION,
        "external_id": f"ORD-{number}",
        "input": {"order": number},
        "actor": TOKEN_ACTOR,
        "budget_limit": None if budget_minor is None else Money("EUR", budget_minor),
    }
    return start_run(team=team, **{**chosen, **fields}).run


def claim(run: Run, *, claim_id: str | None = None, worker: str = WORKER, lease_seconds: int = 600) -> str:
    return leases.claim(
        team=run.team_id,
        run_id=run.id,
        claim_id=claim_id or f"claim-{next(_numbers)}",
        worker=worker,
        flow_version=VERSION,
        lease_seconds=lease_seconds,
    ).token


def make_claimed(*calls: CallChosen, parallel: bool = False, **fields: Any) -> Claimed:
    """A run, claimed, with its first turn saved; by default one keyed order without an amount."""
    chosen = calls or (effect(),)
    for call in chosen:
        if call.effect and not ProviderAccount.objects.filter(pk=call.provider).exists():
            make_account(call.provider)
    run = make_run(**fields)
    token = claim(run)
    save_turn(
        team=run.team_id, run_id=run.id, token=token, index=1, decision={}, parallel=parallel, calls=chosen
    )
    operations = list(Operation.objects.filter(run=run).order_by("position"))
    return Claimed(run=run, token=token, operations=operations)


def send(claimed: Claimed, *, attempt_id: str = "a1", operation: Operation | None = None) -> Go:
    return begin_send(
        team=claimed.run.team_id,
        operation_id=(operation or claimed.operation).pk,
        token=claimed.token,
        attempt_id=attempt_id,
    )


def receipt(reference: str = "ord_1", *, minor: int | None = None, **fields: Any) -> ReceiptFacts:
    """A receipt that carries our key; with `minor`, one that states an amount in EUR."""
    chosen: dict[str, Any] = {
        "body": b'{"id":"ord_1"}',
        "matched_by": MatchedBy.KEY,
        "amount_currency": "" if minor is None else "EUR",
        "amount_minor": minor,
    }
    return ReceiptFacts(reference=reference, **{**chosen, **fields})


def reply(
    claimed: Claimed,
    reference: str = "ord_1",
    *,
    attempt_id: str = "a1",
    operation: Operation | None = None,
    minor: int | None = None,
    token: str | None = None,
    **fields: Any,
) -> int | None:
    """The usual report: the attempt's own sender has the provider's receipt."""
    return confirm_by_reply(
        team=claimed.run.team_id,
        operation_id=(operation or claimed.operation).pk,
        token=token or claimed.token,
        attempt_id=attempt_id,
        receipt=receipt(reference, minor=minor, **fields),
        report_digest="d" * 64,
    )


@contextmanager
def held(operation: Operation) -> Iterator[LockedOperation]:
    """A transaction that holds the operation and its run, as every settling function needs it."""
    with transaction.atomic():
        yield lock_operation(operation_id=operation.pk, team=None)


def doubt(operation: Operation, *, outcome: AttemptOutcome = AttemptOutcome.UNKNOWN) -> None:
    """End the operation's open attempt with this outcome and make what happened an open question."""
    with held(operation) as locked:
        for attempt in Attempt.objects.filter(operation=operation, outcome=AttemptOutcome.OPEN):
            end_attempt(locked, attempt, outcome=outcome)
        open_doubt(locked)


def quieten(operation: Operation) -> None:
    """Move the operation's attempts so far into the past that their quiet time is over."""
    span = timedelta(hours=1)
    Attempt.objects.filter(operation=operation).update(
        minted_at=F("minted_at") - span, quiet_after_at=F("quiet_after_at") - span
    )
    Operation.objects.filter(pk=operation.pk).update(last_quiet_at=F("last_quiet_at") - span)


def grant(
    operation: Operation,
    *,
    executor: Executor = Executor.AGENT,
    starts_in_seconds: float = -1,
    ends_in_seconds: float = 600,
    approval_digest: str = "",
) -> Grant:
    """Permit one more attempt, from and until so many seconds from now; two people's, with a digest."""
    with held(operation) as locked:
        return make_grant(
            locked,
            executor=executor,
            not_before_at=locked.now + timedelta(seconds=starts_in_seconds),
            not_after_at=locked.now + timedelta(seconds=ends_in_seconds),
            actor=PERSON,
            reason="The supplier keeps our key for a day.",
            approval_digest=approval_digest,
        )


def end_lease_in(run: Run, seconds: float) -> None:
    """Let the run's lease end so many seconds from now, by the database's clock; negative: it has ended."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE runs_run SET lease_expires_at = clock_timestamp() + %s * interval '1 s' WHERE id = %s",
            [seconds, run.pk],
        )
        cursor.execute(
            "UPDATE runs_lease SET expires_at = r.lease_expires_at FROM runs_run r"
            " WHERE r.id = runs_lease.run_id AND r.lease_number = runs_lease.number AND r.id = %s",
            [run.pk],
        )


def fresh(row: M) -> M:
    """The row as the database has it now."""
    return type(row)._default_manager.get(pk=row.pk)
