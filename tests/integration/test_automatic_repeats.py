"""A flow that has opted in gets one repeat with the same key by the policy itself, and no second."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from console.models import Person, Role
from reconciliation import reports
from reconciliation.accounts import sync_accounts
from reconciliation.contracts import KeyScope
from reconciliation.intake import take_in_run
from reconciliation.models import Case, Decision
from reconciliation.policy import POLICY
from reconciliation.providers import registry
from reconciliation.states import CaseState, Need
from reconciliation.tightening import tighten
from runs.actors import Actor, ActorKind
from runs.models import AuditLeaf, Flow, Grant
from tests import cases, factories
from tests.cases import Effect, Opened
from tests.factories import Claimed

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _synced() -> Iterator[None]:
    """The accounts as they are without a console that can send, whatever another test has read."""
    registry.reload()
    sync_accounts()
    yield
    registry.reload()


def in_doubt(effect: Effect = cases.REFUND, *, opted_in: bool = True) -> Opened:
    """A case whose requests are quiet, before anybody has looked."""
    opened = cases.open_case(effect)
    Flow.objects.filter(pk=opened.run.flow_id).update(automatic_repeat="safe" if opted_in else "off")
    factories.quieten(opened.claimed.operation)
    return opened


def left_behind(effect: Effect) -> Opened:
    """Another run of the same flow, whose worker died without a word, taken in when all was quiet."""
    chosen = factories.effect(
        tool=effect.tool, provider=effect.provider, args=effect.args, minor=effect.minor
    )
    claimed = factories.make_claimed(chosen)
    factories.send(claimed)
    factories.quieten(claimed.operation)
    factories.end_lease_in(claimed.run, 0)
    take_in_run(run_id=claimed.run.pk)
    return Opened(claimed, Case.objects.get(operation=claimed.operation).pk)


def look(opened: Opened, times: int = 3) -> None:
    for _ in range(times):
        cases.looked_up(opened, cases.not_found())


def leaf(action: str) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(bytes(AuditLeaf.objects.get(action=action).body))["event"]
    return event


def test_nothing_found_is_repeated_once_by_the_policy_and_on_record_as_its_own() -> None:
    opened = in_doubt()
    look(opened)
    assert opened.case.state == CaseState.RETRYING
    made = Decision.objects.get()
    assert (made.actor_kind, made.actor, made.policy, made.executor) == ("policy", POLICY, POLICY, "agent")
    assert "lets the policy repeat once" in made.reason
    grant = Grant.objects.get()
    assert (grant.state, made.grant_id) == ("open", grant.pk)
    decided = leaf("case.decided.retry")
    assert decided["actor"] == {"kind": "policy", "id": POLICY}
    assert decided["after"]["policy"] == POLICY
    assert leaf("grant.made")["actor"]["id"] == POLICY

    # The agent's worker comes back and sends it, with the same key; again nobody sees an answer.
    run = opened.run
    claimed = Claimed(run, factories.claim(run), opened.claimed.operations)
    go = factories.send(claimed, attempt_id="a2")
    assert (go.number, go.idempotency_key) == (2, opened.operation.key)
    reports.report_unknown(
        sender=reports.Sender(team=factories.TEAM, token=claimed.token),
        operation_id=opened.operation.pk,
        attempt_id="a2",
        seen=reports.SeenReply(error="ReadTimeout", phase="waiting"),
    )
    factories.quieten(opened.claimed.operation)
    look(opened)
    assert (opened.case.state, opened.case.need) == (CaseState.NEEDS_DECISION, Need.NOT_FOUND)
    assert Decision.objects.count() == 1


@pytest.mark.parametrize(("scope", "executor"), [(KeyScope.ACCOUNT, "console"), (KeyScope.REGION, "agent")])
def test_the_policy_lets_the_console_repeat_only_where_the_agents_key_reaches_it(
    monkeypatch: pytest.MonkeyPatch, scope: KeyScope, executor: str
) -> None:
    monkeypatch.setenv("SANDBOX_URL", "http://127.0.0.1:9")
    registry.reload()
    sync_accounts()
    account = registry.account(cases.PAYMENTS)
    narrow = replace(account, contract=replace(account.contract, key_scope=scope))
    monkeypatch.setattr(registry, "account", lambda slug: narrow)
    opened = in_doubt()
    look(opened)
    assert opened.case.state == CaseState.RETRYING
    assert Decision.objects.get().executor == executor


def test_a_flow_that_has_not_opted_in_asks_a_person() -> None:
    opened = in_doubt(opted_in=False)
    look(opened)
    assert (opened.case.state, opened.case.need) == (CaseState.NEEDS_DECISION, Need.NOT_FOUND)
    assert not Decision.objects.exists()


def test_where_the_key_protects_nothing_a_person_is_asked_all_the_same() -> None:
    pickup = Effect(tool="book_pickup", provider=cases.COURIER, minor=None)
    first = in_doubt(pickup)
    left = left_behind(pickup)
    assert left.run.flow_id == first.run.flow_id
    assert (left.case.state, left.case.need) == (CaseState.NEEDS_DECISION, Need.NO_LOOKUP)
    assert not Decision.objects.exists()


def test_where_nothing_can_be_asked_what_a_dead_worker_left_is_repeated_inside_the_window() -> None:
    in_doubt()
    tighten(
        account=cases.PAYMENTS,
        wanted={"lookups": False},
        reason="Its search shows other customers' refunds.",
        seen_number=0,
        actor=Actor(ActorKind.PERSON, "person:7", "administrator"),
    )
    left = left_behind(cases.REFUND)
    assert left.case.state == CaseState.RETRYING
    assert Grant.objects.get(operation=left.operation).state == "open"


def test_what_is_found_is_confirmed_and_not_repeated() -> None:
    opened = in_doubt()
    look(opened, 2)
    cases.looked_up(opened, cases.found(opened))
    assert opened.operation.state == "confirmed"
    assert not Decision.objects.exists()


def test_something_alike_is_left_to_a_person() -> None:
    opened = in_doubt()
    look(opened, 2)
    cases.looked_up(opened, cases.candidate(opened))
    assert opened.case.need == Need.CANDIDATE
    assert not Decision.objects.exists()


# --- opting in -------------------------------------------------------------------------------------------


def choose(flow: Flow, *, by: str, repeat: str = "safe") -> None:
    call_command(
        "flow_policy",
        flow.team_id,
        flow.name,
        automatic_repeat=repeat,
        by=by,
        reason="The supplier keeps keys for a day.",
        verbosity=0,
    )


def test_an_administrator_opts_a_flow_in_and_that_is_on_record() -> None:
    flow = cases.open_case().run.flow
    Person.objects.create_user("jo", roles=[Role.ADMINISTRATOR])
    Person.objects.create_user("sam", roles=[Role.OPERATOR])
    with pytest.raises(CommandError, match="sam is no administrator"):
        choose(flow, by="sam")
    choose(flow, by="jo")
    assert factories.fresh(flow).automatic_repeat == "safe"
    event = leaf("flow.policy_changed")
    assert (event["before"], event["after"]) == ({"automatic_repeat": "off"}, {"automatic_repeat": "safe"})
    assert event["actor"]["kind"] == "person"
