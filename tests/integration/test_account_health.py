"""What the console can say about asking an account: how it goes, what holds it back, what waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from reconciliation import admission, claiming
from reconciliation.admission import RETRY_AFTER_MAX
from reconciliation.breaking import FAILURES_TO_OPEN, BreakerState, Verdict
from reconciliation.gate_models import AccountGate, LookupTally
from reconciliation.health import WaitReason, account_health, why_waiting
from reconciliation.models import Case
from runs.locking import database_now
from tests.cases_world import SUPPLIER, declare, in_doubt
from tests.factories import fresh

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _declared(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_URL", "http://127.0.0.1:9")
    declare()


def test_an_account_that_was_never_asked_is_well_and_nothing_holds_it_back() -> None:
    health = account_health(SUPPLIER, database_now())
    assert (health.breaker.state, health.limiter.tokens) == (BreakerState.CLOSED, health.limiter.burst)
    assert (health.lookups.asked, health.backlog.due, health.held, health.sentence) == (0, 0, None, "")


def test_what_waits_is_counted_with_the_age_of_the_oldest() -> None:
    first, _ = in_doubt(), in_doubt()
    backlog = account_health(SUPPLIER, database_now()).backlog
    assert (backlog.due, backlog.later, backlog.oldest_due_at) == (2, 0, first[1].next_lookup_at)


# --- what came of lookups, and how fast the backlog gets less ----------------------------------------------


def note(verdict: Verdict, **outcome: Any) -> None:
    admission.note(slug=SUPPLIER, claim="", outcome=admission.Outcome(verdict=verdict, **outcome))


def test_the_last_hour_is_told_by_what_came_of_its_lookups() -> None:
    note(Verdict.ANSWERED, duration_ms=30, settled=True)
    note(Verdict.ANSWERED, duration_ms=10, handed_over=True)
    note(Verdict.FAILED, because="The provider answered 500.", duration_ms=20)
    note(Verdict.FAILED, because="It is busy.", retry_after=timedelta(seconds=1), duration_ms=20)
    note(Verdict.NOT_ASKED)
    lookups_health = account_health(SUPPLIER, database_now()).lookups
    told = (lookups_health.asked, lookups_health.answered, lookups_health.failed, lookups_health.told_to_wait)
    assert told == (4, 2, 2, 1)
    assert (lookups_health.settled, lookups_health.handed_over, lookups_health.mean_ms) == (1, 1, 20.0)
    assert lookups_health.last_failure == "It is busy."


@pytest.mark.parametrize(("age", "counted"), [(timedelta(minutes=59), 1), (timedelta(minutes=61), 0)])
def test_what_is_older_than_an_hour_is_not_counted(age: timedelta, counted: int) -> None:
    note(Verdict.ANSWERED)
    now = database_now()
    LookupTally.objects.update(minute_at=now - age)
    assert account_health(SUPPLIER, now).lookups.asked == counted


def test_what_is_due_takes_so_long_at_the_present_speed_and_no_time_is_named_while_nobody_asks() -> None:
    for _ in range(3):
        in_doubt()
    now = database_now()
    LookupTally.objects.create(
        account_id=SUPPLIER, minute_at=now - timedelta(seconds=30), asked_count=15, settled_count=6
    )
    backlog = account_health(SUPPLIER, now).backlog
    assert (backlog.looked_up_per_second, backlog.settled_per_second, backlog.seconds_left) == (0.5, 0.2, 6.0)
    for _ in range(FAILURES_TO_OPEN):
        note(Verdict.FAILED, because="The provider answered 500.")
    AccountGate.objects.update(breaker_probe_at=now + timedelta(minutes=5))
    health = account_health(SUPPLIER, now)
    assert health.backlog.seconds_left is None
    assert (health.breaker.state, health.breaker.failures_in_a_row) == (BreakerState.OPEN, FAILURES_TO_OPEN)
    assert health.sentence.endswith("The provider answered 500.")


@pytest.mark.parametrize(("left", "paused"), [(timedelta(seconds=1), True), (timedelta(0), False)])
def test_a_pause_that_the_provider_asked_for_is_shown_until_it_is_over(left: timedelta, paused: bool) -> None:
    now = database_now()
    AccountGate.objects.create(account_id=SUPPLIER, paused_until_at=now + left, paused_because="It is busy.")
    health = account_health(SUPPLIER, now)
    assert (health.limiter.paused_until_at is not None) is paused
    assert ("asked to be left alone until" in health.sentence) is paused


def test_retry_after_is_a_pause_for_the_whole_account_of_a_quarter_of_an_hour_at_most() -> None:
    before = database_now()
    note(Verdict.FAILED, because="Too many requests.", retry_after=timedelta(days=1))
    until_at = AccountGate.objects.get().paused_until_at
    assert until_at is not None
    assert before + RETRY_AFTER_MAX <= until_at <= database_now() + RETRY_AFTER_MAX
    # A shorter one that comes later from another worker takes nothing of it back.
    note(Verdict.FAILED, because="Too many requests.", retry_after=timedelta(seconds=1))
    assert AccountGate.objects.get().paused_until_at == until_at


# --- why one case waits ------------------------------------------------------------------------------------


def test_every_wait_of_a_case_has_its_reason() -> None:
    first, second = in_doubt()[1], in_doubt()[1]
    now = database_now()

    def reason(case: Case = second) -> WaitReason:
        return why_waiting(fresh(case), now).reason

    assert why_waiting(fresh(first), now).sentence == "A lookup is due now and runs by itself."
    assert "one other case of this account has waited longer" in why_waiting(fresh(second), now).sentence
    gates: list[tuple[WaitReason, dict[str, Any]]] = [
        (WaitReason.LIMIT, {"next_slot_at": now + timedelta(minutes=1)}),
        (WaitReason.RETRY_AFTER, {"paused_until_at": now + timedelta(minutes=1)}),
        (
            WaitReason.BREAKER_OPEN,
            {
                "breaker_state": "open",
                "breaker_since_at": now,
                "breaker_probe_at": now + timedelta(minutes=1),
            },
        ),
        (
            WaitReason.PROBE_OUT,
            {
                "breaker_state": "half_open",
                "breaker_since_at": now,
                "breaker_probe": "1-x",
                "breaker_probe_until_at": now + timedelta(minutes=1),
            },
        ),
    ]
    for expected, gate in gates:
        AccountGate.objects.all().delete()
        AccountGate.objects.create(account_id=SUPPLIER, **gate)
        waiting = why_waiting(fresh(second), now)
        assert (waiting.reason, waiting.until_at) == (expected, now + timedelta(minutes=1))
    AccountGate.objects.all().delete()
    assert isinstance(claiming.begin(case_id=second.pk), claiming.Asked)
    assert reason() is WaitReason.UNDER_WAY
    Case.objects.filter(pk=second.pk).update(lookup_claim="", lookup_claimed_until_at=None)
    Case.objects.filter(pk=second.pk).update(next_lookup_at=now + timedelta(seconds=1))
    assert reason() is WaitReason.OWN_WAIT
    Case.objects.filter(pk=second.pk).update(next_lookup_at=None)
    assert reason() is WaitReason.NOT_PLANNED


def test_a_case_in_an_account_that_is_as_busy_as_it_may_be_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "LOOKUPS_AT_ONCE_MAX", 1)
    first, second = in_doubt()[1], in_doubt()[1]
    assert isinstance(claiming.begin(case_id=first.pk), claiming.Asked)
    waiting = why_waiting(fresh(second), database_now())
    assert waiting.reason is WaitReason.AT_ONCE
    assert waiting.sentence.startswith("As many lookups as may be made at once (1) are under way")
