"""A notice that meets a report, a lookup, another notice or a claim: each order gives the same end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError

from reconciliation import lookups, webhooks
from reconciliation.models import Case
from reconciliation.providers.base import NotFound
from reconciliation.states import CaseKind, CaseState
from reconciliation.webhooks import Notice, Taken
from runs.models import Evidence, Operation, Receipt
from runs.states import EvidenceKind
from tests.cases_world import case_of, due_now, in_doubt, make_sent, open_case_of, report, state_of
from tests.concurrency import at_once
from tests.factories import Claimed, fresh
from tests.hooked import HOOKED, body_of, deliver, event, hooked, signed

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _account(transactional_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with hooked(tmp_path, monkeypatch):
        yield


def notice(operation: Operation, event_id: str, **changes: Any) -> Notice:
    body = body_of(event(operation, event_id=event_id, **changes))
    return Notice(account=HOOKED, headers=signed(body), body=body)


def take(told: Notice) -> Taken | None:
    """As a provider does: what the database broke up is delivered again."""
    for _ in range(5):
        try:
            return webhooks.receive(notice=told)
        except OperationalError:
            continue
    return None


@pytest.mark.parametrize("again", range(4))
def test_a_notice_and_the_senders_receipt_at_once_confirm_once(again: int) -> None:
    claimed = make_sent(HOOKED)
    told = notice(claimed.operation, "evt_1")
    outcomes = at_once([lambda: take(told), lambda: report("receipt", claimed)])
    assert all(one.refusal is None for one in outcomes)
    assert state_of(claimed) == "confirmed"
    assert Receipt.objects.filter(operation=claimed.operation).count() == 1
    assert open_case_of(claimed) is None
    assert Evidence.objects.filter(operation=claimed.operation, kind=EvidenceKind.WEBHOOK).count() == 1


@pytest.mark.parametrize("again", range(4))
def test_a_notice_of_one_effect_and_a_receipt_of_another_are_a_conflict_in_every_order(again: int) -> None:
    claimed = make_sent(HOOKED)
    told = notice(claimed.operation, "evt_1", reference="ord_2")
    at_once([lambda: take(told), lambda: report("receipt", claimed, reference="ord_1")])
    assert Receipt.objects.filter(operation=claimed.operation).count() == 1
    case = case_of(claimed)
    assert (case.kind, case.state) == (CaseKind.CONFLICT, CaseState.NEEDS_DECISION)


def test_a_notice_that_settles_while_a_lookup_runs_leaves_the_lookup_evidence_only() -> None:
    claimed, case = in_doubt(HOOKED)
    due_now(case)
    asked = lookups.claim_due(case_id=case.pk)
    assert asked is not None
    deliver(event(claimed.operation))
    lookups.record_finding(
        asked=asked, finding=NotFound(summary="Nothing of ours.", proof=True), asked_by="policy"
    )
    assert state_of(claimed) == "confirmed"
    assert fresh(case).state == CaseState.RESOLVED
    assert Case.objects.filter(operation=claimed.operation).count() == 1


def test_two_notices_that_claim_one_receipt_for_two_operations_crosswise_end_in_conflicts() -> None:
    first, second = make_sent(HOOKED), make_sent(HOOKED)
    report("receipt", first, reference="ord_1")
    report("receipt", second, reference="ord_2")
    third, fourth = make_sent(HOOKED), make_sent(HOOKED)

    def tell(claimed: Claimed, event_id: str, reference: str) -> Taken | None:
        return take(notice(claimed.operation, event_id, reference=reference))

    at_once(
        [
            lambda: tell(third, "evt_1", "ord_1"),
            lambda: tell(fourth, "evt_2", "ord_2"),
            lambda: tell(first, "evt_3", "ord_2"),
            lambda: tell(second, "evt_4", "ord_1"),
        ]
    )
    for claimed in (first, second, third, fourth):
        assert case_of(claimed).kind == CaseKind.CONFLICT
    assert Receipt.objects.count() == 2
