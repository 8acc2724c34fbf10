"""What an agent or a provider says is text on every page: nothing of it runs, opens or asks elsewhere.

The pages come from the URL configuration: one that isn't visited fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

import pytest
from django.conf import settings
from django.urls import URLPattern, reverse
from playwright.sync_api import BrowserContext, Dialog, Page, Request, Route

from console.models import Person, Role
from console.pages.urls import urlpatterns
from reconciliation.models import Case, Decision
from runs.models import AuditLeaf, Operation, Run
from tests import factories
from tests.browser import hostile_posts
from tests.browser.hostile_posts import Form, hostile_provider
from tests.browser.hostile_world import NAMES, HostileWorld, build
from tests.browser.seeding import people
from tests.browser.test_operator_path import sign_in
from tests.cases import Opened
from tests.chromium import Faults
from tests.corpus.hostile_text import ATTRIBUTES, ELEMENTS, HTMX, SCHEMES, VECTORS, packed
from tests.processes import Server

pytestmark = pytest.mark.browser

# Answered with bytes to keep, not with a page: their own tests look at the head that says so.
DOWNLOADS = {"case_body_file", "case_attachment", "bulk_csv", "export_file", "export_manifest"}
FOREIGN = (Path(__file__).parent / "foreign.js").read_text(encoding="utf-8").partition("\n")[2]
# The same of pages that are only read, by the browser's own parser: so every row's page can be.
READ_THROUGH = f"""async (addresses) => {{
    const foreign = {FOREIGN};
    const read = {{}};
    for (const address of addresses) {{
        const text = await (await fetch(address)).text();
        read[address] = [foreign(new DOMParser().parseFromString(text, "text/html")), text];
    }}
    return read;
}}"""
# A form of the console's own, with every field as given, sent as a browser sends it.
SEND = """([address, fields]) => {
    const form = document.createElement("form");
    form.method = "post";
    form.action = address;
    const token = JSON.parse(document.body.getAttribute("hx-headers:inherited"))["X-CSRFToken"];
    for (const [name, value] of Object.entries({ csrfmiddlewaretoken: token, ...fields })) {
        const field = document.createElement("textarea");
        field.name = name;
        field.value = value;
        form.append(field);
    }
    document.body.append(form);
    HTMLFormElement.prototype.submit.call(form);
}"""
# Markup that no browser of today makes anything of where it stands alone.
HARMLESS_ALONE = {"<frameset onload=pwn()>", "<scr<script>ipt>pwn()</script>", "<img/src=x/onerror=pwn()>"}
# The cases that somebody works on and that have every kind of evidence; all others are read through.
OPENED = 8


@pytest.fixture
def watched(browser_context: BrowserContext, page: Page, faults: Faults) -> Iterator[list[str]]:
    """What ran, opened or asked elsewhere, on any page of this test."""
    seen: list[str] = []

    def asked(request: Request) -> None:
        host = urlsplit(request.url).hostname
        if host not in {"127.0.0.1", "recourse.test", None}:
            seen.append(f"request {request.url}")

    def opened(dialog: Dialog) -> None:
        seen.append(f"dialog {dialog.message}")
        dialog.dismiss()

    browser_context.expose_binding("pwn", lambda source, *_: seen.append(f"ran on {source['page'].url}"))
    browser_context.on("request", asked)
    page.on("dialog", opened)
    yield seen
    faults.seen.extend(seen)


def pages_of(world: HostileWorld) -> dict[str, list[str]]:
    """Name of each page that can be opened → the addresses of it that show something hostile."""
    first, second = world.opened[:2]
    operations = [one for opened in (first, second) for one in opened.claimed.operations[:1]]
    hostile = quote(" ".join(VECTORS[:20]))
    names = ("q", "flow", "tool", "provider", "finding", "assignee", "actor")
    query = urlencode(dict.fromkeys(names, NAMES[3]))
    named = {
        "queue": ["/", f"/?{query}", f"/?q={hostile}", "/?view=resolved"],
        "queue_news": ["/queue/news/?since=2026-01-01T00:00:00Z"],
        "case": [f"/cases/{one.case_id}/" for one in world.opened[:OPENED]],
        "case_desk": [f"/cases/{first.case_id}/desk/", f"/cases/{second.case_id}/desk/"],
        "case_live": [f"/cases/{first.case_id}/live/", f"/cases/{second.case_id}/live/"],
        "case_news": [f"/cases/{first.case_id}/news/?version=1&digest={hostile}"],
        "case_body": [f"/cases/{one.case_id}/bodies/payload/" for one in (first, second)],
        "case_report": [f"/cases/{one.case_id}/report/" for one in (first, second)],
        "export_list": ["/effects/exports/"],
        "export": [],
        "bulk_list": ["/bulk/"],
        "bulk": [world.bulk],
        "bulk_progress": [f"{world.bulk}progress/"],
        "case_decide": [f"/cases/{first.case_id}/decision/"],
        "run_list": ["/runs/", f"/runs/?{query}"],
        "run": [f"/runs/{one.claimed.run.pk}/" for one in world.opened[:OPENED]],
        "effects": ["/effects/", f"/effects/?{query}", f"/effects/?entry={hostile}"],
        "effect": [f"/effects/{one.pk}/" for one in operations],
        "effect_entry": [f"/effects/entries/{leaf}/" for leaf in entries_of(operations)],
        "effect_known": [f"/effects/{one.pk}/decisions/{decision_about(one)}/" for one in operations],
        "provider_list": ["/providers/"],
        "provider": [f"/providers/{world.declared}/", "/providers/sandbox-payments/"],
        "provider_new": [f"/providers/new/?account={world.declared}", f"/providers/new/?account={hostile}"],
        "environment": ["/environment/"],
        "notification_list": ["/notifications/", f"/notifications/?view={hostile}"],
        "notification_settings": ["/notifications/settings/"],
        "search": [f"/search/?q={hostile}", "/search/?q=external1"],
        "login": [f"/login/?next={quote(SCHEMES[0])}", f"/login/?next={hostile}"],
        "preferences": [f"/preferences/?next={hostile}"],
        "person": ["/people/1/"],
        "flow": [f"/flows/{one.claimed.run.flow_id}/" for one in world.opened[:OPENED]],
        "account_access": [f"/account-access/{world.declared}/", "/account-access/sandbox-payments/"],
        "approval": [f"/approvals/{one}/" for one in world.requests],
        "reauthenticate": [
            f"/reauthentication/?next={hostile}",
            f"/reauthentication/?next={quote(SCHEMES[0])}",
        ],
        "not found": [f"/nowhere/{hostile}/", f"/cases/{hostile}/", f"/problems/{hostile}"],
    }
    # A page with one address needs no naming.
    plain = [
        str(one.name) for one in urlpatterns if isinstance(one, URLPattern) and not one.pattern.converters
    ]
    return {**{name: [reverse(name)] for name in plain if name in shown()}, **named}


def entries_of(operations: list[Operation]) -> list[int]:
    """An entry about each operation, by its number."""
    found = [AuditLeaf.objects.filter(operation_ref=one.pk).latest("id") for one in operations]
    return [leaf.pk for leaf in found]


def decision_about(operation: Operation) -> str:
    """A decision about the operation: what its page shows of it is what was known before."""
    made, _ = Decision.objects.get_or_create(
        id=f"dec_{operation.pk}",
        defaults={
            "case": Case.objects.filter(operation=operation).latest("id"),
            "operation": operation,
            "action": "retry",
            "actor_kind": "policy",
            "actor": "policy-1",
            "policy": "policy-1",
            "seen_version": 1,
            "evidence_digest": "0" * 64,
            "idempotency_key": operation.pk,
            "content_digest": "0" * 64,
        },
    )
    return made.pk


def shown() -> set[str]:
    """The names of every page of the console that a GET opens."""
    views = [one for one in urlpatterns if isinstance(one, URLPattern)]
    return {str(one.name) for one in views if "GET" in getattr(one.callback, "page_methods", ())} - DOWNLOADS


@pytest.mark.timeout(600)
def test_whatever_an_agent_or_a_provider_says_is_text_on_every_page(
    page: Page, web_server: Server, watched: list[str]
) -> None:
    people()
    world = build()
    # Some pages are for auditors, some for administrators.
    Person.objects.filter(username="operator").update(roles=[str(role) for role in Role])
    sign_in(page, web_server, "operator")
    pages = pages_of(world)
    marks: set[str] = set()
    for name, addresses in pages.items():
        for address in addresses:
            marks |= look(page, web_server.url + address, name)
    for first in ("/", "/?view=looking_up", "/runs/", "/effects/"):
        # All rows, as far as a person could page.
        shown_at = first
        while shown_at:
            marks |= look(page, web_server.url + shown_at, first)
            more = page.get_by_role("link", name="Load more")
            shown_at = str(more.get_attribute("href")) if more.count() else ""
    rest = [
        one for opened in world.opened for one in (f"/cases/{opened.case_id}/", f"/runs/{opened.run.pk}/")
    ]
    for address, (foreign, html) in page.evaluate(READ_THROUGH, rest).items():
        assert foreign == [], address
        marks |= marks_in(html)
    assert watched == []
    missing = [f"{field}{row}" for field in ("flow", "external") for row in range(len(NAMES))]
    assert [one for one in missing if one not in marks] == []
    assert [one for one in world.fields if not any(mark.startswith(one) for mark in marks)] == []


@pytest.fixture
def answering(app_env: dict[str, str]) -> Iterator[None]:
    """The sandbox's accounts are at a provider that answers everything with the corpus."""
    with hostile_provider() as url:
        app_env["SANDBOX_URL"] = url
        yield


@pytest.mark.timeout(600)
def test_every_page_that_answers_a_form_shows_what_was_typed_and_what_was_answered_as_text(
    page: Page, answering: None, web_server: Server, watched: list[str]
) -> None:
    people()
    world = build()
    # Everything is open to this one person, so that no form stops at who may send it.
    Person.objects.filter(username="operator").update(roles=[str(role) for role in Role])
    forms = [*hostile_posts.of_an_operator(world), *hostile_posts.of_an_administrator(world)]
    sign_in(page, web_server, "operator")
    marks: set[str] = set()
    for form in [*forms, *hostile_posts.generic(world)]:
        marks |= send(page, web_server, form)
    expected = {"reviewed0", "reviewed3", "answered0", "answered1", "argument1", "title0", "title2", "said0"}
    assert {*expected, "typed0"} - marks == set()
    assert watched == []


def send(page: Page, server: Server, form: Form) -> set[str]:
    """Send a form from a page of the console, find nothing foreign in its answer, and tell what it shows."""
    if not page.url.startswith(server.url) or page.locator("body[hx-headers\\:inherited]").count() == 0:
        page.goto(f"{server.url}/preferences/")
    with page.expect_navigation(wait_until="load") as answered:
        page.evaluate(SEND, [form.address, form.fields])
    answer = answered.value
    assert answer is not None
    assert answer.status < 500, (form.name, form.address, answer.status)
    assert urlsplit(page.url).hostname == "127.0.0.1", (form.name, page.url)
    assert page.evaluate(FOREIGN) == [], (form.name, form.address)
    html = page.content()
    assert form.shows in html, (form.name, form.address, answer.status)
    return marks_in(html)


def look(page: Page, address: str, name: str) -> set[str]:
    """Open a page, find nothing foreign in it, and tell which hostile fields it shows."""
    answer = page.goto(address, wait_until="load")
    assert answer is not None
    # A page of something that isn't there shows nothing of it, and so proves nothing.
    expected = {200} if name == "approval" else {200, 404}
    assert answer.status in expected, (name, answer.status, address[:100])
    assert urlsplit(page.url).hostname == "127.0.0.1", (name, page.url)
    assert page.evaluate(FOREIGN) == [], (name, address[:100])
    html = page.content()
    assert settings.SECRET_KEY not in html, name
    return marks_in(html)


def marks_in(html: str) -> set[str]:
    """The fields, by their rows, whose texts a page shows."""
    return set(re.findall(r"\b([a-z]+\d+) ", html))


# --- Does anything notice? ----------------------------------------------------------------------------------


def test_every_vector_of_markup_is_noticed_where_a_page_does_not_escape_it(page: Page) -> None:
    page.route("**/*", lambda route: route.fulfill(body="<!doctype html>", content_type="text/html"))
    page.goto("http://recourse.test/")
    unnoticed = page.evaluate(
        f"""(texts) => {{
            const foreign = {FOREIGN};
            // Where it would do harm: behind the quote that it ends, or between tags.
            const around = (text) => /^["']/.test(text)
                ? `<body><p title=${{text[0]}}${{text}}${{text[0]}}>x` : `<body>${{text}}`;
            return texts.filter((text) =>
                foreign(new DOMParser().parseFromString(around(text), "text/html")).length === 0);
        }}""",
        [*ELEMENTS, *HTMX, *ATTRIBUTES[:3]],
    )
    assert set(unnoticed) <= HARMLESS_ALONE


def test_whatever_runs_opens_or_asks_elsewhere_is_noticed(
    page: Page, faults: Faults, watched: list[str]
) -> None:
    live = (
        ELEMENTS[0],
        ELEMENTS[12],
        "<svg onload=pwn()>",
        "<img src=//evil.test/2>",
        "<script>alert(1)</script>",
    )

    def answer(route: Route) -> None:
        if route.request.url == "http://recourse.test/":
            route.fulfill(body=f"<!doctype html><body>{' '.join(live)}", content_type="text/html")
        else:
            route.fulfill(status=404, body="")

    page.route("**/*", answer)
    page.goto("http://recourse.test/", wait_until="load")
    assert [one for one in watched if one.startswith("ran on")] == ["ran on http://recourse.test/"] * 3
    assert {"request http://evil.test/2", "dialog 1"} <= set(watched)
    watched.clear()
    faults.seen.clear()


def test_every_page_of_the_console_is_looked_at() -> None:
    nothing = Opened(factories.Claimed(Run(id="run"), "", []), "case")
    looked_at = set(
        pages_of(HostileWorld(opened=(nothing, nothing), declared="", bulk="", requests=("apr",)))
    )
    assert shown() - looked_at == set()
    assert {str(one.name) for one in urlpatterns if isinstance(one, URLPattern)} >= DOWNLOADS


def test_the_corpus_is_as_large_as_it_says() -> None:
    assert len(set(VECTORS)) == len(VECTORS) >= 200
    for length in (32, 90, 450, 2_000):
        together = "".join(packed(length))
        assert all(one in together for one in VECTORS if len(one) <= length)
