"""`manage.py createtoken`: make a bearer token; its secret is printed once and stored nowhere."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction
from django.utils import timezone

from console import people, tokens
from console.models import Person, Scope, create_token
from runs.models import Team
from runs.refusals import Refusal

DAYS_DEFAULT = 90
DAYS_MAX = 366  # a token nobody has thought about for a year should stop working


class Command(BaseCommand):
    help = "Make an API token for a team. The secret goes to standard output, once; keep it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--team", required=True, help="slug of the team whose runs it may see")
        parser.add_argument(
            "--scope",
            required=True,
            action="append",
            choices=Scope.values,
            help="what it may do; repeat for more. journal and decide never go together",
        )
        parser.add_argument("--name", required=True, help="what it is for, as shown in the audit log")
        parser.add_argument("--person", help="username of whoever decides with it; required for scope decide")
        parser.add_argument("--days", type=int, default=DAYS_DEFAULT, help=f"days it lasts, 1 to {DAYS_MAX}")
        parser.add_argument("--create-team", action="store_true", help="make the team if there is none")

    def handle(self, *args: Any, **options: Any) -> None:
        if not 1 <= options["days"] <= DAYS_MAX:
            raise CommandError(f"--days must be 1 to {DAYS_MAX}.")
        with transaction.atomic():
            team = self._team(options["team"], create=options["create_team"])
            try:
                made = create_token(
                    team=team,
                    name=options["name"],
                    scopes=[Scope(scope) for scope in options["scope"]],
                    expires_at=timezone.now() + timedelta(days=options["days"]),
                    person=self._person(options["person"]),
                )
            except Refusal as refusal:
                raise CommandError(refusal.sentence) from refusal
            tokens.note_made(made.token, actor=people.COMMAND_LINE.actor)
        self.stderr.write(
            f"Token {made.token.id} of team {team.slug}, {', '.join(made.token.scopes)}, until "
            f"{made.token.expires_at:%Y-%m-%d %H:%M} UTC. The secret is shown this once:"
        )
        self.stdout.write(made.secret)

    def _team(self, slug: str, *, create: bool) -> Team:
        if create:
            return Team.objects.get_or_create(slug=slug, defaults={"name": slug})[0]
        try:
            return Team.objects.get(slug=slug)
        except Team.DoesNotExist:
            raise CommandError(f"There is no team {slug!r}; --create-team makes it.") from None

    def _person(self, username: str | None) -> Person | None:
        if username is None:
            return None
        try:
            return Person.objects.get(username=username)
        except Person.DoesNotExist:
            raise CommandError(f"There is no person with username {username!r}.") from None
