"""`manage.py webhooks`: what the providers' notices came to, and what was refused."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from console.queries.webhooks import LISTED_MAX, latest_notices, latest_refusals


class Command(BaseCommand):
    help = "List the latest notices of the providers, and how many were refused or of no use, by hour."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--account", help="only this provider account's")
        parser.add_argument("--last", type=int, default=50, help=f"how many of each, at most {LISTED_MAX}")

    def handle(self, *args: Any, **options: Any) -> None:
        account, limit = options["account"], max(options["last"], 0)
        self.stdout.write("Notices that the provider signed:")
        for notice in latest_notices(account=account, limit=limit):
            about = notice.operation or notice.reference or "-"
            self._line(
                f"{notice.received_at:%Y-%m-%d %H:%M:%S}Z",
                notice.account,
                notice.outcome,
                notice.event_type or "-",
                notice.event_id,
                about,
                f"{notice.deliveries_count}x",
                notice.summary,
            )
        self.stdout.write("Refused, or of no use, by the hour:")
        for refused in latest_refusals(account=account, limit=limit):
            self._line(
                f"{refused.hour_at:%Y-%m-%d %H}h",
                refused.account,
                refused.reason,
                f"{refused.count}x",
                f"latest from {refused.last_from or 'unknown'}",
                f"{refused.last_length} bytes",
                refused.last_digest[:16] or "-",
            )

    def _line(self, *parts: str) -> None:
        # What a provider wrote mustn't act on a terminal.
        line = "  ".join(parts)
        self.stdout.write("  " + "".join(one if one.isprintable() else "\ufffd" for one in line))
