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
    from collections.abc import Callable

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
        "case-absence": case.format(seeded.absentable.case_id),
        "case-absence-awaited": case.format(seeded.awaited.case_id),
        "case-body": case.format(seeded.mismatch.case_id) + "bodies/payload/",
        "decision": case.format(seeded.not_found.case_id) + "decision/",
        "lists": "/bulk/",
        **{f"list-{name}": f"/bulk/{job_id}/" for name, job_id in seeded.lists.items()},
        "runs": "/runs/",
        "run": f"/runs/{seeded.steps.pk}/",
        "run-abandoned": f"/runs/{seeded.conflict.claimed.run.pk}/",
        "effects": "/effects/",
        "effects-decisions": "/effects/?action=decisions",
        "effects-exception": "/effects/?show=quick",
        "effect": f"/effects/{operation_of(seeded.abandoned)}/",
        # A part of several: a whole id leads on to what it is.
        "search": "/search/?q=ORD-77",
        "search-nothing": "/search/?q=op_nothing",
        "providers": "/providers/",
        "provider": "/providers/sandbox-payments/",
        "provider-tightened": "/providers/sandbox-mail/",
        "provider-keyless": "/providers/sandbox-courier/",
        "provider-shipped": "/providers/stripe-refunds/",
        "provider-new": "/providers/new/",
        "environment": "/environment/",
        "notifications-own": "/notifications/",
        "preferences": "/preferences/",
        "account": "/account/",
        "account-password": "/account/password/",
        "account-codes": "/account/codes/on/",
        "account-passkey": "/account/passkeys/new/",
        "account-sessions": "/account/sessions/",
    }


def pages_of_others(seeded: Seeded) -> dict[str, dict[str, str]]:
    """What looks otherwise for another role, or is theirs alone: login → name of each picture → address."""
    case = f"/cases/{seeded.not_found.case_id}/"
    return {
        "administrator": {
            "provider-declare": "/providers/new/",
            "environment-administrator": "/environment/",
            "people": "/people/",
            "person": "/people/1/",
            "person-new": "/people/new/",
            "teams": "/teams/",
            "account-access": "/account-access/",
            "account-access-one": "/account-access/sandbox-payments/",
            "flows": "/flows/",
            "flow": f"/flows/{seeded.steps.flow_id}/",
            "tokens": "/tokens/",
            "notifications": "/notifications/",
            "notification-settings": "/notifications/settings/",
        },
        "approver": {
            "reauthentication": "/reauthentication/",
            "approvals": "/approvals/",
            "approvals-own": "/approvals/?view=own",
            "approvals-decided": "/approvals/?view=decided",
            "approvals-empty": "/approvals/?kind=abandonment",
            "approval": f"/approvals/{seeded.requests.get('budget', 'apr_1')}/",
            **{f"approval-{name}": f"/approvals/{pk}/" for name, pk in seeded.requests.items()},
        },
        "auditor": {"case-report": f"{case}report/", "exports": "/effects/exports/"},
        "viewer": {"case-viewer": case, "queue-viewer": "/"},
    }


# Who it is, is asked before these, once in five minutes.
ASKED_BEFORE = {"account-codes", "account-passkey"}
SIGNED_OUT = {"login": "/login/", "login-closed": "/login/closed/"}
# GET addresses of the console without a picture, and why.
NOT_PICTURED = {
    "live": "it answers without a page: whether the console is there",
    "queue_news": "a piece of the queue, which is pictured",
    "approval_news": "a piece of the list of requests, which is pictured",
    "case_desk": "a piece of a case, which is pictured",
    "case_live": "a piece of a case, which is pictured",
    "case_news": "a piece of a case, which is pictured",
    "bulk_progress": "a piece of a list of cases, which is pictured",
    "case_body_file": "a file",
    "case_attachment": "a file",
    "bulk_csv": "a file",
    "export_file": "a file",
    "export_manifest": "a file",
    "export": "a part of the list of exports, which is pictured; it takes an auditor who asked for one",
    "account_login": "another name of the sign-in, which is pictured",
    "mfa_index": "another name of one's own account, which is pictured",
    "mfa_authenticate": "shown between the two steps of a sign-in alone",
    "mfa_login_webauthn": "it answers a script",
    "second_step_left": "it takes a form alone",
    "sign_in_elsewhere": "it takes a form alone, and leads to the identity provider",
    "openid_connect_callback": "the identity provider leads to it, and it leads on",
    "socialaccount_login_cancelled": "the identity provider leads to it, and it leads on",
    "invitation": "its address is known to whoever was invited alone",
    "mfa_deactivate_totp": "shown where codes are on",
    "mfa_view_recovery_codes": "shown where codes are on",
    "mfa_generate_recovery_codes": "shown where codes are on",
    "mfa_remove_webauthn": "shown where there is a passkey",
    "account_reauthenticate": "the same page as the one that asks again, which is pictured",
    "mfa_reauthenticate": "shown where codes are on",
    "mfa_reauthenticate_webauthn": "it answers a script",
    "session_end": "it takes a form alone",
    "session_end_others": "it takes a form alone",
    "effect_entry": "it leads to an operation’s history, which is pictured",
    "effect_known": "its decision is made by the seeding: pictured among what is opened",
}


def sign_in(page: Page, base: str, name: str = "operator") -> None:
    from tests.browser.seeding import PASSWORD

    page.goto(f"{base}/login/")
    page.get_by_label("Login").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()


def show_again(page: Page) -> None:
    """Give the password where the page asks for it."""
    from tests.browser.seeding import PASSWORD

    field = page.get_by_label("Your password")
    if field.is_visible():
        field.fill(PASSWORD)
        page.get_by_role("button", name="Go on").click()


def review(page: Page, base: str, seeded: Seeded) -> None:
    """Open the review dialog of an abandonment; nothing is recorded."""
    page.goto(f"{base}/cases/{seeded.not_found.case_id}/")
    page.get_by_role("radio", name="Abandon").check()
    page.get_by_label("It goes on without").check()
    page.get_by_label("Reason code").select_option("no_longer_needed")
    page.get_by_label("Reason", exact=True).fill("The customer was told by phone.")
    page.get_by_role("button", name="Review decision").click()
    page.get_by_role("dialog").wait_for()


def review_absence(page: Page, base: str, seeded: Seeded) -> None:
    """Open the review dialog of a request to make an effect absent; nothing is recorded."""
    page.goto(f"{base}/cases/{seeded.absentable.case_id}/")
    page.get_by_role("radio", name="Make sure it’s absent").check()
    page.locator("[name=then_absent][value=continue]").check()
    page.get_by_label("Reason code").select_option("no_longer_needed")
    page.get_by_label("Reason", exact=True).fill("Paid back in the shop.")
    page.get_by_role("button", name="Review decision").click()
    page.get_by_role("dialog").wait_for()


def try_a_lookup(page: Page, base: str, seeded: Seeded) -> None:
    """Ask a provider that can't be reached: the answer says so, and what would follow."""
    page.goto(f"{base}/providers/sandbox-mail/")
    page.get_by_label("Operation id or key").fill(seeded.not_found.operation.pk)
    page.get_by_role("button", name="Ask the provider once").click()
    page.locator("#trial-result").wait_for()


def open_tightening(page: Page, base: str, seeded: Seeded) -> None:
    """Open the administrator's form."""
    page.context.clear_cookies()
    sign_in(page, base, "administrator")
    page.goto(f"{base}/providers/sandbox-payments/")
    page.get_by_text("Tighten the contract…").click()


def open_palette(page: Page, base: str, seeded: Seeded) -> None:
    """Search and go, with something found."""
    page.goto(f"{base}/")
    page.keyboard.press("Control+k")
    page.locator("#palette-q").fill(seeded.not_found.operation.pk)
    page.locator("#palette-hits a").first.wait_for()


def open_shortcuts(page: Page, base: str, seeded: Seeded) -> None:
    """The list of keys."""
    page.goto(f"{base}/")
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keyboard shortcuts").wait_for()


def open_account_menu(page: Page, base: str, seeded: Seeded) -> None:
    """What is behind one's own name."""
    page.goto(f"{base}/")
    page.locator(".menu > summary").click()


def open_forms_of_a_case(page: Page, base: str, seeded: Seeded) -> None:
    """Every form of a case that opens in place."""
    page.goto(f"{base}/cases/{seeded.not_found.case_id}/")
    for summary in ("Put it off…", "Attach evidence…", "Add a note…"):
        page.get_by_text(summary).click()


def open_known(page: Page, base: str, seeded: Seeded) -> None:
    """What was known when a case was given up."""
    page.goto(f"{base}/effects/{operation_of(seeded.abandoned)}/")
    page.get_by_role("link", name="As known when it was decided").first.click()
    page.get_by_role("heading", name="As known when it was decided").wait_for()


# What a person does before there is something to picture; the last signs in as somebody else.
ACTS: dict[str, Callable[[Page, str, Seeded], None]] = {
    "review": review,
    "review-absence": review_absence,
    "palette": open_palette,
    "shortcuts": open_shortcuts,
    "account-menu": open_account_menu,
    "case-forms": open_forms_of_a_case,
    "effect-known": open_known,
    "provider-trial": try_a_lookup,
    "provider-tighten": open_tightening,
}
OVER_A_PAGE = {"review", "review-absence", "palette", "shortcuts", "account-menu"}


def take(folder: Path, names: list[str]) -> None:
    """Take every picture at both widths, in both themes."""
    with ExitStack() as cleanup:
        prepare(cleanup)
        from console.search_terms import index_terms
        from tests import chromium
        from tests.browser.seeding import seed

        seeded = seed()
        for _ in range(2):
            # What a worker does in the background; the first pass only says how far entries are settled.
            index_terms()
        folder.mkdir(parents=True, exist_ok=True)
        base = cleanup.enter_context(serve())
        browser = cleanup.enter_context(chromium.launched(chromium.executable()))
        # Each login in a browser of its own, and nobody's for what is seen before one signs in.
        seen_by = {"": SIGNED_OUT, "operator": pages(seeded), **pages_of_others(seeded)}
        for width in WIDTHS:
            for theme in THEMES:
                for login, addresses in seen_by.items():
                    wanted = {name: one for name, one in addresses.items() if not names or name in names}
                    acts = ACTS if login == "operator" else {}
                    wanted_acts = {name: act for name, act in acts.items() if not names or name in names}
                    if not wanted and not wanted_acts:
                        continue
                    context = browser.new_context(
                        viewport={"width": width, "height": 1000},
                        color_scheme=theme,  # type: ignore[arg-type]
                    )
                    page = chromium.new_page(context)
                    if login:
                        sign_in(page, base, login)
                    for name, address in wanted.items():
                        page.goto(base + address)
                        if name in ASKED_BEFORE:
                            show_again(page)
                        page.wait_for_timeout(150)
                        page.screenshot(path=folder / f"{name}-{theme}-{width}.png", full_page=True)
                    for name, act in wanted_acts.items():
                        act(page, base, seeded)
                        page.evaluate("window.scrollTo(0, 0)")
                        # What lies over a page is pictured as it is seen.
                        whole = name not in OVER_A_PAGE
                        page.screenshot(path=folder / f"{name}-{theme}-{width}.png", full_page=whole)
                    context.close()
        print(f"{len(list(folder.glob('*.png')))} pictures in {folder}")


if __name__ == "__main__":
    chosen = sys.argv[1:]
    target = Path(chosen[0]) if chosen else ROOT / "build" / "screenshots"
    take(target, chosen[1:])
