"""An embedded Valkey as Celery's broker: in memory, on a socket, stopped with its parent."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import redis

from console.embedded import folders, processes
from console.embedded.processes import Child, EmbeddedServerError

READY_WITHIN_SECONDS = 10.0
STOP_SIGNALS = ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0))


@dataclass(frozen=True, kw_only=True, slots=True)
class Valkey:
    """A running broker. Its messages are wake-up calls, so it keeps nothing on disk."""

    child: Child
    socket: Path

    @property
    def url(self) -> str:
        return f"redis+socket://{quote(str(self.socket))}?virtual_host=0"


def start(home: folders.Home, *, name: str = "valkey") -> Valkey:
    """Start the server on a socket of that name. The caller holds the folder's lock, or a name of its own."""
    socket = home.sockets / f"{name}.sock"
    pid_file = home.private / f"{name}.pid"
    processes.stop_recorded(pid_file)
    socket.unlink(missing_ok=True)
    child = processes.start(
        name="Valkey",
        command=[
            folders.valkey_binary(home),
            *("--port", "0"),
            *("--unixsocket", socket),
            *("--unixsocketperm", "700"),
            *("--save", ""),
            *("--appendonly", "no"),
            *("--dir", home.sockets),
        ],
        log=home.logs / f"{name}.log",
        account=home.account,
        death_signal=signal.SIGTERM,
        stop_signals=STOP_SIGNALS,
        environment={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
        folder=Path("/"),
    )
    try:
        # Valkey shows its socket in its process title.
        processes.record(child, pid_file=pid_file, mark=str(socket))
        _await_ready(child, socket)
    except BaseException:
        child.stop()
        raise
    return Valkey(child=child, socket=socket)


def _await_ready(child: Child, socket: Path) -> None:
    for _ in processes.ticks(READY_WITHIN_SECONDS, otherwise="Valkey did not become ready in 10 s."):
        if not child.running():
            raise EmbeddedServerError(f"Valkey did not start:\n{child.log_tail()}")
        client = redis.Redis(unix_socket_path=str(socket))
        try:
            client.ping()
        except redis.exceptions.RedisError:
            continue
        finally:
            client.close()
        return
