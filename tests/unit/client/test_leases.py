"""The lease: kept in the background, lost for good, given back only when nothing is in flight."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from recourse_client import Client, JournalError, LeaseLost, NotClaimed, OutcomeUnknown, RunPaused, StaleToken
from tests.unit.client.agents import Model, Shop, order_run, order_turn, raising
from tests.unit.client.stub_journal import StubJournal


def test_the_lease_is_renewed_in_the_background(client: Client, stub: StubJournal) -> None:
    with order_run(client, lease_seconds=1) as run:
        stub.wait_for("/renew$", count=4)
        assert run.lost() is None
    count = len(stub.calls("/renew$"))
    assert stub.calls("/release$")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("recourse-lease")]
    assert len(stub.calls("/renew$")) == count


def test_a_renewal_that_fails_is_repeated_before_the_term_ends(client: Client, stub: StubJournal) -> None:
    with order_run(client, lease_seconds=2) as run:
        stub.fault("/renew$", "drop")
        stub.fault("/renew$", "status", status=503)
        stub.wait_for("/renew$", count=3)
        assert run.lost() is None


def test_a_refused_renewal_loses_the_lease_at_once(client: Client, stub: StubJournal) -> None:
    shop = Shop()
    with order_turn(client, lease_seconds=1) as turn:
        stub.end_lease()
        stub.wait_for("/renew$")
        with pytest.raises(LeaseLost):
            turn.effect("order", shop)
    assert shop.asked == []


def test_a_lost_lease_stays_lost(make_client: Callable[..., Client]) -> None:
    now = [1000.0]
    with order_run(make_client(clock=lambda: now[0]), lease_seconds=30) as run:
        now[0] += 31
        assert run.lost() is not None
        now[0] -= 31
        assert run.lost() is not None


def test_the_term_counts_from_before_the_claim_was_asked(
    make_client: Callable[..., Client], stub: StubJournal
) -> None:
    now = [1000.0]
    client = make_client(clock=lambda: now[0])
    run = client.start(flow="f", flow_version="1", external_id="x", input={}, lease_seconds=30)
    held = stub.fault("/claim$", "hold")
    thread = threading.Thread(target=run.claim)
    thread.start()
    assert held.reached.wait(10)
    now[0] += 30
    held.release.set()
    thread.join(10)
    assert run.lost() is not None
    run.leave()


def test_a_model_that_thought_past_the_lease_is_not_heard(
    make_client: Callable[..., Client], stub: StubJournal
) -> None:
    now = [1000.0]
    model = Model()

    def slow() -> object:
        now[0] += 31
        return model()

    with order_run(make_client(clock=lambda: now[0]), lease_seconds=30) as run, pytest.raises(LeaseLost):
        run.turn(1, slow)  # type: ignore[arg-type]
    assert stub.calls("/turns$") == []


def test_the_model_is_not_asked_without_a_lease(make_client: Callable[..., Client]) -> None:
    now = [1000.0]
    model = Model()
    with order_run(make_client(clock=lambda: now[0]), lease_seconds=30) as run:
        now[0] += 31
        with pytest.raises(LeaseLost):
            run.turn(1, model)
    assert model.asked == 0


def test_the_lease_is_given_back_on_a_clean_exit_and_after_an_exception(
    client: Client, stub: StubJournal
) -> None:
    with order_run(client):
        pass
    with pytest.raises(ZeroDivisionError), order_run(client):
        raise ZeroDivisionError
    assert len(stub.calls("/release$")) == 2
    assert stub.only_run()["lease"] is None


def test_a_completed_run_has_no_lease_to_give_back(client: Client, stub: StubJournal) -> None:
    with order_run(client) as run:
        run.complete({"done": True})
    assert stub.calls("/release$") == []


def test_leaving_never_hides_why_it_is_left(client: Client, stub: StubJournal) -> None:
    stub.fault("/release$", "drop", times=99)
    with pytest.raises(ZeroDivisionError), order_run(client):
        raise ZeroDivisionError


def test_a_run_that_was_left_does_nothing_more(client: Client) -> None:
    with order_run(client) as run:
        pass
    with pytest.raises(NotClaimed):
        run.turn(1, Model())


def test_a_stale_token_is_a_lost_lease(client: Client, stub: StubJournal) -> None:
    with order_run(client) as run:
        stub.end_lease()
        with pytest.raises(StaleToken) as caught:
            run.turn(1, Model())
    assert isinstance(caught.value, LeaseLost)
    assert isinstance(caught.value, JournalError)


def test_a_pause_is_learned_from_the_renewal(client: Client, stub: StubJournal) -> None:
    with order_turn(client, lease_seconds=1) as turn:
        with pytest.raises(OutcomeUnknown):
            turn.effect("order", raising(TimeoutError()))
        with pytest.raises((LeaseLost, RunPaused)):
            turn.effect("order", Shop())


def test_a_forked_child_may_not_advance_its_parents_run(client: Client) -> None:
    with order_run(client) as run:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writing, str(run.lost()).encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert b"another process" in os.read(reading, 1000)
        os.close(reading)
        os.close(writing)
        assert run.lost() is None
