"""Holding a request of the sandbox at a known instant, hanging, clients that leave, and races for a key."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest

from console.sandbox.control import NothingCame, SandboxControl, SandboxHold, SandboxRefused
from console.sandbox.holds import State
from console.sandbox.process import SandboxProcess
from tests.processes import until
from tests.sandbox_client import ORDER, Sender


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxControl]:
    folder = tmp_path_factory.mktemp("sandbox")
    process = SandboxProcess.start(store=folder / "store.sqlite3", log=folder / "stderr")
    with process.control() as control:
        yield control
    assert process.stop() == 0
    assert (folder / "stderr").read_text() == ""


@pytest.fixture
def sender(control: SandboxControl, unique: str) -> Iterator[Sender]:
    with closing(Sender(control, unique)) as sender:
        yield sender


def hold(sender: Sender, at: object, **scope: str) -> SandboxHold:
    return sender.control.hold(at, account=sender.account, **scope)  # type: ignore[arg-type]


def counts(sender: Sender, key: str | None = None) -> tuple[int, int]:
    stats = sender.control.stats(sender.account, key=key)
    return stats.requests, stats.effects


def outcome(sender: Sender, key: str) -> str | None:
    """The outcome of the last request with this key, once it has one."""
    for is_last in until(10):
        found = sender.control.requests(sender.account, key=key)[-1].outcome
        if found is not None or is_last:
            return found
    raise AssertionError


@pytest.mark.parametrize(("at", "effects"), [("received", 0), ("before_commit", 0), ("after_commit", 1)])
def test_a_held_request_is_counted_and_its_effect_made_only_past_the_commit(
    sender: Sender, at: str, effects: int
) -> None:
    with hold(sender, at, key="k") as held:
        answer = sender.background("k")
        view = held.wait()
        assert (view.state, view.account, view.kind, view.key) == (State.HELD, sender.account, "orders", "k")
        assert counts(sender, "k") == (1, effects)
        assert len(sender.found("k")) == effects
        assert not answer.done()
    assert answer.result(20).status_code == 201
    assert counts(sender, "k") == (1, 1)
    assert held.view().state is State.RELEASED


def test_while_the_first_is_before_its_commit_the_same_key_is_in_flight(sender: Sender) -> None:
    with hold(sender, "before_commit", key="k") as held:
        first = sender.background("k")
        held.wait()
        assert (sender.send("k").status_code, sender.send("k", {"quantity": 1}).status_code) == (409, 422)
        assert sender.send("k").json()["error"]["code"] == "in_flight"
    assert first.result(20).status_code == 201
    assert sender.send("k").headers["Idempotent-Replayed"] == "true"
    assert counts(sender, "k") == (5, 1)


def test_once_the_first_is_past_its_commit_the_same_key_is_replayed(sender: Sender) -> None:
    with hold(sender, "after_commit", key="k") as held:
        first = sender.background("k")
        held.wait()
        assert sender.send("k").headers["Idempotent-Replayed"] == "true"
    assert first.result(20).content == sender.send("k").content


@pytest.mark.parametrize("at", ["received", "before_commit", "after_commit"])
def test_a_held_request_goes_on_after_its_client_died(sender: Sender, at: str) -> None:
    held = hold(sender, at)
    connection = sender.open_request("k")
    held.wait()
    connection.close()
    held.release()
    assert outcome(sender, "k") == "applied"
    assert counts(sender, "k") == (1, 1)


def test_a_hold_takes_one_request_of_its_scope_and_lets_all_others_pass(sender: Sender) -> None:
    with hold(sender, "before_commit", kind="refunds", key="k") as held:
        assert sender.send("k").status_code == 201
        assert sender.send("other", kind="refunds").status_code == 201
        assert held.view().state is State.WAITING
        waiting = sender.background("k2", kind="refunds", fault="ignore_key")
        assert waiting.result(20).status_code == 201
        taken = sender.background("k", kind="refunds", fault="ignore_key")
        held.wait()
        assert sender.send("k", kind="refunds", fault="ignore_key").status_code == 201
        assert not taken.done()
    assert taken.result(20).status_code == 201


def test_a_withdrawn_hold_takes_nobody_and_says_so_to_who_waits(sender: Sender) -> None:
    held = hold(sender, "received")
    assert held.release().state is State.RELEASED
    assert sender.send("k").status_code == 201
    with pytest.raises(NothingCame):
        held.wait(within_seconds=5)


def test_waiting_for_a_request_that_never_comes_ends_in_time(sender: Sender) -> None:
    with hold(sender, "received") as held, pytest.raises(NothingCame):
        held.wait(within_seconds=0.1)


def test_a_hold_nobody_placed_is_not_found(control: SandboxControl) -> None:
    with pytest.raises(SandboxRefused, match="404"):
        control.release("hold_none")


def test_a_held_lookup_keeps_the_answer_it_had(sender: Sender) -> None:
    with hold(sender, "lookup_before_reply") as held:
        answer = sender.threads.submit(sender.found, "k")
        held.wait()
        sender.send("k")
        assert len(sender.found("k")) == 1
    assert answer.result(20) == []


def test_a_lookup_held_on_arrival_sees_what_was_made_meanwhile(sender: Sender) -> None:
    with hold(sender, "lookup_received") as held:
        answer = sender.threads.submit(sender.found, "k")
        held.wait()
        sender.send("k")
    assert len(answer.result(20)) == 1


def test_a_reset_ends_what_is_held_without_effect_or_answer(sender: Sender) -> None:
    held = hold(sender, "before_commit")
    answer = sender.background("k")
    held.wait()
    sender.control.reset(sender.account)
    with pytest.raises(httpx.RemoteProtocolError):
        answer.result(20)
    assert held.view().state is State.FORGOTTEN
    assert counts(sender) == (0, 0)


# --- Hangs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "effects", "ends"),
    [("hang_before_commit", 0, "client_left"), ("hang_after_commit", 1, "applied")],
)
def test_a_hang_ends_when_its_client_leaves_and_makes_no_effect_then(
    sender: Sender, fault: str, effects: int, ends: str
) -> None:
    sender.control.fault(fault, account=sender.account, key="k")
    connection = sender.open_request("k")
    hang = sender.control.wait_for_hang(account=sender.account, key="k")
    assert (hang.at, hang.is_fault) == (fault, True)
    assert counts(sender, "k") == (1, effects)
    connection.close()
    assert sender.control.wait_until_ended(hang.id).state is State.LEFT
    assert outcome(sender, "k") == ends
    assert counts(sender, "k") == (1, effects)
    # The key is free again where nothing was committed, and remembered where it was.
    assert sender.send("k").headers.get("Idempotent-Replayed") == ("true" if effects else None)
    assert counts(sender, "k") == (2, 1)


@pytest.mark.parametrize("fault", ["hang_before_commit", "hang_after_commit"])
def test_a_released_hang_goes_on_and_answers(sender: Sender, fault: str) -> None:
    answer = sender.background("k", fault=fault)
    hang = sender.control.wait_for_hang(account=sender.account)
    sender.control.release(hang.id)
    assert answer.result(20).status_code == 201
    assert counts(sender, "k") == (1, 1)


def test_a_client_that_stays_and_sends_more_does_not_end_a_hang(sender: Sender) -> None:
    sender.control.fault("hang_before_commit", account=sender.account)
    with closing(sender.open_request("k")) as connection:
        hang = sender.control.wait_for_hang(account=sender.account)
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: sandbox\r\n\r\n")
        assert sender.control.hold_view(hang.id).state is State.HELD
        sender.control.release(hang.id)
        answers = b""
        while b'"status":"ok"' not in answers:
            chunk = connection.recv(65536)
            assert chunk, answers
            answers += chunk
    assert answers.startswith(b"HTTP/1.1 201 ")


def test_a_hanging_lookup_is_one_that_times_out(sender: Sender) -> None:
    url = f"{sender.control.account_url(sender.account)}/orders"
    with pytest.raises(httpx.ReadTimeout):
        sender.http.get(
            url, params={"idempotency_key": "k"}, headers={"Sandbox-Fault": "lookup_hang"}, timeout=0.2
        )
    assert outcome(sender, "k") == "client_left"


# --- Races ---------------------------------------------------------------------------------------------


def test_of_32_first_sends_with_one_key_one_makes_the_effect(sender: Sender) -> None:
    together = threading.Barrier(32)

    def race() -> httpx.Response:
        together.wait(20)
        return sender.send("k")

    answers = [racing.result(30) for racing in [sender.threads.submit(race) for _ in range(32)]]
    assert {answer.status_code for answer in answers} <= {201, 409}
    made = [answer for answer in answers if answer.status_code == 201]
    assert len({answer.content for answer in made}) == 1
    assert sum("Idempotent-Replayed" not in answer.headers for answer in made) == 1
    assert counts(sender, "k") == (32, 1)


def test_while_one_is_held_all_31_others_are_told_in_flight(sender: Sender) -> None:
    with hold(sender, "before_commit") as held:
        first = sender.background("k")
        held.wait()
        others = [sender.background("k") for _ in range(31)]
        assert {other.result(30).status_code for other in others} == {409}
    assert first.result(20).status_code == 201
    assert counts(sender, "k") == (32, 1)


def test_32_keys_at_once_are_32_effects(sender: Sender) -> None:
    answers = [sender.background(f"k{number}") for number in range(32)]
    assert {answer.result(30).status_code for answer in answers} == {201}
    assert counts(sender) == (32, 32)
    assert set(sender.control.stats_by_key(sender.account)) == {f"k{number}" for number in range(32)}


def test_a_rule_for_one_request_is_used_by_one_of_many(sender: Sender) -> None:
    sender.control.fault("refuse", account=sender.account)
    answers = [sender.background(f"k{number}", ORDER) for number in range(16)]
    assert sorted(answer.result(30).status_code for answer in answers) == [201] * 15 + [422]
