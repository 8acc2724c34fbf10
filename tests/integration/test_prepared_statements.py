"""The hot statements on the server: prepared once in a connection, in every state that it can be in."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from runs.journal.prepared import Statement, fetch_one
from runs.journal.statements import READ_OPERATION
from tests.factories import TEAM, fresh, make_claimed, reply, send

pytestmark = pytest.mark.django_db(transaction=True)

ANSWER = Statement.of("SELECT %(text)s::text, %(number)s::bigint, %(bytes)s::bytea, NULL::varchar, 7::int4")
ASKED: dict[str, Any] = {"text": "Zoë \\ '", "number": -(2**40), "bytes": b"\x00\xff"}
ANSWERED = ("Zoë \\ '", -(2**40), b"\x00\xff", None, 7)


def prepared() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM pg_prepared_statements WHERE name LIKE 'recourse%'")
        return [name for (name,) in cursor.fetchall()]


@pytest.fixture(autouse=True)
def a_connection_of_its_own() -> None:
    connection.close()


def test_a_statement_is_prepared_once_and_says_what_it_was_given() -> None:
    assert fetch_one(ANSWER, ASKED) == ANSWERED
    assert fetch_one(ANSWER, {**ASKED, "text": None}) == (None, *ANSWERED[1:])
    assert prepared() == [ANSWER.name.decode()]


def test_a_statement_that_a_pooler_discarded_is_prepared_again() -> None:
    fetch_one(ANSWER, ASKED)
    with connection.cursor() as cursor:
        cursor.execute("DISCARD ALL")
    assert fetch_one(ANSWER, ASKED) == ANSWERED
    assert prepared() == [ANSWER.name.decode()]


def test_without_prepared_statements_the_answer_is_the_same(settings: Any) -> None:
    settings.RECOURSE_PREPARED_STATEMENTS = False
    assert fetch_one(ANSWER, ASKED) == ANSWERED
    claimed = make_claimed()
    send(claimed)
    assert reply(claimed) == 1
    assert fresh(claimed.operation).state == "confirmed"
    assert prepared() == []


def test_the_first_statement_of_a_transaction_begins_it() -> None:
    claimed = make_claimed()
    asked = {"operation": claimed.operation.pk, "team": TEAM}
    fetch_one(READ_OPERATION, asked)
    with transaction.atomic():
        assert fetch_one(READ_OPERATION, asked) is not None
        assert connection.connection.info.transaction_status.name == "INTRANS"
        assert fetch_one(READ_OPERATION, asked) is not None


def test_a_broken_constraint_is_djangos_error_and_leaves_the_connection_usable() -> None:
    claimed = make_claimed()
    broken = Statement.of("UPDATE runs_run SET state = 'failed' WHERE id = %(run)s RETURNING id")
    with pytest.raises(IntegrityError, match="run_state_whole"):
        fetch_one(broken, {"run": claimed.run.pk})
    assert fetch_one(ANSWER, ASKED) == ANSWERED
