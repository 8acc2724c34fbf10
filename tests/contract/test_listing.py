"""What a listing concludes from answers that others wrote badly, and which accounts nobody can list."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reconciliation.contracts import ListingWay
from reconciliation.providers import registry
from reconciliation.providers.declaration import read_file
from reconciliation.providers.http_declared import HttpDeclared
from reconciliation.providers.listing import Listing
from tests.contract.stub.server import Answered, Asked, Stub

UNTIL = datetime(2026, 11, 30, 12, tzinfo=UTC)
SINCE = UNTIL - timedelta(hours=2)

DECLARATION = """
slug = "shop"
title = "Shop"
base_url = "{url}"
reach = ["loopback"]

[contract]
key_format = "none"
key_scope = "none"
window_kind = "none"
on_other_payload = "performed"
on_in_flight = "performed"
replays = "nothing"
lookup = "none"
rate_limit_per_second = 5
in_flight_bound_ms = 1_000
start_within_ms = 1_000
request_within_ms = 1_000

[contract.receipt]
id = "$.id"
reference = "$.text"
reference_form = "within"
our_reference = "<!-- op:{{operation}} -->"

[send.request]
path = "/orders"
"""
IN_ROOMS = """
[listing.places]
values = { room = "$.id" }
only_if = "$.ours"

[listing.places.request]
path = "/rooms"

[listing.places.answer]
items = "$.rooms"

[listing.request]
path = "/rooms/{place.room}/orders"
query = { since = "{window_start_at}", until = "{window_end_at}" }

[listing.answer]
items = "$.orders"
missing_is_empty = true
"""


class Shop(Stub):
    """Answers each path as a test says, and notes what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[str, Answered] = {}
        self.asked: list[Asked] = []

    def answer(self, asked: Asked) -> Answered:
        self.asked.append(asked)
        return self.answers.get(asked.path, Answered(status=404, body={}))


@pytest.fixture
def shop() -> Iterator[Shop]:
    made = Shop()
    yield made
    made.close()


@pytest.fixture
def listed(shop: Shop, tmp_path: Path) -> Iterator[Callable[[str], Listing]]:
    """List at the shop by this `[listing]`."""
    adapters: list[HttpDeclared] = []

    def ask(listing: str, *, since_at: datetime = SINCE) -> Listing:
        path = tmp_path / "shop.toml"
        path.write_text(DECLARATION.format(url=shop.url) + listing)
        adapters.append(HttpDeclared(read_file(path, shown_as="shop.toml", environ={})))
        return adapters[-1].list_made(since_at=since_at, until_at=UNTIL, permit=lambda: True)

    yield ask
    for one in adapters:
        one.close()


def test_each_place_that_says_yes_is_listed_and_a_marker_is_read_out_of_its_text(
    shop: Shop, listed: Callable[[str], Listing]
) -> None:
    rooms = [{"id": "a/b", "ours": True}, {"id": "c", "ours": False}, {"id": "d", "ours": True}]
    text = "It never came.\n\n<!-- op:op_01KB7Q3M9T0000000000000000 -->"
    shop.answers = {
        "/rooms": Answered(body={"rooms": rooms}),
        "/rooms/a/b/orders": Answered(body={"orders": [{"id": "1", "text": text}, {"id": "2", "text": "-"}]}),
        "/rooms/d/orders": Answered(body={}),
    }
    got = listed(IN_ROOMS)
    assert got.whole, got.why_not
    assert [(one.reference, one.our_reference) for one in got.records] == [
        ("1", "op_01KB7Q3M9T0000000000000000"),
        ("2", ""),
    ]
    assert [one.path for one in shop.asked] == ["/rooms", "/rooms/a/b/orders", "/rooms/d/orders"]


@pytest.mark.parametrize(
    ("answers", "why_not"),
    [
        ({}, "answered 404"),
        ({"/rooms": Answered(body={"rooms": [{"ours": True}]})}, "a place without what"),
        ({"/rooms": Answered(body={})}, "declared form"),
        ({"/rooms": Answered(body={"rooms": [{"id": "a", "ours": True}]})}, "answered 404"),
        (
            {
                "/rooms": Answered(body={"rooms": [{"id": "a", "ours": True}]}),
                "/rooms/a/orders": Answered(body={"orders": [{"text": "no id"}]}),
            },
            "without an id",
        ),
    ],
    ids=["no places", "a place without a name", "no list of places", "a place that fails", "no id"],
)
def test_a_list_that_was_not_read_whole_says_why(
    shop: Shop, listed: Callable[[str], Listing], answers: dict[str, Answered], why_not: str
) -> None:
    shop.answers = answers
    got = listed(IN_ROOMS)
    assert why_not in got.why_not
    assert got.offered


def test_a_span_that_is_too_long_for_one_question_is_asked_for_in_parts_without_a_gap(
    shop: Shop, listed: Callable[..., Listing]
) -> None:
    shop.answers = {"/orders": Answered(body={"orders": []})}
    request = '[listing.request]\npath = "/orders"\n'
    query = 'query = { since = "{window_start_at}", until = "{window_end_at}" }\n'
    rules = (
        f'[listing]\nspan_ms_max = {24 * 3600 * 1000}\n{request}{query}[listing.answer]\nitems = "$.orders"\n'
    )
    assert listed(rules, since_at=UNTIL - timedelta(hours=50)).whole
    asked = [
        (datetime.fromisoformat(one.query["since"]), datetime.fromisoformat(one.query["until"]))
        for one in shop.asked
    ]
    assert len(asked) == 3
    assert all(end - start <= timedelta(days=1) for start, end in asked)
    assert asked[0][0] < UNTIL - timedelta(hours=50)
    assert asked[-1][1] > UNTIL
    assert all(later[0] < earlier[1] for earlier, later in itertools.pairwise(asked))


def ways() -> dict[str, ListingWay]:
    return {one.slug: one.listing for one in registry.catalogue()}


def test_of_the_shipped_accounts_three_cannot_be_listed_and_each_says_why() -> None:
    silent = {slug: way.why_not for slug, way in ways().items() if not way.offered}
    assert set(silent) == {"adyen", "smtp", "sqs-fifo"}
    for sentence in silent.values():
        assert sentence.endswith(".")
        assert len(sentence) > 60


def test_what_a_list_leaves_out_is_said_where_something_is() -> None:
    told = {slug for slug, way in ways().items() if way.leaves_out}
    assert told == {"ec2", "github-issues", "paypal", "resend", "slack", "twilio"}
    assert {slug for slug, way in ways().items() if way.offered} - told == {
        "square",
        "step-functions",
        "stripe-charges",
        "stripe-payments",
        "stripe-refunds",
        "zendesk",
    }
