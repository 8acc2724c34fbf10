"""`manage.py crashlab`: kill real agents in every crash window and count what happened at the provider."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from console.crashlab.lab import open_lab, run_trials
from console.crashlab.trials import PROVIDERS, WINDOWS
from console.embedded import folders

TRIALS = len(WINDOWS) * len(PROVIDERS)


class Command(BaseCommand):
    help = (
        "Start servers, web, worker, beat and the sandbox provider; kill agents with SIGKILL in every "
        "crash window; let successors and a person finish; print one JSON object of counts."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--trials", type=int, default=TRIALS, help="trials in all, windows in turn")
        parser.add_argument("--json", action="store_true", help="print the JSON object alone")
        parser.add_argument("--keep", type=Path, help="keep data and logs in this folder")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["trials"] < 1:
            raise CommandError("--trials must be at least 1.")
        # Progress goes to standard error, so that standard output is the JSON object.
        say = (lambda _text: None) if options["json"] else self._say
        with folders.temporary("recourse-crashlab-") as folder:
            where = options["keep"].absolute() if options["keep"] else folder
            where.mkdir(parents=True, exist_ok=True)
            with open_lab(where, say=say) as lab:
                counts = run_trials(lab, trials=options["trials"], say=say)
        self.stdout.write(json.dumps(counts, indent=2))
        if counts["problems"] or counts["duplicates"] or counts["losses"] or counts["wrong_confirmations"]:
            raise CommandError("The trials did not all end as they should; see problems above.")

    def _say(self, text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
