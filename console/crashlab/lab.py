"""The lab: a whole Recourse started for the purpose, trials run side by side, one table of counts."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from console.crashlab.trials import PROVIDERS, WINDOWS, Lab, Result, run_trial
from console.embedded.demo import PROJECT, Demo
from console.sandbox.control import SandboxControl

# Trials mostly wait (for leases and quiet times to end), so more than there are processors; not so many
# that starting them costs an agent its lease of 5 seconds.
SIDE_BY_SIDE = 4 * (os.cpu_count() or 1)
LAB_ENVIRONMENT = {
    "RECOURSE_PROVIDERS_DIR": str(Path(__file__).parent / "providers"),
    "RECOURSE_SWEEP_SECONDS": "0.5",
    "RECOURSE_LOOKUP_BASE_SECONDS": "0.3",
    "RECOURSE_ENVIRONMENT": "Crash lab",
}


@contextmanager
def open_lab(folder: Path, *, say: Callable[[str], None]) -> Iterator[Lab]:
    """Start servers, web, worker, beat and provider in `folder`; everything ends with the block."""
    os.environ.update(LAB_ENVIRONMENT)
    with Demo(state_dir=folder / "state", say=say) as demo:
        demo.start()
        (folder / "agents").mkdir()
        with SandboxControl(demo.sandbox_url) as sandbox:
            for account in ("lab-keyed", "lab-proof", "mail"):
                sandbox.set_account(account, honours_keys=True, lookup="by_key")
            sandbox.set_account("lab-blind", honours_keys=False, lookup="none")
        yield Lab(
            web_url=demo.web_url,
            sandbox_url=demo.sandbox_url,
            agent_token=demo.agent_token,
            person_token=_person_token(demo),
            environment=demo.environment(),
            folder=folder / "agents",
        )


def _person_token(demo: Demo) -> str:
    command = [sys.executable, str(PROJECT / "manage.py"), "createtoken", "--team", "demo"]
    command += ["--scope", "read", "--scope", "decide", "--person", "operator", "--name", "crash lab"]
    done = subprocess.run(command, env=demo.environment(), check=True, capture_output=True, text=True)
    return done.stdout.strip()


def planned(trials: int) -> list[tuple[int, str, str]]:
    """Number, window and provider of each trial: all windows in turn, at all providers in turn."""
    combinations = itertools.cycle(itertools.product(PROVIDERS, WINDOWS))
    return [
        (number, window, provider)
        for number, (provider, window) in zip(range(trials), combinations, strict=False)
    ]


def run_trials(lab: Lab, *, trials: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Run the trials and return the counts as one JSON object."""
    began = time.monotonic()
    results: list[Result] = []
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        waiting = [
            pool.submit(run_trial, lab, number=number, window=window, provider=provider)
            for number, window, provider in planned(trials)
        ]
        for one in waiting:
            result = one.result()
            results.append(result)
            said = "; ".join(result.problems) or "ok"
            say(
                f"trial {result.number} {result.provider} {result.window}: {result.requests} requests, "
                f"{result.effects} effects, {result.state}, {result.seconds} s: {said}"
            )
    return summed(results, seconds=time.monotonic() - began)


def summed(results: list[Result], *, seconds: float) -> dict[str, Any]:
    """Add the trials up. `hit` counts the kills that landed in their window, by window."""
    hit = Counter(result.window for result in results if result.hit)
    return {
        "trials": len(results),
        "hit": {window: hit[window] for window in WINDOWS},
        "requests": sum(result.requests for result in results),
        "effects": sum(result.effects for result in results),
        "duplicates": sum(result.duplicates for result in results),
        "losses": sum(result.losses for result in results),
        "wrong_confirmations": sum(result.wrong_confirmations for result in results),
        "problems": [
            f"trial {result.number} ({result.provider}, {result.window}): {problem}"
            for result in results
            for problem in result.problems
        ],
        "seconds": round(seconds, 1),
    }
