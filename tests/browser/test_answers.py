"""When an answer is missing: what the page says, where the focus goes, and that what was typed stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, Route, expect

from console.models import Person, Role
from reconciliation.models import Decision
from reconciliation.work_models import CaseNote
from tests import cases
from tests.browser.seeding import PASSWORD, TEAM, people
from tests.browser.test_operator_path import REASON, fill_in, sign_in
from tests.cases import Opened
from tests.chromium import Faults
from tests.processes import Server

pytestmark = pytest.mark.browser

NOTE = "Phoned the provider: they look into it."


@pytest.fixture
def opened(page: Page, web_server: Server) -> Opened:
    """A case that waits for a decision, open in the operator's browser."""
    people()
    opened = cases.needs_decision(team=TEAM)
    sign_in(page, web_server)
    page.goto(f"{web_server.url}/cases/{opened.case_id}/")
    return opened


def recorded_and_lost(route: Route) -> None:
    """The request arrives and is carried out; its answer is lost on the way back."""
    route.fetch(max_redirects=0)
    route.abort()


@pytest.mark.timeout(180)
def test_a_decision_without_an_answer_says_what_is_known_and_counts_once_however_often_it_is_sent(
    page: Page, opened: Opened, faults: Faults
) -> None:
    fill_in(page, "Abandon", then="It ends here")
    said = page.locator("[data-unanswered]")

    page.route("**/decision/", lambda route: route.abort())
    page.get_by_role("button", name="Review decision…").click()
    expect(said).to_contain_text("No answer came, and nothing was recorded")
    expect(said.get_by_role("heading")).to_be_focused()
    expect(page.get_by_label("Reason", exact=True)).to_have_value(REASON)
    expect(said.get_by_role("button")).to_have_count(0)
    page.unroute("**/decision/")

    page.get_by_role("button", name="Review decision…").click()
    page.get_by_label("Your reason").fill("Said better in the review.")
    page.route("**/decision/", lambda route: route.fulfill(status=502, body="<h1>Bad Gateway</h1>"))
    page.get_by_role("button", name="Abandon the refund", exact=True).click()
    within = page.get_by_role("dialog").locator("[data-unanswered]")
    expect(within).to_contain_text("it is not known whether this was recorded")
    expect(within.get_by_role("heading")).to_be_focused()
    expect(page.get_by_label("Your reason")).to_have_value("Said better in the review.")
    assert "try again" not in within.inner_text().lower()
    assert not Decision.objects.exists()
    page.unroute("**/decision/")

    page.route("**/decision/", recorded_and_lost)
    within.get_by_role("button", name="Send the same form once more").click()
    expect(within).to_have_count(1)
    expect(within.get_by_role("heading")).to_be_focused()
    page.wait_for_function("document.querySelector('form[data-sending]') === null")
    assert Decision.objects.count() == 1
    page.unroute("**/decision/")

    within.get_by_role("button", name="Send the same form once more").click()
    expect(page.get_by_text("Recorded: given up.")).to_be_visible()
    assert Decision.objects.get().reason == "Said better in the review."
    faults.seen = [one for one in faults.seen if not one.startswith("502")]


@pytest.mark.timeout(180)
def test_a_lost_connection_and_an_ended_session_are_shown_and_lose_no_word(
    page: Page, opened: Opened, web_server: Server
) -> None:
    strip = page.locator("#lost")
    page.get_by_text("Add a note…").click()
    page.get_by_label("Note").fill(NOTE)
    page.context.set_offline(True)
    expect(page.locator("#live")).to_contain_text("Connection lost")
    expect(strip).to_contain_text("Nothing on this page is newer than")
    page.get_by_role("button", name="Add the note").click()
    expect(page.locator("#note [data-unanswered]")).to_contain_text("This was not sent")
    page.context.set_offline(False)
    expect(page.locator("#live")).to_contain_text("Live")
    expect(strip).to_have_text("")
    expect(page.get_by_label("Note")).to_have_value(NOTE)

    session = [one for one in page.context.cookies() if "session" in one["name"]]
    page.context.clear_cookies(name=session[0]["name"])
    page.get_by_role("button", name="Add the note").click()
    ended = page.get_by_role("heading", name="Your session has ended. Nothing was recorded.")
    expect(ended).to_be_focused()
    assert not CaseNote.objects.exists()
    page.get_by_label("Login").fill("operator")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="Nothing was recorded")).to_be_visible()
    expect(page.get_by_label("Note")).to_have_value(NOTE)
    assert not CaseNote.objects.exists(), "sent by a sign-in"
    page.get_by_role("button", name="Add the note").dblclick()
    expect(page.locator(".timeline")).to_contain_text(NOTE)
    assert CaseNote.objects.count() == 1


def test_parts_that_cannot_be_read_anew_are_told_with_the_time_since(
    page: Page, opened: Opened, faults: Faults
) -> None:
    page.clock.install()
    page.reload()
    page.route("**/desk/", lambda route: route.fulfill(status=500, body="<main id=main>broken</main>"))
    page.clock.run_for(16_000)
    expect(page.locator("#live")).to_contain_text("Updates stopped")
    expect(page.locator("#lost")).to_contain_text("Nothing on this page is newer than")
    expect(page.locator("#desk")).not_to_contain_text("broken")
    page.unroute("**/desk/")
    page.clock.run_for(16_000)
    expect(page.locator("#live")).to_contain_text("Live")
    expect(page.locator("#lost")).to_have_text("")
    faults.seen.clear()


# As `console.pages.problems` words a refusal whose page has no words of its own for it.
BUSY = """<!doctype html><main id="main"><article id="problem"><h1>Too many requests for now</h1>
<p class="lead">Thirty forms came from you within a minute. Nothing was changed and nothing was sent.</p>
</article></main>"""


@pytest.mark.timeout(180)
def test_a_refusal_of_every_status_has_its_answer_in_the_page_and_loses_no_word(
    page: Page, opened: Opened, faults: Faults
) -> None:
    said = page.locator("[data-unanswered]")
    reason = page.get_by_label("Reason", exact=True)
    fill_in(page, "Abandon", then="It ends here")
    for body, words in ((BUSY, "Thirty forms came from you"), ("slow down", "more to do than it takes")):
        with routed(page, busy(body)):
            page.get_by_role("button", name="Review decision…").click()
            expect(said).to_contain_text(words)
            expect(said).to_contain_text("Nothing was changed")
            expect(said.get_by_role("heading")).to_be_focused()
            expect(reason).to_have_value(REASON)

    cases.looked_up(opened, cases.mismatch(opened))
    page.reload()
    fill_in(page, "Abandon", then="It ends here")
    with routed(page, as_retry):
        page.get_by_role("button", name="Review decision…").click()
        locked = page.get_by_role("alert").filter(has_text="This can’t be recorded now.")
        expect(locked).to_contain_text("Sending again could only make a second one")
        expect(reason).to_have_value(REASON)

    Person.objects.filter(username="operator").update(roles=[str(Role.VIEWER)])
    page.get_by_role("radio", name="Abandon", exact=True).check()
    page.get_by_role("button", name="Review decision…").click()
    expect(page.get_by_role("alert").filter(has_text="decisions are for operators")).to_be_visible()
    expect(page.locator("main")).to_contain_text(REASON)
    assert not Decision.objects.exists()
    assert [one[:3] for one in faults.seen if one[:3] not in {"429", "423", "403"}] == []
    faults.seen.clear()


def busy(body: str) -> Callable[[Route], None]:
    """The console's own answer, or a proxy's, to one form too many."""
    return lambda route: route.fulfill(status=429, body=body, content_type="text/html")


def as_retry(route: Route) -> None:
    """Another action than the page offers, as a page that was left open would send it."""
    sent = route.request.post_data or ""
    route.continue_(post_data=sent.replace("action=abandon", "action=retry&executor=agent"))


@contextmanager
def routed(page: Page, handler: Callable[[Route], None]) -> Iterator[None]:
    """Answer for the server at the decision's address."""
    page.route("**/decision/", handler)
    try:
        yield
    finally:
        page.unroute("**/decision/")
