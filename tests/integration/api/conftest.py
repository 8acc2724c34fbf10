"""Every test of the API has the two teams and the shipped providers, on the real database."""

from __future__ import annotations

import pytest

from console.api.bearer import remembered
from reconciliation.accounts import sync_accounts
from tests.integration.api.world import World, make_world


@pytest.fixture
def world(transactional_db: None) -> World:
    remembered.forget()
    sync_accounts()
    return make_world()
