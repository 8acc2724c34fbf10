"""`manage.py outage_drill`: many unknown outcomes after an outage, and what the provider sees of it."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError, CommandParser

from console.drill.lab import Drill, DrillFailed, run_drill
from console.embedded import folders


class Command(BaseCommand):
    help = (
        "Start servers, workers and beat, open many cases at a provider that is away, bring it back, and "
        "count at the provider how it was asked; print one JSON object of figures."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--cases", type=int, default=10_000, help="unknown outcomes (default 10,000)")
        parser.add_argument("--workers", type=int, default=8, help="worker processes (default 8)")
        parser.add_argument(
            "--per-second",
            type=float,
            default=50,
            help="lookups a second that the account allows (default 50)",
        )
        parser.add_argument(
            "--base-seconds", type=float, default=1.0, help="first wait between two lookups of a case"
        )
        parser.add_argument("--sweep-seconds", type=float, default=5.0, help="the sweeper's period")
        parser.add_argument("--seconds-max", type=float, default=3_600, help="give up after so long")
        parser.add_argument("--json", action="store_true", help="print the JSON object alone")
        parser.add_argument("--keep", type=Path, help="keep data and logs in this folder")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["cases"] < 1 or options["workers"] < 1 or options["per_second"] <= 0:
            raise CommandError("--cases and --workers must be at least 1, and --per-second above zero.")
        # So that servers and folders go with it, however it is ended.
        signal.signal(signal.SIGTERM, _stop)
        drill = Drill(
            cases=options["cases"],
            workers=options["workers"],
            per_second=options["per_second"],
            base_seconds=options["base_seconds"],
            sweep_seconds=options["sweep_seconds"],
            seconds_max=options["seconds_max"],
        )
        # Progress goes to standard error, so that standard output is the JSON object.
        say = (lambda _text: None) if options["json"] else self._say
        with folders.temporary("recourse-drill-") as folder:
            where = options["keep"].absolute() if options["keep"] else folder
            where.mkdir(parents=True, exist_ok=True)
            try:
                figures = run_drill(drill, folder=where, say=say)
            except DrillFailed as failed:
                raise CommandError(str(failed)) from failed
        self.stdout.write(json.dumps(figures, indent=2))
        if problems := _problems(drill, figures):
            raise CommandError("The drill did not go as it should: " + "; ".join(problems) + ".")

    def _say(self, text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def _problems(drill: Drill, figures: dict[str, Any]) -> list[str]:
    """What the figures must not show."""
    problems = []
    if figures["lookups_of_one_second_max"] > drill.per_second:
        problems.append(f"{figures['lookups_of_one_second_max']} lookups within one second")
    if figures["left"]:
        problems.append(f"{figures['left']} cases neither settled nor with a person")
    if figures["wrong"]:
        problems.append(f"{figures['wrong']} cases ended otherwise than the provider's record says")
    if figures["lookups_of_one_case_at_once_max"] > 1:
        problems.append("two lookups of one case at once")
    if figures["requests_that_change"]:
        problems.append("something was sent")
    return problems
