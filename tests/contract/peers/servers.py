"""The peers as processes: one start of each in a test process, ended by pid, gone when the tests die.

Those from npm listen where they like on every address, so a small script loaded before them (`shim.cjs`)
gives them a free port of the loopback address, tells us which, and moves their clock when a test asks.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from console.sandbox.process import SandboxProcess
from tests.processes import PATIENCE_SECONDS, Process, Spawn, StillWaiting, until

FOLDER = Path(__file__).resolve().parent
MODULES = FOLDER / "node_modules"
SHIM = FOLDER / "shim.cjs"
# The oldest that they were run on; emulate's package names none.
NODE_MAJOR_MIN = 18
EMULATED = ("github", "slack", "resend", "stripe", "twilio")
FIRST_PORT = 4000


def in_ci() -> bool:
    return bool(os.environ.get("CI"))


def missing_node() -> str | None:
    """Why the peers from npm can't run here; None when they can."""
    node = shutil.which("node")
    if node is None:
        return "Node isn't installed"
    version = subprocess.run([node, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    major = re.match(r"v(\d+)\.", version)
    if major is None or int(major.group(1)) < NODE_MAJOR_MIN:
        return f"Node {version} is older than {NODE_MAJOR_MIN}"
    if not (MODULES / "emulate").is_dir() or not (MODULES / "stripe-stateful-mock").is_dir():
        return "the peers aren't installed: run make peers"
    return None


def require_node() -> None:
    """Skip the test where the peers from npm can't run, and fail it where that must not happen: in CI."""
    why = missing_node()
    if why is None:
        return
    if in_ci():
        pytest.fail(f"The contract suite's independent peers can't run: {why}.", pytrace=False)
    pytest.skip(f"NOT TESTED against independent peers: {why}")


@dataclass(kw_only=True)
class Peer:
    """One running peer; `urls` by what it stands for."""

    process: Process
    urls: dict[str, str]
    clock: Path

    def advance_clock(self, by_ms: int) -> None:
        """Move the peer's clock forward from now on."""
        ahead_ms = int(self.clock.read_text() or "0") + by_ms
        unfinished = self.clock.with_suffix(".unfinished")
        unfinished.write_text(str(ahead_ms))
        unfinished.replace(self.clock)

    def reset_clock(self) -> None:
        self.advance_clock(-int(self.clock.read_text() or "0"))


class Peers:
    """Starts each peer when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._spawn = Spawn(folder)
        self._folder = folder
        self._running: dict[str, Peer] = {}
        self._sandbox: SandboxProcess | None = None

    def stop(self) -> None:
        if self._sandbox is not None:
            self._sandbox.stop()
        self._spawn.stop_all()

    def running(self) -> dict[str, Peer]:
        """The peers that others wrote and that run now, by name."""
        return dict(self._running)

    def sandbox(self) -> str:
        """Our own provider with counters of its own (docs/sandbox.md)."""
        if self._sandbox is None:
            self._sandbox = SandboxProcess.start()
        return self._sandbox.url

    def stripe_stateful_mock(self) -> str:
        """Charges and refunds with keys."""
        peer = self._running.get("stripe-stateful-mock") or self._start_node(
            "stripe-stateful-mock",
            [MODULES / "stripe-stateful-mock" / "dist" / "cli.js"],
            ports={"stripe": FIRST_PORT},
        )
        return peer.urls["stripe"]

    def emulate(self) -> Peer:
        """GitHub, Slack, Stripe and Twilio, which ignore keys, and Resend, which honours them."""
        return self._running.get("emulate") or self._start_node(
            "emulate",
            [
                MODULES / "emulate" / "dist" / "index.js",
                *("start", "--port", str(FIRST_PORT), "--service", ",".join(EMULATED)),
            ],
            # It gives its services consecutive ports in this order.
            ports={name: FIRST_PORT + at for at, name in enumerate(EMULATED)},
        )

    def emulate_that_tells(self, url: str, *, secret: str) -> Peer:
        """GitHub and Stripe once more, where Stripe's events are posted to `url`, signed with `secret`."""
        seed = self._folder / "seed.json"
        hook = {"url": url, "events": ["*"], "secret": secret}
        seed.write_text(json.dumps({"stripe": {"webhooks": [hook]}, "github": {}}))
        services = ("github", "stripe")
        return self._start_node(
            "emulate that tells",
            [
                MODULES / "emulate" / "dist" / "index.js",
                *("start", "--port", str(FIRST_PORT), "--service", ",".join(services)),
                *("--seed", seed),
            ],
            ports={name: FIRST_PORT + at for at, name in enumerate(services)},
        )

    def moto(self) -> Peer:
        """Amazon's SQS, Step Functions and EC2."""
        return self._running.get("moto") or self._start_moto()

    def _start_node(self, name: str, command: list[Path | str], *, ports: dict[str, int]) -> Peer:
        require_node()
        node = shutil.which("node")
        assert node is not None
        clock = self._folder / f"{name}.clock"
        clock.write_text("0")
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "PEER_CLOCK_FILE": str(clock),
            "PORT": str(FIRST_PORT),
            "LOG_LEVEL": "warn",
            "NO_COLOR": "1",
        }
        process = self._spawn([node, "-r", SHIM, *command], env=environment, name=name, cwd=self._folder)
        listening: dict[int, int] = {}
        for last in until(PATIENCE_SECONDS):
            for line in process.json_lines():
                listening[line["asked"]] = line["port"]
            if len(listening) == len(ports):
                urls = {one: f"http://127.0.0.1:{listening[asked]}" for one, asked in ports.items()}
                self._running[name] = Peer(process=process, urls=urls, clock=clock)
                return self._running[name]
            if last or not process.running():
                break
        raise StillWaiting(f"{name} never listened:\n{process.output()[-4000:]}")

    def _start_moto(self) -> Peer:
        environment = {
            name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ
        }
        clock = self._folder / "moto.clock"
        clock.write_text("0")
        process = self._spawn(
            [sys.executable, FOLDER / "moto_with_clock.py", "-H", "127.0.0.1", "-p", "0"],
            env={**environment, "PEER_CLOCK_FILE": str(clock)},
            name="moto",
            cwd=self._folder,
        )
        found = process.wait_for(r"Running on (http://127\.0\.0\.1:\d+)")
        self._running["moto"] = Peer(process=process, urls={"aws": found.group(1)}, clock=clock)
        return self._running["moto"]
