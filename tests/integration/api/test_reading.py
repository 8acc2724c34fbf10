"""GET /runs, /runs/{id}, /runs/{id}/plan, /operations/{id}, /cases, /cases/{id}"""

from __future__ import annotations

import threading
import time
from datetime import datetime

import pytest
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from console.api import listing
from reconciliation.models import Case
from tests.integration.api.world import (
    PAYLOAD,
    World,
    effect,
    expire_lease,
    in_doubt,
    rows,
    run_body,
    sent,
    started,
    working,
)


def ids(listed: list[dict[str, str]]) -> list[str]:
    return [one["id"] for one in listed]


# --- lists ----------------------------------------------------------------------------------------------


def test_runs_are_listed_newest_first_in_pages(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "PAGE_ROWS", 2)
    made = [started(world.worker) for _ in range(5)]
    found: list[str] = []
    after = ""
    for _ in range(3):
        page = world.reader.get(f"/runs?flow=order-agent{after}")
        assert page.status == 200, page
        found += ids(page.body["runs"])
        after = f"&after={page.body['next']}"
    assert page.body["next"] is None
    assert found == made[::-1]


def test_runs_are_filtered(world: World) -> None:
    body = run_body()
    run = world.worker.post("/runs", body).body["run"]["id"]
    started(world.worker, flow="another")
    assert ids(world.reader.get(f"/runs?external_id={body['external_id']}").body["runs"]) == [run]
    assert ids(world.reader.get("/runs?flow=order-agent&state=open").body["runs"]) == [run]
    assert world.reader.get("/runs?state=paused").body == {"runs": [], "next": None}
    assert world.stranger.get("/runs").body == {"runs": [], "next": None}


def test_claimable_runs_are_open_and_held_by_nobody(world: World) -> None:
    free = started(world.worker)
    held = working(world.worker)
    lapsed = working(world.worker)
    expire_lease(lapsed.run)
    in_doubt(world.worker)
    ended = started(world.worker)
    world.operator.post(f"/runs/{ended}/abandonment", {"reason": "not needed any more"})
    reply = world.worker.get("/runs?claimable=1&flow=order-agent")
    assert ids(reply.body["runs"]) == [free, lapsed.run]
    assert held.run not in ids(reply.body["runs"])
    assert world.worker.get("/runs?claimable=1&flow=unheard-of").body == {"runs": [], "next": None}
    assert world.stranger.get("/runs?claimable=1&flow=order-agent").body["runs"] == []


def test_claimable_runs_come_in_pages_oldest_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "PAGE_ROWS", 2)
    made = [started(world.worker) for _ in range(3)]
    first = world.worker.get("/runs?claimable=1&flow=order-agent").body
    second = world.worker.get(f"/runs?claimable=1&flow=order-agent&after={first['next']}").body
    assert ids(first["runs"]) + ids(second["runs"]) == made
    assert second["next"] is None


@pytest.mark.parametrize(
    ("query", "where"),
    [
        ("claimable=1", "query: flow"),
        ("claimable=1&flow=", "query: flow"),
        ("claimable=1&flow=a%00b", "query: flow"),
        ("claimable=2&flow=a", "query: claimable"),
        ("claimable=1&flow=a&wait=61", "query: wait"),
        ("claimable=1&flow=a&wait=-1", "query: wait"),
        ("claimable=1&flow=a&wait=soon", "query: wait"),
        ("claimable=1&flow=a&state=open", "query: claimable"),
        ("wait=5", "query: wait"),
        ("state=running", "query: state"),
        ("claimble=1&flow=a", "query: claimble"),
        ("flow=a&flow=b", "query: flow"),
        ("after=x", "query: after"),
        ("after=WyIyMDI2Il0", "query: after"),
        ("claimable=1&flow=order-agent&after=%00", "query: after"),
    ],
)
def test_a_question_that_cant_be_read_is_422(world: World, query: str, where: str) -> None:
    started(world.worker)
    reply = world.worker.get(f"/runs?{query}")
    assert (reply.status, reply.word, reply.body["where"]) == (422, "invalid", where), reply


# --- waiting --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("transactional_db")
def test_waiting_ends_when_a_run_comes(world: World) -> None:
    started(world.worker, flow="order-agent")
    made = working(world.worker, flow="slow-agent")
    parked = threading.Event()
    ask = listing._ask_claimable

    def give_back() -> None:
        parked.wait(10)
        world.worker.post(f"/runs/{made.run}/release", {"token": made.token})
        connection.close()

    def asked(**question: object) -> object:
        parked.set()
        return ask(**question)  # type: ignore[arg-type]

    listing._ask_claimable = asked  # type: ignore[assignment]
    giver = threading.Thread(target=give_back)
    giver.start()
    try:
        before = time.monotonic()
        reply = world.worker.get("/runs?claimable=1&flow=slow-agent&wait=20")
    finally:
        listing._ask_claimable = ask
        giver.join()
    assert ids(reply.body["runs"]) == [made.run]
    assert time.monotonic() - before < 15
    assert listing._waiters.count == 0


@pytest.mark.usefixtures("transactional_db")
def test_a_wait_without_a_run_ends_in_time_and_holds_no_transaction(world: World) -> None:
    before = time.monotonic()
    reply = world.worker.get("/runs?claimable=1&flow=order-agent&wait=1")
    assert reply.body == {"runs": [], "next": None}
    assert 0.9 <= time.monotonic() - before < 5
    assert not connection.in_atomic_block


def test_whoever_comes_beyond_the_bound_is_answered_at_once(world: World) -> None:
    taken = []
    while listing._waiters.enter():
        taken.append(1)
    try:
        before = time.monotonic()
        reply = world.worker.get("/runs?claimable=1&flow=order-agent&wait=30")
        assert (reply.status, reply.body["runs"]) == (200, [])
        assert time.monotonic() - before < 5
    finally:
        for _ in taken:
            listing._waiters.leave()
    assert len(taken) == 4


# --- one run, plan, operation ---------------------------------------------------------------------------


def test_a_run_shows_state_lease_and_budget_and_never_its_token(world: World) -> None:
    made = working(
        world.worker,
        effect(amount={"currency": "EUR", "minor": 300}),
        budget={"limit": {"currency": "EUR", "minor": 1_000}},
        goal="Order it",
    )
    made.send()
    reply = world.reader.get(f"/runs/{made.run}")
    shown = reply.body["run"]
    assert shown["lease"]["holder"] == "worker-1"
    assert shown["lease"]["expires_in_ms"] > 0
    assert made.token not in str(reply)
    assert shown["budget"] == {
        "currency": "EUR",
        "limit_minor": 1_000,
        "reserved_minor": 300,
        "spent_minor": 0,
        "held_minor": 0,
    }
    assert (shown["turn"], shown["open_cases"], shown["ended_at"]) == (1, [], None)
    assert datetime.fromisoformat(shown["created_at"]).tzinfo is not None


def test_an_operation_shows_its_attempts(world: World) -> None:
    made = sent(world.worker)
    shown = world.reader.get(f"/operations/{made.operation}").body["operation"]
    assert (shown["state"], shown["payload"], shown["open_case"]) == ("sent_unknown", PAYLOAD, None)
    (attempt,) = shown["attempts"]
    assert (attempt["attempt_id"], attempt["outcome"], attempt["worker"]) == ("a1", "open", "worker-1")
    assert 0 < attempt["quiet_after_in_ms"] <= 11_000
    made.report("receipt", made.receipt())
    settled = world.reader.get(f"/operations/{made.operation}").body["operation"]
    assert (settled["state"], settled["receipt"]["matched_by"]) == ("confirmed", "key")
    assert settled["settled_ago_ms"] >= 0


def test_a_plan_reads_calls_before_their_operations(world: World) -> None:
    """An effect read without its operation would be planned as a read, which anybody may repeat."""
    made = working(world.worker)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert world.reader.get(f"/runs/{made.run}/plan").status == 200
    order = [
        table
        for query in queries
        for table in ("runs_turn", "runs_call", "runs_operation")
        if f'FROM "{table}"' in query["sql"]
    ]
    assert order == ["runs_turn", "runs_call", "runs_operation"]


def test_a_case_shows_what_a_decision_needs(world: World) -> None:
    made, case = in_doubt(world.worker)
    shown = world.worker.get(f"/cases/{case}").body["case"]
    assert (shown["operation"], shown["run"], shown["kind"]) == (made.operation, made.run, "unknown")
    assert [answer["number"] for answer in shown["answers"]] == [1, 2, 3, 4, 5]
    assert {answer["answer"] for answer in shown["answers"]} <= {"yes", "no", "unknown"}
    actions = {action["action"]: action for action in shown["actions"]}
    assert list(actions) == ["confirm", "retry", "abandon"]
    assert actions["retry"]["permission"] == "allowed"
    assert actions["retry"]["closes_in_ms"] > 0
    assert actions["confirm"]["permission"] == "second_person"
    assert len(shown["evidence_digest"]) == 64
    (evidence,) = shown["evidence"]
    assert (evidence["kind"], evidence["claim"], evidence["body_cut"]) == ("report", "unknown", False)


def test_a_parked_case_says_why_and_any_other_says_null(world: World) -> None:
    _, case = in_doubt(world.worker)
    assert world.reader.get(f"/cases/{case}").body["case"]["parked_because"] is None
    because = "The provider couldn't be asked 12 times in a row."
    parked = {"state": "needs_decision", "need": "parked", "needs_decision_since_at": F("opened_at")}
    Case.objects.filter(pk=case).update(**parked, parked_because=because, next_lookup_at=None)
    assert world.reader.get(f"/cases/{case}").body["case"]["parked_because"] == because
    (listed,) = world.reader.get("/cases?state=needs_decision").body["cases"]
    assert listed["parked_because"] == because


def test_long_evidence_is_shown_in_part_and_says_so(world: World) -> None:
    made = sent(world.worker)
    case = made.report("unknown", made.seen(body="é" * 50_000)).body["case"]
    (evidence,) = world.worker.get(f"/cases/{case}").body["case"]["evidence"]
    assert evidence["body"] == "é" * 2048
    assert (evidence["body_length"], evidence["body_cut"]) == (100_000, True)


def test_evidence_hides_what_is_secret_in_headers(world: World) -> None:
    made = sent(world.worker)
    headers = {"Set-Cookie": "session=abc", "Authorization": "Bearer secret-value", "Date": "now"}
    reply = made.report("unknown", made.seen(headers=headers))
    shown = world.worker.get(f"/cases/{reply.body['case']}")
    assert "secret-value" not in str(shown.body)
    assert "session=abc" not in str(shown.body)
    assert ["Date", "now"] in shown.body["case"]["evidence"][0]["seen"]["headers"]


def test_cases_are_listed_and_filtered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "PAGE_ROWS", 1)
    (one, first), (_, second) = in_doubt(world.worker), in_doubt(world.worker)
    page = world.reader.get("/cases").body
    assert ids(page["cases"]) == [second]
    assert ids(world.reader.get(f"/cases?after={page['next']}").body["cases"]) == [first]
    for query in (f"operation={one.operation}", f"run={one.run}", f"run={one.run}&state=looking_up"):
        assert ids(world.operator.get(f"/cases?{query}").body["cases"]) == [first]
    assert world.reader.get("/cases?state=resolved").body["cases"] == []
    assert world.stranger.get("/cases").body["cases"] == []
    assert world.reader.get("/cases?state=open").word == "invalid"


def test_what_belongs_to_another_team_isnt_there(world: World) -> None:
    made, case = in_doubt(world.worker)
    paths = (
        f"/runs/{made.run}",
        f"/runs/{made.run}/plan",
        f"/operations/{made.operation}",
        f"/cases/{case}",
    )
    before = rows()
    for path in paths:
        assert world.reader.get(path).status == world.operator.get(path).status == 200
        for caller in (world.stranger, world.strange_operator):
            assert (caller.get(path).status, caller.get(path).word) == (404, "not_found")
    assert rows() == before


LOOSE = ['{"a":NaN}', '{"a":1e400}', "[" * 900 + "]" * 900, '{"a":"\\ud800"}', '{"a":1,"a":2}', "7" * 5_000]


@pytest.mark.parametrize("said", LOOSE, ids=lambda said: said[:12])
def test_what_a_provider_says_in_loose_json_breaks_no_answer(world: World, said: str) -> None:
    made = sent(world.worker)
    assert made.report("rejection", made.seen(status=422, body=said)).body["operation"]["state"] == "rejected"
    call = world.worker.get(f"/runs/{made.run}/plan").body["plan"]["turns"][0]["calls"][0]
    shown = world.worker.get(f"/operations/{made.operation}").body["operation"]
    assert call["refusal"] == shown["refusal"] == said[:2_000]
    other = sent(world.worker)
    reply = other.report("receipt", {**other.receipt(), "body": said})
    assert (reply.status, reply.word) == (409, "receipt_mismatch")
    case = world.worker.get(f"/cases/{reply.body['case']}").body["case"]
    assert case["evidence"][0]["body"] == said[:4_096]
