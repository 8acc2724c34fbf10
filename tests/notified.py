"""Channels and messages in every state, as pages show them; made by the outbox, sent by nobody."""

from __future__ import annotations

from datetime import timedelta

from console.models import Person
from console.notification_models import Channel, Happening, Medium, Message, Occurrence
from console.notifying import channels, delivering, packing
from console.notifying.occurring import _tell
from console.notifying.senders import NotTaken, Outcome, Taken
from reconciliation.models import Case
from runs.actors import Actor, ActorKind
from runs.locking import database_now
from tests import factories

ADMIN = Actor(ActorKind.PERSON, "person:99", "administrator")
REFUSED = NotTaken(because="The mail server refused the message (451).")
GONE = NotTaken(because="The mail server refused the address (550).", final=True)


def mailbox(address: str = "payments@example.com", *, team: str = factories.TEAM) -> Channel:
    """A mailbox of a team that hears of everything."""
    factories.make_team(team)
    return channels.add(
        team=team,
        teams=[team],
        medium=Medium.EMAIL,
        address=address,
        happenings=list(Happening),
        actor=ADMIN,
    )


def happened(case: Case, happening: Happening = Happening.NEEDS_DECISION, *, mark: str = "1") -> Occurrence:
    """Something happened to a case, and waits to be told."""
    occurrence = Occurrence.objects.create(
        happening=happening,
        subject=case.pk,
        mark=mark,
        team_slug=case.team_id,
        case_ref=case.pk,
        provider_slug=case.provider_slug,
        flow_name=case.flow_name,
        ends_at=case.worsens_at,
        happened_at=database_now(),
    )
    _tell([occurrence.pk])
    return occurrence


def message(
    case: Case, *outcomes: Outcome, mark: str, happening: Happening = Happening.NEEDS_DECISION
) -> None:
    """A message to everybody who hears of it, after these attempts."""
    happened(case, happening, mark=mark)
    packing.pack(now=database_now() + packing.GATHER + timedelta(seconds=1))
    # Packed at a time that is still to come.
    now = database_now()
    Message.objects.filter(attempts_count=0).update(next_attempt_at=now, made_at=now, tried_from_at=now)
    for outcome in outcomes:
        while (claimed := delivering._claim(without=set())) is not None:
            delivering._end(claimed, outcome)
        Message.objects.filter(state="waiting", because=REFUSED.because).update(
            next_attempt_at=database_now() + timedelta(minutes=4)
        )


def every_state(*, case: Case, conflict: Case, person: Person) -> None:
    """Delivered, not yet, given up, and one that waits to be packed; for a team's mailbox and a person."""
    mailbox(team=case.team_id)
    if person.email:
        channels.set_own(person=person, happenings=[Happening.NEEDS_DECISION, Happening.CONFLICT])
    message(case, Taken(), mark="1")
    message(conflict, GONE, mark="2", happening=Happening.CONFLICT)
    message(case, REFUSED, mark="3", happening=Happening.TIME_LIMIT_PASSED)
    happened(case, mark="4")
