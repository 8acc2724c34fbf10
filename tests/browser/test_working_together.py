"""Two people with their browsers at one case: who works on it, who looks on, and how it changes hands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from console.models import Person, Role
from reconciliation.work_models import CaseClaim
from reconciliation.working import CLAIM_SECONDS, LEFT_SECONDS
from runs.locking import database_now
from tests import cases, chromium
from tests.browser.seeding import PASSWORD, TEAM, people
from tests.chromium import Faults
from tests.processes import PATIENCE_SECONDS, Server, until

pytestmark = pytest.mark.browser

WIDTH_OF_A_PHONE = 390


@pytest.fixture
def second(browser: Browser, faults: Faults) -> Iterator[Page]:
    """Somebody else's browser: a dark one, as wide as a phone, without JavaScript."""
    context = browser.new_context(
        viewport={"width": WIDTH_OF_A_PHONE, "height": 900}, color_scheme="dark", java_script_enabled=False
    )
    faults.watch(context)
    yield chromium.new_page(context)
    context.close()


def sign_in(page: Page, server: Server, name: str) -> None:
    page.goto(f"{server.url}/login/")
    page.get_by_label("Login").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("heading", name="Needs a decision", level=1)).to_be_visible()


def checked(page: Page) -> None:
    found = Axe().run(page, options={"resultTypes": ["violations"]})
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.timeout(180)
def test_a_case_changes_hands_between_two_browsers(page: Page, second: Page, web_server: Server) -> None:
    people()
    robin = Person.objects.create_user("robin", password=PASSWORD, first_name="Robin", roles=[Role.OPERATOR])
    robin.teams.add(TEAM)
    opened = cases.needs_decision(team=TEAM)
    address = f"{web_server.url}/cases/{opened.case_id}/"
    sign_in(page, web_server, "operator")
    sign_in(second, web_server, "robin")

    page.get_by_role("button", name="Next for me").click()
    expect(page).to_have_url(address)
    expect(page.locator("#desk")).to_contain_text("You work on this case")

    second.goto(address)
    expect(second.locator("#desk")).to_contain_text("Sam Lane works on this case")
    assert second.locator("html").evaluate("one => one.scrollWidth") <= WIDTH_OF_A_PHONE
    # The first browser's page asks by itself who is there.
    expect(page.locator("#desk")).to_contain_text("Also looking at it: Robin.", timeout=60_000)

    desk = second.locator("#desk")
    desk.get_by_text("Take it over…").click()
    desk.get_by_role("textbox").fill("short")
    desk.get_by_role("button", name="Take it over").click()
    expect(desk.get_by_role("textbox")).to_have_value("short")
    desk.get_by_role("textbox").fill("Sam is on the phone until noon.")
    desk.get_by_role("button", name="Take it over").click()
    expect(second.locator("#desk")).to_contain_text("You work on this case")
    assert CaseClaim.objects.get().actor_name == "Robin"

    expect(page.locator("#desk")).to_contain_text("Robin works on this case", timeout=60_000)
    for theme, width in (("light", 1440), ("dark", WIDTH_OF_A_PHONE)):
        page.context.add_cookies([{"name": "recourse_theme", "value": theme, "url": web_server.url}])
        page.set_viewport_size({"width": width, "height": 900})
        page.reload()
        for summary in ("Take it over…", "Put it off…", "Add a note…"):
            page.get_by_text(summary).click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        checked(page)
    page.get_by_label("Note").fill("Robin has it.")
    page.get_by_role("button", name="Add the note").click()
    expect(page.locator(".timeline")).to_contain_text("Robin has it.")


def left_seconds() -> float:
    """How long the claim lasts from now."""
    return (CaseClaim.objects.get().until_at - database_now()).total_seconds()


def await_left() -> None:
    """The page says that it was left behind the back of the one that follows."""
    for _ in until(PATIENCE_SECONDS):
        if left_seconds() <= LEFT_SECONDS:
            return
    pytest.fail(f"the claim lasts for {left_seconds()} s")


@pytest.mark.timeout(180)
def test_leaving_the_page_ends_what_was_the_next_unless_another_tab_is_at_it(
    page: Page, web_server: Server
) -> None:
    people()
    opened = cases.needs_decision(team=TEAM)
    address = f"{web_server.url}/cases/{opened.case_id}/"
    sign_in(page, web_server, "operator")
    page.get_by_role("button", name="Next for me").click()
    expect(page).to_have_url(address)
    assert left_seconds() > CLAIM_SECONDS - 60
    other = chromium.new_page(page.context)
    other.clock.install()
    other.goto(address)

    page.goto(f"{web_server.url}/runs/")
    await_left()
    with other.expect_response("**/desk/"):
        other.clock.run_for(16_000)
    assert left_seconds() > CLAIM_SECONDS - 60, "the other tab is open still"

    other.close()
    page.goto(address)
    page.goto(f"{web_server.url}/runs/")
    await_left()
