"""What the database refuses about people and tokens, and what `createtoken` and `createperson` make."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction

from console.access import principal_of
from console.models import ApiToken, Person, Role, Scope, create_token, hash_secret
from runs.models import Team
from runs.refusals import Invalid
from tests.conftest import _owner

pytestmark = pytest.mark.django_db

LATER = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture
def team() -> Team:
    return Team.objects.create(slug="payments", name="Payments")


@pytest.fixture
def person() -> Person:
    return Person.objects.create(username="operator", roles=["operator"])


def stored(team: Team, **changed: Any) -> ApiToken:
    facts: dict[str, Any] = {
        "id": "tok_1",
        "team": team,
        "name": "worker",
        "secret_sha256": "0" * 64,
        "scopes": ["journal"],
        "expires_at": LATER,
    }
    return ApiToken.objects.create(**{**facts, **changed})


@pytest.mark.parametrize(
    ("changed", "constraint"),
    [
        ({"scopes": ["journal", "decide"]}, "token_worker_never_decides"),
        ({"scopes": ["decide"]}, "token_decides_for_a_person"),
        ({"scopes": ["everything"]}, "token_scopes_known"),
        ({"scopes": []}, "token_scopes_known"),
        ({"expires_at": datetime(2000, 1, 1, tzinfo=UTC)}, "token_expires_after_creation"),
    ],
)
def test_the_database_refuses_a_token_that_must_not_exist(
    team: Team, person: Person, changed: dict[str, Any], constraint: str
) -> None:
    whose = person if "journal" in changed.get("scopes", []) else None
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        stored(team, person=whose, **changed)


def test_the_database_refuses_a_secret_twice(team: Team) -> None:
    stored(team)
    with pytest.raises(IntegrityError, match="secret_sha256"), transaction.atomic():
        stored(team, id="tok_2")


def test_the_database_refuses_a_role_that_means_nothing() -> None:
    with pytest.raises(IntegrityError, match="person_roles_known"), transaction.atomic():
        Person.objects.create(username="x", roles=["emperor"])


def test_each_account_is_a_human_of_its_own_until_an_administrator_says_otherwise(person: Person) -> None:
    other = Person.objects.create(username="other")
    assert principal_of(person).startswith("hum_")
    assert principal_of(person) != principal_of(other)
    assert principal_of(person) == principal_of(Person.objects.get(pk=person.pk))


@pytest.mark.parametrize("nobody", ["", "  "])
def test_the_database_refuses_an_account_without_a_human(person: Person, nobody: str) -> None:
    with pytest.raises(IntegrityError, match="person_has_principal"), transaction.atomic():
        Person.objects.filter(pk=person.pk).update(principal=nobody)


def test_a_person_has_each_of_several_roles() -> None:
    person = Person(username="x", roles=[Role.OPERATOR, Role.AUDITOR])
    assert person.has_role(Role.AUDITOR)
    assert person.has_role(Role.APPROVER, Role.OPERATOR)
    assert not person.has_role(Role.APPROVER, Role.ADMINISTRATOR)


def test_a_token_is_found_by_its_secret_which_is_stored_nowhere(team: Team) -> None:
    made = create_token(team=team, name="worker", scopes=[Scope.JOURNAL], expires_at=LATER)
    assert ApiToken.objects.usable().with_secret(made.secret).get() == made.token
    assert made.token.secret_sha256 == hash_secret(made.secret)
    row = ApiToken.objects.filter(pk=made.token.pk).values().get()
    assert made.secret not in str(row)


def test_an_expired_or_revoked_token_is_not_usable(team: Team) -> None:
    now = datetime.now(UTC)
    expired = stored(team, secret_sha256="1" * 64, id="tok_1", expires_at=now + timedelta(hours=1))
    ApiToken.objects.filter(pk=expired.pk).update(
        created_at=now - timedelta(days=2), expires_at=now - timedelta(days=1)
    )
    stored(team, secret_sha256="2" * 64, id="tok_2", revoked_at=now)
    stored(team, secret_sha256="3" * 64, id="tok_3")
    assert list(ApiToken.objects.usable().values_list("id", flat=True)) == ["tok_3"]


@pytest.mark.parametrize(
    "scopes", [[Scope.JOURNAL, Scope.DECIDE], [Scope.DECIDE], []], ids=["both", "no person", "none"]
)
def test_a_token_that_must_not_exist_is_refused_in_words(team: Team, scopes: list[Scope]) -> None:
    with pytest.raises(Invalid):
        create_token(team=team, name="x", scopes=scopes, expires_at=LATER)
    assert not ApiToken.objects.exists()


def createtoken(*arguments: str) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    call_command("createtoken", *arguments, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def test_createtoken_prints_the_secret_alone_on_standard_output(team: Team) -> None:
    out, err = createtoken("--team", "payments", "--scope", "journal", "--scope", "read", "--name", "w")
    token = ApiToken.objects.usable().with_secret(out.strip()).get()
    assert out.count("\n") == 1
    assert token.scopes == ["journal", "read"]
    assert token.id in err
    assert out.strip() not in err
    lasts = token.expires_at - token.created_at
    assert timedelta(days=89, hours=23) < lasts < timedelta(days=90, hours=1)


def test_createtoken_makes_the_team_only_when_told() -> None:
    arguments = ("--team", "new", "--scope", "read", "--name", "n", "--days", "1")
    with pytest.raises(CommandError, match="--create-team"):
        createtoken(*arguments)
    createtoken(*arguments, "--create-team")
    assert Team.objects.filter(slug="new").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--scope", "journal", "--scope", "decide", "--person", "operator"], "never decides its own cases"),
        (["--scope", "decide"], "needs the person"),
        (["--scope", "decide", "--person", "nobody"], "no person with username 'nobody'"),
        (["--scope", "read", "--days", "0"], "--days must be 1 to 366"),
        (["--scope", "read", "--days", "367"], "--days must be 1 to 366"),
        (["--scope", "rule"], "invalid choice"),
    ],
)
def test_createtoken_refuses_in_words_and_makes_nothing(
    team: Team, person: Person, arguments: list[str], sentence: str
) -> None:
    with pytest.raises(CommandError, match=sentence):
        createtoken("--team", "payments", "--name", "n", *arguments, "--create-team")
    assert not ApiToken.objects.exists()


def test_createtoken_binds_decisions_to_their_person(team: Team, person: Person) -> None:
    out, _ = createtoken(*("--team", "payments", "--scope", "decide", "--name", "n", "--person", "operator"))
    assert ApiToken.objects.with_secret(out.strip()).get().person == person


def createperson(monkeypatch: pytest.MonkeyPatch, password: str, *arguments: str) -> str:
    out = io.StringIO()
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{password}\n"))
    call_command("createperson", *arguments, "--password-stdin", stdout=out)
    return out.getvalue()


def test_createperson_makes_a_login_and_sets_it_anew(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ("maya", "--team", "payments", "--role", "operator", "--role", "auditor")
    assert "Made maya: auditor, operator of payments." in createperson(monkeypatch, "a-long-word-9", *first)
    second = ("maya", "--team", "orders", "--role", "viewer", "--create-team")
    assert "Changed maya: viewer of orders." in createperson(monkeypatch, "another-word-9", *second)
    maya = Person.objects.get(username="maya")
    assert (maya.roles, [one.slug for one in maya.teams.all()]) == (["viewer"], ["orders"])
    assert maya.check_password("another-word-9")


@pytest.mark.parametrize(
    ("password", "arguments", "sentence"),
    [
        ("12345678901", ["--role", "operator", "--team", "payments"], "entirely numeric"),
        ("", ["--role", "operator", "--team", "payments"], "too short"),
        ("a-long-word-9", ["--role", "operator", "--team", "nowhere"], "--create-team"),
        ("a-long-word-9", ["--role", "root", "--team", "payments"], "invalid choice"),
    ],
)
def test_createperson_refuses_in_words_and_changes_nobody(
    team: Team, monkeypatch: pytest.MonkeyPatch, password: str, arguments: list[str], sentence: str
) -> None:
    with pytest.raises(CommandError, match=sentence):
        createperson(monkeypatch, password, "maya", *arguments)
    assert not Person.objects.exists()


def test_createperson_leaves_the_last_administrator_what_they_are(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    createperson(monkeypatch, "a-long-word-9", "ada", "--team", "payments", "--role", "administrator")
    with pytest.raises(CommandError, match="last administrator"):
        createperson(monkeypatch, "a-long-word-9", "ada", "--team", "payments", "--role", "viewer")
    assert Person.objects.get(username="ada").roles == ["administrator"]
    createperson(monkeypatch, "a-long-word-9", "bo", "--team", "payments", "--role", "administrator")
    createperson(monkeypatch, "a-long-word-9", "ada", "--team", "payments", "--role", "viewer")
    assert Person.objects.get(username="ada").roles == ["viewer"]


# --- E-mail addresses -------------------------------------------------------------------------------------


def test_an_address_belongs_to_one_account_whatever_its_capitals(person: Person) -> None:
    Person.objects.create(username="kim", email="Kim@example.org")
    with pytest.raises(IntegrityError, match="person_email_once"), transaction.atomic():
        Person.objects.create(username="ash", email="kim@EXAMPLE.org")
    # None is nobody's.
    Person.objects.create(username="lee")
    Person.objects.create(username="fox")


@pytest.mark.django_db(transaction=True)
def test_the_migration_names_the_logins_that_share_an_address_and_what_to_do() -> None:
    refuse_doubles = import_module("console.migrations.0011_give_an_address_to_one_account").refuse_doubles
    refuse_doubles(apps, None)
    owner = _owner.get()
    with owner.transaction():
        [[made]] = owner.execute("SELECT pg_get_indexdef('person_email_once'::regclass)").fetchall()
        owner.execute("DROP INDEX person_email_once")
    try:
        for name, address in (("kim", "k@example.org"), ("ash", "K@example.org"), ("fox", "f@example.org")):
            Person.objects.create(username=name, email=address)
        with pytest.raises(Exception, match="share one") as told:
            refuse_doubles(apps, None)
    finally:
        Person.objects.all().delete()
        with owner.transaction():
            owner.execute(made)
    said = str(told.value)
    assert "Nothing was changed" in said
    assert "k@example.org: kim, ash" in said
    assert "f@example.org" not in said
    assert "UPDATE console_person SET email = ''" in said
