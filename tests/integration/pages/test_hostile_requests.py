"""Requests for consent whose every text is hostile: each kind has its page, and nothing on it is markup."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from console.models import Role
from tests import cases
from tests.browser.hostile_requests import CASES, ask_for_all
from tests.browser.seeding import TEAM
from tests.integration.pages.conftest import Login

pytestmark = pytest.mark.django_db(transaction=True)

ADDRESSES = {"src", "href", "action", "data", "poster", "srcset", "formaction", "xlink:href"}


class _Foreign(HTMLParser):
    """What a page has that no page of the console has: code in attributes, and addresses of others."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name.startswith("on") or name in {"srcdoc", "style"}:
                self.found.append(f"<{tag} {name}={value}>")
            # Of the console itself: an address without a host, or none, which is this page's.
            own = not value or (value.startswith(("/", "#", "?")) and not value.startswith("//"))
            if name in ADDRESSES and not own:
                self.found.append(f"<{tag} {name}={value}>")
        if tag in {"iframe", "object", "embed", "base", "math", "img", "video", "audio", "style"}:
            self.found.append(f"<{tag}>")

    def handle_data(self, data: str) -> None:
        if self.get_starttag_text() == "<script>":
            self.found.append(data)


def foreign_in(html: str) -> list[str]:
    parser = _Foreign()
    parser.feed(html)
    return parser.found


def test_whatever_is_asked_and_said_about_a_request_is_text_on_its_page(login: Login) -> None:
    opened = [cases.needs_decision(team=TEAM) for _ in range(CASES)]
    client = login(Role.APPROVER, name="ines", team=TEAM)
    made = ask_for_all(opened)
    shown = ""
    for approval_id in made:
        answer = client.get(f"/approvals/{approval_id}/")
        assert answer.status_code == 200, approval_id
        html = answer.content.decode()
        assert foreign_in(html) == [], approval_id
        shown += html
    for row, _ in enumerate(made):
        for field in ("why", "question", "answer"):
            assert f"{field}{row} " in shown, (field, row)
    for mark in ("asker0 ", "version4 ", "comment5 ", "flow4 "):
        assert mark in shown, mark
    for view in ("", "?view=own", "?view=decided"):
        assert foreign_in(client.get(f"/approvals/{view}").content.decode()) == [], view


def test_markup_that_is_not_escaped_is_noticed() -> None:
    for text in (
        "<img src=x onerror=pwn()>",
        "<a href=javascript:pwn()>x</a>",
        "<p style=x>",
        "<a href=//e/>",
    ):
        assert foreign_in(f"<p>{text}</p>"), text
