"""The notifications' pages in Chromium: without a script, with axe, in both themes and on a phone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from console.models import Role
from console.notification_models import Channel, Message
from tests import cases, chromium, notified
from tests.browser.screenshots import sign_in
from tests.browser.seeding import TEAM, people
from tests.chromium import Faults
from tests.processes import Server

pytestmark = pytest.mark.browser


@pytest.fixture
def plain(browser: Browser, faults: Faults) -> Iterator[Page]:
    """A phone's page without JavaScript."""
    context = browser.new_context(java_script_enabled=False, viewport={"width": 390, "height": 844})
    yield chromium.new_page(context)
    context.close()


@pytest.fixture
def app_env(app_env: dict[str, str]) -> dict[str, str]:
    """With a mail server that nothing asks: without one, no message is offered to be sent."""
    return {**app_env, "RECOURSE_MAIL_URL": "smtp://127.0.0.1:9"}


def look(page: Page, url: str) -> None:
    """Open it in both themes: nothing for axe to find, nothing wider than the window."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.goto(url)
        found = Axe().run(page, options={"resultTypes": ["violations"]})
        assert found.violations_count == 0, found.generate_report()
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{url} is {wide} px wider than the window"


def test_an_administrator_says_whom_a_team_tells_and_sends_a_message_again(
    page: Page, plain: Page, web_server: Server
) -> None:
    made = people()
    opened, conflict = cases.needs_decision(team=TEAM), cases.needs_decision(team=TEAM)
    notified.every_state(case=opened.case, conflict=conflict.case, person=made[Role.OPERATOR])
    url = f"{web_server.url}/notifications/"
    sign_in(plain, web_server.url, "administrator")
    plain.goto(url)
    row = plain.get_by_role("row").filter(has_text="Given up").first
    expect(row).to_contain_text("The mail server refused the address (550).")
    row.get_by_role("button", name="Send now").click()
    expect(plain.get_by_text("It is sent in a few seconds.")).to_be_visible()
    assert Message.objects.filter(state="waiting").count() == 2

    plain.get_by_role("link", name="Who is told of what").click()
    plain.get_by_label("E-mail address").fill("nobody")
    form = plain.locator("form", has=plain.get_by_label("E-mail address"))
    form.get_by_label("More effects than intended").check()
    plain.get_by_role("button", name="Add it").click()
    expect(plain.locator(".errsum")).to_contain_text("Write one e-mail address")
    expect(form.get_by_label("More effects than intended")).to_be_checked()
    plain.get_by_label("E-mail address").fill("ops@example.com")
    plain.get_by_role("button", name="Add it").click()
    expect(plain.get_by_text("Saved. It is told what happens from now on.")).to_be_visible()
    assert Channel.objects.get(address="ops@example.com").happenings == ["conflict"]

    sign_in(page, web_server.url, "administrator")
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        look(page, url)
        look(page, f"{url}settings/")
