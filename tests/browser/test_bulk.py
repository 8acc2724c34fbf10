"""Several cases at once in Chromium: chosen by keyboard, previewed, carried out by a real worker, read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from reconciliation.models import Decision
from reconciliation.states import CaseState
from tests import cases, chromium
from tests.browser.seeding import PASSWORD, TEAM, people
from tests.chromium import Faults
from tests.processes import Process, Server

pytestmark = pytest.mark.browser

PICKUP = cases.Effect(tool="book_pickup", provider=cases.COURIER, minor=None)
PATIENCE_MS = 60_000


@pytest.fixture
def plain(browser: Browser, faults: Faults) -> Iterator[Page]:
    """A dark page as wide as a phone, without JavaScript."""
    context = browser.new_context(
        java_script_enabled=False, viewport={"width": 390, "height": 900}, color_scheme="dark"
    )
    faults.watch(context)
    yield chromium.new_page(context)
    context.close()


def sign_in(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/login/")
    page.get_by_label("Login").fill("operator")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("heading", name="Needs a decision", level=1)).to_be_visible()


def checked(page: Page) -> None:
    found = Axe().run(page, options={"resultTypes": ["violations"]})
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.timeout(240)
def test_cases_are_chosen_decided_and_read_by_keyboard_and_without_a_script(
    page: Page, plain: Page, web_server: Server, celery_worker: Process
) -> None:
    people()
    opened = [cases.needs_decision(PICKUP, team=TEAM) for _ in range(5)]
    sign_in(page, web_server)
    # The second row, and with Shift all of them from there to the fourth.
    for key in ("j", "j", "x", "j", "j", "Shift+X"):
        page.keyboard.press(key)
    expect(page.locator("[data-selected]")).to_have_text("3 selected")
    checked(page)
    page.get_by_role("button", name="Decide together").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Decide 3 cases together?")).to_be_visible()
    page.get_by_role("radio", name="Abandon, and the runs go on without").focus()
    page.keyboard.press("Space")
    page.get_by_role("button", name="Show what this would do").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("3 cases are decided, each with a decision")).to_be_visible()
    # Why, is asked once it is seen what for.
    page.get_by_label("Reason code").select_option("no_longer_needed")
    page.get_by_label("Reason", exact=True).fill("The pickups were cancelled by phone.")
    checked(page)
    assert Decision.objects.count() == 0
    page.get_by_role("button", name="Abandon 3 cases").focus()
    page.keyboard.press("Enter")
    # The progress is asked for until it has ended, and nothing else on the page moves.
    progress = page.locator("#bulk-progress")
    expect(progress).to_contain_text("3 of 3 cases seen to, 3 done", timeout=PATIENCE_MS)
    page.reload()
    expect(page.get_by_role("row").get_by_text("Done")).to_have_count(3)
    checked(page)
    states = [one.case.state for one in opened]
    assert (states.count(CaseState.RESOLVED), states.count(CaseState.NEEDS_DECISION)) == (3, 2)

    sign_in(plain, web_server)
    plain.get_by_role("checkbox", name="All that match").check()
    plain.get_by_role("button", name="Claim").click()
    plain.get_by_role("button", name="Claim 2 cases").click()
    expect(plain.get_by_role("heading", name="Claim 2 cases")).to_be_visible()
    assert plain.evaluate("document.documentElement.scrollWidth") <= 390
