"""The cases that every adapter is put through, each as what must be true of an outcome and at the peer.

What is expected follows from the adapter's own contract, so a contract that promises more than its peer
keeps fails here, unless the difference is declared as a departure of the peer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

from reconciliation.contracts import LookupKind, OnInFlight, OnOtherPayload
from reconciliation.providers.base import (
    Candidate,
    Finding,
    Found,
    Inconclusive,
    NotFound,
    Pending,
    ReceiptSeen,
    RejectedSeen,
    SendOutcome,
    Several,
    UnknownSeen,
)
from tests.contract.bench import Bench, StubBench
from tests.contract.matrix import Case, Run
from tests.fault_proxy import WAIT_SECONDS, Fault, How, Where

# Past the end of a window, by a little more than a peer's clock is coarse.
PAST_MS = 2_000
# What a provider has to answer questions for.
NEEDS_A_QUESTION = frozenset({Case.ABSENCE, Case.LAG, Case.LISTED})
NOBODY_LISTS = "nobody can list what was made there"
LOST_REPLIES = {
    "closed": Fault(where=Where.REPLY, how=How.CLOSE),
    "reset": Fault(where=Where.REPLY, how=How.RESET),
    "cut in the head": Fault(where=Where.REPLY, how=How.CLOSE, after_bytes=20),
    "cut in the body": Fault(where=Where.REPLY, how=How.CLOSE, after_bytes=5, in_body=True),
}


def sends(bench: Bench) -> None:
    """A send brings a receipt, the peer holds one effect, and a lookup finds the same."""
    order = bench.order()
    sent = bench.receipt(bench.send(order))
    assert bench.held(order) == [sent.reference]
    if bench.contract.has_lookup:
        assert_shows(bench, bench.look_up(order), sent.reference)
    assert bench.held(order) == [sent.reference], "asking changed something"
    assert bench.requests() in (None, 1)


def sends_the_same_key_again(bench: Bench) -> None:
    """The same key again is the same effect where keys are honoured, and a second one where not."""
    order = bench.order()
    outcomes = bench.send(order), bench.send(order, attempt=2)
    first, again = (bench.receipt(one) for one in outcomes)
    held = bench.held(order)
    assert len(held) == bench.effects_of_a_repeat
    assert [isinstance(one, ReceiptSeen) and one.replayed for one in outcomes] == [False, bench.marks_replays]
    assert set(held) == {first.reference, again.reference}
    assert bench.requests() in (None, 2), "a repeat is a request of its own"


def sends_the_same_key_for_another_payload(bench: Bench) -> None:
    """What the same key gets for other content is never taken for a receipt of that content."""
    order = bench.order()
    first = bench.receipt(bench.send(order))
    other = bench.send(order.changed(), attempt=2)
    if bench.contract.on_other_payload is OnOtherPayload.PERFORMED or bench.effects_of_a_repeat > 1:
        assert sorted(bench.held(order)) == sorted([first.reference, bench.receipt(other).reference])
        return
    assert not isinstance(other, ReceiptSeen), other.summary
    if isinstance(other, RejectedSeen):
        assert not other.speaks_for_first, "a refusal of other content says nothing about the first attempt"
    assert bench.held(order) == [first.reference]


def sends_while_the_first_runs(bench: StubBench) -> None:
    """While the first request of a key runs, a second one is unknown, or waits, and never a second effect."""
    order = bench.order()
    first: list[SendOutcome] = []
    bench.stub.keep_in_flight()
    thread = threading.Thread(target=lambda: first.append(bench.send(order)))
    thread.start()
    assert bench.stub.reached.wait(WAIT_SECONDS)
    second = bench.send(order, attempt=2)
    bench.stub.let_go()
    thread.join(WAIT_SECONDS)
    assert isinstance(second, UnknownSeen), second.summary
    assert bench.held(order) == [bench.receipt(first[0]).reference]


def sends_at_once(bench: Bench) -> None:
    """Of first sends at once each says what it knows, and the peer makes what it makes of a repeat."""
    order = bench.order()
    outcomes: list[SendOutcome] = []
    ready = threading.Barrier(bench.at_once)

    def send(attempt: int) -> None:
        ready.wait(WAIT_SECONDS)
        outcomes.append(bench.send(order, attempt=attempt))

    threads = [threading.Thread(target=send, args=(number + 1,)) for number in range(bench.at_once)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(WAIT_SECONDS)
    assert len(outcomes) == bench.at_once
    receipts = {one.receipt.reference for one in outcomes if bench.is_receipt(one) and one.receipt}
    assert not any(isinstance(one, RejectedSeen) and one.speaks_for_first for one in outcomes), outcomes
    held = bench.held(order)
    if bench.effects_of_a_repeat > 1:
        assert len(held) == bench.at_once
    else:
        assert len(held) == 1
        if bench.contract.on_in_flight is not OnInFlight.REFUSED:
            assert all(bench.is_receipt(one) for one in outcomes), outcomes
    assert receipts <= set(held)
    assert receipts
    assert bench.requests() in (None, bench.at_once)


def loses_the_reply(bench: Bench) -> None:
    """A reply that is lost in any way is unknown; the lookup finds the effect, and makes no other."""
    for number, (name, fault) in enumerate(LOST_REPLIES.items(), start=1):
        order = bench.order()
        bench.proxy.fault(fault)
        outcome = bench.send(order)
        assert isinstance(outcome, UnknownSeen), f"{name}: {outcome.summary}"
        assert bench.proxy.struck.is_set(), name
        held = bench.held(order)
        assert len(held) == 1, name
        finding = bench.look_up(order)
        if bench.contract.has_lookup:
            assert_shows(bench, finding, held[0])
        else:
            assert isinstance(finding, Inconclusive), name
        assert bench.held(order) == held, name
        assert bench.requests() in (None, number), "nothing is sent again by itself"


def is_refused(bench: Bench) -> None:
    """A definite refusal of the first attempt is one, and the peer holds nothing."""
    order = bench.order()
    outcome = bench.send_refused(order)
    assert isinstance(outcome, RejectedSeen), outcome.summary
    assert outcome.speaks_for_first
    assert bench.held(order) == []


def shows_nothing(bench: Bench) -> None:
    """What was never sent isn't found; that is proof only where, and when, the contract lets it be."""
    order = bench.order()
    provable_at = bench.contract.absence_provable_at(bench.contract.quiet_at(order.first_sent_at))
    if provable_at is None:
        finding = bench.look_up(order)
        assert isinstance(finding, NotFound), finding.summary
        assert not finding.proof
        return
    provable_ms = int((provable_at - order.first_sent_at) / timedelta(milliseconds=1))
    early = bench.look_up(order, asked_after_ms=provable_ms - 1)
    late = bench.look_up(order, asked_after_ms=provable_ms)
    assert isinstance(early, NotFound), early.summary
    assert isinstance(late, NotFound), late.summary
    assert (early.proof, late.proof) == (False, True)


def lists_what_was_forgotten(bench: Bench) -> None:
    """What nobody remembers is in the list of its time, with our mark wherever a record carries it."""
    since_at = bench.now() - timedelta(seconds=2)
    order = bench.order()
    sent = bench.receipt(bench.send(order))
    assert bench.adapter.account.listing.offered
    listing = bench.list_made(since_at)
    assert listing.whole, listing.why_not
    assert listing.leaves_out == bench.adapter.account.listing.leaves_out
    (found,) = [one for one in listing.records if one.reference == sent.reference]
    carries = found.key == order.key or order.operation_id in found.our_reference
    assert carries == can_be_named(bench), found
    if sent.amount is not None:
        assert (found.amount_currency, found.amount_minor) == (sent.amount.currency, sent.amount.minor)
    assert bench.held(order) == [sent.reference], "asking changed something"


def shows_several(bench: Bench) -> None:
    """Two effects for one operation are several: a conflict for people, and never the one that fits."""
    order = bench.order()
    bench.receipt(bench.send(order))
    bench.send_duplicate(order)
    held = bench.held(order)
    assert len(held) == 2
    finding = bench.look_up(order)
    match bench.contract.lookup:
        case LookupKind.NONE:
            assert isinstance(finding, Inconclusive), finding.summary
        case _ if can_be_named(bench):
            assert isinstance(finding, Several), finding.summary
            assert sorted(one.reference for one in finding.receipts) == sorted(held)
        case _:
            assert isinstance(finding, Candidate), finding.summary
            assert sorted(one.reference for one in finding.receipts) == sorted(held)


def assert_shows(bench: Bench, finding: Finding, reference: str) -> None:
    """A lookup shows exactly this effect: found, or alike where nothing of ours can be read from it."""
    shows = Pending if bench.stays_pending else Found if can_be_named(bench) else Candidate
    assert isinstance(finding, shows), finding.summary
    assert [one.reference for one in finding.receipts] == [reference]


def can_be_named(bench: Bench) -> bool:
    """Whether a record can carry our key or reference."""
    receipt = bench.contract.receipt
    return bench.shows_our_mark and (receipt.key is not None or receipt.reference is not None)


def shows_after_the_lag(bench: StubBench) -> None:
    """A new effect stays hidden for a while, and as long as it does nothing is concluded from that."""
    order = bench.order()
    bench.proxy.fault(LOST_REPLIES["closed"])
    assert isinstance(bench.send(order), UnknownSeen)
    held = bench.held(order)
    assert len(held) == 1
    hidden = bench.look_up(order)
    assert isinstance(hidden, NotFound), hidden.summary
    assert not hidden.proof
    bench.stub.advance_clock(bench.stub.lag_ms)
    assert_shows(bench, bench.look_up(order), held[0])


def closes_the_window(bench: Bench, advance_clock: Callable[[int], None]) -> None:
    """Past its window the same key makes a second effect, as the contract warned before that instant."""
    order = bench.order()
    window_ms = bench.contract.dedup_window_ms
    ends_at = bench.contract.key_ends_at(order.first_sent_at)
    assert window_ms is not None
    assert ends_at is not None
    assert ends_at < order.first_sent_at + timedelta(milliseconds=window_ms)
    first = bench.receipt(bench.send(order))
    advance_clock(window_ms - bench.contract.window_margin_ms)
    inside = bench.receipt(bench.send(order, attempt=2))
    assert inside.reference == first.reference
    assert len(bench.held(order)) == 1
    advance_clock(bench.contract.window_margin_ms + PAST_MS)
    past = bench.receipt(bench.send(order, attempt=3))
    assert sorted(bench.held(order)) == sorted([first.reference, past.reference])


# The cases as they run where a subject says nothing else. Lag and a closed window need a peer whose clock
# can be moved, so these are each subject's own.
DEFAULTS: dict[Case, Run] = {
    Case.SEND: sends,
    Case.SAME_KEY: sends_the_same_key_again,
    Case.OTHER_PAYLOAD: sends_the_same_key_for_another_payload,
    Case.CONCURRENT: sends_at_once,
    Case.LOST_REPLY: loses_the_reply,
    Case.REFUSAL: is_refused,
    Case.ABSENCE: shows_nothing,
    Case.SEVERAL: shows_several,
    Case.LISTED: lists_what_was_forgotten,
}
