"""The peers, started once for each test process and only when a test asks for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.peers.servers import Peers


@pytest.fixture(scope="session")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peers]:
    """Other people's servers, and our own."""
    running = Peers(tmp_path_factory.mktemp("peers"))
    yield running
    running.stop()
