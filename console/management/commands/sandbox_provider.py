"""`manage.py sandbox_provider`: the outside system that demo, tests and crash lab send to."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from console.sandbox import command


class Command(BaseCommand):
    help = "Run the sandbox provider on 127.0.0.1 until SIGTERM or SIGINT (docs/sandbox.md)."
    # It touches neither our database nor our settings: it is somebody else's system.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        command.add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        code = command.run(
            port=options["port"], store_path=options["store"], die_with_parent=options["die_with_parent"]
        )
        sys.exit(code)
