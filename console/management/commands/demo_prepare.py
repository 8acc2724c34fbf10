"""`manage.py demo_prepare`: the demo's schema, providers, people and token; a step of `manage.py demo`."""

from __future__ import annotations

import json
import secrets
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core.management import call_command, get_commands
from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction
from django.utils import timezone

from console.embedded.postgres import write_private
from console.models import ApiToken, Person, Role, Scope, create_token
from runs.models import Team

TEAM = "demo"
TOKEN_NAME = "demo agents"  # noqa: S105 - a name, shown in the audit log
TOKEN_DAYS = 30
LOGIN_ROLES = (Role.OPERATOR, Role.APPROVER, Role.AUDITOR, Role.ADMINISTRATOR)


class Command(BaseCommand):
    help = "Migrate, copy the providers' contracts, and make the demo's logins and agent token where missing."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--logins", type=Path, required=True, help="file of the logins; made if missing")

    def handle(self, *args: Any, **options: Any) -> None:
        call_command("migrate", verbosity=0)
        if "sync_providers" in get_commands():
            call_command("sync_providers", verbosity=0)
        file: Path = options["logins"]
        known: dict[str, Any] = {"logins": {}, "agent_token": "", "deciding_token": ""}
        if file.exists():
            known |= json.loads(file.read_text())
        with transaction.atomic():
            team, _ = Team.objects.get_or_create(slug=TEAM, defaults={"name": "Demo"})
            for role in LOGIN_ROLES:
                password = known["logins"].setdefault(str(role), secrets.token_urlsafe(9))
                _login(team=team, role=role, password=password)
            operator = Person.objects.get(username=str(Role.OPERATOR))
            _token(team, known, "agent_token", name=TOKEN_NAME, scopes=[Scope.JOURNAL, Scope.READ])
            _token(
                team,
                known,
                "deciding_token",
                name="the operator's own",
                scopes=[Scope.READ, Scope.DECIDE],
                person=operator,
            )
            # Inside the transaction: what the file doesn't tell must not be in the database either.
            write_private(file, json.dumps(known))


def _login(*, team: Team, role: Role, password: str) -> None:
    person, _ = Person.objects.get_or_create(username=str(role), defaults={"roles": [str(role)]})
    person.teams.add(team)
    if not person.check_password(password):
        person.set_password(password)
        person.save(update_fields=["password"])


def _token(
    team: Team,
    known: dict[str, Any],
    kept_as: str,
    *,
    name: str,
    scopes: list[Scope],
    person: Person | None = None,
) -> None:
    """Keep a token that still works; else make one, and put its secret into `known`."""
    if not ApiToken.objects.usable().with_secret(known[kept_as]).exists():
        until = timezone.now() + timedelta(days=TOKEN_DAYS)
        made = create_token(team=team, name=name, scopes=scopes, expires_at=until, person=person)
        known[kept_as] = made.secret
