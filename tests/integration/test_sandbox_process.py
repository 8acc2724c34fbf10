"""The sandbox as a process: what survives SIGKILL, one store for one process, and how it starts and ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest

from console.sandbox.control import SandboxControl
from console.sandbox.process import ROOT, SandboxDidNotStart, SandboxProcess
from console.sandbox.records import Counts, Lookup
from tests.processes import until
from tests.sandbox_client import ORDER, Sender


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[SandboxProcess]:
    process = SandboxProcess.start(store=tmp_path / "store.sqlite3", log=tmp_path / "stderr")
    yield process
    if process.process.returncode is None:
        process.stop()
    assert (tmp_path / "stderr").read_text() == ""


def open_sender(opened: ExitStack, process: SandboxProcess) -> Sender:
    control = opened.enter_context(process.control())
    return opened.enter_context(closing(Sender(control, "acct")))


@pytest.mark.crash
@pytest.mark.parametrize(("at", "effects"), [("received", 0), ("before_commit", 0), ("after_commit", 1)])
def test_what_was_counted_and_made_survives_sigkill_and_nothing_else_does(
    provider: SandboxProcess, at: str, effects: int
) -> None:
    with ExitStack() as opened:
        sender = open_sender(opened, provider)
        held = sender.control.hold(at, account="acct")  # type: ignore[arg-type]
        answer = sender.background("k")
        held.wait()
        provider.kill()
        with pytest.raises(httpx.TransportError):
            answer.result(20)
    restarted = provider.start_again()
    with ExitStack() as opened:
        opened.callback(restarted.stop)
        sender = open_sender(opened, restarted)
        assert sender.control.stats("acct", key="k") == Counts(requests=1, effects=effects)
        (request,) = sender.control.requests("acct")
        assert request.outcome == ("applied" if effects else None)
        # A key whose request died uncommitted isn't in flight for ever.
        again = sender.send("k")
        assert again.status_code == 201
        assert again.headers.get("Idempotent-Replayed") == ("true" if effects else None)
        assert sender.control.stats("acct", key="k").effects == 1


@pytest.mark.crash
def test_every_answer_given_before_sigkill_under_load_is_kept(provider: SandboxProcess) -> None:
    answered: list[str] = []
    enough = threading.Event()

    def send_until_it_dies(sender: Sender, name: int) -> None:
        try:
            for number in range(10_000):
                answered.append(sender.send(f"{name}-{number}").json()["id"])
                if len(answered) >= 100:
                    enough.set()
        except httpx.TransportError:
            return

    with ExitStack() as opened:
        sender = open_sender(opened, provider)
        sending = [sender.threads.submit(send_until_it_dies, sender, name) for name in range(8)]
        assert enough.wait(60)
        provider.kill()
        for each in sending:
            each.result(30)
    restarted = provider.start_again()
    with ExitStack() as opened:
        opened.callback(restarted.stop)
        control = opened.enter_context(restarted.control())
        kept = {effect.id for effect in control.effects("acct")}
        assert set(answered) <= kept
        counts = control.stats("acct")
        assert counts.requests >= counts.effects == len(kept)
        assert {each.effects for each in control.stats_by_key("acct").values()} <= {0, 1}


@pytest.mark.crash
def test_settings_rules_clock_and_keys_survive_sigkill(provider: SandboxProcess) -> None:
    with ExitStack() as opened:
        sender = open_sender(opened, provider)
        sender.control.set_account("acct", key_window_ms=60_000, lookup=Lookup.NONE)
        sender.control.fault("refuse", account="acct", key="never", times=3)
        sender.send("old")
        sender.control.advance_clock(by_ms=3_600_000)
        first = sender.send("k").json()
        provider.kill()
    restarted = provider.start_again()
    with ExitStack() as opened:
        opened.callback(restarted.stop)
        sender = open_sender(opened, restarted)
        assert sender.control.account("acct")["lookup"] == "none"
        assert [rule["times"] for rule in sender.control.faults()] == [3]
        assert sender.send("k").json() == first
        assert "Idempotent-Replayed" not in sender.send("old").headers


def test_a_second_provider_on_the_same_store_does_not_start(provider: SandboxProcess) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "console.sandbox", "--store", str(provider.store)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (second.returncode, second.stdout) == (1, "")
    assert "another sandbox provider has" in second.stderr
    with provider.control() as control:
        assert control.stats() == Counts()


def test_a_file_that_is_no_store_is_left_alone(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("not a database, but somebody's text, and long enough to be taken for a header " * 20)
    before = precious.read_bytes()
    with pytest.raises(SandboxDidNotStart, match="exit code 1"):
        SandboxProcess.start(store=precious, log=tmp_path / "stderr")
    assert precious.read_bytes() == before
    assert "can't be opened as a sandbox store" in (tmp_path / "stderr").read_text()


def test_a_taken_port_is_named(provider: SandboxProcess, tmp_path: Path) -> None:
    log = tmp_path / "second"
    with pytest.raises(SandboxDidNotStart):
        SandboxProcess.start(store=tmp_path / "other.sqlite3", port=provider.port, log=log)
    assert f"port {provider.port} can't be used" in log.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_in_good_order_with_requests_held_and_hanging(
    provider: SandboxProcess, number: signal.Signals
) -> None:
    with ExitStack() as opened:
        sender = open_sender(opened, provider)
        held = sender.control.hold("before_commit", account="acct", key="held")
        answers = [sender.background("held"), sender.background("hung", fault="hang_before_commit")]
        held.wait()
        sender.control.wait_for_hang(account="acct")
        provider.process.send_signal(number)
        assert provider.process.wait(20) == 0
        for answer in answers:
            with pytest.raises(httpx.TransportError):
                answer.result(20)
    assert provider.process.stdout is not None
    provider.process.stdout.close()


@pytest.mark.crash
def test_it_ends_when_the_process_that_started_it_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from console.sandbox.process import SandboxProcess;"
        f" started = SandboxProcess.start(store=Path({str(tmp_path / 'store.sqlite3')!r}));"
        " print(started.pid, started.url, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid, url = parent.stdout.readline().split()
        assert httpx.get(f"{url}/healthz").status_code == 200
        parent.kill()
    assert any(_is_gone(int(pid)) or is_last for is_last in until(20))
    assert _is_gone(int(pid))


def _is_gone(pid: int) -> bool:
    """True for no process, and for a dead one that nobody has waited for."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in ("Z", "X")


def test_the_management_command_says_one_line_when_it_is_ready(tmp_path: Path) -> None:
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    with subprocess.Popen(
        [sys.executable, "manage.py", "sandbox_provider", "--port", "0"],
        cwd=ROOT,
        env={**environment, "RECOURSE_STATE_DIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        assert said["store"] == str(tmp_path / "sandbox" / "sandbox.sqlite3")
        with SandboxControl(said["url"]) as control, closing(Sender(control, "acct")) as sender:
            assert sender.send("k", ORDER).status_code == 201
        process.send_signal(signal.SIGTERM)
        rest, errors = process.communicate(timeout=20)
    assert (process.returncode, rest, errors) == (0, "", "")
