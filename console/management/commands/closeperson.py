"""`manage.py closeperson`: close a login: out at once, with every session and every token."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from console import people
from console.models import Person
from runs.refusals import Refusal


class Command(BaseCommand):
    help = "Close a person's login: its sessions end and its tokens are revoked, at once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--reason", required=True, help="why, for the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        person = Person.objects.filter(username=options["username"]).first()
        if person is None:
            raise CommandError(f"There is no person with username {options['username']!r}.")
        try:
            people.close(by=people.COMMAND_LINE, person_id=person.pk, reason=options["reason"])
        except Refusal as refusal:
            raise CommandError(refusal.sentence) from refusal
        self.stdout.write(f"The login of {person.username} is closed.")
