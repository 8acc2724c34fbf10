"""The sandbox provider's client for tests, the demo and the crash lab: set it up, hold it, count.

It speaks to the admin side only. Effects are asked for as any client of a provider would, with an HTTP
client of one's own at `account_url`.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self, TypedDict, Unpack

import httpx

from console.sandbox.holds import Point, State
from console.sandbox.records import DEFAULT_ACCOUNT, Counts, Lookup, Status

# One long poll; `wait` asks again until its own time is up.
POLL_MS = 5_000
ANSWER_SECONDS = 15.0


class SandboxRefused(Exception):
    """The provider's admin side refused a call; the message says what and why."""


class NothingCame(Exception):
    """No request came to the hold, or hung, within the time given."""


class StillThere(Exception):
    """A hold or hang has not ended within the time given."""


class AccountChanges(TypedDict, total=False):
    """The settings of an account that a call may change; what isn't named stays (docs/sandbox.md)."""

    honours_keys: bool
    echoes_key: bool
    key_window_ms: int | None
    lookup: Lookup | Literal["by_key", "none"]
    lookup_lag_ms: int
    requires_auth: str | None


@dataclass(frozen=True)
class HoldView:
    """A hold or hang as the provider shows it. `request_id` is None until it has a request."""

    id: str
    state: State
    at: str
    is_fault: bool
    account: str
    kind: str | None
    key: str | None
    request_id: int | None


@dataclass(frozen=True)
class Request:
    """One request on record. `outcome` is None while it is being handled, or was when the provider died."""

    id: int
    method: str
    account: str
    kind: str
    key: str | None
    faults: str
    outcome: str | None
    fingerprint: str | None
    received_at: str
    ended_at: str | None


@dataclass(frozen=True)
class Effect:
    """One effect on record. `request_id` is None when it was made by hand."""

    number: int
    id: str
    account: str
    kind: str
    key: str | None
    request_id: int | None
    source: str
    status: str
    made_at: str
    visible_at: str | None
    receipt: dict[str, Any]


class SandboxHold:
    """A hold that was placed; as a context manager it is released at the end, whatever happened."""

    def __init__(self, control: SandboxControl, hold_id: str) -> None:
        self._control = control
        self.id = hold_id

    def wait(self, *, within_seconds: float = 20) -> HoldView:
        """Return once a request is provably held here; raises `NothingCame`."""
        return self._control.wait_until_held(self.id, within_seconds=within_seconds)

    def view(self) -> HoldView:
        return self._control.hold_view(self.id)

    def release(self) -> HoldView:
        """Let the request go on, or withdraw the hold where none came; again makes no difference."""
        return self._control.release(self.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class SandboxControl:
    """The admin side of the provider at `url`. Raises `SandboxRefused`, or `httpx.HTTPError` if gone."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        # The sandbox speaks plain HTTP on this machine: reading the system's certificates, which takes longer
        # than most calls here, would be for nothing.
        no_certificates = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._client = httpx.Client(
            base_url=self.url, timeout=ANSWER_SECONDS, trust_env=False, verify=no_certificates
        )

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def account_url(self, account: str = DEFAULT_ACCOUNT) -> str:
        """Where clients send to: `{account_url}/orders` and so on."""
        return f"{self.url}/acct/{account}"

    # -- accounts and the clock --------------------------------------------------------------------------

    def set_account(
        self, account: str = DEFAULT_ACCOUNT, **changes: Unpack[AccountChanges]
    ) -> dict[str, Any]:
        """Change some settings of an account; all of them as they now are."""
        return self._ask("POST", f"/admin/accounts/{account}", dict(changes))

    def account(self, account: str = DEFAULT_ACCOUNT) -> dict[str, Any]:
        return self._ask("GET", f"/admin/accounts/{account}")

    def advance_clock(self, *, by_ms: int) -> None:
        """Move the provider's clock ahead, so that a key window closes or a lag passes without waiting."""
        self._ask("POST", "/admin/clock", {"advance_ms": by_ms})

    def reset(self, account: str | None = None) -> None:
        """Forget one account, or everything; what is held there ends without an effect."""
        self._ask("POST", "/admin/reset", {} if account is None else {"account": account})

    # -- faults ------------------------------------------------------------------------------------------

    def fault(
        self,
        fault: str,
        *,
        account: str = DEFAULT_ACCOUNT,
        kind: str | None = None,
        key: str | None = None,
        times: int = 1,
    ) -> int:
        """Give the next `times` requests of that scope a fault (-1: every one); the rule's id."""
        body = {"account": account, "kind": kind, "key": key, "fault": fault, "times": times}
        return int(self._ask("POST", "/admin/faults", body)["id"])

    def faults(self) -> list[dict[str, Any]]:
        return list(self._ask("GET", "/admin/faults")["data"])

    def remove_fault(self, rule_id: int) -> None:
        self._ask("DELETE", f"/admin/faults/{rule_id}")

    def clear_faults(self, account: str | None = None) -> int:
        """Drop an account's rules, or all; how many there were."""
        query = {} if account is None else {"account": account}
        return int(self._ask("DELETE", "/admin/faults", query=query)["removed"])

    # -- holds -------------------------------------------------------------------------------------------

    def hold(
        self,
        at: Point
        | Literal["received", "before_commit", "after_commit", "lookup_received", "lookup_before_reply"],
        *,
        account: str = DEFAULT_ACCOUNT,
        kind: str | None = None,
        key: str | None = None,
    ) -> SandboxHold:
        """Hold the next request of that scope when it comes to this point."""
        body = {"account": account, "kind": kind, "key": key, "at": str(at)}
        return SandboxHold(self, str(self._ask("POST", "/admin/holds", body)["id"]))

    def hold_view(self, hold_id: str) -> HoldView:
        return _hold(self._ask("GET", f"/admin/holds/{hold_id}"))

    def holds(self) -> list[HoldView]:
        """All holds and hangs since the provider started, also those that have ended."""
        return [_hold(view) for view in self._ask("GET", "/admin/holds")["data"]]

    def wait_until_held(self, hold_id: str, *, within_seconds: float = 20) -> HoldView:
        """Return once a request is provably held; raises `NothingCame`."""
        for wait_ms in _polls(within_seconds):
            view = _hold(self._ask("GET", f"/admin/holds/{hold_id}", query={"wait_ms": wait_ms}))
            if view.state is State.HELD:
                return view
            if view.state is not State.WAITING:
                raise NothingCame(f"hold {hold_id} has ended: {view.state}")
        raise NothingCame(f"no request came to hold {hold_id} within {within_seconds} s")

    def wait_until_ended(self, hold_id: str, *, within_seconds: float = 20) -> HoldView:
        """Return once a hold or hang keeps no request any more; raises `StillThere`."""
        for wait_ms in _polls(within_seconds):
            query = {"wait_ms": wait_ms, "until": "ended"}
            view = _hold(self._ask("GET", f"/admin/holds/{hold_id}", query=query))
            if view.state not in (State.WAITING, State.HELD):
                return view
        raise StillThere(f"hold {hold_id} has not ended within {within_seconds} s")

    def wait_for_hang(
        self,
        *,
        account: str = DEFAULT_ACCOUNT,
        kind: str | None = None,
        key: str | None = None,
        within_seconds: float = 20,
    ) -> HoldView:
        """Return once a request of that scope hangs by a fault; raises `NothingCame`. `release` ends it."""
        scope = {"account": account, "kind": kind, "key": key}
        for wait_ms in _polls(within_seconds):
            query = {name: value for name, value in scope.items() if value is not None}
            answer = self._client.get("/admin/hangs", params={**query, "wait_ms": wait_ms})
            if answer.status_code != 404:
                return _hold(_body(answer))
        raise NothingCame(f"nothing hangs at account {account} after {within_seconds} s")

    def release(self, hold_id: str) -> HoldView:
        return _hold(self._ask("POST", f"/admin/holds/{hold_id}/release"))

    # -- what happened -----------------------------------------------------------------------------------

    def stats(self, account: str | None = None, *, key: str | None = None) -> Counts:
        """Requests, effects and lookups: of a key, of an account, of all."""
        return _counts(self._ask("GET", self._observed(account, "stats"), query=_given(key=key)))

    def stats_by_account(self) -> dict[str, Counts]:
        return {name: _counts(each) for name, each in self._ask("GET", "/stats")["accounts"].items()}

    def stats_by_key(self, account: str = DEFAULT_ACCOUNT) -> dict[str, Counts]:
        """Counts for each key of one account; what came without a key is in none of them."""
        keys = self._ask("GET", f"/acct/{account}/stats")["keys"]
        return {key: _counts(each) for key, each in keys.items()}

    def effects(self, account: str | None = None, *, key: str | None = None) -> list[Effect]:
        """All effects, oldest first."""
        return [Effect(**row) for row in self._pages(self._observed(account, "effects"), key)]

    def requests(self, account: str | None = None, *, key: str | None = None) -> list[Request]:
        """All requests and lookups, oldest first."""
        return [Request(**row) for row in self._pages(self._observed(account, "requests"), key)]

    # -- by hand -----------------------------------------------------------------------------------------

    def make_by_hand(
        self,
        kind: str,
        payload: dict[str, Any],
        *,
        account: str = DEFAULT_ACCOUNT,
        key: str | None = None,
        status: Status = Status.SUCCEEDED,
    ) -> Effect:
        """Make an effect that no request asked for. A key makes it found by lookups, not protected."""
        body = {"account": account, "kind": kind, "key": key, "payload": payload, "status": status.value}
        return Effect(**self._ask("POST", "/admin/effects", body))

    def settle(self, effect_id: str, status: Status) -> Effect:
        """Move an effect to another status, as when a pending one succeeds or fails."""
        return Effect(**self._ask("POST", f"/admin/effects/{effect_id}", {"status": status.value}))

    def _observed(self, account: str | None, word: str) -> str:
        return f"/{word}" if account is None else f"/acct/{account}/{word}"

    def _pages(self, path: str, key: str | None) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            page = self._ask("GET", path, query={**_given(key=key), "after": after})
            rows += page["data"]
            after = page["next"]
        return rows

    def _ask(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        query: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        return _body(self._client.request(method, path, json=body, params=query))


def _body(answer: httpx.Response) -> dict[str, Any]:
    if answer.is_error:
        raise SandboxRefused(
            f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text}"
        )
    body: dict[str, Any] = answer.json()
    return body


def _given(**values: str | None) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _counts(body: dict[str, Any]) -> Counts:
    return Counts(body["requests"], body["effects"], body["lookups"], body["cancels"], body["undone"])


def _hold(body: dict[str, Any]) -> HoldView:
    return HoldView(**{**body, "state": State(body["state"])})


def _polls(within_seconds: float) -> Iterator[int]:
    """Long polls' lengths in milliseconds until the time is up; at least one."""
    end_at = time.monotonic() + within_seconds
    left_ms = int(within_seconds * 1000)
    while True:
        yield max(0, min(POLL_MS, left_ms))
        left_ms = int((end_at - time.monotonic()) * 1000)
        if left_ms <= 0:
            return
