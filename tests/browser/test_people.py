"""People in Chromium: codes and a passkey, sessions that are ended, and accounts made by keyboard.

One session on a real web server and a real database; the invitation is taken up without a script.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value, yield_hotp_counters_from_time
from axe_playwright_python.sync_playwright import Axe
from django.core.cache import cache
from playwright.sync_api import Browser, Page, expect

from console.models import Person
from tests import chromium
from tests.browser.seeding import PASSWORD, people
from tests.chromium import Faults
from tests.processes import Server

pytestmark = pytest.mark.browser

WIDTHS = (390, 320)
REASON = "Agreed with their team lead today."
# A device that has a fingerprint reader and whose owner always agrees.
DEVICE = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


@pytest.fixture
def plain(browser: Browser, faults: Faults) -> Iterator[Page]:
    """A page without JavaScript."""
    context = browser.new_context(java_script_enabled=False, viewport={"width": 390, "height": 900})
    yield chromium.new_page(context)
    context.close()


@pytest.fixture
def elsewhere(browser: Browser, faults: Faults) -> Iterator[Page]:
    """A page of another browser."""
    context = browser.new_context()
    faults.watch(context)
    yield chromium.new_page(context)
    context.close()


def code_of(secret: str) -> str:
    # A code counts once: forget that it was used, for the next half minute would be long to wait for.
    cache.clear()
    return str(format_hotp_value(hotp_value(secret, next(iter(yield_hotp_counters_from_time())))))


def password(page: Page, base: str, name: str = "operator", word: str = PASSWORD) -> None:
    page.goto(f"{base}/login/")
    page.get_by_label("Login").fill(name)
    page.get_by_label("Password").fill(word)
    page.get_by_role("button", name="Sign in", exact=True).click()


def press(page: Page, role: str, name: str, *, key: str = "Enter") -> None:
    """Go to it with the keyboard and use it."""
    found = page.get_by_role(role, name=name, exact=True).first  # type: ignore[arg-type]
    found.focus()
    expect(found).to_be_focused()
    page.keyboard.press(key)


def looked_at(page: Page) -> None:
    """Nothing that axe finds in either theme, and no sideways scroll on a phone."""
    size = page.viewport_size
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        found = Axe().run(page, options={"resultTypes": ["violations"]})
        assert found.violations_count == 0, (page.url, theme, found.generate_report())
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, (page.url, width)
    assert size is not None
    page.set_viewport_size(size)


@pytest.mark.timeout(300)
def test_codes_and_a_passkey_let_in_and_a_session_that_is_ended_is_out(
    page: Page, elsewhere: Page, web_server: Server
) -> None:
    people()
    # Passkeys belong to a name: an address has none.
    base = web_server.url.replace("127.0.0.1", "localhost")
    device = page.context.new_cdp_session(page)
    device.send("WebAuthn.enable")
    device.send("WebAuthn.addVirtualAuthenticator", {"options": DEVICE})

    page.goto(f"{base}/login/")
    expect(page.get_by_role("button", name="Sign in with a passkey")).to_be_visible()
    looked_at(page)
    password(page, base)
    expect(page).to_have_url(f"{base}/")
    page.goto(f"{base}/account/")
    looked_at(page)

    page.get_by_role("link", name="Turn it on").click()
    page.get_by_label("Your password").fill(PASSWORD)
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_role("heading", name="Turn on codes of an authenticator app")).to_be_visible()
    looked_at(page)
    secret = page.locator(".sign-in__body .id").inner_text().replace(" ", "")
    page.get_by_role("textbox", name="Code").fill(code_of(secret))
    page.get_by_role("button", name="Turn on").click()
    expect(page.get_by_role("heading", name="Your recovery codes")).to_be_visible()
    assert page.locator(".codes li").count() == 10
    looked_at(page)

    page.goto(f"{base}/account/")
    page.get_by_role("link", name="Add a passkey").click()
    page.get_by_label("What to call it").fill("Work laptop")
    looked_at(page)
    page.get_by_role("button", name="Choose where to keep it").click()
    expect(page.get_by_role("link", name="Remove “Work laptop”")).to_be_visible()
    page.context.clear_cookies()

    password(page, base)
    expect(page.get_by_role("heading", name="Show that it is you")).to_be_visible()
    looked_at(page)
    page.get_by_role("button", name="Use a passkey instead").click()
    expect(page).to_have_url(f"{base}/")
    page.context.clear_cookies()
    page.goto(f"{base}/login/?next=/runs/")
    page.get_by_role("button", name="Sign in with a passkey").click()
    expect(page).to_have_url(f"{base}/runs/")
    # Whoever answers a request shows it again: by a finger alone, where others give password and code.
    page.goto(f"{base}/reauthentication/?next=/runs/")
    expect(page.get_by_label("Code of your authenticator app")).to_be_visible()
    looked_at(page)
    page.get_by_role("button", name="Use your passkey").click()
    expect(page.get_by_text("It is you. You can go on now.")).to_be_visible()

    password(elsewhere, web_server.url)
    elsewhere.get_by_role("textbox", name="Code").fill(code_of(secret))
    elsewhere.get_by_role("button", name="Sign in", exact=True).click()
    expect(elsewhere).to_have_url(f"{web_server.url}/")
    page.goto(f"{base}/account/sessions/")
    expect(page.get_by_text("This session", exact=True)).to_have_count(1)
    looked_at(page)
    page.get_by_role("button", name="End it").first.click()
    expect(page.get_by_text("That session is ended.")).to_be_visible()
    page.get_by_role("button", name="End all sessions but this one").click()
    elsewhere.goto(f"{web_server.url}/runs/")
    expect(elsewhere.get_by_role("heading", name="Sign in to Recourse")).to_be_visible()


@pytest.mark.timeout(300)
def test_an_administrator_makes_and_closes_an_account_by_keyboard(
    page: Page, plain: Page, web_server: Server
) -> None:
    people()
    base = web_server.url
    password(page, base, "administrator")
    page.goto(f"{base}/people/")
    looked_at(page)
    for name in ("Teams", "Tokens", "Flows", "People"):
        press(page, "link", name)
        expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
        if name != "People":
            looked_at(page)
    press(page, "link", "Make an account")
    looked_at(page)
    page.get_by_label("Login", exact=True).focus()
    page.keyboard.type("rita")
    page.locator("input[value=operator]").focus()
    page.keyboard.press("Space")
    page.get_by_label("Reason", exact=True).focus()
    page.keyboard.type("short")
    press(page, "button", "Make the account")
    expect(page.get_by_role("alert", name="Nothing was changed.")).to_be_visible()
    expect(page.get_by_label("Login", exact=True)).to_have_value("rita")
    looked_at(page)
    page.get_by_label("Reason", exact=True).fill(REASON)
    press(page, "button", "Make the account")
    link = page.locator("#once").input_value()
    looked_at(page)

    plain.goto(link)
    plain.get_by_label("New password", exact=True).fill("a password of her own")
    plain.get_by_label("New password once more").fill("a password of her own")
    plain.get_by_role("button", name="Set the password").click()
    expect(plain.get_by_text("Your password is set. Sign in with it.")).to_be_visible()
    expect(plain.get_by_role("button", name="Sign in with a passkey")).to_be_hidden()
    password(plain, base, "rita", "a password of her own")
    expect(plain).to_have_url(f"{base}/")
    assert plain.locator("html").evaluate("one => one.scrollWidth") <= 390

    page.goto(f"{base}/people/{Person.objects.get(username='rita').pk}/")
    looked_at(page)
    closing = page.locator("details:has(#closing-title)")
    closing.locator("summary").focus()
    page.keyboard.press("Enter")
    closing.get_by_label("Reason").focus()
    page.keyboard.type(REASON)
    press(page, "button", "Close the login")
    expect(page.get_by_text("The login is closed.")).to_be_visible()
    plain.goto(f"{base}/runs/")
    expect(plain.get_by_role("heading", name="Sign in to Recourse")).to_be_visible()
