"""A case is made absent in Chromium: an operator asks, an approver consents, the provider's answer is shown.

With a script and without one; the request goes to the sandbox's cancellation, which is a stub of our own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from console.sandbox.control import SandboxControl
from reconciliation import making_absent
from reconciliation.accounts import sync_accounts
from reconciliation.approval_models import ApprovalRequest
from reconciliation.providers import registry
from tests import cases, chromium
from tests.browser.seeding import TEAM, people
from tests.browser.test_approver_path import accessible, fits_a_phone
from tests.browser.test_operator_path import sign_in
from tests.cases import Effect, Opened
from tests.chromium import Faults
from tests.processes import Server

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

REASON = "The customer was paid back in the shop; a refund on top would be one too many."


@pytest.fixture
def opened(sandbox: Server, db: None) -> Opened:
    """A refund that was asked for and never arrived, at a provider that can be told to cancel its key."""
    registry.reload()
    sync_accounts()
    people()
    return cases.needs_decision(Effect(minor=18_500), team=TEAM, external_id="ORD-76400")


@pytest.fixture(params=["script", "plain"])
def operator(request: pytest.FixtureRequest, browser: Browser, faults: Faults) -> Iterator[Page]:
    """A page with JavaScript, and one without."""
    context = browser.new_context(
        java_script_enabled=request.param == "script", viewport={"width": 1440, "height": 900}
    )
    faults.watch(context)
    yield chromium.new_page(context)
    context.close()


@pytest.fixture
def approver(browser: Browser, faults: Faults) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    faults.watch(context)
    yield chromium.new_page(context)
    context.close()


def test_two_people_have_an_effect_made_absent_and_read_what_the_provider_said(
    request: pytest.FixtureRequest,
    operator: Page,
    approver: Page,
    web_server: Server,
    sandbox: Server,
    opened: Opened,
) -> None:
    scripted = request.node.callspec.params["operator"] == "script"
    sign_in(operator, web_server)
    operator.goto(f"{web_server.url}/cases/{opened.case_id}/")
    operator.get_by_role("radio", name="Make sure it’s absent").check()
    expect(operator.locator("#decision")).to_contain_text("Takes a second person")
    operator.locator("[name=then_absent][value=continue]").check()
    operator.get_by_label("Reason code").select_option(label="No longer needed")
    operator.get_by_label("Reason", exact=True).fill(REASON)
    operator.get_by_role("button", name="Review decision…").click()
    expect(
        operator.get_by_role("heading", name="Ask a second person: make sure that the refund is absent?")
    ).to_be_visible()
    if scripted:
        # Axe is a script itself: a page without one is left to the other run.
        accessible(operator)
    fits_a_phone(operator)
    assert not ApprovalRequest.objects.exists()
    operator.get_by_role("button", name="Ask for approval", exact=True).click()
    expect(operator.get_by_role("heading", name="A second person is asked")).to_be_visible()
    asked = ApprovalRequest.objects.get(case=opened.case_id)
    fits_a_phone(operator)

    sign_in(approver, web_server, "approver")
    approver.goto(f"{web_server.url}/approvals/{asked.pk}/")
    expect(approver.locator("main")).to_contain_text("POST /acct/payments/refunds/cancellation")
    accessible(approver)
    fits_a_phone(approver)
    approver.get_by_label("I accept that this refund of €185.00 is undone").check()
    approver.get_by_label("Comment").fill("Agreed; the shop's receipt is attached.")
    approver.get_by_role("button", name="Approve").click()
    expect(approver.get_by_role("alert").filter(has_text="You approved it")).to_be_visible()
    with SandboxControl(sandbox.url) as control:
        before = control.stats("payments", key=opened.operation.key)
    assert (before.requests, before.effects) == (0, 0), "consent sends nothing by itself"

    # As the worker does that was called.
    assert making_absent.send(approval_id=asked.pk) == "absent"
    operator.goto(f"{web_server.url}/cases/{opened.case_id}/")
    expect(operator.locator("main")).to_contain_text(
        "Request to make it absent: the provider says that it isn’t there"
    )
    expect(operator.locator("main")).to_contain_text("Abandoned")
    if scripted:
        accessible(operator)
    fits_a_phone(operator)
    assert opened.operation.state == "abandoned"
    with SandboxControl(sandbox.url) as control:
        assert control.stats("payments", key=opened.operation.key).effects == 0
