"""The sandbox's store by itself: how it is opened, and what a reset takes away from a request under way."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from console.sandbox.records import Arrival, Counts, NewEffect
from console.sandbox.store import (
    SCHEMA,
    KeyCancelled,
    RequestForgotten,
    Store,
    StoreInUse,
    StoreUnreadable,
)

ARRIVAL = Arrival("a", "orders", "k")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store(tmp_path / "store.sqlite3")) as store:
        yield store


def commit(store: Store, request_id: int) -> None:
    store.commit(
        request_id=request_id,
        account="a",
        effects=[NewEffect("orders", "k", {})],
        fingerprint="f",
        remember_key="k",
    )


def test_every_commit_is_flushed_to_the_disk(store: Store) -> None:
    # No test can cut the power, so this one looks at what SQLite was told: 2 is FULL.
    assert store._db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert store._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_request_that_was_forgotten_commits_nothing(store: Store) -> None:
    request_id, _ = store.record_request(method="POST", arrival=ARRIVAL, from_header=())
    store.reset(account="a")
    with pytest.raises(RequestForgotten):
        commit(store, request_id)
    assert store.counts() == Counts()
    assert store.remembered(account="a", key="k", window_ms=None) is None
    # Nor does a later request inherit its number.
    assert store.record_request(method="POST", arrival=ARRIVAL, from_header=())[0] > request_id


def test_a_store_of_the_first_version_is_taken_over_with_all_that_it_holds(tmp_path: Path) -> None:
    kept = tmp_path / "kept.sqlite3"
    first = SCHEMA.replace(", 'CANCEL'", "").replace(", 'canceled'", "")
    before = first[: first.index("CREATE VIEW tally")] + first[first.index("CREATE TABLE answers") :]
    with closing(sqlite3.connect(kept)) as db:
        db.executescript(
            f"{before} CREATE VIEW tally AS SELECT account, key, 1 AS requests, 0 AS effects, 0 AS lookups"
            " FROM requests; PRAGMA user_version = 1;"
            "INSERT INTO requests VALUES (7, 'POST', 'a', 'orders', 'k', '', 'applied', 'f', 1, 2);"
            "INSERT INTO effects VALUES (3, 'ord_1', 'a', 'orders', 'k', 7, 'succeeded', 1, 1, '{}');"
        )
    with closing(Store(kept)) as store:
        assert store.counts(account="a", key="k") == Counts(requests=1, effects=1)
        request_id, _ = store.record_request(method="CANCEL", arrival=ARRIVAL, from_header=())
        assert store.undo(request_id=request_id, account="a", kind="orders", key="k") == 1
    with closing(Store(kept)) as store:
        assert store.counts_by_key("a") == {"k": Counts(requests=1, effects=1, cancels=1, undone=1)}


def test_a_key_that_is_cancelled_between_a_requests_arrival_and_its_commit_makes_nothing(
    store: Store,
) -> None:
    slow, _ = store.record_request(method="POST", arrival=ARRIVAL, from_header=())
    cancel, _ = store.record_request(method="CANCEL", arrival=ARRIVAL, from_header=())
    assert store.undo(request_id=cancel, account="a", kind="orders", key="k") == 0
    with pytest.raises(KeyCancelled):
        commit(store, slow)
    assert store.counts() == Counts(requests=1, cancels=1)


def test_an_effect_and_its_remembered_answer_are_committed_together_or_not_at_all(store: Store) -> None:
    first, _ = store.record_request(method="POST", arrival=ARRIVAL, from_header=())
    second, _ = store.record_request(method="POST", arrival=ARRIVAL, from_header=())
    commit(store, first)
    with pytest.raises(sqlite3.IntegrityError):
        commit(store, second)
    assert store.counts(account="a", key="k") == Counts(requests=2, effects=1)


def test_a_key_and_a_lag_end_at_their_exact_instant(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def at(now_us: int) -> None:
        monkeypatch.setattr("console.sandbox.store.time.time_ns", lambda: now_us * 1000)

    at(1_000_000)
    request_id, _ = store.record_request(method="POST", arrival=ARRIVAL, from_header=())
    at(1_200_000)
    store.commit(
        request_id=request_id,
        account="a",
        effects=[NewEffect("orders", "k", {}, visible_after_ms=500)],
        fingerprint="f",
        remember_key="k",
    )
    for now_us, receipts in ((1_699_999, 0), (1_700_000, 1)):  # a lag runs from the commit
        at(now_us)
        assert len(store.visible(account="a", kind="orders", key="k")) == receipts
    for now_us, is_remembered in ((5_999_999, True), (6_000_000, False)):  # a window from the arrival
        at(now_us)
        assert (store.remembered(account="a", key="k", window_ms=5_000) is not None) is is_remembered


def test_a_store_is_open_once(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreInUse):
        Store(tmp_path / "store.sqlite3")


def test_a_store_of_another_version_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    Store(path).close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 99")
    for _ in range(2):  # refused, it holds no lock
        with pytest.raises(StoreUnreadable, match="version 99"):
            Store(path)


def test_somebody_elses_database_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "theirs.sqlite3"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE theirs (a)")
    before = path.read_bytes()
    with pytest.raises(StoreUnreadable, match="version 0"):
        Store(path)
    assert path.read_bytes() == before
