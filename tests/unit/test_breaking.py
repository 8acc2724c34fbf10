"""The breaker: failures in a row open it, one probe decides, and only what says something about the provider
counts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from reconciliation.breaking import (
    FAILURES_TO_OPEN,
    PAUSE_MAX,
    Breaker,
    BreakerState,
    Closed,
    Open,
    Probe,
    Probing,
    Verdict,
    after,
    passage,
    verdict_of,
)
from reconciliation.providers.base import (
    Candidate,
    Exchange,
    Finding,
    Found,
    Inconclusive,
    Mismatch,
    NotFound,
    Pending,
    Refused,
    Several,
    Unavailable,
)

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
PAUSE = timedelta(seconds=5)
WITHIN = timedelta(seconds=90)
TICK = timedelta(microseconds=1)


def told(
    breaker: Breaker, *verdicts: Verdict, claim: str = "c", now: datetime = NOW, **more: object
) -> Breaker:
    for verdict in verdicts:
        breaker = after(
            breaker,
            claim=claim,
            verdict=verdict,
            now=now,
            first_pause=PAUSE,
            share=1.0,
            **more,  # type: ignore[arg-type]
        )
    return breaker


def opened() -> Breaker:
    return told(Breaker(), *[Verdict.FAILED] * FAILURES_TO_OPEN)


def half_open(claim: str = "probe") -> Breaker:
    now = NOW + PAUSE
    let_through = passage(opened(), claim=claim, now=now, probe_within=WITHIN)
    assert isinstance(let_through, Probe)
    return let_through.breaker


def test_it_opens_at_so_many_failures_in_a_row_and_not_one_earlier() -> None:
    assert told(Breaker(), *[Verdict.FAILED] * (FAILURES_TO_OPEN - 1)).state is BreakerState.CLOSED
    breaker = opened()
    assert (breaker.state, breaker.since_at, breaker.probe_at) == (BreakerState.OPEN, NOW, NOW + PAUSE)


def test_an_answer_in_between_begins_the_count_anew_and_a_question_not_put_does_not() -> None:
    almost = [Verdict.FAILED] * (FAILURES_TO_OPEN - 1)
    assert told(Breaker(), *almost, Verdict.ANSWERED, *almost).state is BreakerState.CLOSED
    assert told(Breaker(), *almost, Verdict.NOT_ASKED, Verdict.FAILED).state is BreakerState.OPEN


def test_nobody_asks_before_the_pause_is_over_and_one_does_then() -> None:
    breaker = opened()
    before = passage(breaker, claim="a", now=NOW + PAUSE - TICK, probe_within=WITHIN)
    assert before == Open(since_at=NOW, probe_at=NOW + PAUSE)
    let_through = passage(breaker, claim="a", now=NOW + PAUSE, probe_within=WITHIN)
    assert isinstance(let_through, Probe)
    second = passage(let_through.breaker, claim="b", now=NOW + PAUSE, probe_within=WITHIN)
    assert second == Probing(since_at=NOW, until_at=NOW + PAUSE + WITHIN)


def test_a_probe_that_never_comes_back_is_followed_by_another_once_its_time_is_up() -> None:
    breaker = half_open("first")
    until_at = NOW + PAUSE + WITHIN
    assert isinstance(passage(breaker, claim="b", now=until_at - TICK, probe_within=WITHIN), Probing)
    again = passage(breaker, claim="b", now=until_at, probe_within=WITHIN)
    assert isinstance(again, Probe)
    assert again.breaker.probe == "b"
    # And the first one's answer doesn't count any more.
    assert told(again.breaker, Verdict.ANSWERED, claim="first") == again.breaker


def test_an_answered_probe_closes_it_with_nothing_held_against_the_provider() -> None:
    closed = told(half_open("probe"), Verdict.ANSWERED, claim="probe")
    assert (closed.state, closed.failures_count, closed.openings_count) == (BreakerState.CLOSED, 0, 0)
    assert isinstance(passage(closed, claim="x", now=NOW, probe_within=WITHIN), Closed)


def test_each_probe_that_fails_doubles_the_pause_up_to_the_longest() -> None:
    breaker, now, pauses = opened(), NOW, []
    for _ in range(12):
        assert breaker.probe_at is not None
        pauses.append(breaker.probe_at - now)
        now = breaker.probe_at
        let_through = passage(breaker, claim="p", now=now, probe_within=WITHIN)
        assert isinstance(let_through, Probe)
        breaker = told(let_through.breaker, Verdict.FAILED, claim="p", now=now)
        assert breaker.state is BreakerState.OPEN
    assert pauses[:4] == [PAUSE, 2 * PAUSE, 4 * PAUSE, 8 * PAUSE]
    assert pauses[-1] == PAUSE_MAX
    # The outage began when it first opened.
    assert breaker.since_at == NOW


@pytest.mark.parametrize("verdict", [Verdict.ANSWERED, Verdict.FAILED, Verdict.NOT_ASKED])
def test_what_was_asked_before_it_opened_decides_nothing(verdict: Verdict) -> None:
    assert told(opened(), verdict, claim="early") == opened()
    assert told(half_open("probe"), verdict, claim="early") == half_open("probe")


def test_a_probe_that_asked_nothing_leaves_its_place_to_the_next() -> None:
    breaker = told(half_open("probe"), Verdict.NOT_ASKED, claim="probe")
    assert breaker.state is BreakerState.HALF_OPEN
    assert isinstance(passage(breaker, claim="next", now=NOW + PAUSE, probe_within=WITHIN), Probe)


def test_no_probe_goes_before_the_provider_said_that_it_may_be_asked() -> None:
    rest_until_at = NOW + timedelta(minutes=3)
    breaker = told(Breaker(failures_count=FAILURES_TO_OPEN - 1), Verdict.FAILED, rest_until_at=rest_until_at)
    assert breaker.probe_at == rest_until_at
    sooner = told(Breaker(failures_count=FAILURES_TO_OPEN - 1), Verdict.FAILED, rest_until_at=NOW)
    assert sooner.probe_at == NOW + PAUSE


EXCHANGE = Exchange(method="GET", url="http://127.0.0.1/", status=200)


@pytest.mark.parametrize(
    ("finding", "verdict"),
    [
        *(
            (kind(summary="", exchange=EXCHANGE), Verdict.ANSWERED)
            for kind in (Found, Candidate, Pending, Refused, Mismatch, Several, NotFound)
        ),
        (Inconclusive(summary="", exchange=EXCHANGE), Verdict.ANSWERED),
        (Inconclusive(summary="", reason="no_lookup"), Verdict.NOT_ASKED),
        (Unavailable(summary="", reason="not_configured"), Verdict.NOT_ASKED),
        (Unavailable(summary=""), Verdict.FAILED),
        (Unavailable(summary="", reason="failing", exchange=EXCHANGE), Verdict.FAILED),
        (Unavailable(summary="", reason="overloaded", retry_after_ms=1_000), Verdict.FAILED),
        (Unavailable(summary="", reason="refused_us", exchange=EXCHANGE), Verdict.FAILED),
    ],
)
def test_not_found_is_a_lookup_that_succeeded_and_only_no_answer_is_a_failure(
    finding: Finding, verdict: Verdict
) -> None:
    assert verdict_of(finding) is verdict
