"""`manage.py revoketoken`: revoke an API token by its id, which the tokens page and `createtoken` show."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from console import people, tokens
from runs.refusals import Refusal


class Command(BaseCommand):
    help = "Revoke an API token: whoever calls with it is refused within seconds, in every process."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("token", help="the token's id (tok_…), not its secret")
        parser.add_argument("--reason", required=True, help="why, for the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            reason = people.checked_reason(options["reason"])
            token = tokens.revoke_token(by=people.COMMAND_LINE, token_id=options["token"], reason=reason)
        except Refusal as refusal:
            raise CommandError(refusal.sentence) from refusal
        self.stdout.write(f"{token.name} ({token.pk}) is revoked.")
