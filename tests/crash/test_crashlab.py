"""Every crash window once at every provider, by SIGKILL of real processes, counted at the provider."""

from __future__ import annotations

import json
import os
import sys

import pytest

from console.crashlab.lab import planned, summed
from console.crashlab.trials import PROVIDERS, WINDOWS, Result
from tests.processes import ROOT, Spawn


@pytest.mark.timeout(420)
def test_no_window_loses_or_repeats_an_effect(spawn: Spawn) -> None:
    # The lab brings its own servers: what names the suite's must not reach it.
    own = ("DATABASE_URL", "DATABASE_OWNER_URL", "BROKER_URL")
    environment = {name: value for name, value in os.environ.items() if name not in own}
    lab = spawn(
        [
            sys.executable,
            ROOT / "manage.py",
            "crashlab",
            "--json",
            "--trials",
            str(len(WINDOWS) * len(PROVIDERS)),
        ],
        env=environment,
        name="crashlab",
    )
    lab.wait(timeout_seconds=400)
    counts = json.loads(lab.output()[lab.output().index("{") :].rsplit("}", 1)[0] + "}")

    assert counts["problems"] == []
    assert counts["hit"] == {window: len(PROVIDERS) for window in WINDOWS}
    assert (counts["duplicates"], counts["losses"], counts["wrong_confirmations"]) == (0, 0, 0)
    # An order and an e-mail each, but where nobody could know about the order and it was given up: there
    # no e-mail is sent, and the order itself only if its request had left.
    assert counts["effects"] == 2 * 14 + 1 * 3 + 0
    assert lab.returncode == 0


def test_trials_go_through_every_window_at_every_provider() -> None:
    wanted = {(window, provider) for window in WINDOWS for provider in PROVIDERS}
    assert {(window, provider) for _, window, provider in planned(len(wanted))} == wanted


def test_a_summary_adds_up_what_the_trials_counted() -> None:
    good = Result(number=0, window="go", provider="lab-keyed", hit=True, requests=1, effects=1)
    bad = Result(
        number=1, window="committed", provider="lab-keyed", requests=2, effects=2, duplicates=1, losses=1
    )
    bad.problems.append("2 effects where one was due")
    counts = summed([good, bad], seconds=1.0)
    assert (counts["trials"], counts["requests"], counts["effects"]) == (2, 3, 3)
    assert (counts["duplicates"], counts["losses"], counts["wrong_confirmations"]) == (1, 1, 0)
    assert (counts["hit"]["go"], counts["hit"]["committed"]) == (1, 0)
    assert counts["problems"] == ["trial 1 (lab-keyed, committed): 2 effects where one was due"]
