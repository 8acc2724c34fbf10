"""Real client processes, killed and stopped at the instants that matter, against a STUB of the journal.

The stub stands in for the journal only to hold its answers still while a process is killed. The same
windows against the real journal are the crash tests' business.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from recourse_client import Client, JournalUnreachable, Patience
from tests.unit.client.stub_journal import TOKEN, StubJournal, stub_journal

pytestmark = pytest.mark.crash
ROOT = Path(__file__).resolve().parents[2]
AGENT = Path(__file__).with_name("client_agent.py")
START_WITHIN_MS = 1_500


class Provider:
    """Takes orders and counts them; holds its answers while `gate` is shut."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.arrived = threading.Event()
        self.gate = threading.Event()
        self.gate.set()
        self.url = ""


@pytest.fixture
def stub() -> Iterator[StubJournal]:
    with stub_journal(start_within_ms=START_WITHIN_MS, request_within_ms=30_000) as served:
        yield served


@pytest.fixture
def shop() -> Iterator[Provider]:
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            provider.keys.append(self.headers["Idempotency-Key"])
            provider.arrived.set()
            provider.gate.wait(30)
            self.send_response(201)
            self.send_header("Content-Length", "14")
            self.end_headers()
            self.wfile.write(b'{"id":"ord_1"}')

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    provider.url = f"http://127.0.0.1:{server.server_address[1]}/"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield provider
    provider.gate.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def command(stub: StubJournal, spool: Path) -> Callable[..., subprocess.Popen[str]]:
    def start(*arguments: str) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "clients" / "python" / "src"),
            "RECOURSE_URL": stub.url,
            "RECOURSE_TOKEN": TOKEN,
            "RECOURSE_SPOOL": str(spool),
        }
        return subprocess.Popen(
            [sys.executable, "-W", "error", *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start


@contextmanager
def agent(command: Callable[..., subprocess.Popen[str]], shop: Provider) -> Iterator[subprocess.Popen[str]]:
    process = command(str(AGENT), shop.url)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    assert process.wait(10) == -signal.SIGKILL


def stop(process: subprocess.Popen[str]) -> None:
    """SIGSTOP, and wait until the process has really stopped."""
    process.send_signal(signal.SIGSTOP)
    stat = Path(f"/proc/{process.pid}/stat")
    ends_at = time.monotonic() + 10
    while stat.read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < ends_at
        time.sleep(0.005)


def ended(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=30)
    return output.strip().splitlines()[-1]


def test_an_undisturbed_agent_orders_once(
    command: Callable[..., subprocess.Popen[str]], stub: StubJournal, shop: Provider, spool: Path
) -> None:
    with agent(command, shop) as process:
        assert ended(process) == "ended with ord_1"
    assert shop.keys == ["key-op_1"]
    assert list(spool.glob("*.json")) == []


def test_a_report_survives_the_kill_of_its_process_and_the_next_start_delivers_it(
    command: Callable[..., subprocess.Popen[str]], stub: StubJournal, shop: Provider, spool: Path
) -> None:
    delivery = stub.fault("POST .*/receipt$", "stall")
    with agent(command, shop) as process:
        assert delivery.reached.wait(20)
        kill(process)
    delivery.release.set()
    (kept,) = spool.glob("*.json")
    assert kept.name.endswith("-receipt.json")
    assert stub.only_operation().state == "sent_unknown"
    stub.end_lease()

    with agent(command, shop) as process:
        assert ended(process) == "ended with ord_1"
    assert shop.keys == ["key-op_1"]
    assert stub.only_operation().state == "confirmed"
    assert list(spool.glob("*.json")) == []
    first, second = stub.calls("/receipt$")
    assert first.content == second.content


def test_a_kill_before_the_reply_leaves_no_report_and_no_second_request(
    command: Callable[..., subprocess.Popen[str]], stub: StubJournal, shop: Provider, spool: Path
) -> None:
    shop.gate.clear()
    with agent(command, shop) as process:
        assert shop.arrived.wait(20)
        kill(process)
    stub.end_lease()
    shop.gate.set()
    with agent(command, shop) as process:
        assert ended(process) == "ended with RunPaused"
    assert shop.keys == ["key-op_1"]
    assert list(spool.glob("*.json")) == []


def test_a_process_stopped_between_go_and_sending_does_not_start(
    command: Callable[..., subprocess.Popen[str]], stub: StubJournal, shop: Provider
) -> None:
    go = stub.fault("POST .*/send$", "hold")
    with agent(command, shop) as process:
        assert go.reached.wait(20)
        began = time.monotonic()
        stop(process)
        go.release.set()
        # Time itself is what is tested here: the window has to pass while the process stands still.
        time.sleep(max(0.0, began + START_WITHIN_MS / 1000 - time.monotonic()))
        process.send_signal(signal.SIGCONT)
        assert ended(process) == "ended with StartWindowPassed"
    assert shop.keys == []
    assert stub.only_operation().state == "ready"


def test_a_process_stopped_past_its_lease_reports_late_and_starts_nothing_more(
    command: Callable[..., subprocess.Popen[str]], stub: StubJournal, shop: Provider
) -> None:
    shop.gate.clear()
    with agent(command, shop) as process:
        assert shop.arrived.wait(20)
        stop(process)
        stub.end_lease()
        shop.gate.set()
        process.send_signal(signal.SIGCONT)
        assert ended(process) == "ended with ReportedLate"
    assert [found["outcome"] for found in stub.evidence] == ["receipt"]
    assert shop.keys == ["key-op_1"]


def test_ctrl_c_while_sending_is_reported_as_unknown(
    command: Callable[..., subprocess.Popen[str]], stub: StubJournal, shop: Provider
) -> None:
    shop.gate.clear()
    with agent(command, shop) as process:
        assert shop.arrived.wait(20)
        process.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in ended(process)
    assert len(stub.calls("/unknown$")) == 1
    assert stub.only_operation().state == "sent_unknown"


def test_two_processes_that_deliver_one_folder_at_once_do_no_harm(
    command: Callable[..., subprocess.Popen[str]], stub: StubJournal, shop: Provider, spool: Path
) -> None:
    delivery = stub.fault("POST .*/receipt$", "stall")
    with agent(command, shop) as process:
        assert delivery.reached.wait(20)
        kill(process)
    delivery.release.set()
    both = [command("-m", "recourse_client", "spool", str(spool), "--deliver") for _ in range(2)]
    outputs = [process.communicate(timeout=30)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert list(spool.glob("*.json")) == []
    assert stub.only_operation().state == "confirmed"
    assert len({asked.content for asked in stub.calls("/receipt$")}) == 1


def test_a_journal_that_is_down_at_the_start_is_named_and_nothing_is_sent(
    shop: Provider, spool: Path
) -> None:
    quick = Patience(tries_max=2, total_seconds=2, first_pause_seconds=0.01)
    with (
        Client("http://127.0.0.1:9", "token", spool=spool, patience=quick) as client,
        pytest.raises(JournalUnreachable),
        client.run(flow="f", flow_version="1", external_id="x", input={}),
    ):
        pass
    assert shop.keys == []
