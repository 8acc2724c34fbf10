"""Zendesk, PayPal, Adyen and Square, for which there are only stubs of ours."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from reconciliation.providers.base import Finding
from runs.ids import new_id
from runs.money import Money
from tests.contract.bench import Bench, Order, StubBench
from tests.contract.matrix import Case, Check, Run, Subject
from tests.contract.stub.adyen import REFUSED_HOLDER, AdyenStub
from tests.contract.stub.paypal import PaypalStub
from tests.contract.stub.square import DECLINED_SOURCE, SquareStub
from tests.contract.stub.zendesk import ZendeskStub
from tests.contract.suite import (
    NEEDS_A_QUESTION,
    NOBODY_LISTS,
    assert_shows,
    closes_the_window,
    lists_what_was_forgotten,
    sends_while_the_first_runs,
    shows_after_the_lag,
)


class ZendeskBench(StubBench):
    """Each order is a ticket with a subject of its own."""

    slug = "zendesk"
    url_name = "ZENDESK_URL"
    environ = {"ZENDESK_EMAIL": "desk@shop.example", "ZENDESK_API_TOKEN": "token-of-the-contract-suite"}
    marks_replays = True
    stub: ZendeskStub

    def order(self) -> Order:
        place = new_id("ticket")

        def ticket(body: str) -> dict[str, Any]:
            return {"ticket": {"subject": place, "comment": {"body": body}}}

        return Order(
            tool="ticket",
            payload=ticket("The parcel never came."),
            other=ticket("The parcel came."),
            refused={"ticket": {"subject": place}},
            place=place,
            first_sent_at=self.now(),
        )

    def held(self, order: Order) -> list[str]:
        return [str(one["id"]) for one in self.stub.tickets if one["subject"] == order.place]


def shows_in_the_list_before_search(bench: Bench) -> None:
    """What the search index doesn't show yet is found at once by the list."""
    assert isinstance(bench, ZendeskBench)
    order = bench.order()
    sent = bench.receipt(bench.send(order))

    def searched() -> list[Any]:
        query = {"query": f"type:ticket external_id:{order.operation_id}"}
        page = bench.peer("GET", "/api/v2/search", params=query, headers={"Authorization": "Basic x"})
        return list(page["results"])

    assert searched() == []
    assert_shows(bench, bench.look_up(order), sent.reference)
    bench.stub.advance_clock(bench.stub.lag_ms)
    assert [str(one["id"]) for one in searched()] == [sent.reference]


def lists_over_pages(bench: Bench) -> None:
    """The export is read to its end, and nothing of the last minute is in it before that minute is over."""
    assert isinstance(bench, ZendeskBench)
    bench.stub.export_page = 2
    since_at = bench.now()
    sent = []
    for _ in range(5):
        sent.append(bench.receipt(bench.send(bench.order())).reference)
        # Its pages go on from a whole second.
        bench.stub.advance_clock(1_000)
    early = Bench.list_made(bench, since_at)
    assert (early.records, early.why_not) == ((), "")
    assert [one.reference for one in bench.list_made(since_at).records] == sent
    bench.stub.export_page = 1000
    lists_what_was_forgotten(bench)


class LaggingBench(StubBench):
    """Lists show an effect late. Every lookup waits the lag out, except in the case that is about it."""

    waits = True

    def look_up(self, order: Order, **how: Any) -> Finding:
        if self.waits:
            self.stub.advance_clock(self.stub.lag_ms)
        return super().look_up(order, **how)


class PaypalBench(LaggingBench):
    """Each order refunds a part of a capture of its own."""

    slug = "paypal"
    url_name = "PAYPAL_URL"
    environ = {"PAYPAL_CLIENT_ID": "client-of-the-suite", "PAYPAL_CLIENT_SECRET": "secret-of-the-suite"}
    stub: PaypalStub

    def __init__(self, stub: PaypalStub) -> None:
        super().__init__(stub)
        # Gets the token, so that a fault strikes what a test sends and not what is asked before.
        StubBench.look_up(self, self.order())

    def order(self) -> Order:
        place = new_id("CAPTURE")
        payload = {"capture_id": place, "note_to_payer": "Sorry for the wait."}
        return Order(
            tool="refund",
            payload=payload,
            other={**payload, "note_to_payer": "Sorry."},
            refused={**payload, "capture_id": f"MISSING-{place}"},
            amount=Money("EUR", 1200),
            other_amount=Money("EUR", 1300),
            place=place,
            first_sent_at=self.now(),
        )

    def held(self, order: Order) -> list[str]:
        return [one["id"] for one in self.stub.refunds if one["capture"] == order.place]


def lists_every_location(bench: Bench) -> None:
    """A payment at another location than the default is listed as well."""
    assert isinstance(bench, SquareBench)
    since_at = bench.now() - timedelta(seconds=2)
    order = bench.order()
    elsewhere = replace(order, payload={**order.payload, "location_id": "L2"})
    sent = bench.receipt(bench.send(elsewhere)).reference
    assert sent in [one.reference for one in bench.list_made(since_at).records]
    lists_what_was_forgotten(bench)


class SquareBench(LaggingBench):
    """Each order is a payment with a note of its own."""

    slug = "square"
    url_name = "SQUARE_URL"
    environ = {"SQUARE_ACCESS_TOKEN": "token-of-the-contract-suite"}
    stub: SquareStub

    def order(self) -> Order:
        place = new_id("note")
        payload = {
            "source_id": "cnon:card-nonce-ok",
            "amount_money": {"amount": 1200, "currency": "EUR"},
            "location_id": "L1",
            "note": place,
        }
        return Order(
            tool="payment",
            payload=payload,
            other={**payload, "amount_money": {"amount": 1300, "currency": "EUR"}},
            refused={**payload, "source_id": DECLINED_SOURCE},
            amount=Money("EUR", 1200),
            other_amount=Money("EUR", 1300),
            place=place,
            first_sent_at=self.now(),
        )

    def held(self, order: Order) -> list[str]:
        return [one["id"] for one in self.stub.payments if one["note"] == order.place]


class AdyenBench(StubBench):
    """Each order is a payment with a reference of its own."""

    slug = "adyen"
    url_name = "ADYEN_URL"
    url_path = "/v72"
    environ = {"ADYEN_MERCHANT_ACCOUNT": "ShopECOM", "ADYEN_API_KEY": "key-of-the-contract-suite"}
    stub: AdyenStub

    def order(self) -> Order:
        place = new_id("order")
        card = {"type": "scheme", "holderName": "Ada"}
        payload = {
            "reference": place,
            "amount": {"value": 1200, "currency": "EUR"},
            "paymentMethod": card,
            "returnUrl": "https://shop.example/back",
        }
        return Order(
            tool="payment",
            payload=payload,
            other={**payload, "amount": {"value": 1300, "currency": "EUR"}},
            refused={**payload, "paymentMethod": {**card, "holderName": REFUSED_HOLDER}},
            amount=Money("EUR", 1200),
            other_amount=Money("EUR", 1300),
            place=place,
            first_sent_at=self.now(),
        )

    def held(self, order: Order) -> list[str]:
        return [
            one["pspReference"]
            for one in self.stub.payments
            if one["merchantReference"] == order.place and one["resultCode"] == "Authorised"
        ]


def _at_stub(run: Any) -> Run:
    """A case that needs the stub's own handles."""

    def with_stub(bench: Bench) -> None:
        assert isinstance(bench, StubBench)
        if isinstance(bench, LaggingBench):
            bench.waits = False
        run(bench)

    return with_stub


def _closes(bench: StubBench) -> None:
    closes_the_window(bench, bench.stub.advance_clock)


IN_FLIGHT = Check(run=_at_stub(sends_while_the_first_runs))
LAGS = Check(run=_at_stub(shows_after_the_lag))
CLOSES = Check(run=_at_stub(_closes))

ZENDESK = Subject(
    adapter="zendesk",
    peer="our stub of Zendesk",
    independent=False,
    bench=lambda peers: ZendeskBench(ZendeskStub()),
    cases={
        **{case: Check() for case in Case},
        Case.CONCURRENT: IN_FLIGHT,
        Case.LAG: Check(run=shows_in_the_list_before_search),
        Case.CLOSED_WINDOW: CLOSES,
        Case.LISTED: Check(run=lists_over_pages),
    },
)
PAYPAL = Subject(
    adapter="paypal",
    peer="our stub of PayPal",
    independent=False,
    bench=lambda peers: PaypalBench(PaypalStub()),
    cases={
        **{case: Check() for case in Case},
        Case.CONCURRENT: IN_FLIGHT,
        Case.LAG: LAGS,
        Case.CLOSED_WINDOW: CLOSES,
    },
)
SQUARE = Subject(
    adapter="square",
    peer="our stub of Square",
    independent=False,
    bench=lambda peers: SquareBench(SquareStub()),
    cases={
        **{case: Check() for case in Case if case is not Case.CLOSED_WINDOW},
        Case.CONCURRENT: IN_FLIGHT,
        Case.LISTED: Check(run=lists_every_location),
        Case.LAG: LAGS,
    },
    not_run={Case.CLOSED_WINDOW: "no window is published"},
)
ADYEN = Subject(
    adapter="adyen",
    peer="our stub of Adyen",
    independent=False,
    bench=lambda peers: AdyenBench(AdyenStub()),
    cases={
        **{case: Check() for case in Case if case not in NEEDS_A_QUESTION},
        Case.CONCURRENT: IN_FLIGHT,
        Case.CLOSED_WINDOW: CLOSES,
    },
    not_run={
        Case.ABSENCE: "it can't be asked",
        Case.LAG: "it can't be asked",
        Case.LISTED: NOBODY_LISTS,
    },
)

SUBJECTS = (ZENDESK, PAYPAL, ADYEN, SQUARE)
