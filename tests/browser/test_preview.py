"""Every page's look: accessible in both themes, nothing cut off on a phone, nothing against the policy.

The pages are the real templates with sample shapes, under the real middleware and its policy header.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser import preview, preview_shapes
from tests.chromium import Faults

pytestmark = pytest.mark.browser

# 320 px is 400 % of 1280: WCAG 1.4.10 wants no sideways scrolling there.
NARROW_WIDTHS = (320, 390, 768)


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    with preview.serve() as url:
        yield url


def choose(context: BrowserContext, base: str, theme: str) -> None:
    context.add_cookies([{"name": "recourse_theme", "value": theme, "url": base}])


@pytest.mark.parametrize("name", preview.PAGES)
def test_a_page_is_accessible_in_both_themes_and_fits_a_phone(
    page: Page, faults: Faults, base: str, name: str
) -> None:
    for theme, width in (("dark", 390), ("light", 1440)):
        choose(page.context, base, theme)
        page.set_viewport_size({"width": width, "height": 900})
        answer = page.goto(f"{base}/preview/{name}/")
        assert answer is not None
        assert "style-src 'self'" in answer.headers["content-security-policy"]
        if name != "500":  # made without the request, so that nothing in it can fail again
            expect(page.locator("html")).to_have_attribute("data-theme", theme)
        # What is folded away counts too.
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        found = Axe().run(page, options={"resultTypes": ["violations"]})
        assert found.violations_count == 0, found.generate_report()
    for width in NARROW_WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    if name == "500":
        faults.seen.clear()


def test_an_icon_of_the_sprite_is_drawn(page: Page, base: str) -> None:
    page.goto(f"{base}/preview/queue/")
    box = page.evaluate("document.querySelector('.brand use').getBBox().width")
    assert box > 0


@pytest.fixture
def plain(browser: Browser, faults: Faults) -> Iterator[Page]:
    """A page without JavaScript."""
    context = browser.new_context(java_script_enabled=False)
    yield context.new_page()
    context.close()


def test_a_decision_is_reviewed_without_a_script(plain: Page, base: str) -> None:
    plain.goto(f"{base}/preview/case/")
    expect(plain.get_by_role("button", name="Copy operation id")).to_have_count(0)
    expect(plain.get_by_role("radio", checked=True)).to_have_count(0)
    plain.get_by_label("Confirm it happened").check()
    expect(plain.get_by_text("The key is retired.")).to_be_visible()
    plain.get_by_label("Reason", exact=True).fill("The provider's record shows it, with our reference.")
    plain.get_by_role("button", name="Review decision…").click()
    expect(plain.get_by_role("heading", name="Confirm that the refund happened?")).to_be_visible()
    expect(plain.get_by_role("navigation", name="Breadcrumb")).to_be_visible()


def test_a_decision_is_reviewed_in_a_dialog_that_gives_back_text_and_focus(page: Page, base: str) -> None:
    page.goto(f"{base}/preview/case/")
    page.get_by_label("Confirm it happened").check()
    review = page.get_by_role("button", name="Review decision…")
    review.click()
    dialog = page.get_by_role("dialog", name="Confirm that the refund happened?")
    expect(dialog).to_be_visible()
    assert dialog.evaluate("node => node.contains(document.activeElement) && node.matches(':modal')")
    dialog.get_by_label("Your reason").fill("Written in the dialog, and not to be lost.")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.get_by_label("Reason", exact=True)).to_have_value(
        "Written in the dialog, and not to be lost."
    )
    expect(review).to_be_focused()


def test_after_a_conflict_the_banner_has_the_focus_and_the_reason_is_still_there(
    page: Page, base: str
) -> None:
    page.goto(f"{base}/preview/case_conflict/")
    expect(page.get_by_role("heading", name="Robin Vale decided first.")).to_be_focused()
    expect(page.get_by_label("Reason", exact=True)).to_have_value(preview_shapes.REASON)


def test_a_hostile_text_is_shown_and_does_nothing(page: Page, base: str) -> None:
    page.goto(f"{base}/preview/case/")
    page.get_by_text("Answer 68.8").click()
    body = page.get_by_role("region", name="Answer")
    expect(body).to_contain_text("<script>alert(1)</script> ⟨U+202E⟩⟨U+200B⟩")
    assert page.evaluate("document.querySelectorAll('pre script').length") == 0


def test_a_countdown_runs_and_says_when_it_has_run_out(page: Page, base: str) -> None:
    page.clock.install(time=preview_shapes.NOW)
    page.goto(f"{base}/preview/queue/")
    left = page.locator("#case_00000000000000000000000001 .window time")
    expect(left).to_have_text("2 min 40 s")
    page.clock.run_for(60_000)
    expect(left).to_have_text("1 min 40 s")
    page.clock.run_for(120_000)
    expect(left).to_have_text("19 s ago")


def test_rows_are_walked_and_opened_by_keys_that_can_be_turned_off(page: Page, base: str) -> None:
    page.goto(f"{base}/preview/queue/")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator("tr[data-cursor] .effect a")).to_have_text("Refund €89.90")
    page.keyboard.press("k")
    expect(page.locator("tr[data-cursor] .effect a")).to_have_text("Order 40 × filter cartridge FC-20")
    page.keyboard.press("/")
    expect(page.get_by_label("Operation id, idempotency key or run")).to_be_focused()
    page.keyboard.type("j?")
    expect(page.get_by_label("Operation id, idempotency key or run")).to_have_value("j?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_hidden()
    page.get_by_label("Operation id, idempotency key or run").blur()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_hidden()
    page.keyboard.press("Enter")
    page.wait_for_url("**/preview/case/")

    page.evaluate("document.body.dataset.shortcuts = 'off'")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_hidden()


def test_the_page_says_that_the_connection_is_lost_and_holds_a_decision(page: Page, base: str) -> None:
    page.goto(f"{base}/preview/case/")
    expect(page.locator("#live")).to_contain_text("Live")
    page.get_by_label("Confirm it happened").check()
    page.context.set_offline(True)
    expect(page.get_by_role("alert")).to_contain_text("Connection lost.")
    page.get_by_role("button", name="Review decision…").click()
    expect(page.locator("#dialog")).to_be_hidden()
    page.context.set_offline(False)
    expect(page.locator("#live")).to_contain_text("Live")
    page.get_by_role("button", name="Review decision…").click()
    expect(page.locator("#dialog")).to_be_visible()


def test_a_polled_part_changes_and_what_was_typed_stays(page: Page, base: str) -> None:
    page.clock.install(time=preview_shapes.NOW)
    page.goto(f"{base}/preview/case_looking/")
    page.get_by_text("Payload as sent").click()
    page.evaluate("document.getElementById('verdict-title').textContent = 'Old words'")
    page.clock.run_for(11_000)
    expect(page.get_by_role("heading", name="Not found, which proves nothing")).to_have_count(1)
    expect(page.get_by_role("heading", name="This case has changed since you opened it.")).to_be_visible()
    expect(page.get_by_text('"amount":124000')).to_be_visible()


def test_a_theme_is_kept_by_a_form_and_without_a_script(plain: Page, base: str) -> None:
    plain.goto(f"{base}/preview/preferences/")
    plain.get_by_role("radio", name="Dark").check()
    plain.get_by_role("button", name="Save theme").click()
    plain.goto(f"{base}/preview/queue/")
    expect(plain.locator("html")).to_have_attribute("data-theme", "dark")
    assert plain.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(13, 17, 23)"


def test_the_case_on_paper_has_no_form_and_no_buttons(page: Page, base: str) -> None:
    page.goto(f"{base}/preview/case_resolved/")
    page.emulate_media(media="print")
    expect(page.get_by_text("Printed 29 Nov 2026, 18:42:07 UTC by Sam Lane.")).to_be_visible()
    expect(page.get_by_role("banner")).to_be_hidden()
    expect(page.get_by_role("button")).to_have_count(0)
    expect(page.get_by_text(preview_shapes.REASON)).to_be_visible()
