"""Workers that meet at one case or one account: who asks, who waits, and what a late answer may do."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F

from console.sandbox.control import SandboxControl
from reconciliation import admission, claiming, lookups, rehearsal
from reconciliation.admission import Admitted, BreakerOpen, Crowded, Limited, Probing
from reconciliation.breaking import FAILURES_TO_OPEN, BreakerState, Verdict
from reconciliation.claiming import LOST_MAX, Asked, Lost, Taken
from reconciliation.gate_models import AccountGate, LookupTally
from reconciliation.limiting import rate_of
from reconciliation.models import Case, Lookup
from reconciliation.providers import registry
from reconciliation.providers.base import elapsed_seconds
from reconciliation.rehearsal import About, CannotBeAsked
from reconciliation.states import CaseState, Need
from runs.locking import database_now
from tests.cases_world import SUPPLIER, declare, due_now, in_doubt, state_of
from tests.concurrency import Connect, at_once, start
from tests.factories import PERSON, TEAM, fresh
from tests.processes import Server

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def declared(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_URL", "http://127.0.0.1:9")
    declare()


@pytest.fixture
def control(sandbox: Server) -> Iterator[SandboxControl]:
    declare()
    with SandboxControl(sandbox.url) as control:
        yield control
    # Closes the connections that lookups keep open.
    registry.reload()


def admit(number: int) -> Any:
    """What a worker gets that has claimed some case."""
    with transaction.atomic():
        return admission.admit(
            slug=SUPPLIER,
            contract=registry.account(SUPPLIER).contract,
            case_id=f"case_{number}",
            claim=f"claim-{number}",
            claim_within=timedelta(seconds=60),
        )


def note(verdict: Verdict, *, claim: str = "", **outcome: Any) -> None:
    admission.note(slug=SUPPLIER, claim=claim, outcome=admission.Outcome(verdict=verdict, **outcome))


def open_breaker() -> AccountGate:
    for _ in range(FAILURES_TO_OPEN):
        note(Verdict.FAILED, because="The provider answered 500.")
    gate = admission.gate_of(SUPPLIER)
    assert gate.breaker_state == BreakerState.OPEN
    return gate


def stop_between_readings(monkeypatch: pytest.MonkeyPatch, since: float) -> None:
    """A process that is stopped for an hour before each of its looks at the clock: it misses every slot."""
    clock = itertools.count(since + 3_600, 3_600)
    monkeypatch.setattr(admission, "elapsed_seconds", lambda: next(clock))


# --- one case ---------------------------------------------------------------------------------------------


def test_of_two_workers_at_one_case_the_second_is_told_the_number_it_met(declared: None) -> None:
    _, case = in_doubt()
    due_now(case)
    outcomes = [one.answer for one in at_once([lambda: claiming.begin(case_id=case.pk)] * 2)]
    winner = next(one for one in outcomes if isinstance(one, Asked))
    loser = next(one for one in outcomes if isinstance(one, Taken))
    held = fresh(case)
    assert (held.lookup_claim, held.lookup_claim_number) == (winner.claim, 1)
    assert (loser.number, loser.until_at) == (1, held.lookup_claimed_until_at)


def test_a_worker_that_waited_for_the_row_while_it_was_claimed_does_not_claim_it_too(
    declared: None, connect: Connect
) -> None:
    """The clock and the claim are read after the lock: what was free when it began to wait is taken now."""
    _, case = in_doubt()
    due_now(case)
    from tests.concurrency import Holder

    holder = Holder(connect(), connect())
    holder.execute("BEGIN", [])
    holder.execute(
        "UPDATE reconciliation_case SET lookup_claim = '7-x', lookup_claim_number = 7,"
        " lookup_claimed_until_at = clock_timestamp() + interval '1 min' WHERE id = %s",
        [case.pk],
    )
    waiting = start(lambda: claiming.begin(case_id=case.pk))
    holder.wait_for_waiters(1)
    holder.release()
    taken = waiting.result().answer
    assert isinstance(taken, Taken)
    assert taken.number == 7


def test_workers_at_one_account_each_get_a_case_of_their_own_longest_due_first(declared: None) -> None:
    cases = [in_doubt()[1] for _ in range(6)]
    order = [case.pk for case in random.sample(cases, len(cases))]
    for age, pk in enumerate(order):
        Case.objects.filter(pk=pk).update(next_lookup_at=F("next_lookup_at") - timedelta(minutes=10 - age))
    outcomes = [one.answer for one in at_once([lambda: claiming.begin_oldest(slug=SUPPLIER)] * 4)]
    assert sorted(one.case_id for one in outcomes if isinstance(one, Asked)) == sorted(order[:4])
    one_more = claiming.begin_oldest(slug=SUPPLIER)
    assert isinstance(one_more, Asked)
    assert one_more.case_id == order[4]


@pytest.mark.parametrize(
    ("left", "taken"), [(timedelta(milliseconds=1), True), (-timedelta(milliseconds=1), False)]
)
def test_a_claim_holds_until_its_time_is_up_and_not_longer(
    declared: None, left: timedelta, taken: bool
) -> None:
    _, case = in_doubt()
    due_now(case)
    now = database_now()
    Case.objects.filter(pk=case.pk).update(
        lookup_claim="1-x", lookup_claim_number=1, lookup_claimed_until_at=now + left
    )
    assert isinstance(claiming._claimable(fresh(case), now), Taken) is taken


def test_an_answer_that_outlives_its_claim_is_evidence_and_moves_nothing(control: SandboxControl) -> None:
    """Nobody has taken the case over yet: its own claim has ended all the same."""
    claimed, case = in_doubt()
    due_now(case)
    with control.hold("lookup_before_reply", account="supplier") as hold:
        running = start(lambda: lookups.look_up(case_id=case.pk))
        hold.wait()
        Case.objects.filter(pk=case.pk).update(lookup_claimed_until_at=database_now())
    assert running.result().answer == "not_found"
    assert Lookup.objects.get().used == "evidence_only"
    late = fresh(case)
    assert (late.lookups_count, late.finding, late.state) == (0, "", CaseState.LOOKING_UP)
    assert state_of(claimed) == "sent_unknown"
    # It is still due, and whoever comes next has the next number.
    second = claiming.begin(case_id=case.pk)
    assert isinstance(second, Asked)
    assert fresh(case).lookup_claim_number == 2


def test_a_case_whose_lookups_never_come_back_is_parked_and_says_so(declared: None) -> None:
    claimed, case = in_doubt()
    for number in range(1, LOST_MAX + 1):
        due_now(case)
        assert isinstance(claiming.begin(case_id=case.pk), Asked), number
        # Its worker is gone.
        Case.objects.filter(pk=case.pk).update(lookup_claimed_until_at=database_now())
    assert isinstance(claiming.begin(case_id=case.pk), Lost)
    assert lookups.look_up(case_id=case.pk) == ""
    parked = fresh(case)
    assert (parked.state, parked.need, parked.next_lookup_at) == (
        CaseState.NEEDS_DECISION,
        Need.PARKED,
        None,
    )
    assert f"begun {LOST_MAX} times and never came back" in parked.parked_because
    assert state_of(claimed) == "sent_unknown"


# --- one account's limit ----------------------------------------------------------------------------------


def test_slots_given_to_eight_connections_at_once_are_never_closer_than_the_limit(declared: None) -> None:
    """By the database's clock: the slots themselves, whoever got them."""
    rate = rate_of(registry.account(SUPPLIER).contract.rate_limit_per_second)

    def take_some() -> list[Any]:
        return [admit(number) for number in range(6)]

    taken = [one for outcome in at_once([take_some] * 8) for one in outcome.answer]
    admitted = sorted(one.start_at for one in taken if isinstance(one, Admitted))
    refused = [one for one in taken if not isinstance(one, Admitted)]
    assert len(admitted) + len(refused) == 48
    assert all(isinstance(one, Limited) for one in refused), refused
    # What was saved up may be taken at once; but for that, each slot is an interval after the one before.
    for place, first in enumerate(admitted):
        for further, slot_at in enumerate(admitted[place:]):
            assert slot_at - first >= rate.interval * (further - rate.burst + 1)


@pytest.mark.parametrize(
    ("ahead", "admitted"), [(timedelta(milliseconds=400), True), (timedelta(seconds=1), False)]
)
def test_a_slot_is_waited_for_only_if_it_is_near(declared: None, ahead: timedelta, admitted: bool) -> None:
    AccountGate.objects.create(account_id=SUPPLIER, next_slot_at=database_now() + ahead)
    answer = admit(1)
    assert isinstance(answer, Admitted) is admitted
    if not admitted:
        assert isinstance(answer, Limited)
        assert "limit of 50 lookups a second until" in answer.sentence


def test_no_more_than_the_cap_are_under_way_at_once_whatever_the_limit(
    declared: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "LOOKUPS_AT_ONCE_MAX", 3)
    for _ in range(6):
        in_doubt()
    outcomes = [one.answer for one in at_once([lambda: claiming.begin_oldest(slug=SUPPLIER)] * 6)]
    asked = [one for one in outcomes if isinstance(one, Asked)]
    crowded = [one for one in outcomes if isinstance(one, Crowded)]
    assert (len(asked), len(crowded)) == (3, 3)
    # One that ends makes room for the next.
    claiming.give_back(asked[0])
    assert isinstance(claiming.begin_oldest(slug=SUPPLIER), Asked)


def test_a_lookup_that_misses_its_slot_is_not_made_late(
    control: SandboxControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is stopped between its slot and its request would arrive together with those after it."""
    claimed, case = in_doubt()
    due_now(case)
    due_at = fresh(case).next_lookup_at
    begun = claiming.begin(case_id=case.pk)
    assert isinstance(begun, Asked)
    assert begun.admitted is not None
    stop_between_readings(monkeypatch, begun.admitted.start_by)
    assert lookups._carry_out(begun, "policy") == ""
    assert control.stats("supplier", key=claimed.operation.key).lookups == 0
    given_back = fresh(case)
    assert (given_back.lookup_claim, given_back.lookups_count) == ("", 0)
    assert given_back.next_lookup_at == due_at


# --- one account's breaker --------------------------------------------------------------------------------


def test_half_open_lets_exactly_one_of_eight_through(declared: None) -> None:
    open_breaker()
    AccountGate.objects.update(breaker_probe_at=database_now())
    outcomes = [
        one.answer
        for one in at_once([lambda number=number: admit(number) for number in range(8)])  # type: ignore[misc]
    ]
    probes = [one for one in outcomes if isinstance(one, Admitted)]
    waiting = [one for one in outcomes if isinstance(one, Probing)]
    assert (len(probes), len(waiting)) == (1, 7)
    assert probes[0].probe
    assert "one lookup is finding out" in waiting[0].sentence


def test_a_test_of_a_lookup_that_misses_its_slot_leaves_the_probe_to_the_next(
    declared: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed, _ = in_doubt()
    open_breaker()
    AccountGate.objects.update(breaker_probe_at=database_now())
    since = elapsed_seconds()
    limited = Limited(until_at=database_now(), per_second=1)
    with monkeypatch.context() as patched:
        stop_between_readings(patched, since)
        for module in (admission, rehearsal):
            patched.setattr(module, "another_slot", lambda **_: limited, raising=False)
            patched.setattr(module, "elapsed_seconds", admission.elapsed_seconds, raising=False)
        with pytest.raises(CannotBeAsked):
            rehearsal.rehearse(
                account=SUPPLIER, about=About(operation=claimed.operation.pk), teams=[TEAM], actor=PERSON
            )
    assert admission.gate_of(SUPPLIER).breaker_probe == ""
    admitted = admit(1)
    assert isinstance(admitted, Admitted)
    assert admitted.probe


@pytest.mark.parametrize(("left", "held"), [(timedelta(minutes=1), True), (timedelta(0), False)])
def test_an_open_breaker_lets_nobody_through_before_its_probe_is_due(
    declared: None, left: timedelta, held: bool
) -> None:
    gate = open_breaker()
    AccountGate.objects.update(breaker_probe_at=database_now() + left)
    answer = admit(1)
    assert isinstance(answer, BreakerOpen) is held
    if held:
        assert gate.breaker_since_at is not None
        assert answer.sentence.startswith(
            f"Breaker open since {gate.breaker_since_at:%-d %b %H:%M:%S}Z, next"
        )
        assert "The provider answered 500." in answer.sentence


def test_what_is_refused_leaves_the_case_due_and_the_limiter_as_it_was(declared: None) -> None:
    _, case = in_doubt()
    open_breaker()
    before = admission.gate_of(SUPPLIER)
    assert lookups.look_up(case_id=case.pk) == ""
    after = admission.gate_of(SUPPLIER)
    assert (after.next_slot_at, after.breaker_state) == (before.next_slot_at, before.breaker_state)
    held = fresh(case)
    assert (held.lookup_claim, held.lookup_claim_number, held.next_lookup_at) == ("", 0, case.next_lookup_at)


def test_the_answers_of_eight_workers_are_all_counted(declared: None) -> None:
    verdicts = [Verdict.ANSWERED] * 5 + [Verdict.FAILED] * 3
    at_once([lambda verdict=verdict: [note(verdict, duration_ms=10)] for verdict in verdicts])  # type: ignore[misc]
    rows = LookupTally.objects.filter(account=SUPPLIER)
    assert sum(row.asked_count for row in rows) == 8
    assert sum(row.failed_count for row in rows) == 3
    assert sum(row.duration_ms_sum for row in rows) == 80


def test_the_database_refuses_a_breaker_that_says_two_things(declared: None) -> None:
    gate = open_breaker()
    from django.db import IntegrityError

    for wrong in ({"breaker_state": "ajar"}, {"breaker_state": "closed"}, {"breaker_probe": "x"}):
        with pytest.raises(IntegrityError), transaction.atomic():
            AccountGate.objects.filter(pk=gate.pk).update(**wrong)
    assert connection.is_usable()
