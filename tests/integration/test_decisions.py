"""Decisions: what people may do, in which order they are refused, and what follows, with a real provider."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from console.sandbox.control import SandboxControl
from reconciliation import decisions, lookups, retries, sweeping
from reconciliation.accounts import account_of
from reconciliation.contracts import KeyScope
from reconciliation.decisions import ActionLocked, DecisionStale, Forbidden, GivenReceipt, KeyReused
from reconciliation.models import Case, Decision
from reconciliation.policy import POLICY
from reconciliation.providers import registry
from reconciliation.providers.registry import SHIPPED
from reconciliation.states import Action, CaseState, Need, Resolution
from reconciliation.tightening import tighten
from runs import leases
from runs.actors import Actor, ActorKind
from runs.journal.ending import abandon_run
from runs.journal.sending import Go, NotSendable, begin_send
from runs.leases import RunPaused
from runs.models import Attempt, AuditLeaf, Evidence, Flow, Grant, Receipt, Run
from runs.plan import build_plan
from runs.refusals import Invalid, NotFound
from runs.states import AttemptOutcome, GrantState
from tests.cases_world import (
    COURIER,
    REASON,
    SUPPLIER,
    asked,
    case_of,
    decide,
    declare,
    given,
    in_doubt,
    judged,
    look,
    make_sent,
    report,
    state_of,
    take_in,
)
from tests.factories import (
    PERSON,
    TEAM,
    VERSION,
    Claimed,
    claim,
    effect,
    end_lease_in,
    fresh,
    make_claimed,
    quieten,
    send,
)
from tests.people import operator_actor
from tests.processes import Server
from tests.sandbox_client import new_client

pytestmark = pytest.mark.django_db(transaction=True)
TOMAS = Actor(ActorKind.PERSON, "person:tomas", "operator")


@pytest.fixture
def declared(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Providers that are configured, and nobody is there: these tests neither ask nor send."""
    monkeypatch.setenv("SANDBOX_URL", "http://127.0.0.1:9")
    declare()


@pytest.fixture
def control(sandbox: Server) -> Iterator[SandboxControl]:
    declare()
    with SandboxControl(sandbox.url) as control:
        yield control
    # Closes the connections that lookups keep open.
    registry.reload()


def counts(control: SandboxControl, claimed: Claimed) -> tuple[int, int]:
    slug = claimed.operation.provider_id.removeprefix("sandbox-")
    seen = control.stats(slug, key=claimed.operation.key)
    return seen.requests, seen.effects


def leaves() -> int:
    return AuditLeaf.objects.count()


# --- refusals, in their order ---------------------------------------------------------------------------


def test_refusals_come_in_their_order_and_leave_nothing(declared: None) -> None:
    claimed, case = in_doubt()
    nothing = {"decisions": Decision.objects.count(), "leaves": leaves()}
    worst: dict[str, Any] = {
        "seen_version": 99,
        "evidence_digest": "0" * 64,
        "reason": "short",
        "executor": "nobody",
    }
    robot = Actor(ActorKind.TOKEN, "tok_1")
    with pytest.raises(NotFound):
        decide(case, Action.RETRY, actor=robot, team="other", **worst)
    with pytest.raises(Forbidden):
        decide(case, Action.RETRY, actor=robot, **worst)
    with pytest.raises(Invalid) as words:
        decide(case, Action.RETRY, **worst)
    assert words.value.details["where"] == "reason"
    with pytest.raises(Invalid) as words:
        decide(case, Action.RETRY, **{**worst, "reason": REASON})
    assert words.value.details["where"] == "executor"
    report("receipt", claimed, status="pending")
    with pytest.raises(DecisionStale):
        decide(case, Action.RETRY, **{**worst, "reason": REASON, "executor": "agent"})
    with pytest.raises(ActionLocked):
        decide(case, Action.RETRY)
    assert Decision.objects.count() == nothing["decisions"]


def test_the_same_decision_again_is_the_first_answer_and_other_content_is_refused(declared: None) -> None:
    claimed, case = in_doubt()
    ask = asked(case, Action.ABANDON)

    def once(**changes: Any) -> decisions.Decided:
        return decisions.decide(case_id=case.pk, team=TEAM, actor=PERSON, asked=replace(ask, **changes))

    first = once()
    before = leaves()
    again = once()
    assert (again.answer, again.replayed, first.replayed) == (first.answer, True, False)
    assert (leaves(), Decision.objects.count()) == (before, 1)
    for changes in ({"reason": "Something else entirely."}, {"then": "end"}, {"seen_version": 7}):
        with pytest.raises(KeyReused):
            once(**changes)
    # Another person's key of the same words is another key.
    with pytest.raises(DecisionStale):
        decisions.decide(case_id=case.pk, team=TEAM, actor=TOMAS, asked=ask)
    assert state_of(claimed) == "abandoned"


def test_a_key_that_was_used_for_another_case_is_refused(declared: None) -> None:
    _, first = in_doubt()
    _, second = in_doubt()
    decide(first, Action.ABANDON, idempotency_key="same")
    with pytest.raises(KeyReused):
        decide(second, Action.ABANDON, idempotency_key="same")
    assert fresh(second).state != CaseState.RESOLVED


# --- stale forms ----------------------------------------------------------------------------------------


def test_a_stale_decision_names_who_was_first_and_what_they_said(declared: None) -> None:
    _, case = in_doubt()
    form = asked(case, Action.ABANDON)
    decide(case, Action.ABANDON, actor=TOMAS)
    with pytest.raises(DecisionStale) as stale:
        decisions.decide(case_id=case.pk, team=TEAM, actor=PERSON, asked=form)
    told = stale.value.details
    assert (told["by"], told["action"], told["their_reason"]) == ("Tomas", "abandon", REASON)
    assert told["changed"] == ["Tomas decided: abandon.", "The case is resolved as abandoned."]
    assert told["version"] == fresh(case).version > told["seen_version"]


def test_a_stale_decision_names_the_evidence_that_came_and_no_older_decision(declared: None) -> None:
    """The retry of some time ago was on the page; what is new is the report."""
    claimed, case = in_doubt(COURIER)
    assert decide(case, Action.RETRY, actor=operator_actor()).approval
    supplier, case = in_doubt()
    decide(case, Action.RETRY, actor=TOMAS)
    retries.withdraw_grant(case_id=case.pk, team=TEAM, actor=TOMAS, reason="not yet")
    form = asked(case, Action.ABANDON)
    report("unknown", supplier, body=b"news")
    with pytest.raises(DecisionStale) as stale:
        decisions.decide(case_id=case.pk, team=TEAM, actor=PERSON, asked=form)
    assert "Tomas" not in json.dumps(stale.value.details)
    assert stale.value.details["by"] == "worker-1"
    assert "reported an unknown outcome" in stale.value.details["changed"][0]
    assert claimed.run.pk != supplier.run.pk


def test_an_answer_that_time_changed_voids_a_form_without_a_new_version(declared: None) -> None:
    claimed = make_sent()
    report("unknown", claimed)
    case = case_of(claimed)
    form = asked(case, Action.ABANDON)
    quieten(claimed.operation)
    with pytest.raises(DecisionStale) as stale:
        decisions.decide(case_id=case.pk, team=TEAM, actor=PERSON, asked=form)
    assert stale.value.details["version"] == form.seen_version
    assert "changed with time" in stale.value.details["changed"][0]


# --- confirm --------------------------------------------------------------------------------------------


def conflicting() -> tuple[Claimed, Case]:
    """A receipt on record that only a person may confirm with: somebody sent it without asking."""
    claimed, case = in_doubt(minor=500)
    report("receipt", claimed, attempt_id="never")
    return claimed, fresh(case)


def test_confirming_with_the_receipt_on_record(declared: None) -> None:
    claimed, case = conflicting()
    answer = decide(case, Action.CONFIRM).answer
    assert answer["case"]["resolution"] == "confirmed"
    assert answer["operation"]["state"] == "confirmed"
    assert answer["run"]["state"] == "open"
    made = Decision.objects.get()
    assert (made.reference, made.evidence_id) == ("ord_1", Evidence.objects.latest("recorded_at").pk)
    assert Receipt.objects.get().matched_by == "key"
    assert fresh(claimed.run).budget_spent_minor == 500


@pytest.mark.parametrize(
    "named",
    [GivenReceipt(reference="ord_2"), GivenReceipt(evidence_id="ev_none")],
    ids=["reference", "evidence"],
)
def test_confirming_with_a_receipt_that_is_not_on_record_is_refused(
    declared: None, named: GivenReceipt
) -> None:
    claimed, case = conflicting()
    with pytest.raises(Invalid):
        decide(case, Action.CONFIRM, receipt=named)
    assert state_of(claimed) == "sent_unknown"


def test_confirming_with_a_record_that_is_given(declared: None) -> None:
    claimed, case = in_doubt(minor=500)
    with pytest.raises(ActionLocked) as alone:
        decide(case, Action.CONFIRM, may_ask=False)
    assert alone.value.details["permission"] == "second_person"
    decide(case, Action.CONFIRM, receipt=given(claimed.operation))
    assert state_of(claimed) == "confirmed"
    kept = Evidence.objects.get(kind="attachment")
    assert (kept.actor, kept.reference) == (PERSON.id, "ord_1")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"quantity": 41}, "quantity"),
        ({"idempotency_key": "x"}, "another key"),
        ({"status": "pending"}, "pending"),
    ],
)
def test_a_given_record_that_does_not_match_takes_two_and_says_why(
    declared: None, changes: dict[str, Any], problem: str
) -> None:
    claimed, case = in_doubt()
    with pytest.raises(ActionLocked) as refused:
        decide(case, Action.CONFIRM, receipt=given(claimed.operation, **changes), may_ask=False)
    assert problem in refused.value.sentence
    assert (state_of(claimed), Evidence.objects.filter(kind="attachment").count()) == ("sent_unknown", 0)


def test_a_record_that_confirmed_another_operation_confirms_no_second(declared: None) -> None:
    other = make_sent()
    report("receipt", other)
    claimed, case = in_doubt()
    with pytest.raises(ActionLocked, match="already confirmed operation"):
        decide(case, Action.CONFIRM, receipt=given(claimed.operation))
    assert (state_of(claimed), Decision.objects.count()) == ("sent_unknown", 0)


# --- abandon --------------------------------------------------------------------------------------------


def test_abandoning_holds_the_amount_and_the_run_goes_on_without_it(declared: None) -> None:
    claimed, case = in_doubt(minor=500)
    answer = decide(case, Action.ABANDON).answer
    assert answer["run"] == {"id": claimed.run.pk, "state": "open", "paused_reasons": []}
    run = fresh(claimed.run)
    assert (run.budget_reserved_minor, run.budget_held_minor) == (0, 500)
    (call,) = build_plan(run)["turns"][0]["calls"]
    assert call["next"] == "skip"
    assert "unknown" in call["abandoned"]["known_effect"]


def test_abandoning_may_end_the_run_and_leaves_its_other_questions_open(declared: None) -> None:
    claimed = make_claimed(effect("c1"), effect("c2"), effect("c3"), parallel=True)
    one, two, never_sent = claimed.operations
    send(claimed, operation=one)
    send(claimed, attempt_id="a2", operation=two)
    report("unknown", claimed, operation=one)
    report("unknown", claimed, attempt_id="a2", operation=two)
    for operation in (one, two):
        quieten(operation)
    decide(case_of(claimed, one), Action.ABANDON, then="end")
    assert fresh(claimed.run).state == "abandoned"
    assert [fresh(operation).state for operation in (one, two, never_sent)] == [
        "abandoned",
        "sent_unknown",
        "abandoned",
    ]
    open_one = case_of(claimed, two)
    assert open_one.state != CaseState.RESOLVED
    # Nothing more is sent for it, and it can still be decided.
    with pytest.raises(ActionLocked) as locked:
        decide(open_one, Action.RETRY)
    assert locked.value.details["question"] == 5
    decide(open_one, Action.ABANDON)
    assert fresh(two).state == "abandoned"


def test_two_people_are_asked_where_the_flow_says_so(declared: None) -> None:
    _, case = in_doubt()
    Flow.objects.update(abandonment_people=2)
    with pytest.raises(ActionLocked) as refused:
        decide(case, Action.ABANDON, may_ask=False)
    assert refused.value.details["permission"] == "second_person"
    assert "two people" in refused.value.sentence


def test_nothing_is_abandoned_under_a_worker_that_is_sending(declared: None) -> None:
    """A conflict came up while it was out."""
    claimed = make_sent()
    report("receipt", claimed, attempt_id="never")
    with pytest.raises(ActionLocked) as refused:
        decide(case_of(claimed), Action.ABANDON)
    assert "is sending attempt 1" in refused.value.sentence
    assert refused.value.details["unlocks_at"] is not None


# --- retry by the agent ---------------------------------------------------------------------------------


def granted_to_agent(control: SandboxControl) -> tuple[Claimed, Case]:
    claimed, case = in_doubt(minor=500)
    with pytest.raises(RunPaused):
        claim(claimed.run)
    answer = decide(case, Action.RETRY).answer
    # A fresh look comes first: nothing is granted yet, and nobody may claim.
    assert (answer["case"]["state"], answer["grant"]) == ("retrying", None)
    with pytest.raises(RunPaused):
        claim(claimed.run)
    assert lookups.look_up(case_id=case.pk) == "not_found"
    assert fresh(case).state == CaseState.RETRYING
    return claimed, fresh(case)


def test_the_agent_repeats_by_its_plan_with_the_same_key_and_bytes(control: SandboxControl) -> None:
    claimed, case = granted_to_agent(control)
    grant = Grant.objects.get()
    assert Decision.objects.get().grant_id == grant.pk
    token = claim(claimed.run)
    (call,) = build_plan(fresh(claimed.run))["turns"][0]["calls"]
    assert call["next"] == "repeat"
    go = begin_send(team=TEAM, operation_id=claimed.operation.pk, token=token, attempt_id="a2")
    assert (go.number, go.idempotency_key) == (2, claimed.operation.key)
    assert go.payload == bytes(claimed.operation.payload)
    assert fresh(grant).state == GrantState.CONSUMED
    # Used once: another thread of the same worker gets nothing.
    with pytest.raises(NotSendable):
        begin_send(team=TEAM, operation_id=claimed.operation.pk, token=token, attempt_id="a3")
    report("receipt", Claimed(claimed.run, token, claimed.operations), attempt_id="a2")
    assert (state_of(claimed), fresh(case).resolution) == ("confirmed", Resolution.CONFIRMED)
    assert fresh(claimed.run).lease_token == token


def test_an_agent_that_dies_over_its_repeat_brings_the_case_back(control: SandboxControl) -> None:
    claimed, case = granted_to_agent(control)
    token = claim(claimed.run)
    begin_send(team=TEAM, operation_id=claimed.operation.pk, token=token, attempt_id="a2")
    assert sweeping.sweep().runs_taken_in == 0
    end_lease_in(claimed.run, -1)
    assert sweeping.sweep().runs_taken_in == 1
    back = fresh(case)
    assert (back.state, back.lookups_count) == (CaseState.LOOKING_UP, 0)
    assert fresh(claimed.run).state == "paused"
    assert Attempt.objects.get(number=2).outcome == AttemptOutcome.UNREPORTED
    with pytest.raises(ActionLocked) as early:
        decide(case, Action.RETRY)
    assert early.value.details["question"] == 4
    quieten(claimed.operation)
    assert look(case) == "not_found"
    decide(case, Action.RETRY)
    assert fresh(case).state == CaseState.RETRYING


def test_a_slow_repeat_under_a_living_lease_pauses_its_run_once_it_is_quiet(control: SandboxControl) -> None:
    claimed, case = granted_to_agent(control)
    token = claim(claimed.run)
    begin_send(team=TEAM, operation_id=claimed.operation.pk, token=token, attempt_id="a2")
    quieten(claimed.operation)
    assert sweeping.sweep().runs_taken_in == 1
    run = fresh(claimed.run)
    assert (run.state, run.lease_token) == ("paused", None)
    assert fresh(case).state == CaseState.LOOKING_UP
    with pytest.raises(RunPaused):
        leases.renew(team=TEAM, run_id=run.pk, token=token)


def test_a_grant_that_nobody_uses_ends_and_a_person_is_asked_again(control: SandboxControl) -> None:
    claimed, case = granted_to_agent(control)
    grant = Grant.objects.get()
    assert not retries.expire_grant(grant_id=grant.pk, now=grant.not_after_at)
    assert fresh(claimed.run).state == "open"
    assert retries.expire_grant(grant_id=grant.pk, now=grant.not_after_at + timedelta(microseconds=1))
    assert fresh(grant).state == GrantState.EXPIRED
    asks = fresh(case)
    assert (asks.state, asks.need) == (CaseState.NEEDS_DECISION, Need.GRANT_ENDED)
    assert asks.next_lookup_at is not None
    assert fresh(claimed.run).state == "paused"
    assert not retries.expire_grant(grant_id=grant.pk, now=grant.not_after_at + timedelta(hours=1))
    decide(case, Action.RETRY)


def test_the_sweeper_ends_grants_whose_time_is_over(control: SandboxControl) -> None:
    claimed, case = granted_to_agent(control)
    assert sweeping.sweep().grants_expired == 0
    Grant.objects.update(not_before_at="2026-01-01T00:00Z", not_after_at="2026-01-02T00:00Z")
    assert sweeping.sweep().grants_expired == 1
    assert fresh(case).need == Need.GRANT_ENDED
    with pytest.raises(RunPaused):
        claim(claimed.run)


def test_a_grant_given_for_a_key_that_is_no_longer_trusted_goes_back_to_a_person(
    control: SandboxControl,
) -> None:
    claimed, case = granted_to_agent(control)
    tighten(
        account=SUPPLIER,
        wanted={"key_window_trusted": False},
        reason="They forgot a key after an hour, ticket 4711.",
        seen_number=0,
        actor=Actor(ActorKind.PERSON, "person:7", "administrator"),
    )
    token = claim(fresh(claimed.run))
    with pytest.raises(NotSendable) as refused:
        retries.begin_send(team=TEAM, operation_id=claimed.operation.pk, token=token, attempt_id="a2")
    assert "doesn't publish" in refused.value.sentence
    assert Attempt.objects.count() == 1
    assert Grant.objects.get().state == GrantState.VOID
    asks = fresh(case)
    assert (asks.state, asks.need) == (CaseState.NEEDS_DECISION, Need.GRANT_ENDED)


@pytest.mark.parametrize("changed", ["way in", "console_sends"])
def test_the_console_uses_no_grant_once_what_it_was_given_for_has_changed(
    control: SandboxControl, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    claimed, case = in_doubt()
    decide(case, Action.RETRY, executor="console")
    look(case)
    before = counts(control, claimed)
    account = account_of(SUPPLIER)
    moved = replace(account, region="eu-2") if changed == "way in" else replace(account, console_sends=False)
    monkeypatch.setattr(registry, "account", lambda slug: moved)
    assert retries.send_granted(grant_id=Grant.objects.get().pk) == ""
    assert counts(control, claimed) == before
    assert Attempt.objects.count() == 1
    assert Grant.objects.get().state == GrantState.VOID
    assert fresh(case).need == Need.GRANT_ENDED


def test_a_granted_retry_can_be_taken_back_and_the_record_says_by_whom(control: SandboxControl) -> None:
    claimed, case = granted_to_agent(control)
    assert retries.withdraw_grant(case_id=case.pk, team=TEAM, actor=TOMAS, reason="they called back")
    assert fresh(case).state == CaseState.NEEDS_DECISION
    assert Grant.objects.get().state == GrantState.VOID
    assert fresh(claimed.run).state == "paused"
    assert not retries.withdraw_grant(case_id=case.pk, team=TEAM, actor=TOMAS, reason="once more")


def test_a_retry_can_be_taken_back_before_its_fresh_lookup_and_the_record_says_by_whom(
    control: SandboxControl,
) -> None:
    claimed, case = in_doubt()
    decide(case, Action.RETRY)
    assert retries.withdraw_grant(case_id=case.pk, team=TEAM, actor=TOMAS, reason="they called back")
    leaf = json.loads(bytes(AuditLeaf.objects.filter(action="case.moved").latest("id").body))
    event = leaf.get("event", leaf)
    assert event["actor"]["id"] == TOMAS.id
    assert "they called back" in event["reason"]
    # The lookup that was due finds nothing, and grants nothing.
    look(case)
    assert not Grant.objects.exists()
    assert state_of(claimed) == "sent_unknown"


@pytest.mark.parametrize("news", ["mismatch", "stray success", "second run receipt"])
def test_news_that_makes_a_repeat_dangerous_voids_its_grant(control: SandboxControl, news: str) -> None:
    claimed, case = granted_to_agent(control)
    match news:
        case "mismatch":
            report("receipt", claimed, quantity=41)
        case "stray success":
            report("receipt", claimed, attempt_id="never")
        case _:
            other = make_sent()
            report("receipt", other)
            with pytest.raises(Exception, match="already confirmed"):
                report("receipt", claimed)
    assert Grant.objects.get().state == GrantState.VOID
    assert fresh(case).state == CaseState.NEEDS_DECISION
    run = fresh(claimed.run)
    assert run.state == "paused"
    with pytest.raises(RunPaused):
        claim(run)
    assert Attempt.objects.filter(operation=claimed.operation).count() == 1


# --- retry by the console -------------------------------------------------------------------------------


def test_the_console_repeats_once_with_the_same_key_and_bytes(control: SandboxControl) -> None:
    claimed, case = in_doubt(minor=500)
    decide(case, Action.RETRY, executor="console")
    assert lookups.look_up(case_id=case.pk) == "not_found"
    grant = Grant.objects.get()
    assert retries.send_granted(grant_id=grant.pk) == "receipt"
    assert (state_of(claimed), fresh(case).resolution) == ("confirmed", Resolution.CONFIRMED)
    assert counts(control, claimed) == (1, 1)
    (made,) = control.effects("supplier")
    payload = json.loads(bytes(claimed.operation.payload))
    assert {name: made.receipt[name] for name in payload} == payload
    assert retries.send_granted(grant_id=grant.pk) == ""
    assert counts(control, claimed) == (1, 1)
    attempt = Attempt.objects.get(number=2)
    assert (attempt.executor, attempt.outcome) == ("console", AttemptOutcome.RECEIPT)
    assert fresh(claimed.run).state == "open"


def test_a_repeat_of_what_was_done_already_is_the_same_effect(control: SandboxControl) -> None:
    """The provider hides it from lookups, and knows the key."""
    claimed, case = in_doubt()
    with new_client(control.account_url("supplier")) as client:
        client.post(
            "/orders",
            json=json.loads(bytes(claimed.operation.payload)),
            headers={"Idempotency-Key": claimed.operation.key, "Sandbox-Fault": "hide_from_lookup"},
        )
    decide(case, Action.RETRY, executor="console")
    assert lookups.look_up(case_id=case.pk) == "not_found"
    assert retries.send_granted(grant_id=Grant.objects.get().pk) == "receipt"
    assert (state_of(claimed), counts(control, claimed)) == ("confirmed", (2, 1))


def test_a_repeat_goes_nowhere_once_its_account_is_declared_anew(
    control: SandboxControl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key may be unknown there: nobody was asked about an effect that could then be the second."""
    slug = "sandbox-supplier-own"
    shipped = next(SHIPPED.rglob("sandbox-supplier.toml")).read_text()
    file = tmp_path / f"{slug}.toml"
    file.write_text(shipped.replace('slug = "sandbox-supplier"', f'slug = "{slug}"'))
    monkeypatch.setattr(settings, "RECOURSE_PROVIDERS_DIR", [str(tmp_path)])
    declare()
    claimed, case = in_doubt(slug)
    decide(case, Action.RETRY, executor="console")
    lookups.look_up(case_id=case.pk)
    grant = Grant.objects.get()
    begin = retries.begin_repeat_by_console

    def begin_and_declare_anew(**asked: Any) -> Go:
        go = begin(**asked)
        file.write_text(file.read_text().replace("/supplier", "/supplier-eu"))
        declare()
        return go

    monkeypatch.setattr(retries, "begin_repeat_by_console", begin_and_declare_anew)
    assert retries.send_granted(grant_id=grant.pk) == "not_sent"
    assert Attempt.objects.get(number=2).outcome == AttemptOutcome.NOT_SENT
    assert state_of(claimed) == "sent_unknown"
    monkeypatch.undo()
    registry.reload()


def test_found_by_the_fresh_lookup_confirms_and_nothing_is_sent(control: SandboxControl) -> None:
    claimed, case = in_doubt()
    decide(case, Action.RETRY, executor="console")
    with new_client(control.account_url("supplier")) as client:
        client.post(
            "/orders",
            json=json.loads(bytes(claimed.operation.payload)),
            headers={"Idempotency-Key": claimed.operation.key},
        )
    assert lookups.look_up(case_id=case.pk) == "found"
    assert (state_of(claimed), counts(control, claimed)) == ("confirmed", (1, 1))
    assert not Grant.objects.exists()
    assert fresh(claimed.run).state == "open"


@pytest.mark.parametrize(
    ("fault", "need"), [("status;pending", Need.PENDING), ("other_payload;quantity=41", Need.MISMATCH)]
)
def test_what_the_fresh_lookup_shows_stops_the_retry(control: SandboxControl, fault: str, need: Need) -> None:
    claimed, case = in_doubt()
    decide(case, Action.RETRY, executor="console")
    with new_client(control.account_url("supplier")) as client:
        client.post(
            "/orders",
            json=json.loads(bytes(claimed.operation.payload)),
            headers={"Idempotency-Key": claimed.operation.key, "Sandbox-Fault": fault},
        )
    lookups.look_up(case_id=case.pk)
    assert not Grant.objects.exists()
    assert (fresh(case).state, fresh(case).need) == (CaseState.NEEDS_DECISION, need)
    assert counts(control, claimed)[0] == 1


def test_a_fresh_lookup_that_keeps_failing_hands_the_retry_back(control: SandboxControl) -> None:
    claimed, case = in_doubt()
    control.fault("lookup_500", account="supplier", times=-1)
    # It failed before the decision as well; those don't count against it.
    for _ in range(5):
        look(case)
    decide(case, Action.RETRY)
    for number in range(1, retries.FRESH_LOOKUP_FAILURES_MAX):
        assert look(case) == "unavailable", number
        assert fresh(case).state == CaseState.RETRYING
        assert fresh(case).next_lookup_at is not None
    look(case)
    assert (fresh(case).state, fresh(case).need) == (CaseState.NEEDS_DECISION, Need.PARKED)
    assert not Grant.objects.exists()
    assert state_of(claimed) == "sent_unknown"


def test_a_run_given_up_between_decision_and_grant_gets_none(control: SandboxControl) -> None:
    claimed, case = in_doubt()
    decide(case, Action.RETRY, executor="console")
    abandon_run(team=TEAM, run_id=claimed.run.pk, actor=TOMAS, reason="no longer needed")
    assert lookups.look_up(case_id=case.pk) == "not_found"
    assert not Grant.objects.exists()
    assert fresh(case).state == CaseState.NEEDS_DECISION


def test_a_console_whose_request_is_refused_settles_nothing(control: SandboxControl) -> None:
    claimed, case = in_doubt()
    decide(case, Action.RETRY, executor="console")
    lookups.look_up(case_id=case.pk)
    control.fault("refuse", account="supplier")
    assert retries.send_granted(grant_id=Grant.objects.get().pk) == "rejected"
    assert (state_of(claimed), fresh(case).state) == ("sent_unknown", CaseState.LOOKING_UP)
    assert Attempt.objects.get(number=2).outcome == AttemptOutcome.REJECTED


def test_a_console_that_dies_between_go_and_its_report_brings_the_case_back(control: SandboxControl) -> None:
    from runs.journal.sending import begin_repeat_by_console

    claimed, case = in_doubt()
    decide(case, Action.RETRY, executor="console")
    lookups.look_up(case_id=case.pk)
    grant = Grant.objects.get()
    begin_repeat_by_console(grant_id=grant.pk, attempt_id=f"console-{grant.pk}")
    assert sweeping.sweep().runs_taken_in == 0
    # The next task for the same grant must not send what the first may be sending.
    assert retries.send_granted(grant_id=grant.pk) == ""
    quieten(claimed.operation)
    assert sweeping.sweep().runs_taken_in == 1
    assert fresh(case).state == CaseState.LOOKING_UP
    assert (state_of(claimed), counts(control, claimed)) == ("sent_unknown", (0, 0))


def test_what_redaction_takes_out_of_the_kept_reply_does_not_undo_its_match(control: SandboxControl) -> None:
    """A payload with a member that is called like a secret: the reply was compared as it came."""
    args = {"sku": "FC-20", "quantity": 1, "password": "correct horse battery staple"}
    claimed = make_claimed(effect(args=args, provider=SUPPLIER))
    send(claimed)
    report("unknown", claimed)
    quieten(claimed.operation)
    case = case_of(claimed)
    decide(case, Action.RETRY, executor="console")
    lookups.look_up(case_id=case.pk)
    assert retries.send_granted(grant_id=Grant.objects.get().pk) == "receipt"
    assert state_of(claimed) == "confirmed"
    assert "correct horse" not in json.dumps(Evidence.objects.latest("recorded_at").seen)


def test_a_console_without_credentials_sends_nothing(declared: None, monkeypatch: pytest.MonkeyPatch) -> None:
    _, case = in_doubt()
    monkeypatch.delenv("SANDBOX_URL")
    registry.reload()
    # Also a pin that has changed, so the retry takes two in any case.
    with pytest.raises(ActionLocked):
        decide(case, Action.RETRY, executor="console")


@pytest.mark.parametrize("scope", [KeyScope.API_KEY, KeyScope.ENDPOINT, KeyScope.REGION, KeyScope.QUEUE])
def test_the_console_repeats_nothing_whose_key_belongs_to_the_agents_own_way_in(
    declared: None, monkeypatch: pytest.MonkeyPatch, scope: KeyScope
) -> None:
    _, case = in_doubt()
    account = account_of(SUPPLIER)
    narrow = replace(account, contract=replace(account.contract, key_scope=scope))
    monkeypatch.setattr(registry, "account", lambda slug: narrow)
    with pytest.raises(ActionLocked) as refused:
        decide(case, Action.RETRY, executor="console")
    assert refused.value.details["question"] == 2
    decide(case, Action.RETRY, executor="agent")


def test_without_a_key_nobody_retries_alone(declared: None) -> None:
    claimed, case = in_doubt(COURIER)
    with pytest.raises(ActionLocked) as refused:
        decide(case, Action.RETRY, executor="console", may_ask=False)
    assert refused.value.details["permission"] == "second_person"
    assert "A duplicate is possible" in refused.value.sentence
    assert "asked on the case’s own page" in refused.value.sentence
    assert (state_of(claimed), Decision.objects.count()) == ("sent_unknown", 0)


def test_after_the_keys_window_nobody_retries_alone(declared: None) -> None:
    claimed, case = in_doubt("sandbox-legacy")
    type(claimed.operation).objects.update(first_sent_at="2026-01-01T00:00Z")
    with pytest.raises(ActionLocked) as refused:
        decide(case, Action.RETRY, may_ask=False)
    assert "may have forgotten" in refused.value.sentence


def test_every_decision_names_the_policy_and_what_was_seen(declared: None) -> None:
    _, case = in_doubt()
    digest = judged(case).evidence_digest
    decide(case, Action.ABANDON)
    made = Decision.objects.get()
    assert (made.policy, made.evidence_digest, made.actor_role) == (POLICY, digest, "operator")
    leaf = AuditLeaf.objects.get(action="case.decided.abandon")
    assert leaf.actor == PERSON.id


def test_a_successor_claims_by_itself_after_the_decision(declared: None) -> None:
    claimed, case = in_doubt()
    with pytest.raises(RunPaused):
        claim(claimed.run)
    decide(case, Action.ABANDON)
    assert list(leases_claimable()) == [claimed.run.pk]
    assert claim(claimed.run)
    assert take_in(claimed.run) == 0


def leases_claimable() -> list[str]:
    found = Run.objects.filter(state="open", lease_token__isnull=True, flow_version__version=VERSION)
    return list(found.values_list("pk", flat=True))
