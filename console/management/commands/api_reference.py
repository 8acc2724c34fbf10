"""`manage.py api_reference`: write the tables of calls and words into docs/api.md, or only check them."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from console.api import reference
from console.api.assembly import api


class Command(BaseCommand):
    help = "Bring the tables of docs/api.md in line with the API."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true", help="change nothing; fail if they differ")

    def handle(self, *args: Any, **options: Any) -> None:
        page = settings.BASE_DIR / "docs" / "api.md"
        written = page.read_text()
        due = reference.renewed(written, api.get_openapi_schema())
        if written == due:
            return
        if options["check"]:
            raise CommandError("docs/api.md is behind the API: run manage.py api_reference.")
        page.write_text(due)
        self.stdout.write("docs/api.md is in line with the API again.")
