"""`manage.py demo`: Recourse on this machine, with real cases, until Ctrl-C."""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError, CommandParser

from console.embedded import EmbeddedServerError, folders
from console.embedded.demo import PROJECT, Demo

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOOK_SECONDS = 0.2
PR_SET_PDEATHSIG = 1


class Command(BaseCommand):
    help = (
        "Start PostgreSQL, Valkey, the sandbox provider, web server, Celery worker and beat on this machine, "
        "run the demo agents, and print the address and the logins. Ctrl-C stops everything; data is kept."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--reset", action="store_true", help="delete the demo's data first")
        parser.add_argument("--port", type=int, help="port of the console (a busy one picks another)")
        parser.add_argument("--no-agents", action="store_true", help="start everything but the demo agents")
        parser.add_argument(
            "--again", action="store_true", help="run the demo agents once more, with new runs"
        )
        parser.add_argument(
            "--state-dir",
            type=Path,
            help="where data and passwords are kept (default: RECOURSE_STATE_DIR, else a folder of this "
            "checkout's own in the state area)",
        )
        parser.add_argument(
            "--die-with-parent", action="store_true", help="stop when the process that started this one ends"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        for number in STOPPING:
            signal.signal(number, _stop)
        if options["die_with_parent"]:
            _stop_with_parent()
        state_dir = self._state_dir(options["state_dir"])
        try:
            if options["reset"]:
                self._reset(state_dir)
            with Demo(state_dir=state_dir, say=self._say, web_port=options["port"]) as demo:
                try:
                    demo.start()
                    if not options["no_agents"]:
                        self._run_agents(demo, again=options["again"])
                    self._introduce(demo)
                    self._watch(demo)
                except _Stopped as stopped:
                    self._say(f"\nStopping everything ({stopped.name}) …")
            self._say("Stopped. The data is kept; the next start is quick.")
        except EmbeddedServerError as error:
            raise CommandError(str(error)) from error

    def _state_dir(self, given: Path | None) -> Path:
        named = given or os.environ.get("RECOURSE_STATE_DIR", "")
        return Path(named).absolute() if named else folders.default_state_dir(PROJECT)

    def _reset(self, state_dir: Path) -> None:
        if os.environ.get("DATABASE_URL"):
            raise CommandError(
                "--reset deletes the embedded servers' data only, and DATABASE_URL names a database of "
                "yours. Nothing was deleted."
            )
        self._say(f"Deleting the data in {state_dir} …")
        folders.empty(state_dir)

    def _run_agents(self, demo: Demo, *, again: bool) -> None:
        code = demo.run(
            "demo_agents",
            *(["--again"] if again else []),
            extra={"RECOURSE_URL": demo.web_url, "RECOURSE_TOKEN": demo.agent_token},
        )
        if code != 0:
            # The console is up, and looking at it is the way to find out what went wrong.
            self._say(f"\nThe demo agents ended with exit code {code}: what they wrote above says why.")

    def _introduce(self, demo: Demo) -> None:
        width = max(len(login.username) for login in demo.logins)
        self._say(f"\nRecourse is running at {demo.web_url}/\n")
        for login in demo.logins:
            self._say(f"  {login.username:<{width}}   {login.password}")
        self._say("\nFor an agent of your own (README.md has one in ten lines, and one in curl):\n")
        self._say(f"  export RECOURSE_URL={demo.web_url} SANDBOX_URL={demo.sandbox_url}")
        self._say(f"  export RECOURSE_TOKEN={demo.agent_token}")
        self._say(f"  export DECIDING_TOKEN={demo.deciding_token}  # decides as operator; not for agents")
        self._say(
            "\nFor manage.py, in another terminal (the brackets keep it out of the next `make demo`):\n"
        )
        self._say(f"  (. {shlex.quote(str(demo.commands_environment))}; .venv/bin/python manage.py help)")
        self._say(f"\nSandbox provider: {demo.sandbox_url}/   Data and logs: {demo.state_dir}")
        self._say("Ctrl-C stops everything; the data is kept. `make demo-reset` starts anew.")

    def _watch(self, demo: Demo) -> NoReturn:
        while True:
            dead = demo.first_dead()
            if dead is not None:
                raise EmbeddedServerError(f"{dead.name} ended by itself:\n{dead.log_tail()}")
            time.sleep(LOOK_SECONDS)

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


class _Stopped(BaseException):
    """Somebody asked the demo to stop; a BaseException, so that no step mistakes it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.name = signal.Signals(number).name


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    # From here on nothing may interrupt the stopping of what was started. A terminal that closes sends two at
    # once, its own and that of a parent that died of it, so the second one may be waiting already.
    for other in STOPPING:
        signal.signal(other, _is_stopping)
    raise _Stopped(number)


def _is_stopping(_number: int, _frame: FrameType | None) -> None:
    """Not SIG_IGN: Python complains of a signal that came before it was ignored."""


def _stop_with_parent() -> None:
    """Ask Linux for SIGTERM when our parent dies; elsewhere the next start stops what was left."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent or parent == 1:
            sys.exit("The process that started the demo is gone.")
