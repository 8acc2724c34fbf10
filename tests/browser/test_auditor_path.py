"""An auditor's path in Chromium: from an exception to the decision, its evidence as known then, and a file.

One session on a real web server and a real database, by keyboard; then without a script, and on a phone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from console import exporting, following
from console.models import Role
from reconciliation.states import Action
from tests import cases, chromium
from tests.browser.seeding import PASSWORD, TEAM, decided, people
from tests.cases import Effect, Opened
from tests.chromium import Faults
from tests.filing import file_history
from tests.processes import Server

pytestmark = pytest.mark.browser

WIDTHS = (390, 320)


@pytest.fixture(autouse=True)
def _settle_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "SETTLE_SECONDS", 0)


@pytest.fixture
def plain(browser: Browser, faults: Faults) -> Iterator[Page]:
    """A page without JavaScript."""
    context = browser.new_context(java_script_enabled=False, viewport={"width": 1440, "height": 900})
    yield chromium.new_page(context)
    context.close()


def sign_in(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/login/?next=/effects/")
    page.get_by_label("Login").fill("auditor")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("heading", name="Effect history", level=1)).to_be_visible()


def follow(page: Page, name: str) -> None:
    """Go to a link with the keyboard and open it."""
    link = page.get_by_role("link", name=name).first
    link.focus()
    expect(link).to_be_focused()
    page.keyboard.press("Enter")


def looked_at(page: Page) -> None:
    """Nothing that axe finds, and no sideways scroll on a phone."""
    found = Axe().run(page, options={"resultTypes": ["violations"]})
    assert found.violations_count == 0, found.generate_report()
    size = page.viewport_size
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, (page.url, width)
    found = Axe().run(page, options={"resultTypes": ["violations"]})
    assert found.violations_count == 0, found.generate_report()
    assert size is not None
    page.set_viewport_size(size)


def a_decided_case() -> Opened:
    opened = cases.needs_decision(Effect(minor=40_000), team=TEAM, external_id="ORD-1")
    decided(opened, people()[Role.OPERATOR], Action.ABANDON, then="end")
    file_history()
    return opened


@pytest.mark.timeout(300)
def test_an_auditor_goes_from_an_exception_to_what_was_known_and_takes_a_file_along(
    page: Page, plain: Page, web_server: Server, tmp_path: Path
) -> None:
    opened = a_decided_case()
    sign_in(page, web_server)
    looked_at(page)

    follow(page, "Decided within 10 seconds")
    expect(page.get_by_text("A person decided less than 10 seconds after")).to_be_visible()
    expect(page.locator("[data-row]")).to_have_count(1)
    looked_at(page)

    row = page.locator("[data-row]")
    row.get_by_role("link", name=opened.operation.pk).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Refund €400.00", level=1)).to_be_visible()
    expect(page.locator(".is-here")).to_contain_text("Decided: abandon")
    expect(page.locator(".is-here")).to_be_in_viewport()
    looked_at(page)

    follow(page, "As known when it was decided")
    expect(page.get_by_text("What is shown is what the decision was made on")).to_be_visible()
    looked_at(page)

    follow(page, opened.operation.pk)
    follow(page, "report for paper")
    expect(page.get_by_role("heading", name="Case report: Refund €400.00")).to_be_visible()
    looked_at(page)
    page.emulate_media(media="print")
    expect(page.get_by_role("navigation", name="Primary")).to_be_hidden()
    expect(page.get_by_text(f"/cases/{opened.case_id}/").first).to_be_visible()
    page.emulate_media(media="screen")

    # Without a script: narrow, ask for a file, and fetch it.
    sign_in(plain, web_server)
    plain.get_by_label("Event").select_option(label="Decisions")
    plain.get_by_role("button", name="Filter").click()
    expect(plain.locator("[data-row]")).to_have_count(1)
    plain.get_by_role("button", name="JSON Lines").click()
    expect(plain.get_by_role("heading", name="Export of the effect history, JSON Lines")).to_be_visible()
    expect(plain.get_by_text("Under way")).to_be_visible()
    file_history()
    exporting.make_exports()
    plain.get_by_role("link", name="How far is it now?").click()
    expect(plain.get_by_text("1 entry,")).to_be_visible()
    with plain.expect_download() as download:
        plain.get_by_role("link", name="Download the file").click()
    kept = tmp_path / "export.jsonl"
    download.value.save_as(kept)
    expect(plain.get_by_text(hashlib.sha256(kept.read_bytes()).hexdigest())).to_be_visible()
    page.goto(plain.url)
    looked_at(page)
    page.goto(f"{web_server.url}/effects/exports/")
    looked_at(page)
