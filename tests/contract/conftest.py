"""The peers, started once for each test process and only when a test asks for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.peers.servers import Peers


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs another server than ours is marked, so that one run of it is enough."""
    for item in items:
        if "peers" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.peers)


@pytest.fixture(scope="session")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peers]:
    """Other people's servers, and our own."""
    running = Peers(tmp_path_factory.mktemp("peers"))
    yield running
    running.stop()
