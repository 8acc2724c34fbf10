"""People with logins, as four eyes need them: real accounts, each a human being of its own unless said."""

from __future__ import annotations

from console.access import person_actor
from console.models import Person, Role
from reconciliation.approval_models import ApprovalRequest
from reconciliation.making_absent_models import AbsenceRequest
from reconciliation.persons import Worker
from runs.actors import Actor
from tests.conftest import _owner
from tests.factories import TEAM, make_team


def make_person(username: str, *roles: Role, team: str = TEAM, same_human_as: Person | None = None) -> Person:
    """An account with these roles in the team; found again by its name."""
    person, _ = Person.objects.get_or_create(username=username)
    person.roles = sorted(str(role) for role in roles)
    if same_human_as is not None:
        person.principal = same_human_as.principal
    person.save()
    person.teams.set([make_team(team)])
    return person


def worker_of(person: Person) -> Worker:
    """The person as the domain knows whoever acts."""
    return Worker(actor=person_actor(person), name=person.username.title())


def operator(username: str = "maya", *, team: str = TEAM) -> Worker:
    return worker_of(make_person(username, Role.OPERATOR, team=team))


def approver(username: str = "dana", *, team: str = TEAM) -> Worker:
    return worker_of(make_person(username, Role.APPROVER, team=team))


def operator_actor(username: str = "maya") -> Actor:
    return operator(username).actor


def person_of(worker: Worker) -> Person:
    """The account behind a worker."""
    return Person.objects.get(pk=int(worker.actor.id.removeprefix("person:")))


def end_absence_request(request: AbsenceRequest) -> None:
    """Let the time pass after which a request to make an effect absent can no longer take effect."""
    owner = _owner.get()
    with owner.transaction():
        owner.execute("ALTER TABLE reconciliation_absencerequest DISABLE TRIGGER USER")
        owner.execute(
            "UPDATE reconciliation_absencerequest SET sent_at = sent_at - interval '1 hour',"
            " quiet_after_at = quiet_after_at - interval '1 hour' WHERE id = %s",
            [request.pk],
        )
        owner.execute("ALTER TABLE reconciliation_absencerequest ENABLE TRIGGER USER")


def end_request_in(approval: ApprovalRequest, seconds: float) -> None:
    """Let a request's time end so many seconds from now; it needs a committed request.

    As the owner and past the trigger that keeps what was asked, for nobody else can.
    """
    owner = _owner.get()
    with owner.transaction():
        owner.execute("ALTER TABLE reconciliation_approvalrequest DISABLE TRIGGER USER")
        owner.execute(
            "UPDATE reconciliation_approvalrequest SET requested_at = clock_timestamp() - interval '1 day',"
            " expires_at = clock_timestamp() + %s * interval '1 s' WHERE id = %s",
            [seconds, approval.pk],
        )
        owner.execute("ALTER TABLE reconciliation_approvalrequest ENABLE TRIGGER USER")
