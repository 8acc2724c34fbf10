"""The plan: for each thing on record the next step of a resumed worker (DESIGN §3, last table)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs.journal.settling import abandon, reject
from runs.journal.turns import save_result, save_turn
from runs.plan import build_plan
from runs.states import AttemptOutcome, Executor
from tests.factories import (
    PERSON,
    TEAM,
    Claimed,
    claim,
    doubt,
    effect,
    fresh,
    grant,
    held,
    make_claimed,
    quieten,
    read,
    reply,
    send,
)

pytestmark = pytest.mark.django_db(transaction=True)


def plan(claimed: Claimed, **fields: Any) -> dict[str, Any]:
    built = build_plan(fresh(claimed.run), **fields)
    # It is sent as JSON, strictly: no NaN, no lone surrogate.
    json.dumps(built, allow_nan=False, ensure_ascii=False).encode()
    return built


def only_call(claimed: Claimed) -> dict[str, Any]:
    [turn] = plan(claimed)["turns"]
    [call] = turn["calls"]
    planned: dict[str, Any] = call
    return planned


def test_a_read_without_a_result_is_read() -> None:
    call = only_call(make_claimed(read("r1")))
    assert (call["next"], call["effect"], call["args"]) == ("read", False, {"sku": "FC-20"})
    assert "result" not in call


@pytest.mark.parametrize("value", [{"stock": 4}, None, 0, "", []])
def test_a_read_with_a_saved_result_is_skipped_and_here_it_is(value: object) -> None:
    claimed = make_claimed(read("r1"))
    save_result(team=TEAM, run_id=claimed.run.pk, token=claimed.token, index=1, call_id="r1", result=value)
    call = only_call(claimed)
    assert (call["next"], call["result"]) == ("skip", value)


def test_a_ready_operation_is_sent_with_its_stored_key() -> None:
    claimed = make_claimed(effect(minor=500), budget_minor=1_000)
    call = only_call(claimed)
    assert (call["next"], call["provider"]) == ("send", "sandbox-supplier")
    assert call["amount"] == {"currency": "EUR", "minor": 500}
    assert call["operation"] == {
        "id": claimed.operation.pk,
        "state": "ready",
        "idempotency_key": claimed.operation.key,
        "digest": claimed.operation.payload_digest,
    }


def test_a_sent_operation_is_waited_for() -> None:
    claimed = make_claimed()
    send(claimed)
    assert only_call(claimed)["next"] == "wait"
    doubt(claimed.operation)
    planned = plan(claimed)
    assert planned["turns"][0]["calls"][0]["next"] == "wait"
    assert (planned["state"], planned["paused_reasons"]) == ("paused", ["outcome"])


def test_an_operation_granted_to_the_agent_is_repeated() -> None:
    claimed = make_claimed()
    send(claimed)
    doubt(claimed.operation)
    quieten(claimed.operation)
    grant(claimed.operation)
    call = only_call(claimed)
    assert (call["next"], call["operation"]["idempotency_key"]) == ("repeat", claimed.operation.key)
    send(Claimed(claimed.run, claim(claimed.run), claimed.operations), attempt_id="a2")
    # Its one repeat is on its way.
    assert only_call(claimed)["next"] == "wait"


def test_an_operation_granted_to_the_console_is_waited_for() -> None:
    claimed = make_claimed()
    send(claimed)
    doubt(claimed.operation)
    quieten(claimed.operation)
    grant(claimed.operation, executor=Executor.CONSOLE)
    assert only_call(claimed)["next"] == "wait"


def test_a_confirmed_operation_is_skipped_and_here_is_its_receipt() -> None:
    claimed = make_claimed()
    send(claimed)
    reply(claimed)
    call = only_call(claimed)
    assert call["next"] == "skip"
    assert call["receipt"] == {"reference": "ord_1", "body": {"id": "ord_1"}, "matched_by": "key"}


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"<html>made</html>", "<html>made</html>"),
        (b"", ""),
        # JSON that not every reader reads alike is shown as the text that it is.
        (b'{"amount": NaN}', '{"amount": NaN}'),
        (b'{"a": 1, "a": 2}', '{"a": 1, "a": 2}'),
        (b'"\\ud800"', '"\\ud800"'),
        (b'"\\u0000"', '"\\u0000"'),
        (b"9" * 5_000, "9" * 2_000),
        (b"[" * 30_000 + b"]" * 30_000, "[" * 2_000),
        (b"[" * 900 + b"]" * 900, "[" * 900 + "]" * 900),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b'{"z":1,"a":{"b":[1.5,true,null]}}', {"z": 1, "a": {"b": [1.5, True, None]}}),
    ],
)
def test_a_receipt_is_shown_as_json_only_where_every_reader_reads_it_alike(
    body: bytes, shown: object
) -> None:
    claimed = make_claimed()
    send(claimed)
    reply(claimed, body=body)
    assert only_call(claimed)["receipt"]["body"] == shown


def test_a_rejected_operation_is_skipped_and_here_is_the_refusal() -> None:
    claimed = make_claimed()
    send(claimed)
    with held(claimed.operation) as locked:
        reject(locked, refusal=b'{"error":"sold out"}', actor=PERSON)
    call = only_call(claimed)
    assert (call["next"], call["refusal"]) == ("skip", {"error": "sold out"})


def test_an_abandoned_operation_is_skipped_and_here_is_what_is_known() -> None:
    claimed = make_claimed()
    send(claimed)
    with held(claimed.operation) as locked:
        abandon(locked, actor=PERSON, known_effect="Perhaps made once.", reason="given up")
    call = only_call(claimed)
    assert (call["next"], call["abandoned"]) == ("skip", {"known_effect": "Perhaps made once."})


def test_a_turn_shows_its_saved_decision_also_without_calls() -> None:
    claimed = make_claimed(read("r1"), goal="Restock FC-20", input={"order": 7})
    save_result(team=TEAM, run_id=claimed.run.pk, token=claimed.token, index=1, call_id="r1", result=1)
    save_turn(
        team=TEAM,
        run_id=claimed.run.pk,
        token=claimed.token,
        index=2,
        decision={"say": "enough"},
        parallel=True,
        calls=(),
    )
    planned = plan(claimed)
    assert (planned["goal"], planned["input"]) == ("Restock FC-20", {"order": 7})
    assert [(turn["index"], turn["parallel"]) for turn in planned["turns"]] == [(1, False), (2, True)]
    assert planned["turns"][1] == {"index": 2, "decision": {"say": "enough"}, "parallel": True, "calls": []}


def test_calls_come_in_the_order_in_which_the_model_chose_them() -> None:
    claimed = make_claimed(effect("c9"), read("r1"), effect("c1"))
    [turn] = plan(claimed)["turns"]
    assert [call["call_id"] for call in turn["calls"]] == ["c9", "r1", "c1"]


def test_known_failures_and_open_evidence_are_told() -> None:
    claimed = make_claimed()
    send(claimed)
    doubt(claimed.operation, outcome=AttemptOutcome.UNREPORTED)
    planned = plan(claimed)
    [failure] = planned["known_failures"]
    assert (failure["operation"], failure["attempt_id"], failure["number"], failure["outcome"]) == (
        claimed.operation.pk,
        "a1",
        1,
        "unreported",
    )


def long_run(turns: int) -> Claimed:
    claimed = make_claimed(effect("c1"), budget_minor=10**9)
    token = claimed.token
    for index in range(2, turns + 1):
        send(Claimed(claimed.run, token, claimed.operations))
        reply(claimed, f"{claimed.run.pk}-{index}")
        save_turn(
            team=TEAM,
            run_id=claimed.run.pk,
            token=token,
            index=index,
            decision={},
            parallel=False,
            calls=(effect(f"c{index}"),),
        )
        claimed = Claimed(claimed.run, token, list(claimed.run.operations.filter(turn_index=index)))
    return claimed


def test_the_plan_of_one_turn_reads_that_turn_alone() -> None:
    claimed = long_run(4)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        planned = plan(claimed, only_turn=4)
    assert [turn["index"] for turn in planned["turns"]] == [4]
    asked = [query["sql"] for query in queries if "runs_operation" in query["sql"]]
    assert asked
    # What it costs to save a turn must not grow with the turns before it.
    assert all('"turn_index" = 4' in sql or '"index" = 4' in sql for sql in asked), asked


def test_a_plan_takes_as_many_queries_for_many_turns_as_for_few() -> None:
    counts = []
    for turns in (2, 6):
        claimed = long_run(turns)
        with CaptureQueriesContext(connection) as queries:
            plan(claimed)
        counts.append(len(queries))
    assert counts[0] == counts[1]
