"""The keyboard in Chromium: search and go, an action opened by its number, and updates that can be paused."""

from __future__ import annotations

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from reconciliation.models import Decision
from tests import chromium
from tests.browser.seeding import people
from tests.browser.test_operator_path import a_refund, sign_in
from tests.chromium import Faults
from tests.processes import Server

pytestmark = pytest.mark.browser


def test_a_case_is_found_and_an_action_opened_by_keys_alone_and_nothing_is_sent(
    page: Page, web_server: Server
) -> None:
    people()
    opened = a_refund(1)
    sign_in(page, web_server)

    page.keyboard.press("Control+k")
    palette = page.get_by_role("dialog", name="Search and go")
    expect(palette).to_be_visible()
    page.keyboard.type("prov")
    expect(palette.get_by_role("link", name="Providers")).to_be_visible()
    expect(palette.get_by_role("link", name="Runs")).to_be_hidden()
    palette.get_by_role("searchbox").fill(opened.operation.pk)
    expect(palette.locator("#palette-hits").get_by_role("link")).to_have_count(1)
    assert Axe().run(page).violations_count == 0
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{web_server.url}/cases/{opened.case_id}/")

    for key, action in (("3", "Abandon"), ("2", "Retry with the same key"), ("1", "Confirm it happened")):
        page.keyboard.press(key)
        expect(page.get_by_role("radio", name=action, exact=True)).to_be_checked()
        page.get_by_role("heading", level=1).click()
        page.evaluate("document.activeElement.blur()")
    page.keyboard.press("h")
    expect(page.get_by_label("For how long")).to_be_focused()
    page.locator("#snooze summary").click()
    page.evaluate("document.activeElement.blur()")
    page.evaluate("document.body.dataset.shortcuts = 'off'")
    page.keyboard.press("h")
    expect(page.get_by_label("For how long")).to_be_hidden()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert not Decision.objects.filter(case=opened.case_id).exists()


def test_paused_updates_ask_for_nothing_and_the_list_says_how_old_it_is(
    page: Page, web_server: Server
) -> None:
    people()
    a_refund(1)
    page.clock.install()
    sign_in(page, web_server)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))

    with page.expect_response("**/queue/news/**"):
        page.clock.run_for(10_500)
    page.get_by_role("button", name="Pause updates").click()
    asked.clear()
    page.clock.run_for(6 * 60_000)
    assert not [url for url in asked if "/queue/news/" in url]
    expect(page.locator("#read-at")).to_contain_text("6 min ago. It may have changed since: read it again")

    page.get_by_role("button", name="Pause updates").click()
    a_refund(2)
    top = page.locator("#cases").bounding_box()
    with page.expect_response("**/queue/news/**"):
        page.clock.run_for(10_500)
    expect(page.get_by_role("link", name="1 new: show them")).to_be_visible()
    expect(page.locator("#backlog .stat__number").first).to_have_text("2")
    expect(page.locator("[data-row]")).to_have_count(1)
    assert page.locator("#cases").bounding_box() == top


def test_times_are_told_in_ones_own_zone_on_request_and_in_utc_without_a_script(
    browser: Browser, faults: Faults, web_server: Server
) -> None:
    people()
    opened = a_refund(1)
    context = browser.new_context(timezone_id="Asia/Kolkata")
    faults.watch(context)
    page = chromium.new_page(context)
    sign_in(page, web_server)
    page.goto(f"{web_server.url}/preferences/")
    page.get_by_label("The zone of this browser").check()
    page.get_by_role("button", name="Save times").click()
    page.goto(f"{web_server.url}/cases/{opened.case_id}/")
    first = page.locator(".timeline time").first
    expect(first).to_have_text(re.compile(r"[0-9:]{8} \+05:30$"))
    expect(first).to_have_attribute("title", re.compile("UTC"))
    expect(page.locator(".live__clock")).to_contain_text("+05:30")
    written = page.request.get(f"{web_server.url}/cases/{opened.case_id}/").text()
    assert re.search(r"<time [^>]*>[0-9:]{8}Z</time>", written)
    context.close()


@pytest.mark.timeout(180)
def test_every_menu_and_dialog_is_accessible_in_both_themes(page: Page, web_server: Server) -> None:
    people()
    opened = a_refund(1)
    sign_in(page, web_server)
    for theme, width in (("light", 1440), ("dark", 390)):
        page.context.add_cookies([{"name": "recourse_theme", "value": theme, "url": web_server.url}])
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(f"{web_server.url}/?q={opened.operation.pk}")
        page.locator(".menu > summary").click()
        expect(page.get_by_role("link", name="Preferences")).to_be_visible()
        checked(page, f"the account's menu, {theme}")
        page.keyboard.press("Escape")
        expect(page.get_by_role("link", name="Preferences")).to_be_hidden()
        expect(page.locator(".menu > summary")).to_be_focused()
        page.keyboard.press("/")
        expect(page.locator("main .filters").get_by_role("searchbox")).to_be_focused()
        page.get_by_text("Save this view").click()
        expect(page.get_by_label("Name of the view")).to_be_visible()
        more = page.locator("summary:visible", has_text="More filters")
        if more.count():
            more.click()
        page.locator("[data-row] input[type=checkbox]").check()
        checked(page, f"filters, a view to be saved and a chosen row, {theme}")
        page.get_by_role("heading", level=1).click()
        page.keyboard.press("b")
        expect(page.get_by_role("button", name="Claim…")).to_be_focused()
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
        checked(page, f"the keys, {theme}")
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.keyboard.press("Control+k")
        expect(page.get_by_role("dialog", name="Search and go")).to_be_visible()
        checked(page, f"search and go, {theme}")
        page.goto(f"{web_server.url}/cases/{opened.case_id}/")
        for summary in ("Put it off…", "Attach evidence…", "Add a note…"):
            page.get_by_text(summary).click()
        for one in ("Confirm it happened", "Retry with the same key", "Abandon"):
            page.get_by_role("radio", name=one, exact=True).check()
            checked(page, f"{one}, with every form of the case open, {theme}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def checked(page: Page, what: str) -> None:
    found = Axe().run(page, options={"resultTypes": ["violations"]})
    assert found.violations_count == 0, f"{what}: {found.generate_report()}"
