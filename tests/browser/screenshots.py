"""`make screenshots`: pictures of the console from a seeded real database, in build/screenshots/*.png.

Starts an embedded PostgreSQL of its own, migrates it, fills it through the domain and drives Chromium over
the real pages. `python -m tests.browser.screenshots FOLDER` writes elsewhere.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.seeding import Seeded
    from tests.cases import Opened

ROOT = Path(__file__).resolve().parents[2]
WIDTHS = (1440, 390)
THEMES = ("light", "dark")


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


def prepare(cleanup: ExitStack) -> None:
    """Start a database, migrate it, and set Django up on it."""
    from console.embedded import EmbeddedServers

    state = Path(tempfile.mkdtemp(prefix="recourse-screenshots-"))
    cleanup.callback(shutil.rmtree, state, ignore_errors=True)
    servers = cleanup.enter_context(EmbeddedServers(state, broker=False))
    if not servers.home.servers.is_relative_to(state):
        cleanup.callback(shutil.rmtree, servers.home.servers, ignore_errors=True)
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "console.settings",
        "DATABASE_URL": servers.database_url,
        "DATABASE_OWNER_URL": servers.owner_url,
        "RECOURSE_SECRET_KEY": secrets.token_urlsafe(40),
        "RECOURSE_KEY_SECRET": secrets.token_urlsafe(40),
        "RECOURSE_SECURE_COOKIES": "0",
        "RECOURSE_LOG_LEVEL": "ERROR",
        # Never reached: nothing is sent, and no task is run. It lets the accounts count as configured.
        "SANDBOX_URL": "http://127.0.0.1:9",
        # Playwright's event loop lives in the thread that the seeding runs in.
        "DJANGO_ALLOW_ASYNC_UNSAFE": "1",
    }
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    from django.conf import settings
    from django.db import connections

    connections["default"].close()
    settings.RECOURSE_DATABASE_OWNER_URL = ""


@contextmanager
def serve() -> Iterator[str]:
    """Serve the console on a free port of the loopback address; gives the base URL."""
    from django.core.wsgi import get_wsgi_application

    server = make_server("127.0.0.1", 0, get_wsgi_application(), server_class=_Server, handler_class=_Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def operation_of(opened: Opened) -> str:
    """The operation that a case is about, by its id."""
    return opened.claimed.operations[0].pk if opened.claimed.operations else "op_1"


def pages(seeded: Seeded) -> dict[str, str]:
    """Name of each picture → its address."""
    case = "/cases/{}/"
    return {
        "queue": "/",
        "queue-looking-up": "/?view=looking_up",
        "queue-empty": "/?q=op_nothing",
        "case": case.format(seeded.mismatch.case_id),
        "case-not-found": case.format(seeded.not_found.case_id),
        "case-no-lookup": case.format(seeded.no_lookup.case_id),
        "case-key-closed": case.format(seeded.closed_key.case_id),
        "case-several": case.format(seeded.several.case_id),
        "case-alike": case.format(seeded.candidate.case_id),
        "case-looking-up": case.format(seeded.looking.case_id),
        "case-retrying": case.format(seeded.retrying.case_id),
        "case-abandoned": case.format(seeded.abandoned.case_id),
        "case-conflict": case.format(seeded.conflict.case_id),
        "case-body": case.format(seeded.mismatch.case_id) + "bodies/payload/",
        "decision": case.format(seeded.not_found.case_id) + "decision/",
        "snooze": case.format(seeded.not_found.case_id) + "snooze/",
        "lists": "/bulk/",
        **{f"list-{name}": f"/bulk/{job_id}/" for name, job_id in seeded.lists.items()},
        "runs": "/runs/",
        "run": f"/runs/{seeded.steps.pk}/",
        "run-abandoned": f"/runs/{seeded.conflict.run.pk}/",
        "effects": "/effects/",
        "effects-decisions": "/effects/?action=decisions",
        "effects-exception": "/effects/?show=quick",
        "effect": f"/effects/{operation_of(seeded.abandoned)}/",
        "search": "/search/?q=ORD-77041",
        "search-nothing": "/search/?q=op_nothing",
        "providers": "/providers/",
        "provider": "/providers/sandbox-payments/",
        "provider-tightened": "/providers/sandbox-mail/",
        "provider-keyless": "/providers/sandbox-courier/",
        "provider-shipped": "/providers/stripe-refunds/",
        "provider-new": "/providers/new/",
        "environment": "/environment/",
        "preferences": "/preferences/",
    }


def sign_in(page: Page, base: str, name: str = "operator") -> None:
    from tests.browser.seeding import PASSWORD

    page.goto(f"{base}/login/")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()


def review(page: Page, base: str, seeded: Seeded) -> None:
    """Open the review dialog of an abandonment; nothing is recorded."""
    page.goto(f"{base}/cases/{seeded.not_found.case_id}/")
    page.get_by_role("radio", name="Abandon").check()
    page.get_by_label("It goes on without").check()
    page.get_by_label("Reason code").select_option("no_longer_needed")
    page.get_by_label("Reason", exact=True).fill("The customer was told by phone.")
    page.get_by_role("button", name="Review decision").click()
    page.get_by_role("dialog").wait_for()


def try_a_lookup(page: Page, base: str, seeded: Seeded) -> None:
    """Ask a provider that can't be reached: the answer says so, and what would follow."""
    page.goto(f"{base}/providers/sandbox-mail/")
    page.get_by_label("Operation id or key").fill(seeded.not_found.operation.pk)
    page.get_by_role("button", name="Ask the provider once").click()
    page.locator("#trial-result").wait_for()


def open_tightening(page: Page, base: str) -> None:
    """Open the administrator's form."""
    page.context.clear_cookies()
    sign_in(page, base, "administrator")
    page.goto(f"{base}/providers/sandbox-payments/")
    page.get_by_text("Tighten the contract…").click()


def take(folder: Path, names: list[str]) -> None:
    """Take every picture at both widths, in both themes."""
    with ExitStack() as cleanup:
        prepare(cleanup)
        from tests import chromium
        from tests.browser.seeding import seed

        seeded = seed()
        folder.mkdir(parents=True, exist_ok=True)
        base = cleanup.enter_context(serve())
        browser = cleanup.enter_context(chromium.launched(chromium.executable()))
        addresses = {name: address for name, address in pages(seeded).items() if not names or name in names}
        for width in WIDTHS:
            for theme in THEMES:
                context = browser.new_context(
                    viewport={"width": width, "height": 1000},
                    color_scheme=theme,  # type: ignore[arg-type]
                )
                page = chromium.new_page(context)
                sign_in(page, base)
                for name, address in addresses.items():
                    page.goto(base + address)
                    page.wait_for_timeout(150)
                    page.screenshot(path=folder / f"{name}-{theme}-{width}.png", full_page=True)
                if not names or "review" in names:
                    review(page, base, seeded)
                    page.screenshot(path=folder / f"review-{theme}-{width}.png")
                if not names or "provider-trial" in names:
                    try_a_lookup(page, base, seeded)
                    page.screenshot(path=folder / f"provider-trial-{theme}-{width}.png", full_page=True)
                if not names or "provider-tighten" in names:
                    open_tightening(page, base)
                    page.screenshot(path=folder / f"provider-tighten-{theme}-{width}.png", full_page=True)
                context.close()
        print(f"{len(list(folder.glob('*.png')))} pictures in {folder}")


if __name__ == "__main__":
    chosen = sys.argv[1:]
    target = Path(chosen[0]) if chosen else ROOT / "build" / "screenshots"
    take(target, chosen[1:])
