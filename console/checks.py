"""What must hold before a process serves: commits that last, and a role that can't rewrite history.

The same questions are system checks (`manage.py check --database default`) and a refusal at start-up of
the web server and of Celery, so that a mistake is met before the first effect is journaled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.checks import Warning as Warned
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections

from reconciliation import place
from reconciliation.providers import registry

# Commits wait for the disk in these modes; `off` reports success before anything is durable.
DURABLE_COMMITS = {"on", "local", "remote_write", "remote_apply"}
# HMAC-SHA-256 mints with it: a shorter key than the hash is weaker than the hash (RFC 2104, section 3).
KEY_SECRET_BYTES_MIN = 32


def forgetful(*, alias: str = "default") -> list[str]:
    """Say why this database could lose what it has acknowledged; an empty list when it can't."""
    reasons: list[str] = []
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT current_setting('fsync'), current_setting('synchronous_commit')")
        fsync, synchronous_commit = cursor.fetchone()
    if fsync != "on":
        reasons.append(
            "The database runs with fsync off: a crash of its machine would lose operations that were "
            "already sent. Set fsync = on."
        )
    if synchronous_commit not in DURABLE_COMMITS:
        reasons.append(
            "The database answers commits before they are durable (synchronous_commit is off for this "
            "role or database): a crash would forget operations that were already sent. Set it to on."
        )
    return reasons


def rewritable(*, alias: str = "default") -> list[str]:
    """Say in one sentence which append-only tables the role could rewrite; an empty list when none."""
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT name, current_user FROM unnest(%s::text[]) WITH ORDINALITY AS listed (name, position)"
            " WHERE to_regclass(quote_ident(name)) IS NOT NULL"
            " AND has_table_privilege(quote_ident(name), 'UPDATE, DELETE, TRUNCATE') ORDER BY position",
            [list(settings.APPEND_ONLY_TABLES)],
        )
        found = cursor.fetchall()
    if not found:
        return []
    tables, role = ", ".join(name for name, _ in found), found[0][1]
    reason = (
        f"The database role {role} may change or delete rows of {tables}. DATABASE_URL must log in as a "
        "member of recourse_app, not as the owner or a superuser."
    )
    return [reason]


def unsafe_settings() -> list[str]:
    """Say which settings must not serve; an empty list when none."""
    if settings.RECOURSE_SECRETS_ARE_TEMPORARY:
        reason = (
            "RECOURSE_SECRET_KEY and RECOURSE_KEY_SECRET must be set: without the first no login outlives a "
            "process, without the second an operation's idempotency key can't be minted again."
        )
        return [reason]
    length = len(settings.RECOURSE_KEY_SECRET.encode())
    if length < KEY_SECRET_BYTES_MIN and not settings.DEBUG:
        reason = (
            f"RECOURSE_KEY_SECRET must be {KEY_SECRET_BYTES_MIN} bytes or more and is {length}: whoever"
            " guesses it mints idempotency keys and marks of leases like ours. Use a long random one, made"
            " once and kept with the backups; operations on record keep the keys stored with them."
        )
        return [reason]
    return []


@register(Tags.database)
def check_database(*, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Report a forgetful database in `manage.py check --database default` and before `migrate`.

    Not the role's privileges (`check_role`): `migrate` runs as the owner, who may change every table.
    """
    reasons = [reason for alias in databases or [] for reason in forgetful(alias=alias)]
    return [Error(reason, id="recourse.E001") for reason in reasons]


@register(Tags.database, deploy=True)
def check_role(*, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Report a role that may rewrite history in `manage.py check --deploy --database default`.

    With `--deploy` only, which is asked as the application: `migrate` checks too, and as the owner.
    """
    reasons = [reason for alias in databases or [] for reason in rewritable(alias=alias)]
    return [Error(reason, id="recourse.E004") for reason in reasons]


@register(Tags.security, deploy=True)
def check_settings(**_: Any) -> list[CheckMessage]:
    """`manage.py check --deploy` reports settings that must not serve."""
    found: list[CheckMessage] = [Error(reason, id="recourse.E002") for reason in unsafe_settings()]
    told = settings.RECOURSE_MAIL_CONFIGURED or settings.RECOURSE_NOTIFY_WEBHOOKS
    if told and not settings.RECOURSE_PUBLIC_URL:
        found.append(
            Warned(
                "People are told by mail or webhook, and RECOURSE_PUBLIC_URL isn't set: messages hold no"
                " links into the console.",
                id="recourse.W001",
            )
        )
    return found


@register()
def check_providers(**_: Any) -> list[CheckMessage]:
    """Report every fault of every provider file, in `manage.py check` and before whatever command checks."""
    return [Error(reason, id="recourse.E003") for reason in registry.problems()]


def refuse_unless_safe() -> None:
    """Raise `ImproperlyConfigured`, in one sentence per reason, when this process must not serve."""
    reasons = [*unsafe_settings(), *registry.problems()]
    try:
        reasons += forgetful() + rewritable()
    except DatabaseError as error:
        raise ImproperlyConfigured(
            f"Recourse did not start: the database could not be asked whether it keeps its commits ({error})."
        ) from error
    finally:
        connections.close_all()
    if reasons:
        raise ImproperlyConfigured("Recourse did not start. " + " ".join(reasons))
    try:
        # Before the first request or task: a database that has moved must send nothing.
        place.check_at_start()
    except DatabaseError as error:
        raise ImproperlyConfigured(
            f"Recourse did not start: it could not be told whether this database is a copy ({error})."
        ) from error
    finally:
        connections.close_all()
