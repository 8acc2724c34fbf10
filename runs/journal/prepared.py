"""Running the journal's hand-written statements: bound and prepared on the server, read without a cursor.

Django's cursors bind on the client and never prepare, and a cursor of psycopg's costs about as much processor
time as the rest of an effect's work in Python (docs/decisions/0006). So a prepared statement is executed on
psycopg's libpq layer. Its errors are psycopg's; it waits in libpq, so a signal is heard once the answer is
there, a millisecond later as a rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections
from psycopg import pq

# What libpq calls the two forms of a parameter or a column.
_TEXT, _BINARY = pq.Format.TEXT, pq.Format.BINARY


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement with its parameters numbered, so that its text isn't read anew at each use."""

    text: str
    names: tuple[str, ...]
    # What the server knows it by: the same for the same text, in every connection.
    name: bytes

    @classmethod
    def of(cls, written: str) -> Statement:
        """Number the `%(name)s` of a statement; each name is one parameter, however often it is used."""
        names: list[str] = []

        def number(found: re.Match[str]) -> str:
            if found["name"] not in names:
                names.append(found["name"])
            return f"${names.index(found['name']) + 1}"

        text = re.sub(r"%\((?P<name>\w+)\)s", number, written)
        return cls(text, tuple(names), b"recourse_" + sha256(text.encode()).hexdigest()[:16].encode())


# How to read each column of a statement's row.
_Readers = tuple[Callable[[bytes], Any], ...]
# What is prepared in each connection; None while it hasn't returned a row yet.
_prepared: WeakKeyDictionary[psycopg.Connection[Any], dict[bytes, _Readers | None]] = WeakKeyDictionary()


def fetch_one(statement: Statement, parameters: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Run a statement on Django's own connection and return its first row, or None.

    Parameters are text, integers, bytes or None; so are the columns. `RECOURSE_PREPARED_STATEMENTS=0` is for
    poolers that can't keep prepared statements apart. Raises Django's database errors.
    """
    # `django.db.connection` would look this up at every word below.
    connection = connections[DEFAULT_DB_ALIAS]
    connection.ensure_connection()
    raw: psycopg.Connection[Any] = connection.connection
    given = [parameters[name] for name in statement.names]
    with connection.wrap_database_errors:
        idle = raw.pgconn.transaction_status == pq.TransactionStatus.IDLE
        # psycopg begins a transaction with the first cursor's statement, and only there.
        if not settings.RECOURSE_PREPARED_STATEMENTS or (idle and not raw.autocommit):
            with psycopg.RawCursor(raw) as cursor:
                return cursor.execute(statement.text, given, prepare=False).fetchone()
        known = _prepared.get(raw)
        if known is None:
            known = _prepared[raw] = {}
        with raw.lock:
            try:
                return _execute(raw, statement, given, known)
            except psycopg.errors.InvalidSqlStatementName:
                # Somebody discarded what was prepared (DISCARD ALL of a pooler). Nothing has run.
                known.clear()
                if not idle:
                    raise
                return _execute(raw, statement, given, known)


def _execute(
    raw: psycopg.Connection[Any],
    statement: Statement,
    given: Sequence[Any],
    known: dict[bytes, _Readers | None],
) -> tuple[Any, ...] | None:
    pgconn = raw.pgconn
    if statement.name not in known:
        _require_done(raw, pgconn.prepare(statement.name, statement.text.encode()))
        known[statement.name] = None
    result = pgconn.exec_prepared(
        statement.name,
        [value.encode() if type(value) is str else _as_parameter(value) for value in given],
        [_BINARY if isinstance(value, bytes) else _TEXT for value in given],
        _BINARY,
    )
    if result.status != pq.ExecStatus.TUPLES_OK:
        _require_done(raw, result)
    if not result.ntuples:
        return None
    readers = known[statement.name]
    if readers is None:
        # A prepared statement's columns keep their types: the server refuses to run it otherwise.
        readers = known[statement.name] = tuple(
            _READ[result.ftype(column)] for column in range(result.nfields)
        )
    return tuple(
        [
            None if (value := result.get_value(0, column)) is None else read(value)
            for column, read in enumerate(readers)
        ]
    )


def _require_done(raw: psycopg.Connection[Any], result: pq.abc.PGresult) -> None:
    if result.status == pq.ExecStatus.FATAL_ERROR:
        raise psycopg.errors.error_from_result(result, encoding=raw.info.encoding)


def _as_parameter(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    return b"%d" % value if isinstance(value, int) else value


def _integer(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


# By the type's number in PostgreSQL's catalogue, which never changes: the types of these statements' columns.
_READ: Mapping[int, Callable[[bytes], Any]] = {
    psycopg.postgres.types["bytea"].oid: bytes,
    psycopg.postgres.types["int8"].oid: _integer,
    psycopg.postgres.types["int4"].oid: _integer,
    psycopg.postgres.types["text"].oid: bytes.decode,
    psycopg.postgres.types["varchar"].oid: bytes.decode,
}
