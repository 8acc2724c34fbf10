"""`manage.py provider_docs`: write the shipped providers' pages into docs/providers, or only check them."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from console import provider_docs


class Command(BaseCommand):
    help = "Bring the pages of docs/providers in line with the shipped declarations."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true", help="change nothing; fail if they differ")

    def handle(self, *args: Any, **options: Any) -> None:
        folder = settings.BASE_DIR / "docs" / "providers"
        made = provider_docs.pages()
        pages = {path.name: path.read_text() for path in folder.glob("*.md")}
        gone = [name for name, text in pages.items() if provider_docs.MADE in text and name not in made]
        due = {name: text for name, text in made.items() if pages.get(name) != text}
        if options["check"]:
            if due or gone:
                names = ", ".join(sorted([*due, *gone]))
                raise CommandError(f"Behind the declarations: {names}. Run manage.py provider_docs.")
            return
        for name, text in due.items():
            (folder / name).write_text(text)
        for name in gone:
            (folder / name).unlink()
        self.stdout.write(f"{len(due)} pages written, {len(gone)} removed, of {len(made)}.")
