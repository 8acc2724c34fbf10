"""How many calls a token may make, however many come at once and through however many processes."""

from __future__ import annotations

import threading

import pytest
from django.db import connections

from console.api import limits
from tests.integration.api.world import World

LIMIT = 24


@pytest.fixture(autouse=True)
def _few_calls(settings: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    # A window that doesn't end during a test.
    monkeypatch.setattr(limits, "WINDOW_SECONDS", 240 * 3600)
    monkeypatch.setattr(limits, "PORTIONS", 8)
    settings.RECOURSE_API_CALLS_PER_MINUTE = LIMIT * 60 / (240 * 3600)  # type: ignore[attr-defined]
    limits.portions.forget()


def test_calls_beyond_the_limit_are_refused_and_say_until_when(world: World) -> None:
    for _ in range(LIMIT):
        assert world.worker.get("/cases").status == 200
    refused = world.worker.get("/cases")
    assert (refused.status, refused.word) == (429, "rate_limited")
    assert int(refused.headers["retry-after"]) * 1000 >= refused.body["retry_after_ms"] > 0
    assert world.reader.get("/cases").status == 200, "each token counts for itself"


def test_what_was_refused_for_its_number_changed_nothing_and_counts_later(world: World) -> None:
    body = {"flow": "f", "flow_version": "1", "external_id": "x", "input": 1}
    for _ in range(LIMIT):
        world.worker.get("/cases")
    assert world.worker.post("/runs", body).status == 429
    limits.portions.forget()
    assert world.worker.post("/runs", body).status == 429, "another process counts the same"


@pytest.mark.django_db(transaction=True)
def test_a_burst_from_many_processes_gets_no_call_more_than_the_limit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[int] = []
    own = threading.local()

    class Apart:
        """Each thread is a process of its own, as far as its portions go."""

        def __getattr__(self, name: str) -> object:
            if not hasattr(own, "portions"):
                own.portions = limits._Portions()
            return getattr(own.portions, name)

    monkeypatch.setattr(limits, "portions", Apart())
    secret = world.worker.secret

    def calls() -> None:
        from tests.integration.api.world import Caller

        try:
            answers.extend(Caller(secret).get("/cases").status for _ in range(10))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=calls) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(set(answers)) == [200, 429]
    assert len(answers) == 60
    # What a process took and didn't hand out is the most that is lost.
    assert LIMIT - 6 * (LIMIT // 8) < answers.count(200) <= LIMIT
