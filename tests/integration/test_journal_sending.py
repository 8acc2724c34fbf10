"""begin_send: what gets "go", what is refused with which reason, and what each refusal leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from runs.journal import sending
from runs.journal.evidence import record_evidence
from runs.journal.sending import NotSendable
from runs.journal.settling import confirm, mark_sent_by_unknown
from runs.leases import RunPaused, StaleToken
from runs.locking import database_now
from runs.models import Attempt, Operation, Run
from runs.states import Claim, EvidenceKind
from tests.factories import (
    PERSON,
    effect,
    end_lease_in,
    fresh,
    held,
    make_claimed,
    read,
    receipt,
    send,
)

pytestmark = pytest.mark.django_db(transaction=True)


def stray_success(operation: Operation) -> None:
    """Somebody sent it without asking, and the provider's receipt confirmed it."""
    with held(operation) as locked:
        evidence = record_evidence(
            locked, kind=EvidenceKind.WEBHOOK, claim=Claim.RECEIPT, summary="Order made", actor=PERSON
        )
        mark_sent_by_unknown(locked, actor=PERSON, evidence=evidence)
        confirm(locked, receipt=receipt("ord_stray"), actor=PERSON)


# --- Order and siblings --------------------------------------------------------------------------------


def test_a_call_settled_out_of_turn_does_not_let_its_sibling_overtake() -> None:
    claimed = make_claimed(effect("c1"), effect("c2"), effect("c3"))
    first, second, third = claimed.operations
    stray_success(third)

    with pytest.raises(NotSendable) as refused:
        send(claimed, operation=second)
    assert refused.value.details == {"reason": "blocked_by", "blocked_by": first.pk}
    assert fresh(second).state == "ready"


def test_a_call_settled_out_of_turn_does_not_let_an_effect_overtake_a_read() -> None:
    claimed = make_claimed(read("r1"), effect("c2"), effect("c3"))
    second, third = claimed.operations
    stray_success(third)

    with pytest.raises(NotSendable) as refused:
        send(claimed, operation=second)
    assert refused.value.details == {"reason": "blocked_by", "blocked_by": "r1"}


# --- The lease or the approval ends between our look and our write ----------------------------------------


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> Callable[[datetime], None]:
    """Send the next ask down the slow path, and let its own write wait until this instant has come."""

    def slow_until(until_at: datetime) -> None:
        really, asks = sending._try_statement, iter([False, True])

        def statement(asked: dict[str, Any]) -> sending.Go | None:
            if not next(asks):
                return None
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_sleep_until(%s)", [until_at])
            return really(asked)

        monkeypatch.setattr(sending, "_try_statement", statement)

    return slow_until


def test_a_lease_that_ends_between_the_checks_and_the_write_is_stale_and_not_a_crash(
    slowly: Callable[[datetime], None],
) -> None:
    claimed = make_claimed()
    end_lease_in(claimed.run, 0.3)
    slowly(fresh(claimed.run).lease_expires_at or datetime.max)
    with pytest.raises(StaleToken):
        send(claimed)
    assert not Attempt.objects.exists()


def test_an_approval_that_ends_between_the_checks_and_the_write_pauses_the_run(
    slowly: Callable[[datetime], None],
) -> None:
    claimed = make_claimed()
    until_at = database_now() + timedelta(seconds=0.3)
    Run.objects.update(approval_until_at=until_at)
    slowly(until_at)
    with pytest.raises(RunPaused) as refused:
        send(claimed)
    assert refused.value.details["reasons"] == ["approval"]
    assert fresh(claimed.run).state == "paused"
    assert not Attempt.objects.exists()
