"""The other half: start an agent, read what it says, stop, wake or kill it."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from console.embedded import processes

LAST_WORDS_LENGTH_MAX = 300


class AgentFailed(Exception):
    """An agent ended, or time ran out, before it said what it was to say."""


class StagedAgent:
    """A running agent process and the events that it prints.

    It runs `python -m MODULE JOB`, its errors go to `log`, and it dies with the thread that started it.
    """

    def __init__(
        self,
        module: str,
        job: Mapping[str, Any],
        *,
        environment: Mapping[str, str],
        log: Path,
        patience_seconds: float,
    ) -> None:
        self._patience_seconds = patience_seconds
        self._log_file = log
        self._log = log.open("ab")
        self.process = subprocess.Popen(
            processes.guarded(
                [sys.executable, "-m", module, json.dumps(job)],
                death_signal=signal.SIGKILL,
            ),
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None  # noqa: S101 - it was asked for as a pipe
        with self.process.stdout as lines:
            for line in lines:
                with suppress(ValueError):
                    self._events.put(json.loads(line))
        self._events.put({"event": "gone"})

    def wait_for(self, *events: str) -> dict[str, Any]:
        """Return the next event of one of these names; raises `AgentFailed` if it ends or time runs out."""
        wanted = " or ".join(events)
        end = time.monotonic() + self._patience_seconds
        while True:
            try:
                found = self._events.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise AgentFailed(f"the agent never said {wanted}") from None
            if found["event"] in events:
                return found
            if found["event"] == "gone":
                raise AgentFailed(f"the agent ended before it said {wanted}: {self._last_words()}")

    def _last_words(self) -> str:
        last_line = self._log_file.read_text(errors="replace").strip().rsplit("\n", 1)[-1]
        return last_line[-LAST_WORDS_LENGTH_MAX:]

    def go_on(self) -> None:
        """Give the agent the word that it waits for."""
        if self.process.stdin is not None:
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()

    def freeze(self) -> None:
        """SIGSTOP: every thread of it stands still, also the one that keeps its lease."""
        self.process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and nothing else."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._close()

    def ended(self) -> bool:
        return self.process.poll() is not None

    def finish(self) -> list[str]:
        """Wait for the agent's end and return the names of the events that nobody has asked for yet."""
        self.process.wait()
        self._close()
        names = []
        with suppress(queue.Empty):
            while True:
                names.append(str(self._events.get_nowait()["event"]))
        return names

    def _close(self) -> None:
        # The reader closes what it reads, at its end, which comes with the end of the process.
        self._reader.join()
        with suppress(OSError):
            if self.process.stdin is not None:
                self.process.stdin.close()
        self._log.close()

    @contextmanager
    def never_left_behind(self) -> Iterator[Self]:
        """Kill the agent at the end of the block if it still runs."""
        try:
            yield self
        finally:
            if not self.ended():
                self.kill()
