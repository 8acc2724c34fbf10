"""`manage.py demo` with all its real processes: started, stopped, killed, started again."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psycopg
import pytest

from console.embedded.processes import alive, command_line
from tests.processes import ROOT, Process, Spawn, free_port, until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(480)]

READY = r"Ctrl-C stops everything; the data is kept\. `make demo-reset`"
WITHIN_SECONDS = 180.0
ROLES = ["operator", "approver", "auditor", "administrator"]


@dataclass(frozen=True, kw_only=True)
class Running:
    process: Process
    url: str
    logins: dict[str, str]
    sandbox_url: str


def start(spawn: Spawn, state_dir: Path, *options: str) -> Process:
    environment = {"PATH": os.defpath, "RECOURSE_STATE_DIR": str(state_dir), "PYTHONUNBUFFERED": "1"}
    return spawn.manage("demo", "--no-agents", *options, env=environment)


def ready(process: Process) -> Running:
    process.wait_for(READY, timeout_seconds=WITHIN_SECONDS)
    output = process.output()
    url = re.search(r"running at (http://127\.0\.0\.1:\d+)/$", output, re.MULTILINE)
    sandbox = re.search(r"Sandbox provider: (http://127\.0\.0\.1:\d+)/", output)
    assert url
    assert sandbox
    logins = dict(re.findall(r"^  (operator|approver|auditor|administrator) +(\S+)$", output, re.MULTILINE))
    return Running(process=process, url=url.group(1), logins=logins, sandbox_url=sandbox.group(1))


def processes_of(state_dir: Path) -> list[str]:
    """Living processes that were told of the folder, by argument or environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or not alive(int(entry.name)):
            continue
        try:
            told = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if bytes(state_dir) in told:
            found.append(f"{entry.name}: {command_line(int(entry.name))}")
    return found


def nothing_left(state_dir: Path, *, within_seconds: float = 10) -> bool:
    return any(not processes_of(state_dir) for _ in until(within_seconds))


def stop(process: Process, number: signal.Signals = signal.SIGINT) -> int:
    process.send_signal(number)
    return process.wait(timeout_seconds=40)


@pytest.fixture(scope="module")
def started_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Running]]:
    """A demo's folder after its first start and a Ctrl-C, and what that start said."""
    folder = Path(tempfile.mkdtemp(prefix="recourse-demo-"))
    folder.chmod(0o755)
    spawn = Spawn(tmp_path_factory.mktemp("first-demo"))
    try:
        running = ready(start(spawn, folder / "state"))
        assert stop(running.process) == 0, running.process.output()
        yield folder / "state", running
    finally:
        spawn.stop_all()
        shutil.rmtree(folder)


@pytest.fixture
def state_dir(started_once: tuple[Path, Running]) -> Iterator[Path]:
    """A folder of the test's own, as after a first start."""
    folder = Path(tempfile.mkdtemp(prefix="recourse-demo-"))
    folder.chmod(0o755)
    subprocess.run(["cp", "-a", started_once[0], folder / "state"], check=True)
    yield folder / "state"
    shutil.rmtree(folder)


def owner_url(state_dir: Path) -> str:
    password = (state_dir / "private" / "recourse_owner.password").read_text()
    return f"postgresql://recourse_owner:{password}@/recourse?host={state_dir}/servers/sockets"


def told_as_printed(running: Running, command: str) -> str:
    """What a command of `manage.py` says that is called as the demo's output has it."""
    found = re.search(r"^  (\(.*manage\.py )help\)$", running.process.output(), re.MULTILINE)
    assert found
    line = found.group(1).replace(".venv/bin/python", shlex.quote(sys.executable)) + f"{command})"
    done = subprocess.run(
        ["bash", "-c", line], cwd=ROOT, env={"PATH": os.defpath}, check=True, capture_output=True, text=True
    )
    return done.stdout + done.stderr


def test_the_first_start_shows_progress_and_a_login_for_each_role(
    started_once: tuple[Path, Running],
) -> None:
    _, running = started_once
    assert list(running.logins) == ROLES
    assert len(set(running.logins.values())) == len(ROLES)
    output = running.process.output()
    steps = [
        "Starting PostgreSQL and Valkey",
        "Starting the sandbox",
        "Bringing the database",
        "Starting web",
    ]
    places = [output.index(step) for step in steps]
    assert places == sorted(places)


def test_a_second_start_keeps_addresses_logins_and_data(
    spawn: Spawn, state_dir: Path, started_once: tuple[Path, Running]
) -> None:
    before = started_once[1]
    running = ready(start(spawn, state_dir))
    assert (running.logins, running.sandbox_url) == (before.logins, before.sandbox_url)
    assert httpx.get(running.url).status_code < 500
    assert httpx.get(running.sandbox_url).status_code < 500
    assert "of team demo, read," in told_as_printed(
        running, "createtoken --team demo --scope read --name reader"
    )
    with psycopg.connect(owner_url(state_dir)) as owner:
        owner.execute("INSERT INTO runs_team (slug, name) VALUES ('kept', 'Kept')")
    assert stop(running.process, signal.SIGTERM) == 0
    assert nothing_left(state_dir)
    again = ready(start(spawn, state_dir))
    with psycopg.connect(owner_url(state_dir)) as owner:
        assert owner.execute("SELECT name FROM runs_team WHERE slug = 'kept'").fetchone() == ("Kept",)
    assert stop(again.process) == 0
    assert nothing_left(state_dir)


def test_a_kill_of_the_demo_leaves_nothing_running(spawn: Spawn, state_dir: Path) -> None:
    running = ready(start(spawn, state_dir))
    assert len(processes_of(state_dir)) > 5
    running.process.kill()
    assert nothing_left(state_dir), processes_of(state_dir)


def test_a_kill_of_whoever_started_it_stops_the_demo_too(spawn: Spawn, state_dir: Path) -> None:
    environment = {"PATH": os.defpath, "RECOURSE_STATE_DIR": str(state_dir)}
    command = ["make", "-C", ROOT, "demo", f"DEMO_ARGS=--no-agents --port {free_port()}"]
    make = spawn([shutil.which("make") or "make", *command[1:]], env=environment, name="make")
    ready(make)
    make.kill()
    assert nothing_left(state_dir), processes_of(state_dir)


def test_two_signals_at_once_stop_it_as_one_does(spawn: Spawn, state_dir: Path) -> None:
    # As where a terminal closes: its own signal, and the one for a parent that died of it.
    running = ready(start(spawn, state_dir))
    running.process.send_signal(signal.SIGHUP)
    assert stop(running.process, signal.SIGTERM) == 0
    assert "Traceback" not in running.process.output()
    assert nothing_left(state_dir)


def test_a_busy_port_picks_another(spawn: Spawn, state_dir: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        running = ready(start(spawn, state_dir, "--port", str(port)))
        assert not running.url.endswith(f":{port}")
        assert httpx.get(running.url).status_code < 500
        assert stop(running.process) == 0


def test_a_second_demo_on_the_same_folder_is_refused_and_the_first_serves_on(
    spawn: Spawn, state_dir: Path
) -> None:
    running = ready(start(spawn, state_dir))
    for options in ([], ["--reset"]):
        second = start(spawn, state_dir, *options)
        assert second.wait() != 0
        assert f"already running (started by process {running.process.pid})" in second.output()
    assert httpx.get(running.url).status_code < 500
    assert stop(running.process) == 0


def test_a_process_that_ends_by_itself_ends_the_demo_and_is_named(spawn: Spawn, state_dir: Path) -> None:
    running = ready(start(spawn, state_dir))
    worker = next(line for line in processes_of(state_dir) if "celery -A console worker" in line)
    pids = [int(line.split(":")[0]) for line in processes_of(state_dir) if "console worker" in line]
    assert worker
    os.kill(min(pids), signal.SIGKILL)
    assert running.process.wait(timeout_seconds=40) != 0
    assert "Celery worker ended by itself" in running.process.output()
    assert nothing_left(state_dir)


def test_stopping_in_the_middle_of_the_start_stops_what_was_started(spawn: Spawn, state_dir: Path) -> None:
    starting = start(spawn, state_dir)
    starting.wait_for("Bringing the database up to date")
    assert stop(starting, signal.SIGTERM) == 0
    assert "Recourse is running" not in starting.output()
    assert nothing_left(state_dir)


def test_a_reset_starts_anew(spawn: Spawn, state_dir: Path, started_once: tuple[Path, Running]) -> None:
    running = ready(start(spawn, state_dir, "--reset"))
    assert set(running.logins.values()).isdisjoint(started_once[1].logins.values())
    assert stop(running.process) == 0


def test_a_reset_never_touches_a_database_of_yours(spawn: Spawn, state_dir: Path) -> None:
    environment = {
        "PATH": os.defpath,
        "RECOURSE_STATE_DIR": str(state_dir),
        "DATABASE_URL": "postgresql://recourse@127.0.0.1/production",
    }
    refused = spawn.manage("demo", "--reset", env=environment)
    assert refused.wait() != 0
    assert "Nothing was deleted." in refused.output()
    assert (state_dir / "private" / "logins.json").exists()


def test_starts_at_one_instant_choose_a_port_each(spawn: Spawn) -> None:
    # All of them look before any server listens.
    choose = (
        "import sys; from console.embedded.demo import choose_port;"
        " print('chose', choose_port(preferred=None, usual=int(sys.argv[1])), flush=True);"
        " __import__('signal').pause()"
    )
    usual = str(free_port())
    env = {"PATH": os.defpath, "PYTHONPATH": str(ROOT)}
    starts = [spawn.python("-c", choose, usual, env=env) for _ in range(4)]
    chosen = [one.wait_for(r"^chose (\d+)$").group(1) for one in starts]
    assert len(set(chosen)) == len(starts)
    # Whoever is killed holds nothing any more.
    kept = chosen[0]
    starts[0].kill()
    again = spawn.python("-c", choose, kept, env=env)
    assert again.wait_for(r"^chose (\d+)$").group(1) == kept
