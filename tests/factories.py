"""The least that a test needs to begin with, made through the journal's own doors."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from runs import leases
from runs.actors import Actor, ActorKind
from runs.journal.sending import Go, begin_send
from runs.journal.starting import start_run
from runs.journal.turns import CallChosen, save_turn
from runs.models import Operation, ProviderAccount, Run, Team
from runs.money import Money

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
