"""The six sandbox accounts at the sandbox provider, which is ours and counts for itself."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from console.sandbox.control import SandboxControl
from reconciliation.contracts import KeyFormat
from reconciliation.providers.base import Found, NotFound, SendOutcome, UnknownSeen
from runs.ids import new_id
from runs.money import Money
from tests.contract.bench import Bench, DeclaredBench, Order
from tests.contract.matrix import Case, Check, Subject
from tests.contract.peers.servers import Peers
from tests.contract.suite import NEEDS_A_QUESTION, NOBODY_LISTS, closes_the_window
from tests.fault_proxy import Fault, How, Where

PEER = "sandbox provider"
# The accounts whose contract allows for a lag that a test can wait out.
LAGGING = ("desk",)


class SandboxBench(DeclaredBench):
    """One account of the sandbox."""

    url_name = "SANDBOX_URL"
    marks_replays = True

    def __init__(self, peer_url: str, *, account: str) -> None:
        self.name = account
        self.slug = f"sandbox-{account}"
        self.control = SandboxControl(peer_url)
        self.control.reset(account)
        super().__init__(peer_url)
        self.kind = self.adapter.account.endpoint.rpartition("/")[2]
        if self.contract.key_format is KeyFormat.NONE:
            self.control.set_account(account, honours_keys=False, lookup="none", echoes_key=False)
            self.effects_of_a_repeat = 2
            self.marks_replays = False
        if account == "legacy":
            self.control.set_account(account, key_window_ms=self.contract.dedup_window_ms)

    def close(self) -> None:
        super().close()
        self.control.close()

    def now(self) -> datetime:
        """The sandbox's clock, which tests move for good."""
        return datetime.fromisoformat(self.peer("GET", "/admin/clock")["now"])

    def order(self) -> Order:
        sku = new_id("sku")
        payload = {"sku": sku, "quantity": 2, "amount_minor": 124_000, "currency": "EUR"}
        return Order(
            tool="order",
            payload=payload,
            other={**payload, "quantity": 3},
            amount=Money("EUR", 124_000),
            place=sku,
        )

    def held(self, order: Order) -> list[str]:
        effects = self.control.effects(self.name)
        held = [one.id for one in effects if one.receipt["sku"] == order.place]
        assert self.control.stats(self.name).effects == len(effects)
        return held

    def requests(self) -> int | None:
        return self.control.stats(self.name).requests

    def send_refused(self, order: Order) -> SendOutcome:
        self.control.fault("refuse", account=self.name)
        return self.send(order)

    def send_duplicate(self, order: Order) -> SendOutcome:
        if self.contract.key_format is KeyFormat.NONE:
            return self.send(order, attempt=2)
        # Somebody at the provider made it by hand as well.
        self.control.make_by_hand(
            self.kind, order.payload, account=self.name, key=order.key if self.contract.has_lookup else None
        )
        return self.send(order, attempt=2)


def shows_after_its_lag(bench: Bench) -> None:
    """A new effect stays hidden for as long as the contract allows for, and until then nothing is proved."""
    assert isinstance(bench, SandboxBench)
    lag_ms = bench.contract.visibility_lag_ms
    assert lag_ms
    bench.control.set_account(bench.name, lookup_lag_ms=lag_ms)
    order = bench.order()
    bench.proxy.fault(Fault(where=Where.REPLY, how=How.CLOSE))
    assert isinstance(bench.send(order), UnknownSeen)
    hidden = bench.look_up(order, asked_after_ms=0)
    assert isinstance(hidden, NotFound), hidden.summary
    assert not hidden.proof
    bench.control.advance_clock(by_ms=lag_ms)
    assert isinstance(bench.look_up(order), Found)


def closes_its_window(bench: Bench) -> None:
    assert isinstance(bench, SandboxBench)
    bench.control.set_account(bench.name, key_window_ms=bench.contract.dedup_window_ms)
    control = bench.control
    closes_the_window(bench, lambda by_ms: control.advance_clock(by_ms=by_ms))


def repeats_twice(bench: Bench) -> None:
    """Without a key there is no window to close: a repeat is a second effect from the first moment on."""
    order = bench.order()
    assert bench.contract.key_ends_at(order.first_sent_at) is None
    bench.receipt(bench.send(order))
    bench.receipt(bench.send(order, attempt=2))
    assert len(bench.held(order)) == 2


def _bench(account: str) -> Callable[[Peers], Bench]:
    return lambda peers: SandboxBench(peers.sandbox(), account=account)


def _keyed(account: str) -> Subject:
    return Subject(
        adapter=f"sandbox-{account}",
        peer=PEER,
        independent=False,
        bench=_bench(account),
        cases={
            **{case: Check() for case in Case if case is not Case.LAG},
            **({Case.LAG: Check(run=shows_after_its_lag)} if account in LAGGING else {}),
            Case.CLOSED_WINDOW: Check(run=closes_its_window),
        },
        not_run={} if account in LAGGING else {Case.LAG: "its effects show at once"},
        takes_big=True,
    )


COURIER = Subject(
    adapter="sandbox-courier",
    peer=PEER,
    independent=False,
    bench=_bench("courier"),
    cases={
        **{case: Check() for case in Case if case not in NEEDS_A_QUESTION},
        Case.CLOSED_WINDOW: Check(run=repeats_twice),
    },
    not_run={
        Case.ABSENCE: "it can't be asked",
        Case.LAG: "it can't be asked",
        Case.LISTED: NOBODY_LISTS,
    },
)

SUPPLIER = _keyed("supplier")
SUBJECTS = (SUPPLIER, *(_keyed(name) for name in ("payments", "desk", "mail", "legacy")), COURIER)
