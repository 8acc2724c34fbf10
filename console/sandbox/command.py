"""The command line shared by `manage.py sandbox_provider` and `python -m console.sandbox`."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from console.sandbox.server import SandboxServer
from console.sandbox.store import Store, StoreInUse, StoreUnreadable

PR_SET_PDEATHSIG = 1
# Where the kernel can't tell us that the parent died, we look this often.
PARENT_LOOK_SECONDS = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 picks a free one (default)")
    parser.add_argument(
        "--store",
        type=Path,
        help="file of the durable store, made if missing (default: sandbox/sandbox.sqlite3 under"
        " RECOURSE_STATE_DIR, else a new temporary folder)",
    )
    parser.add_argument(
        "--die-with-parent", action="store_true", help="end when the process that started this one ends"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m console.sandbox", description="An outside system for demo, tests and crash lab."
    )
    add_arguments(parser)
    options = parser.parse_args(arguments)
    return run(port=options.port, store_path=options.store, die_with_parent=options.die_with_parent)


def run(*, port: int, store_path: Path | None, die_with_parent: bool) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code.

    Says `{"url": …, "store": …}` in one line on stdout once it takes connections. Must be called from the
    main thread: the kernel's word that the parent died, and the signals, go to it.
    """
    parent = os.getppid()
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    if die_with_parent:
        _end_with(parent, ended)
    path = (store_path or _default_path()).absolute()
    try:
        store = Store(path)
    except (StoreInUse, StoreUnreadable, OSError) as error:
        print(f"sandbox provider: {error}", file=sys.stderr)
        return 1
    try:
        server = SandboxServer(store, port=port)
    except (OSError, OverflowError) as error:
        print(f"sandbox provider: port {port} can't be used: {error}", file=sys.stderr)
        store.close()
        return 1
    serving = threading.Thread(target=server.serve_forever, name="accept", daemon=True)
    serving.start()
    print(json.dumps({"url": server.url, "store": str(path)}), flush=True)
    ended.wait()
    server.stop()
    store.close()
    return 0


def _default_path() -> Path:
    state = os.environ.get("RECOURSE_STATE_DIR")
    folder = Path(state) / "sandbox" if state else Path(tempfile.mkdtemp(prefix="recourse-sandbox-"))
    return folder / "sandbox.sqlite3"


def _end_with(parent: int, ended: threading.Event) -> None:
    """Arrange to end when `parent` does: by the kernel's signal on Linux, by looking elsewhere."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None and prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) == 0:
        if os.getppid() != parent:  # it died before the kernel had our wish
            ended.set()
        return

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_LOOK_SECONDS)
        ended.set()

    threading.Thread(target=look, name="parent", daemon=True).start()
