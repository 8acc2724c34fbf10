"""A lookup of several requests keeps to the account's limit with every one of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings

from reconciliation import admission, limiting, lookups
from reconciliation.gate_models import AccountGate
from reconciliation.models import Lookup
from reconciliation.providers import registry
from runs.locking import database_now
from runs.models import Evidence
from tests.cases_world import declare, due_now, in_doubt
from tests.contract.fault_server import FaultServer
from tests.contract.scripted import Scripted, answer

pytestmark = pytest.mark.django_db(transaction=True)

PAGED = "supplier-in-pages"
PER_SECOND = 2
_DECLARED = registry.SHIPPED / "sandbox-supplier.toml"
_OTHERS = {"status": "succeeded", "idempotency_key": "somebody-else's"}


@pytest.fixture
def peer(db: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Scripted]:
    """Three pages of other operations' orders, asked of an account that may be asked twice a second."""
    text = _DECLARED.read_text().replace("sandbox-supplier", PAGED).replace("by_key", "by_listing")
    text = text.replace("rate_limit_per_second = 50", f"rate_limit_per_second = {PER_SECOND}")
    paged = 'items = "$.data"\nmore = "$.more"\npages = { next = "cursor", parameter = "c", at = "$.next" }'
    (tmp_path / f"{PAGED}.toml").write_text(text.replace('items = "$.data"', paged, 1))
    pages = [
        answer({"data": [{**_OTHERS, "id": f"ord_{number}"}], "more": number < 3, "next": f"c-{number}"})
        for number in (1, 2, 3)
    ]
    script = Scripted(*pages)
    with FaultServer(script) as server, monkeypatch.context() as patched:
        patched.setenv("SANDBOX_URL", server.url)
        patched.setattr(settings, "RECOURSE_PROVIDERS_DIR", [str(tmp_path)])
        declare()
        yield script
        registry.reload()
    registry.reload()


def test_every_page_of_a_lookup_takes_a_slot_of_the_accounts_limit(peer: Scripted) -> None:
    rate = limiting.rate_of(PER_SECOND)
    _, case = in_doubt(PAGED)
    due_now(case)
    began_at = database_now()
    assert lookups.look_up(case_id=case.pk) == "not_found"
    assert len(peer.asked) == 3
    # The slots themselves: three were taken, and none was saved up before the first.
    assert admission.gate_of(PAGED).next_slot_at >= began_at + rate.interval * 3
    # What was asked is kept, each page with what identifies it.
    evidence = Evidence.objects.get(pk=Lookup.objects.get(case=case).evidence_id)
    assert [one["status"] for one in evidence.seen["earlier"]] == [200, 200]
    assert evidence.seen["exchange"]["request"]["url"].endswith("c=c-2")


def test_a_slot_that_doesnt_come_in_time_is_given_up_and_not_taken(peer: Scripted) -> None:
    far_at = database_now() + timedelta(hours=1)
    AccountGate.objects.create(account_id=PAGED, next_slot_at=far_at)
    contract = registry.account(PAGED).contract
    within = timedelta(milliseconds=300)
    assert not admission.wait_for_another_slot(slug=PAGED, contract=contract, within=within)
    assert admission.gate_of(PAGED).next_slot_at == far_at
    AccountGate.objects.update(next_slot_at=None)
    assert admission.wait_for_another_slot(slug=PAGED, contract=contract, within=timedelta(seconds=30))
