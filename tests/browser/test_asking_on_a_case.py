"""Asking a second person on a case: by keyboard, in both themes, on a phone, withdrawn and refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from console.models import Role
from reconciliation import approvals
from reconciliation.approval_models import ApprovalRequest
from reconciliation.models import Decision
from reconciliation.persons import Worker
from tests import cases
from tests.browser.seeding import TEAM, people
from tests.browser.test_operator_path import REASON, sign_in
from tests.people import worker_of
from tests.processes import Server

pytestmark = pytest.mark.browser


def sound(page: Page, shots: Path, name: str) -> None:
    """Nothing that axe finds in either theme, and no sideways scroll on a phone."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        page.screenshot(path=shots / f"{name}-{scheme}.png", full_page=True)
    wide = page.viewport_size
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} scrolls sideways"
    page.screenshot(path=shots / f"{name}-phone.png", full_page=True)
    if wide is not None:
        page.set_viewport_size(wide)


@pytest.mark.timeout(300)
def test_an_operator_asks_takes_it_back_asks_anew_and_reads_the_refusal(
    page: Page, web_server: Server, tmp_path: Path
) -> None:
    somebody = people()
    opened = cases.needs_decision(team=TEAM)
    sign_in(page, web_server)
    page.goto(f"{web_server.url}/cases/{opened.case_id}/")

    def ask() -> None:
        page.get_by_role("radio", name="Confirm it happened", exact=True).press("Space")
        page.get_by_label("No record of it can be given").check()
        page.get_by_label("Reason code").select_option(label="The recipient says that it arrived")
        page.get_by_label("Reason", exact=True).fill(REASON)
        page.get_by_role("button", name="Review decision…").press("Enter")
        expect(page.get_by_role("heading", name=re.compile("^Ask a second person"))).to_be_visible()

    ask()
    sound(page, tmp_path, "review")
    page.get_by_role("button", name="Ask for approval", exact=True).press("Enter")
    expect(page.get_by_role("heading", name="A second person is asked")).to_be_visible()
    expect(page.get_by_text("Nothing has been done.")).to_be_visible()
    sound(page, tmp_path, "awaited")
    assert not Decision.objects.exists()

    page.get_by_label("Why take it back?").fill("Found their letter after all.")
    page.get_by_role("button", name="Withdraw the request").press("Enter")
    expect(page.get_by_text("Your request is withdrawn.")).to_be_visible()
    assert ApprovalRequest.objects.get().state == "withdrawn"

    page.goto(f"{web_server.url}/cases/{opened.case_id}/")
    ask()
    page.get_by_role("button", name="Ask for approval", exact=True).press("Enter")
    expect(page.get_by_role("heading", name="A second person is asked")).to_be_visible()
    robin: Worker = worker_of(somebody[Role.APPROVER])
    latest = ApprovalRequest.objects.latest("requested_at")
    approvals.refuse(approval_id=latest.pk, teams=None, worker=robin, comment="Ask them in writing first.")
    page.goto(f"{web_server.url}/cases/{opened.case_id}/")
    expect(page.locator("#decision").get_by_text("Ask them in writing first.")).to_be_visible()
    sound(page, tmp_path, "refused")
