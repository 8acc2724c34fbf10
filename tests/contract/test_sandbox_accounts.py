"""The shipped sandbox accounts against the real sandbox process: what we say, and what really happened.

What every adapter is put through is in test_contract.py; here is what only the sandbox can be made to do.
The sandbox counts requests and effects by itself, so each test can hold our conclusion against the truth.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from console.sandbox.control import SandboxControl
from console.sandbox.process import SandboxProcess
from console.sandbox.records import Counts, Status
from reconciliation.providers.base import (
    Found,
    Inconclusive,
    MatchedBy,
    Mismatch,
    NotFound,
    OutgoingOperation,
    Pending,
    Question,
    ReceiptSeen,
    Refused,
    RejectedSeen,
    SendKind,
    SendOutcome,
    Several,
    Unavailable,
    UnknownSeen,
    elapsed_seconds,
)
from reconciliation.providers.declaration import read_file
from reconciliation.providers.http_declared import HttpDeclared
from reconciliation.providers.registry import SHIPPED
from runs.canonical import canonical_bytes
from runs.ids import new_id
from runs.money import Money
from tests.contract.fault_server import WAIT_SECONDS

KEYED = ["supplier", "payments", "desk", "mail", "legacy"]
ORDER: dict[str, Any] = {"sku": "PUMP-7", "quantity": 2, "amount_minor": 124_000, "currency": "EUR"}
AMOUNT = Money("EUR", 124_000)
SENT_AT = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
HANG_MS = 700


@pytest.fixture(scope="module")
def sandbox_process() -> Iterator[SandboxProcess]:
    process = SandboxProcess.start()
    yield process
    process.stop()


@pytest.fixture
def control(sandbox_process: SandboxProcess) -> Iterator[SandboxControl]:
    with SandboxControl(sandbox_process.url) as control:
        control.reset()
        control.set_account("courier", honours_keys=False, lookup="none", echoes_key=False)
        control.set_account("legacy", key_window_ms=20_000)
        yield control


class Account:
    """One shipped account: its adapter, and one operation at it."""

    def __init__(self, name: str, control: SandboxControl) -> None:
        declared = read_file(
            SHIPPED / f"sandbox-{name}.toml",
            shown_as=f"sandbox-{name}.toml",
            environ={"SANDBOX_URL": control.url},
        )
        self.name = name
        self.adapter = HttpDeclared(declared)
        self.control = control
        self.key = f"rk-{new_id('t').lower().replace('_', '-')}"

    def send(
        self, payload: dict[str, Any] = ORDER, *, attempt: int = 1, within_ms: int = 5_000
    ) -> SendOutcome:
        return self.adapter.send(
            OutgoingOperation(
                operation_id="op_1",
                idempotency_key=self.key,
                tool="order",
                payload_bytes=canonical_bytes(payload),
                payload=payload,
                amount=AMOUNT,
                attempt_id=f"attempt-{attempt}",
                attempt_number=attempt,
                start_by=elapsed_seconds() + 5,
                request_within_ms=within_ms,
            )
        )

    def question(self, *, asked_after_ms: int = 60_000) -> Question:
        return Question(
            operation_id="op_1",
            idempotency_key=self.key,
            tool="order",
            payload=ORDER,
            amount=AMOUNT,
            first_sent_at=SENT_AT,
            last_quiet_at=self.adapter.contract.quiet_at(SENT_AT),
            asked_at=SENT_AT + timedelta(milliseconds=asked_after_ms),
        )

    def fault(self, fault: str, *, times: int = 1) -> None:
        self.control.fault(fault, account=self.name, times=times)

    def counts(self) -> Counts:
        return self.control.stats(self.name)


@pytest.fixture
def accounts(control: SandboxControl) -> Iterator[dict[str, Account]]:
    made = {name: Account(name, control) for name in [*KEYED, "courier"]}
    yield made
    for one in made.values():
        one.adapter.close()


@pytest.mark.parametrize("name", KEYED)
def test_a_send_brings_a_receipt_that_names_the_key_and_a_lookup_finds_the_same(
    name: str, accounts: dict[str, Account]
) -> None:
    account = accounts[name]
    sent = account.send()
    assert isinstance(sent, ReceiptSeen), sent.summary
    assert sent.receipt.matched_by is MatchedBy.KEY
    assert sent.receipt.amount == AMOUNT
    found = account.adapter.look_up(account.question())
    assert isinstance(found, Found), found.summary
    assert found.receipts[0].reference == sent.receipt.reference
    assert account.counts() == Counts(requests=1, effects=1, lookups=1)


@pytest.mark.parametrize("name", KEYED)
def test_the_same_key_for_another_payload_is_no_refusal_of_ours(
    name: str, accounts: dict[str, Account]
) -> None:
    account = accounts[name]
    account.send({**ORDER, "quantity": 3})
    outcome = account.send(attempt=2)
    assert isinstance(outcome, UnknownSeen)
    assert outcome.exchange.status == 422
    assert isinstance(account.adapter.look_up(account.question()), Mismatch)
    assert account.counts().effects == 1


def test_of_concurrent_first_sends_each_says_what_it_knows_and_one_effect_is_made(
    accounts: dict[str, Account],
) -> None:
    account = accounts["supplier"]
    outcomes: list[SendOutcome] = []
    with account.control.hold("before_commit", account=account.name) as hold:
        first = threading.Thread(target=lambda: outcomes.append(account.send()))
        first.start()
        hold.wait()
        second = account.send(attempt=2)
        hold.release()
        first.join(WAIT_SECONDS)
    assert isinstance(second, UnknownSeen)
    assert second.exchange.status == 409
    assert isinstance(outcomes[0], ReceiptSeen)
    assert (account.counts().requests, account.counts().effects) == (2, 1)


LOST_REPLIES = [
    "drop_reply",
    "reset;after",
    "truncate",
    "garbage",
    "error_500_after_commit",
    "hang_after_commit",
]


@pytest.mark.parametrize("fault", LOST_REPLIES)
def test_a_lost_reply_is_unknown_and_the_lookup_finds_the_effect_without_another(
    fault: str, accounts: dict[str, Account]
) -> None:
    account = accounts["supplier"]
    account.fault(fault)
    assert isinstance(account.send(within_ms=HANG_MS), UnknownSeen)
    found = account.adapter.look_up(account.question())
    assert isinstance(found, Found), found.summary
    assert account.counts() == Counts(requests=1, effects=1, lookups=1)


NEVER_COMMITTED = ["reset", "error_500_before_commit", "garbage_without_commit", "hang_before_commit"]


@pytest.mark.parametrize("fault", NEVER_COMMITTED)
def test_a_request_without_effect_is_unknown_too_and_not_found_is_no_proof(
    fault: str, accounts: dict[str, Account]
) -> None:
    account = accounts["supplier"]
    account.fault(fault)
    assert isinstance(account.send(within_ms=HANG_MS), UnknownSeen)
    finding = account.adapter.look_up(account.question())
    assert isinstance(finding, NotFound)
    assert not finding.proof
    assert account.counts() == Counts(requests=1, effects=0, lookups=1)


def test_absence_is_proof_at_the_desk_and_only_after_quiet_time_and_lag(accounts: dict[str, Account]) -> None:
    account = accounts["desk"]
    contract = account.adapter.contract
    provable_ms = (
        contract.start_within_ms
        + contract.request_within_ms
        + contract.in_flight_bound_ms
        + (contract.visibility_lag_ms or 0)
    )
    early = account.adapter.look_up(account.question(asked_after_ms=provable_ms - 1))
    late = account.adapter.look_up(account.question(asked_after_ms=provable_ms))
    assert isinstance(early, NotFound)
    assert isinstance(late, NotFound)
    assert (early.proof, late.proof) == (False, True)
    assert early.evidence_digest != late.evidence_digest


def test_a_refusal_of_a_repeat_says_nothing_about_an_effect_that_was_made(
    accounts: dict[str, Account],
) -> None:
    account = accounts["payments"]
    account.fault("drop_reply")
    account.send()
    account.fault("refuse")
    outcome = account.send(attempt=2)
    assert isinstance(outcome, RejectedSeen)
    assert not outcome.speaks_for_first
    assert account.counts().effects == 1


def test_a_rate_limit_is_unknown_and_says_how_long(accounts: dict[str, Account]) -> None:
    account = accounts["mail"]
    account.fault("rate_limited;7")
    outcome = account.send()
    assert isinstance(outcome, UnknownSeen)
    assert outcome.retry_after_ms == 7_000


def test_a_redirect_is_unknown_and_nobody_follows_it(accounts: dict[str, Account]) -> None:
    account = accounts["mail"]
    account.fault("redirect")
    assert isinstance(account.send(), UnknownSeen)
    assert account.control.stats("redirected").requests == 0


def test_another_payload_applied_is_seen_in_the_reply_and_in_the_lookup(accounts: dict[str, Account]) -> None:
    account = accounts["supplier"]
    account.fault("other_payload;quantity=3")
    outcome = account.send()
    assert isinstance(outcome, UnknownSeen)
    assert outcome.receipt is not None
    assert [one.path for one in outcome.receipt.differences] == ["$.quantity"]
    finding = account.adapter.look_up(account.question())
    assert isinstance(finding, Mismatch)
    assert [(one.intended, one.seen) for one in finding.receipts[0].differences] == [("2", "3")]


def test_another_amount_applied_is_a_mismatch_of_field_and_amount(accounts: dict[str, Account]) -> None:
    account = accounts["payments"]
    account.fault("other_payload;amount_minor=999")
    account.send()
    finding = account.adapter.look_up(account.question())
    assert isinstance(finding, Mismatch)
    assert {one.path for one in finding.receipts[0].differences} == {"$.amount_minor", "amount"}


def test_an_effect_applied_twice_is_several(accounts: dict[str, Account]) -> None:
    account = accounts["supplier"]
    account.fault("twice")
    account.fault("drop_reply")
    account.send()
    finding = account.adapter.look_up(account.question())
    assert isinstance(finding, Several)
    assert len(finding.receipts) == 2
    assert account.counts().effects == 2


def test_a_pending_effect_is_pending_until_it_is_settled(accounts: dict[str, Account]) -> None:
    account = accounts["payments"]
    account.fault("status;pending")
    assert isinstance(account.send(), UnknownSeen)
    pending = account.adapter.look_up(account.question())
    assert isinstance(pending, Pending)
    effect = account.control.effects(account.name)[0]
    account.control.settle(effect.id, Status.SUCCEEDED)
    assert isinstance(account.adapter.look_up(account.question()), Found)


def test_a_failed_effect_is_a_refusal_in_reply_and_lookup(accounts: dict[str, Account]) -> None:
    account = accounts["payments"]
    account.fault("status;failed")
    assert isinstance(account.send(), RejectedSeen)
    assert isinstance(account.adapter.look_up(account.question()), Refused)
    assert account.counts().effects == 0


def test_after_its_window_the_same_key_is_a_second_effect_as_the_contract_warns(
    accounts: dict[str, Account],
) -> None:
    account = accounts["legacy"]
    contract = account.adapter.contract
    ends_at = contract.key_ends_at(SENT_AT)
    assert ends_at is not None
    assert ends_at < SENT_AT + timedelta(seconds=20)
    account.fault("drop_reply")
    account.send()
    account.control.advance_clock(by_ms=20_001)
    repeat = account.send(attempt=2)
    assert isinstance(repeat, ReceiptSeen)
    assert not repeat.replayed
    assert account.counts().effects == 2
    assert isinstance(account.adapter.look_up(account.question()), Several)


def test_the_courier_honours_no_key_and_can_not_be_asked(accounts: dict[str, Account]) -> None:
    account = accounts["courier"]
    first, second = account.send(), account.send(attempt=2)
    assert isinstance(first, ReceiptSeen)
    assert isinstance(second, ReceiptSeen)
    assert first.receipt.matched_by is MatchedBy.REPLY_ONLY
    assert first.receipt.reference != second.receipt.reference
    assert account.counts() == Counts(requests=2, effects=2, lookups=0)
    finding = account.adapter.look_up(account.question())
    assert isinstance(finding, Inconclusive)
    assert account.counts().lookups == 0


@pytest.mark.parametrize(
    ("fault", "kind", "reason"),
    [
        ("lookup_500", Unavailable, "failing"),
        ("lookup_429;9", Unavailable, "overloaded"),
        ("lookup_drop", Unavailable, "unreachable"),
        ("lookup_hang", Unavailable, "unreachable"),
        ("lookup_garbage", Inconclusive, "unreadable"),
    ],
)
def test_a_lookup_that_fails_concludes_nothing(
    fault: str, kind: type[Unavailable | Inconclusive], reason: str, accounts: dict[str, Account]
) -> None:
    account = accounts["supplier"]
    account.send()
    account.fault(fault)
    finding = account.adapter.look_up(account.question())
    assert isinstance(finding, kind)
    assert finding.reason == reason  # type: ignore[union-attr]
    assert account.counts().effects == 1


def test_a_lookup_after_a_dropped_one_takes_a_connection_that_works(
    accounts: dict[str, Account],
) -> None:
    account = accounts["supplier"]
    account.send()
    for _ in range(3):
        account.fault("lookup_drop")
        assert isinstance(account.adapter.look_up(account.question()), Unavailable)
        assert isinstance(account.adapter.look_up(account.question()), Found)


def test_a_lookup_never_changes_anything(accounts: dict[str, Account]) -> None:
    account = accounts["supplier"]
    for _ in range(5):
        account.adapter.look_up(account.question())
    assert account.counts() == Counts(requests=0, effects=0, lookups=5)


def test_a_provider_that_is_gone_was_sent_nothing_and_can_not_be_asked() -> None:
    process = SandboxProcess.start()
    with SandboxControl(process.url) as control:
        account = Account("supplier", control)
    process.stop()
    assert account.send().kind is SendKind.NOT_SENT
    assert isinstance(account.adapter.look_up(account.question()), Unavailable)
    account.adapter.close()


def test_an_account_that_wants_a_token_gets_the_one_from_the_environment(
    control: SandboxControl, tmp_path_factory: pytest.TempPathFactory
) -> None:
    control.set_account("supplier", requires_auth="tok-12345678")
    text = (SHIPPED / "sandbox-supplier.toml").read_text()
    path = tmp_path_factory.mktemp("declared") / "with-token.toml"
    secret = (
        '[credentials]\ntoken = { env = "TOKEN" }\n\n[headers]\nAuthorization = "Bearer {secret.token}"\n\n'
    )
    path.write_text(text.replace("[contract]", secret + "[contract]", 1))
    right = {"SANDBOX_URL": control.url, "TOKEN": "tok-12345678"}
    account = Account("supplier", control)
    without = account.send()
    assert isinstance(without, RejectedSeen)
    account.adapter.close()
    account.adapter = HttpDeclared(read_file(path, shown_as="with-token.toml", environ=right))
    sent = account.send()
    account.adapter.close()
    assert isinstance(sent, ReceiptSeen)
    assert "tok-12345678" not in repr(sent)
