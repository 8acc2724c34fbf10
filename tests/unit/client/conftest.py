from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recourse_client import Client, Patience
from tests.unit.client.stub_journal import TOKEN, StubJournal, stub_journal

FAST = Patience(tries_max=4, total_seconds=10.0, first_pause_seconds=0.01, pause_seconds_max=0.05)


@pytest.fixture
def stub() -> Iterator[StubJournal]:
    with stub_journal() as served:
        yield served


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def make_client(stub: StubJournal, spool: Path) -> Iterator[Callable[..., Client]]:
    made: list[Client] = []

    def make(**options: object) -> Client:
        settings = {
            "url": stub.url,
            "token": TOKEN,
            "spool": spool,
            "patience": FAST,
            "report_patience": FAST,
            **options,
        }
        made.append(Client(**settings))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def client(make_client: Callable[..., Client]) -> Client:
    return make_client()
