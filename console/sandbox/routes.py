"""Which path does what: the provider's own, what an observer reads, and what an admin sets.

Paths hold account names and ids only, of plain characters; whatever else comes in is a 404.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol
from urllib.parse import parse_qsl

from console.sandbox import faults, holds
from console.sandbox.holds import Holds
from console.sandbox.provider import Caller, Provider
from console.sandbox.records import (
    ANY_ACCOUNT,
    DEFAULT_ACCOUNT,
    KINDS,
    Arrival,
    Counts,
    NewEffect,
    Scope,
    Status,
    Window,
)
from console.sandbox.store import Store
from console.sandbox.wire import Answer, Fields, JsonObject, Refused, Reply, instant, invalid, read_object

ACCOUNT = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
EFFECT_ID = re.compile(r"[a-z]{1,8}_[0-9A-Z]{1,40}\Z")
KEY = re.compile(r"[!-~]{1,255}\Z")
NUMBER = re.compile(r"[0-9]{1,18}\Z")
# Long enough for any test's patience, short enough that an abandoned question doesn't keep its thread.
WAIT_MS_MAX = 60_000
PAGE_MAX = 1000
QUERY_FIELDS_MAX = 20
TIMES_MAX = 1_000_000
ADVANCE_MS_MAX = 10 * 365 * 24 * 3600 * 1000

# What a question about a hold may wait for.
_UNTIL = {"held": holds.NOT_YET_HELD, "ended": holds.NOT_YET_ENDED}


class Question(Caller, Protocol):
    """One HTTP request: method, path and query as they were sent, headers, body, connection."""

    method: str
    path: str
    query: str


Action = Callable[[Question], Reply]
Methods = dict[str, Action]


class Routes:
    """Answers every request there can be."""

    def __init__(self, store: Store, waiting: Holds, provider: Provider) -> None:
        self._store = store
        self._holds = waiting
        self._provider = provider

    def answer(self, question: Question) -> Reply:
        """The reply to a request; a refusal is an answer too."""
        try:
            methods = self._find(question.path)
            if methods is None:
                raise _not_found()
            if question.method not in methods:
                allowed = ", ".join(sorted(methods))
                raise Refused(
                    405, "method_not_allowed", f"Allowed here: {allowed}.", headers={"Allow": allowed}
                )
            return methods[question.method](question)
        except Refused as refused:
            return refused.answer()

    def _find(self, path: str) -> Methods | None:
        segments = path.removeprefix("/").split("/")
        match segments:
            case ["healthz"]:
                return {"GET": self._health}
            case ["admin", *rest]:
                return self._find_admin(rest)
            case ["acct", account, *rest] if ACCOUNT.match(account):
                return self._find_in_account(account, rest)
            case ["stats" | "effects" | "requests" as word]:
                return self._find_records(word, None)
            case _:
                return self._find_in_account(DEFAULT_ACCOUNT, segments)

    def _find_in_account(self, account: str, segments: list[str]) -> Methods | None:
        match segments:
            case [kind] if kind in KINDS:
                return {
                    "POST": lambda question: self._take(question, account, kind),
                    "GET": lambda question: self._look_up(question, account, kind, None),
                }
            case [kind, "cancellation"] if kind in KINDS:
                return {"POST": lambda question: self._cancel(question, account, kind)}
            case [kind, effect_id] if kind in KINDS and EFFECT_ID.match(effect_id):
                return {"GET": lambda question: self._look_up(question, account, kind, effect_id)}
            case ["stats" | "effects" | "requests" as word]:
                return self._find_records(word, account)
            case _:
                return None

    def _find_records(self, word: str, account: str | None) -> Methods:
        match word:
            case "stats":
                return {"GET": lambda question: self._stats(question, account)}
            case "effects":
                return {"GET": lambda question: self._effects(question, account)}
            case _:
                return {"GET": lambda question: self._requests(question, account)}

    def _find_admin(self, segments: list[str]) -> Methods | None:
        match segments:
            case ["accounts", account] if ACCOUNT.match(account):
                return {
                    "POST": lambda question: self._set_account(question, account),
                    "GET": lambda _: self._show_account(account),
                }
            case ["faults"]:
                return {"POST": self._add_fault, "GET": self._show_faults, "DELETE": self._remove_faults}
            case ["faults", number] if NUMBER.match(number):
                return {"DELETE": lambda _: self._remove_fault(int(number))}
            case ["holds"]:
                return {"POST": self._place_hold, "GET": lambda _: Answer.of({"data": self._holds.all()})}
            case ["holds", hold_id]:
                return {"GET": lambda question: self._show_hold(question, hold_id)}
            case ["holds", hold_id, "release"]:
                return {"POST": lambda _: Answer.of(self._holds.release(hold_id))}
            case ["hangs"]:
                return {"GET": self._show_hang}
            case ["effects"]:
                return {"POST": self._make_by_hand}
            case ["effects", effect_id] if EFFECT_ID.match(effect_id):
                return {"POST": lambda question: self._settle(question, effect_id)}
            case ["clock"]:
                return {"POST": self._advance_clock, "GET": lambda _: self._show_clock()}
            case ["reset"]:
                return {"POST": self._reset}
            case _:
                return None

    # -- the provider ------------------------------------------------------------------------------------

    def _take(self, question: Question, account: str, kind: str) -> Reply:
        return self._provider.take(Arrival(account, kind, _header_key(question)), question)

    def _cancel(self, question: Question, account: str, kind: str) -> Reply:
        return self._provider.cancel(Arrival(account, kind, _header_key(question)), question)

    def _look_up(self, question: Question, account: str, kind: str, effect_id: str | None) -> Reply:
        query = _query(question)
        if effect_id is None and "created_from" in query:
            return self._provider.list_made(Arrival(account, kind, None), question, _window(query))
        key = None if effect_id else _query_key(query, "idempotency_key")
        return self._provider.look_up(Arrival(account, kind, key), question, effect_id=effect_id)

    # -- what an observer reads --------------------------------------------------------------------------

    def _health(self, _: Question) -> Reply:
        return Answer.of({"status": "ok", "now": instant(self._store.now_us())})

    def _stats(self, question: Question, account: str | None) -> Reply:
        key = _query_key(_query(question), "key")
        body = _counts(self._store.counts(account=account, key=key))
        if account is not None:
            body["account"] = account
        if key is not None:
            body["key"] = key
        elif account is not None:
            body["keys"] = _counts_by_name(self._store.counts_by_key(account))
        else:
            body["accounts"] = _counts_by_name(self._store.counts_by_account())
        return Answer.of(body)

    def _effects(self, question: Question, account: str | None) -> Reply:
        query = _query(question)
        after, limit = _page(query)
        rows = self._store.effects(
            account=account, key=_query_key(query, "key"), after=after, limit=limit + 1
        )
        following = rows[limit - 1].number if len(rows) > limit else None
        return Answer.of({"data": [row.shown() for row in rows[:limit]], "next": following})

    def _requests(self, question: Question, account: str | None) -> Reply:
        query = _query(question)
        after, limit = _page(query)
        rows = self._store.requests(
            account=account, key=_query_key(query, "key"), after=after, limit=limit + 1
        )
        following = rows[limit - 1].id if len(rows) > limit else None
        return Answer.of({"data": [row.shown() for row in rows[:limit]], "next": following})

    # -- what an admin sets ------------------------------------------------------------------------------

    def _show_account(self, account: str) -> Reply:
        return Answer.of({"account": account, **self._store.settings(account).shown()})

    def _set_account(self, question: Question, account: str) -> Reply:
        fields = _fields(question)
        settings = self._store.settings(account).changed(fields)
        fields.done()
        self._store.set_settings(account, settings)
        return self._show_account(account)

    def _add_fault(self, question: Question) -> Reply:
        fields = _fields(question)
        scope = _scope(fields)
        fault = faults.parse(fields.text("fault") or "")
        times = fields.number("times", 1, low=-1, high=TIMES_MAX)
        fields.done()
        if not times:
            raise invalid("times must be -1 (always) or at least 1")
        rule_id = self._store.add_rule(scope=scope, fault=fault, times=times)
        return Answer.of({"id": rule_id, **_scope_shown(scope), "fault": str(fault), "times": times}, 201)

    def _show_faults(self, _: Question) -> Reply:
        return Answer.of({"data": self._store.rules()})

    def _remove_faults(self, question: Question) -> Reply:
        return Answer.of({"removed": self._store.remove_rules(account=_query(question).get("account"))})

    def _remove_fault(self, rule_id: int) -> Reply:
        if not self._store.remove_rules(rule_id=rule_id):
            raise _not_found()
        return Answer.of({"removed": 1})

    def _place_hold(self, question: Question) -> Reply:
        fields = _fields(question)
        scope, at = _scope(fields), holds.point(fields.text("at"))
        fields.done()
        return Answer.of(self._holds.place(scope, at).shown(), 201)

    def _show_hold(self, question: Question, hold_id: str) -> Reply:
        query = _query(question)
        word = query.get("until", "held")
        if word not in _UNTIL:
            raise Refused(400, "query_invalid", f"until must be one of: {', '.join(_UNTIL)}.")
        return Answer.of(self._holds.find(hold_id, past=_UNTIL[word], wait_seconds=_wait_seconds(query)))

    def _show_hang(self, question: Question) -> Reply:
        query = _query(question)
        scope = Scope(
            query.get("account", DEFAULT_ACCOUNT), query.get("kind") or None, _query_key(query, "key")
        )
        hang = self._holds.wait_for_hang(scope, wait_seconds=_wait_seconds(query))
        if hang is None:
            raise Refused(404, "nothing_hangs", "No request of that scope is hanging by a fault.")
        return Answer.of(hang)

    def _make_by_hand(self, question: Question) -> Reply:
        fields = _fields(question)
        scope = _scope(fields)
        if scope.account == ANY_ACCOUNT or scope.kind is None:
            raise invalid("name one account and a kind")
        settings = self._store.settings(scope.account)
        effect = NewEffect(
            kind=scope.kind,
            key=scope.key,
            payload=fields.object("payload"),
            status=_status(fields.text("status", Status.SUCCEEDED.value)),
            visible_after_ms=settings.lookup_lag_ms,
            echoes_key=settings.echoes_key,
        )
        fields.done()
        return Answer.of(self._store.make_by_hand(scope.account, effect).shown(), 201)

    def _settle(self, question: Question, effect_id: str) -> Reply:
        fields = _fields(question)
        status = _status(fields.text("status"))
        fields.done()
        effect = self._store.set_status(effect_id, status)
        if effect is None:
            raise _not_found()
        return Answer.of(effect.shown())

    def _show_clock(self) -> Reply:
        return Answer.of({"now": instant(self._store.now_us())})

    def _advance_clock(self, question: Question) -> Reply:
        fields = _fields(question)
        by_ms = fields.number("advance_ms", low=0, high=ADVANCE_MS_MAX)
        fields.done()
        self._store.advance_clock(by_ms=by_ms or 0)
        return self._show_clock()

    def _reset(self, question: Question) -> Reply:
        fields = _fields(question)
        account = fields.text("account")
        fields.done()
        # Records first: what is held and wakes up then finds that it has been forgotten.
        self._store.reset(account=account)
        self._holds.forget(account)
        return Answer.of({"reset": account or ANY_ACCOUNT})


def _counts(counts: Counts) -> JsonObject:
    return {
        "requests": counts.requests,
        "effects": counts.effects,
        "lookups": counts.lookups,
        "cancels": counts.cancels,
        "undone": counts.undone,
    }


def _counts_by_name(counts: dict[str, Counts]) -> JsonObject:
    return {name: _counts(each) for name, each in counts.items()}


def _header_key(question: Question) -> str | None:
    """The one key in the header, bare or as the quoted string of the IETF draft; None if not one key."""
    given = question.headers("Idempotency-Key")
    if len(given) != 1:
        return None
    key = given[0].strip()
    if len(key) > 2 and key.startswith('"') and key.endswith('"'):
        key = key[1:-1]
    return key if KEY.match(key) else None


def _query_key(query: dict[str, str], name: str) -> str | None:
    key = query.get(name)
    if key is None:
        return None
    if not KEY.match(key):
        raise Refused(400, "key_invalid", "A key has 1 to 255 visible characters.")
    return key


def _query(question: Question) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            question.query, keep_blank_values=True, errors="strict", max_num_fields=QUERY_FIELDS_MAX
        )
    except ValueError:
        raise Refused(400, "query_invalid", "The query can't be read.") from None
    if len({name for name, _ in pairs}) != len(pairs):
        raise Refused(400, "query_invalid", "The query names something twice.")
    return dict(pairs)


def _query_number(query: dict[str, str], name: str, default: int, high: int) -> int:
    text = query.get(name, str(default))
    if not NUMBER.match(text) or int(text) > high:
        raise Refused(400, "query_invalid", f"{name} must be a whole number up to {high}.")
    return int(text)


def _page(query: dict[str, str]) -> tuple[int, int]:
    limit = _query_number(query, "limit", PAGE_MAX, PAGE_MAX)
    return _query_number(query, "after", 0, 2**53), max(1, limit)


def _window(query: dict[str, str]) -> Window:
    """From and to are whole seconds of Unix time, both inside."""
    after, limit = _page(query)
    from_s = _query_number(query, "created_from", 0, 2**40)
    to_s = _query_number(query, "created_to", 2**40, 2**40)
    return Window(from_s * 1_000_000, to_s * 1_000_000 + 999_999, after, limit)


def _wait_seconds(query: dict[str, str]) -> float:
    return _query_number(query, "wait_ms", 0, WAIT_MS_MAX) / 1000


def _fields(question: Question) -> Fields:
    body = question.read_body()
    return Fields(read_object(body) if body.strip() else {})


def _scope(fields: Fields) -> Scope:
    account = fields.text("account", DEFAULT_ACCOUNT) or DEFAULT_ACCOUNT
    kind, key = fields.text("kind"), fields.text("key")
    if account != ANY_ACCOUNT and not ACCOUNT.match(account):
        raise invalid("account must be 1 to 64 letters, digits and _ . -, or *")
    if kind is not None and kind not in KINDS:
        raise invalid(f"kind must be one of: {', '.join(KINDS)}")
    if key is not None and not KEY.match(key):
        raise invalid("key must be 1 to 255 visible characters")
    return Scope(account, kind, key)


def _scope_shown(scope: Scope) -> JsonObject:
    return {"account": scope.account, "kind": scope.kind, "key": scope.key}


def _status(text: str | None) -> Status:
    try:
        return Status(text or "")
    except ValueError:
        raise invalid(f"status must be one of: {', '.join(Status)}") from None


def _not_found() -> Refused:
    return Refused(404, "not_found", "There is nothing at this path.")
