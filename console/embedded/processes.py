"""Child processes that end with their parent, and the leftovers of a parent that could not end them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

GUARD = Path(__file__).with_name("guard.py")
# How often we look at what nobody announces: the end of somebody else's child, a server's first answer.
POLL_SECONDS = 0.02
LOG_TAIL_BYTES = 4000
# Past this a log is set aside at the next start, and the one set aside before is dropped.
LOG_BYTES_MAX = 10_000_000


class EmbeddedServerError(Exception):
    """A server that Recourse starts for itself could not be started, kept or stopped; says which and why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """The user that a child runs as; `None` for both ids: as the parent."""

    uid: int | None = None
    gid: int | None = None


AS_WE_ARE = Account()


@dataclass(kw_only=True)
class Child:
    """One running child: its process, its log, and the signals that end it, gentle first."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    stop_signals: Sequence[tuple[signal.Signals, float]] = field(
        default=((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0))
    )

    @property
    def pid(self) -> int:
        return self.process.pid

    def running(self) -> bool:
        return self.process.poll() is None

    def ask_to_stop(self) -> None:
        """Send the gentlest signal and return at once; `stop` then waits, and insists."""
        if self.running():
            with suppress(ProcessLookupError):
                self.process.send_signal(self.stop_signals[0][0])

    def stop(self) -> None:
        """Ask, then insist, then kill the whole process group; returns when the child is gone."""
        for number, patience_seconds in self.stop_signals:
            if not self.running():
                break
            with suppress(ProcessLookupError):
                self.process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=patience_seconds)
        # Workers of a main process that was killed serve on unless their group goes too.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def log_tail(self) -> str:
        """The end of what the child wrote, for a message that explains a failure."""
        return tail(self.log)


def guarded(
    command: Sequence[str | Path], *, account: Account = AS_WE_ARE, death_signal: signal.Signals
) -> list[str]:
    """The command line that becomes `command`, as `account`, and gets `death_signal` when we die."""
    return [
        sys.executable,
        *("-I", "-S", str(GUARD)),
        str(os.getpid()),
        str(-1 if account.uid is None else account.uid),
        str(-1 if account.gid is None else account.gid),
        str(int(death_signal)),
        *(str(part) for part in command),
    ]


def start(
    *,
    name: str,
    command: Sequence[str | Path],
    log: Path,
    account: Account = AS_WE_ARE,
    death_signal: signal.Signals = signal.SIGTERM,
    stop_signals: Sequence[tuple[signal.Signals, float]] | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Child:
    """Start a program in a session of its own, writing to `log`, that dies when this thread's process does.

    Linux ties the promise to the thread that started the child: call this from the main thread.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        log.replace(log.with_suffix(".old"))
    with log.open("ab") as output:
        process = subprocess.Popen(
            guarded(command, account=account, death_signal=death_signal),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=None if environment is None else dict(environment),
            cwd=folder,
            start_new_session=True,
        )
    child = Child(name=name, process=process, log=log)
    if stop_signals is not None:
        child.stop_signals = stop_signals
    return child


def run(command: Sequence[str | Path], *, account: Account, timeout_seconds: float = 60) -> None:
    """Run a program to its end as `account`; raises `EmbeddedServerError` with its output if it fails."""
    done = subprocess.run(
        [str(part) for part in command],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout_seconds,
        user=account.uid,
        group=account.gid,
        extra_groups=None if account.uid is None else [],
        cwd="/",
        env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
    )
    if done.returncode != 0:
        output = done.stdout.decode(errors="replace").strip()
        raise EmbeddedServerError(f"{Path(command[0]).name} failed: {output[-LOG_TAIL_BYTES:]}")


def tail(log: Path) -> str:
    """The last 4,000 bytes of a log, or an empty string where there is none."""
    try:
        with log.open("rb") as source:
            source.seek(0, os.SEEK_END)
            source.seek(max(0, source.tell() - LOG_TAIL_BYTES))
            return source.read().decode(errors="replace").strip()
    except FileNotFoundError:
        return ""


def alive(pid: int) -> bool:
    """Whether a process runs under this id; one that has ended and waits to be collected does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return not Path("/proc/self").exists()
    # The name in parentheses may hold anything; the state follows the last parenthesis.
    return status.rpartition(")")[2].split()[0] not in {"Z", "X"}


def command_line(pid: int) -> str:
    """The command of a process, or an empty string when it is gone or can't be seen."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        if Path("/proc/self").exists():
            return ""
    # macOS has no /proc; ps is part of every Unix.
    shown = subprocess.run(
        ["/bin/ps", "-o", "command=", "-p", str(pid)], check=False, capture_output=True, text=True
    )
    return shown.stdout.strip()


def record(child: Child, *, pid_file: Path, mark: str) -> None:
    """Note a child for the next start, which stops it if nothing else did; `mark` is in its command line."""
    unfinished = pid_file.with_suffix(".unfinished")
    unfinished.write_text(json.dumps({"pid": child.pid, "mark": mark, "signals": child.stop_signals}))
    unfinished.replace(pid_file)


def stop_recorded(pid_file: Path) -> bool:
    """Stop the recorded process of a dead parent, if it still runs and still is that one.

    Returns whether there was one. Raises `EmbeddedServerError` when it doesn't go.
    """
    try:
        noted = json.loads(pid_file.read_text())
    except FileNotFoundError:
        return False
    pid: int = noted["pid"]
    signals: list[tuple[int, float]] = noted["signals"]
    if not alive(pid) or noted["mark"] not in command_line(pid):
        return False
    for number, patience_seconds in signals:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        until = time.monotonic() + patience_seconds
        while alive(pid) and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
        if not alive(pid):
            return True
    raise EmbeddedServerError(f"Process {pid} is left from an earlier start and could not be stopped.")


def ticks(seconds: float, *, otherwise: str) -> Iterator[None]:
    """Yield every few milliseconds, and raise `EmbeddedServerError(otherwise)` after `seconds`."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        yield
        time.sleep(POLL_SECONDS)
    raise EmbeddedServerError(otherwise)
