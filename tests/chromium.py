"""A real Chromium for browser tests: which one, how it is started, and what a page did that it shouldn't."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

CANDIDATES = ("/usr/bin/chromium", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# No calls home: on a closed network they are refused by the hundred and slow every page.
ARGUMENTS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# The page tells us itself; the console's messages differ from one Chromium to the next.
REPORT_VIOLATIONS = """
    document.addEventListener("securitypolicyviolation", event =>
        window.recourseReport("policy: " + event.effectiveDirective + " " + event.blockedURI));
    window.addEventListener("error", event => window.recourseReport("error: " + event.message));
    window.addEventListener("unhandledrejection", event => window.recourseReport("error: " + event.reason));
"""


class NoChromium(Exception):
    """There is no Chromium to test with; the message says how to get one."""


@dataclass
class Faults:
    """Script errors and policy violations of every page of one test, and answers of 500 and above."""

    seen: list[str] = field(default_factory=list)

    def watch(self, context: BrowserContext) -> None:
        context.expose_binding("recourseReport", lambda _source, text: self.seen.append(str(text)))
        context.add_init_script(REPORT_VIOLATIONS)
        context.on(
            "response",
            lambda answer: (
                self.seen.append(f"{answer.status} {answer.url}") if answer.status >= 500 else None
            ),
        )


def executable() -> str:
    """The Chromium to use: RECOURSE_CHROMIUM, else Debian's, else one on PATH, else Playwright's own."""
    chosen = os.environ.get("RECOURSE_CHROMIUM", "")
    if chosen:
        if not Path(chosen).is_file():
            raise NoChromium(f"RECOURSE_CHROMIUM names {chosen}, and there is no such file.")
        return chosen
    for candidate in CANDIDATES:
        found = shutil.which(candidate)
        if found:
            return found
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    if Path(own).is_file():
        return own
    raise NoChromium(
        "The browser tests need Chromium and found none. Install it (Debian: apt-get install chromium; "
        "elsewhere: .venv/bin/playwright install chromium) or name one in RECOURSE_CHROMIUM."
    )


@contextmanager
def launched(path: str) -> Iterator[Browser]:
    """A headless Chromium of its own, closed at the end."""
    arguments = [*ARGUMENTS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


def new_page(context: BrowserContext) -> Page:
    """A page that fails a step after 10 s: everything is on this machine."""
    context.set_default_timeout(10_000)
    return context.new_page()
