"""What a pass of the sweeper calls for, and that nothing it fails on keeps the rest waiting."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F

from reconciliation import admission, intake, lookups, retries, sweeping, waking
from reconciliation.breaking import FAILURES_TO_OPEN, Verdict
from reconciliation.gate_models import AccountGate, SweepFailure
from reconciliation.models import Case
from reconciliation.states import Action, CaseState
from runs.locking import database_now
from runs.models import Grant
from runs.states import GrantState
from tests.cases_world import PAYMENTS, SUPPLIER, case_of, decide, declare, due_now, in_doubt, make_sent
from tests.factories import end_lease_in, fresh
from tests.integration.test_nothing_gets_stuck import granted

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _declared(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_URL", "http://127.0.0.1:9")
    declare()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The calls that are made, instead of making them."""
    made: list[tuple[Any, ...]] = []
    for module in (sweeping, lookups):
        monkeypatch.setattr(module, "wake", lambda *call: made.append(call))
    return made


# --- calling for lookups ----------------------------------------------------------------------------------


def test_workers_are_called_for_each_account_in_need_and_no_more_than_it_has_cases(
    calls: list[tuple[Any, ...]],
) -> None:
    for provider in (SUPPLIER, SUPPLIER, PAYMENTS):
        in_doubt(provider)
    assert sweeping.sweep().lookups_called == 3
    assert sorted(calls) == [
        ("look_up_due", PAYMENTS, 1),
        ("look_up_due", SUPPLIER, 1),
        ("look_up_due", SUPPLIER, 1),
    ]


def test_a_backlog_is_worked_off_by_a_few_workers_and_not_by_a_call_for_each_case(
    calls: list[tuple[Any, ...]],
) -> None:
    for _ in range(admission.LOOKUPS_AT_ONCE_MAX + 3):
        in_doubt()
    assert 0 < sweeping.sweep().lookups_called <= admission.LOOKUPS_AT_ONCE_MAX


def test_a_new_wave_ends_the_one_before(
    calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    # On a machine that is slow a worker's time would be up after a case or two, and the first due once more.
    monkeypatch.setattr(lookups, "WORK_SECONDS", 3600.0)
    settings.RECOURSE_LOOKUP_BASE_SECONDS = 3600.0
    opened = [in_doubt()[1] for _ in range(4)]
    sweeping.sweep()
    sweeping.sweep()
    assert {call[2] for call in calls} == {1, 2}
    calls.clear()
    # A call of the first pass that comes late, as from a broker that was slow, is not one more worker.
    assert lookups.look_up_due(slug=SUPPLIER, wave=1) == 1
    assert calls == [], "and it doesn't get into the queue again"
    assert lookups.look_up_due(slug=SUPPLIER, wave=2) == 3
    assert [fresh(case).lookups_count for case in opened] == [1, 1, 1, 1]


def test_where_every_call_comes_after_the_next_pass_cases_are_looked_up_all_the_same(
    calls: list[tuple[Any, ...]],
) -> None:
    """A queue longer than the time between two passes, as on a machine that is overloaded."""
    opened = [in_doubt()[1] for _ in range(2)]
    sweeping.sweep()
    for _ in range(2):
        late, calls[:] = calls[0], []
        sweeping.sweep()
        assert late[2] < AccountGate.objects.get(pk=SUPPLIER).wave
        lookups.look_up_due(slug=late[1], wave=late[2])
    assert [fresh(case).lookups_count for case in opened] == [1, 1]


def test_a_worker_whose_time_is_up_goes_to_the_end_of_the_queue(
    calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        in_doubt()
    AccountGate.objects.create(account_id=SUPPLIER, wave=7)
    monkeypatch.setattr(lookups, "WORK_SECONDS", 0.0)
    assert lookups.look_up_due(slug=SUPPLIER, wave=7) == 1
    assert calls == [("look_up_due", SUPPLIER, 7)]


@pytest.mark.parametrize("held", ["breaker", "retry_after", "probing"])
def test_nobody_is_called_for_an_account_that_may_not_be_asked(
    calls: list[tuple[Any, ...]], held: str
) -> None:
    in_doubt()
    now = database_now()
    later = now + timedelta(minutes=5)
    gate: dict[str, Any] = {
        "breaker": {"breaker_state": "open", "breaker_since_at": now, "breaker_probe_at": later},
        "retry_after": {"paused_until_at": later},
        "probing": {
            "breaker_state": "half_open",
            "breaker_since_at": now,
            "breaker_probe": "1-x",
            "breaker_probe_until_at": later,
        },
    }
    AccountGate.objects.create(account_id=SUPPLIER, **gate[held])
    assert sweeping.sweep().lookups_called == 0
    assert calls == []


def test_one_worker_is_called_when_a_probe_is_due(calls: list[tuple[Any, ...]]) -> None:
    for _ in range(4):
        in_doubt()
    now = database_now()
    AccountGate.objects.create(
        account_id=SUPPLIER, breaker_state="open", breaker_since_at=now, breaker_probe_at=now
    )
    assert sweeping.sweep().lookups_called == 1


def test_a_wake_up_call_for_the_newest_case_looks_up_the_one_that_has_waited_longest() -> None:
    oldest, newest = in_doubt()[1], in_doubt()[1]
    due_now(oldest)
    assert lookups.look_up_in_turn(case_id=newest.pk) == "unavailable"
    assert (fresh(oldest).lookups_count, fresh(newest).lookups_count) == (1, 0)


def test_a_person_who_asks_is_not_sent_to_the_end_of_the_line() -> None:
    waiting, asked = in_doubt()[1], in_doubt()[1]
    due_now(waiting)
    assert lookups.look_up(case_id=asked.pk) == "unavailable"
    assert fresh(waiting).lookups_count == 0


def test_a_case_that_fails_goes_behind_those_that_waited_with_it() -> None:
    """Two hundred that always fail would otherwise be the first two hundred of every pass."""
    failing, patient = in_doubt()[1], in_doubt()[1]
    due_now(failing)
    lookups.look_up_in_turn(case_id=patient.pk)
    assert fresh(failing).next_lookup_at > database_now()
    lookups.look_up_in_turn(case_id=failing.pk)
    assert (fresh(failing).lookups_count, fresh(patient).lookups_count) == (1, 1)


def test_a_case_that_the_policy_looks_at_again_while_it_waits_keeps_its_place() -> None:
    _, case = in_doubt()
    Case.objects.update(next_lookup_at=F("next_lookup_at") - timedelta(hours=1))
    due_at = fresh(case).next_lookup_at
    assert sweeping.sweep().cases_judged == 1
    still = fresh(case)
    assert (still.state, still.next_lookup_at) == (CaseState.LOOKING_UP, due_at)


def test_a_case_that_is_put_to_a_person_while_it_waits_keeps_its_place() -> None:
    _, case = in_doubt()
    long_ago = timedelta(hours=1)
    Case.objects.update(opened_at=F("opened_at") - long_ago, next_lookup_at=F("next_lookup_at") - long_ago)
    due_at = fresh(case).next_lookup_at
    assert sweeping.sweep().cases_judged == 1
    asks = fresh(case)
    assert (asks.state, asks.next_lookup_at) == (CaseState.NEEDS_DECISION, due_at)


# --- why a case is parked ---------------------------------------------------------------------------------


def test_a_parked_case_says_what_its_provider_answered_last() -> None:
    _, case = in_doubt()
    for _ in range(8):
        due_now(case)
        lookups.look_up(case_id=case.pk)
    parked = fresh(case)
    assert parked.need == "parked"
    assert parked.parked_because.startswith(
        "8 lookups in a row told nothing. The last: The provider could not"
    )


def test_a_case_that_was_parked_unasked_says_what_kept_it_from_being_asked() -> None:
    _, case = in_doubt()
    for _ in range(FAILURES_TO_OPEN):
        admission.note(
            slug=SUPPLIER,
            claim="",
            outcome=admission.Outcome(verdict=Verdict.FAILED, because="It answered 500."),
        )
    AccountGate.objects.update(breaker_probe_at=database_now() + timedelta(minutes=3))
    Case.objects.update(opened_at=F("opened_at") - timedelta(hours=1))
    Case.objects.update(next_lookup_at=F("next_lookup_at") - timedelta(hours=1))
    sweeping.sweep()
    parked = fresh(case)
    assert parked.need == "parked"
    assert "Breaker open since" in parked.parked_because
    assert "It answered 500." in parked.parked_because
    # Once it is settled nothing of that is left.
    decide(parked, Action.ABANDON)
    assert fresh(case).parked_because == ""


# --- what a step fails on ---------------------------------------------------------------------------------


def test_rows_that_always_fail_do_not_fill_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "BATCH_MAX", 2)
    poisoned = [make_sent() for _ in range(2)]
    lost = make_sent()
    for age, claimed in enumerate([*poisoned, lost]):
        end_lease_in(claimed.run, age - 60)
    real = intake.take_in_run

    def fail(*, run_id: str) -> int:
        if run_id in {claimed.run.pk for claimed in poisoned}:
            raise RuntimeError("poison")
        return real(run_id=run_id)

    monkeypatch.setattr(intake, "take_in_run", fail)
    # They are the oldest of all, and come first once.
    sweeping.sweep()
    sweeping.sweep()
    assert case_of(lost).state == CaseState.LOOKING_UP
    assert SweepFailure.objects.filter(step="take_in").count() == 2


@pytest.mark.parametrize("over", [False, True])
def test_what_failed_is_met_again_once_its_rest_is_over_and_not_before(
    monkeypatch: pytest.MonkeyPatch, over: bool
) -> None:
    claimed = make_sent()
    end_lease_in(claimed.run, -1)
    sweeping.note_failure(step="take_in", subject=claimed.run.pk, error="RuntimeError")
    rest = timedelta(0) if over else timedelta(minutes=1)
    SweepFailure.objects.update(not_before_at=database_now() + rest)
    assert sweeping.sweep().runs_taken_in == int(over)
    # What went well is forgotten.
    assert SweepFailure.objects.exists() is not over


@pytest.mark.parametrize(("age", "kept"), [(timedelta(hours=23), True), (timedelta(hours=25), False)])
def test_what_hasnt_failed_for_a_day_is_forgotten(age: timedelta, kept: bool) -> None:
    sweeping.note_failure(step="judge", subject="case_gone", error="KeyError")
    SweepFailure.objects.update(failed_at=database_now() - age)
    sweeping.sweep()
    assert SweepFailure.objects.exists() is kept


def test_the_rest_doubles_with_each_failure_up_to_an_hour() -> None:
    rests = []
    for _ in range(14):
        before = database_now()
        sweeping.note_failure(step="judge", subject="case_1", error="KeyError")
        row = SweepFailure.objects.get()
        rests.append(row.not_before_at - before)
    assert row.failures_count == 14
    assert timedelta(seconds=2.5) <= rests[0] <= timedelta(seconds=6)
    assert timedelta(minutes=30) <= rests[-1] <= timedelta(minutes=61)
    assert rests[4] > rests[0]


def test_a_granted_send_that_is_refused_is_left_alone_for_a_while(
    calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its grant stays open until it ends; many such would be the first of every pass."""
    grant = Grant.objects.get(operation=granted("console").operation)
    monkeypatch.setattr(retries, "send_granted", lambda *, grant_id: "")
    assert sweeping.send_granted(grant_id=grant.pk) == ""
    assert SweepFailure.objects.get().subject == grant.pk
    assert sweeping.sweep().sends_called == 0
    assert fresh(grant).state == GrantState.OPEN
    SweepFailure.objects.update(not_before_at=database_now())
    calls.clear()
    assert sweeping.sweep().sends_called == 1
    assert calls == [("send_granted", grant.pk)]


# --- the broker -------------------------------------------------------------------------------------------


def test_a_call_is_made_by_another_thread_and_a_broken_broker_is_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from celery import current_app

    made: list[str] = []

    def send_task(name: str, **options: Any) -> None:
        made.append(name)
        raise ConnectionError("nobody there")

    monkeypatch.setattr(current_app._get_current_object(), "send_task", send_task)
    monkeypatch.setattr(waking._Process, "caller", None)
    for _ in range(3):
        waking.wake("sweep")
    assert waking.flush(within_seconds=30)
    # One found out for all.
    assert made == ["reconciliation.tasks.sweep"]
