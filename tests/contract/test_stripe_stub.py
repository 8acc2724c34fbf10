"""What only a stub of ours can show of Stripe: events by key, the search index as a hint, replayed errors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from reconciliation.providers.base import Candidate, Found, NotFound, RejectedSeen, Unavailable, UnknownSeen
from tests.contract.stub.stripe import StripeStub
from tests.contract.subjects.stripe import StubPaymentsBench

LIST, EVENTS = "/v1/payment_intents", "/v1/events"


@pytest.fixture
def stub() -> StripeStub:
    return StripeStub()


@pytest.fixture
def bench(stub: StripeStub) -> Iterator[StubPaymentsBench]:
    made = StubPaymentsBench(stub)
    yield made
    made.close()


@pytest.mark.parametrize("with_effect", [True, False])
def test_a_500_is_unknown_and_so_is_its_replay(
    with_effect: bool, bench: StubPaymentsBench, stub: StripeStub
) -> None:
    order = bench.order()
    stub.fail_next(with_effect=with_effect)
    first = bench.send(order)
    again = bench.send(order, attempt=2)
    assert isinstance(first, UnknownSeen)
    assert isinstance(again, UnknownSeen)
    assert "played back" in again.summary
    assert "played back" not in first.summary
    assert stub.requests == 2
    assert len(bench.held(order)) == int(with_effect)
    finding = bench.look_up(order)
    if with_effect:
        assert isinstance(finding, Found), finding.summary
    else:
        assert isinstance(finding, NotFound), finding.summary
        assert not finding.proof


def test_a_decline_that_is_played_back_says_nothing_of_earlier_attempts(bench: StubPaymentsBench) -> None:
    order = bench.order().impossible()
    first, again = bench.send(order), bench.send(order, attempt=2)
    assert isinstance(first, RejectedSeen)
    assert isinstance(again, RejectedSeen)
    assert (first.speaks_for_first, again.speaks_for_first) == (True, False)


def test_an_event_with_our_key_finds_what_the_list_can_not_be_asked_for(
    bench: StubPaymentsBench, stub: StripeStub
) -> None:
    order = bench.order()
    other = bench.receipt(bench.send(bench.order()))
    sent = bench.receipt(bench.send(order))
    stub.unreadable.add(LIST)
    finding = bench.look_up(order)
    assert isinstance(finding, Found), finding.summary
    assert [one.reference for one in finding.receipts] == [sent.reference]
    assert sent.reference != other.reference


def test_an_event_of_another_key_finds_nothing_and_proves_nothing(
    bench: StubPaymentsBench, stub: StripeStub
) -> None:
    bench.receipt(bench.send(bench.order()))
    stub.unreadable.add(LIST)
    finding = bench.look_up(bench.order())
    assert isinstance(finding, Unavailable | NotFound), finding.summary
    assert not getattr(finding, "proof", False)


def test_what_only_search_shows_is_for_people_to_look_at(bench: StubPaymentsBench, stub: StripeStub) -> None:
    order = bench.order()
    sent = bench.receipt(bench.send(order))
    stub.unreadable |= {LIST, EVENTS}
    early = bench.look_up(order)
    assert isinstance(early, Unavailable), early.summary
    stub.advance_clock(stub.lag_ms)
    late = bench.look_up(order)
    assert isinstance(late, Candidate), late.summary
    assert [one.reference for one in late.receipts] == [sent.reference]


def test_a_payment_on_a_later_page_is_found(bench: StubPaymentsBench, stub: StripeStub) -> None:
    order = bench.order()
    sent = bench.receipt(bench.send(order))
    record = stub.intents[-1]
    stub.intents += [
        {**record, "id": f"pi_other_{number}", "metadata": {}, "description": f"other {number}"}
        for number in range(250)
    ]
    before = stub.lookups
    finding = bench.look_up(order)
    assert isinstance(finding, Found), finding.summary
    assert [one.reference for one in finding.receipts] == [sent.reference]
    assert stub.lookups - before == 3


def test_a_marker_of_another_operation_is_never_ours(bench: StubPaymentsBench) -> None:
    order = bench.order()
    bench.receipt(bench.send(order))
    stranger = replace(bench.order(), payload=order.payload)
    assert isinstance(bench.look_up(stranger), NotFound)
