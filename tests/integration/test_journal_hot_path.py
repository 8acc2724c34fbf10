"""The two statements of the hot path: what they write, and that their leaves are canonical."""

from __future__ import annotations

import json

import pytest

from runs.canonical import canonical_bytes, digest
from runs.journal.replies import confirm_by_reply
from runs.journal.settling import ReceiptFacts
from runs.models import AuditLeaf, Receipt
from runs.states import MatchedBy
from tests.factories import effect, make_claimed, send

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_effect_is_two_statements_and_ends_confirmed_with_its_budget_spent() -> None:
    claimed = make_claimed(effect(minor=48_600), budget_minor=100_000)

    go = send(claimed)
    operation, run = claimed.operation, claimed.run
    operation.refresh_from_db()
    run.refresh_from_db()
    assert (operation.state, operation.attempts_count, operation.reservation) == (
        "sent_unknown",
        1,
        "reserved",
    )
    assert (run.budget_reserved_minor, run.budget_spent_minor) == (48_600, 0)
    assert go.payload == b'{"quantity":40,"sku":"FC-20"}'
    assert go.idempotency_key == operation.key
    assert len(go.idempotency_key) <= 45

    number = confirm_by_reply(
        team=run.team_id,
        operation_id=operation.pk,
        token=claimed.token,
        attempt_id="a1",
        receipt=ReceiptFacts(
            reference="ord_1",
            body=b"{}",
            matched_by=MatchedBy.KEY,
            amount_currency="EUR",
            amount_minor=48_600,
        ),
        report_digest="d" * 64,
    )
    assert number == 1
    operation.refresh_from_db()
    run.refresh_from_db()
    assert (operation.state, operation.reservation, operation.settled_minor) == (
        "confirmed",
        "settled",
        48_600,
    )
    assert (run.budget_reserved_minor, run.budget_spent_minor, run.turn_settled) == (0, 48_600, 1)
    assert Receipt.objects.get(operation=operation).reference == "ord_1"


def test_every_leaf_of_an_effect_is_canonical_json_with_the_database_time() -> None:
    claimed = make_claimed(effect(minor=1))
    send(claimed)
    confirm_by_reply(
        team=None,
        operation_id=claimed.operation.pk,
        token=claimed.token,
        attempt_id="a1",
        receipt=ReceiptFacts(reference="ord_1", body=b"{}", matched_by=MatchedBy.KEY),
        report_digest="d" * 64,
    )
    leaves = list(AuditLeaf.objects.order_by("id"))
    assert [leaf.action for leaf in leaves] == [
        "run.started",
        "run.claimed",
        "turn.saved",
        "operation.sent",
        "operation.confirmed",
    ]
    for leaf in leaves:
        body = bytes(leaf.body)
        assert canonical_bytes(json.loads(body)) == body
        assert json.loads(body)["event"]["action"] == leaf.action
        assert json.loads(body)["at"] == leaf.at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    assert json.loads(bytes(leaves[-1].body))["event"]["after"]["receipt"] == digest(b"{}")
