"""Whatever is done without a person is on record with the policy's name and version."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reconciliation import reports
from reconciliation.accounts import sync_accounts
from reconciliation.decisions import Asked, decide
from reconciliation.gathering import judge_now
from reconciliation.policy import POLICY
from reconciliation.providers.base import Finding, Refused
from reconciliation.states import Action, CaseState
from runs.locking import database_now
from runs.models import AuditLeaf
from tests import cases, factories
from tests.cases import Effect, Opened

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _synced() -> None:
    sync_accounts()


def leaves(opened: Opened) -> list[dict[str, Any]]:
    rows = AuditLeaf.objects.filter(operation_ref=opened.operation.pk).order_by("pk")
    return [json.loads(bytes(one.body))["event"] for one in rows]


DESK = Effect(provider="sandbox-desk", tool="create_ticket", minor=None)


def answer_to(opened: Opened, finding: str) -> Finding:
    match finding:
        case "found":
            return cases.found(opened)
        case "refused":
            record = cases.record_of(opened, status="failed")
            return Refused(
                summary="It ended without effect.",
                exchange=cases.exchange_of(record),
                receipts=(cases.receipt_of(opened, record),),
            )
        case _:
            return cases.not_found(proof=True)


@pytest.mark.parametrize(
    ("finding", "state"), [("found", "confirmed"), ("refused", "rejected"), ("absence", "ready")]
)
def test_what_a_lookup_settles_is_settled_by_the_named_policy(finding: str, state: str) -> None:
    opened = cases.open_case(DESK)
    factories.quieten(opened.claimed.operation)
    cases.looked_up(opened, answer_to(opened, finding))
    assert (opened.case.state, opened.operation.state) == (CaseState.RESOLVED, state)
    settled = [one for one in leaves(opened) if one.get("after", {}).get("state") == state]
    assert len(settled) == 1, leaves(opened)
    assert settled[0]["actor"] == {"kind": "policy", "id": POLICY}
    moves = [one for one in leaves(opened) if one["action"].startswith("case.")]
    assert {one["action"] for one in moves} >= {"case.opened", "case.resolved"}
    for leaf in moves:
        assert leaf["actor"] == {"kind": "policy", "id": POLICY}, leaf


def test_what_is_handed_to_a_person_is_handed_over_by_the_named_policy() -> None:
    opened = cases.needs_decision()
    moves = [one for one in leaves(opened) if one["action"] == "case.moved"]
    assert moves[-1]["after"]["state"] == "needs_decision"
    assert moves[-1]["actor"] == {"kind": "policy", "id": POLICY}


def test_what_follows_from_a_senders_report_names_the_sender_and_the_policy() -> None:
    """The worker said so; that it settles is the policy's conclusion."""
    opened = cases.open_case()
    reports.report_receipt(
        sender=reports.Sender(team=factories.TEAM, token=opened.claimed.token),
        operation_id=opened.operation.pk,
        attempt_id="a1",
        reference="rfd_01",
        seen=reports.SeenReply(status=200, body=json.dumps(cases.record_of(opened)).encode()),
    )
    assert opened.operation.state == "confirmed"
    (settled,) = (one for one in leaves(opened) if one.get("after", {}).get("state") == "confirmed")
    assert settled["actor"]["kind"] in ("worker", "policy")
    assert settled["actor"]["id"] == POLICY or POLICY in settled["reason"]
    (resolved,) = (one for one in leaves(opened) if one["action"] == "case.resolved")
    assert resolved["after"]["policy"] == POLICY


def test_a_report_that_settles_at_once_names_the_policy_too() -> None:
    claimed = factories.make_claimed(factories.effect(provider="sandbox-payments"))
    factories.send(claimed)
    reports.report_not_sent(
        sender=reports.Sender(team=factories.TEAM, token=claimed.token),
        operation_id=claimed.operation.pk,
        attempt_id="a1",
        seen=reports.SeenReply(error="ConnectError", phase="connect"),
    )
    rows = AuditLeaf.objects.filter(operation_ref=claimed.operation.pk).order_by("-pk")
    back = next(one for one in (json.loads(bytes(row.body))["event"] for row in rows) if "before" in one)
    assert (back["actor"]["kind"], back["after"]["state"]) == ("worker", "ready")
    assert back["reason"].endswith(f"by policy {POLICY}")


def test_a_persons_decision_names_the_policy_that_allowed_it() -> None:
    opened = cases.needs_decision()
    judged = judge_now(run=opened.run, operation=opened.operation, case=opened.case, now=database_now())
    decide(
        case_id=opened.case_id,
        team=opened.case.team_id,
        actor=factories.PERSON,
        asked=Asked(
            action=Action.ABANDON,
            seen_version=opened.case.version,
            evidence_digest=judged.evidence_digest,
            reason_code="other",
            reason=cases.REASON,
            idempotency_key="k1",
            then="continue",
        ),
    )
    (leaf,) = (one for one in leaves(opened) if one["action"] == "case.decided.abandon")
    assert leaf["after"]["policy"] == POLICY
    assert leaf["actor"]["kind"] == "person"
