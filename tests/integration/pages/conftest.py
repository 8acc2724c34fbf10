"""Pages are read by people of two teams, with one login for each role."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from console.models import Person, Role
from tests import factories

Login = Callable[..., Client]


@pytest.fixture(autouse=True)
def _plain_cookies(settings: pytest.FixtureRequest) -> None:
    settings.SECURE_SSL_REDIRECT = False  # type: ignore[attr-defined]


@pytest.fixture
def login(db: None) -> Login:
    """Sign somebody in: `login(Role.OPERATOR)`, `login("robin", Role.OPERATOR, team="other")`."""

    def sign_in(*roles: Role, name: str = "", team: str = factories.TEAM) -> Client:
        username = name or "-".join(roles) or "nobody"
        person, _ = Person.objects.get_or_create(
            username=username, defaults={"roles": [str(role) for role in roles]}
        )
        if team:
            person.teams.add(factories.make_team(team))
        client = Client()
        client.force_login(person)
        return client

    return sign_in
