"""Every test of the API has the two teams and the shipped providers, on the real database.

Each in a transaction that is rolled back; a test asks for `transactional_db` where commits show.
"""

from __future__ import annotations

import pytest

from console.api.bearer import remembered
from reconciliation.accounts import sync_accounts
from tests.integration.api.world import World, make_world


@pytest.fixture
def world(db: None) -> World:
    remembered.forget()
    sync_accounts()
    return make_world()
