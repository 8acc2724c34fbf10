"""The browser tests notice what a person would not: violations, script errors, answers of 500."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, Route

from tests.chromium import Faults

pytestmark = pytest.mark.browser

POLICY = "default-src 'self'; script-src 'self'"


@pytest.mark.parametrize(
    ("html", "fault"),
    [
        ("<body onload='document.title = 1'>", "policy: script-src-attr inline"),
        ("<p style='color: red'>x</p>", "policy: style-src-attr inline"),
        ("<script src='/broken.js'></script>", "error: Uncaught Error: broken"),
        ("<img src='/missing.png'>", "500 http://recourse.test/missing.png"),
    ],
)
def test_a_fault_of_a_page_is_seen(page: Page, faults: Faults, html: str, fault: str) -> None:
    def answer(route: Route) -> None:
        path = route.request.url.partition("recourse.test")[2]
        if path == "/broken.js":
            route.fulfill(body="throw new Error('broken')", content_type="text/javascript")
        elif path == "/":
            route.fulfill(
                body=f"<!doctype html><link rel=icon href=/icon.svg>{html}",
                content_type="text/html",
                headers={"Content-Security-Policy": POLICY},
            )
        else:
            route.fulfill(status=500 if path == "/missing.png" else 204)

    page.route("http://recourse.test/**", answer)
    page.goto("http://recourse.test/")
    page.wait_for_load_state("networkidle")
    assert faults.seen == [fault]
    faults.seen.clear()
