"""An administrator trusts a provider less: at once, on record, and never the other way."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db.models import F

from reconciliation import effective, tightening
from reconciliation.accounts import account_of, sync_accounts
from reconciliation.contracts import LookupKind
from reconciliation.gathering import judge_now
from reconciliation.models import Case, Tightening
from reconciliation.providers import registry
from reconciliation.states import Action, CaseState, Permission
from reconciliation.tightening import ContractMoved, LooseningNeedsApproval, NothingTightened, tighten
from runs.actors import Actor, ActorKind
from runs.locking import database_now
from runs.models import AuditLeaf, ProviderAccount
from runs.refusals import Invalid, NotFound
from tests import cases
from tests.concurrency import Connect, Holder, at_once, start

pytestmark = pytest.mark.django_db(transaction=True)

PAYMENTS = "sandbox-payments"
ADMINISTRATOR = Actor(ActorKind.PERSON, "person:7", "administrator")
WHY = "The provider's support says that it forgets keys sooner."
HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def _synced() -> None:
    sync_accounts()


def hold(seen_number: int = 0, *, account: str = PAYMENTS, **wanted: Any) -> Tightening:
    return tighten(
        account=account,
        wanted=wanted,
        reason=WHY,
        seen_number=seen_number,
        actor=ADMINISTRATOR,
        actor_name="Jo Reed",
    )


def test_what_is_tightened_counts_at_once_and_the_declaration_stays() -> None:
    hold(dedup_window_ms=HOUR_MS, console_sends=False)
    held = account_of(PAYMENTS)
    assert held.contract.dedup_window_ms == HOUR_MS
    assert not held.console_can_send
    declared = registry.account(PAYMENTS)
    assert declared.contract.dedup_window_ms == 24 * HOUR_MS
    assert declared.console_sends
    assert account_of("sandbox-desk") == registry.account("sandbox-desk")


def test_a_second_tightening_adds_to_the_first() -> None:
    hold(dedup_window_ms=HOUR_MS)
    second = hold(1, absence_is_proof=False, rate_limit_per_second=0.5)
    assert second.number == 2
    contract = account_of(PAYMENTS).contract
    assert (contract.dedup_window_ms, contract.rate_limit_per_second) == (HOUR_MS, 0.5)


def test_a_sync_that_waits_for_a_tightening_keeps_what_was_tightened(connect: Connect) -> None:
    """It had read the accounts before it waited, and a shorter quiet time lets a repeat leave too early."""
    other = Holder(connect(), connect())
    other.execute("BEGIN", [])
    other.execute("SELECT 1 FROM runs_provideraccount WHERE slug = %s FOR NO KEY UPDATE", [PAYMENTS])
    syncing = start(sync_accounts)
    other.wait_for_waiters(1)
    other.execute(
        "INSERT INTO reconciliation_tightening"
        ' (account, number, "values", reason, actor, actor_name, made_at)'
        " VALUES (%s, 1, '{\"in_flight_bound_ms\": 90000}', 'Slower.', 'person:7', '', clock_timestamp())",
        [PAYMENTS],
    )
    other.execute("UPDATE runs_provideraccount SET in_flight_ms = 90000 WHERE slug = %s", [PAYMENTS])
    other.release()
    assert PAYMENTS in syncing.result().answer
    effective.forget()
    assert account_of(PAYMENTS).contract.in_flight_bound_ms == 90_000
    assert ProviderAccount.objects.get(pk=PAYMENTS).in_flight_ms == 90_000


def test_the_adapter_concludes_by_the_contract_in_force() -> None:
    assert effective.adapter("sandbox-desk").contract.absence_is_proof
    hold(account="sandbox-desk", absence_is_proof=False)
    assert not effective.adapter("sandbox-desk").contract.absence_is_proof
    assert registry.adapter("sandbox-desk").contract.absence_is_proof


def test_a_larger_in_flight_bound_is_told_to_the_journal_and_kept_by_a_sync() -> None:
    hold(in_flight_bound_ms=90_000)
    assert ProviderAccount.objects.get(pk=PAYMENTS).in_flight_ms == 90_000
    sync_accounts()
    assert ProviderAccount.objects.get(pk=PAYMENTS).in_flight_ms == 90_000


def test_the_leaf_says_who_tightened_what_from_what_and_why() -> None:
    hold(dedup_window_ms=HOUR_MS)
    leaf = AuditLeaf.objects.get(action="provider.tightened")
    event = json.loads(bytes(leaf.body))["event"]
    assert event["subject"] == PAYMENTS
    assert event["actor"] == {"id": "person:7", "kind": "person", "role": "administrator"}
    assert event["before"] == {"dedup_window_ms": 24 * HOUR_MS}
    assert event["after"] == {"dedup_window_ms": HOUR_MS, "number": 1}
    assert event["reason"] == WHY


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({}, {"dedup_window_ms": 48 * HOUR_MS}),
        ({}, {"absence_is_proof": True}),
        ({}, {"rate_limit_per_second": 51}),
        ({}, {"in_flight_bound_ms": 999}),
        # Back to what the file says is looser than what is in force.
        ({"dedup_window_ms": HOUR_MS}, {"dedup_window_ms": 2 * HOUR_MS}),
        ({"lookups": False}, {"lookups": True}),
        ({"console_sends": False}, {"console_sends": True}),
        # One looser value spoils the whole: nothing is half done.
        ({}, {"visibility_lag_ms": 5_000, "rejection_replays": True}),
    ],
)
def test_loosening_is_refused_for_it_needs_an_approval(first: dict[str, Any], then: dict[str, Any]) -> None:
    if first:
        hold(**first)
    before, leaves = account_of(PAYMENTS), AuditLeaf.objects.count()
    with pytest.raises(LooseningNeedsApproval, match="needs an approval") as refused:
        hold(len(first), **then)
    assert set(refused.value.details["fields"]) <= set(then)
    effective.forget()
    assert account_of(PAYMENTS) == before
    assert AuditLeaf.objects.count() == leaves


def test_whoever_saw_an_older_contract_is_told_who_tightened_it() -> None:
    hold(dedup_window_ms=HOUR_MS)
    with pytest.raises(ContractMoved, match="Jo Reed") as refused:
        hold(0, visibility_lag_ms=5_000)
    assert refused.value.details["number"] == 1
    assert refused.value.details["their_reason"] == WHY
    with pytest.raises(ContractMoved):
        hold(2, visibility_lag_ms=5_000)
    assert Tightening.objects.count() == 1


@pytest.mark.parametrize(
    ("wanted", "where"),
    [
        ({"dedup_window_ms": True}, "dedup_window_ms"),
        ({"dedup_window_ms": 0}, "dedup_window_ms"),
        ({"dedup_window_ms": 1.5}, "dedup_window_ms"),
        ({"dedup_window_ms": None}, "dedup_window_ms"),
        ({"rate_limit_per_second": float("nan")}, "rate_limit_per_second"),
        ({"rate_limit_per_second": 0}, "rate_limit_per_second"),
        ({"absence_is_proof": 0}, "absence_is_proof"),
        ({"key_format": "none"}, "key_format"),
        # The margin would eat the window.
        ({"dedup_window_ms": 300_000}, "dedup_window_ms"),
        ({"window_margin_ms": 24 * HOUR_MS}, "window_margin_ms"),
    ],
)
def test_a_value_without_sense_is_refused_by_its_field(wanted: dict[str, Any], where: str) -> None:
    with pytest.raises(Invalid) as refused:
        hold(**wanted)
    assert refused.value.details["where"] == where
    assert not Tightening.objects.exists()


def test_nothing_tighter_is_no_tightening() -> None:
    with pytest.raises(NothingTightened):
        hold(dedup_window_ms=24 * HOUR_MS, absence_is_proof=False)


def test_a_reason_and_a_person_are_needed_and_a_declared_account() -> None:
    with pytest.raises(Invalid, match="reason"):
        tighten(
            account=PAYMENTS, wanted={"lookups": False}, reason="short", seen_number=0, actor=ADMINISTRATOR
        )
    with pytest.raises(Invalid, match="person"):
        tighten(
            account=PAYMENTS,
            wanted={"lookups": False},
            reason=WHY,
            seen_number=0,
            actor=Actor(ActorKind.TOKEN, "tok_1"),
        )
    with pytest.raises(NotFound):
        hold(account="sandbox-nothing", lookups=False)


def test_lookups_that_are_switched_off_leave_the_next_case_to_people() -> None:
    hold(lookups=False)
    assert account_of(PAYMENTS).contract.lookup is LookupKind.NONE
    opened = cases.open_case()
    case = Case.objects.get(pk=opened.case_id)
    assert case.next_lookup_at is None


def test_a_shorter_window_takes_the_repeat_from_one_person_and_sorts_the_queue() -> None:
    opened = cases.needs_decision()
    case, operation, now = Case.objects.get(pk=opened.case_id), opened.operation, database_now()
    before = judge_now(run=opened.run, operation=operation, case=case, now=now).assessment
    retry = before.action(Action.RETRY)
    assert retry is not None
    assert retry.permission is Permission.ALLOWED
    assert case.key_ends_at is not None
    hold(account=operation.provider_id, dedup_window_ms=400_000, window_margin_ms=399_000)
    after = judge_now(run=opened.run, operation=operation, case=case, now=now).assessment.action(Action.RETRY)
    assert after is not None
    assert after.permission is Permission.SECOND_PERSON
    moved = Case.objects.get(pk=opened.case_id)
    first_sent_at = operation.first_sent_at
    assert first_sent_at is not None
    assert moved.key_ends_at == first_sent_at + timedelta(seconds=1)
    assert moved.worsens_at <= case.worsens_at


def test_an_untrusted_window_leaves_only_the_time_limit_in_the_queue() -> None:
    opened = cases.needs_decision()
    hold(account=opened.operation.provider_id, key_window_trusted=False)
    case = Case.objects.get(pk=opened.case_id)
    assert case.key_ends_at is None
    assert case.worsens_at == case.decide_by_at
    assert not Case.objects.filter(state=CaseState.RESOLVED).exists()
    assert Case.objects.filter(worsens_at=F("decide_by_at")).exists()


def test_an_older_reading_is_kept_for_a_moment_and_then_read_again(settings: Any) -> None:
    """As another process sees it: nobody tells it to forget."""
    assert account_of(PAYMENTS).contract.dedup_window_ms == 24 * HOUR_MS
    Tightening.objects.create(
        account=PAYMENTS, number=1, values={"dedup_window_ms": HOUR_MS}, reason=WHY, actor="person:7"
    )
    assert account_of(PAYMENTS).contract.dedup_window_ms == 24 * HOUR_MS
    settings.RECOURSE_PROVIDERS_CHECK_SECONDS = 0.0
    assert account_of(PAYMENTS).contract.dedup_window_ms == HOUR_MS


@pytest.mark.parametrize("statement", ["UPDATE {} SET values = '{{}}'", "DELETE FROM {}", "TRUNCATE {}"])
def test_not_even_the_owner_changes_what_was_tightened(owner_url: str, statement: str) -> None:
    hold(dedup_window_ms=HOUR_MS)
    with psycopg.connect(owner_url, autocommit=True) as owner, pytest.raises(psycopg.Error) as refused:
        owner.execute(statement.format("reconciliation_tightening"))
    assert "append-only" in str(refused.value)
    assert tightening.newest_of(PAYMENTS) is not None


def test_of_two_administrators_at_once_one_tightens_and_the_other_is_told() -> None:
    outcomes = at_once([lambda: hold(dedup_window_ms=HOUR_MS), lambda: hold(visibility_lag_ms=5_000)])
    won = [one for one in outcomes if one.refusal is None]
    lost = [one.refusal for one in outcomes if one.refusal is not None]
    assert (len(won), len(lost)) == (1, 1)
    assert isinstance(lost[0], ContractMoved)
    assert Tightening.objects.count() == 1
