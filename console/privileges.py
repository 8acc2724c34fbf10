"""What the application's role may do to each table. Applied by `migrate`, after every migration.

The application logs in as a member of a group that owns nothing. It may read and change ordinary rows,
and only add and read rows of the append-only tables, so that no page, task or injected statement can
rewrite history; triggers in the migrations stand against the owner as well.
"""

from __future__ import annotations

from collections.abc import Collection

from django.db.backends.utils import CursorWrapper
from psycopg import sql

ORDINARY = ("SELECT", "INSERT", "UPDATE", "DELETE")
APPEND_ONLY = ("SELECT", "INSERT")
NEVER_DELETED = ("SELECT", "INSERT", "UPDATE")
READ_ONLY = ("SELECT",)
# Only `migrate` writes here; the application must be able to see that migrations are missing.
READ_ONLY_TABLES = frozenset({"django_migrations"})


def apply(
    *,
    cursor: CursorWrapper,
    group: str,
    append_only: Collection[str],
    never_deleted: Collection[str] = (),
) -> None:
    """Grant the group exactly what it needs, and take away the rest; running it again changes nothing.

    Must run as the owner, in one transaction: privileges change for everyone at its commit, never in
    between. Raises `LookupError` when the group or an append-only table doesn't exist.
    """
    cursor.execute("SELECT current_database(), EXISTS (SELECT FROM pg_roles WHERE rolname = %s)", [group])
    database, exists = cursor.fetchone()
    if not exists:
        raise LookupError(f"The database role {group} doesn't exist.")
    to = sql.Identifier(group)
    statements = [
        sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(sql.Identifier(database)),
        sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(sql.Identifier(database), to),
        sql.SQL("REVOKE ALL ON SCHEMA public FROM PUBLIC"),
        sql.SQL("GRANT USAGE ON SCHEMA public TO {}").format(to),
    ]
    for table in _owned(cursor, kinds=["r", "p", "v", "m"]):
        allowed = _allowed(table, append_only, never_deleted)
        name = sql.Identifier("public", table)
        statements += [
            sql.SQL("REVOKE ALL ON TABLE {} FROM PUBLIC, {}").format(name, to),
            sql.SQL("GRANT {} ON TABLE {} TO {}").format(sql.SQL(", ").join(map(sql.SQL, allowed)), name, to),
        ]
    for sequence in _owned(cursor, kinds=["S"]):
        name = sql.Identifier("public", sequence)
        statements += [
            sql.SQL("REVOKE ALL ON SEQUENCE {} FROM PUBLIC, {}").format(name, to),
            sql.SQL("GRANT USAGE, SELECT ON SEQUENCE {} TO {}").format(name, to),
        ]
    for statement in statements:
        cursor.execute(statement)


def _allowed(table: str, append_only: Collection[str], never_deleted: Collection[str]) -> tuple[str, ...]:
    if table in append_only:
        return APPEND_ONLY
    if table in never_deleted:
        return NEVER_DELETED
    return READ_ONLY if table in READ_ONLY_TABLES else ORDINARY


def _owned(cursor: CursorWrapper, *, kinds: list[str]) -> list[str]:
    cursor.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
        " AND relkind::text = ANY(%s) AND relowner = current_user::regrole ORDER BY relname",
        [kinds],
    )
    return [name for (name,) in cursor.fetchall()]
