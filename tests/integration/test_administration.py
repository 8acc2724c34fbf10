"""Administration: accounts, tokens, teams, flows; what an administrator may not do; being out at once."""

from __future__ import annotations

import io
import re
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from console import people, teams, tokens
from console.api.bearer import remembered
from console.models import ApiToken, Person, Role, Scope
from console.people import COMMAND_LINE, By
from runs.models import AuditLeaf, Team
from runs.refusals import Invalid, NotFound
from tests import factories
from tests.integration.api.world import Caller
from tests.integration.pages.forms import page_of

pytestmark = pytest.mark.django_db

REASON = "Agreed with their team lead today."
PASSWORD = "a long enough password"


def somebody(username: str, *roles: Role, **fields: Any) -> Person:
    made: Person = Person.objects.create_user(
        username, password=PASSWORD, roles=[str(role) for role in roles], **fields
    )
    made.teams.add(factories.make_team())
    return Person.objects.get(pk=made.pk)


@pytest.fixture
def ada() -> Person:
    return somebody("ada", Role.ADMINISTRATOR)


@pytest.fixture
def olga() -> Person:
    return somebody("olga", Role.OPERATOR)


@pytest.fixture
def desk(ada: Person) -> Client:
    client = Client()
    client.force_login(ada)
    return client


def give(by: By, person: Person, *roles: Role, teams: tuple[str, ...] = (factories.TEAM,)) -> Person:
    return people.change_access(
        by=by, person_id=person.pk, roles=roles, teams=teams, seen=people.seen_of(person), reason=REASON
    )


def actions() -> list[str]:
    return list(AuditLeaf.objects.order_by("pk").values_list("action", flat=True))


# --- Accounts -----------------------------------------------------------------------------------------------


def test_an_account_is_made_with_a_link_by_which_its_person_alone_knows_the_password(
    desk: Client, ada: Person
) -> None:
    typed = {"username": "rita", "name": "Rita Blom", "roles": ["operator"], "teams": ["ops"]}
    answer = desk.post("/people/new/", {**typed, "reason": REASON})
    assert answer.status_code == 200
    link = answer.context["page"].once.secret
    rita = Person.objects.get(username="rita")
    assert (rita.roles, rita.has_usable_password()) == (["operator"], False)
    path = link.partition("testserver")[2]
    assert link not in desk.get(f"/people/{rita.pk}/").content.decode(), "shown once"
    fresh = Client()
    assert fresh.post(path, {"password1": "short", "password2": "short"}).status_code == 422
    assert fresh.post(path, {"password1": PASSWORD, "password2": PASSWORD})["Location"] == "/login/"
    assert fresh.post("/login/", {"username": "rita", "password": PASSWORD})["Location"] == "/"
    assert fresh.get("/").status_code == 200
    used = Client().post(path, {"password1": "another one, longer", "password2": "another one, longer"})
    assert used.status_code == 403
    assert "doesn’t work any more" in used.content.decode()
    assert actions() == ["person.made", "person.password_chosen"]


def test_what_was_typed_is_kept_when_an_account_cant_be_made(desk: Client, olga: Person) -> None:
    typed = {"username": "olga", "name": "Another", "roles": ["viewer"], "reason": REASON}
    answer = desk.post("/people/new/", typed)
    assert answer.status_code == 409
    text = answer.content.decode()
    assert "There is a login “olga” already" in text
    assert 'value="Another"' in text
    assert REASON in text
    assert desk.post("/people/new/", {**typed, "username": "a b"}).status_code == 422


def test_roles_and_teams_are_changed_with_a_reason_on_record(ada: Person, olga: Person) -> None:
    factories.make_team("other")
    give(By.person(ada), olga, Role.OPERATOR, Role.AUDITOR, teams=("ops", "other"))
    olga.refresh_from_db()
    assert olga.roles == ["auditor", "operator"]
    leaf = AuditLeaf.objects.get(action="person.access_changed")
    body = bytes(leaf.body).decode()
    assert REASON in body
    assert f'"subject":"person:{olga.pk}"' in body
    assert leaf.actor == f"person:{ada.pk}"


@pytest.mark.parametrize("reason", ["", "short", "x" * 4_001])
def test_nothing_is_changed_without_a_reason(ada: Person, olga: Person, reason: str) -> None:
    with pytest.raises(Invalid):
        people.close(by=By.person(ada), person_id=olga.pk, reason=reason)
    olga.refresh_from_db()
    assert olga.is_active


def test_an_administrator_changes_neither_their_own_account_nor_another_of_theirs(ada: Person) -> None:
    second = somebody("ada.second", Role.OPERATOR, principal=ada.principal)
    by = By.person(ada)
    for own in (ada, second):
        for act in (people.close, people.end_sessions, people.remove_factors, people.invite):
            with pytest.raises(people.NotYourself):
                act(by=by, person_id=own.pk, reason=REASON)
        with pytest.raises(people.NotYourself):
            give(by, own, *Role)
    with pytest.raises(people.NotYourself):
        people.make_person(
            by=by, username="third", name="", email="", roles=[Role.OPERATOR], teams=[], reason=REASON,
            principal=ada.principal,
        )  # fmt: skip
    assert actions() == []


def test_only_administrators_can_be_who_changes_accounts(olga: Person, ada: Person) -> None:
    with pytest.raises(people.NotAnAdministrator):
        By.person(olga)
    ada.is_active = False
    with pytest.raises(people.NotAnAdministrator):
        By.person(ada)


def test_the_last_administrator_stays(ada: Person) -> None:
    with pytest.raises(people.LastAdministrator):
        people.close(by=COMMAND_LINE, person_id=ada.pk, reason=REASON)
    with pytest.raises(people.LastAdministrator):
        give(COMMAND_LINE, ada, Role.VIEWER)
    somebody("bea", Role.ADMINISTRATOR)
    people.close(by=COMMAND_LINE, person_id=ada.pk, reason=REASON)


def test_a_change_of_what_somebody_else_changed_is_refused(ada: Person, olga: Person) -> None:
    seen = people.seen_of(olga)
    give(By.person(ada), olga, Role.VIEWER)
    with pytest.raises(people.AccountMoved):
        people.change_access(
            by=By.person(ada), person_id=olga.pk, roles=[Role.AUDITOR], teams=[], seen=seen, reason=REASON
        )


def test_what_is_so_already_and_what_isnt_there_is_refused(ada: Person, olga: Person) -> None:
    by = By.person(ada)
    with pytest.raises(people.NothingChanged):
        give(by, olga, Role.OPERATOR)
    with pytest.raises(people.NothingChanged):
        people.open_again(by=by, person_id=olga.pk, reason=REASON)
    with pytest.raises(people.NothingChanged):
        people.remove_factors(by=by, person_id=olga.pk, reason=REASON)
    with pytest.raises(NotFound):
        people.close(by=by, person_id=0, reason=REASON)
    with pytest.raises(NotFound):
        give(by, olga, Role.VIEWER, teams=("nowhere",))


def test_two_accounts_are_said_to_be_one_human_being(ada: Person, olga: Person) -> None:
    twin = somebody("olga.second", Role.APPROVER)
    by = By.person(ada)
    people.set_principal(by=by, person_id=twin.pk, same_as=olga.pk, reason=REASON)
    twin.refresh_from_db()
    assert twin.principal == olga.principal
    with pytest.raises(people.NothingChanged):
        people.set_principal(by=by, person_id=twin.pk, same_as=olga.pk, reason=REASON)
    with pytest.raises(people.NotYourself):
        people.set_principal(by=by, person_id=twin.pk, same_as=ada.pk, reason=REASON)


def test_joining_two_accounts_makes_nobody_else_two_people(ada: Person, olga: Person) -> None:
    twin, third = somebody("olga.second", Role.APPROVER), somebody("olga.third", Role.APPROVER)
    by = By.person(ada)
    people.set_principal(by=by, person_id=third.pk, same_as=twin.pk, reason=REASON)
    people.set_principal(by=by, person_id=twin.pk, same_as=olga.pk, reason=REASON)
    assert {factories.fresh(one).principal for one in (olga, twin, third)} == {olga.principal}
    assert actions().count("person.principal_changed") == 3


def test_who_is_no_administrator_any_more_changes_nothing_with_what_they_had_sent(
    ada: Person, olga: Person
) -> None:
    second, third = somebody("bo", Role.ADMINISTRATOR), somebody("kim", Role.ADMINISTRATOR)
    # As in a request that began before, and waited for the other's lock.
    sent = By.person(ada)
    people.close(by=By.person(second), person_id=ada.pk, reason=REASON)
    with pytest.raises(people.NotAnAdministrator):
        people.close(by=sent, person_id=second.pk, reason=REASON)
    with pytest.raises(people.NotAnAdministrator):
        give(sent, olga, Role.APPROVER)
    with pytest.raises(people.NotAnAdministrator):
        people.make_person(
            by=sent, username="x", name="", email="", roles=[Role.APPROVER], teams=(), reason=REASON
        )
    assert factories.fresh(second).is_active
    assert factories.fresh(third).is_active
    assert factories.fresh(olga).roles == ["operator"]


def test_a_subject_is_linked_to_one_account(ada: Person, olga: Person) -> None:
    by = By.person(ada)
    people.link(by=by, person_id=olga.pk, subject="subject-1", reason=REASON)
    other = somebody("kim", Role.VIEWER)
    with pytest.raises(people.NameTaken):
        people.link(by=by, person_id=other.pk, subject="subject-1", reason=REASON)
    people.link(by=by, person_id=olga.pk, subject="", reason=REASON)
    people.link(by=by, person_id=other.pk, subject="subject-1", reason=REASON)


# --- Out at once --------------------------------------------------------------------------------------------


def test_a_closed_account_is_out_at_once_with_every_session_and_token(
    desk: Client, ada: Person, olga: Person
) -> None:
    remembered.forget()
    sessions = [Client() for _ in range(2)]
    for client in sessions:
        assert client.post("/login/", {"username": "olga", "password": PASSWORD}).status_code == 302
    by = By.person(ada)
    made = [
        tokens.make_token(by=by, team="ops", name=f"t {scope}", scopes=[scope], days=1, person_id=olga.pk)
        for scope in (Scope.DECIDE, Scope.READ)
    ]
    callers = [Caller(one.secret) for one in made]
    assert [caller.get("/cases").status for caller in callers] == [200, 200]
    assert [client.get("/").status_code for client in sessions] == [200, 200]
    answer = desk.post(f"/people/{olga.pk}/closing/", {"reason": REASON})
    assert answer.status_code == 302, answer.content
    assert [client.get("/").status_code for client in sessions] == [302, 302]
    assert [caller.get("/cases").status for caller in callers] == [401, 401]
    assert Client().post("/login/", {"username": "olga", "password": PASSWORD}).status_code == 200
    desk.post(f"/people/{olga.pk}/opening/", {"reason": REASON})
    assert [client.get("/").status_code for client in sessions] == [302, 302], "ended for good"
    assert [caller.get("/cases").status for caller in callers] == [401, 401], "revoked for good"
    assert Client().post("/login/", {"username": "olga", "password": PASSWORD}).status_code == 302


def test_a_person_without_a_role_reads_nothing_by_a_token_either(ada: Person, olga: Person) -> None:
    by = By.person(ada)
    made = tokens.make_token(by=by, team="ops", name="reads", scopes=[Scope.READ], days=1, person_id=olga.pk)
    assert Caller(made.secret).get("/cases").status == 200
    give(by, olga)
    assert Caller(made.secret).get("/cases").status == 403


# --- Tokens -------------------------------------------------------------------------------------------------


def test_a_token_is_made_shown_once_used_and_revoked(desk: Client, olga: Person) -> None:
    typed = {"name": "nightly", "team": "ops", "scopes": ["read"], "days": "30"}
    page = desk.post("/tokens/new/", typed)
    secret = page.context["page"].once.secret
    assert Caller(secret).get("/cases").status == 200
    token = ApiToken.objects.get(name="nightly")
    assert timedelta(days=29) < token.expires_at - timezone.now() <= timedelta(days=30)
    listed = desk.get("/tokens/").content.decode()
    assert "nightly" in listed
    assert secret not in listed
    assert ApiToken.objects.get(name="nightly").last_used_at is not None
    remembered.forget()
    answer = desk.post("/tokens/revocation/", {"token": token.pk, "reason": REASON})
    assert answer.status_code == 302
    assert Caller(secret).get("/cases").status == 401
    assert actions() == ["token.made", "token.revoked"]
    assert secret not in "".join(bytes(leaf.body).decode() for leaf in AuditLeaf.objects.all())


@pytest.mark.parametrize(
    ("typed", "status"),
    [
        ({"scopes": ["journal", "decide"], "person": "olga"}, 422),
        ({"scopes": ["decide"]}, 422),
        ({"scopes": []}, 422),
        ({"days": "400"}, 422),
        ({"days": "soon"}, 422),
        ({"team": "nowhere"}, 409),
        ({"person": "nobody"}, 422),
        ({"name": " "}, 422),
    ],
)
def test_a_token_that_must_not_exist_is_refused_and_what_was_typed_is_kept(
    desk: Client, olga: Person, typed: dict[str, Any], status: int
) -> None:
    good = {"name": "nightly run", "team": "ops", "scopes": ["read"], "days": "30"}
    answer = desk.post("/tokens/new/", {**good, **typed})
    assert answer.status_code == status, answer.content
    assert "Nothing was changed" in answer.content.decode()
    if "name" not in typed:
        assert 'value="nightly run"' in answer.content.decode()
    assert not ApiToken.objects.exists()


# --- Teams and flows ----------------------------------------------------------------------------------------


def test_a_team_is_made_once(desk: Client) -> None:
    typed = {"slug": "refunds", "name": "Refunds", "reason": REASON}
    assert desk.post("/teams/new/", typed).status_code == 302
    assert Team.objects.get(slug="refunds").name == "Refunds"
    again = desk.post("/teams/new/", typed)
    assert again.status_code == 409
    assert "There is a team “refunds” already" in again.content.decode()
    assert desk.post("/teams/new/", {**typed, "slug": "With Space"}).status_code == 422


def test_a_flows_policy_is_changed_with_what_it_was_on_record(desk: Client, ada: Person) -> None:
    flow = factories.make_run().flow
    typed = {
        "automatic_repeat": "safe",
        "abandonment_people": "2",
        "decide_within_minutes": "60",
        "reason": REASON,
    }
    assert desk.post(f"/flows/{flow.pk}/", typed).status_code == 302
    changed = factories.fresh(flow)
    assert (changed.automatic_repeat, changed.abandonment_people) == ("safe", 2)
    assert changed.decide_within_minutes == 60
    leaf = bytes(AuditLeaf.objects.get(action="flow.policy_changed").body).decode()
    assert '"before":{"abandonment_people":1,"automatic_repeat":"off","decide_within_minutes":240}' in leaf
    assert desk.post(f"/flows/{flow.pk}/", typed).status_code == 409, "nothing would change"
    wrong = {"abandonment_people": "3", "decide_within_minutes": "0", "automatic_repeat": "on"}
    for name, value in wrong.items():
        assert desk.post(f"/flows/{flow.pk}/", {**typed, name: value}).status_code == 422, name
    with pytest.raises(NotFound):
        teams.set_flow_policy(
            by=By.person(ada), flow_id="flow_none", automatic_repeat="off", abandonment_people=1,
            decide_within_minutes=1, reason=REASON,
        )  # fmt: skip


def test_lists_go_on_after_fifty(desk: Client) -> None:
    Person.objects.bulk_create([Person(username=f"p{number:03}", roles=["viewer"]) for number in range(60)])
    first = page_of(desk, "/people/")
    [table] = first.tables
    assert len(table.rows) == 50
    [following] = page_of(desk, table.next_href).tables
    assert len(following.rows) == 11
    assert following.next_href == ""
    assert re.search(r"after=p\d+", table.next_href)


# --- From the command line ----------------------------------------------------------------------------------


def test_a_login_is_closed_and_a_token_revoked_from_the_command_line(ada: Person, olga: Person) -> None:
    made = tokens.make_token(by=COMMAND_LINE, team="ops", name="nightly", scopes=[Scope.READ], days=1)
    call_command("revoketoken", made.token.pk, "--reason", REASON, stdout=io.StringIO())
    assert factories.fresh(made.token).revoked_at is not None
    call_command("closeperson", "olga", "--reason", REASON, stdout=io.StringIO())
    assert not factories.fresh(olga).is_active
    for wrong in (("closeperson", "olga"), ("closeperson", "nobody"), ("closeperson", "ada")):
        with pytest.raises(CommandError):
            call_command(*wrong, "--reason", REASON, stdout=io.StringIO())
    with pytest.raises(CommandError):
        call_command("revoketoken", "tok_none", "--reason", REASON, stdout=io.StringIO())
