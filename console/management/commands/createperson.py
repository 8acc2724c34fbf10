"""`manage.py createperson`: make a login, or give one other roles, teams and a new password."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Sequence
from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from console import people
from console.models import Person, Role
from runs.models import Team
from runs.refusals import Refusal


class Command(BaseCommand):
    help = "Make a person's login, or set the roles, teams and password of one that exists."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")
        parser.add_argument(
            "--team", required=True, action="append", help="slug of a team they belong to; repeat for more"
        )
        parser.add_argument(
            "--role",
            required=True,
            action="append",
            choices=Role.values,
            help="what they may do; repeat for more. A person has exactly the roles and teams given last",
        )
        parser.add_argument("--create-team", action="store_true", help="make the teams that don't exist")
        parser.add_argument(
            "--password-stdin",
            action="store_true",
            help="read the password from standard input instead of asking for it twice",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        password = _from_stdin() if options["password_stdin"] else _asked_twice()
        with transaction.atomic():
            teams = [self._team(slug, create=options["create_team"]) for slug in options["team"]]
            person = Person.objects.filter(username=options["username"]).first()
            made = person is None
            person = person or Person(username=options["username"])
            try:
                if not made:
                    people.keep_an_administrator(person, roles=options["role"])
            except Refusal as refusal:
                raise CommandError(refusal.sentence) from refusal
            person.roles = sorted(set(options["role"]))
            try:
                validate_password(password, person)
                person.set_password(password)
                person.full_clean(exclude=["teams"])
            except ValidationError as error:
                raise CommandError(" ".join(error.messages)) from error
            person.save()
            person.teams.set(teams)
            people.note_by_command(person, made=made)
        self.stdout.write(_said(person, teams, made=made))

    def _team(self, slug: str, *, create: bool) -> Team:
        if create:
            return Team.objects.get_or_create(slug=slug, defaults={"name": slug})[0]
        try:
            return Team.objects.get(slug=slug)
        except Team.DoesNotExist:
            raise CommandError(f"There is no team {slug!r}; --create-team makes it.") from None


def _said(person: Person, teams: Sequence[Team], *, made: bool) -> str:
    where = ", ".join(team.slug for team in teams)
    return f"{'Made' if made else 'Changed'} {person.username}: {', '.join(person.roles)} of {where}."


def _from_stdin() -> str:
    return sys.stdin.readline().rstrip("\r\n")


def _asked_twice() -> str:
    if not sys.stdin.isatty():
        raise CommandError("There is no terminal to ask for a password; use --password-stdin.")
    password = getpass.getpass("Password: ")
    if getpass.getpass("Once more: ") != password:
        raise CommandError("The two passwords differ; nothing was changed.")
    return password
