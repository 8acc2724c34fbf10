"""`manage.py flow_policy`: what a flow's team has decided about it, on record with whoever says so."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from console import access
from console.models import Person, Role
from runs import audit
from runs.models import Flow


class Command(BaseCommand):
    help = "Let the policy repeat a flow's effects once by itself where the contract makes that safe, or not."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("team", help="slug of the flow's team")
        parser.add_argument("flow", help="the flow's name")
        parser.add_argument("--automatic-repeat", required=True, choices=["off", "safe"])
        parser.add_argument("--by", required=True, help="login of the administrator who decided it")
        parser.add_argument("--reason", required=True)

    def handle(self, *args: Any, **options: Any) -> None:
        person = Person.objects.filter(username=options["by"], is_active=True).first()
        if person is None or not person.has_role(Role.ADMINISTRATOR):
            raise CommandError(f"{options['by']} is no administrator.")
        with transaction.atomic():
            flow = Flow.objects.select_for_update().filter(team=options["team"], name=options["flow"]).first()
            if flow is None:
                raise CommandError(f"Team {options['team']} has no flow {options['flow']}.")
            before, flow.automatic_repeat = flow.automatic_repeat, options["automatic_repeat"]
            flow.save(update_fields=["automatic_repeat"])
            audit.append(
                audit.Event(
                    action="flow.policy_changed",
                    actor=access.person_actor(person),
                    team=flow.team_id,
                    subject=flow.pk,
                    before={"automatic_repeat": before},
                    after={"automatic_repeat": flow.automatic_repeat},
                    reason=options["reason"],
                )
            )
        self.stdout.write(f"{flow.name}: automatic repeats {flow.automatic_repeat}.")
