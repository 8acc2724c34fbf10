"""People and the tokens that act in their or a team's name."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import AbstractUser
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Func, Q, UUIDField, Value
from django.db.models.functions import Cast, Concat, Lower, Now

# With these imports Django knows the tables of those modules too.
import console.export_models
import console.history_models
import console.notification_models
import console.operating_models
import console.search_models  # noqa: F401
from runs.ids import new_id
from runs.models import ID_LENGTH, NAME_LENGTH, Team
from runs.refusals import Invalid

TOKEN_MARK = "rec_"  # noqa: S105 - what every token starts with, so that a leaked one is recognised
# 256 random bits: a stored SHA-256 can't be guessed back, so no slow hash is needed at each call.
TOKEN_BYTES = 32
# A view's name is read in a row of tabs; its filters are an address that every browser and proxy takes.
VIEW_NAME_LENGTH = 40
VIEW_QUERY_LENGTH = 1_500
# Before a human being's own mark, so that nobody takes it for an account's id.
PRINCIPAL_PREFIX = "hum_"


class Role(models.TextChoices):
    """What a person may do. A person holds any set of them; what each allows is in `console.access`."""

    VIEWER = "viewer", "Viewer"
    OPERATOR = "operator", "Operator"
    APPROVER = "approver", "Approver"
    AUDITOR = "auditor", "Auditor"
    ADMINISTRATOR = "administrator", "Administrator"


class Scope(models.TextChoices):
    """What a token may do. A worker's token never holds `decide`: the database refuses the pair."""

    JOURNAL = "journal", "Journal effects, as a worker"
    READ = "read", "Read runs, operations and cases"
    DECIDE = "decide", "Decide cases, for the person whose token it is"


def _within(column: str, allowed: type[models.TextChoices]) -> Q:
    return Q(**{f"{column}__contained_by": [str(value) for value in allowed.values]})


class Person(AbstractUser):
    """A human being with a login. Teams limit what they see, roles what they may do."""

    roles = ArrayField(models.CharField(max_length=20, choices=Role.choices), default=list, blank=True)
    teams = models.ManyToManyField(Team, related_name="people", blank=True)
    # Single keys can be switched off (WCAG 2.1.4); the choice goes wherever the person signs in.
    shortcuts = models.CharField(
        max_length=3, choices=[("on", "On"), ("off", "Off")], default="on", db_default="on"
    )
    # The human being behind the account, made by the database. Four eyes are two of these: where one human
    # being has two accounts, an administrator gives both the same.
    principal = models.CharField(
        max_length=NAME_LENGTH,
        db_default=Concat(
            Value(PRINCIPAL_PREFIX),
            Cast(Func(function="gen_random_uuid", output_field=UUIDField()), models.CharField()),
        ),
    )

    class Meta(AbstractUser.Meta):
        constraints = [
            models.CheckConstraint(condition=_within("roles", Role), name="person_roles_known"),
            models.CheckConstraint(condition=Q(principal__regex=r"\S"), name="person_has_principal"),
            # A verified address of an identity provider may link an account: it leads to one of them.
            models.UniqueConstraint(Lower("email"), condition=~Q(email=""), name="person_email_once"),
            models.CheckConstraint(
                condition=Q(shortcuts__in=["on", "off"]), name="person_shortcuts_on_or_off"
            ),
        ]

    def __str__(self) -> str:
        return self.get_full_name() or self.username

    def has_role(self, *roles: Role) -> bool:
        """Whether the person holds at least one of these roles."""
        return not set(roles).isdisjoint(self.roles)


class ViewReach(models.TextChoices):
    """Who finds a saved view in the queue."""

    PRIVATE = "private", "Only me"
    SHARED = "shared", "Everybody in the team"


class SavedView(models.Model):
    """Filters of the queue under a name. `saved_views` is the only writer."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    owner = models.ForeignKey(Person, on_delete=models.CASCADE, related_name="saved_views", db_index=False)
    # Only a shared one belongs to a team.
    team = models.ForeignKey(
        Team, on_delete=models.CASCADE, related_name="saved_views", null=True, blank=True, db_index=False
    )
    name = models.CharField(max_length=VIEW_NAME_LENGTH)
    # The words of the address, without the place in the list.
    query = models.CharField(max_length=VIEW_QUERY_LENGTH)
    reach = models.CharField(max_length=10, choices=ViewReach.choices)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(reach=ViewReach.PRIVATE.value, team__isnull=True)
                | Q(reach=ViewReach.SHARED.value, team__isnull=False),
                name="view_shared_has_its_team",
            ),
            models.UniqueConstraint(
                "owner", Lower("name"), condition=Q(reach="private"), name="view_name_once_for_a_person"
            ),
            models.UniqueConstraint(
                "team", Lower("name"), condition=Q(reach="shared"), name="view_name_once_in_a_team"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class ApiTokenQuerySet(models.QuerySet["ApiToken"]):
    def usable(self) -> ApiTokenQuerySet:
        """Neither revoked nor expired, by the database's clock."""
        return self.filter(revoked_at__isnull=True, expires_at__gt=Now())

    def with_secret(self, secret: str) -> ApiTokenQuerySet:
        """The token with this secret, if any; the secret itself is stored nowhere."""
        return self.filter(secret_sha256=hash_secret(secret))


class ApiToken(models.Model):
    """A bearer token: hashed, scoped, expiring, of one team."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="tokens")
    name = models.CharField(max_length=NAME_LENGTH)
    secret_sha256 = models.CharField(max_length=64, unique=True)
    scopes = ArrayField(models.CharField(max_length=10, choices=Scope.choices))
    # Whose decisions they are; required for `decide`, so that four eyes are two human beings.
    person = models.ForeignKey(Person, on_delete=models.PROTECT, related_name="tokens", null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    objects = ApiTokenQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=_within("scopes", Scope) & Q(scopes__len__gt=0), name="token_scopes_known"
            ),
            models.CheckConstraint(
                condition=~Q(scopes__contains=[Scope.JOURNAL.value, Scope.DECIDE.value]),
                name="token_worker_never_decides",
            ),
            models.CheckConstraint(
                condition=~Q(scopes__contains=[Scope.DECIDE.value]) | Q(person__isnull=False),
                name="token_decides_for_a_person",
            ),
            models.CheckConstraint(
                condition=Q(expires_at__gt=F("created_at")), name="token_expires_after_creation"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.team_id})"


@dataclass(frozen=True, kw_only=True, slots=True)
class NewToken:
    """A token just made, with its secret: the only time that anyone sees it."""

    token: ApiToken
    secret: str


def hash_secret(secret: str) -> str:
    """The form in which a token's secret is stored and looked up."""
    return hashlib.sha256(secret.encode()).hexdigest()


def create_token(
    *,
    team: Team,
    name: str,
    scopes: Collection[Scope],
    expires_at: datetime,
    person: Person | None = None,
) -> NewToken:
    """Make a token and return it with its secret, which is stored nowhere.

    Raises `Invalid` for scopes that no token may hold together; the database refuses them too.
    """
    wanted = sorted({scope.value for scope in scopes})
    if not wanted:
        raise Invalid("A token needs at least one scope.", where="scopes")
    if {Scope.JOURNAL, Scope.DECIDE} <= set(scopes):
        raise Invalid(
            "One token can't hold both journal and decide: a worker never decides its own cases.",
            where="scopes",
        )
    if Scope.DECIDE in scopes and person is None:
        raise Invalid("A token with scope decide needs the person who decides.", where="person")
    secret = TOKEN_MARK + secrets.token_urlsafe(TOKEN_BYTES)
    fields: dict[str, Any] = {"team": team, "name": name, "scopes": wanted, "person": person}
    token = ApiToken.objects.create(
        id=new_id("tok"), secret_sha256=hash_secret(secret), expires_at=expires_at, **fields
    )
    return NewToken(token=token, secret=secret)
