"""An operator's path in Chromium: find a case, read its evidence, decide, and read who did what and why.

A real web server on a real database; each path also without a script.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect

from console.models import Person, Role
from reconciliation.models import Decision
from runs.models import Grant
from tests import cases, chromium
from tests.browser.screenshots import pages, pages_of_others
from tests.browser.seeding import PASSWORD, TEAM, Seeded, people, seed
from tests.cases import Effect, Opened
from tests.chromium import Faults
from tests.many import more_cases
from tests.processes import Server

pytestmark = pytest.mark.browser

REASON = "Seen in the provider's own list, with our key."
WIDTH_OF_A_PHONE, WIDTH_OF_A_SMALL_PHONE = 390, 320
# In px, of small text.
HEIGHT_OF_TWO_LINES = 30


@pytest.fixture
def plain(browser: Browser, faults: Faults) -> Iterator[Page]:
    """A page without JavaScript."""
    context = browser.new_context(java_script_enabled=False, viewport={"width": 1440, "height": 900})
    yield chromium.new_page(context)
    context.close()


def sign_in(page: Page, server: Server, name: str = "operator") -> None:
    page.goto(f"{server.url}/login/")
    page.get_by_label("Login").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()
    # Each role begins on its own page.
    expect(page.get_by_role("navigation", name="Primary")).to_be_visible()


def a_refund(number: int) -> Opened:
    return cases.needs_decision(
        Effect(minor=10_000 * number, args={"payment": f"pi_{number}"}),
        team=TEAM,
        external_id=f"ORD-{number}",
    )


def open_from_the_queue(page: Page, server: Server, opened: Opened) -> None:
    """Find the case in the queue by its operation's id and open it."""
    page.goto(f"{server.url}/")
    page.locator("main .filters").get_by_role("searchbox").fill(opened.operation.pk)
    page.get_by_role("button", name="Filter").click()
    row = page.locator("[data-row]")
    expect(row).to_have_count(1)
    row.get_by_role("link").click()
    expect(page).to_have_url(f"{server.url}/cases/{opened.case_id}/")


def read_the_evidence(page: Page) -> None:
    """Open what the lookup's answer held."""
    evidence = page.locator("#evidence")
    expect(evidence.get_by_text("Lookup: not found, no proof")).to_be_visible()
    evidence.get_by_text("Answer’s head").first.click()
    expect(evidence.get_by_text("Status 200").first).to_be_visible()


def fill_in(page: Page, action: str, **choices: str) -> None:
    page.get_by_role("radio", name=action, exact=True).check()
    for label in choices.values():
        page.get_by_label(label).check()
    page.get_by_label("Reason code").select_option(label="Seen in the provider's own records")
    page.get_by_label("Reason", exact=True).fill(REASON)


def record(page: Page, button: str) -> None:
    """Review, look at the consequences, and record."""
    page.get_by_role("button", name="Review decision…").click()
    expect(page.get_by_role("heading", name=re.compile("^If you"))).to_be_visible()
    assert not Decision.objects.filter(reason=REASON, actor_name="").exists()
    page.get_by_role("button", name=button, exact=True).click()


def the_operators_path(page: Page, server: Server) -> None:
    """Confirm one, retry one, abandon one, and find all three in the history."""
    confirmed, retried, abandoned = (a_refund(number) for number in (1, 2, 3))
    sign_in(page, server)

    open_from_the_queue(page, server, confirmed)
    expect(page.get_by_role("heading", name="Did the refund of €100.00 happen?")).to_be_visible()
    read_the_evidence(page)
    expect(page.get_by_role("radio", checked=True)).to_have_count(0)
    fill_in(page, "Confirm it happened")
    page.get_by_label("Provider’s record, as JSON").fill(json.dumps(cases.record_of(confirmed, id="rfd_1")))
    record(page, "Confirm it happened")
    expect(page.get_by_text("Recorded: it happened.")).to_be_visible()
    assert confirmed.operation.state == "confirmed"
    assert confirmed.operation.receipt.reference == "rfd_1"

    page.get_by_role("link", name="Next case").click()
    expect(page).to_have_url(f"{server.url}/cases/{retried.case_id}/#question")
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    fill_in(page, "Retry with the same key", executor="The agent’s worker")
    record(page, "Retry with the same key")
    expect(page.get_by_text("Recorded: retry with the same key.")).to_be_visible()
    expect(page.get_by_role("heading", name="The retry, step by step")).to_be_visible()
    cases.looked_up(retried, cases.not_found())
    assert Grant.objects.get(operation=retried.operation).state == "open"
    page.reload()
    expect(page.get_by_role("heading", name="One more request is permitted")).to_be_visible()

    open_from_the_queue(page, server, abandoned)
    fill_in(page, "Abandon", then="It goes on without the effect")
    record(page, "Abandon the refund")
    expect(page.get_by_text("Recorded: given up.")).to_be_visible()
    assert abandoned.operation.state == "abandoned"

    page.get_by_role("navigation", name="Primary").get_by_role("link", name="Effects").click()
    page.get_by_label("Event").select_option(label="Decisions")
    page.get_by_role("button", name="Filter").click()
    rows = page.locator("#entries tbody tr[data-row]")
    expect(rows).to_have_count(3)
    for row, words in zip(
        range(3), ("Decided: abandon", "Decided: retry with the same key", "Decided: confirm"), strict=True
    ):
        expect(rows.nth(row)).to_contain_text(words)
        expect(rows.nth(row)).to_contain_text(REASON)
        expect(rows.nth(row)).to_contain_text("Sam Lane")
    rows.nth(0).locator("a.expander").click()
    detail = page.locator("tr.detail")
    expect(detail).to_contain_text("Sam Lane")
    expect(detail).to_contain_text("UTC")
    expect(detail).to_contain_text(REASON)


def test_an_operator_confirms_retries_and_abandons_and_the_history_says_who_when_and_why(
    page: Page, web_server: Server
) -> None:
    people()
    the_operators_path(page, web_server)


def test_the_same_path_works_without_a_script(plain: Page, web_server: Server) -> None:
    people()
    the_operators_path(plain, web_server)


@pytest.mark.parametrize("with_script", [True, False])
def test_whoever_keeps_looking_keeps_the_form(
    page: Page, plain: Page, web_server: Server, with_script: bool
) -> None:
    people()
    opened = a_refund(1)
    used = page if with_script else plain
    sign_in(used, web_server)
    used.goto(f"{web_server.url}/cases/{opened.case_id}/")
    fill_in(used, "Abandon", then="It ends here")
    used.get_by_role("button", name="Review decision…").click()
    used.get_by_label("Your reason").fill("Said better in the review.")
    used.get_by_role("button", name="Keep looking").click()
    expect(used.get_by_role("dialog")).to_have_count(0)
    expect(used.get_by_label("Reason", exact=True)).to_have_value("Said better in the review.")
    expect(used.get_by_role("radio", name="Abandon", exact=True)).to_be_checked()
    expect(used.get_by_label("It ends here")).to_be_checked()
    assert not Decision.objects.exists()


def test_more_rows_are_loaded_under_those_that_are_shown(page: Page, web_server: Server) -> None:
    people()
    more_cases(a_refund(1), 60)
    sign_in(page, web_server)
    expect(page.locator("[data-row]")).to_have_count(50)
    expect(page.get_by_role("navigation", name="Primary")).to_contain_text("61 open")
    page.get_by_role("link", name="Load more").press("Enter")
    expect(page.locator("[data-row]")).to_have_count(61)
    expect(page.locator("[data-row]").nth(50).get_by_role("link")).to_be_focused()
    expect(page.get_by_role("link", name="Load more")).to_have_count(0)


# --- Several people -------------------------------------------------------------------------------------


@pytest.fixture
def second(browser: Browser, faults: Faults) -> Iterator[Page]:
    """Somebody else's browser."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    faults.watch(context)
    yield chromium.new_page(context)
    context.close()


def another_operator() -> Person:
    person = Person.objects.create_user(
        "robin", password=PASSWORD, first_name="Robin", last_name="Oak", roles=[Role.OPERATOR]
    )
    person.teams.add(TEAM)
    return person


@pytest.mark.parametrize("step", ["review", "record"])
def test_the_second_to_decide_is_told_who_was_first_and_keeps_the_typed_reason(
    page: Page, second: Page, web_server: Server, step: str
) -> None:
    people()
    another_operator()
    opened = a_refund(1)
    sign_in(page, web_server)
    sign_in(second, web_server, "robin")
    for one in (page, second):
        one.goto(f"{web_server.url}/cases/{opened.case_id}/")
    fill_in(second, "Retry with the same key", executor="The agent’s worker")
    typed = "The key is safe for hours, so one more try."
    second.get_by_label("Reason", exact=True).fill(typed)
    if step == "record":
        second.get_by_role("button", name="Review decision…").click()
        expect(second.get_by_role("dialog")).to_be_visible()
    fill_in(page, "Abandon", then="It ends here")
    record(page, "Abandon the refund")
    expect(page.get_by_text("Recorded: given up.")).to_be_visible()
    if step == "record":
        second.get_by_role("button", name="Retry with the same key", exact=True).click()
    else:
        second.get_by_role("button", name="Review decision…").click()
    banner = second.get_by_role("alert").filter(has_text="decided first")
    expect(banner).to_contain_text("Sam Lane decided first. Your decision was not recorded.")
    expect(banner).to_contain_text("gave it up")
    expect(banner).to_contain_text(REASON)
    expect(banner.get_by_role("heading")).to_be_focused()
    expect(second.get_by_label("Your reason")).to_have_value(typed)
    assert Decision.objects.count() == 1


def test_new_evidence_under_the_reader_is_told_and_swaps_nothing_that_is_typed(
    page: Page, web_server: Server
) -> None:
    people()
    opened = a_refund(1)
    sign_in(page, web_server)
    # The page asks every 10 s; the clock is moved instead of waited for.
    page.clock.install()
    page.goto(f"{web_server.url}/cases/{opened.case_id}/")
    fill_in(page, "Abandon", then="It ends here")
    cases.looked_up(opened, cases.candidate(opened))
    page.clock.run_for(11_000)
    expect(page.locator("#news")).to_contain_text("This case has changed since you opened it.")
    expect(page.get_by_label("Reason", exact=True)).to_have_value(REASON)
    expect(page.get_by_role("radio", name="Abandon", exact=True)).to_be_checked()
    page.get_by_role("button", name="Review decision…").click()
    expect(page.get_by_role("alert").filter(has_text="changed while you were deciding")).to_be_visible()
    expect(page.get_by_label("Reason", exact=True)).to_have_value(REASON)
    expect(page.get_by_role("radio", name="Abandon", exact=True)).to_be_checked()


def test_the_verdict_of_a_case_under_way_comes_by_itself(page: Page, web_server: Server) -> None:
    people()
    opened = cases.open_case(team=TEAM)
    sign_in(page, web_server)
    page.clock.install()
    page.goto(f"{web_server.url}/cases/{opened.case_id}/")
    expect(page.get_by_role("heading", name="Not looked up yet")).to_be_visible()
    page.get_by_label("Reason", exact=True).fill(REASON)
    cases.looked_up(opened, cases.found(opened))
    page.clock.run_for(6_000)
    expect(page.get_by_role("heading", name="It happened")).to_be_visible()
    expect(page.get_by_label("Reason", exact=True)).to_have_value(REASON)


def test_what_is_missing_is_said_beside_the_form_with_the_rest_kept(page: Page, web_server: Server) -> None:
    people()
    opened = a_refund(1)
    sign_in(page, web_server)
    page.goto(f"{web_server.url}/cases/{opened.case_id}/")
    page.get_by_role("radio", name="Abandon", exact=True).check()
    page.get_by_label("Reason", exact=True).fill("Too short")
    page.get_by_role("button", name="Review decision…").click()
    summary = page.locator(".errsum")
    expect(summary).to_contain_text("3 things to fix")
    expect(summary).to_be_focused()
    expect(page.get_by_label("Reason", exact=True)).to_have_value("Too short")
    expect(page.get_by_role("radio", name="Abandon", exact=True)).to_be_checked()


def test_a_reader_who_may_not_decide_sees_why_and_no_form(page: Page, web_server: Server) -> None:
    people()
    opened = a_refund(1)
    for name in ("auditor", "approver", "administrator", "viewer"):
        sign_in(page, web_server, name)
        page.goto(f"{web_server.url}/cases/{opened.case_id}/")
        expect(page.locator("#decision")).to_contain_text("decisions are for operators")
        expect(page.locator("#decision form")).to_have_count(0)
        expect(page.locator("#decision").get_by_role("radio")).to_have_count(0)
        page.context.clear_cookies()


# --- Every page -----------------------------------------------------------------------------------------


@pytest.fixture
def seeded(sandbox: Server, web_server: Server) -> Seeded:
    return seed()


def choose(context: BrowserContext, server: Server, theme: str) -> None:
    context.add_cookies([{"name": "recourse_theme", "value": theme, "url": server.url}])


def each_is_accessible(page: Page, server: Server, addresses: dict[str, str]) -> None:
    """Axe finds nothing in either theme, and nothing scrolls sideways on phones."""
    for name, address in addresses.items():
        for theme, width in (("light", 1440), ("dark", WIDTH_OF_A_PHONE)):
            choose(page.context, server, theme)
            page.set_viewport_size({"width": width, "height": 900})
            answer = page.goto(server.url + address)
            assert answer is not None
            assert answer.status == 200, (name, answer.status)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
            for crumbs in page.locator(".crumbs").all() if width > WIDTH_OF_A_PHONE else ():
                height = crumbs.evaluate("one => one.getBoundingClientRect().height")
                assert height < HEIGHT_OF_TWO_LINES, (name, "its way there takes more than a line")
            found = Axe().run(page, options={"resultTypes": ["violations"]})
            assert found.violations_count == 0, f"{name}, {theme}: {found.generate_report()}"
        page.set_viewport_size({"width": WIDTH_OF_A_SMALL_PHONE, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= WIDTH_OF_A_SMALL_PHONE, name


@pytest.mark.timeout(800)
def test_every_page_is_accessible_in_both_themes_and_fits_a_phone(
    page: Page, web_server: Server, seeded: Seeded
) -> None:
    sign_in(page, web_server)
    each_is_accessible(page, web_server, pages(seeded))


@pytest.mark.timeout(800)
def test_so_is_every_page_that_is_of_another_role(page: Page, web_server: Server, seeded: Seeded) -> None:
    each_is_accessible(page, web_server, {"login": "/login/"})
    for login, addresses in pages_of_others(seeded).items():
        page.context.clear_cookies()
        sign_in(page, web_server, login)
        each_is_accessible(page, web_server, addresses)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_review_and_the_conflict_are_accessible(
    page: Page, web_server: Server, theme: str, checked: Callable[[Page], None]
) -> None:
    people()
    opened = a_refund(1)
    choose(page.context, web_server, theme)
    sign_in(page, web_server)
    page.goto(f"{web_server.url}/cases/{opened.case_id}/")
    fill_in(page, "Abandon", then="It ends here")
    page.get_by_role("button", name="Review decision…").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    checked(page)
    cases.looked_up(opened, cases.candidate(opened))
    page.get_by_role("button", name="Abandon the refund").click()
    expect(page.get_by_role("alert").filter(has_text="changed while you were deciding")).to_be_visible()
    checked(page)


@pytest.fixture
def checked() -> Callable[[Page], None]:
    def check(page: Page) -> None:
        found = Axe().run(page, options={"resultTypes": ["violations"]})
        assert found.violations_count == 0, found.generate_report()

    return check
