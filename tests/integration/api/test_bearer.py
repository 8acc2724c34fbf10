"""Who may call: tokens, their scopes, their end; and what a call costs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db.models import F
from django.test import Client

from console.api.bearer import remembered
from console.models import ApiToken, Person, Role, Scope
from runs.journal import prepared
from tests.integration.api.world import (
    Caller,
    World,
    decision,
    in_doubt,
    person,
    revoke,
    rows,
    run_body,
    sent,
    token,
    working,
)

# Repeats meet unique constraints, which end a transaction that a test would hold open.
pytestmark = pytest.mark.usefixtures("transactional_db")


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer rec_unknown",
        "Basic dXNlcjpwYXNz",
        "bearer\trec_x",
        "Bearer " + "x" * 10_000,
        "Bearer é",
        "Token rec_x",
    ],
)
def test_without_a_known_token_there_is_nothing(world: World, authorization: str) -> None:
    before = rows()
    reply = Caller("").post("/runs", run_body(), authorization=authorization)
    assert (reply.status, reply.word) == (401, "unauthorized")
    assert reply.headers["www-authenticate"].startswith("Bearer")
    assert rows() == before


def test_an_expired_token_is_unknown(world: World) -> None:
    secret = token(Scope.JOURNAL)
    ApiToken.objects.with_secret(secret).update(
        created_at=F("created_at") - timedelta(days=3), expires_at=F("expires_at") - timedelta(days=2)
    )
    assert Caller(secret).post("/runs", run_body()).status == 401


def test_a_revoked_token_is_unknown_within_its_remembered_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = token(Scope.JOURNAL)
    caller = Caller(secret)
    assert caller.post("/runs", run_body()).status == 201
    revoke(secret)
    later = remembered._callers.copy()
    assert later, "the first call was remembered"
    monkeypatch.setattr("console.api.bearer.time.monotonic", lambda: 10.0**12)
    assert caller.post("/runs", run_body()).status == 401


def test_a_token_that_decides_is_never_remembered(world: World) -> None:
    _, case = in_doubt(world.worker)
    body = decision(world.operator, case, then="continue")
    revoke(world.operator.secret)
    assert world.operator.decide(f"/cases/{case}/abandonment", body).status == 401


def test_a_person_without_login_team_or_role_decides_nothing(world: World) -> None:
    _, case = in_doubt(world.worker)
    body = decision(world.operator, case, then="continue")
    priya = person("priya", Role.OPERATOR)
    caller = Caller(token(Scope.DECIDE, owner=priya))
    Person.objects.filter(pk=priya.pk).update(roles=["viewer"])
    assert caller.decide(f"/cases/{case}/abandonment", body).status == 403
    assert caller.get(f"/cases/{case}").status == 200
    Person.objects.filter(pk=priya.pk).update(roles=["operator"], is_active=False)
    assert caller.decide(f"/cases/{case}/abandonment", body).status == 401
    Person.objects.filter(pk=priya.pk).update(is_active=True)
    priya.teams.clear()
    assert caller.get(f"/cases/{case}").status == 401


def test_a_browsers_session_counts_for_nothing(world: World) -> None:
    client = Client(raise_request_exception=False)
    client.force_login(world.maya)
    caller = Caller("", client)
    assert caller.post("/runs", run_body()).status == 401
    assert caller.get("/cases").status == 401


def test_no_form_token_is_asked_for(world: World) -> None:
    caller = Caller(world.worker.secret, Client(enforce_csrf_checks=True))
    assert caller.post("/runs", run_body()).status == 201


def test_use_is_noted_at_most_once_a_minute(world: World) -> None:
    secret = token(Scope.READ)
    assert Caller(secret).get("/runs").status == 200
    first = ApiToken.objects.with_secret(secret).get().last_used_at
    assert first is not None
    remembered.forget()
    Caller(secret).get("/runs")
    assert ApiToken.objects.with_secret(secret).get().last_used_at == first
    ApiToken.objects.with_secret(secret).update(last_used_at=first - timedelta(seconds=61))
    remembered.forget()
    Caller(secret).get("/runs")
    assert (ApiToken.objects.with_secret(secret).get().last_used_at or first) > first


def test_a_locked_token_row_keeps_no_call_waiting(world: World, connect: object) -> None:
    secret = token(Scope.READ)
    other = connect()  # type: ignore[operator]
    with other.transaction():
        other.execute("SELECT 1 FROM console_apitoken FOR UPDATE")
        assert Caller(secret).get("/runs").status == 200
    assert ApiToken.objects.with_secret(secret).get().last_used_at is None


# --- what a call costs ----------------------------------------------------------------------------------


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement that psycopg sends, whether through Django's cursors or around them."""
    seen: list[str] = []
    execute = psycopg.Cursor.execute

    def noted(self: psycopg.Cursor[Any], query: Any, *args: Any, **kwargs: Any) -> psycopg.Cursor[Any]:
        seen.append(str(query))
        return execute(self, query, *args, **kwargs)

    monkeypatch.setattr(psycopg.Cursor, "execute", noted)
    run_prepared = prepared._execute

    def noted_prepared(raw: Any, statement: prepared.Statement, *args: Any) -> Any:
        seen.append(statement.text)
        return run_prepared(raw, statement, *args)

    monkeypatch.setattr(prepared, "_execute", noted_prepared)
    return seen


def test_go_and_receipt_are_their_own_statements_and_nothing_else(
    world: World, statements: list[str]
) -> None:
    warm = sent(world.worker)
    warm.report("receipt", warm.receipt())
    made = working(world.worker)
    statements.clear()
    assert made.send().status == 200
    assert len(statements) == 1, statements
    statements.clear()
    assert made.report("receipt", made.receipt()).status == 200
    # What was intended is remembered from "go".
    assert len(statements) == 1, statements


def test_a_token_is_one_statement_more_when_it_isnt_remembered(world: World, statements: list[str]) -> None:
    made = working(world.worker)
    remembered.forget()
    statements.clear()
    assert made.send().status == 200
    assert len(statements) == 2, statements
