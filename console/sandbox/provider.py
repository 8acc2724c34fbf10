"""What the provider does with a request for an effect, and with a lookup.

The order is the point: count the request, then (held or failing where told) decide, commit, answer. Every
step between two of these can be stopped or made to fail, because every one of them is a crash window of
the caller.
"""

from __future__ import annotations

import hmac
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from console.sandbox import faults as fault_words
from console.sandbox.faults import Fault, FaultSet, Name
from console.sandbox.holds import Client, Holds, Point, State
from console.sandbox.records import AccountSettings, Arrival, Lookup, NewEffect, Remembered, Status, Window
from console.sandbox.store import KeyCancelled, RequestForgotten, Store
from console.sandbox.wire import (
    Answer,
    ClientLeft,
    CutShort,
    Dropped,
    JsonObject,
    Refused,
    Reply,
    Reset,
    fingerprint,
    read_object,
)

# Not UTF-8, not JSON, and it looks like markup: what a broken gateway sends.
GARBAGE = b'<html>\xff\xfe<b>502 Bad Gateway</b> {"id": "ord_'
REDIRECT_ACCOUNT = "redirected"


class Caller(Client, Protocol):
    """The request as far as it isn't on record yet: its other headers, its body, its connection."""

    def headers(self, name: str) -> list[str]: ...

    def read_body(self) -> bytes: ...


@dataclass(frozen=True)
class Incoming:
    """A request on record: its number there, what it is for, what it suffers, and who waits for it."""

    id: int
    arrival: Arrival
    faults: FaultSet
    caller: Caller

    @property
    def ending(self) -> Name | None:
        ending = self.faults.ending
        return ending.name if ending else None

    @property
    def ending_param(self) -> str:
        ending = self.faults.ending
        return ending.param if ending else ""


class _GiveUp(Exception):
    """Ends a request without an answer; the reason is its outcome on record."""

    def __init__(self, outcome: str) -> None:
        super().__init__(outcome)
        self.outcome = outcome


class Provider:
    """Takes requests and lookups for all accounts; safe from any thread."""

    def __init__(self, store: Store, holds: Holds) -> None:
        self._store = store
        self._holds = holds
        # Keys whose first request is being handled now, with that request's fingerprint. Memory is the right
        # place: after a crash of ours nothing is in flight any more, and nothing was committed.
        self._in_flight: dict[tuple[str, str], str] = {}
        self._keys = threading.Lock()
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Cut short what is slow on purpose."""
        self._stopping.set()

    def take(self, arrival: Arrival, caller: Caller) -> Reply:
        """Count a request for an effect, make the effect unless told otherwise, and say how to answer."""
        return self._recorded("POST", arrival, caller, self._take)

    def cancel(self, arrival: Arrival, caller: Caller) -> Reply:
        """Count a request to cancel whatever a key has made, undo it unless told otherwise, and answer."""
        return self._recorded("CANCEL", arrival, caller, self._cancel)

    def look_up(self, arrival: Arrival, caller: Caller, *, effect_id: str | None) -> Reply:
        """Count a lookup and answer it: by id the receipt or 404, by key the list of receipts."""
        return self._asked(arrival, caller, lambda: self._find(arrival, effect_id))

    def list_made(self, arrival: Arrival, caller: Caller, window: Window) -> Reply:
        """Count a lookup and answer it: one page of the receipts made in this time, oldest first."""
        return self._asked(arrival, caller, lambda: self._list(arrival, window))

    def _asked(self, arrival: Arrival, caller: Caller, find: Callable[[], Answer]) -> Reply:
        return self._recorded("GET", arrival, caller, lambda incoming: self._look_up(incoming, find))

    def _recorded(
        self, method: str, arrival: Arrival, caller: Caller, act: Callable[[Incoming], Reply]
    ) -> Reply:
        """Count the request before anything else, act on it, and note how it ended."""
        problem: Refused | None = None
        from_header: tuple[Fault, ...] = ()
        try:
            from_header = fault_words.parse_header(
                caller.headers("Sandbox-Fault"), for_lookups=method == "GET"
            )
        except Refused as refused:
            problem = refused
        request_id, suffered = self._store.record_request(
            method=method, arrival=arrival, from_header=from_header
        )
        try:
            try:
                if problem:
                    raise problem
                return act(Incoming(request_id, arrival, suffered, caller))
            except Refused as refused:
                self._store.end_request(request_id, outcome=refused.code)
                return refused.answer()
            except _GiveUp as given_up:
                self._store.end_request(request_id, outcome=given_up.outcome)
                return Dropped()
            except ClientLeft:
                self._store.end_request(request_id, outcome="incomplete")
                return Dropped()
        except RequestForgotten:
            return Dropped()

    # -- requests for an effect --------------------------------------------------------------------------

    def _take(self, incoming: Incoming) -> Reply:
        if incoming.ending is Name.RESET and incoming.ending_param != "after":
            self._store.end_request(incoming.id, outcome="reset")
            return Reset()
        body = incoming.caller.read_body()
        self._stop_at(Point.RECEIVED, incoming)
        settings = self._store.settings(incoming.arrival.account)
        _check_token(settings, incoming.caller)
        _check_key(settings, incoming)
        payload = read_object(body)
        if slow := incoming.faults.get(Name.SLOW):
            self._stopping.wait(slow.number(0) / 1000)
        _refuse_as_told(incoming)
        if incoming.ending is Name.GARBAGE_WITHOUT_COMMIT:
            self._store.end_request(incoming.id, outcome=incoming.ending.value)
            return Answer(201, GARBAGE)
        answer = self._answer_once(incoming, settings, payload)
        self._stop_at(Point.AFTER_COMMIT, incoming)
        return self._deliver(incoming, answer)

    def _answer_once(self, incoming: Incoming, settings: AccountSettings, payload: JsonObject) -> Answer:
        """The answer under this request's key: the remembered one, or that of a new effect."""
        mark = fingerprint(incoming.arrival.kind, payload)
        honoured = settings.honours_keys and not incoming.faults.get(Name.IGNORE_KEY)
        key = incoming.arrival.key if honoured else None
        if key is None:
            return self._commit(incoming, settings, payload, mark, remember_key=None)
        arrival = incoming.arrival
        if self._store.is_cancelled(account=arrival.account, kind=arrival.kind, key=key):
            raise _cancelled()
        remembered = self._enter(incoming.arrival.account, key, mark, settings)
        if remembered is not None:
            self._hang_if(Name.HANG_BEFORE_COMMIT, incoming)
            self._store.end_request(incoming.id, outcome="replayed")
            return Answer(remembered.status, remembered.body, (("Idempotent-Replayed", "true"),))
        try:
            return self._commit(incoming, settings, payload, mark, remember_key=key)
        finally:
            with self._keys:
                del self._in_flight[incoming.arrival.account, key]

    def _enter(self, account: str, key: str, mark: str, settings: AccountSettings) -> Remembered | None:
        """Give the key to one request: None for the first, the answer to repeat, or `Refused`.

        The key leaves `_in_flight` only after its answer is committed, and both are looked at under one
        lock, so that no caller can find it in neither.
        """
        with self._keys:
            running = self._in_flight.get((account, key))
            found = None
            if running is None:
                found = self._store.remembered(account=account, key=key, window_ms=settings.key_window_ms)
                if found is None:
                    self._in_flight[account, key] = mark
                    return None
        if mark != (found.fingerprint if found else running):
            raise Refused(422, "key_reused", "This key was used with another kind or body.")
        if found is None:
            raise Refused(409, "in_flight", "The first request with this key is still running.")
        return found

    def _commit(
        self,
        incoming: Incoming,
        settings: AccountSettings,
        payload: JsonObject,
        mark: str,
        *,
        remember_key: str | None,
    ) -> Answer:
        """Come to the brink of the commit, stop or hang there if told, and commit."""
        self._stop_at(Point.BEFORE_COMMIT, incoming)
        self._hang_if(Name.HANG_BEFORE_COMMIT, incoming)
        refusal = _refusal().answer() if incoming.ending is Name.REFUSE else None
        try:
            answer = self._store.commit(
                request_id=incoming.id,
                account=incoming.arrival.account,
                effects=[] if refusal else _effects(incoming, settings, payload),
                fingerprint=mark,
                remember_key=remember_key,
                refusal=Remembered(mark, refusal.status, refusal.body) if refusal else None,
            )
        except KeyCancelled:
            # Cancelled between its arrival and this commit.
            raise _cancelled() from None
        return Answer(answer.status, answer.body)

    def _deliver(self, incoming: Incoming, answer: Answer) -> Reply:
        """The committed answer, or what the request's ending makes of it."""
        match incoming.ending:
            case Name.DROP_REPLY:
                return Dropped()
            case Name.RESET:
                return Reset()
            case Name.TRUNCATE:
                return CutShort(answer)
            case Name.GARBAGE:
                return Answer(answer.status, GARBAGE)
            case Name.ERROR_500_AFTER_COMMIT:
                return _failure().answer()
            case Name.HANG_AFTER_COMMIT:
                return answer if self._hang(incoming) is State.RELEASED else Dropped()
            case _:
                return answer

    def _stop_at(self, at: Point, incoming: Incoming) -> None:
        if self._holds.stop_at(at, incoming.arrival, incoming.id) is State.FORGOTTEN:
            raise RequestForgotten

    def _hang(self, incoming: Incoming) -> State:
        return self._holds.hang(str(incoming.ending), incoming.arrival, incoming.id, incoming.caller)

    def _hang_if(self, name: Name, incoming: Incoming) -> None:
        """Where `name` is this request's ending: hang, and go on only when released."""
        if incoming.ending is not name:
            return
        state = self._hang(incoming)
        if state is State.LEFT:
            raise _GiveUp("client_left")
        if state is State.FORGOTTEN:
            raise RequestForgotten

    # -- cancelling by key -------------------------------------------------------------------------------

    def _cancel(self, incoming: Incoming) -> Reply:
        if incoming.ending is Name.RESET and incoming.ending_param != "after":
            self._store.end_request(incoming.id, outcome="reset")
            return Reset()
        incoming.caller.read_body()
        self._stop_at(Point.RECEIVED, incoming)
        settings = self._store.settings(incoming.arrival.account)
        _check_token(settings, incoming.caller)
        key = incoming.arrival.key
        if key is None or not settings.honours_keys:
            raise Refused(400, "key_missing", "Name the Idempotency-Key whose effect is to be cancelled.")
        _refuse_as_told(incoming)
        if incoming.ending is Name.REFUSE:
            raise _refusal()
        self._stop_at(Point.BEFORE_COMMIT, incoming)
        self._hang_if(Name.HANG_BEFORE_COMMIT, incoming)
        arrival = incoming.arrival
        undone = self._store.undo(request_id=incoming.id, account=arrival.account, kind=arrival.kind, key=key)
        self._stop_at(Point.AFTER_COMMIT, incoming)
        return self._deliver(incoming, Answer.of({"absent": True, "undone": undone}))

    # -- lookups -----------------------------------------------------------------------------------------

    def _look_up(self, incoming: Incoming, find: Callable[[], Answer]) -> Reply:
        self._stop_at(Point.LOOKUP_RECEIVED, incoming)
        settings = self._store.settings(incoming.arrival.account)
        _check_token(settings, incoming.caller)
        if slow := incoming.faults.get(Name.LOOKUP_SLOW):
            self._stopping.wait(slow.number(0) / 1000)
        self._hang_if(Name.LOOKUP_HANG, incoming)
        match incoming.ending:
            case Name.LOOKUP_500:
                raise _failure()
            case Name.LOOKUP_429:
                raise _rate_limited(incoming)
            case Name.LOOKUP_DROP:
                raise _GiveUp(Name.LOOKUP_DROP.value)
            case Name.LOOKUP_GARBAGE:
                self._store.end_request(incoming.id, outcome=Name.LOOKUP_GARBAGE.value)
                return Answer(200, GARBAGE)
            case _:
                pass
        if settings.lookup is Lookup.NONE:
            raise Refused(501, "lookup_not_offered", "This account offers no lookup.")
        answer = find()
        self._stop_at(Point.LOOKUP_BEFORE_REPLY, incoming)
        self._store.end_request(incoming.id, outcome="answered")
        return answer

    def _list(self, arrival: Arrival, window: Window) -> Answer:
        found = self._store.visible_between(
            account=arrival.account,
            kind=arrival.kind,
            from_us=window.from_us,
            to_us=window.to_us,
            after=window.after,
            limit=window.limit + 1,
        )
        page = found[: window.limit]
        following = page[-1][0] if len(found) > len(page) else None
        return Answer.of({"data": [receipt for _, receipt in page], "next": following})

    def _find(self, arrival: Arrival, effect_id: str | None) -> Answer:
        if effect_id is not None:
            receipt = self._store.visible_by_id(
                account=arrival.account, kind=arrival.kind, effect_id=effect_id
            )
            if receipt is None:
                return Refused(404, "not_found", "There is nothing of this kind with this id.").answer()
            return Answer.of(receipt)
        if arrival.key is None:
            raise Refused(400, "key_missing", "Name one idempotency_key to look up.")
        receipts = self._store.visible(account=arrival.account, kind=arrival.kind, key=arrival.key)
        return Answer.of({"data": receipts})


def _effects(incoming: Incoming, settings: AccountSettings, payload: JsonObject) -> list[NewEffect]:
    """The effects that this request makes: one as asked, unless a modifier says otherwise."""
    if other := incoming.faults.get(Name.OTHER_PAYLOAD):
        payload = fault_words.altered(payload, other.param)
    visible_after_ms: int | None = settings.lookup_lag_ms
    if hidden := incoming.faults.get(Name.HIDE_FROM_LOOKUP):
        visible_after_ms = int(hidden.param) if hidden.param else None
    status = incoming.faults.get(Name.STATUS)
    effect = NewEffect(
        kind=incoming.arrival.kind,
        key=incoming.arrival.key,
        payload=payload,
        status=Status(status.param) if status else Status.SUCCEEDED,
        visible_after_ms=visible_after_ms,
        echoes_key=settings.echoes_key,
    )
    return [effect] * (2 if incoming.faults.get(Name.TWICE) else 1)


def _check_token(settings: AccountSettings, caller: Caller) -> None:
    if settings.requires_auth is None:
        return
    given = caller.headers("Authorization")
    wanted = f"Bearer {settings.requires_auth}"
    if len(given) != 1 or not hmac.compare_digest(given[0].encode(), wanted.encode()):
        raise Refused(401, "unauthorised", "This account asks for its bearer token.")


def _check_key(settings: AccountSettings, incoming: Incoming) -> None:
    if incoming.arrival.key is not None:
        return
    if incoming.caller.headers("Idempotency-Key"):
        raise Refused(400, "key_invalid", "Idempotency-Key must be one key of 1 to 255 visible characters.")
    if settings.honours_keys and not incoming.faults.get(Name.IGNORE_KEY):
        raise Refused(400, "key_missing", "This account wants an Idempotency-Key.")


def _refuse_as_told(incoming: Incoming) -> None:
    """Raise the answer of an ending that comes before the key is looked at, so that no effect is made."""
    match incoming.ending:
        case Name.REFUSE if not incoming.ending_param:
            raise _refusal()
        case Name.RATE_LIMITED:
            raise _rate_limited(incoming)
        case Name.REDIRECT:
            where = incoming.ending_param or f"/acct/{REDIRECT_ACCOUNT}/{incoming.arrival.kind}"
            raise Refused(307, "redirect", "This is served elsewhere.", headers={"Location": where})
        case Name.ERROR_500_BEFORE_COMMIT:
            raise _failure()
        case _:
            return


def _cancelled() -> Refused:
    return Refused(422, "key_cancelled", "This key was cancelled: nothing is made under it any more.")


def _refusal() -> Refused:
    return Refused(422, "refused", "The provider will not do this. Nothing was changed.")


def _rate_limited(incoming: Incoming) -> Refused:
    seconds = incoming.ending_param or "1"
    return Refused(429, "rate_limited", "Too many requests.", headers={"Retry-After": seconds})


def _failure() -> Refused:
    return Refused(500, "failed", "Something went wrong here.")
