"""Stripe: charges and refunds at a stand-in that honours keys, PaymentIntents at one that ignores them.

Keyed PaymentIntents, events and search are only in a stub of ours.
"""

from __future__ import annotations

from typing import Any

from reconciliation.providers.base import Found, Pending, Refused, RejectedSeen
from runs.ids import new_id
from runs.money import Money
from tests.contract.bench import Bench, DeclaredBench, Order, StubBench, basic
from tests.contract.matrix import Case, Check, Subject
from tests.contract.stub.stripe import StripeStub
from tests.contract.suite import closes_the_window, sends_while_the_first_runs

SECRET = "sk_test_contract"
IDEMPOTENCY = "https://docs.stripe.com/api/idempotent_requests"
CONFIRM = "https://docs.stripe.com/api/payment_intents/create"
STATEFUL = "stripe-stateful-mock 0.0.16"
EMULATE = "emulate 0.11.2"


class StripeBench(DeclaredBench):
    url_name = "STRIPE_URL"
    environ = {"STRIPE_API_KEY": SECRET}

    def stripe(self, method: str, path: str, **how: Any) -> Any:
        return self.peer(method, path, auth=basic(SECRET), **how)


class RefundsBench(StripeBench):
    """Each order refunds a part of a charge of its own."""

    slug = "stripe-refunds"
    marks_replays = True

    def order(self) -> Order:
        paid = {"amount": "5000", "currency": "eur", "source": "tok_visa"}
        charge = self.stripe("POST", "/v1/charges", data=paid)["id"]
        payload = {"charge": charge, "amount": 1200, "reason": "requested_by_customer"}
        return Order(
            tool="refund",
            payload=payload,
            other={**payload, "amount": 1300},
            refused={**payload, "amount": 999_999},
            amount=Money("EUR", 1200),
            other_amount=Money("EUR", 1300),
            place=charge,
        )

    def held(self, order: Order) -> list[str]:
        page = self.stripe("GET", "/v1/refunds", params={"charge": order.place, "limit": 100})
        return [one["id"] for one in page["data"]]


class ChargesBench(StripeBench):
    """Each order has a description of its own."""

    slug = "stripe-charges"
    marks_replays = True

    def order(self) -> Order:
        place = new_id("order")
        payload = {"amount": 1200, "currency": "eur", "source": "tok_visa", "description": place}
        return Order(
            tool="charge",
            payload=payload,
            other={**payload, "amount": 1300},
            refused={**payload, "source": "tok_chargeDeclined"},
            amount=Money("EUR", 1200),
            other_amount=Money("EUR", 1300),
            place=place,
        )

    def records(self, order: Order) -> list[dict[str, Any]]:
        page = self.stripe("GET", "/v1/charges")
        assert not page["has_more"]
        return [one for one in page["data"] if one["description"] == order.place]

    def held(self, order: Order) -> list[str]:
        return [one["id"] for one in self.records(order) if one["status"] == "succeeded"]


def is_declined(bench: Bench) -> None:
    """A decline is a refusal, and leaves a record with our marker, which no lookup takes for success."""
    assert isinstance(bench, ChargesBench)
    order = bench.order().impossible()
    outcome = bench.send(order)
    assert isinstance(outcome, RejectedSeen), outcome.summary
    assert outcome.speaks_for_first
    assert bench.held(order) == []
    (record,) = bench.records(order)
    assert record["status"] == "failed"
    assert record["metadata"]["recourse_operation"] == order.operation_id
    finding = bench.look_up(order)
    assert isinstance(finding, Refused), finding.summary
    assert [one.reference for one in finding.receipts] == [record["id"]]


def _payment(**changes: Any) -> dict[str, Any]:
    return {
        "amount": 1200,
        "currency": "eur",
        "payment_method": "pm_card_visa",
        "confirm": "true",
        **changes,
    }


class EmulatedPaymentsBench(StripeBench):
    """PaymentIntents where keys are ignored and nothing is confirmed."""

    slug = "stripe-payments"
    environ = {"STRIPE_API_KEY": "test_token_admin"}
    effects_of_a_repeat = 2
    stays_pending = True

    def order(self) -> Order:
        place = new_id("order")
        payload = _payment(description=place)
        return Order(
            tool="payment",
            payload=payload,
            other={**payload, "amount": 1300},
            refused={**payload, "amount": ""},
            amount=Money("EUR", 1200),
            other_amount=Money("EUR", 1300),
            place=place,
        )

    def send_duplicate(self, order: Order) -> Any:
        return self.send(order, attempt=2)

    def held(self, order: Order) -> list[str]:
        page = self.peer(
            "GET",
            "/v1/payment_intents",
            params={"limit": 100},
            headers={"Authorization": "Bearer test_token_admin"},
        )
        return [one["id"] for one in page["data"] if one["description"] == order.place]


class StubPaymentsBench(StubBench):
    """PaymentIntents where keys are honoured, events are written and search lags."""

    slug = "stripe-payments"
    url_name = "STRIPE_URL"
    environ = {"STRIPE_API_KEY": SECRET}
    marks_replays = True
    stub: StripeStub

    def order(self) -> Order:
        place = new_id("order")
        payload = _payment(description=place)
        return Order(
            tool="payment",
            payload=payload,
            other={**payload, "amount": 1300},
            refused={**payload, "payment_method": "pm_card_chargeDeclined"},
            amount=Money("EUR", 1200),
            other_amount=Money("EUR", 1300),
            place=place,
        )

    def held(self, order: Order) -> list[str]:
        intents = [one for one in self.stub.intents if one["description"] == order.place]
        return [one["id"] for one in intents if one["status"] == "succeeded"]


def shows_in_lists_before_search(bench: Bench) -> None:
    """What search doesn't show yet is found at once by the list."""
    assert isinstance(bench, StubPaymentsBench)
    order = bench.order()
    sent = bench.receipt(bench.send(order))
    query = {"query": f"metadata['recourse_operation']:'{order.operation_id}'"}

    def searched() -> list[Any]:
        page = bench.peer("GET", "/v1/payment_intents/search", params=query, auth=basic(SECRET))
        return list(page["data"])

    assert searched() == []
    finding = bench.look_up(order)
    assert isinstance(finding, Found), finding.summary
    assert [one.reference for one in finding.receipts] == [sent.reference]
    bench.stub.advance_clock(bench.stub.lag_ms)
    assert [one["id"] for one in searched()] == [sent.reference]


def closes_its_window(bench: Bench) -> None:
    assert isinstance(bench, StubPaymentsBench)
    closes_the_window(bench, bench.stub.advance_clock)


def is_declined_and_stays(bench: Bench) -> None:
    """A decline is a refusal of this request, and leaves a PaymentIntent that could still be paid."""
    assert isinstance(bench, StubPaymentsBench)
    order = bench.order().impossible()
    outcome = bench.send(order)
    assert isinstance(outcome, RejectedSeen), outcome.summary
    assert bench.held(order) == []
    finding = bench.look_up(order)
    assert isinstance(finding, Pending), finding.summary


def in_flight(bench: Bench) -> None:
    assert isinstance(bench, StubBench)
    sends_while_the_first_runs(bench)


_CONSISTENT = "its lists are consistent"
_NEVER_FORGETS = "the peer never forgets a key"

REFUNDS = Subject(
    adapter="stripe-refunds",
    peer=STATEFUL,
    independent=True,
    bench=lambda peers: RefundsBench(peers.stripe_stateful_mock()),
    cases={case: Check() for case in Case if case not in (Case.LAG, Case.CLOSED_WINDOW)},
    not_run={Case.LAG: _CONSISTENT, Case.CLOSED_WINDOW: _NEVER_FORGETS},
)

CHARGES = Subject(
    adapter="stripe-charges",
    peer=STATEFUL,
    independent=True,
    bench=lambda peers: ChargesBench(peers.stripe_stateful_mock()),
    cases={
        **{case: Check() for case in Case if case not in (Case.LAG, Case.CLOSED_WINDOW)},
        Case.REFUSAL: Check(run=is_declined),
    },
    not_run={Case.LAG: _CONSISTENT, Case.CLOSED_WINDOW: _NEVER_FORGETS},
)

_IGNORES = Check(
    departure="ignores `Idempotency-Key`: each request makes another PaymentIntent",
    source=IDEMPOTENCY,
)
_WAITS = Check(
    departure="ignores `confirm=true` at creation, so a new PaymentIntent stays `requires_confirmation`",
    source=CONFIRM,
)

EMULATED = Subject(
    adapter="stripe-payments",
    peer=EMULATE,
    independent=True,
    bench=lambda peers: EmulatedPaymentsBench(peers.emulate().urls["stripe"]),
    cases={
        Case.SEND: _WAITS,
        Case.SAME_KEY: _IGNORES,
        Case.OTHER_PAYLOAD: _IGNORES,
        Case.CONCURRENT: _IGNORES,
        Case.LOST_REPLY: _WAITS,
        Case.REFUSAL: Check(),
        Case.ABSENCE: Check(),
        Case.SEVERAL: _IGNORES,
        Case.LISTED: _WAITS,
    },
    not_run={Case.LAG: _CONSISTENT, Case.CLOSED_WINDOW: "the peer ignores keys"},
)

STUBBED = Subject(
    adapter="stripe-payments",
    peer="our stub of Stripe",
    independent=False,
    bench=lambda peers: StubPaymentsBench(StripeStub()),
    cases={
        **{case: Check() for case in Case},
        Case.CONCURRENT: Check(run=in_flight),
        Case.REFUSAL: Check(run=is_declined_and_stays),
        Case.LAG: Check(run=shows_in_lists_before_search),
        Case.CLOSED_WINDOW: Check(run=closes_its_window),
    },
)

SUBJECTS = (REFUNDS, CHARGES, EMULATED, STUBBED)
