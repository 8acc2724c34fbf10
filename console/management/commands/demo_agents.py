"""`manage.py demo_agents`: real agents, killed in their windows, so that the console has real cases."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from console.demoagents import table
from console.demoagents.acts import ACTS
from console.demoagents.asking import ask_to_raise
from console.demoagents.cast import Ending, Played, acts_to_play, configure_accounts, endings, play
from console.demoagents.stage import World
from console.models import ApiToken, Person, Scope, create_token
from console.sandbox.control import SandboxRefused

NEEDED = ("RECOURSE_URL", "RECOURSE_TOKEN", "SANDBOX_URL", "RECOURSE_STATE_DIR")
# Of the token with which the demo's person makes one decision; taken back when the acts are over.
PERSON_TOKEN_MINUTES = 15


class Command(BaseCommand):
    help = (
        "Run the demo's agents as real processes, kill them in their windows with SIGKILL, and print for "
        "each run what the provider counted, how it stands and what a person is asked. Runs of an earlier "
        "start are shown as they stand, not run again. Exit code 1 if something isn't as it should be. "
        f"The environment: {', '.join(NEEDED)}."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--again", action="store_true", help="run them all once more, with new runs")
        parser.add_argument(
            "--only",
            action="append",
            choices=[act.slug for act in ACTS],
            help="run this act alone; repeat for more",
        )
        parser.add_argument(
            "--person", default="operator", help="username of whoever makes the demo's one decision"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        # Ctrl-C ends this process at once; the agents die with it, and nobody waits for their acts.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        began = time.monotonic()
        given = self._environment()
        worker_token = self._worker_token(given["RECOURSE_TOKEN"])
        world = self._world(given, began)
        try:
            told = self._run(world, worker_token, options)
        except (httpx.HTTPError, SandboxRefused) as error:
            raise CommandError(f"Recourse and the sandbox provider must be running: {error}") from error
        self.stdout.write("")
        for line in table.lines(told):
            self.stdout.write(line)
        if not any(one.played for one in told):
            self.stdout.write(
                "\nThese runs are of an earlier start; `make demo DEMO_ARGS=--again` adds new ones."
            )
        wrong = [f"{one.story.title}: {sentence}" for one in told for sentence in one.wrong]
        if wrong:
            raise CommandError("Not everything is as it should be:\n" + "\n".join(wrong))

    def _run(self, world: World, worker_token: ApiToken, options: dict[str, Any]) -> list[Ending]:
        configure_accounts(world.sandbox_url)
        chosen = [act for act in ACTS if not options["only"] or act.slug in options["only"]]
        acts = chosen if options["again"] else acts_to_play(world, chosen)
        played: list[Played] = []
        if acts:
            self.stdout.write(f"Running {len(acts)} acts of demo agents, and killing most of the agents …")
            with self._person_token(worker_token, options["person"]) as person_token:
                for one in play(replace(world, person_token=person_token), acts):
                    played.append(one)
                    said = "; ".join(one.wrong) or "done"
                    world.say(f"  {one.external_ids[one.act.slug]:<14} {said} ({len(played)} of {len(acts)})")
        self._ask(worker_token.team_id, options["person"])
        return endings(world, chosen, played)

    def _ask(self, team: str, username: str) -> None:
        """Let the demo's person ask a second one for what one person may not do."""
        person = Person.objects.filter(username=username, teams=team).first()
        if person is not None and ask_to_raise(team=team, person=person) is not None:
            self.stdout.write(f"{username} asked to raise a budget; an approver finds it under Approvals.")

    def _environment(self) -> dict[str, str]:
        given = {name: os.environ.get(name, "") for name in NEEDED}
        missing = [name for name, value in given.items() if not value]
        if missing:
            raise CommandError(
                f"Set {', '.join(missing)}. `manage.py demo` starts everything and runs the agents with it."
            )
        return given

    def _worker_token(self, secret: str) -> ApiToken:
        found = ApiToken.objects.usable().with_secret(secret).select_related("team").first()
        if found is None:
            raise CommandError("RECOURSE_TOKEN is unknown here, revoked or expired.")
        return found

    @contextmanager
    def _person_token(self, worker: ApiToken, username: str) -> Iterator[str]:
        """A short-lived token with which the demo's person decides, in the team of the agents' token."""
        person = Person.objects.filter(username=username, teams=worker.team).first()
        if person is None:
            raise CommandError(f"Team {worker.team.slug} has no person {username!r}; name one with --person.")
        made = create_token(
            team=worker.team,
            name="demo agents' decision",
            scopes=[Scope.READ, Scope.DECIDE],
            expires_at=timezone.now() + timedelta(minutes=PERSON_TOKEN_MINUTES),
            person=person,
        )
        try:
            yield made.secret
        finally:
            ApiToken.objects.filter(pk=made.token.pk).update(revoked_at=timezone.now())

    def _world(self, given: dict[str, str], began: float) -> World:
        folder = Path(given["RECOURSE_STATE_DIR"]) / "agents"
        folder.mkdir(parents=True, exist_ok=True)
        writing = threading.Lock()

        def say(text: str) -> None:
            with writing:
                self.stdout.write(f"{time.monotonic() - began:5.1f} s{text}")
                self.stdout.flush()

        # The agents know nothing of the journal but its address and their token.
        kept = ("PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH", "PYTHONUNBUFFERED", "VIRTUAL_ENV")
        environment = {name: os.environ[name] for name in kept if name in os.environ}
        environment.setdefault("PYTHONPATH", os.pathsep.join(sys.path))
        return World(
            url=given["RECOURSE_URL"],
            sandbox_url=given["SANDBOX_URL"],
            agent_token=given["RECOURSE_TOKEN"],
            person_token="",
            environment=environment,
            folder=folder,
            say=say,
        )
