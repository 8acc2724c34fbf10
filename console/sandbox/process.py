"""Starting the sandbox provider as a process of its own, stopping it, and killing it."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from console.sandbox.control import SandboxControl

ROOT = Path(__file__).resolve().parents[2]
# It is ready in half a second; a machine that builds something else meanwhile may need more.
READY_SECONDS = 30.0
STOP_SECONDS = 10.0
PASSED_ON = frozenset({"PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "RECOURSE_STATE_DIR", "PYTHONWARNINGS"})


class SandboxDidNotStart(Exception):
    """The provider ended, or said nothing, instead of naming its address; the message has its last words."""


@dataclass
class SandboxProcess:
    """A running provider; `url` and `store` are what it said when it was ready."""

    url: str
    store: Path
    process: subprocess.Popen[bytes]
    log: Path | None = None

    @classmethod
    def start(
        cls,
        *,
        store: Path | None = None,
        port: int = 0,
        die_with_parent: bool = True,
        log: Path | None = None,
    ) -> SandboxProcess:
        """Start it and return once it takes connections; raises `SandboxDidNotStart`.

        What it says on stderr, which is nothing unless it has a defect, is added to `log` where one is named.
        With `die_with_parent` it ends with the *thread* that calls this, by the kernel's rule: call it from
        one that lives as long as the provider is wanted.
        """
        command = [sys.executable, "-m", "console.sandbox", "--port", str(port)]
        if store is not None:
            command += ["--store", str(store)]
        if die_with_parent:
            command.append("--die-with-parent")
        # A session of its own: a Ctrl-C in the terminal is ours to pass on, in the right order.
        with ExitStack() as opened:
            process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=opened.enter_context(log.open("ab")) if log else None,
                cwd=ROOT,
                # An outside system knows none of our secrets.
                env={name: value for name, value in os.environ.items() if name in PASSED_ON},
                start_new_session=True,
            )
        line = _first_line(process)
        try:
            said = json.loads(line)
        except ValueError:
            process.kill()
            process.communicate()
            raise SandboxDidNotStart(
                f"exit code {process.returncode}, said {line.decode(errors='replace')!r}"
            ) from None
        return cls(said["url"], Path(said["store"]), process, log)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def pid(self) -> int:
        return self.process.pid

    def control(self) -> SandboxControl:
        return SandboxControl(self.url)

    def stop(self) -> int:
        """End it in good order; its exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut would."""
        self._end(signal.SIGKILL)

    def start_again(self) -> SandboxProcess:
        """A new process at the same address with the same store."""
        return self.start(store=self.store, port=self.port, log=self.log)

    def _end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
        finally:
            if self.process.stdout:
                self.process.stdout.close()


def _first_line(process: subprocess.Popen[bytes]) -> bytes:
    """What the process says until its first newline, its end, or `READY_SECONDS`."""
    assert process.stdout is not None  # noqa: S101 - it was opened as a pipe above
    said = b""
    end_at = time.monotonic() + READY_SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not said.endswith(b"\n"):
            if not selector.select(max(0.0, end_at - time.monotonic())):
                break
            chunk = os.read(process.stdout.fileno(), 4096)
            if not chunk:
                break
            said += chunk
    return said
