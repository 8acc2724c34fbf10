"""An approver's path in Chromium: sign in, read a request, show who it is, approve, and go on to the next.

By keyboard alone with a script, and the same without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from playwright.sync_api import Browser, Page, expect

from console.access import REAUTHENTICATED_KEY
from console.models import Role
from reconciliation.accounts import sync_accounts
from reconciliation.approval_models import ApprovalRequest
from tests import chromium
from tests.browser.seeding import PASSWORD, TEAM, people
from tests.browser.seeding_approvals import seed_requests
from tests.chromium import Faults
from tests.processes import Server

pytestmark = pytest.mark.browser

COMMENT = "Agreed with the workshop's budget."
PHONES = (390, 320)


@pytest.fixture
def requests(db: None) -> dict[str, str]:
    sync_accounts()
    by_role = people()
    return seed_requests(team=TEAM, operator=by_role[Role.OPERATOR], approver=by_role[Role.APPROVER])


@pytest.fixture
def plain(browser: Browser, faults: Faults) -> Iterator[Page]:
    """A page without JavaScript."""
    context = browser.new_context(java_script_enabled=False, viewport={"width": 1440, "height": 900})
    yield chromium.new_page(context)
    context.close()


def signed_in_long_ago() -> None:
    """Let whoever is signed in have done so ten minutes ago."""
    for row in Session.objects.all():
        session = SessionStore(session_key=row.session_key)
        session[REAUTHENTICATED_KEY] = (datetime.now(UTC) - timedelta(minutes=10)).timestamp()
        session.save()


def reach(page: Page, name: str) -> None:
    """Go on with the Tab key until the focus is on what is called this; a page has no hundred stops."""
    for _ in range(100):
        page.keyboard.press("Tab")
        focused = page.evaluate("(document.activeElement?.innerText || '').trim().replaceAll('\\n', ' ')")
        if focused.startswith(name):
            return
    raise AssertionError(f"the Tab key doesn't lead to {name!r}")


def accessible(page: Page) -> None:
    found = Axe().run(page, options={"resultTypes": ["violations"]})
    assert found.violations_count == 0, found.generate_report()


def fits_a_phone(page: Page) -> None:
    for width in PHONES:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, width
    page.set_viewport_size({"width": 1440, "height": 900})


@pytest.mark.timeout(240)
def test_an_approver_reads_shows_who_it_is_approves_and_goes_on_by_keyboard_alone(
    page: Page, web_server: Server, requests: dict[str, str]
) -> None:
    page.goto(f"{web_server.url}/login/")
    page.get_by_label("Login").focus()
    page.keyboard.type("approver")
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    # An approver begins where their work waits, by deadline, without their own requests.
    expect(page.get_by_role("heading", level=1)).to_have_text("Approvals")
    expect(page.get_by_role("navigation", name="Primary")).to_contain_text("5 waiting for you")
    rows = page.locator("[data-row]")
    expect(rows).to_have_count(5)
    expect(rows.first).to_contain_text("Renew the run’s approval")
    accessible(page)
    fits_a_phone(page)

    reach(page, "Raise the budget limit to €700.00")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Raise the budget limit to €700.00")
    expect(page.locator("#decision")).to_contain_text("1 run is released")
    accessible(page)
    fits_a_phone(page)

    signed_in_long_ago()
    page.get_by_label("Comment").focus()
    page.keyboard.type(COMMENT)
    reach(page, "Approve €700.00")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Show that it is you")).to_be_visible()
    accessible(page)
    assert ApprovalRequest.objects.get(pk=requests["budget"]).state == "requested"
    page.get_by_label("Your password").focus()
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")

    # What was typed is there again, and nothing was answered.
    expect(page.get_by_label("Comment")).to_have_value(COMMENT)
    assert ApprovalRequest.objects.get(pk=requests["budget"]).state == "requested"
    reach(page, "Approve €700.00")
    page.keyboard.press("Enter")
    banner = page.get_by_role("alert").filter(has_text="You approved it")
    expect(banner.get_by_role("heading")).to_be_focused()
    answered = ApprovalRequest.objects.select_related("run").get(pk=requests["budget"])
    assert (answered.state, answered.comment, answered.run.state) == ("carried_out", COMMENT, "open")

    reach(page, "Next request")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Renew the run’s approval")


@pytest.mark.timeout(240)
def test_the_same_path_works_without_a_script_and_ones_own_request_says_why_not(
    plain: Page, web_server: Server, requests: dict[str, str]
) -> None:
    plain.goto(f"{web_server.url}/login/")
    plain.get_by_label("Login").fill("approver")
    plain.get_by_label("Password").fill(PASSWORD)
    plain.get_by_role("button", name="Sign in", exact=True).click()
    plain.get_by_role("link", name="Move the run to version 15").click()
    expect(plain.get_by_role("heading", name="Under version 15")).to_be_visible()

    signed_in_long_ago()
    plain.get_by_label("Comment").fill("Not before the supplier's new address is tested.")
    plain.get_by_role("button", name="Refuse").click()
    plain.get_by_label("Your password").fill(PASSWORD)
    plain.get_by_role("button", name="Go on").click()
    plain.get_by_role("button", name="Refuse").click()
    expect(plain.get_by_role("alert").filter(has_text="You refused it")).to_be_visible()
    assert ApprovalRequest.objects.get(pk=requests["version"]).state == "refused"

    plain.goto(f"{web_server.url}/approvals/{requests['own']}/")
    expect(plain.locator("#decision")).to_contain_text("somebody else must answer it")
    expect(plain.get_by_role("button", name="Approve")).to_have_count(0)
