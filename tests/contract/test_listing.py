"""What shipped accounts list after a restore, at peers that we didn't write: by our mark, whoever made it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from reconciliation.providers.http_declared import HttpDeclared
from reconciliation.providers.listing import ListedRecord
from tests.contract.peers.servers import Peers
from tests.contract.subjects.stripe import ChargesBench, EmulatedPaymentsBench, RefundsBench, StripeBench

BENCHES: dict[str, Callable[[Peers], StripeBench]] = {
    "refunds": lambda peers: RefundsBench(peers.stripe_stateful_mock()),
    "charges": lambda peers: ChargesBench(peers.stripe_stateful_mock()),
    "payments": lambda peers: EmulatedPaymentsBench(peers.emulate().urls["stripe"]),
}


def listed(bench: StripeBench, since_at: datetime) -> dict[str, ListedRecord]:
    assert isinstance(bench.adapter, HttpDeclared)
    # A second more than now: these peers count whole seconds.
    until_at = datetime.now(UTC) + timedelta(seconds=1)
    listing = bench.adapter.list_made(since_at=since_at, until_at=until_at, permit=lambda: True)
    assert listing.whole, listing.why_not
    return {one.reference: one for one in listing.records}


@pytest.mark.parametrize("which", BENCHES)
def test_an_effect_that_nobody_remembers_is_listed_with_our_mark(which: str, peers: Peers) -> None:
    bench = BENCHES[which](peers)
    try:
        since_at = datetime.now(UTC) - timedelta(seconds=2)
        order = bench.order()
        bench.send(order)
        (reference,) = [
            one["id"]
            for one in bench.stripe("GET", _list_of(bench), params={"limit": 100})["data"]
            if one["metadata"].get("recourse_operation") == order.operation_id
        ]
        found = listed(bench, since_at)[reference]
        assert (found.our_reference, found.amount_currency, found.amount_minor) == (
            order.operation_id,
            "EUR",
            1200,
        )
    finally:
        bench.close()


def _list_of(bench: StripeBench) -> str:
    return {"stripe-refunds": "/v1/refunds", "stripe-charges": "/v1/charges"}.get(
        bench.slug, "/v1/payment_intents"
    )
