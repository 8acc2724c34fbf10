"""Who may do what, and under which name a person acts: asked by pages and API alike.

What a person sees is limited by their teams, what they do by their roles; no role reaches beyond the teams.
Another team's id is answered like one that doesn't exist.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from django.http import HttpRequest

from console.models import Person, Role
from reconciliation.approval_models import ApprovalDeed
from reconciliation.bulk_models import BulkDeed
from reconciliation.standing import Standing
from reconciliation.working import Worker
from runs.actors import Actor, ActorKind

# Before a person's primary key, in every record of what they did.
ACTOR_PREFIX: Final = "person:"
# In the session: when the person there last showed that it is them, in seconds since 1970.
REAUTHENTICATED_KEY: Final = "reauthenticated_at"
# A second pair of eyes is worth nothing if it is only an unlocked screen.
REAUTHENTICATED_SECONDS_MAX: Final = 5 * 60


class Deed(StrEnum):
    """What somebody may want to do in the console."""

    # Read cases, runs and the effect history.
    VIEW = "view"
    # Confirm, retry, abandon, accept, compensate.
    DECIDE = "decide"
    # Let a case be looked up now: read-only at the provider, but it costs its rate limit.
    LOOK_UP = "look_up"
    # Attach what they found out to a case; it settles nothing by itself.
    ATTACH = "attach"
    # Be shown what is hidden in a payload or in evidence, with a reason that stays on record.
    REVEAL = "reveal"
    # Take entries of the effect history out as a file, or a case on paper.
    EXPORT = "export"
    # Work on a case with others: claim it, note something, put it off.
    WORK = "work"
    # Take a worker's lease away.
    REVOKE_LEASE = "revoke_lease"
    # Take back a granted retry that nobody has used.
    WITHDRAW_RETRY = "withdraw_retry"
    # Put one question to a provider on trial: it changes nothing, and it is a request with our credentials.
    TEST_LOOKUP = "test_lookup"
    # Trust a provider less than it promises.
    TIGHTEN = "tighten"
    # Say which database this is after a restore or copy, and let accounts send again.
    STATE_ENVIRONMENT = "state_environment"
    # Give accounts, roles, teams and tokens, and say what a flow's team decided about it.
    ADMINISTER = "administer"
    # Say which in-house API there is to send to, and what it promises.
    DECLARE = "declare"
    # Say who is told of what happens in a team, and have a message sent again; see what was told.
    SET_NOTIFICATIONS = "set_notifications"
    # Ask a second person for something about a run. About a case, whoever may decide it asks by deciding.
    REQUEST = "request"
    # Answer somebody else's request as the second person.
    APPROVE = "approve"


# An approver consents to what an operator asks for and so decides nothing alone; an auditor reads; an
# administrator runs the deployment.
ROLES_BY_DEED: Final[dict[Deed, tuple[Role, ...]]] = {
    Deed.VIEW: (Role.OPERATOR, Role.APPROVER, Role.AUDITOR, Role.ADMINISTRATOR, Role.VIEWER),
    Deed.DECIDE: (Role.OPERATOR,),
    Deed.LOOK_UP: (Role.OPERATOR, Role.APPROVER),
    Deed.ATTACH: (Role.OPERATOR, Role.APPROVER),
    Deed.REVEAL: (Role.OPERATOR, Role.APPROVER),
    Deed.EXPORT: (Role.AUDITOR, Role.ADMINISTRATOR),
    Deed.WORK: (Role.OPERATOR, Role.APPROVER),
    Deed.REVOKE_LEASE: (Role.OPERATOR,),
    Deed.WITHDRAW_RETRY: (Role.OPERATOR,),
    Deed.TEST_LOOKUP: (Role.OPERATOR,),
    Deed.TIGHTEN: (Role.ADMINISTRATOR,),
    Deed.STATE_ENVIRONMENT: (Role.ADMINISTRATOR,),
    Deed.DECLARE: (Role.ADMINISTRATOR,),
    Deed.ADMINISTER: (Role.ADMINISTRATOR,),
    Deed.SET_NOTIFICATIONS: (Role.ADMINISTRATOR,),
    Deed.REQUEST: (Role.OPERATOR, Role.APPROVER),
    Deed.APPROVE: (Role.APPROVER,),
}


# What doing something with many cases at once takes, for each of them.
DEEDS_IN_BULK: Final[dict[BulkDeed, Deed]] = {
    BulkDeed.CLAIM: Deed.WORK,
    BulkDeed.ASSIGN: Deed.WORK,
    BulkDeed.LOOK_UP: Deed.LOOK_UP,
    BulkDeed.DECIDE: Deed.DECIDE,
}
# What asking for a second person's consent, and giving it, takes.
DEEDS_IN_APPROVALS: Final[dict[ApprovalDeed, Deed]] = {
    ApprovalDeed.DECIDE: Deed.DECIDE,
    ApprovalDeed.REQUEST: Deed.REQUEST,
    ApprovalDeed.APPROVE: Deed.APPROVE,
}

# What a page says of whom a deed is for, after who is signed in.
_FOR_WHOM: Final[dict[Deed, str]] = {
    Deed.VIEW: "and only people with a role see cases and runs",
    Deed.DECIDE: "and decisions are for operators",
    Deed.LOOK_UP: "and lookups are asked for by operators and approvers",
    Deed.ATTACH: "and evidence is attached by operators and approvers",
    Deed.REVEAL: "and what is hidden is shown to operators and approvers",
    Deed.EXPORT: "and history is taken out by auditors and administrators",
    Deed.WORK: "and cases are worked on by operators and approvers",
    Deed.REVOKE_LEASE: "and leases are revoked by operators",
    Deed.WITHDRAW_RETRY: "and retries are withdrawn by operators",
    Deed.TEST_LOOKUP: "and lookups are tested by operators",
    Deed.TIGHTEN: "and contracts are tightened by administrators",
    Deed.STATE_ENVIRONMENT: "and only administrators say which database this is and what sends again",
    Deed.ADMINISTER: "and accounts are given by administrators",
    Deed.DECLARE: "and providers are declared by administrators",
    Deed.SET_NOTIFICATIONS: "and administrators say whom a team tells",
    Deed.REQUEST: "and operators and approvers ask for approvals",
    Deed.APPROVE: "and requests are answered by approvers",
}


def may(person: Person, deed: Deed) -> bool:
    """Whether the person's roles include this deed, in whatever teams they have."""
    return person.is_active and person.has_role(*ROLES_BY_DEED[deed])


def why_not(person: Person, deed: Deed) -> str:
    """Say why the person may not do it: one sentence for the page, "" if they may."""
    if may(person, deed):
        return ""
    held = _held(person)
    who = f"You are signed in as {held}" if held else "You hold no role"
    return f"{who}, {_FOR_WHOM[deed]}."


def reads_administration(person: Person) -> bool:
    """Whether they read what was administered for every team: by doing it or by auditing it."""
    return person.is_active and person.has_role(Role.AUDITOR, Role.ADMINISTRATOR)


def administers(person: Person) -> bool:
    """Whether what is administered is all theirs to see, whatever teams they have (decision 22)."""
    return may(person, Deed.ADMINISTER)


def teams_of(person: Person) -> tuple[str, ...]:
    """The slugs of the person's teams, in order: everything they can see belongs to one of these."""
    # Read with the person where they came by their session.
    known = getattr(person, "team_slugs", None)
    if known is not None:
        return tuple(known)
    return tuple(person.teams.order_by("slug").values_list("slug", flat=True))


def standing_of(*, actor: str, deed: BulkDeed | ApprovalDeed, team: str) -> Standing:
    """The person behind an actor's id as they are now, and why they may not do this to a case of the team.

    `settings.RECOURSE_STANDING`: what runs in somebody's name asks it anew at each step. `team` "": any.
    """
    number = actor.removeprefix(ACTOR_PREFIX)
    person = (
        Person.objects.filter(pk=int(number)).first() if number.isdecimal() and len(number) < 10 else None
    )
    if person is None:
        gone = Worker(actor=Actor(ActorKind.PERSON, actor), name="")
        return Standing(worker=gone, why_not="Their login is gone.")
    wanted = DEEDS_IN_BULK[deed] if isinstance(deed, BulkDeed) else DEEDS_IN_APPROVALS[deed]
    worker = Worker(actor=person_actor(person, for_deed=wanted), name=str(person))
    return Standing(worker=worker, why_not=_why_not_now(person, wanted, team), principal=principal_of(person))


def _why_not_now(person: Person, wanted: Deed, team: str) -> str:
    if not person.is_active:
        return f"The login of {person} is closed."
    if not may(person, wanted):
        held = _held(person)
        who = f"{person} is {held} now" if held else f"{person} holds no role any more"
        return f"{who}, {_FOR_WHOM[wanted]}."
    if team and team not in teams_of(person):
        return f"{person} isn’t in the case’s team."
    return ""


def _held(person: Person) -> str:
    return ", ".join(str(Role(role).label).lower() for role in person.roles if role in set(Role))


def person_actor(person: Person, *, for_deed: Deed | None = None) -> Actor:
    """The human being as the journal names them: one principal, whatever session or token they used.

    By primary key, which a change of login doesn't change; so four eyes are two human beings. Of several
    roles, the record has one that allows `for_deed`, where one is named.
    """
    order = (Role.OPERATOR, Role.APPROVER, Role.ADMINISTRATOR, Role.AUDITOR, Role.VIEWER)
    allowing = ROLES_BY_DEED[for_deed] if for_deed is not None else order
    held = sorted((one for one in order if person.has_role(one)), key=lambda one: one not in allowing)
    role = next(iter(held), None)
    return Actor(ActorKind.PERSON, f"{ACTOR_PREFIX}{person.pk}", str(role) if role else "")


def principal_of(person: Person) -> str:
    """The human being behind the account: two accounts with one principal never make four eyes."""
    return person.principal


def landing_of(person: Person) -> str:
    """The name of the page that somebody begins on: where the work of their role waits."""
    if person.has_role(Role.OPERATOR):
        return "queue"
    if person.has_role(Role.APPROVER):
        return "approval_list"
    return "effects" if person.has_role(Role.AUDITOR) else "queue"


def reauthenticated_at(request: HttpRequest) -> datetime | None:
    """When whoever sits at this session last showed that it is them, at sign-in or since; None if unknown."""
    at = request.session.get(REAUTHENTICATED_KEY)
    return datetime.fromtimestamp(at, UTC) if isinstance(at, int | float) else None


def note_reauthenticated(request: HttpRequest, *, at: datetime | None = None) -> None:
    """Note that the person at this session has shown that it is them: at `at`, or just now."""
    request.session[REAUTHENTICATED_KEY] = (at or datetime.now(UTC)).timestamp()


def has_just_reauthenticated(request: HttpRequest) -> bool:
    """Whether that is recent enough for what takes it: an answer to a request for approval."""
    at = reauthenticated_at(request)
    return at is not None and datetime.now(UTC) - at <= timedelta(seconds=REAUTHENTICATED_SECONDS_MAX)
