"""`manage.py restored`: say that this database was restored or copied, and which it is."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.dateparse import parse_datetime

from console import access
from console.models import Person
from reconciliation import place, restoring
from runs.models import AccountReturn
from runs.refusals import Refusal
from runs.states import FreezeAnswer

ANSWERS = {
    "production": FreezeAnswer.PRODUCTION,
    "copy": FreezeAnswer.COPY,
    "own-environment": FreezeAnswer.OWN_ENVIRONMENT,
}


class Command(BaseCommand):
    help = (
        "Freeze sending, because this database was restored or copied, and say which it is. Run it after"
        " every restore, before web, worker and beat are started. It is safe to repeat."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--as",
            dest="answer",
            choices=list(ANSWERS),
            default="production",
            help="which database this is; production if nothing is said. A copy stays frozen",
        )
        parser.add_argument(
            "--backup-taken-at",
            help="for production: when the backup was taken, as 2026-11-30T14:05:00+00:00",
        )
        parser.add_argument("--by", required=True, help="login of the administrator who says so")
        parser.add_argument("--reason", required=True, help="why, for the audit log")
        parser.add_argument("--open", metavar="ACCOUNT", help="instead: let this account send again")

    def handle(self, *args: Any, **options: Any) -> None:
        person = Person.objects.filter(username=options["by"], is_active=True).first()
        if person is None or not access.may(person, access.Deed.STATE_ENVIRONMENT):
            raise CommandError(f"{options['by']} is no administrator.")
        try:
            if options["open"]:
                restoring.open_account(
                    account=options["open"], actor=access.person_actor(person), reason=options["reason"]
                )
                self.stdout.write(f"{options['open']} sends again.")
                return
            self._answer(person, options)
        except Refusal as refusal:
            raise CommandError(refusal.sentence) from refusal

    def _answer(self, person: Person, options: dict[str, Any]) -> None:
        taken_at = _instant(options["backup_taken_at"])
        answer = ANSWERS[options["answer"]]
        if answer is FreezeAnswer.PRODUCTION and taken_at is None:
            raise CommandError("--backup-taken-at is needed: what happened since then is looked for.")
        actor = access.person_actor(person)
        place.check_place()
        frozen = restoring.declare_restored(because=f"{person} said that it was restored.", actor=actor)
        restoring.answer_freeze(
            freeze_id=frozen.pk,
            answer=answer,
            backup_taken_at=taken_at,
            actor=actor,
            actor_name=str(person),
            reason=options["reason"],
        )
        self.stdout.write(f"Sending is frozen at every account ({frozen.pk}): {frozen.because}")
        if answer is FreezeAnswer.COPY:
            self.stdout.write("This is a copy: it stays frozen.")
            return
        count = AccountReturn.objects.filter(freeze=frozen).count()
        self.stdout.write(
            f"Worker and beat now look up what may have been sent at {count} accounts; the page /environment/"
            " shows how far that is."
        )


def _instant(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        at = parse_datetime(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise CommandError(f"{text} is no instant with its offset, such as 2026-11-30T14:05:00+00:00.")
    return at
