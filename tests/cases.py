"""Cases as tests need them, made through the domain's own doors; a provider's answers are made up here."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

from reconciliation import lookups, reports
from reconciliation.accounts import sync_accounts
from reconciliation.models import Case
from reconciliation.providers import registry
from reconciliation.providers.base import (
    Candidate,
    Exchange,
    Finding,
    Found,
    Mismatch,
    NotFound,
    Pending,
    Phase,
    Receipt,
    Several,
    Unavailable,
)
from reconciliation.providers.matching import match_receipt
from runs.models import Operation, ProviderAccount, Run
from runs.money import Money
from tests import factories
from tests.factories import Claimed

PAYMENTS = "sandbox-payments"
SUPPLIER = "sandbox-supplier"
COURIER = "sandbox-courier"
REASON = "Checked with the provider by phone, ticket 4711."


@dataclass(frozen=True)
class Opened:
    """A case with the run and operation that it is about."""

    claimed: Claimed
    case_id: str

    @property
    def case(self) -> Case:
        return Case.objects.get(pk=self.case_id)

    @property
    def operation(self) -> Operation:
        return factories.fresh(self.claimed.operation)

    @property
    def run(self) -> Run:
        return factories.fresh(self.claimed.run)


@dataclass(frozen=True)
class Effect:
    """An effect to be in doubt about."""

    tool: str = "create_refund"
    provider: str = PAYMENTS
    args: dict[str, Any] = field(default_factory=lambda: {"payment": "pi_3SxAe70", "order": "ORD-77041"})
    minor: int | None = 124_000


REFUND = Effect()


def open_case(effect: Effect = REFUND, *, team: str = factories.TEAM, **run: Any) -> Opened:
    """A worker asked for "go", sent, and reported that it saw no answer: a case is open."""
    if not ProviderAccount.objects.filter(pk=effect.provider).exists():
        sync_accounts()
    amount = {"amount_minor": effect.minor, "currency": "EUR"} if effect.minor is not None else {}
    chosen = factories.effect(
        tool=effect.tool, provider=effect.provider, args={**effect.args, **amount}, minor=effect.minor
    )
    claimed = factories.make_claimed(chosen, team=team, **run)
    factories.send(claimed)
    reports.report_unknown(
        sender=reports.Sender(team=team, token=claimed.token),
        operation_id=claimed.operation.pk,
        attempt_id="a1",
        seen=reports.SeenReply(error="ReadTimeout", phase="waiting"),
    )
    return Opened(claimed, Case.objects.get(operation=claimed.operation).pk)


def record_of(opened: Opened, **changes: Any) -> dict[str, Any]:
    """The provider's record of the effect as it should be, and what is to be otherwise in it."""
    operation = opened.operation
    payload = json.loads(bytes(operation.payload))
    return {
        **payload,
        "id": "rfd_01",
        "status": "succeeded",
        "created_at": "2026-11-28T21:54:09Z",
        "idempotency_key": operation.key,
        **changes,
    }


def receipt_of(opened: Opened, record: dict[str, Any]) -> Receipt:
    """The record as a lookup reads it."""
    operation = opened.operation
    minor = operation.amount_minor
    return match_receipt(
        contract=registry.account(operation.provider_id).contract,
        operation_id=operation.pk,
        payload=json.loads(bytes(operation.payload)),
        key=operation.key,
        amount=None if minor is None else Money(operation.amount_currency, minor),
        reference=None,
        body=record,
        named_by_reply=False,
        tool=operation.tool,
    ).receipt


def exchange_of(*records: dict[str, Any], status: int | None = 200) -> Exchange:
    body = json.dumps({"data": records})
    return Exchange(
        method="GET",
        url="http://127.0.0.1/acct/payments/refunds?idempotency_key=k",
        request_headers=(("Accept", "application/json"), ("Authorization", "[redacted]")),
        status=status,
        response_headers=(("Content-Type", "application/json"),),
        body=body,
        body_length=len(body),
        body_whole=True,
        duration_ms=84,
        phase=Phase.DONE,
    )


def looked_up(opened: Opened, finding: Finding) -> None:
    """A lookup was made now, and this is what it told."""
    Case.objects.filter(pk=opened.case_id).update(next_lookup_at=_long_ago())
    asked = lookups.claim_due(case_id=opened.case_id)
    assert asked is not None
    lookups.record_finding(asked=asked, finding=finding, asked_by="policy")


def _long_ago() -> Any:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp() - interval '1 s'")
        return cursor.fetchone()[0]


def not_found(*, proof: bool = False) -> NotFound:
    return NotFound(summary="A complete answer holds no record of ours.", exchange=exchange_of(), proof=proof)


def unavailable() -> Unavailable:
    return Unavailable(summary="The provider could not be reached.", exchange=exchange_of(status=None))


def found(opened: Opened, **changes: Any) -> Found:
    record = record_of(opened, **changes)
    return Found(
        summary="One record carries our key and matches.",
        exchange=exchange_of(record),
        receipts=(receipt_of(opened, record),),
    )


def mismatch(opened: Opened, **changes: Any) -> Mismatch:
    record = record_of(opened, **{"amount_minor": 120_400, **changes})
    return Mismatch(
        summary="One record carries our key with other content.",
        exchange=exchange_of(record),
        receipts=(receipt_of(opened, record),),
    )


def candidate(opened: Opened, **changes: Any) -> Candidate:
    record = {
        name: value for name, value in record_of(opened, **changes).items() if name != "idempotency_key"
    }
    return Candidate(
        summary="One record looks alike and carries nothing of ours.",
        exchange=exchange_of(record),
        receipts=(receipt_of(opened, record),),
    )


def pending(opened: Opened) -> Pending:
    record = record_of(opened, status="pending")
    return Pending(
        summary="Our record exists and isn’t final.",
        exchange=exchange_of(record),
        receipts=(receipt_of(opened, record),),
    )


def several(opened: Opened) -> Several:
    records = [record_of(opened, id="rfd_01"), record_of(opened, id="rfd_02")]
    return Several(
        summary="Two records carry our key.",
        exchange=exchange_of(*records),
        receipts=tuple(receipt_of(opened, one) for one in records),
    )


def needs_decision(effect: Effect = REFUND, **run: Any) -> Opened:
    """A case that lookups couldn't settle, long after its request: confirm, retry and abandon are open."""
    opened = open_case(effect, **run)
    factories.quieten(opened.claimed.operation)
    if registry.account(effect.provider).contract.has_lookup:
        for _ in range(3):
            looked_up(opened, not_found())
    return opened
