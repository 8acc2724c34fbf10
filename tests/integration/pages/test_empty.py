"""Every list that is empty says what would appear in it, and why there is nothing: a filter, or none yet."""

from __future__ import annotations

import re
from html import unescape

import pytest
from django.test import Client

from console.models import Role
from reconciliation.accounts import sync_accounts
from tests import cases
from tests.integration.pages.conftest import Login

# Address → what its list says while there is nothing at all, and what would come there.
NOTHING_YET = {
    "/": ("Nothing needs a decision", "A case comes here only if lookups can’t settle it"),
    "/?view=soon": ("No key or time limit ends within an hour", "A case comes here when"),
    "/?view=conflict": ("No effects beyond what was intended", "A case comes here when"),
    "/?view=snoozed": ("Nothing is put off", "A case comes here when somebody puts it off"),
    "/?view=looking_up": ("Nothing is being looked up", "A case comes here while"),
    "/?view=retrying": ("No retry is under way", "A case comes here when"),
    "/?view=resolved": ("Nothing has been settled yet", "Cases stay here after"),
    "/runs/": ("No runs here", "A run shows here as soon as"),
    "/effects/": ("No history yet", "The first entry is made when"),
    "/search/": ("What are you looking for?", "Whole ids, keys and references"),
    "/bulk/": ("You have no lists", "Choose cases in the queue"),
}
# The same with something in the way: it says so, and how to take it away.
FILTERED = {
    "/?q=op_nothing": ("No case here matches", "Take a filter away"),
    "/?view=resolved&provider=sandbox-mail": ("No case here matches", "“Resolved”"),
    "/runs/?q=nothing": ("No run matches", "Show all runs"),
    "/search/?q=op_nothing": ("Nothing found", "that you can see has exactly this"),
}


@pytest.fixture
def operator(login: Login) -> Client:
    return login(Role.OPERATOR)


def text(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, address
    main = re.search(r"<main.*</main>", answer.content.decode(), re.DOTALL)
    assert main is not None, address
    return unescape(main.group())


def test_a_list_with_nothing_yet_says_what_would_come(operator: Client) -> None:
    sync_accounts()
    for address, words in NOTHING_YET.items():
        shown = text(operator, address)
        assert [one for one in words if one not in shown] == [], address


def test_a_list_under_a_filter_says_that_the_filter_is_why(operator: Client) -> None:
    cases.needs_decision()
    for address, words in FILTERED.items():
        shown = text(operator, address)
        assert [one for one in words if one not in shown] == [], address
    hits = operator.get("/search/", {"q": "op_nothing"}, headers={"HX-Request": "true"})
    assert "Nothing found" in unescape(hits.content.decode()), "in the palette too"


def test_the_parts_of_a_case_say_what_would_be_there(operator: Client) -> None:
    opened = cases.open_case()
    shown = text(operator, f"/cases/{opened.case_id}/")
    for words in (
        "None: no other case of this run or with this payload, and none at this provider",
        "Nothing to compare",
        "Nobody works on this case",
        "Attach evidence…",
        "Add a note…",
    ):
        assert words in shown, words


def test_nothing_to_take_next_says_why(operator: Client) -> None:
    shown = operator.post("/queue/next/", follow=True).content.decode()
    assert "No case of your teams waits for a decision without somebody at it." in unescape(shown)


def test_somebody_in_no_team_is_told_so_on_every_list(login: Login) -> None:
    cases.needs_decision()
    nobodys = login(Role.OPERATOR, name="new", team="")
    for address in ("/", "/runs/", "/effects/", "/search/?q=op_1", "/bulk/", "/providers/"):
        page = nobodys.get(address).content.decode()
        assert "You are in no team." in page, address
        assert "An administrator can add you to one." in page, address
    assert "You are in no team." not in login(Role.OPERATOR).get("/").content.decode()
