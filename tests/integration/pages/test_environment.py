"""The environment page: what is frozen and why, who may say what it is, and what was forgotten."""

from __future__ import annotations

import pytest

from console.models import Role
from reconciliation import restoring
from reconciliation.accounts import sync_accounts
from reconciliation.providers import registry
from reconciliation.sweeping import sweep
from runs.ids import new_id
from runs.locking import database_now
from runs.models import AccountReturn, Freeze, Orphan, ProviderAccount
from runs.states import FreezeAnswer, ListingState, Sending
from tests.factories import PERSON
from tests.integration.pages.conftest import Login

pytestmark = pytest.mark.django_db(transaction=True)

SUPPLIER = "sandbox-supplier"
REASON = "The disk of the old server was lost."


@pytest.fixture
def frozen(transactional_db: None) -> Freeze:
    sync_accounts()
    return restoring.declare_restored(because="Moved to <b>another</b> server.", actor=PERSON)


def said(frozen: Freeze, **fields: str) -> dict[str, str]:
    return {
        "freeze": frozen.pk,
        "answer": "production",
        "backup_taken_at": "2026-11-28 21:00",
        "reason": REASON,
        **fields,
    }


def test_an_open_environment_shows_its_id_and_asks_nothing(login: Login, transactional_db: None) -> None:
    sync_accounts()
    page = login(Role.ADMINISTRATOR).get("/environment/").content.decode()
    assert "Sending is open." in page
    assert "env_" in page
    assert "environment/answer" not in page
    assert "None is known. They are looked for after a restore" in page
    others = login(Role.OPERATOR).get("/environment/").content.decode()
    assert "None is known. They are looked for after a restore" in others


def test_an_account_that_is_not_configured_does_not_say_that_it_sends(
    login: Login, transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync_accounts()
    client = login(Role.OPERATOR)
    listed = {row.slug: row for row in client.get("/environment/").context["page"].rows}
    assert listed[SUPPLIER].standing.word == "Not configured"
    assert "SANDBOX_URL" in listed[SUPPLIER].notes[0]
    assert "Workers that send by their own means still do." in listed[SUPPLIER].notes[0]
    monkeypatch.setenv("SANDBOX_URL", "http://127.0.0.1:9")
    registry.reload()
    try:
        listed = {row.slug: row for row in client.get("/environment/").context["page"].rows}
    finally:
        monkeypatch.delenv("SANDBOX_URL")
        registry.reload()
    assert (listed[SUPPLIER].standing.word, listed[SUPPLIER].notes) == ("Sends", ())


def test_a_frozen_one_says_why_inert_and_who_may_say_what_it_is(login: Login, frozen: Freeze) -> None:
    page = login(Role.OPERATOR).get("/environment/").content.decode()
    assert "Sending is frozen." in page
    assert "<b>another</b>" not in page
    assert "only administrators say which database this is" in page
    assert "environment/answer" not in page
    refused = login(Role.OPERATOR).post("/environment/answer/", said(frozen))
    assert refused.status_code == 403
    frozen.refresh_from_db()
    assert frozen.answer == FreezeAnswer.AWAITED


def test_a_refused_answer_keeps_what_was_typed(login: Login, frozen: Freeze) -> None:
    for fields, field in (
        ({"reason": "short"}, "reason"),
        ({"backup_taken_at": "yesterday"}, "backup_taken_at"),
        ({"backup_taken_at": ""}, "backup_taken_at"),
        ({"answer": "awaited"}, "answer"),
    ):
        response = login(Role.ADMINISTRATOR).post("/environment/answer/", said(frozen, **fields))
        page = response.content.decode()
        assert response.status_code == 422, fields
        assert f'href="#{field}"' in page
        assert fields.get("reason", REASON) in page


def test_an_administrator_says_what_it_is_and_opens_an_account_when_nothing_is_looked_up(
    login: Login, frozen: Freeze
) -> None:
    admin = login(Role.ADMINISTRATOR)
    assert admin.post("/environment/answer/", said(frozen)).status_code == 302
    early = admin.post(f"/environment/accounts/{SUPPLIER}/opening/")
    assert early.status_code == 409
    assert "still being collected" in early.content.decode()
    sweep()
    AccountReturn.objects.update(listing=ListingState.NOT_OFFERED)
    page = admin.get("/environment/").content.decode()
    assert "only people can look there" in page
    assert login(Role.OPERATOR).post(f"/environment/accounts/{SUPPLIER}/opening/").status_code == 403
    assert admin.post(f"/environment/accounts/{SUPPLIER}/opening/").status_code == 302
    assert ProviderAccount.objects.get(pk=SUPPLIER).sending == Sending.OPEN


def test_an_orphan_is_shown_to_administrators_inert_with_what_redoing_does(
    login: Login, frozen: Freeze
) -> None:
    Orphan.objects.create(
        id=new_id("orphan"),
        account_id=SUPPLIER,
        freeze=frozen,
        reference="ord_<script>",
        key="rk-abc",
        state_there="succeeded",
        body={"note": "<script>alert(1)</script>"},
        body_digest="0" * 64,
        found_at=database_now(),
    )
    page = login(Role.ADMINISTRATOR).get("/environment/").content.decode()
    assert "mints the same key" in page
    assert "rk-abc" in page
    assert "<script>alert" not in page
    assert "rk-abc" not in login(Role.OPERATOR).get("/environment/").content.decode()


def test_every_page_says_that_sending_is_frozen_and_what_that_means_for_the_person(
    login: Login, frozen: Freeze
) -> None:
    notice, link = "Sending is frozen at every account.", 'class="btn btn--sm" href="/environment/"'
    for path in ("/", "/runs/", "/effects/", "/providers/", "/preferences/"):
        page = login(Role.OPERATOR).get(path).content.decode()
        assert notice in page, path
        assert "Administrators say when it sends again." in page
        assert link not in page
        page = login(Role.ADMINISTRATOR).get(path).content.decode()
        assert notice in page, path
        assert link in page
    ProviderAccount.objects.exclude(pk=SUPPLIER).update(sending=Sending.OPEN)
    assert "Sending is frozen at 1 account." in login(Role.VIEWER).get("/runs/").content.decode()
    ProviderAccount.objects.update(sending=Sending.OPEN)
    assert "Sending is frozen" not in login(Role.VIEWER).get("/runs/").content.decode()
