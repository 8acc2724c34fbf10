"""Everything of Recourse on this machine, as real processes, for as long as one process lives.

Embedded PostgreSQL and Valkey (or the servers that DATABASE_URL and BROKER_URL name), the sandbox
provider, the web server, a Celery worker and beat. Each is a child that ends with us.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from celery import Celery

from console.embedded import folders, processes
from console.embedded.postgres import write_private
from console.embedded.processes import Child, EmbeddedServerError
from console.embedded.servers import EmbeddedServers

PROJECT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
WEB_PORT = 8000
SANDBOX_PORT = 8100
# How many ports above the usual one are tried before the system picks any that is free.
PORTS_TRIED = 20
READY_WITHIN_SECONDS = 60.0
PING_SECONDS = 0.5
# Granian finishes answers for a moment; a long poll doesn't hold up the end.
WEB_STOP = ((signal.SIGTERM, 4.0), (signal.SIGKILL, 5.0))
# A task that is cut short is found again by the sweeper, so nobody waits for it.
WORKER_STOP = ((signal.SIGTERM, 3.0), (signal.SIGQUIT, 3.0), (signal.SIGKILL, 5.0))
PLAIN_STOP = ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0))

# A demo shows in half a minute what a production may take its time for; what the environment says stands.
PACE = {
    "RECOURSE_SWEEP_SECONDS": "1",
    "RECOURSE_LOOKUP_BASE_SECONDS": "0.5",
    # Longer than the 5 s between two notes that a version's worker was seen.
    "RECOURSE_VERSION_SILENT_SECONDS": "10",
}

# What a command needs to speak to the demo; the owner's login is not among it.
FOR_COMMANDS = (
    "DATABASE_URL",
    "BROKER_URL",
    "RECOURSE_SECRET_KEY",
    "RECOURSE_KEY_SECRET",
    "RECOURSE_PROVIDERS",
    "RECOURSE_PROVIDERS_DIR",
    "SANDBOX_URL",
)

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Login:
    """A person of the demo, with the password that the state folder keeps."""

    username: str
    password: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Urls:
    """Where the data servers are; the owner's login reaches `migrate` only."""

    database: str
    owner: str
    broker: str


class Demo:
    """The demo's processes. Use as a context manager; `start` may be called once."""

    def __init__(self, *, state_dir: Path, say: Say, web_port: int | None = None) -> None:
        self.state_dir = state_dir
        self.say = say
        self.children: list[Child] = []
        self._application: list[Child] = []
        self.web_url = ""
        self.sandbox_url = ""
        self.logins: list[Login] = []
        self.agent_token = ""
        self.deciding_token = ""
        self._wanted_web_port = web_port
        self._cleanup = ExitStack()
        self._environment: dict[str, str] = {}

    def __enter__(self) -> Demo:
        return self

    def __exit__(self, *_: object) -> None:
        # All at once, so that one's slow end is not added to another's; the data servers come last.
        for child in self._application:
            child.ask_to_stop()
        self._cleanup.close()

    def start(self) -> None:
        """Start everything and return when the console answers; raises `EmbeddedServerError`."""
        home = folders.prepare(self.state_dir)
        urls = self._start_servers()
        self._environment = self._base_environment(urls, home=home)
        with self._step("Starting the sandbox provider"):
            self._start_sandbox(home)
        with self._step("Bringing the database up to date, and its logins"):
            self._prepare(urls, home=home)
        with self._step("Starting web server, Celery worker and beat"):
            self._start_application(home)
        write_private(self.commands_environment, self._exports())

    @property
    def commands_environment(self) -> Path:
        """A file for a shell: read by it, `manage.py` speaks to what runs here."""
        return self.state_dir / "private" / "environment.sh"

    def environment(self) -> dict[str, str]:
        """What a process of the application needs to join in; the owner's login is not in it."""
        return dict(self._environment)

    def run(self, *arguments: str, extra: Mapping[str, str]) -> int:
        """Run `manage.py …` to its end with its output going to ours; returns its exit code."""
        command = [sys.executable, str(PROJECT / "manage.py"), *arguments]
        guard = processes.guarded(command, death_signal=signal.SIGTERM)
        with subprocess.Popen(
            guard, env={**self._environment, **extra}, stdin=subprocess.DEVNULL, start_new_session=True
        ) as process:
            try:
                return process.wait()
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    def first_dead(self) -> Child | None:
        """A child that ended although nobody asked it to, if there is one."""
        return next((child for child in self.children if not child.running()), None)

    # --- Steps ---------------------------------------------------------------------------------------

    def _start_servers(self) -> Urls:
        database = os.environ.get("DATABASE_URL", "")
        owner = os.environ.get("DATABASE_OWNER_URL", "")
        broker = os.environ.get("BROKER_URL", "")
        if database and not owner:
            raise EmbeddedServerError(
                "DATABASE_URL names a database of yours; set DATABASE_OWNER_URL too, so that it can be "
                "migrated."
            )
        embedded = [name for name, url in (("PostgreSQL", database), ("Valkey", broker)) if not url]
        what = " and ".join(embedded)
        with self._step(f"Starting {what}" if what else "Using the database and broker of the environment"):
            servers = self._cleanup.enter_context(
                EmbeddedServers(self.state_dir, database=not database, broker=not broker)
            )
        self.children += servers.children
        return Urls(
            database=database or servers.database_url,
            owner=owner or servers.owner_url,
            broker=broker or servers.broker_url,
        )

    def _base_environment(self, urls: Urls, *, home: folders.Home) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name != "DATABASE_OWNER_URL"}
        return {
            # A demo on the loopback address has no TLS; what the environment says otherwise stands.
            "RECOURSE_SECURE_COOKIES": "0",
            "RECOURSE_ENVIRONMENT": "Demo",
            "RECOURSE_LOG_FORMAT": "text",
            **PACE,
            "RECOURSE_SECRET_KEY": _kept(home.private / "django.secret"),
            "RECOURSE_KEY_SECRET": _kept(home.private / "idempotency-keys.secret"),
            **kept,
            "DJANGO_SETTINGS_MODULE": "console.settings",
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": os.pathsep.join([str(PROJECT), str(PROJECT / "clients" / "python" / "src")]),
            "DATABASE_URL": urls.database,
            "BROKER_URL": urls.broker,
            "RECOURSE_STATE_DIR": str(self.state_dir),
        }

    def _exports(self) -> str:
        known = [(name, self._environment[name]) for name in FOR_COMMANDS if name in self._environment]
        return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in known)

    def _start_sandbox(self, home: folders.Home) -> None:
        # Its address is part of what a first send pins, so a later start prefers the same port.
        port = choose_port(preferred=_kept_port(home, "sandbox"), usual=SANDBOX_PORT)
        child = self._spawn(
            name="Sandbox provider",
            command=[
                *(sys.executable, "-m", "console.sandbox"),
                *("--port", str(port)),
                *("--store", str(home.state / "sandbox" / "sandbox.sqlite3")),
            ],
            log=home.logs / "sandbox.log",
            stop_signals=PLAIN_STOP,
        )
        self.sandbox_url = f"http://127.0.0.1:{port}"
        self._environment["SANDBOX_URL"] = self.sandbox_url
        _await_answer(self.sandbox_url, child=child)
        write_private(home.private / "sandbox.port", str(port))

    def _prepare(self, urls: Urls, *, home: folders.Home) -> None:
        command = [sys.executable, str(PROJECT / "manage.py"), "demo_prepare"]
        wanted = home.private / "logins.json"
        done = subprocess.run(
            processes.guarded([*command, "--logins", str(wanted)], death_signal=signal.SIGKILL),
            check=False,
            env={**self._environment, "DATABASE_OWNER_URL": urls.owner},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            start_new_session=True,
        )
        if done.returncode != 0:
            raise EmbeddedServerError(f"The database could not be prepared:\n{done.stderr.strip()[-4000:]}")
        known: dict[str, Any] = json.loads(wanted.read_text())
        self.logins = [Login(username=name, password=word) for name, word in known["logins"].items()]
        self.agent_token = known["agent_token"]
        self.deciding_token = known["deciding_token"]

    def _start_application(self, home: folders.Home) -> None:
        preferred = self._wanted_web_port or _kept_port(home, "web")
        port = choose_port(preferred=preferred, usual=WEB_PORT)
        self.web_url = f"http://127.0.0.1:{port}"
        web = self._spawn(
            name="Web server",
            command=[
                str(BIN / "granian"),
                *("--interface", "wsgi", "--no-ws"),
                *("--host", "127.0.0.1", "--port", str(port)),
                # Agents that wait for work hold a thread each.
                *("--workers", "1", "--blocking-threads", "24"),
                *("--workers-kill-timeout", "2"),
                "console.wsgi:application",
            ],
            log=home.logs / "web.log",
            stop_signals=WEB_STOP,
        )
        celery = [str(BIN / "celery"), "-A", "console"]
        worker_name = f"demo-{os.getpid()}@127.0.0.1"
        self._spawn(
            name="Celery worker",
            command=[
                *(*celery, "worker", "--loglevel", "INFO", "--concurrency", "2"),
                *("--hostname", worker_name, "--without-gossip", "--without-mingle"),
            ],
            log=home.logs / "celery-worker.log",
            stop_signals=WORKER_STOP,
            # SIGQUIT can hang on a broker that is gone as well, and nobody would be there to insist. The pool
            # ends with its parent, and the sweeper finds what was cut short.
            death_signal=signal.SIGKILL,
        )
        (home.state / "beat").mkdir(exist_ok=True)
        self._spawn(
            name="Celery beat",
            command=[
                *(*celery, "beat", "--loglevel", "INFO", "--pidfile="),
                *("--schedule", str(home.state / "beat" / "schedule")),
            ],
            log=home.logs / "celery-beat.log",
            stop_signals=PLAIN_STOP,
        )
        _await_answer(self.web_url, child=web)
        self._await_worker(worker_name)
        write_private(home.private / "web.port", str(port))

    def _await_worker(self, name: str) -> None:
        """Wait until the worker takes calls: its own answer says so, whatever it logs."""
        app = Celery("recourse-demo", broker=self._environment["BROKER_URL"], set_as_current=False)
        for _ in processes.ticks(READY_WITHIN_SECONDS, otherwise="The Celery worker did not become ready."):
            dead = self.first_dead()
            if dead is not None:
                raise EmbeddedServerError(f"{dead.name} ended while starting:\n{dead.log_tail()}")
            if app.control.ping(destination=[name], timeout=PING_SECONDS):
                break
        app.close()

    # --- Parts of steps --------------------------------------------------------------------------------

    def _spawn(
        self,
        *,
        name: str,
        command: Sequence[str],
        log: Path,
        stop_signals: Sequence[tuple[signal.Signals, float]],
        death_signal: signal.Signals = signal.SIGTERM,
    ) -> Child:
        pid_file = self.state_dir / "private" / f"{log.stem}.pid"
        processes.stop_recorded(pid_file)
        child = processes.start(
            name=name,
            command=command,
            log=log,
            environment=self._environment,
            folder=PROJECT,
            stop_signals=stop_signals,
            death_signal=death_signal,
        )
        self.children.append(child)
        self._application.append(child)
        self._cleanup.callback(child.stop)
        processes.record(child, pid_file=pid_file, mark=command[0])
        return child

    @contextmanager
    def _step(self, what: str) -> Iterator[None]:
        self.say(f"{what} …")
        began = time.monotonic()
        yield
        self.say(f"  done in {time.monotonic() - began:.1f} s")


def choose_port(*, preferred: int | None, usual: int) -> int:
    """A free port of the loopback address: the preferred one, else from the usual one upwards, else any."""
    for port in [*([preferred] if preferred else []), *range(usual, usual + PORTS_TRIED), 0]:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found: int = probe.getsockname()[1]
            if _reserve(found):
                return found
    raise EmbeddedServerError("No TCP port of 127.0.0.1 is free.")


# Held until this process ends, however it ends.
_reserved: dict[int, socket.socket] = {}


def _reserve(port: int) -> bool:
    """Hold a port against other starts, from before our look at it counts until our server has it.

    Two that choose at one instant would both find it free, and granian shares a port with another granian
    instead of refusing it: each would answer for the other. A name in Linux's abstract namespace needs no
    file and ends with the process; elsewhere there is none, and the instant stays.
    """
    if sys.platform != "linux" or port in _reserved:
        return True
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        held.bind(f"\0recourse-port-{port}")
    except OSError:
        held.close()
        return False
    _reserved[port] = held
    return True


def _kept_port(home: folders.Home, name: str) -> int | None:
    try:
        return int((home.private / f"{name}.port").read_text())
    except (FileNotFoundError, ValueError):
        return None


def _kept(file: Path) -> str:
    """A secret made at the first start and read at every later one."""
    if not file.exists():
        write_private(file, secrets.token_urlsafe(48))
    return file.read_text()


def _await_answer(url: str, *, child: Child) -> None:
    """Wait until the child answers HTTP, whatever it answers."""
    for _ in processes.ticks(READY_WITHIN_SECONDS, otherwise=f"{child.name} did not answer at {url}."):
        if not child.running():
            raise EmbeddedServerError(f"{child.name} did not start:\n{child.log_tail()}")
        try:
            urlopen(url, timeout=5).close()  # noqa: S310 - an http address of our own making
        except HTTPError:
            return
        except (URLError, OSError):
            continue
        return
