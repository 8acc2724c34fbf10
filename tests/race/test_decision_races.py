"""Decisions, findings, reports and sweepers at once: one settles it, the rest learn what was first."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from console.sandbox.control import SandboxControl
from reconciliation import decisions, intake, lookups, retries, sweeping
from reconciliation.decisions import Asked, Decided, DecisionStale, KeyReused
from reconciliation.models import Case, Decision, Lookup
from reconciliation.providers import registry
from reconciliation.states import Action, CaseState
from runs.actors import Actor, ActorKind
from runs.leases import AlreadyClaimed, RunPaused
from runs.models import Attempt, AuditLeaf, Evidence, Grant, Receipt
from runs.states import AttemptOutcome
from tests.cases_world import (
    asked,
    case_of,
    decide,
    declare,
    due_now,
    in_doubt,
    make_sent,
    report,
    state_of,
)
from tests.concurrency import Connect, at_once, holding_run, start
from tests.factories import PERSON, TEAM, VERSION, Claimed, end_lease_in, fresh
from tests.processes import Server
from tests.sandbox_client import new_client

pytestmark = pytest.mark.django_db(transaction=True)
TOMAS = Actor(ActorKind.PERSON, "person:tomas", "operator")


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


def record(case: Case, form: Asked, actor: Actor) -> Decided:
    return decisions.decide(
        case_id=case.pk, team=TEAM, actor=actor, asked=form, actor_name=actor.id.removeprefix("person:")
    )


# --- two people -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("actions", [(Action.ABANDON, Action.ABANDON), (Action.ABANDON, Action.RETRY)])
def test_of_two_people_at_once_one_decides_and_the_other_is_told_who_was_first(
    declared: None, actions: tuple[Action, Action]
) -> None:
    claimed, case = in_doubt(minor=500)
    people = [(PERSON, asked(case, actions[0])), (TOMAS, asked(case, actions[1]))]
    outcomes = at_once([lambda who=who, form=form: record(case, form, who) for who, form in people])  # type: ignore[misc]
    refusals = [one.refusal for one in outcomes if one.refusal is not None]
    assert len(refusals) == 1
    assert isinstance(refusals[0], DecisionStale)
    made = Decision.objects.get()
    assert refusals[0].details["by"] == made.actor_name
    assert refusals[0].details["action"] == made.action
    assert made.actor_name in refusals[0].details["changed"][0]
    assert AuditLeaf.objects.filter(action__startswith="case.decided").count() == 1
    run = fresh(claimed.run)
    reserved, held = (0, 500) if made.action == Action.ABANDON else (500, 0)
    assert (run.budget_reserved_minor, run.budget_held_minor) == (reserved, held)


def test_one_person_clicking_twice_at_once_decides_once(declared: None) -> None:
    _, case = in_doubt()
    form = asked(case, Action.ABANDON)
    outcomes = at_once([lambda: record(case, form, PERSON)] * 4)
    assert sorted(one.answer.replayed for one in outcomes) == [False, True, True, True]
    assert len({json.dumps(one.answer.answer, sort_keys=True) for one in outcomes}) == 1
    assert Decision.objects.count() == 1


def test_one_key_for_two_cases_at_once_decides_one_of_them(declared: None) -> None:
    forms = []
    for _ in range(2):
        _, case = in_doubt()
        forms.append((case, asked(case, Action.ABANDON, idempotency_key="same")))
    outcomes = at_once([lambda case=case, form=form: record(case, form, PERSON) for case, form in forms])  # type: ignore[misc]
    refusals = [one.refusal for one in outcomes if one.refusal is not None]
    assert len(refusals) == 1
    assert isinstance(refusals[0], KeyReused)
    assert Case.objects.filter(state=CaseState.RESOLVED).count() == Decision.objects.count() == 1


# --- a person and the evidence --------------------------------------------------------------------------


def test_a_decision_and_a_finding_at_once_settle_it_once(control: SandboxControl) -> None:
    claimed, case = in_doubt(minor=500)
    with new_client(control.account_url("supplier")) as client:
        client.post(
            "/orders",
            json=json.loads(bytes(claimed.operation.payload)),
            headers={"Idempotency-Key": claimed.operation.key},
        )
    form = asked(case, Action.ABANDON)
    due_now(case)
    looked, decided = at_once(
        [lambda: lookups.look_up(case_id=case.pk), lambda: str(record(case, form, PERSON).answer["action"])]
    )
    assert looked.answer in ("found", "")
    case = fresh(case)
    assert case.state == CaseState.RESOLVED
    run = fresh(claimed.run)
    if decided.refusal is None:
        assert (state_of(claimed), case.resolution, run.budget_held_minor) == ("abandoned", "abandoned", 500)
        assert not Receipt.objects.exists()
        assert not Lookup.objects.filter(used="judged").exists()
    else:
        assert isinstance(decided.refusal, DecisionStale)
        assert (state_of(claimed), case.resolution, run.budget_spent_minor) == ("confirmed", "confirmed", 500)
    assert run.budget_reserved_minor == 0


@pytest.mark.parametrize("first", ["decision", "receipt"])
def test_a_receipt_and_an_abandonment_at_once_never_lose_the_effect(
    declared: None, connect: Connect, first: str
) -> None:
    claimed, case = in_doubt(minor=500)
    form = asked(case, Action.ABANDON)
    acts = {
        "decision": lambda: record(case, form, PERSON).answer,
        "receipt": lambda: report("receipt", claimed),
    }
    order = [first, *(name for name in acts if name != first)]
    with holding_run(connect, claimed.run.pk) as other:
        running = {}
        for number, name in enumerate(order, 1):
            running[name] = start(acts[name])
            other.wait_for_waiters(number)
        other.release()
    decided, told = running["decision"].result(), running["receipt"].result()
    assert told.refusal is None
    # A receipt asks for the lock twice, on the fast path and on the slow one: either may come first.
    if decided.refusal is None:
        # History isn't rewritten: a conflict, with the receipt on record.
        assert (state_of(claimed), case_of(claimed).kind) == ("abandoned", "conflict")
        assert told.answer["case"] == case_of(claimed).pk
    else:
        assert isinstance(decided.refusal, DecisionStale)
        assert state_of(claimed) == "confirmed"
    assert Evidence.objects.filter(claim="receipt").count() == 1


# --- sweepers, claims and late reports ------------------------------------------------------------------


def test_any_number_of_sweepers_take_each_thing_in_once(declared: None) -> None:
    lost = [make_sent() for _ in range(3)]
    for claimed in lost:
        end_lease_in(claimed.run, -1)
    outcomes = at_once([lambda: [sweeping.sweep()]] * 4)
    assert all(one.refusal is None for one in outcomes)
    assert Case.objects.count() == 3
    assert Attempt.objects.filter(outcome=AttemptOutcome.UNREPORTED).count() == 3
    for claimed in lost:
        run = fresh(claimed.run)
        assert (run.state, run.in_doubt_count, run.lease_token) == ("paused", 1, None)
        assert AuditLeaf.objects.filter(action="case.opened", operation_ref=claimed.operation.pk).count() == 1
        assert AuditLeaf.objects.filter(action="lease.ended", run_ref=claimed.run.pk).count() == 1


@pytest.mark.parametrize("first", ["sweep", "report"])
def test_a_sweep_and_a_late_receipt_meet_and_the_receipt_counts(
    declared: None, connect: Connect, first: str
) -> None:
    claimed = make_sent(minor=500)
    end_lease_in(claimed.run, -1)
    acts = {
        "sweep": lambda: {"taken": intake.take_in_run(run_id=claimed.run.pk)},
        "report": lambda: report("receipt", claimed),
    }
    order = [first, *(name for name in acts if name != first)]
    with holding_run(connect, claimed.run.pk) as other:
        running = {}
        for number, name in enumerate(order, 1):
            running[name] = start(acts[name])
            other.wait_for_waiters(number)
        other.release()
    answer = running["report"].result().answer
    assert (answer["recorded_as_evidence"], answer["operation"]["state"]) == (True, "confirmed")
    assert running["sweep"].result().answer["taken"] in (0, 1)
    case = Case.objects.get()
    assert (case.state, case.resolution) == (CaseState.RESOLVED, "confirmed")
    run = fresh(claimed.run)
    assert (run.state, run.in_doubt_count, run.budget_spent_minor) == ("open", 0, 500)


def test_claims_over_what_was_left_unreported_take_it_in_and_get_no_lease(declared: None) -> None:
    claimed = make_sent()
    end_lease_in(claimed.run, -1)

    def contend(number: int) -> object:
        return intake.claim_run(
            team=TEAM,
            run_id=claimed.run.pk,
            claim_id=f"claim-{number}",
            worker=f"worker-{number}",
            flow_version=VERSION,
            lease_seconds=60,
        )

    outcomes = at_once(
        [
            *(lambda number=number: contend(number) for number in range(4)),  # type: ignore[misc]
            lambda: [intake.take_in_run(run_id=claimed.run.pk)],
        ]
    )
    refusals = [one.refusal for one in outcomes[:4]]
    assert all(isinstance(one, RunPaused) for one in refusals), refusals
    assert Case.objects.count() == 1
    assert fresh(claimed.run).lease_token is None


def test_claims_after_the_outcome_is_known_give_one_lease(declared: None) -> None:
    claimed = make_sent()
    end_lease_in(claimed.run, -1)
    report("receipt", claimed)
    outcomes = at_once(
        [
            lambda number=number: intake.claim_run(  # type: ignore[misc]
                team=TEAM,
                run_id=claimed.run.pk,
                claim_id=f"claim-{number}",
                worker=f"worker-{number}",
                flow_version=VERSION,
                lease_seconds=60,
            )
            for number in range(4)
        ]
    )
    assert sum(one.refusal is None for one in outcomes) == 1
    assert sum(isinstance(one.refusal, AlreadyClaimed) for one in outcomes) == 3


# --- the console's sender -------------------------------------------------------------------------------


def console_grant(control: SandboxControl) -> tuple[Claimed, Grant]:
    claimed, case = in_doubt()
    decide(case, Action.RETRY, executor="console")
    lookups.look_up(case_id=case.pk)
    return claimed, Grant.objects.get()


def requests(control: SandboxControl, claimed: Claimed) -> tuple[int, int]:
    seen = control.stats("supplier", key=claimed.operation.key)
    return seen.requests, seen.effects


def test_a_send_delivered_ten_times_at_once_is_one_request(control: SandboxControl) -> None:
    claimed, grant = console_grant(control)
    registry.adapter("sandbox-supplier")
    outcomes = at_once([lambda: retries.send_granted(grant_id=grant.pk)] * 10)
    assert sorted(one.value or "" for one in outcomes) == [""] * 9 + ["receipt"]
    assert requests(control, claimed) == (1, 1)
    assert (state_of(claimed), Attempt.objects.filter(executor="console").count()) == ("confirmed", 1)


def test_a_grant_is_either_sent_or_taken_back(control: SandboxControl) -> None:
    claimed, grant = console_grant(control)
    case = case_of(claimed)
    sent, withdrawn = at_once(
        [
            lambda: retries.send_granted(grant_id=grant.pk),
            lambda: str(
                retries.withdraw_grant(case_id=case.pk, team=TEAM, actor=PERSON, reason="not after all")
            ),
        ]
    )
    if sent.value:
        assert (sent.value, withdrawn.value) == ("receipt", "False")
        assert requests(control, claimed) == (1, 1)
    else:
        assert withdrawn.value == "True"
        assert requests(control, claimed) == (0, 0)
        assert fresh(case).state == CaseState.NEEDS_DECISION


def test_a_grant_that_expires_while_it_is_sent_is_one_or_the_other(
    control: SandboxControl, connect: Connect
) -> None:
    claimed, grant = console_grant(control)
    with holding_run(connect, claimed.run.pk) as other:
        sending = start(lambda: retries.send_granted(grant_id=grant.pk))
        other.wait_for_waiters(1)
        other.execute(
            "UPDATE runs_grant SET not_before_at = clock_timestamp() - interval '2 s',"
            " not_after_at = clock_timestamp() - interval '1 s' WHERE id = %s",
            [grant.pk],
        )
        expiring = start(lambda: str(retries.expire_grant(grant_id=grant.pk)))
        other.wait_for_waiters(2)
        other.release()
    # It waited for the lock past the grant's end: the time that counts is read after the lock.
    assert (sending.result().value or "", expiring.result().answer) == ("", "True")
    assert requests(control, claimed) == (0, 0)
    assert fresh(case_of(claimed)).need == "grant_ended"
