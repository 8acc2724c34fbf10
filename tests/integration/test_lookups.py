"""Lookups at a real provider process: what each answer settles, who is asked, and what is next."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from console.sandbox.control import SandboxControl
from console.sandbox.records import Status
from reconciliation import lookups, sweeping
from reconciliation.conclusions import FAILED_LOOKUPS_MAX, LOOKUPS_BEFORE_ASKING, PENDING_LOOKUPS_MAX
from reconciliation.decisions import DecisionStale
from reconciliation.lookups import RETRY_AFTER_MAX
from reconciliation.models import Case, Lookup
from reconciliation.providers import registry
from reconciliation.providers.base import Found, Pending, Question, Receipt, ReceiptState
from reconciliation.states import Action, CaseKind, CaseState, Need, Resolution
from runs.locking import database_now
from runs.models import AuditLeaf, Evidence, Operation
from runs.states import EvidenceKind
from tests import factories
from tests.cases_world import (
    COURIER,
    DESK,
    PAYMENTS,
    SUPPLIER,
    case_of,
    decide,
    declare,
    due_now,
    in_doubt,
    judged,
    look,
    make_sent,
    record,
    report,
    state_of,
)
from tests.concurrency import at_once, start
from tests.factories import TOKEN_ACTOR, Claimed, claim, fresh
from tests.processes import Server
from tests.sandbox_client import new_client

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def control(sandbox: Server) -> Iterator[SandboxControl]:
    declare()
    with SandboxControl(sandbox.url) as control:
        yield control
    # Closes the connections that lookups keep open.
    registry.reload()


def place(control: SandboxControl, operation: Operation, *, fault: str = "", **changes: Any) -> None:
    """Send the operation as its worker would have, before it died; what came back is lost with it."""
    slug = operation.provider_id.removeprefix("sandbox-")
    kind = {"desk": "tickets", "payments": "refunds"}.get(slug, "orders")
    headers = {"Idempotency-Key": operation.key, **({"Sandbox-Fault": fault} if fault else {})}
    payload = {**json.loads(bytes(operation.payload)), **changes}
    with new_client(control.account_url(slug)) as client:
        try:
            client.post(f"/{kind}", json=payload, headers=headers)
        except httpx.TransportError:
            assert fault


def effects(control: SandboxControl, claimed: Claimed) -> tuple[int, int]:
    """Requests received and effects made under the operation's key."""
    slug = claimed.operation.provider_id.removeprefix("sandbox-")
    counts = control.stats(slug, key=claimed.operation.key)
    return counts.requests, counts.effects


# --- what settles by itself -----------------------------------------------------------------------------


def test_what_is_found_confirms_by_policy_and_sends_nothing(control: SandboxControl) -> None:
    claimed, case = in_doubt(minor=124_000)
    place(control, claimed.operation, fault="drop_reply")
    assert look(case) == "found"
    assert effects(control, claimed) == (1, 1)
    case = fresh(case)
    assert (case.state, case.resolution) == (CaseState.RESOLVED, Resolution.CONFIRMED)
    assert state_of(claimed) == "confirmed"
    made = Lookup.objects.get()
    assert (made.number, made.asked_by, made.used, made.finding) == (1, "policy", "judged", "found")
    assert made.exchange["request"]["method"] == "GET"
    run = fresh(claimed.run)
    assert (run.state, run.budget_reserved_minor, run.budget_spent_minor) == ("open", 0, 124_000)
    assert claim(run)


def test_not_found_without_proof_is_asked_of_a_person_after_a_few_looks(control: SandboxControl) -> None:
    claimed, case = in_doubt()
    for number in range(1, LOOKUPS_BEFORE_ASKING):
        assert look(case) == "not_found"
        assert fresh(case).state == CaseState.LOOKING_UP, number
    assert look(case) == "not_found"
    asks = fresh(case)
    assert (asks.state, asks.need) == (CaseState.NEEDS_DECISION, Need.NOT_FOUND)
    assert asks.needs_decision_since_at is not None
    # Still looked at now and then: what shows late settles by itself.
    assert asks.next_lookup_at is not None
    assert (state_of(claimed), effects(control, claimed)) == ("sent_unknown", (0, 0))
    place(control, claimed.operation)
    assert look(case) == "found"
    assert fresh(case).resolution == Resolution.CONFIRMED


def test_absence_that_is_proved_makes_it_ready_and_frees_its_budget(control: SandboxControl) -> None:
    claimed, case = in_doubt(DESK, minor=500)
    assert fresh(claimed.run).budget_reserved_minor == 500
    assert look(case) == "not_found"
    assert Lookup.objects.get().proof == "absence"
    assert fresh(case).resolution == Resolution.NOT_SENT
    operation = fresh(claimed.operation)
    assert (operation.state, operation.reservation) == ("ready", "none")
    run = fresh(claimed.run)
    assert (run.state, run.budget_reserved_minor, run.in_doubt_count) == ("open", 0, 0)
    token = claim(run)
    go = factories.send(Claimed(run, token, claimed.operations), attempt_id="a2")
    assert (go.number, go.idempotency_key) == (2, claimed.operation.key)


def test_absence_is_not_concluded_while_a_late_effect_could_still_show(control: SandboxControl) -> None:
    """The desk shows a ticket up to three seconds late; the attempt isn't even quiet yet."""
    claimed = make_sent(DESK)
    report("unknown", claimed)
    case = case_of(claimed)
    assert look(case) == "not_found"
    waiting = fresh(case)
    assert (waiting.state, state_of(claimed)) == (CaseState.LOOKING_UP, "sent_unknown")
    operation = fresh(claimed.operation)
    assert operation.last_quiet_at is not None
    assert waiting.next_lookup_at == operation.last_quiet_at + timedelta(seconds=3)


def test_an_effect_that_shows_late_is_found_by_a_later_look(control: SandboxControl) -> None:
    control.set_account("supplier", lookup_lag_ms=3_600_000)
    claimed, case = in_doubt()
    place(control, claimed.operation)
    assert look(case) == "not_found"
    control.advance_clock(by_ms=3_600_000)
    assert look(case) == "found"
    assert state_of(claimed) == "confirmed"


def test_a_refused_record_rejects_the_only_attempt(control: SandboxControl) -> None:
    claimed, case = in_doubt(PAYMENTS, minor=500)
    place(control, claimed.operation, fault="status;failed")
    assert look(case) == "refused"
    assert (state_of(claimed), fresh(case).resolution) == ("rejected", Resolution.REJECTED)
    assert fresh(claimed.run).budget_reserved_minor == 0


# --- what only a person may judge -----------------------------------------------------------------------


def test_another_payload_under_our_key_is_for_a_person(control: SandboxControl) -> None:
    claimed, case = in_doubt(minor=500)
    place(control, claimed.operation, fault="other_payload;amount_minor=999")
    assert look(case) == "mismatch"
    asks = fresh(case)
    assert (asks.state, asks.need, asks.effects_seen) == (CaseState.NEEDS_DECISION, Need.MISMATCH, 1)
    assert state_of(claimed) == "sent_unknown"
    actions = {one.action: one.permission for one in judged(case).assessment.actions}
    assert actions == {"confirm": "second_person", "retry": "locked", "abandon": "allowed"}


def test_a_mismatch_that_later_looks_do_not_show_is_still_no_absence(control: SandboxControl) -> None:
    claimed, case = in_doubt(DESK)
    place(control, claimed.operation, fault="other_payload;quantity=41")
    control.advance_clock(by_ms=5_000)
    assert look(case) == "mismatch"
    control.reset("desk")
    assert look(case) == "not_found"
    assert Lookup.objects.latest("id").proof == "absence"
    assert (state_of(claimed), fresh(case).need) == ("sent_unknown", Need.CONFLICT)
    retry = judged(case).assessment.action(Action.RETRY)
    assert retry is not None
    assert retry.permission == "locked"


def test_several_effects_are_a_conflict(control: SandboxControl) -> None:
    claimed, case = in_doubt()
    place(control, claimed.operation, fault="twice")
    assert look(case) == "several"
    asks = fresh(case)
    assert (asks.kind, asks.need, asks.effects_seen) == (CaseKind.CONFLICT, Need.SEVERAL, 2)
    assert state_of(claimed) == "sent_unknown"
    # A conflict it stays, whatever is looked up later.
    control.reset("supplier")
    place(control, claimed.operation)
    assert look(case) == "found"
    assert (fresh(case).state, state_of(claimed)) == (CaseState.NEEDS_DECISION, "sent_unknown")


def test_a_key_that_was_ignored_is_a_conflict(control: SandboxControl) -> None:
    control.set_account("supplier", honours_keys=False)
    claimed, case = in_doubt()
    place(control, claimed.operation)
    place(control, claimed.operation)
    assert look(case) == "several"
    assert fresh(case).kind == CaseKind.CONFLICT


def test_what_is_not_final_is_waited_for_and_then_asked_about(control: SandboxControl) -> None:
    claimed, case = in_doubt(PAYMENTS)
    place(control, claimed.operation, fault="status;pending")
    for _ in range(1, PENDING_LOOKUPS_MAX):
        assert look(case) == "pending"
        assert fresh(case).state == CaseState.LOOKING_UP
    assert look(case) == "pending"
    assert fresh(case).need == Need.PENDING
    (effect,) = control.effects("payments")
    control.settle(effect.id, Status.SUCCEEDED)
    assert look(case) == "found"
    assert state_of(claimed) == "confirmed"


def test_without_a_lookup_a_person_is_asked_at_once(control: SandboxControl) -> None:
    _, case = in_doubt(COURIER)
    assert (case.state, case.need, case.next_lookup_at) == (CaseState.NEEDS_DECISION, Need.NO_LOOKUP, None)
    assert look(case) == ""
    assert not Lookup.objects.exists()


# --- lookups that fail ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "finding"),
    [
        ("lookup_500", "unavailable"),
        ("lookup_429;1", "unavailable"),
        ("lookup_drop", "unavailable"),
        ("lookup_garbage", "inconclusive"),
    ],
)
def test_a_failing_lookup_backs_off_and_is_parked_in_the_end(
    control: SandboxControl, fault: str, finding: str
) -> None:
    control.fault(fault, account="supplier", times=-1)
    claimed, case = in_doubt()
    before = database_now()
    for number in range(1, FAILED_LOOKUPS_MAX):
        assert look(case) == finding
        going_on = fresh(case)
        assert (going_on.state, going_on.lookups_failed_count) == (CaseState.LOOKING_UP, number)
        assert going_on.next_lookup_at is not None
        assert going_on.next_lookup_at > before
    assert look(case) == finding
    parked = fresh(case)
    assert (parked.state, parked.need) == (CaseState.NEEDS_DECISION, Need.PARKED)
    assert state_of(claimed) == "sent_unknown"
    # Once the provider answers again, it settles as if nothing had been.
    control.clear_faults()
    place(control, claimed.operation)
    assert look(case) == "found"
    assert fresh(case).resolution == Resolution.CONFIRMED


def test_a_lookup_that_hangs_ends_in_its_own_time_and_says_nothing(control: SandboxControl) -> None:
    control.fault("lookup_hang", account="supplier")
    _, case = in_doubt()
    assert look(case) == "unavailable"
    made = Lookup.objects.get()
    assert made.duration_ms < lookups.CLAIM_SECONDS * 1000
    assert fresh(case).lookup_claim == ""


@pytest.mark.parametrize(
    ("asked_seconds", "waited"), [(120, timedelta(seconds=120)), (86_400, RETRY_AFTER_MAX)]
)
def test_retry_after_is_obeyed_up_to_a_cap(
    control: SandboxControl, asked_seconds: int, waited: timedelta
) -> None:
    control.fault(f"lookup_429;{asked_seconds}", account="supplier")
    _, case = in_doubt()
    before = database_now()
    look(case)
    due_at = fresh(case).next_lookup_at
    assert due_at is not None
    assert before + waited <= due_at <= database_now() + waited


def test_an_answer_that_our_own_code_fails_on_is_parked_and_not_lost(
    control: SandboxControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed, case = in_doubt()

    def fail(self: object, question: Question) -> None:
        raise KeyError("surprise")

    adapter = type(registry.adapter(SUPPLIER))
    with monkeypatch.context() as patch:
        patch.setattr(adapter, "look_up", fail)
        for _ in range(FAILED_LOOKUPS_MAX):
            assert look(case) == "inconclusive"
    assert fresh(case).need == Need.PARKED
    assert "KeyError" in fresh(case).finding_summary
    place(control, claimed.operation)
    assert look(case) == "found"


def test_a_finding_that_cannot_be_acted_on_is_kept_and_parked(
    control: SandboxControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receipt that the journal can't hold, as a provider with odd currencies might give."""
    claimed, case = in_doubt()
    odd = Receipt(
        reference="ord_9",
        body={"id": "ord_9"},
        amount=None,
        state=ReceiptState.SUCCEEDED,
        status="succeeded",
        matched_by=None,
    )
    odd = replace(odd, matched_by="no such way")  # type: ignore[arg-type]

    def find(self: object, question: Question) -> Found:
        return Found(summary="The provider has it.", receipts=(_Odd(odd),))  # type: ignore[arg-type]

    class _Odd:
        def __init__(self, receipt: Receipt) -> None:
            self.reference, self.named = receipt.reference, True

        def facts(self) -> dict[str, Any]:
            return {"reference": "ord_9"}

        def as_json(self) -> dict[str, Any]:
            return {
                "reference": "ord_9",
                "named": True,
                "same": True,
                "state": "succeeded",
                "matched_by": "no such way",
                "body": {},
            }

    monkeypatch.setattr(type(registry.adapter(SUPPLIER)), "look_up", find)
    assert look(case) == "found"
    parked = fresh(case)
    assert (parked.state, parked.need, parked.lookup_claim) == (
        CaseState.NEEDS_DECISION,
        Need.PARKED,
        "",
    )
    assert Lookup.objects.count() == 1
    assert state_of(claimed) == "sent_unknown"


def test_bytes_that_no_database_text_can_hold_are_kept_all_the_same(
    control: SandboxControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, case = in_doubt()
    from reconciliation.providers.base import Exchange, Inconclusive

    exchange = Exchange(method="GET", url="http://x/", body="\x00\ud800", error="\x00")
    answer = Inconclusive(summary="Nothing follows.\x00", exchange=exchange)
    monkeypatch.setattr(type(registry.adapter(SUPPLIER)), "look_up", lambda self, question: answer)
    assert look(case) == "inconclusive"
    assert fresh(case).lookups_failed_count == 1
    assert Lookup.objects.count() == 1


def test_an_account_that_is_no_longer_declared_leaves_its_cases_to_people(
    control: SandboxControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    unasked, case = in_doubt()
    unreported = make_sent()
    factories.end_lease_in(unreported.run, -1)

    def gone(slug: str) -> None:
        raise registry.UnknownProvider(f"No provider account “{slug}” is declared.")

    monkeypatch.setattr(registry, "account", gone)
    monkeypatch.setattr(registry, "adapter", gone)
    assert look(case) == "inconclusive"
    assert (fresh(case).state, fresh(case).need) == (CaseState.NEEDS_DECISION, Need.NO_LOOKUP)
    # The sweeper takes the other one in, instead of meeting it again and again.
    assert sweeping.sweep().runs_taken_in == 1
    assert sweeping.sweep().runs_taken_in == 0
    taken_in = case_of(unreported)
    assert (taken_in.state, taken_in.need) == (CaseState.NEEDS_DECISION, Need.NO_LOOKUP)
    # A receipt that can't be compared confirms nothing, and is kept.
    from reconciliation.reports import ReceiptMismatch

    assert report("receipt", unasked)["operation"]["state"] == "sent_unknown"
    with pytest.raises(ReceiptMismatch, match="no longer declared"):
        report("receipt", make_sent(), reference="ord_2")
    actions = {one.action: one.permission for one in judged(taken_in).assessment.actions}
    assert actions == {"confirm": "second_person", "retry": "locked", "abandon": "allowed"}
    decide(taken_in, Action.ABANDON)
    assert state_of(unreported) == "abandoned"


# --- who asks, and what becomes of an answer that comes too late ----------------------------------------


def test_of_two_workers_at_once_one_asks(control: SandboxControl) -> None:
    claimed, case = in_doubt()
    due_now(case)
    findings = [one.value for one in at_once([lambda: lookups.look_up(case_id=case.pk)] * 4)]
    assert sorted(findings, key=str) == ["", "", "", "not_found"]
    assert control.stats("supplier", key=claimed.operation.key).lookups == 1


def test_a_lookup_is_not_made_before_it_is_due(control: SandboxControl) -> None:
    _, case = in_doubt()
    assert look(case) == "not_found"
    assert lookups.look_up(case_id=case.pk) == ""
    assert Lookup.objects.count() == 1


def test_a_claim_is_taken_over_once_its_time_is_up_and_the_first_answer_is_evidence(
    control: SandboxControl,
) -> None:
    claimed, case = in_doubt()
    due_now(case)
    with control.hold("lookup_before_reply", account="supplier") as hold:
        first = start(lambda: lookups.look_up(case_id=case.pk))
        hold.wait()
        assert lookups.claim_due(case_id=case.pk) is None
        Case.objects.filter(pk=case.pk).update(lookup_claimed_until_at=database_now())
        place(control, claimed.operation)
        assert lookups.look_up(case_id=case.pk) == "found"
        resolved = fresh(case)
    assert first.result().answer == "not_found"
    assert list(Lookup.objects.order_by("id").values_list("finding", "used")) == [
        ("found", "judged"),
        ("not_found", "evidence_only"),
    ]
    assert fresh(case) == resolved
    assert (fresh(case).version, fresh(case).finding) == (resolved.version, "found")


@pytest.mark.parametrize("action", [Action.ABANDON, Action.CONFIRM])
def test_a_decision_during_a_lookup_stands_and_the_answer_is_evidence(
    control: SandboxControl, action: Action
) -> None:
    claimed, case = in_doubt(minor=500)
    for _ in range(LOOKUPS_BEFORE_ASKING):
        look(case)
    place(control, claimed.operation)
    due_now(case)
    with control.hold("lookup_before_reply", account="supplier") as hold:
        running = start(lambda: lookups.look_up(case_id=case.pk))
        hold.wait()
        from tests.cases_world import given

        (effect,) = control.effects("supplier")
        receipt = {"receipt": given(claimed.operation, effect.id)} if action == Action.CONFIRM else {}
        decide(case, action, **receipt)
        decided = fresh(case)
    assert running.result().answer == "found"
    after = fresh(case)
    assert (after.state, after.resolution, after.version) == (
        CaseState.RESOLVED,
        decided.resolution,
        decided.version,
    )
    assert Lookup.objects.latest("id").used == "evidence_only"
    assert Evidence.objects.filter(kind=EvidenceKind.LOOKUP, finding="found").count() == 1
    assert state_of(claimed) == ("abandoned" if action == Action.ABANDON else "confirmed")
    held_minor = fresh(claimed.run).budget_held_minor
    assert held_minor == (500 if action == Action.ABANDON else 0)


def test_a_retry_decided_during_a_lookup_waits_for_one_that_is_asked_afterwards(
    control: SandboxControl,
) -> None:
    claimed, case = in_doubt()
    for _ in range(LOOKUPS_BEFORE_ASKING):
        look(case)
    due_now(case)
    with control.hold("lookup_before_reply", account="supplier") as hold:
        running = start(lambda: lookups.look_up(case_id=case.pk))
        hold.wait()
        decide(case, Action.RETRY, executor="console")
        # It happens after all, and the running lookup can't know.
        place(control, claimed.operation)
    assert running.result().answer == "not_found"
    assert fresh(case).state == CaseState.RETRYING
    assert not claimed.operation.grants.exists()
    assert look(case) == "found"
    assert (state_of(claimed), effects(control, claimed)) == ("confirmed", (1, 1))


# --- what voids a decision form -------------------------------------------------------------------------


def test_the_same_finding_again_voids_no_decision_form_and_a_new_one_does(control: SandboxControl) -> None:
    claimed, case = in_doubt(PAYMENTS)
    for _ in range(LOOKUPS_BEFORE_ASKING):
        look(case)
    opened = fresh(case)
    form = {"seen_version": opened.version, "evidence_digest": judged(case).evidence_digest}
    for _ in range(3):
        assert look(case) == "not_found"
    assert (fresh(case).version, judged(case).evidence_digest) == tuple(form.values())
    control.fault("lookup_500", account="payments", times=1)
    assert look(case) == "unavailable"
    assert judged(case).evidence_digest != form["evidence_digest"]
    with pytest.raises(DecisionStale) as stale:
        decide(case, Action.ABANDON, **form)
    assert "500" in stale.value.details["changed"][0]
    # Back and forth between what is known already is nothing new.
    form = {"seen_version": fresh(case).version, "evidence_digest": judged(case).evidence_digest}
    look(case)
    assert (fresh(case).version, judged(case).evidence_digest) == tuple(form.values())
    place(control, claimed.operation, fault="status;pending")
    assert look(case) == "pending"
    with pytest.raises(DecisionStale):
        decide(case, Action.ABANDON, **form)
    assert state_of(claimed) == "sent_unknown"


# --- asked for by a person ------------------------------------------------------------------------------


def test_a_person_may_have_it_looked_up_now(control: SandboxControl) -> None:
    _, case = in_doubt()
    look(case)
    before = fresh(case)
    lookups.ask_again(case_id=case.pk, team="ops", actor=TOKEN_ACTOR)
    assert fresh(case).version == before.version
    leaf = AuditLeaf.objects.get(action="case.lookup_asked")
    assert (leaf.actor, leaf.operation_ref) == (TOKEN_ACTOR.id, case.operation_id)
    assert lookups.look_up(case_id=case.pk) == "not_found"


@pytest.mark.parametrize("situation", ["retrying", "conflict after the fact"])
def test_a_lookup_that_a_person_asked_for_is_made_once(control: SandboxControl, situation: str) -> None:
    """And not in every pass of the sweeper from then on."""
    if situation == "retrying":
        claimed, case = in_doubt()
        decide(case, Action.RETRY)
        assert lookups.look_up(case_id=case.pk) == "not_found"
    else:
        claimed = make_sent()
        report("receipt", claimed)
        report("receipt", claimed, reference="ord_2")
        case = case_of(claimed)
    lookups.ask_again(case_id=case.pk, team="ops", actor=TOKEN_ACTOR)
    assert lookups.look_up(case_id=case.pk) == "not_found"
    assert sweeping.sweep().lookups_called == 0
    assert fresh(case).next_lookup_at is None


def test_lookups_change_nothing_at_the_provider(control: SandboxControl) -> None:
    claimed, case = in_doubt()
    place(control, claimed.operation, fault="twice")
    before = effects(control, claimed)
    for _ in range(4):
        look(case)
    assert effects(control, claimed) == before == (1, 2)
    assert control.stats("supplier", key=claimed.operation.key).lookups == 4


def test_two_looks_at_the_same_record_say_the_same() -> None:
    """A finding's digest is of what was found: two looks at one record are one piece of evidence."""
    one = Pending(summary="a", receipts=())
    assert one.evidence_digest == Pending(summary="another sentence", receipts=()).evidence_digest
    assert one.evidence_digest != Found(summary="a", receipts=()).evidence_digest


def test_the_record_of_a_confirmation_is_what_the_provider_showed(control: SandboxControl) -> None:
    claimed, case = in_doubt()
    place(control, claimed.operation)
    look(case)
    shown = json.loads(bytes(fresh(claimed.operation).receipt.body))
    wanted = record(claimed.operation, shown["id"])
    assert {name: shown[name] for name in wanted} == wanted
