"""A small outage with every process real: what the provider sees when it is back, counted by itself."""

from __future__ import annotations

import json
import os
import sys

import pytest

from tests.processes import ROOT, Spawn

# A limit that three workers would exceed on any machine if they were let.
CASES, WORKERS, PER_SECOND = 60, 3, 6


@pytest.mark.timeout(420)
def test_after_an_outage_the_provider_sees_no_more_than_its_limit_and_every_case_is_settled_or_parked(
    spawn: Spawn,
) -> None:
    # The drill brings its own servers: what names the suite's must not reach it.
    own = ("DATABASE_URL", "DATABASE_OWNER_URL", "BROKER_URL")
    environment = {name: value for name, value in os.environ.items() if name not in own}
    options = {
        "--cases": CASES,
        "--workers": WORKERS,
        "--per-second": PER_SECOND,
        # So that the one whose answers can't be read is parked after seconds and not after minutes.
        "--base-seconds": 0.02,
        "--sweep-seconds": 0.5,
        "--seconds-max": 300,
    }
    words = [str(word) for option in options.items() for word in option]
    drill = spawn(
        [sys.executable, ROOT / "manage.py", "outage_drill", "--json", *words],
        env=environment,
        name="outage-drill",
    )
    assert drill.wait(timeout_seconds=400) == 0, drill.output()
    figures = json.loads(drill.output()[drill.output().index("{") :].rsplit("}", 1)[0] + "}")

    assert figures["lookups_of_one_second_max"] <= PER_SECOND
    assert figures["lookups_of_one_case_at_once_max"] == 1
    assert (figures["left"], figures["wrong"], figures["requests_that_change"]) == (0, 0, 0)
    # One in ten never arrived, and the answers about one can't be read.
    assert figures["settled"] == CASES - 7
    assert figures["with_a_person"] == {"not_found": 6, "parked": 1}
    assert (
        "told nothing. The last: Nothing follows from the provider's answer" in figures["parked_because"][0]
    )
    # While it was away the breaker kept all but a few from trying: the first ones, and a probe now and then.
    assert 5 <= figures["breaker_opened_after_lookups"] <= 5 + WORKERS
    assert figures["lookups_while_away"] < CASES
    # Longest due first; workers that begin together may arrive in any order.
    assert figures["asked_out_of_order_by_max"] <= 2 * WORKERS
    # And it could be watched: what was due became less, and how much less was told at every look.
    due = [step["due"] for step in figures["progress"]]
    assert due[0] > due[-1]
    assert max(step["settled"] for step in figures["progress"]) == figures["settled"]
