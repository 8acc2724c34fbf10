"""`manage.py migrate`: Django's own, as the database's owner, and then the application's privileges."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.core.management.commands.migrate import Command as DjangoMigrate
from django.db import connections, transaction

from console import privileges
from console.variables import database

# Two deployments that migrate at once wait for each other; any number that nothing else locks.
MIGRATION_LOCK = 7_245_301
# A migration that can't get a table's lock gives up instead of stopping every write behind it.
LOCK_TIMEOUT = "10s"


class Command(DjangoMigrate):
    help = (
        "Bring the database to this version's schema as its owner (DATABASE_OWNER_URL), then grant the "
        "application's role what it needs and nothing more."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        alias = options["database"]
        reads_only = options["check_unapplied"] or options["plan"]
        with as_owner(alias=alias):
            connection = connections[alias]
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_lock(%s)", [MIGRATION_LOCK])
                cursor.execute("SELECT set_config('lock_timeout', %s, false)", [LOCK_TIMEOUT])
            super().handle(*args, **options)
            if reads_only:
                return
            try:
                with transaction.atomic(using=alias), connection.cursor() as cursor:
                    privileges.apply(
                        cursor=cursor,
                        group=settings.RECOURSE_APP_GROUP,
                        append_only=settings.APPEND_ONLY_TABLES,
                        never_deleted=settings.NEVER_DELETED_TABLES,
                    )
            except LookupError as error:
                raise CommandError(
                    f"{error} The schema is up to date, but the application may not use it yet: create the "
                    "roles as in docs/operating.md and migrate again."
                ) from error


@contextmanager
def as_owner(*, alias: str) -> Iterator[None]:
    """Let the alias log in as the owner for a while; the database stays the one that it names now."""
    url = settings.RECOURSE_DATABASE_OWNER_URL
    if not url:
        raise CommandError(
            "DATABASE_OWNER_URL is not set. Migrations run as the database's owner; the application never "
            "does."
        )
    connection = connections[alias]
    before = dict(connection.settings_dict)
    owner = {name: value for name, value in database(url).items() if name != "NAME"}
    connection.close()
    connection.settings_dict.update(owner)
    try:
        yield
    finally:
        # Closing ends the session and with it the migration lock.
        connection.close()
        connection.settings_dict.update({name: before[name] for name in owner if name in before})
