"""What the console can say about asking an account: how it goes, what holds it back, what waits."""

from __future__ import annotations

import pytest

from reconciliation.breaking import BreakerState
from reconciliation.health import account_health
from runs.locking import database_now
from tests.cases_world import SUPPLIER, declare, in_doubt

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _declared(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_URL", "http://127.0.0.1:9")
    declare()


def test_an_account_that_was_never_asked_is_well_and_nothing_holds_it_back() -> None:
    health = account_health(SUPPLIER, database_now())
    assert (health.breaker.state, health.limiter.tokens) == (BreakerState.CLOSED, health.limiter.burst)
    assert (health.lookups.asked, health.backlog.due, health.held, health.sentence) == (0, 0, None, "")


def test_what_waits_is_counted_with_the_age_of_the_oldest() -> None:
    first, _ = in_doubt(), in_doubt()
    backlog = account_health(SUPPLIER, database_now()).backlog
    assert (backlog.due, backlog.later, backlog.oldest_due_at) == (2, 0, first[1].next_lookup_at)
