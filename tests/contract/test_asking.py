"""How a declared provider is asked, in several ways and over pages, and what follows; over a real socket."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from reconciliation.providers.base import (
    Candidate,
    Finding,
    Found,
    Inconclusive,
    NotFound,
    Pending,
    Refused,
    Several,
    Unavailable,
)
from reconciliation.providers.http_declared import HttpDeclared
from tests.contract.declaring import DECLARATION, KEY, PAYLOAD, SENT_AT, declare, question
from tests.contract.fault_server import FaultServer
from tests.contract.scripted import Scripted, answer

OURS: dict[str, Any] = {"id": "ord_1", "status": "succeeded", "idempotency_key": KEY, **PAYLOAD}
OTHERS: dict[str, Any] = {"id": "ord_2", "status": "succeeded", "idempotency_key": "rk-two", "sku": "B"}
ALIKE: dict[str, Any] = {"id": "ord_3", "status": "succeeded", **PAYLOAD}

_ONE_WAY = DECLARATION[DECLARATION.index("[lookup.request]") :]
BEFORE = DECLARATION.removesuffix(_ONE_WAY).replace('lookup = "by_key"', 'lookup = "by_listing"')
LIST = """
[[lookups]]
name = "list"
kind = "by_listing"
[lookups.request]
path = "/orders"
query = { since = "{window_start_unix}", until = "{window_end_at}" }
[lookups.answer]
items = "$.data"
more = "$.has_more"
"""
EVENTS = """
[[lookups]]
name = "events"
kind = "by_listing"
[lookups.request]
path = "/events"
query = { "types[]" = ["made", "changed"] }
[lookups.answer]
items = "$.data"
record = "$.object"
key = "$.request_key"
"""
SEARCH = """
[[lookups]]
name = "search"
kind = "by_search"
hint = true
[lookups.request]
path = "/search"
query = { q = "key:{key}" }
[lookups.answer]
items = "$.data"
incomplete = "$.incomplete_results"
"""
PAGED = 'more = "$.has_more"\n'


def ask(folder: Path, declared: str, *answers: bytes, **how: Any) -> tuple[Finding, Scripted]:
    peer = Scripted(*answers)
    with FaultServer(peer) as server:
        adapter = HttpDeclared(declare(folder, server.url, text=BEFORE + declared))
        finding = adapter.look_up(question(**how))
        adapter.close()
    assert peer.answers == []
    return finding, peer


def shown(*records: object, **more: object) -> bytes:
    return answer({"data": list(records), **more})


# --- several ways ---


def test_a_strong_way_that_finds_is_the_last_one_asked(tmp_path: Path) -> None:
    finding, peer = ask(tmp_path, LIST + EVENTS + SEARCH, shown(OTHERS, OURS))
    assert isinstance(finding, Found)
    assert peer.paths == ["/orders"]
    assert finding.earlier == ()


def test_what_the_first_way_doesnt_show_the_next_may(tmp_path: Path) -> None:
    event = {"id": "evt_1", "request_key": KEY, "object": {**ALIKE, "id": "ord_1"}}
    finding, peer = ask(tmp_path, LIST + EVENTS + SEARCH, shown(), shown(event))
    assert isinstance(finding, Found)
    assert finding.receipts[0].reference == "ord_1"
    assert peer.paths == ["/orders", "/events"]
    assert peer.asked[1].query == [("types[]", "made"), ("types[]", "changed")]
    assert [one.status for one in finding.earlier] == [200]
    assert finding.earlier[0].body == ""
    assert finding.earlier[0].body_length > 0


def test_an_event_of_another_request_names_nothing_by_its_key_and_takes_nothing_away(tmp_path: Path) -> None:
    event = {"id": "evt_1", "request_key": "somebody's", "object": OURS}
    finding, _ = ask(tmp_path, LIST + EVENTS, shown(), shown(event))
    assert isinstance(finding, Found)
    unnamed = {"id": "evt_1", "request_key": "somebody's", "object": {**ALIKE, "sku": "C"}}
    finding, _ = ask(tmp_path, LIST + EVENTS, shown(), shown(unnamed))
    assert isinstance(finding, NotFound)


def test_of_several_events_of_one_record_the_first_in_the_list_counts(tmp_path: Path) -> None:
    events = [
        {"id": "evt_2", "request_key": None, "object": OURS},
        {"id": "evt_1", "request_key": KEY, "object": {**OURS, "status": "running"}},
    ]
    finding, _ = ask(tmp_path, LIST + EVENTS, shown(), shown(*events))
    assert isinstance(finding, Found)
    finding, _ = ask(tmp_path, LIST + EVENTS, shown(), shown(*reversed(events)))
    assert isinstance(finding, Pending)


def test_a_hint_that_shows_something_is_for_a_person_however_well_it_fits(tmp_path: Path) -> None:
    finding, peer = ask(tmp_path, LIST + SEARCH, shown(), shown(OURS))
    assert isinstance(finding, Candidate)
    assert "only a hint" in finding.summary
    assert peer.paths == ["/orders", "/search"]
    assert peer.asked[1].query == [("q", f"key:{KEY}")]


@pytest.mark.parametrize(
    "hint", [shown(), answer({}, status="500 Oh"), shown(OURS | {"id": None}), shown(incomplete_results=True)]
)
def test_a_hint_that_shows_nothing_changes_nothing(hint: bytes, tmp_path: Path) -> None:
    proving = LIST.replace('kind = "by_listing"\n', "")
    text = BEFORE.replace("absence_is_proof = false", "absence_is_proof = true")
    peer = Scripted(shown(), hint)
    with FaultServer(peer) as server:
        adapter = HttpDeclared(declare(tmp_path, server.url, text=text + proving + SEARCH))
        finding = adapter.look_up(question())
        adapter.close()
    assert isinstance(finding, NotFound)
    assert finding.proof


def test_a_weaker_way_never_proves_absence_where_the_strongest_couldnt_answer(tmp_path: Path) -> None:
    text = BEFORE.replace("absence_is_proof = false", "absence_is_proof = true")
    peer = Scripted(answer({}, status="503 Later", extra="Retry-After: 7\r\n"), shown())
    with FaultServer(peer) as server:
        adapter = HttpDeclared(declare(tmp_path, server.url, text=text + LIST + EVENTS))
        finding = adapter.look_up(question())
        adapter.close()
    assert isinstance(finding, Unavailable)
    assert finding.retry_after_ms == 7000


def test_the_strongest_answer_stands_where_every_way_is_silent(tmp_path: Path) -> None:
    finding, _ = ask(tmp_path, LIST + EVENTS, shown(), answer({}, status="404 No"))
    assert isinstance(finding, NotFound)
    assert not finding.proof
    assert len(finding.earlier) == 1


def test_what_looks_alike_in_a_strong_way_gives_way_to_what_is_ours_in_the_next(tmp_path: Path) -> None:
    event = {"id": "evt_1", "request_key": KEY, "object": {**ALIKE, "id": "ord_1"}}
    finding, _ = ask(tmp_path, LIST + EVENTS, shown(ALIKE), shown(event))
    assert isinstance(finding, Found)
    finding, _ = ask(tmp_path, LIST + EVENTS, shown(ALIKE), shown())
    assert isinstance(finding, Candidate)


def test_a_way_is_asked_only_for_the_payloads_that_it_fits(tmp_path: Path) -> None:
    thread = EVENTS.replace('name = "events"', 'name = "events"\nwhen = "$.sku"')
    plain = LIST.replace('name = "list"', 'name = "list"\nunless = "$.sku"')
    finding, peer = ask(tmp_path, plain + thread, shown())
    assert peer.paths == ["/events"]
    assert isinstance(finding, NotFound)
    finding, peer = ask(tmp_path, plain + thread, shown(), payload={"quantity": 2})
    assert peer.paths == ["/orders"]


def test_where_no_way_fits_nobody_asks_and_nothing_follows(tmp_path: Path) -> None:
    finding, peer = ask(tmp_path, LIST.replace('name = "list"', 'name = "list"\nunless = "$.sku"'))
    assert peer.asked == []
    assert isinstance(finding, Inconclusive)
    assert finding.reason == "no_lookup"


def test_a_question_reaches_from_before_the_first_send_to_after_the_last_quiet_time(tmp_path: Path) -> None:
    _, peer = ask(tmp_path, LIST, shown())
    asked = dict(peer.asked[0].query)
    assert int(asked["since"]) == int(SENT_AT.timestamp()) - 300
    ends_at = datetime.fromisoformat(asked["until"])
    assert (ends_at - SENT_AT).total_seconds() == 11 + 3600


def test_a_records_places_may_differ_from_those_of_a_reply(tmp_path: Path) -> None:
    report = LIST + 'record = "$.info"\n[lookups.receipt]\nid = "$.transaction"\nkey = "$.note"\n'
    report += '[lookups.success_when]\npath = "$.letter"\nsucceeded = ["S"]\nrefused = ["D"]\n'
    report += '[[lookups.match_fields]]\npayload = "$.sku"\nanswer = "$.article"\n'
    record = {"info": {"transaction": "t-1", "note": KEY, "letter": "S", "article": "A-1"}}
    finding, _ = ask(tmp_path, report, shown(record))
    assert isinstance(finding, Found)
    assert finding.receipts[0].reference == "t-1"
    record["info"]["letter"] = "D"
    finding, _ = ask(tmp_path, report, shown(record))
    assert isinstance(finding, Refused)


def test_an_item_without_its_record_makes_the_list_unreadable(tmp_path: Path) -> None:
    finding, _ = ask(tmp_path, LIST + 'record = "$.info"\n', shown({"id": "x"}))
    assert isinstance(finding, Inconclusive)
    assert finding.reason == "no_reference"


def test_an_answer_that_carries_its_failure_in_the_body_answers_nothing(tmp_path: Path) -> None:
    declined = LIST + '[[lookups.answer.unavailable]]\npath = "$.ok"\nvalues = ["false"]\n'
    finding, _ = ask(tmp_path, declined, answer({"ok": False, "error": "not_in_channel"}))
    assert isinstance(finding, Unavailable)
    assert finding.reason == "declined"


def test_an_answer_that_says_it_is_incomplete_proves_nothing_and_may_still_find(tmp_path: Path) -> None:
    partial = LIST + 'incomplete = "$.incomplete_results"\n'
    finding, _ = ask(tmp_path, partial, shown(OTHERS, incomplete_results=True))
    assert isinstance(finding, Inconclusive)
    assert finding.reason == "incomplete"


def test_a_question_put_by_post_carries_its_body_and_no_payload(tmp_path: Path) -> None:
    by_post = LIST.replace(
        'path = "/orders"\nquery = { since = "{window_start_unix}", until = "{window_end_at}" }',
        'method = "POST"\nonly_reads = true\npath = "/history"\nencoding = "form"\n'
        'body = { channel = "{payload.sku}", thread = "{payload.thread?}" }',
    )
    paged = by_post + 'pages = { next = "cursor", parameter = "cursor", at = "$.next" }\n'
    finding, peer = ask(tmp_path, paged, shown(has_more=True, next="c-2"), shown(OURS, has_more=False))
    assert isinstance(finding, Found)
    assert [one.method for one in peer.asked] == ["POST", "POST"]
    assert [one.form for one in peer.asked] == [{"channel": "A-1"}, {"channel": "A-1", "cursor": "c-2"}]
    assert all(one.query == [] for one in peer.asked)
    assert "idempotency-key" not in peer.asked[0].headers


# --- pages ---

LAST = LIST + 'pages = { next = "last_record", parameter = "after", at = "$.id", pages_max = 3 }\n'
CURSOR = LIST + 'pages = { next = "cursor", parameter = "cursor", at = "$.next", pages_max = 3 }\n'
NUMBER = (
    LIST.replace(PAGED, "") + 'pages = { next = "number", parameter = "page", size = 2, pages_max = 3 }\n'
)
LINK = LIST + 'pages = { next = "link", pages_max = 3 }\n'
LINK_IN_BODY = LIST + 'pages = { next = "link", at = "$.next_page_uri", pages_max = 3 }\n'


def queries(peer: Scripted, name: str) -> list[str | None]:
    return [dict(one.query).get(name) for one in peer.asked]


def test_the_next_page_is_asked_for_by_the_last_record(tmp_path: Path) -> None:
    finding, peer = ask(tmp_path, LAST, shown(OTHERS, has_more=True), shown(OURS, has_more=False))
    assert isinstance(finding, Found)
    assert queries(peer, "after") == [None, "ord_2"]
    assert len(set(queries(peer, "since"))) == 1


def test_the_next_page_is_asked_for_by_a_cursor_until_there_is_none(tmp_path: Path) -> None:
    pages = [shown(OTHERS, next="c-2", has_more=True), shown(next="", has_more=False)]
    finding, peer = ask(tmp_path, CURSOR, *pages)
    assert isinstance(finding, NotFound)
    assert queries(peer, "cursor") == [None, "c-2"]


def test_pages_are_counted_until_one_isnt_full(tmp_path: Path) -> None:
    finding, peer = ask(tmp_path, NUMBER, shown(OTHERS, {**OTHERS, "id": "ord_4"}), shown(OURS))
    assert isinstance(finding, Found)
    assert queries(peer, "page") == [None, "2"]


@pytest.mark.parametrize("place", ["header", "body"])
def test_of_a_link_only_the_query_is_followed(place: str, tmp_path: Path) -> None:
    url = "https://169.254.169.254/latest/meta-data?page=2&since=2026"
    if place == "header":
        others = '<https://other.example/first?page=1>; rel="prev", <https://x.example/?page=9>; rel=nextish'
        link = f'Link: {others}, <{url}>; title="2"; rel="next"\r\n'
        pages = [answer({"data": [OTHERS], "has_more": True}, extra=link), shown(OURS)]
    else:
        pages = [shown(OTHERS, has_more=True, next_page_uri=url), shown(OURS, next_page_uri=None)]
    finding, peer = ask(tmp_path, LINK if place == "header" else LINK_IN_BODY, *pages)
    assert isinstance(finding, Found)
    assert peer.paths == ["/orders", "/orders"]
    assert queries(peer, "page") == [None, "2"]
    # What the link says of a parameter replaces what the declaration says of it.
    assert queries(peer, "since")[1] == "2026"


@pytest.mark.parametrize(
    "link",
    [
        f'<https://x.example/orders?cursor={"c" * 5_000}>; rel="next"',
        '<https://x.example/orders/page/2>; rel="next"',
        '<https://x.example/orders?page=2>; rel="prev next"',
        "<https://x.example/orders?page=2>; REL=Next",
    ],
)
def test_a_next_page_that_cannot_be_followed_leaves_the_list_incomplete(link: str, tmp_path: Path) -> None:
    by_link = LINK.replace(PAGED, "")
    finding, _ = ask(tmp_path, by_link, answer({"data": [OTHERS]}, extra=f"Link: {link}\r\n"))
    assert isinstance(finding, Inconclusive)
    assert finding.reason == "incomplete"


def test_a_next_page_in_the_body_that_cannot_be_followed_leaves_the_list_incomplete(tmp_path: Path) -> None:
    by_link = LINK_IN_BODY.replace(PAGED, "")
    finding, _ = ask(tmp_path, by_link, shown(OTHERS, next_page_uri="/orders/page/2"))
    assert isinstance(finding, Inconclusive)


def test_two_of_ours_on_two_pages_are_several(tmp_path: Path) -> None:
    pages = [shown(OURS, has_more=True), shown({**OURS, "id": "ord_9"}, has_more=False)]
    finding, _ = ask(tmp_path, LAST, *pages)
    assert isinstance(finding, Several)
    assert len(finding.receipts) == 2


def test_reading_stops_at_the_declared_number_of_pages_and_concludes_nothing(tmp_path: Path) -> None:
    pages = [shown({**OTHERS, "id": f"ord_{number}"}, has_more=True) for number in range(3)]
    finding, peer = ask(tmp_path, LAST, *pages)
    assert isinstance(finding, Inconclusive)
    assert finding.reason == "incomplete"
    assert len(peer.asked) == 3


def test_a_list_that_says_more_and_not_where_is_incomplete(tmp_path: Path) -> None:
    finding, peer = ask(tmp_path, CURSOR, shown(OTHERS, has_more=True))
    assert isinstance(finding, Inconclusive)
    assert finding.reason == "incomplete"
    assert len(peer.asked) == 1


def test_a_list_that_leads_back_to_itself_concludes_nothing(tmp_path: Path) -> None:
    page = shown(OTHERS, has_more=True, next="c-2")
    finding, peer = ask(tmp_path, CURSOR, page, page)
    assert isinstance(finding, Inconclusive)
    assert finding.reason == "pages_repeat"
    assert len(peer.asked) == 2


def test_a_page_that_fails_makes_the_whole_list_unavailable(tmp_path: Path) -> None:
    pages = [shown(OTHERS, has_more=True), answer({}, status="429 Slow", extra="Retry-After: 3\r\n")]
    finding, _ = ask(tmp_path, LAST, *pages)
    assert isinstance(finding, Unavailable)
    assert finding.retry_after_ms == 3000


def test_a_further_page_that_isnt_there_leaves_the_list_unfinished(tmp_path: Path) -> None:
    missing = LAST.replace('more = "$.has_more"', 'more = "$.has_more"\nnot_found_statuses = [404]')
    finding, _ = ask(tmp_path, missing, shown(OTHERS, has_more=True), answer({}, status="404 No"))
    assert isinstance(finding, Inconclusive)
    assert finding.reason == "incomplete"
    finding, _ = ask(tmp_path, missing, answer({}, status="404 No"))
    assert isinstance(finding, NotFound)


@pytest.mark.parametrize(
    ("written", "pages_read"),
    [
        ("2026-11-29T11:00:00Z", 1),
        ("Sun, 29 Nov 2026 11:00:00 +0000", 1),
        (int(SENT_AT.timestamp()) - 3600, 1),
        ("2026-11-29T11:59:00Z", 2),  # inside the time before the first send that is looked at
        ("yesterday", 2),  # nobody knows, so it goes on
        (None, 2),
    ],
)
def test_a_list_of_the_newest_first_is_read_no_further_back_than_the_first_send(
    written: object, pages_read: int, tmp_path: Path
) -> None:
    newest = LAST.replace('at = "$.id"', 'at = "$.id", newest_first = "$.made"')
    first = shown({**OTHERS, "made": written}, has_more=True)
    pages = [first, shown(has_more=False)][:pages_read]
    finding, peer = ask(tmp_path, newest, *pages)
    assert isinstance(finding, NotFound)
    assert len(peer.asked) == pages_read


@pytest.mark.parametrize("more_ways", ["", EVENTS])
def test_a_lookup_whose_time_is_up_asks_for_nothing_more(
    more_ways: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciliation.providers.asking.LOOKUP_SECONDS_MAX", -1.0)
    finding, peer = ask(tmp_path, LAST + more_ways, shown(OTHERS, has_more=True))
    assert isinstance(finding, Inconclusive)
    assert finding.reason == "limited"
    assert len(peer.asked) == 1


def permitted(folder: Path, ways: str, permits: list[bool], *answers: bytes) -> tuple[Finding, Scripted, int]:
    peer, asked = Scripted(*answers), list(permits)
    with FaultServer(peer) as server:
        adapter = HttpDeclared(declare(folder, server.url, text=BEFORE + ways))
        finding = adapter.look_up(replace(question(), permit=lambda: asked.pop(0)))
        adapter.close()
    assert peer.answers == []
    return finding, peer, len(permits) - len(asked)


def test_every_request_after_the_first_needs_a_permit(tmp_path: Path) -> None:
    pages = [shown(OTHERS, has_more=True), shown({**OTHERS, "id": "ord_4"}, has_more=False), shown(), shown()]
    finding, peer, permits = permitted(tmp_path, LAST + EVENTS + SEARCH, [True] * 4, *pages)
    assert isinstance(finding, NotFound)
    assert (len(peer.asked), permits) == (4, 3)


def test_without_a_permit_a_list_stays_unread_and_no_further_way_is_asked(tmp_path: Path) -> None:
    finding, peer, _ = permitted(tmp_path, LAST + EVENTS, [False, False], shown(OTHERS, has_more=True))
    assert isinstance(finding, Inconclusive)
    assert finding.reason == "limited"
    assert len(peer.asked) == 1
    ours = [shown(OURS, has_more=True)]
    finding, _, _ = permitted(tmp_path, LAST + EVENTS, [False, False], *ours)
    assert isinstance(finding, Inconclusive)
    assert [one.reference for one in finding.receipts] == ["ord_1"]
    finding, _, _ = permitted(tmp_path, LIST + EVENTS, [False], shown(OTHERS))
    assert isinstance(finding, NotFound)


def test_a_way_that_takes_the_place_of_the_strongest_never_proves_absence(tmp_path: Path) -> None:
    text = BEFORE.replace("absence_is_proof = false", "absence_is_proof = true")
    first = LIST.replace('name = "list"', 'name = "list"\nunless = "$.sku"')
    for ways, proof in ((LIST, True), (first + EVENTS, False)):
        with FaultServer(Scripted(shown())) as server:
            adapter = HttpDeclared(declare(tmp_path, server.url, text=text + ways))
            finding = adapter.look_up(question())
            adapter.close()
        assert isinstance(finding, NotFound)
        assert finding.proof is proof


def test_more_than_a_thousand_records_are_not_read_on(tmp_path: Path) -> None:
    many = [{**OTHERS, "id": f"ord_{number}"} for number in range(1001)]
    finding, peer = ask(tmp_path, LAST, shown(*many, has_more=True))
    assert isinstance(finding, Inconclusive)
    assert len(peer.asked) == 1
