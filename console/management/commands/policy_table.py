"""`manage.py policy_table`: write docs/policy.md from the policy, or only check it."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from console import policy_table


class Command(BaseCommand):
    help = "Bring docs/policy.md in line with the policy."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true", help="change nothing; fail if they differ")

    def handle(self, *args: Any, **options: Any) -> None:
        page = settings.BASE_DIR / "docs" / "policy.md"
        due = policy_table.page()
        if page.exists() and page.read_text() == due:
            return
        if options["check"]:
            raise CommandError("docs/policy.md is behind the policy: run manage.py policy_table.")
        page.write_text(due)
        self.stdout.write("docs/policy.md is in line with the policy again.")
