"""Provider pages in Chromium: a lookup on trial and a tightening, with a script and without."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from reconciliation.accounts import sync_accounts
from reconciliation.models import Tightening
from tests import cases, chromium
from tests.browser.screenshots import sign_in
from tests.browser.seeding import TEAM, people
from tests.chromium import Faults
from tests.processes import Server

pytestmark = pytest.mark.browser

WHY = "The provider's support says that it forgets keys sooner."


@pytest.fixture
def plain(browser: Browser, faults: Faults) -> Iterator[Page]:
    """A page without JavaScript."""
    context = browser.new_context(java_script_enabled=False, viewport={"width": 1440, "height": 900})
    yield chromium.new_page(context)
    context.close()


@pytest.mark.parametrize("with_script", [True, False])
def test_an_operator_tests_a_lookup_and_an_administrator_tightens(
    page: Page, plain: Page, sandbox: Server, web_server: Server, with_script: bool
) -> None:
    people()
    sync_accounts()
    opened = cases.needs_decision(team=TEAM)
    used = page if with_script else plain
    sign_in(used, web_server.url)
    used.get_by_role("navigation", name="Primary").get_by_role("link", name="Providers").click()
    used.get_by_role("link", name="Sandbox payments", exact=True).click()
    expect(used.get_by_role("heading", name="Sandbox payments", level=1)).to_be_visible()
    expect(used.get_by_text("Tested only by our own stub")).to_be_visible()
    used.get_by_label("Operation id or key").fill(opened.operation.pk)
    used.get_by_role("button", name="Ask the provider once").click()
    result = used.locator("#trial-result")
    expect(result).to_contain_text("Not found, no proof")
    expect(result).to_contain_text("What would be concluded")
    result.get_by_text("Request, without its secrets").click()
    expect(result).to_contain_text("GET http://127.0.0.1")

    used.context.clear_cookies()
    sign_in(used, web_server.url, "administrator")
    used.goto(f"{web_server.url}/providers/sandbox-payments/")
    used.get_by_text("Tighten the contract…").click()
    used.get_by_label("How long the key is recognised").fill("48 h")
    used.locator("#reason").fill(WHY)
    used.get_by_role("button", name="Tighten the contract").click()
    banner = used.get_by_role("alert").filter(has_text="was not tightened")
    expect(banner).to_contain_text("needs an approval")
    expect(used.locator("#reason")).to_have_value(WHY)
    used.get_by_label("How long the key is recognised").fill("1 h 30")
    used.get_by_role("button", name="Tighten the contract").click()
    expect(used.locator(".errsum")).to_contain_text("Write a duration with its unit")
    used.get_by_label("How long the key is recognised").fill("90 min")
    used.get_by_role("button", name="Tighten the contract").click()
    expect(used.locator("#tightened")).to_contain_text("How long the key is recognised: 90 min")
    expect(used.locator("#contract")).to_contain_text("tightened; declared: 24 h from the first send")
    assert Tightening.objects.get().values == {"dedup_window_ms": 90 * 60_000}
