"""What an account's page says of the provider's own notices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from console.models import Role
from reconciliation import webhooks
from reconciliation.providers import registry
from reconciliation.providers.webhook_signing import WebhookForged
from reconciliation.webhooks import Notice
from tests.cases_world import in_doubt
from tests.hooked import HOOKED, deliver, event, hooked
from tests.integration.pages.conftest import Login

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _account(transactional_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with hooked(tmp_path, monkeypatch):
        yield


def shown(login: Login, slug: str = HOOKED) -> str:
    response = login(Role.VIEWER).get(f"/providers/{slug}/")
    assert response.status_code == 200
    return response.content.decode()


def test_a_forged_and_an_unmatched_notice_are_seen_on_the_accounts_page(login: Login) -> None:
    claimed, _ = in_doubt(HOOKED)
    deliver(event(claimed.operation))
    deliver({"id": "evt_9", "type": "refund.created", "data": {"object": {"id": "<b>rfd_9"}}})
    for _ in range(3):
        with pytest.raises(WebhookForged):
            webhooks.receive(notice=Notice(account=HOOKED, headers={}, body=b"<script>alert(1)</script>"))
    page = shown(login)
    assert f"/api/v1/providers/{HOOKED}/webhook" in page
    assert "1 became evidence; 1 named nothing of ours" in page
    assert "3 without a valid signature" in page
    assert "alert(1)" not in page
    assert "<b>rfd_9" not in page


def test_before_any_notice_the_page_says_that_there_was_none(login: Login) -> None:
    assert shown(login).count("none in the last 24 hours") == 2


def test_a_missing_secret_is_named_by_its_variable_alone(
    login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "1 of HOOK_A or HOOK_B set here" in shown(login)
    monkeypatch.delenv("HOOK_A")
    registry.reload()
    page = shown(login)
    assert "No secret is set" in page
    assert "whsec_" not in page


def test_what_else_is_signed_and_what_cannot_be_used_is_told(
    login: Login, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    signed = ('scheme = "stripe"', 'scheme = "square"\nurl = { env = "HOOK_URL" }')
    with hooked(tmp_path, monkeypatch, signed):
        assert "HOOK_URL not set" in shown(login)
    with hooked(tmp_path, monkeypatch, ('"stripe"', '"svix"'), secret="whsec_***"):
        assert "Nothing to check with" in shown(login)


def test_an_account_that_takes_no_notices_says_nothing_of_them(login: Login) -> None:
    assert "Its own notices" not in shown(login, "sandbox-courier")


def test_a_case_shows_the_notices_about_it_and_says_which_are_not_final(login: Login) -> None:
    _, case = pending = in_doubt(HOOKED)
    deliver(event(pending[0].operation, status="pending"))
    page = login(Role.OPERATOR).get(f"/cases/{case.pk}/").content.decode()
    assert "Notice from the provider: it exists and isn’t final" in page
    assert "By its notice evt_1 (refund.created)" in page
    deliver(event(pending[0].operation, event_id="evt_2", status="succeeded", sku="OTHER"))
    page = login(Role.OPERATOR).get(f"/cases/{case.pk}/").content.decode()
    assert "Notice from the provider: a receipt that doesn’t match" in page
