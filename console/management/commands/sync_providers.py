"""`manage.py sync_providers`: take the declared provider accounts into the journal."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from reconciliation.accounts import sync_accounts


class Command(BaseCommand):
    help = "Copy the timing and pins of every declared provider account into the journal's table."

    def handle(self, *args: Any, **options: Any) -> None:
        slugs = sync_accounts()
        self.stdout.write(f"{len(slugs)} provider accounts: {', '.join(slugs)}")
