"""Administrators whose change waits for a lock while somebody else changes who they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount

from console import people, teams, tokens
from console.models import ApiToken, Person, Role, Scope
from console.people import By, NotAnAdministrator, NotYourself
from runs import account_access
from runs.models import AccountTeam, AuditLeaf
from tests.concurrency import Connect, Holder, start
from tests.factories import TEAM, fresh, make_account, make_run
from tests.people import make_person

pytestmark = pytest.mark.django_db(transaction=True)

REASON = "They asked for it by telephone."
ACCOUNT = "sandbox-supplier"


def hold(connect: Connect, table: str, key: str, value: Any) -> Holder:
    """Somebody else's transaction that holds this row."""
    holder = Holder(connect(), connect())
    holder.execute("BEGIN", [])
    holder.execute(f"SELECT 1 FROM {table} WHERE {key} = %s FOR UPDATE", [value])
    return holder


def administrator(username: str) -> Person:
    return make_person(username, Role.ADMINISTRATOR)


def change(what: str, by: By, olga: Person) -> Callable[[], object]:
    """One change each way, and what it waits for."""
    match what:
        case "link":
            return lambda: people.link(by=by, person_id=olga.pk, subject="a-subject", reason=REASON)
        case "invitation":
            return lambda: people.invite(by=by, person_id=olga.pk, reason=REASON)
        case "token":
            return lambda: tokens.make_token(
                by=by, team=TEAM, name="nightly", scopes=[Scope.DECIDE], days=1, person_id=olga.pk
            )
        case "policy":
            flow = make_run().flow_id
            return lambda: teams.set_flow_policy(
                by=by,
                flow_id=flow,
                automatic_repeat="safe",
                abandonment_people=1,
                decide_within_minutes=5,
                reason=REASON,
            )
        case _:
            return lambda: teams.name_account_teams(
                by=by, account=ACCOUNT, teams=[TEAM], seen=account_access.seen_of(()), reason=REASON
            )


@pytest.mark.parametrize(
    ("what", "table", "key"),
    [
        ("link", "console_person", "username"),
        ("invitation", "console_person", "username"),
        ("token", "console_person", "username"),
        ("policy", "runs_flow", "name"),
        ("account", "runs_provideraccount", "slug"),
    ],
)
def test_an_administrator_who_is_closed_while_their_change_waits_changes_nothing(
    connect: Connect, what: str, table: str, key: str
) -> None:
    ada, bo, olga = administrator("ada"), administrator("bo"), make_person("olga", Role.OPERATOR)
    make_account(ACCOUNT)
    act = change(what, By.person(ada), olga)
    value = {"console_person": "olga", "runs_provideraccount": ACCOUNT}.get(table, "")
    value = value or make_run(external_id="another").flow.name
    holder = hold(connect, table, key, value)
    waiting = start(act)
    holder.wait_for_waiters(1)
    people.close(by=By.person(bo), person_id=ada.pk, reason=REASON)
    before = AuditLeaf.objects.count()
    holder.release()
    assert isinstance(waiting.result().refusal, NotAnAdministrator)
    assert AuditLeaf.objects.count() == before
    assert not SocialAccount.objects.exists()
    assert not AccountTeam.objects.exists()
    assert not ApiToken.objects.exists()


def test_an_account_that_turns_out_to_be_the_administrators_own_meanwhile_is_left_alone(
    connect: Connect,
) -> None:
    ada, olga = administrator("ada"), make_person("olga", Role.OPERATOR)
    by = By.person(ada)
    holder = hold(connect, "console_person", "username", "olga")
    waiting = start(lambda: people.link(by=by, person_id=olga.pk, subject="a-subject", reason=REASON))
    holder.wait_for_waiters(1)
    # As another administrator's joining of the two accounts does.
    holder.execute("UPDATE console_person SET principal = %s WHERE username = 'olga'", [ada.principal])
    holder.release()
    assert isinstance(waiting.result().refusal, NotYourself)
    assert not SocialAccount.objects.exists()
    # The other way round: the administrator's account took the other's human being.
    third = make_person("third", Role.OPERATOR)
    holder = hold(connect, "console_person", "username", "third")
    waiting = start(lambda: people.link(by=by, person_id=third.pk, subject="a-subject", reason=REASON))
    holder.wait_for_waiters(1)
    Person.objects.filter(pk=ada.pk).update(principal=fresh(third).principal)
    holder.release()
    assert isinstance(waiting.result().refusal, NotYourself)
    assert not SocialAccount.objects.exists()
