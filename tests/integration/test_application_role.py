"""What the application's database role can and can't do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection

Connect = Callable[[], psycopg.Connection[Any]]

pytestmark = pytest.mark.django_db(transaction=True)


def test_tests_run_as_the_application_and_not_as_the_owner() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_has_role(%s, 'MEMBER'), rolsuper, rolcreatedb, rolcreaterole FROM pg_roles"
            " WHERE rolname = current_user",
            [settings.RECOURSE_APP_GROUP],
        )
        assert cursor.fetchone() == (True, False, False, False)


@pytest.mark.parametrize("table", settings.APPEND_ONLY_TABLES)
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {} SET id = id",
        "DELETE FROM {}",
        "TRUNCATE {}",
        "DROP TABLE {}",
        "ALTER TABLE {} DISABLE TRIGGER ALL",
        "SELECT * FROM {} FOR UPDATE",
        "SELECT * FROM {} FOR KEY SHARE",
        "BEGIN; LOCK TABLE {} IN ACCESS EXCLUSIVE MODE",
    ],
)
def test_history_is_refused_to_the_application_by_privilege(
    connect: Connect, table: str, statement: str
) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connect().execute(statement.format(table))


@pytest.mark.parametrize("table", settings.APPEND_ONLY_TABLES)
def test_history_can_be_read_by_the_application(connect: Connect, table: str) -> None:
    assert connect().execute(f"SELECT * FROM {table}").fetchall() == []


@pytest.mark.parametrize(
    "statement",
    [
        "SET session_replication_role = replica",
        "SET ROLE recourse_owner",
        "CREATE TABLE mine (id int)",
        "CREATE TEMP TABLE mine (id int)",
        "CREATE SCHEMA mine",
        "INSERT INTO django_migrations (app, name, applied) VALUES ('runs', 'never', now())",
        "DELETE FROM django_migrations",
        "TRUNCATE runs_team CASCADE",
        "ALTER TABLE runs_team ADD COLUMN x int",
    ],
)
def test_the_application_cannot_get_around_its_privileges(connect: Connect, statement: str) -> None:
    with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.InvalidParameterValue)):
        connect().execute(statement)


def test_the_application_reads_and_writes_ordinary_rows(connect: Connect) -> None:
    one = connect()
    one.execute("INSERT INTO runs_team (slug, name) VALUES ('t', 'T')")
    one.execute("UPDATE runs_team SET name = 'U' WHERE slug = 't'")
    assert one.execute("SELECT name FROM runs_team").fetchall() == [("U",)]
    one.execute("DELETE FROM runs_team")


def test_migrate_heals_privileges_that_someone_widened(connect: Connect, owner_url: str) -> None:
    table = settings.APPEND_ONLY_TABLES[0]
    with psycopg.connect(owner_url, autocommit=True) as owner:
        owner.execute(f"GRANT ALL ON {table} TO {settings.RECOURSE_APP_GROUP}")
        asked = (
            "SELECT has_table_privilege(%s, %s, 'UPDATE, TRUNCATE')",
            [settings.RECOURSE_APP_GROUP, table],
        )
        assert owner.execute(*asked).fetchone() == (True,)
        call_command("migrate", verbosity=0)
        assert owner.execute(*asked).fetchone() == (False,)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connect().execute(f"TRUNCATE {table}")


def test_after_migrate_the_process_is_the_application_again() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user")
        before = cursor.fetchone()
    call_command("migrate", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user")
        assert cursor.fetchone() == before


def test_migrate_without_the_owners_login_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "RECOURSE_DATABASE_OWNER_URL", "")
    with pytest.raises(CommandError, match="DATABASE_OWNER_URL is not set"):
        call_command("migrate", verbosity=0)


def test_migrate_without_the_group_says_where_roles_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "RECOURSE_APP_GROUP", "recourse_nobody")
    with pytest.raises(CommandError, match=r"recourse_nobody doesn't exist.*docs/operating\.md"):
        call_command("migrate", verbosity=0)
