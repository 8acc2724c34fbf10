"""People's accounts: who there is, what they may do and see, and closing them. The only writer of `Person`.

Administrators change other people's accounts and never their own: whoever could give a role to themselves
would hold every role. Two accounts of one human being count as one here too. Whoever is closed is out at
once, with every session and every token. Each change is a leaf of the audit log, with its reason.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.password_validation import validate_password
from django.contrib.auth.tokens import default_token_generator
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_decode, urlsafe_base64_encode

from console import access, sessions, tokens
from console.models import Person, Role
from runs import audit
from runs.actors import Actor, ActorKind
from runs.journal.evidence import storable_text
from runs.models import Team
from runs.refusals import Invalid, NotFound, Refusal

# As for every change that an auditor reads: a reason has a few words in it.
REASON_LENGTH_MIN: Final = 10
REASON_LENGTH_MAX: Final = 4_000
USERNAME_LENGTH: Final = 150
# The provider of `settings.RECOURSE_IDENTITY_PROVIDER`.
SINGLE_SIGN_ON: Final = "sso"


class NotAnAdministrator(Refusal):
    """Only administrators change accounts, teams, tokens and flows."""

    word: ClassVar[str] = "forbidden"


class NotYourself(Refusal):
    """The account is the administrator's own, or another account of the same human being."""

    word: ClassVar[str] = "not_yourself"


class LastAdministrator(Refusal):
    """Without this account nobody could administer the console."""

    word: ClassVar[str] = "last_administrator"


class NameTaken(Refusal):
    """Another account, team or link has this name."""

    word: ClassVar[str] = "name_taken"


class AccountMoved(Refusal):
    """Somebody else changed the account since the form was shown."""

    word: ClassVar[str] = "account_moved"


class NothingChanged(Refusal):
    """Everything given is as it is already."""

    word: ClassVar[str] = "nothing_changed"


@dataclass(frozen=True, kw_only=True)
class By:
    """Who changes an account: an administrator, or whoever has the command line of the deployment."""

    actor: Actor
    principal: str = ""

    @classmethod
    def person(cls, person: Person) -> By:
        """Raises `NotAnAdministrator`."""
        if not person.is_active or not person.has_role(Role.ADMINISTRATOR):
            raise NotAnAdministrator("Only an administrator may do this.")
        actor = Actor(ActorKind.PERSON, f"{access.ACTOR_PREFIX}{person.pk}", str(Role.ADMINISTRATOR))
        return cls(actor=actor, principal=access.principal_of(person))


# Whoever can start commands can reach the database as well; their acts are on record as the machine's.
COMMAND_LINE: Final = By(actor=Actor(ActorKind.SYSTEM, "command-line"))
# Links people to itself where it says that it verified their address, and that is believed.
IDENTITY_PROVIDER: Final = By(actor=Actor(ActorKind.SYSTEM, "identity-provider"))


@dataclass(frozen=True, kw_only=True)
class Invited:
    """An account with the link by which its person chooses a password: the only time that anyone sees it."""

    person: Person
    uid: str
    token: str


def make_person(
    *,
    by: By,
    username: str,
    name: str,
    email: str,
    roles: Collection[Role],
    teams: Collection[str],
    reason: str,
    principal: str = "",
) -> Invited:
    """Make an account without a password and the invitation to choose one. Owns its transaction.

    `principal` is that of another account of the same human being. Raises `Invalid`, `NotFound` for a team
    that there isn't, `NotYourself` for a second account of the administrator's own, `NameTaken`.
    """
    username, name, email = username.strip(), " ".join(name.split()), email.strip()
    _check(username=username, name=name, email=email, roles=roles)
    said = checked_reason(reason)
    if principal and principal == by.principal:
        raise NotYourself("An account of your own is made by another administrator.")
    fields: dict[str, Any] = {"principal": principal} if principal else {}
    person = Person(
        username=username, first_name=name, email=email, roles=sorted(str(role) for role in roles), **fields
    )
    person.set_unusable_password()
    with transaction.atomic():
        require_still(by)
        chosen = _teams(teams)
        if email and Person.objects.filter(email__iexact=email).exists():
            raise NameTaken("Another account has this e-mail address.", where="email")
        try:
            with transaction.atomic():
                person.save(force_insert=True)
        except IntegrityError as error:
            if "person_email_once" in str(error):
                raise NameTaken("Another account has this e-mail address.", where="email") from None
            raise NameTaken(f"There is a login “{username}” already.", where="username") from None
        person.refresh_from_db()
        person.teams.set(chosen)
        _note(by, "person.made", person, after=standing(person), reason=said)
    return _invitation(person)


def invite(*, by: By, person_id: int, reason: str) -> Invited:
    """Make a link by which the person chooses a new password; the one they have fits until they do.

    Raises `Invalid`, `NotFound`, `NotYourself`.
    """
    said = checked_reason(reason)
    with transaction.atomic():
        person = _locked(by, person_id)
        _note(by, "person.invited", person, reason=said)
    return _invitation(person)


def accept_invitation(*, uid: str, token: str, password: str) -> Person:
    """Set the password that the person chose. A link works once, for a few days. Owns its transaction.

    Raises `NotFound` for a link that doesn't work (any more), `Invalid` for a password that isn't taken.
    """
    with transaction.atomic():
        person = invited(uid=uid, token=token, lock=True)
        try:
            validate_password(password, person)
        except ValidationError as error:
            raise Invalid(" ".join(error.messages), where="password1") from None
        person.set_password(password)
        person.save(update_fields=["password"])
        own = By(actor=access.person_actor(person))
        _note(own, "person.password_chosen", person)
        sessions.end_sessions(person=person, actor=own.actor, reason="New password.")
    return person


def invited(*, uid: str, token: str, lock: bool = False) -> Person:
    """Whose invitation this is. Raises `NotFound`."""
    try:
        number = int(urlsafe_base64_decode(uid))
    except (ValueError, UnicodeDecodeError):
        number = 0
    rows = Person.objects.select_for_update() if lock else Person.objects
    person = rows.filter(pk=number, is_active=True).first() if 0 < number < 2**63 else None
    if person is None or not default_token_generator.check_token(person, token):
        raise NotFound("This link doesn’t work any more: it was used, replaced, or is too old.")
    return person


def change_access(
    *, by: By, person_id: int, roles: Collection[Role], teams: Collection[str], seen: str, reason: str
) -> Person:
    """Give the person exactly these roles and teams. Owns its transaction.

    `seen` is `seen_of` as the form was shown with. Refuses in this order, having changed nothing: `Invalid`,
    `NotFound`, `NotYourself`, `AccountMoved`, `NothingChanged`, `LastAdministrator`.
    """
    said = checked_reason(reason)
    with transaction.atomic():
        _lock_administrators()
        person = _locked(by, person_id)
        chosen = _teams(teams)
        if seen != seen_of(person):
            raise AccountMoved(f"Somebody else changed the account of {person} in the meantime.")
        before = standing(person)
        person.roles = sorted({str(role) for role in roles})
        after = {**before, "roles": person.roles, "teams": sorted(team.slug for team in chosen)}
        if before == after:
            raise NothingChanged("The account has these roles and teams already.")
        if Role.ADMINISTRATOR not in roles:
            _keep_an_administrator(person)
        person.save(update_fields=["roles"])
        person.teams.set(chosen)
        _note(by, "person.access_changed", person, before=before, after=after, reason=said)
    return person


def close(*, by: By, person_id: int, reason: str) -> Person:
    """Close the account: its sessions end and its tokens are revoked, at once. Owns its transaction.

    Raises `Invalid`, `NotFound`, `NotYourself`, `NothingChanged`, `LastAdministrator`.
    """
    said = checked_reason(reason)
    with transaction.atomic():
        _lock_administrators()
        person = _locked(by, person_id)
        if not person.is_active:
            raise NothingChanged(f"The login of {person} is closed already.")
        _keep_an_administrator(person)
        person.is_active = False
        person.save(update_fields=["is_active"])
        ended = sessions.end_sessions(person=person, actor=by.actor, reason=said)
        revoked = tokens.revoke_all_of(person=person, actor=by.actor, reason=said)
        after = {"sessions_ended": ended, "tokens_revoked": revoked}
        _note(by, "person.closed", person, after=after, reason=said)
    return person


def open_again(*, by: By, person_id: int, reason: str) -> Person:
    """Open a closed account. Its tokens stay revoked. Raises as `close`, but for `LastAdministrator`."""
    said = checked_reason(reason)
    with transaction.atomic():
        person = _locked(by, person_id)
        if person.is_active:
            raise NothingChanged(f"The login of {person} is open already.")
        person.is_active = True
        person.save(update_fields=["is_active"])
        _note(by, "person.opened", person, after=standing(person), reason=said)
    return person


def end_sessions(*, by: By, person_id: int, reason: str) -> int:
    """Sign the person out everywhere; they can sign in again. Returns how many sessions that were."""
    said = checked_reason(reason)
    with transaction.atomic():
        person = _locked(by, person_id)
        return sessions.end_sessions(person=person, actor=by.actor, reason=said)


def remove_factors(*, by: By, person_id: int, reason: str) -> int:
    """Take codes, passkeys and recovery codes away, for whoever lost their telephone. Returns how many."""
    said = checked_reason(reason)
    with transaction.atomic():
        person = _locked(by, person_id)
        kinds = sorted(Authenticator.objects.filter(user=person).values_list("type", flat=True))
        if not kinds:
            raise NothingChanged(f"{person} has neither codes nor passkeys.")
        Authenticator.objects.filter(user=person).delete()
        sessions.end_sessions(person=person, actor=by.actor, reason=said)
        _note(by, "person.factors_removed", person, before={"factors": kinds}, reason=said)
    return len(kinds)


def set_principal(*, by: By, person_id: int, same_as: int, reason: str) -> Person:
    """Say that two accounts are one human being: from now on they never make four eyes.

    Whatever other accounts are known as the first one's human being come along: nobody is made two people by
    it. Raises `Invalid`, `NotFound`, `NotYourself` where one is the administrator's, `NothingChanged`.
    """
    said = checked_reason(reason)
    with transaction.atomic():
        # One such change at a time: an account that joins meanwhile would be left behind.
        _lock_administrators()
        person, other = _locked(by, person_id), _locked(by, same_as)
        if person.principal == other.principal:
            raise NothingChanged("The two accounts are one human being already.")
        before = {"principal": person.principal}
        after = {"principal": other.principal, "same_as": f"{access.ACTOR_PREFIX}{other.pk}"}
        known = Person.objects.select_for_update(no_key=True).filter(principal=person.principal)
        for one in known.order_by("pk"):
            one.principal = other.principal
            one.save(update_fields=["principal"])
            _note(by, "person.principal_changed", one, before=before, after=after, reason=said)
        person.principal = other.principal
    return person


def link(*, by: By, person_id: int, subject: str, reason: str) -> Person:
    """Link the person to a subject of the identity provider; "" takes the link away.

    Raises `Invalid`, `NotFound`, `NotYourself`, `NameTaken` for a subject of somebody else, `NothingChanged`.
    """
    said, subject = checked_reason(reason), subject.strip()
    if len(subject) > 191 or not subject.isprintable():
        raise Invalid("A subject has at most 191 characters that can be printed.", where="subject")
    with transaction.atomic():
        person = _locked(by, person_id)
        known = SocialAccount.objects.filter(user=person, provider=SINGLE_SIGN_ON)
        before = sorted(known.values_list("uid", flat=True))
        if before == ([subject] if subject else []):
            raise NothingChanged("The account is linked like that already.")
        known.delete()
        if subject:
            try:
                with transaction.atomic():
                    SocialAccount.objects.create(user=person, provider=SINGLE_SIGN_ON, uid=subject)
            except IntegrityError:
                raise NameTaken("Another account is linked to this subject.", where="subject") from None
        _note(
            by, "person.linked", person, before={"subjects": before}, after={"subject": subject}, reason=said
        )
    return person


def note_by_command(person: Person, *, made: bool) -> None:
    """Note in the caller's transaction what `manage.py createperson` made or changed."""
    action = "person.made" if made else "person.access_changed"
    _note(COMMAND_LINE, action, person, after=standing(person), reason="manage.py createperson")


# --- what every change shares -----------------------------------------------------------------------------


def standing(person: Person) -> dict[str, Any]:
    """What an audit leaf says of an account."""
    return {
        "username": person.username,
        "roles": sorted(person.roles),
        "teams": sorted(person.teams.values_list("slug", flat=True)),
        "principal": person.principal,
    }


def seen_of(person: Person) -> str:
    """What a form was shown with, to tell whether the account moved since."""
    known = standing(person)
    return f"{','.join(known['roles'])};{','.join(known['teams'])}"


def checked_reason(reason: str) -> str:
    """The reason as it is kept. Raises `Invalid`."""
    said = storable_text(reason).strip()
    if not REASON_LENGTH_MIN <= len(said) <= REASON_LENGTH_MAX:
        raise Invalid(
            f"A reason has {REASON_LENGTH_MIN} to {REASON_LENGTH_MAX:,} characters.", where="reason"
        )
    return said


def _check(*, username: str, name: str, email: str, roles: Collection[Role]) -> None:
    if not 1 <= len(username) <= USERNAME_LENGTH:
        raise Invalid(f"A login has 1 to {USERNAME_LENGTH} characters.", where="username")
    try:
        UnicodeUsernameValidator()(username)
    except ValidationError:
        raise Invalid("A login is made of letters, digits and @ . + - _", where="username") from None
    if len(name) > USERNAME_LENGTH or not name.isprintable():
        raise Invalid(f"A name has at most {USERNAME_LENGTH} characters that can be printed.", where="name")
    if email:
        try:
            validate_email(email)
        except ValidationError:
            raise Invalid("That isn’t an e-mail address.", where="email") from None
    if not roles:
        raise Invalid("Choose at least one role: without any nothing is shown.", where="roles")


def _teams(slugs: Collection[str]) -> list[Team]:
    found = list(Team.objects.filter(slug__in=slugs))
    if len(found) != len(set(slugs)):
        raise NotFound("There is no such team.", where="teams")
    return found


def require_still(by: By) -> str:
    """Refuse whoever was an administrator when they sent this, and isn't any more; else their principal now.

    Asked after the locks were granted: what was committed while they waited counts. "" for a machine.
    """
    if by.actor.kind is not ActorKind.PERSON:
        return by.principal
    number = int(by.actor.id.removeprefix(access.ACTOR_PREFIX))
    known = Person.objects.filter(pk=number, is_active=True, roles__contains=[str(Role.ADMINISTRATOR)])
    person = known.first()
    if person is None:
        raise NotAnAdministrator("You are no administrator any more. Nothing was changed.")
    return access.principal_of(person)


def keep_an_administrator(person: Person, *, roles: Collection[str]) -> None:
    """Raise `LastAdministrator` if nobody were left to administer with these roles for the person.

    For the command line, in the caller's transaction.
    """
    _lock_administrators()
    if str(Role.ADMINISTRATOR) not in roles:
        _keep_an_administrator(person)


def _locked(by: By, person_id: int) -> Person:
    person = Person.objects.select_for_update(no_key=True).filter(pk=person_id).first()
    # After the lock: whoever was closed, or joined with this account, while they waited changes nothing.
    own = require_still(by)
    if person is None:
        raise NotFound("There is no such account.")
    if own and access.principal_of(person) == own:
        raise NotYourself("Your own account is changed by another administrator.")
    return person


def _lock_administrators() -> None:
    """One change at a time of who administers, so that two administrators can't close each other."""
    rows = Person.objects.select_for_update(no_key=True).filter(roles__contains=[str(Role.ADMINISTRATOR)])
    list(rows.order_by("pk").values_list("pk", flat=True))


def _keep_an_administrator(person: Person) -> None:
    others = Person.objects.filter(is_active=True, roles__contains=[str(Role.ADMINISTRATOR)])
    known = Person.objects.filter(pk=person.pk, is_active=True, roles__contains=[str(Role.ADMINISTRATOR)])
    if known.exists() and not others.exclude(pk=person.pk).exists():
        raise LastAdministrator(
            f"{person} is the last administrator whose login is open. Make another first."
        )


def _invitation(person: Person) -> Invited:
    return Invited(
        person=person,
        uid=urlsafe_base64_encode(force_bytes(person.pk)),
        token=default_token_generator.make_token(person),
    )


def _note(
    by: By,
    action: str,
    person: Person,
    *,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    reason: str = "",
) -> None:
    audit.append(
        audit.Event(
            action=action,
            actor=by.actor,
            subject=f"{access.ACTOR_PREFIX}{person.pk}",
            before=before or {},
            after=after or {},
            reason=reason,
        )
    )
