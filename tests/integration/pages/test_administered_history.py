"""What was administered belongs to no team: who finds it in the history, and whose accounts it keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from console import following
from console.models import Person, Role
from reconciliation.providers import registry
from reconciliation.providers.reach import parse_listing
from runs import audit
from runs.actors import Actor, ActorKind
from runs.models import AuditLeaf
from tests import factories
from tests.integration.pages.conftest import Login
from tests.integration.pages.forms import page_of
from tests.integration.pages.test_declaring import WHY, saved, typed

pytestmark = pytest.mark.django_db(transaction=True)

ADMINISTRATION = "/effects/?action=administration"
# The page of the history reads nine, an open entry one more.
QUERIES_MAX = 12


@pytest.fixture(autouse=True)
def _listed(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(following, "SETTLE_SECONDS", 0)
    settings.RECOURSE_ALLOWED_PROVIDER_HOSTS = (parse_listing("orders.example"),)
    yield
    registry.reload()
    registry.hold(())


@pytest.fixture
def administrator(login: Login) -> Client:
    client = login(Role.ADMINISTRATOR)
    assert saved(client, typed()).status_code == 302
    return client


def shown(client: Client, path: str = ADMINISTRATION) -> list[str]:
    return [one.event.word for one in page_of(client, path).entries]


def declared_entry() -> AuditLeaf:
    return AuditLeaf.objects.get(action="provider.declared")


def test_an_account_says_who_declared_it_when_and_why(administrator: Client, login: Login) -> None:
    text = login(Role.OPERATOR).get("/providers/orders/").content.decode()
    assert "Declared by" in text
    assert str(Person.objects.get(pk=administrator.session["_auth_user_id"])) in text
    assert WHY in text


@pytest.mark.parametrize("role", [Role.AUDITOR, Role.ADMINISTRATOR])
def test_whoever_looks_after_it_finds_who_declared_what(
    administrator: Client, login: Login, role: Role
) -> None:
    client = login(role)
    leaf = declared_entry()
    for words in ("action=provider.declared", "action=provider.declared&provider=orders"):
        (entry,) = page_of(client, f"/effects/?{words}").entries
        assert (entry.event.word, entry.note) == ("Provider declared in the console", WHY)
        assert entry.actor.is_person
    assert "Provider declared in the console" in shown(client)
    assert shown(client, "/effects/?action=provider.declared&provider=sandbox-payments") == []
    assert shown(client, "/effects/?action=provider.declared&from=2100-01-01") == []
    assert shown(client, f"/effects/?action=provider.declared&actor={leaf.actor}") != []
    assert shown(client, "/effects/?action=provider.declared&actor=person:0") == []
    # Its lasting address leads to where it stands, open.
    answer = client.get(f"/effects/entries/{leaf.pk}/", follow=True)
    (opened,) = [one for one in answer.context["page"].entries if one.open]
    assert opened.entry_id == f"entry-{leaf.pk}"
    with CaptureQueriesContext(connection) as asked:
        assert client.get(ADMINISTRATION).status_code == 200
    assert len(asked) <= QUERIES_MAX


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.APPROVER, Role.VIEWER])
def test_nobody_else_does_and_without_the_filter_it_stands_nowhere(
    administrator: Client, login: Login, role: Role
) -> None:
    client = login(role)
    assert shown(client) == []
    assert client.get(f"/effects/entries/{declared_entry().pk}/").status_code == 404
    assert "Provider declared in the console" not in shown(login(Role.AUDITOR), "/effects/")


def test_what_is_about_an_account_of_other_teams_is_there_for_administrators_alone(
    administrator: Client, login: Login
) -> None:
    stranger = login(Role.AUDITOR, name="elsewhere", team="elsewhere")
    leaf = declared_entry()
    assert shown(stranger, "/effects/?action=provider.declared") == []
    assert stranger.get(f"/effects/entries/{leaf.pk}/").status_code == 404
    everyone = login(Role.ADMINISTRATOR, name="runs-it", team="elsewhere")
    assert shown(everyone, "/effects/?action=provider.declared") == ["Provider declared in the console"]


def test_pages_of_it_go_on_where_the_one_before_ended(login: Login) -> None:
    auditor = login(Role.AUDITOR)
    factories.make_team(factories.TEAM)
    for number in range(60):
        audit.append(
            audit.Event(
                action="person.closed", actor=Actor(ActorKind.PERSON, "person:7"), subject=f"person:{number}"
            )
        )
    first = page_of(auditor, "/effects/?action=person.closed")
    second = page_of(auditor, first.next.href)
    ids = [one.entry_id for one in (*first.entries, *second.entries)]
    assert ids == [f"entry-{pk}" for pk in AuditLeaf.objects.order_by("-pk").values_list("pk", flat=True)]
    assert len(first.entries) == 50
    back = page_of(auditor, second.newer.href)
    assert [one.entry_id for one in back.entries] == ids[:50]
