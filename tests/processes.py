"""Real processes for tests: started in their own group, output kept, killed by pid and never by name."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from console.embedded import processes

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
POLL_SECONDS = 0.01
# A process starts in about a second; a busy machine may need many, and only a failure waits this long.
PATIENCE_SECONDS = 45.0


class StillWaiting(AssertionError):
    """What a test waited for didn't come in time; carries the process's output."""


@dataclass(kw_only=True)
class Process:
    """One child process of a test, in a session and group of its own."""

    child: processes.Child
    command: list[str]

    @property
    def name(self) -> str:
        return self.child.name

    @property
    def pid(self) -> int:
        return self.child.pid

    @property
    def returncode(self) -> int | None:
        return self.child.process.poll()

    def running(self) -> bool:
        return self.child.running()

    def output(self) -> str:
        """Everything the process has written so far, standard output and error together."""
        return self.child.log.read_text(errors="replace")

    def json_lines(self) -> list[dict[str, Any]]:
        """The lines of output that are JSON objects."""
        found = []
        for line in self.output().splitlines():
            if line.startswith("{"):
                with suppress(ValueError):
                    found.append(json.loads(line))
        return found

    def wait_for(self, pattern: str, *, timeout_seconds: float = PATIENCE_SECONDS) -> re.Match[str]:
        """Wait until the output matches a regular expression; fails at once when the process ends first."""
        for last in until(timeout_seconds):
            ended = not self.running()
            match = re.search(pattern, self.output(), re.MULTILINE)
            if match:
                return match
            if ended or last:
                break
        state = "is running" if self.running() else f"ended with {self.returncode}"
        raise StillWaiting(f"{self.name} {state} and never wrote {pattern!r}:\n{self.output()[-4000:]}")

    def wait(self, *, timeout_seconds: float = PATIENCE_SECONDS) -> int:
        """Wait for the process to end and return its exit code (negative: the signal that ended it)."""
        try:
            return self.child.process.wait(timeout=timeout_seconds)
        except Exception as error:
            raise StillWaiting(f"{self.name} did not end:\n{self.output()[-4000:]}") from error

    def send_signal(self, number: signal.Signals) -> None:
        """Signal the process itself, not its group."""
        self.child.process.send_signal(number)

    def kill(self) -> int:
        """SIGKILL the process itself and wait until it is gone; its children are left to themselves."""
        self.child.process.kill()
        return self.wait()

    def kill_group(self) -> None:
        """SIGKILL the process and everything in its group, and wait for the process."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()


class Spawn:
    """Starts processes for one test and ends all of them afterwards."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[Process] = []

    def __call__(
        self,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str],
        name: str | None = None,
        cwd: Path = ROOT,
    ) -> Process:
        """Start `command` with exactly this environment; it dies with the test run, however that ends."""
        arguments = [str(part) for part in command]
        label = name or Path(arguments[0]).name
        child = processes.start(
            name=label,
            command=arguments,
            log=self.folder / f"{len(self.started)}-{label}.log",
            environment=env,
            folder=cwd,
        )
        process = Process(child=child, command=arguments)
        self.started.append(process)
        return process

    def manage(self, *arguments: str | Path, env: Mapping[str, str], name: str | None = None) -> Process:
        """Start `manage.py …`."""
        return self([sys.executable, ROOT / "manage.py", *arguments], env=env, name=name or str(arguments[0]))

    def python(self, *arguments: str | Path, env: Mapping[str, str], name: str = "python") -> Process:
        """Start the tests' own Python with these arguments."""
        return self([sys.executable, *arguments], env=env, name=name)

    def stop_all(self) -> None:
        for process in reversed(self.started):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in self.started:
            process.wait()

    def report(self) -> str:
        """The output of every process, for a failure's report."""
        return "\n".join(
            f"--- {process.name} (pid {process.pid}, exit {process.returncode})\n{process.output()[-8000:]}"
            for process in self.started
        )


@dataclass(kw_only=True)
class Server:
    """A process that serves HTTP on the loopback address."""

    process: Process
    url: str


def free_port() -> int:
    """A TCP port of the loopback address that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def start_web_server(spawn: Spawn, *, env: Mapping[str, str], threads: int = 8) -> Server:
    """Start granian serving the console and wait until it answers."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    process = spawn(
        [
            BIN / "granian",
            *("--interface", "wsgi"),
            *("--host", "127.0.0.1"),
            *("--port", str(port)),
            *("--workers", "1"),
            *("--blocking-threads", str(threads)),
            "--no-ws",
            "console.wsgi:application",
        ],
        env=env,
        name="web",
    )
    for last in until(PATIENCE_SECONDS):
        with suppress(httpx.TransportError):
            # Any answer will do, a redirect to the login page or a 404 too.
            httpx.get(url + "/", timeout=5)
            return Server(process=process, url=url)
        if last or not process.running():
            break
    raise StillWaiting(f"The web server never answered:\n{process.output()[-4000:]}")


def start_celery_worker(spawn: Spawn, *, env: Mapping[str, str], concurrency: int = 2) -> Process:
    """Start a Celery worker with its pool and wait until it takes tasks."""
    process = spawn(
        [
            BIN / "celery",
            *("-A", "console", "worker"),
            *("--concurrency", str(concurrency)),
            *("--loglevel", "INFO"),
            *("--hostname", f"test-{os.getpid()}-{len(spawn.started)}@127.0.0.1"),
            *("--without-gossip", "--without-mingle"),
        ],
        env=env,
        name="celery-worker",
    )
    process.wait_for(r"\bready\b")
    return process


def start_celery_beat(spawn: Spawn, *, env: Mapping[str, str]) -> Process:
    """Start a beat of its own schedule file and wait until it has sent its first task."""
    process = spawn(
        [
            BIN / "celery",
            *("-A", "console", "beat"),
            *("--loglevel", "INFO"),
            *("--schedule", str(spawn.folder / f"beat-{len(spawn.started)}")),
            "--pidfile=",
        ],
        env=env,
        name="celery-beat",
    )
    process.wait_for(r"beat: Starting|Sending due task")
    return process


def start_sandbox(spawn: Spawn, *, env: Mapping[str, str], store: Path | None = None) -> Server:
    """Start the sandbox provider on a durable store and wait until it listens.

    Without Django, which takes most of a second to start; as `manage.py` starts it, it has tests of its own.
    """
    where = store or spawn.folder / "sandbox-store.sqlite3"
    process = spawn.python("-m", "console.sandbox", "--port", "0", "--store", where, env=env, name="sandbox")
    match = process.wait_for(r'^\{.*"url": ?"(http://127\.0\.0\.1:\d+)[^"]*".*\}$')
    return Server(process=process, url=match.group(1))


def until(timeout_seconds: float) -> Iterator[bool]:
    """Yield every 10 ms, for looking at what announces itself to nobody; True at the last look."""
    end = time.monotonic() + timeout_seconds
    while time.monotonic() < end:
        yield False
        time.sleep(POLL_SECONDS)
    yield True
