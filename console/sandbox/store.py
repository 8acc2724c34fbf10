"""The sandbox's own durable store: one SQLite file, write-ahead log, every commit flushed to the disk.

One connection behind one lock: SQLite has one writer anyway, and a provider that is asked by 32 callers at
once has to give each key to one of them. A second process on the same file is refused at start.
"""

from __future__ import annotations

import fcntl
import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from console.sandbox import faults
from console.sandbox.faults import Fault, FaultSet
from console.sandbox.records import (
    KINDS,
    AccountSettings,
    Arrival,
    Counts,
    EffectRow,
    Lookup,
    NewEffect,
    Remembered,
    RequestRow,
    Scope,
    Status,
)
from console.sandbox.wire import JsonObject, instant, write_json
from runs.ids import new_id

SCHEMA_VERSION = 2
# Ids are never used twice (AUTOINCREMENT), so a request that outlives a reset finds itself forgotten.
SCHEMA = """
CREATE TABLE clock (one INTEGER PRIMARY KEY CHECK (one = 1), ahead_us INTEGER NOT NULL);
INSERT INTO clock VALUES (1, 0);
CREATE TABLE accounts (account TEXT PRIMARY KEY, settings TEXT NOT NULL);
CREATE TABLE requests (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    method TEXT NOT NULL CHECK (method IN ('POST', 'GET', 'CANCEL')),
    account TEXT NOT NULL, kind TEXT NOT NULL, key TEXT, faults TEXT NOT NULL,
    outcome TEXT, fingerprint TEXT,
    received_at_us INTEGER NOT NULL, ended_at_us INTEGER,
    CHECK ((outcome IS NULL) = (ended_at_us IS NULL))
);
CREATE INDEX requests_by_key ON requests (account, key);
CREATE TABLE effects (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    account TEXT NOT NULL, kind TEXT NOT NULL, key TEXT, request_id INTEGER,
    status TEXT NOT NULL CHECK (status IN ('succeeded', 'pending', 'failed', 'canceled')),
    made_at_us INTEGER NOT NULL, visible_at_us INTEGER,
    receipt TEXT NOT NULL
);
CREATE INDEX effects_by_key ON effects (account, key);
CREATE VIEW tally AS
    SELECT account, key, method = 'POST' AS requests, 0 AS effects, method = 'GET' AS lookups,
        method = 'CANCEL' AS cancels, 0 AS undone FROM requests
    UNION ALL SELECT account, key, 0, status <> 'failed', 0, 0, status = 'canceled' FROM effects;
CREATE TABLE cancelled (
    account TEXT NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL, at_us INTEGER NOT NULL,
    PRIMARY KEY (account, kind, key)
);
CREATE TABLE answers (
    account TEXT NOT NULL, key TEXT NOT NULL,
    fingerprint TEXT NOT NULL, status INTEGER NOT NULL, body BLOB NOT NULL, first_at_us INTEGER NOT NULL,
    PRIMARY KEY (account, key)
);
CREATE TABLE rules (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    account TEXT NOT NULL, kind TEXT, key TEXT, fault TEXT NOT NULL,
    times INTEGER NOT NULL CHECK (times >= -1)
);
"""


# A store of version 1, which a demo may have kept, becomes one of this version with all that it holds.
UPGRADE = """
DROP VIEW tally;
ALTER TABLE requests RENAME TO requests_1;
ALTER TABLE effects RENAME TO effects_1;
DROP INDEX requests_by_key;
DROP INDEX effects_by_key;
"""
_KEPT = "INSERT INTO requests SELECT * FROM requests_1; INSERT INTO effects SELECT * FROM effects_1;"
_GONE = "DROP TABLE requests_1; DROP TABLE effects_1;"


def _upgrade() -> str:
    """The statements that take a store of version 1 to this version."""
    made = [one for one in SCHEMA.split(";") if any(f" {name} " in one for name in _MADE_ANEW)]
    return f"{UPGRADE} {';'.join(made)}; {_KEPT} {_GONE}"


_MADE_ANEW = (
    *("TABLE requests", "TABLE effects", "TABLE cancelled", "VIEW tally"),
    *("INDEX requests_by_key", "INDEX effects_by_key"),
)


class StoreInUse(Exception):
    """Another sandbox provider has this store open."""


class StoreUnreadable(Exception):
    """The file is no store of this version."""


class KeyCancelled(Exception):
    """Whatever this key had made was undone, and nothing is made under it any more."""


class RequestForgotten(Exception):
    """A reset came between this request's arrival and its commit: nothing of it may remain."""


class Store:
    """Everything the provider remembers. Every public method is one transaction and safe from any thread."""

    def __init__(self, path: Path) -> None:
        """Open the store at `path`, made if missing; raises `StoreInUse` or `StoreUnreadable`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._guard = _lock_beside(path)
        self._lock = threading.RLock()
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            self._make_schema()
            self._ahead_us = int(self._db.execute("SELECT ahead_us FROM clock").fetchone()[0])
        except sqlite3.DatabaseError as error:
            self.close()
            raise StoreUnreadable(f"{path} can't be opened as a sandbox store: {error}") from error
        except StoreUnreadable:
            self.close()
            raise

    def _make_schema(self) -> None:
        version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        has_tables = self._db.execute("SELECT EXISTS (SELECT 1 FROM sqlite_master)").fetchone() == (1,)
        # Looked at before anything is changed: the file may be somebody else's database.
        if version not in ((1, SCHEMA_VERSION) if has_tables else (0,)):
            raise StoreUnreadable(
                f"this file is not a sandbox store of version {SCHEMA_VERSION}: it says version {version}"
            )
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        if version != SCHEMA_VERSION:
            made = _upgrade() if version else SCHEMA
            self._db.executescript(f"BEGIN; {made} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")

    def close(self) -> None:
        with self._lock:
            self._db.close()
            self._guard.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _read(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._db.execute(sql, values).fetchall()

    # -- the clock ---------------------------------------------------------------------------------------

    def now_us(self) -> int:
        """Microseconds since 1970 by this provider's clock, which an admin may have moved ahead."""
        return time.time_ns() // 1000 + self._ahead_us

    def advance_clock(self, *, by_ms: int) -> None:
        """Move this provider's clock ahead for good, so that windows close and lags pass without waiting."""
        with self._transaction() as db:
            db.execute("UPDATE clock SET ahead_us = ahead_us + ?", (by_ms * 1000,))
            self._ahead_us += by_ms * 1000

    # -- accounts ----------------------------------------------------------------------------------------

    def settings(self, account: str) -> AccountSettings:
        rows = self._read("SELECT settings FROM accounts WHERE account = ?", account)
        if not rows:
            return AccountSettings()
        fields = json.loads(rows[0][0])
        return AccountSettings(**{**fields, "lookup": Lookup(fields["lookup"])})

    def set_settings(self, account: str, settings: AccountSettings) -> None:
        text = json.dumps(settings.shown())
        with self._transaction() as db:
            db.execute("INSERT OR REPLACE INTO accounts VALUES (?, ?)", (account, text))

    # -- fault rules -------------------------------------------------------------------------------------

    def add_rule(self, *, scope: Scope, fault: Fault, times: int) -> int:
        """Keep a fault for the next `times` requests in `scope` (-1: for all of them); its rule's id."""
        with self._transaction() as db:
            cursor = db.execute(
                "INSERT INTO rules (account, kind, key, fault, times) VALUES (?, ?, ?, ?, ?)",
                (scope.account, scope.kind, scope.key, str(fault), times),
            )
            return int(cursor.lastrowid or 0)

    def rules(self) -> list[JsonObject]:
        rows = self._read("SELECT id, account, kind, key, fault, times FROM rules ORDER BY id")
        names = ("id", "account", "kind", "key", "fault", "times")
        return [dict(zip(names, row, strict=True)) for row in rows]

    def remove_rules(self, *, rule_id: int | None = None, account: str | None = None) -> int:
        """Drop one rule, or an account's, or all; how many there were."""
        with self._transaction() as db:
            return db.execute(
                "DELETE FROM rules WHERE (?1 IS NULL OR id = ?1) AND (?2 IS NULL OR account = ?2)",
                (rule_id, account),
            ).rowcount

    # -- requests ----------------------------------------------------------------------------------------

    def record_request(
        self, *, method: str, arrival: Arrival, from_header: tuple[Fault, ...]
    ) -> tuple[int, FaultSet]:
        """Count a request durably, and use up the rules that apply to it; its id and its faults.

        `method` is POST for an effect, GET for a lookup, CANCEL to undo what a key has made.

        The header's faults come first; a rule whose slot is taken waits for another request.
        """
        with self._transaction() as db:
            taken = {fault.slot: fault for fault in from_header}
            for rule_id, fault in self._matching_rules(db, method, arrival):
                if fault.slot not in taken:
                    taken[fault.slot] = fault
                    db.execute("UPDATE rules SET times = times - 1 WHERE id = ? AND times > 0", (rule_id,))
            db.execute("DELETE FROM rules WHERE times = 0")
            suffered = FaultSet(tuple(taken.values()))
            cursor = db.execute(
                "INSERT INTO requests (method, account, kind, key, faults, received_at_us)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (method, arrival.account, arrival.kind, arrival.key, str(suffered), self.now_us()),
            )
            return int(cursor.lastrowid or 0), suffered

    def _matching_rules(
        self, db: sqlite3.Connection, method: str, arrival: Arrival
    ) -> Iterator[tuple[int, Fault]]:
        rows = db.execute("SELECT id, account, kind, key, fault FROM rules ORDER BY id").fetchall()
        for rule_id, account, kind, key, text in rows:
            fault = faults.parse(text)
            if fault.for_lookups == (method == "GET") and Scope(account, kind, key).covers(arrival):
                yield int(rule_id), fault

    def end_request(self, request_id: int, *, outcome: str) -> None:
        """Note how a request ended that made no effect."""
        with self._transaction() as db:
            self._end(db, request_id, outcome, fingerprint=None)

    def _end(self, db: sqlite3.Connection, request_id: int, outcome: str, fingerprint: str | None) -> None:
        changed = db.execute(
            "UPDATE requests SET outcome = ?, fingerprint = ?, ended_at_us = ? WHERE id = ?",
            (outcome, fingerprint, self.now_us(), request_id),
        ).rowcount
        if changed == 0:
            raise RequestForgotten

    # -- effects -----------------------------------------------------------------------------------------

    def remembered(self, *, account: str, key: str, window_ms: int | None) -> Remembered | None:
        """The first answer under this key, unless its window has closed: then the key is forgotten."""
        with self._transaction() as db:
            if window_ms is not None:
                db.execute(
                    "DELETE FROM answers WHERE account = ? AND key = ? AND first_at_us + ? <= ?",
                    (account, key, window_ms * 1000, self.now_us()),
                )
            row = db.execute(
                "SELECT fingerprint, status, body FROM answers WHERE account = ? AND key = ?", (account, key)
            ).fetchone()
        return Remembered(row[0], row[1], row[2]) if row else None

    def commit(
        self,
        *,
        request_id: int,
        account: str,
        effects: list[NewEffect],
        fingerprint: str,
        remember_key: str | None,
        refusal: Remembered | None = None,
    ) -> Remembered:
        """Make the effects, end the request and remember the answer under its key, all or nothing.

        The answer is the first effect's receipt with 201, or `refusal` where nothing is made. The key's
        window runs from the request's arrival. Raises `RequestForgotten` after a reset, and `KeyCancelled`.
        """
        with self._transaction() as db:
            for effect in effects:
                if remember_key is not None and self._is_cancelled(db, account, effect.kind, remember_key):
                    raise KeyCancelled
            made = [self._insert_effect(db, account, effect, request_id) for effect in effects]
            answer = refusal or Remembered(fingerprint, 201, write_json(made[0].receipt))
            self._end(db, request_id, "applied" if effects else "refused", fingerprint)
            if remember_key is not None:
                db.execute(
                    "INSERT INTO answers (account, key, fingerprint, status, body, first_at_us)"
                    " SELECT account, ?, ?, ?, ?, received_at_us FROM requests WHERE id = ?",
                    (remember_key, fingerprint, answer.status, answer.body, request_id),
                )
        return answer

    def make_by_hand(self, account: str, effect: NewEffect) -> EffectRow:
        """Make an effect that no request asked for, as a person at the provider's desk would."""
        with self._transaction() as db:
            return self._insert_effect(db, account, effect, None)

    def _insert_effect(
        self, db: sqlite3.Connection, account: str, effect: NewEffect, request_id: int | None
    ) -> EffectRow:
        now_us = self.now_us()
        effect_id = new_id(KINDS[effect.kind])
        receipt: JsonObject = {
            **effect.payload,
            "id": effect_id,
            "kind": effect.kind,
            "status": effect.status.value,
            "created_at": instant(now_us),
        }
        receipt.pop("idempotency_key", None)
        if effect.echoes_key:
            receipt["idempotency_key"] = effect.key
        lag_ms = effect.visible_after_ms
        visible_at_us = None if lag_ms is None else now_us + lag_ms * 1000
        cursor = db.execute(
            "INSERT INTO effects"
            " (id, account, kind, key, request_id, status, made_at_us, visible_at_us, receipt)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(effect_id, account, effect.kind, effect.key, request_id, effect.status.value),
                *(now_us, visible_at_us, write_json(receipt).decode()),
            ),
        )
        return EffectRow(
            number=int(cursor.lastrowid or 0),
            id=effect_id,
            account=account,
            kind=effect.kind,
            key=effect.key,
            request_id=request_id,
            status=effect.status,
            made_at_us=now_us,
            visible_at_us=visible_at_us,
            receipt=receipt,
        )

    def set_status(self, effect_id: str, status: Status) -> EffectRow | None:
        """Move an effect to another status, in its receipt as well; None where there is no such effect.

        The answer remembered under its key stays what it was: a replay repeats the first bytes.
        """
        with self._transaction() as db:
            rows = db.execute(f"{_EFFECTS} WHERE id = ?", (effect_id,)).fetchall()
            if not rows:
                return None
            receipt = {**json.loads(rows[0][9]), "status": status.value}
            db.execute(
                "UPDATE effects SET status = ?, receipt = ? WHERE id = ?",
                (status.value, write_json(receipt).decode(), effect_id),
            )
            rows = db.execute(f"{_EFFECTS} WHERE id = ?", (effect_id,)).fetchall()
        return _effect(rows[0])

    def undo(self, *, request_id: int, account: str, kind: str, key: str) -> int:
        """Undo whatever this key has made, keep it from making more, and end the request; how many it undid.

        What was made stays on record as made, and as undone. Raises `RequestForgotten` after a reset.
        """
        with self._transaction() as db:
            db.execute(
                "INSERT OR IGNORE INTO cancelled VALUES (?, ?, ?, ?)", (account, kind, key, self.now_us())
            )
            rows = db.execute(
                f"{_EFFECTS} WHERE account = ? AND kind = ? AND key = ?"
                " AND status IN ('succeeded', 'pending')",
                (account, kind, key),
            ).fetchall()
            for row in rows:
                receipt = {**json.loads(row[9]), "status": Status.CANCELED.value}
                db.execute(
                    "UPDATE effects SET status = ?, receipt = ? WHERE number = ?",
                    (Status.CANCELED.value, write_json(receipt).decode(), row[0]),
                )
            self._end(db, request_id, "undone" if rows else "nothing_there", None)
        return len(rows)

    def is_cancelled(self, *, account: str, kind: str, key: str) -> bool:
        """Whether a request has cancelled whatever this key makes."""
        with self._transaction() as db:
            return self._is_cancelled(db, account, kind, key)

    def _is_cancelled(self, db: sqlite3.Connection, account: str, kind: str, key: str) -> bool:
        found = db.execute(
            "SELECT 1 FROM cancelled WHERE account = ? AND kind = ? AND key = ?", (account, kind, key)
        ).fetchone()
        return found is not None

    def visible(self, *, account: str, kind: str, key: str) -> list[JsonObject]:
        """The receipts that a lookup by key shows now, oldest first."""
        rows = self._read(
            f"{_EFFECTS} WHERE account = ? AND kind = ? AND key = ? AND visible_at_us <= ? ORDER BY number",
            *(account, kind, key, self.now_us()),
        )
        return [_effect(row).receipt for row in rows]

    def visible_by_id(self, *, account: str, kind: str, effect_id: str) -> JsonObject | None:
        rows = self._read(
            f"{_EFFECTS} WHERE account = ? AND kind = ? AND id = ? AND visible_at_us <= ?",
            *(account, kind, effect_id, self.now_us()),
        )
        return _effect(rows[0]).receipt if rows else None

    def visible_between(
        self, *, account: str, kind: str, from_us: int, to_us: int, after: int, limit: int
    ) -> list[tuple[int, JsonObject]]:
        """The receipts made in this time that a lookup shows now, with their numbers, oldest first."""
        rows = self._read(
            f"{_EFFECTS} WHERE account = ? AND kind = ? AND made_at_us BETWEEN ? AND ?"
            " AND visible_at_us <= ? AND number > ? ORDER BY number LIMIT ?",
            *(account, kind, from_us, to_us, self.now_us(), after, limit),
        )
        return [(effect.number, effect.receipt) for effect in map(_effect, rows)]

    # -- what an observer sees ---------------------------------------------------------------------------

    def counts(self, *, account: str | None = None, key: str | None = None) -> Counts:
        """Requests, effects and lookups: of one key, of one account, or of all."""
        rows = self._read(
            "SELECT (SELECT count(*) FROM requests WHERE method = 'POST'"
            " AND (?1 IS NULL OR account = ?1) AND (?2 IS NULL OR key = ?2)),"
            " (SELECT count(*) FROM effects WHERE status <> 'failed'"
            " AND (?1 IS NULL OR account = ?1) AND (?2 IS NULL OR key = ?2)),"
            " (SELECT count(*) FROM requests WHERE method = 'GET'"
            " AND (?1 IS NULL OR account = ?1) AND (?2 IS NULL OR key = ?2)),"
            " (SELECT count(*) FROM requests WHERE method = 'CANCEL'"
            " AND (?1 IS NULL OR account = ?1) AND (?2 IS NULL OR key = ?2)),"
            " (SELECT count(*) FROM effects WHERE status = 'canceled'"
            " AND (?1 IS NULL OR account = ?1) AND (?2 IS NULL OR key = ?2))",
            *(account, key),
        )
        return Counts(*rows[0])

    def counts_by_account(self) -> dict[str, Counts]:
        rows = self._read(
            "SELECT account, sum(requests), sum(effects), sum(lookups), sum(cancels), sum(undone)"
            " FROM tally GROUP BY 1 ORDER BY 1"
        )
        return {str(name): Counts(*numbers) for name, *numbers in rows}

    def counts_by_key(self, account: str) -> dict[str, Counts]:
        """Counts for every key of one account; what came without a key is in none of them."""
        rows = self._read(
            "SELECT key, sum(requests), sum(effects), sum(lookups), sum(cancels), sum(undone) FROM tally"
            " WHERE account = ? AND key IS NOT NULL GROUP BY 1 ORDER BY 1",
            account,
        )
        return {str(name): Counts(*numbers) for name, *numbers in rows}

    def requests(self, *, account: str | None, key: str | None, after: int, limit: int) -> list[RequestRow]:
        rows = self._read(
            "SELECT id, method, account, kind, key, faults, outcome, fingerprint, received_at_us, ended_at_us"
            " FROM requests WHERE (?1 IS NULL OR account = ?1) AND (?2 IS NULL OR key = ?2) AND id > ?3"
            " ORDER BY id LIMIT ?4",
            *(account, key, after, limit),
        )
        return [RequestRow(*row) for row in rows]

    def effects(self, *, account: str | None, key: str | None, after: int, limit: int) -> list[EffectRow]:
        rows = self._read(
            f"{_EFFECTS} WHERE (?1 IS NULL OR account = ?1) AND (?2 IS NULL OR key = ?2) AND number > ?3"
            " ORDER BY number LIMIT ?4",
            *(account, key, after, limit),
        )
        return [_effect(row) for row in rows]

    def reset(self, *, account: str | None) -> None:
        """Forget an account with all its requests, effects, keys, rules and settings, or everything.

        The clock keeps its lead: other accounts' instants would move otherwise.
        """
        with self._transaction() as db:
            for table in ("requests", "effects", "answers", "cancelled", "rules", "accounts"):
                db.execute(f"DELETE FROM {table} WHERE ?1 IS NULL OR account = ?1", (account,))  # noqa: S608


_EFFECTS = (
    "SELECT number, id, account, kind, key, request_id, status, made_at_us, visible_at_us, receipt"
    " FROM effects"
)


def _effect(row: tuple[Any, ...]) -> EffectRow:
    number, effect_id, account, kind, key, request_id, status, made_at_us, visible_at_us, receipt = row
    return EffectRow(
        number=number,
        id=effect_id,
        account=account,
        kind=kind,
        key=key,
        request_id=request_id,
        status=Status(status),
        made_at_us=made_at_us,
        visible_at_us=visible_at_us,
        receipt=json.loads(receipt),
    )


def _lock_beside(path: Path) -> TextIO:
    """Hold a lock file beside the store for as long as this process lives, also through SIGKILL."""
    guard = path.with_name(path.name + ".lock").open("w")
    try:
        fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        guard.close()
        raise StoreInUse(f"another sandbox provider has {path} open") from None
    return guard
