"""Every state that a case can be in: something moves it by itself, or a person can."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db.models import F

from reconciliation import lookups, retries, sweeping
from reconciliation.conclusions import LOOKING_UP_MAX
from reconciliation.gate_models import AccountGate, LookupTally
from reconciliation.models import Case
from reconciliation.states import Action, CaseKind, CaseState, Need, Permission
from runs.journal.sending import begin_repeat_by_console, begin_send
from runs.locking import database_now
from runs.models import Attempt, Grant, Operation
from runs.states import OPERATION_SETTLED, AttemptOutcome, GrantState
from tests.cases_world import (
    COURIER,
    DESK,
    SUPPLIER,
    case_of,
    decide,
    declare,
    in_doubt,
    judged,
    look,
    make_sent,
    report,
    report_refused,
    take_in,
)
from tests.factories import PERSON, TEAM, Claimed, claim, effect, end_lease_in, fresh, make_claimed, quieten

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _declared(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody is there: every lookup fails, the hardest case.
    monkeypatch.setenv("SANDBOX_URL", "http://127.0.0.1:9")
    declare()


def granted(executor: str) -> Claimed:
    """A grant that waits for its executor. Its fresh lookup is skipped as if it had found nothing."""
    claimed, case = in_doubt()
    decide(case, Action.RETRY, executor=executor)
    from tests.factories import held

    with held(claimed.operation) as locked:
        row = Case.objects.select_for_update().get(pk=case.pk)
        decision = retries.pending_retry(row)
        assert decision is not None
        from reconciliation.gathering import judge_now

        judged_now = judge_now(run=locked.run, operation=locked.operation, case=row, now=locked.now)
        assert retries.grant_retry(locked, row, decision, judged_now) is not None
    return claimed


def consumed(executor: str) -> Claimed:
    claimed = granted(executor)
    grant = Grant.objects.latest("made_at")
    if executor == "console":
        begin_repeat_by_console(grant_id=grant.pk, attempt_id=f"console-{grant.pk}")
        return claimed
    token = claim(claimed.run)
    begin_send(team=TEAM, operation_id=claimed.operation.pk, token=token, attempt_id="a2")
    return Claimed(claimed.run, token, claimed.operations)


def just_opened() -> Claimed:
    claimed = make_sent()
    report("unknown", claimed)
    return claimed


def waiting_for_proof() -> Claimed:
    claimed = make_sent(DESK)
    report("unknown", claimed)
    look(case_of(claimed))
    return claimed


def parked() -> Claimed:
    claimed, case = in_doubt()
    for _ in range(8):
        look(case)
    return claimed


def retry_decided() -> Claimed:
    claimed, case = in_doubt()
    decide(case, Action.RETRY)
    return claimed


def grant_expired() -> Claimed:
    claimed = granted("agent")
    grant = Grant.objects.latest("made_at")
    retries.expire_grant(grant_id=grant.pk, now=grant.not_after_at + timedelta(seconds=1))
    return claimed


def withdrawn() -> Claimed:
    claimed = granted("console")
    retries.withdraw_grant(case_id=case_of(claimed).pk, team=TEAM, actor=PERSON, reason="not after all")
    return claimed


def mismatch() -> Claimed:
    claimed = make_sent()
    report_refused("receipt", claimed, quantity=41)
    quieten(claimed.operation)
    return claimed


def stray() -> Claimed:
    claimed = make_claimed(effect(provider=SUPPLIER))
    report("receipt", claimed, attempt_id="never")
    return claimed


def stray_over_a_repeat() -> Claimed:
    claimed = consumed("console")
    report("receipt", claimed, attempt_id="never")
    return claimed


def reused() -> Claimed:
    other, claimed = make_sent(COURIER), make_sent(COURIER)
    report("receipt", other, idempotency_key=None)
    report_refused("receipt", claimed, idempotency_key=None)
    return claimed


def second_receipt() -> Claimed:
    claimed = make_sent()
    report("receipt", claimed)
    report("receipt", claimed, reference="ord_2")
    return claimed


def late_success(action: str) -> Claimed:
    claimed = make_sent()
    if action == "rejected":
        report("rejection", claimed)
    else:
        report("unknown", claimed)
        quieten(claimed.operation)
        decide(case_of(claimed), Action.ABANDON)
    report("receipt", claimed)
    return claimed


def no_lookup() -> Claimed:
    return in_doubt(COURIER)[0]


def refused_once() -> Claimed:
    """Attempt 2 was refused; attempt 1 is as unknown as before."""
    claimed = consumed("agent")
    report("rejection", claimed, attempt_id="a2")
    return claimed


def settled_over_an_open_attempt() -> Claimed:
    """Attempt 1's receipt comes late while the console's repeat is out, and nobody reports that one."""
    claimed = consumed("console")
    report("receipt", claimed, reference=f"ord_{claimed.operation.pk}")
    return claimed


SITUATIONS: dict[str, Callable[[], Claimed]] = {
    "just opened": just_opened,
    "waiting for proof": waiting_for_proof,
    "no lookup": no_lookup,
    "parked": parked,
    "retry decided": retry_decided,
    "granted to the agent": lambda: granted("agent"),
    "granted to the console": lambda: granted("console"),
    "consumed by the agent": lambda: consumed("agent"),
    "consumed by the console": lambda: consumed("console"),
    "grant expired": grant_expired,
    "withdrawn": withdrawn,
    "refused once": refused_once,
    "mismatch": mismatch,
    "stray": stray,
    "stray over a repeat": stray_over_a_repeat,
    "reused": reused,
    "second receipt": second_receipt,
    "late success after rejection": lambda: late_success("rejected"),
    "late success after abandonment": lambda: late_success("abandoned"),
}


def pass_time(claimed: Claimed) -> None:
    """Let everything end that time ends: quiet times, leases, grants, waits between lookups, claims."""
    Attempt.objects.update(
        minted_at=F("minted_at") - timedelta(hours=1), quiet_after_at=F("quiet_after_at") - timedelta(hours=1)
    )
    Operation.objects.filter(last_quiet_at__isnull=False).update(
        last_quiet_at=F("last_quiet_at") - timedelta(hours=1)
    )
    if fresh(claimed.run).lease_token:
        end_lease_in(claimed.run, -1)
    Grant.objects.filter(state=GrantState.OPEN).update(
        not_before_at=F("not_before_at") - timedelta(hours=1),
        not_after_at=F("not_after_at") - timedelta(hours=1),
    )
    Case.objects.update(
        opened_at=F("opened_at") - timedelta(hours=1),
        next_lookup_at=F("next_lookup_at") - timedelta(hours=1),
        lookup_claimed_until_at=F("lookup_claimed_until_at") - timedelta(hours=1),
    )
    AccountGate.objects.update(
        paused_until_at=F("paused_until_at") - timedelta(hours=1),
        breaker_probe_at=F("breaker_probe_at") - timedelta(hours=1),
    )


def a_worker_passes(claimed: Claimed) -> None:
    """One pass of the sweeper, and what it calls for."""
    sweeping.sweep()
    case = case_of(claimed)
    if case.state != CaseState.RESOLVED:
        lookups.look_up(case_id=case.pk)


def movable(claimed: Claimed) -> bool:
    """Whether a person can settle it, alone or with a second one."""
    case = case_of(claimed)
    if case.state == CaseState.RESOLVED:
        return True
    actions = judged(case).assessment.actions
    ends_it = {Action.CONFIRM, Action.ABANDON, Action.ACCEPT, Action.COMPENSATE}
    return case.state == CaseState.NEEDS_DECISION and any(
        one.action in ends_it and one.permission is not Permission.LOCKED for one in actions
    )


@pytest.mark.parametrize("situation", SITUATIONS)
def test_whatever_nobody_sees_to_ends_with_a_person_who_can(situation: str) -> None:
    """The workers are gone, the provider doesn't answer, nobody decides: the sweeper alone goes on."""
    claimed = SITUATIONS[situation]()
    for _ in range(12):
        if movable(claimed):
            break
        pass_time(claimed)
        a_worker_passes(claimed)
    case = case_of(claimed)
    assert movable(claimed), (case.state, case.need, case.next_lookup_at, judged(case).assessment)
    # And the run isn't held by a doubt that nobody has.
    run, operation = fresh(claimed.run), fresh(claimed.operation)
    assert run.in_doubt_count == (0 if operation.state in {*OPERATION_SETTLED, "ready"} else 1)
    assert not Grant.objects.filter(state=GrantState.OPEN).exists()


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_person_can_end_it_then_and_nothing_is_left(situation: str) -> None:
    claimed = SITUATIONS[situation]()
    for _ in range(12):
        if movable(claimed):
            break
        pass_time(claimed)
        a_worker_passes(claimed)
    case = case_of(claimed)
    allowed = {one.action for one in judged(case).assessment.actions if one.permission is Permission.ALLOWED}
    ends = [one for one in (Action.CONFIRM, Action.ABANDON, Action.ACCEPT) if one in allowed]
    assert ends, judged(case).assessment.actions
    decide(case, ends[0])
    assert fresh(case).state == CaseState.RESOLVED
    pass_time(claimed)
    swept = sweeping.sweep()
    assert (swept.lookups_called, swept.sends_called, swept.cases_judged) == (0, 0, 0)
    run = fresh(claimed.run)
    assert (run.in_doubt_count, run.state) == (0, "open")
    assert claim(run)


def test_a_second_pass_of_the_sweeper_finds_nothing_left_to_do() -> None:
    """What is left open on settled operations would otherwise be found in each pass, before what is new."""
    claimed = settled_over_an_open_attempt()
    pass_time(claimed)
    assert sweeping.sweep().runs_taken_in == 1
    assert not Attempt.objects.filter(outcome=AttemptOutcome.OPEN).exists()
    assert sweeping.sweep().runs_taken_in == 0


def test_more_than_a_batch_of_leftovers_does_not_keep_the_newest_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweeping, "BATCH_MAX", 2)
    for _ in range(3):
        settled = settled_over_an_open_attempt()
        pass_time(settled)
    lost = make_sent()
    end_lease_in(lost.run, -1)
    for _ in range(3):
        sweeping.sweep()
    assert case_of(lost).state == CaseState.LOOKING_UP


def test_a_case_that_nobody_looks_up_is_put_to_a_person() -> None:
    """Every lookup worker is gone, or the queue is hours long."""
    claimed, case = in_doubt()
    assert sweeping.sweep().cases_judged == 0
    Attempt.objects.update(minted_at=F("minted_at") - LOOKING_UP_MAX)
    Case.objects.update(
        opened_at=F("opened_at") - LOOKING_UP_MAX, next_lookup_at=F("next_lookup_at") - LOOKING_UP_MAX
    )
    assert sweeping.sweep().cases_judged == 1
    asks = fresh(case)
    assert (asks.state, asks.need) == (CaseState.NEEDS_DECISION, Need.PARKED)
    assert sweeping.sweep().cases_judged == 0
    assert fresh(claimed.run).state == "paused"


@pytest.mark.parametrize(
    ("answered", "minutes_ago", "overdue", "judged_count"),
    [
        pytest.param(1, 0, timedelta(minutes=29), 0, id="its turn comes"),
        pytest.param(1, 0, timedelta(minutes=31), 1, id="the queue is half an hour long"),
        pytest.param(0, 0, timedelta(minutes=29), 1, id="asked and never answered"),
        pytest.param(1, 5, timedelta(minutes=29), 1, id="nobody has been asked for minutes"),
    ],
)
def test_a_case_in_a_queue_that_moves_is_not_put_to_a_person(
    answered: int, minutes_ago: int, overdue: timedelta, judged_count: int
) -> None:
    """After an outage thousands wait; each is looked up in its turn, and nobody is asked about them all."""
    _, case = in_doubt()
    Attempt.objects.update(minted_at=F("minted_at") - LOOKING_UP_MAX)
    Case.objects.update(opened_at=F("opened_at") - overdue, next_lookup_at=database_now() - overdue)
    LookupTally.objects.create(
        account_id=case.provider_slug,
        minute_at=database_now().replace(second=0, microsecond=0) - timedelta(minutes=minutes_ago),
        asked_count=1,
        answered_count=answered,
    )
    assert sweeping.sweep().cases_judged == judged_count
    assert fresh(case).state == (CaseState.NEEDS_DECISION if judged_count else CaseState.LOOKING_UP)


def test_one_poisoned_row_does_not_stop_the_sweeper(monkeypatch: pytest.MonkeyPatch) -> None:
    poisoned, lost = make_sent(), make_sent()
    for claimed in (poisoned, lost):
        end_lease_in(claimed.run, -1)
    from reconciliation import intake

    real = intake.take_in_run

    def fail_for_one(*, run_id: str) -> int:
        if run_id == poisoned.run.pk:
            raise RuntimeError("poison")
        return real(run_id=run_id)

    monkeypatch.setattr(intake, "take_in_run", fail_for_one)
    assert sweeping.sweep().runs_taken_in == 1
    assert case_of(lost).state == CaseState.LOOKING_UP
    monkeypatch.undo()
    declare()
    assert take_in(poisoned.run) == 1


def test_a_conflict_keeps_its_kind_whatever_comes_later() -> None:
    claimed = stray()
    report("receipt", claimed, attempt_id="never", note="once more")
    case = case_of(claimed)
    assert (case.kind, case.number) == (CaseKind.CONFLICT, 1)
    assert not Attempt.objects.exists()
