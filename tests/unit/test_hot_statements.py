"""How the hot statements are written for the server: numbered once, and the same statement ever after."""

from __future__ import annotations

from runs.journal.statements import BEGIN_SEND, CONFIRM_BY_REPLY, READ_OPERATION, Statement


def test_each_name_is_one_parameter_however_often_it_is_used() -> None:
    statement = Statement.of("SELECT %(b)s, %(a)s, %(b)s::text")
    assert (statement.text, statement.names) == ("SELECT $1, $2, $1::text", ("b", "a"))


def test_the_hot_statements_ask_for_what_they_are_given() -> None:
    assert set(READ_OPERATION.names) == {"operation", "team"}
    assert set(BEGIN_SEND.names) == {"operation", "team", "token", "attempt_id"}
    assert set(CONFIRM_BY_REPLY.names) >= {"operation", "team", "token", "attempt_id", "receipt_id", "body"}
    for one in (READ_OPERATION, BEGIN_SEND, CONFIRM_BY_REPLY):
        assert "%(" not in one.text
