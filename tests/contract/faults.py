"""Every way a request can fail between an adapter and a peer that is really there, as rows of the matrix.

The peer says whether the effect exists; the adapter must never say more than it can know. `not_sent` is only
where the peer got nothing and our own transport saw why; wherever a byte may have left it is `unknown`, also
where the peer got nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from socket import create_server, socket
from threading import Thread

from reconciliation.providers.base import NotFound, SendKind, SendOutcome
from reconciliation.providers.transport import Transport
from tests.contract.bench import Bench, Order
from tests.contract.matrix import Subject
from tests.contract.suite import assert_shows
from tests.fault_proxy import WAIT_SECONDS, Fault, How, Where

# Waited out where nobody is to answer.
SHORT_MS = 700
# Waited out where the peer must have done its work before we give up, on a busy machine too.
LONG_MS = 2_000
# More than the system takes off our hands while the other side doesn't read.
BIG_PAYLOAD = b'{"note":"' + b"x" * 20_000_000 + b'"}'
# As much as the sandbox reads: it would refuse more as soon as it has seen the head.
LONG_PAYLOAD = b'{"note":"' + b"x" * 900_000 + b'"}'

Sending = Callable[[Bench, Order], SendOutcome]


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One row of the table: how the send fails, what may be said of it, and what the peer then holds."""

    sending: Sending
    kind: SendKind
    effects: int
    headers_started: bool
    # It needs a long body, which only a peer that takes the payload's own bytes gets.
    big: bool = False
    # It needs a peer that keeps a connection open for the next request.
    kept: bool = False

    def can_happen_at(self, subject: Subject) -> bool:
        return (subject.takes_big or not self.big) and (subject.keeps_connections or not self.kept)


def struck_by(fault: Fault, *, within_ms: int = 10_000, payload_bytes: bytes | None = None) -> Sending:
    def send(bench: Bench, order: Order) -> SendOutcome:
        bench.proxy.fault(fault)
        outcome = bench.send(order, within_ms=within_ms, payload_bytes=payload_bytes)
        assert bench.proxy.struck.is_set()
        assert bench.proxy.connections == 1, "one call is one connection: nothing is retried"
        return outcome

    return send


def to_an_unknown_name(bench: Bench, order: Order) -> SendOutcome:
    bench.move("http://no-such-host.invalid")
    return bench.send(order)


def to_a_closed_port(bench: Bench, order: Order) -> SendOutcome:
    with create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    bench.move(f"http://127.0.0.1:{port}")
    return bench.send(order)


def to_a_full_queue(bench: Bench, order: Order) -> SendOutcome:
    """With its queue of pending connections full, Linux drops further requests to connect."""
    full = socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    pending = [socket() for _ in range(4)]
    try:
        for one in pending:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        bench.move(f"http://127.0.0.1:{full.getsockname()[1]}")
        return bench.send(order, within_ms=SHORT_MS)
    finally:
        for one in [*pending, full]:
            one.close()


def without_a_free_connection(bench: Bench, order: Order) -> SendOutcome:
    bench.move(bench.proxy.url, sending=Transport(keep_alive=False, connections_max=1))
    bench.proxy.fault(Fault(where=Where.CONNECT, how=How.DELAY))
    other = bench.order()
    first = Thread(target=bench.send, args=(other,))
    first.start()
    assert bench.proxy.struck.wait(WAIT_SECONDS)
    outcome = bench.send(order, within_ms=SHORT_MS)
    bench.proxy.release()
    first.join(WAIT_SECONDS)
    assert len(bench.held(other)) == 1
    return outcome


def over_tls_that_nobody_answers(bench: Bench, order: Order) -> SendOutcome:
    bench.move(bench.proxy.url.replace("http://", "https://"))
    return struck_by(Fault(where=Where.CONNECT, how=How.HANG), within_ms=SHORT_MS)(bench, order)


def over_a_kept_connection_that_dies(bench: Bench, order: Order) -> SendOutcome:
    bench.move(bench.proxy.url, sending=Transport(keep_alive=True))
    bench.receipt(bench.send(bench.order()))
    bench.proxy.fault_open(Fault(where=Where.REPLY, how=How.CLOSE))
    outcome = bench.send(order)
    assert bench.proxy.struck.is_set()
    assert bench.proxy.connections == 1
    return outcome


def _not_sent(sending: Sending) -> Failure:
    return Failure(sending=sending, kind=SendKind.NOT_SENT, effects=0, headers_started=False)


def _unknown(sending: Sending, *, effects: int, big: bool = False, kept: bool = False) -> Failure:
    return Failure(
        sending=sending,
        kind=SendKind.UNKNOWN,
        effects=effects,
        headers_started=True,
        big=big,
        kept=kept,
    )


FAILURES = {
    "the name doesn't resolve": _not_sent(to_an_unknown_name),
    "connection refused": _not_sent(to_a_closed_port),
    "connecting times out": _not_sent(to_a_full_queue),
    "no free connection": _not_sent(without_a_free_connection),
    "TLS is never answered": _not_sent(over_tls_that_nobody_answers),
    "closes before reading": _unknown(struck_by(Fault(where=Where.CONNECT, how=How.CLOSE)), effects=0),
    "reads all, then closes": _unknown(struck_by(Fault(where=Where.REPLY, how=How.CLOSE)), effects=1),
    "reads all, then resets": _unknown(struck_by(Fault(where=Where.REPLY, how=How.RESET)), effects=1),
    "reads all, then hangs": _unknown(
        struck_by(Fault(where=Where.REPLY, how=How.HANG), within_ms=LONG_MS), effects=1
    ),
    "a kept connection dies": _unknown(over_a_kept_connection_that_dies, effects=1, kept=True),
    "resets in mid body": _unknown(
        struck_by(Fault(where=Where.REQUEST, how=How.RESET, after_bytes=500_000), payload_bytes=LONG_PAYLOAD),
        effects=0,
        big=True,
    ),
    "never reads": _unknown(
        struck_by(Fault(where=Where.CONNECT, how=How.HANG), within_ms=SHORT_MS, payload_bytes=BIG_PAYLOAD),
        effects=0,
        big=True,
    ),
    "answer cut off in its head": _unknown(
        struck_by(Fault(where=Where.REPLY, how=How.CLOSE, after_bytes=25)), effects=1
    ),
    "answer cut off in its body": _unknown(
        struck_by(Fault(where=Where.REPLY, how=How.CLOSE, after_bytes=5, in_body=True)), effects=1
    ),
    "answer hangs in its body": _unknown(
        struck_by(Fault(where=Where.REPLY, how=How.HANG, after_bytes=5, in_body=True), within_ms=LONG_MS),
        effects=1,
    ),
}


def fails(bench: Bench, failure: Failure) -> None:
    """The send fails in this way; our word for it, the peer's count, and what a lookup then concludes."""
    order = bench.order()
    outcome = failure.sending(bench, order)
    assert outcome.kind is failure.kind, outcome.summary
    assert outcome.exchange.headers_started is failure.headers_started
    bench.proxy.clear()
    held = bench.held(order)
    assert len(held) == failure.effects
    bench.move(bench.proxy.url)
    finding = bench.look_up(order)
    if held:
        assert_shows(bench, finding, held[0])
    else:
        assert isinstance(finding, NotFound), finding.summary
        assert not finding.proof
