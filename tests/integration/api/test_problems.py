"""Problems: one word, one status; every refusal of the code has one; what the router says is one too."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterator

import pytest
from django.db import OperationalError
from django.test import Client

import console
import reconciliation
import runs
from console.api import assembly, problems
from console.api.problems import WORDS
from console.api.reading import UnsupportedMediaType
from runs.refusals import Invalid, Refusal
from tests.integration.api.world import Caller, World, read_reply, rows, run_body

# Provider files are read at start-up; their faults are an administrator's and reach no caller. What a
# provider's own page does isn't in the API: these reach people, on that page, as sentences.
NEVER_ANSWERED = {
    "view_name_taken",
    "too_many_views",
    "too_many_exports",
    "filter_too_long",
    "not_your_view",
    "not_yourself",
    "last_administrator",
    "name_taken",
    "account_moved",
    "nothing_changed",
    "declaration_invalid",
    "cannot_be_asked",
    "contract_moved",
    "loosening_needs_approval",
    "nothing_tightened",
    "not_frozen",
    "not_reconciled",
    "case_taken",
    "case_settled",
    "claim_gone",
    "nothing_to_take",
    "too_many_notes",
    "not_waiting",
    "conflict_stays_awake",
    "key_ends_soon",
    "not_snoozed",
    "declaration_moved",
    "nothing_declared",
    "open_operations_hold",
    "not_alike",
    "already_started",
    "already_ended",
    "no_lookup",
    "type_not_taken",
    "too_many_attachments",
    "nothing_hidden",
    "channel_taken",
    "channels_full",
    # Asked for on a run's page alone.
    "held_in_question",
    # Said to the log of the worker that would send it.
    "not_to_be_made_absent",
    "no_team",
    "access_moved",
    "access_unchanged",
}


def refusals(root: type[Refusal] = Refusal) -> Iterator[type[Refusal]]:
    for kind in root.__subclasses__():
        yield kind
        yield from refusals(kind)


def test_every_refusal_of_the_code_has_its_word_and_status() -> None:
    for package in (runs, reconciliation, console):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "migrations" not in module.name and not module.name.endswith(("__main__", ".wsgi")):
                importlib.import_module(module.name)
    found = {kind for kind in refusals() if kind.__module__.split(".")[0] != "tests"}
    assert len(found) > 25
    unknown = {f"{kind.__module__}.{kind.__name__}: {kind.word}" for kind in found if kind.word not in WORDS}
    assert not {line for line in unknown if line.rsplit(" ", 1)[1] not in NEVER_ANSWERED}, unknown


def test_every_word_of_the_contract_is_there() -> None:
    agreed = """already_claimed run_paused run_ended flow_version_mismatch stale_token external_id_reused
        turn_already_decided previous_turn_open not_sendable start_window_passed attempt_ended
        receipt_mismatch receipt_reused operations_open decision_stale action_locked idempotency_key_reused
        unreadable_json invalid too_large not_found forbidden sending_frozen"""
    assert set(agreed.split()) <= set(WORDS)
    assert {
        word: WORDS[word].status for word in ("action_locked", "invalid", "too_large", "stale_token")
    } == {
        "action_locked": 423,
        "invalid": 422,
        "too_large": 413,
        "stale_token": 409,
    }


def test_details_cant_forge_the_document() -> None:
    refusal = Invalid("A sentence.", where="calls/0", type="evil", status=200, word="ok", title="x")
    document = json.loads(problems.refused(refusal).content)
    assert document == {
        "type": "/problems/invalid",
        "word": "invalid",
        "title": WORDS["invalid"].title,
        "status": 422,
        "detail": "A sentence.",
        "where": "/calls/0",
    }


@pytest.mark.parametrize("word", sorted(WORDS))
def test_every_type_can_be_opened_and_explains_itself(client: Client, word: str) -> None:
    answer = client.get(f"/problems/{word}")
    body = read_reply(answer.status_code, answer.content, dict(answer.headers)).body
    assert (body["word"], body["status"]) == (word, WORDS[word].status)
    assert body["meaning"].endswith(".")


def test_the_words_are_listed_and_others_are_404(client: Client) -> None:
    assert {one["word"] for one in client.get("/problems/").json()["problems"]} == set(WORDS)
    for strange in ("nothing", "x" * 500, "%3Cscript%3E"):
        answer = client.get(f"/problems/{strange}")
        assert read_reply(answer.status_code, answer.content, dict(answer.headers)).word == "not_found"


# --- what the router says -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/nothing",
        "/runs/",
        "/runs/a%00b",
        "/runs/a/b",
        "/runs/" + "x" * 65,
        "/runs/..%2f..%2fetc",
        "/runs/%ff%fe",
        "/runs/run_1/claim/",
        "/cases/a%0ab",
        "/operations/%E2%80%AE",
        "/docs",
    ],
)
def test_an_address_that_isnt_there_is_a_problem_for_everybody(world: World, path: str) -> None:
    for caller in (world.worker, Caller("")):
        for method in ("GET", "POST", "DELETE"):
            reply = caller.ask(method, path, content_type="application/json")
            assert (reply.status, reply.word) == (404, "not_found"), (method, reply)


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "BREW"])
def test_a_method_that_isnt_taken_is_told_which_are(world: World, method: str) -> None:
    answer = world.worker.client.generic(method, "/api/v1/runs")
    assert answer.status_code == 405
    assert answer["Allow"] == "GET, POST"
    assert answer["Content-Type"] == "application/problem+json"
    assert world.worker.ask("GET", "/runs/run_1/claim").headers["allow"] == "POST"
    assert world.worker.ask("POST", "/openapi.json", content_type="application/json").status == 405


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json-patch+json",
        "application/json; charset=latin-1",
        "application/json; charset=utf-16",
        "text/json",
    ],
)
def test_only_json_is_read(world: World, content_type: str) -> None:
    before = rows()
    content = json.dumps(run_body()).encode()
    reply = world.worker.ask("POST", "/runs", content, content_type=content_type)
    assert (reply.status, reply.word) == (415, UnsupportedMediaType.word)
    assert rows() == before


def test_json_may_name_its_only_charset(world: World) -> None:
    content = json.dumps(run_body()).encode()
    reply = world.worker.ask("POST", "/runs", content, content_type="Application/JSON; charset=UTF-8")
    assert reply.status == 201


def test_an_encoded_body_is_not_unpacked(world: World) -> None:
    reply = world.worker.post("/runs", run_body(), content_encoding="gzip")
    assert reply.status == 415


def test_a_head_that_cant_be_taken_is_a_problem_too(world: World) -> None:
    reply = world.worker.post("/runs", run_body(), host="elsewhere.example")
    assert (reply.status, reply.word) == (400, "bad_request")


def test_a_defect_is_told_without_its_insides_and_logged_under_its_id(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(**_: object) -> None:
        raise RuntimeError("password=hunter2 in /etc/secret")

    monkeypatch.setattr("console.api.runs.starting.start_run", broken)
    reply = world.worker.post("/runs", run_body())
    assert (reply.status, reply.word) == (500, "internal_error")
    assert "hunter2" not in str(reply)
    assert reply.body["error_id"] in caplog.text


def test_a_database_that_cant_be_asked_is_503_with_a_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(**_: object) -> None:
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr("console.api.runs.starting.start_run", away)
    reply = world.worker.post("/runs", run_body())
    assert (reply.status, reply.word, reply.headers["retry-after"]) == (503, "unavailable", "1")
    assert "connection unexpectedly" not in str(reply)


# --- the document ---------------------------------------------------------------------------------------


def test_the_openapi_document_names_every_call_and_its_refusals(client: Client) -> None:
    answer = client.get("/api/v1/openapi.json")
    schema = answer.json()
    assert schema["openapi"].startswith("3.1")
    calls = assembly.calls_of(schema)
    assert len(calls) == 36
    assert len({call["operationId"] for call in calls}) == len(calls)
    for call in calls:
        assert call["security"] == [{"Bearer": []}], call["operationId"]
        assert {"401", "403", "405", "500", "503"} <= set(call["responses"]), call["operationId"]
        assert call["description"].strip().endswith(".")
        if "requestBody" in call:
            assert {"413", "415", "422"} <= set(call["responses"]), call["operationId"]
