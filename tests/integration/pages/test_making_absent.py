"""The fourth action of a case, from the page that offers it to what it came to."""

from __future__ import annotations

from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from console.models import Role
from reconciliation import making_absent
from reconciliation.accounts import sync_accounts
from reconciliation.approval_models import ApprovalRequest
from reconciliation.making_absent_models import AbsenceRequest
from reconciliation.providers import registry
from reconciliation.providers.base import AbsenceKind, AbsenceSeen, Exchange, Phase
from runs.states import OperationState
from tests import cases
from tests.factories import fresh
from tests.integration.pages.conftest import Login
from tests.integration.pages.forms import decide, fields, page_of, post
from tests.integration.pages.test_approvals import answer, signed_in

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def declared(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_URL", "http://127.0.0.1:9")
    registry.reload()
    sync_accounts()


def text_of(reply: Any) -> str:
    return " ".join(unescape(reply.content.decode()).split())


def action_of(client: Client, opened: cases.Opened, action: str) -> Any:
    panel = page_of(client, f"/cases/{opened.case_id}/").panel
    return next((one for one in panel.actions if one.action == action), None)


def test_a_case_is_made_absent_from_its_page_to_its_proof(
    login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    jonas, ines = login(Role.OPERATOR, name="jonas"), login(Role.APPROVER, name="ines")
    signed_in(ines, seconds_ago=1)
    opened = cases.needs_decision()
    offered = action_of(jonas, opened, "make_absent")
    assert (offered.selectable, offered.locked_by) == (True, "Takes a second person.")
    shown = text_of(jonas.get(f"/cases/{opened.case_id}/"))
    assert "Make sure it’s absent" in shown
    assert "undoes the effect if there is one; its record is kept before it leaves" in shown
    # What it would do to the run is asked, and what was typed is kept.
    missing = post(jonas, opened, fields(jonas, opened, "make_absent"))
    assert (missing.status_code, "Say whether the run ends or goes on" in text_of(missing)) == (422, True)
    review = post(jonas, opened, fields(jonas, opened, "make_absent", then_absent="continue"))
    assert "Ask a second person: make sure that the refund is absent?" in text_of(review)
    assert decide(jonas, opened, "make_absent", then_absent="continue").status_code == 302
    waiting = page_of(jonas, f"/cases/{opened.case_id}/").panel
    assert (waiting.kind, waiting.approved) == ("awaited", False)

    made = ApprovalRequest.objects.get()
    listed = page_of(ines, "/approvals/?kind=make_absent").rows
    assert [row.approval_id for row in listed] == [made.pk]
    page = page_of(ines, f"/approvals/{made.pk}/")
    assert page.form.acknowledgement.startswith("I accept that this refund of €1,240.00 is undone")
    told = text_of(ines.get(f"/approvals/{made.pk}/"))
    assert "POST /acct/payments/refunds/cancellation" in told
    assert "had happened as it should, and is undone" in told
    without = answer(ines, made, "approve")
    assert (without.status_code, AbsenceRequest.objects.count()) == (422, 0)
    assert answer(ines, made, "approve", acknowledged="yes").status_code == 302
    panel = page_of(jonas, f"/cases/{opened.case_id}/").panel
    assert (panel.kind, panel.approved, panel.withdraw_href) == ("awaited", True, "")

    exchange = Exchange(method="POST", url="http://127.0.0.1:9/x", status=200, phase=Phase.DONE)
    seen = AbsenceSeen(kind=AbsenceKind.ABSENT, exchange=exchange, summary="It isn’t there <b>now</b>.")
    monkeypatch.setattr("reconciliation.making_absent._send", lambda _: seen)
    assert making_absent.send(approval_id=made.pk) == "absent"
    assert fresh(opened.operation).state == OperationState.ABANDONED
    with CaptureQueriesContext(connection) as queries:
        reply = jonas.get(f"/cases/{opened.case_id}/")
    assert len(queries) <= 12
    result = text_of(reply)
    assert "Request to make it absent: the provider says that it isn’t there" in result
    assert "It isn’t there <b>now</b>." in result
    assert b"<b>now</b>" not in reply.content
    assert "Decided: make sure that it’s absent" in result
    assert reply.context["page"].panel.badge.word == "Abandoned"


def test_it_is_locked_with_its_reason_where_it_may_not_be_done_and_gone_where_it_is_not_offered(
    login: Login,
) -> None:
    jonas = login(Role.OPERATOR, name="jonas")
    early = cases.open_case()
    locked = action_of(jonas, early, "make_absent")
    assert (locked.selectable, locked.locked_by) == (False, "Locked by question 4.")
    refused = post(jonas, early, {**fields(jonas, early, "make_absent"), "then_absent": "end"})
    assert refused.status_code == 423
    order = cases.Effect(tool="place_order", provider=cases.SUPPLIER, args={"sku": "FC-20"})
    elsewhere = cases.needs_decision(order)
    assert action_of(jonas, elsewhere, "make_absent") is None
    assert action_of(jonas, elsewhere, "abandon").selectable


def test_while_its_answer_is_open_the_page_says_so_and_decides_nothing(
    login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    jonas, ines = login(Role.OPERATOR, name="jonas"), login(Role.APPROVER, name="ines")
    signed_in(ines, seconds_ago=1)
    opened = cases.needs_decision()
    decide(jonas, opened, "make_absent", then_absent="end")
    made = ApprovalRequest.objects.get()
    answer(ines, made, "approve", acknowledged="yes")

    class Died(BaseException):
        pass

    def die(_: object) -> None:
        raise Died

    monkeypatch.setattr("reconciliation.making_absent._send", die)
    with pytest.raises(Died):
        making_absent.send(approval_id=made.pk)
    page = page_of(jonas, f"/cases/{opened.case_id}/")
    assert all(not one.selectable for one in page.panel.actions)
    assert "its answer comes first" in text_of(jonas.get(f"/cases/{opened.case_id}/"))


def test_the_providers_page_says_what_it_does_and_what_it_proves(login: Login) -> None:
    shown = text_of(login(Role.OPERATOR).get("/providers/sandbox-payments/"))
    assert "Cancel whatever this key has made" in shown
    assert "A first request that arrives afterwards is refused." in shown
    assert "Whatever it answers, Recourse sends nothing more with that key." in shown
