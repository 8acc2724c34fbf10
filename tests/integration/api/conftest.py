"""Every test of the API has the two teams and the shipped providers, on the real database.

Each in a transaction that is rolled back; a test asks for `transactional_db` where commits show.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from console.api.bearer import remembered
from reconciliation.accounts import sync_accounts
from reconciliation.providers import registry
from tests.integration.api.world import World, make_world


@pytest.fixture
def world(db: None) -> World:
    remembered.forget()
    sync_accounts()
    return make_world()


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The console may send at the sandbox's accounts."""
    monkeypatch.setenv("SANDBOX_URL", "http://127.0.0.1:9")
    registry.reload()
    yield
    registry.reload()
