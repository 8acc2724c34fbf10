"""Django's admin shows administrators what they administer, and lets nobody change anything."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.urls import NoReverseMatch, reverse
from django.utils import timezone

from console.admin_window import window
from console.models import Person, Role, Scope, create_token
from tests import factories

pytestmark = pytest.mark.django_db

PASSWORD = "a long enough password"


@pytest.fixture
def ada() -> Person:
    made: Person = Person.objects.create_user("ada", password=PASSWORD, roles=[Role.ADMINISTRATOR])
    made.teams.add(factories.make_team())
    create_token(
        team=factories.make_team(), name="t", scopes=[Scope.READ], expires_at=timezone.now() + timedelta(1)
    )
    factories.make_account()
    factories.make_run()
    return made


@pytest.fixture
def desk(ada: Person) -> Client:
    client = Client(headers={"user-agent": "Firefox/140.0"})
    client.post("/login/", {"username": "ada", "password": PASSWORD})
    return client


def test_every_kind_of_row_is_seen_and_none_is_added_changed_or_deleted(desk: Client, ada: Person) -> None:
    assert desk.get("/admin/").status_code == 200
    assert len(window._registry) >= 8
    for model in window._registry:
        names = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        assert desk.get(reverse(f"{names}_changelist")).status_code == 200, model
        assert desk.get(reverse(f"{names}_add")).status_code == 403, model
        assert desk.post(reverse(f"{names}_add"), {}).status_code == 403, model
        row = model._default_manager.first()
        if row is None:
            continue
        before = model._default_manager.filter(pk=row.pk).values().get()
        page = desk.get(reverse(f"{names}_change", args=[row.pk]))
        assert page.status_code == 200, model
        assert b'type="submit"' not in page.content, model
        assert desk.post(reverse(f"{names}_change", args=[row.pk]), {}).status_code == 403, model
        assert desk.get(reverse(f"{names}_delete", args=[row.pk])).status_code == 403, model
        assert desk.post(reverse(f"{names}_delete", args=[row.pk]), {"post": "yes"}).status_code == 403, model
        act = {"action": "delete_selected", "_selected_action": str(row.pk), "post": "yes"}
        desk.post(reverse(f"{names}_changelist"), act)
        assert model._default_manager.filter(pk=row.pk).values().get() == before, model


def test_nothing_that_opens_a_door_is_shown(desk: Client, ada: Person) -> None:
    ada.refresh_from_db()
    secrets = [
        ada.password,
        desk.session.session_key,
        factories.fresh(ada).tokens.model.objects.get().secret_sha256,
    ]
    for model in window._registry:
        names = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        for row in model._default_manager.all():
            text = desk.get(reverse(f"{names}_change", args=[row.pk])).content.decode()
            assert not [one for one in secrets if one and one in text], model


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.ADMINISTRATOR])
def test_nobody_else_finds_it(ada: Person, role: Role) -> None:
    client = Client()
    client.force_login(Person.objects.create(username="x", roles=[role]))
    assert client.get("/admin/", follow=True).status_code == 404
    assert client.get("/admin/console/person/", follow=True).status_code == 404


def test_a_stranger_is_led_to_the_one_way_in_and_the_admins_own_writes_arent_there() -> None:
    answer = Client().get("/admin/console/person/", follow=True)
    assert answer.redirect_chain[-1][0].startswith("/login/?next=")
    for name in ("password_change", "login", "logout", "autocomplete"):
        with pytest.raises(NoReverseMatch):
            reverse(f"admin:{name}")
