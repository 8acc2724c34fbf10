"""Two effects of one operation at providers that ignore keys, through the journal: a conflict, for people.

The peers are independent: emulate's GitHub and Stripe make another record for each request.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from reconciliation.providers import registry
from reconciliation.providers.base import OutgoingOperation, elapsed_seconds
from reconciliation.states import CaseKind, CaseState, Need
from runs.models import Operation
from tests.cases_world import case_of, declare, look, report, state_of
from tests.contract.peers.servers import Peers
from tests.factories import effect, fresh, make_claimed, quieten, send
from tests.sandbox_client import new_client

pytestmark = pytest.mark.django_db(transaction=True)

TOKEN = "test_token_admin"


@pytest.fixture
def emulated(peers: Peers, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[dict[str, str]]:
    """The shipped accounts, turned to the peers."""
    urls = peers.emulate().urls
    monkeypatch.setenv("STRIPE_URL", urls["stripe"])
    monkeypatch.setenv("STRIPE_API_KEY", TOKEN)
    monkeypatch.setenv("GITHUB_API_URL", urls["github"])
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    settings.RECOURSE_PROVIDERS = ["stripe-payments", "github-issues"]
    declare()
    yield urls
    registry.reload()


def send_once(operation: Operation) -> None:
    """Send the operation as its worker does."""
    payload = bytes(operation.payload)
    registry.adapter(operation.provider_id).send(
        OutgoingOperation(
            operation_id=operation.pk,
            idempotency_key=operation.key,
            tool=operation.tool,
            payload_bytes=payload,
            payload=json.loads(payload),
            amount=None,
            attempt_id="a1",
            attempt_number=1,
            start_by=elapsed_seconds() + 10,
            request_within_ms=10_000,
        )
    )


def payment(unique: str) -> dict[str, Any]:
    return {"amount": 1200, "currency": "eur", "description": unique, "payment_method": "pm_card_visa"}


def issue(unique: str, urls: dict[str, str]) -> dict[str, Any]:
    with new_client(urls["github"]) as http:
        made = http.post("/user/repos", json={"name": unique}, headers={"Authorization": f"Bearer {TOKEN}"})
        assert made.is_success, made.text
    return {"owner": "admin", "repo": unique, "title": "Refund 1042"}


@pytest.mark.parametrize("provider", ["github-issues", "stripe-payments"])
def test_two_records_of_one_operation_are_a_conflict(
    provider: str, emulated: dict[str, str], unique: str
) -> None:
    args = issue(unique, emulated) if provider == "github-issues" else payment(unique)
    claimed = make_claimed(effect(provider=provider, args=args))
    send(claimed, attempt_id="a1")
    # The worker sent, died, and was run again by something that didn't ask.
    send_once(claimed.operation)
    send_once(claimed.operation)
    report("unknown", claimed)
    quieten(claimed.operation)
    case = case_of(claimed)
    assert look(case) == "several"
    asks = fresh(case)
    assert (asks.kind, asks.need, asks.effects_seen) == (CaseKind.CONFLICT, Need.SEVERAL, 2)
    assert (asks.state, state_of(claimed)) == (CaseState.NEEDS_DECISION, "sent_unknown")
