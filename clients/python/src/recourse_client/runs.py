"""A run and its turns, as agents use them."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeAlias
from urllib.parse import quote

from recourse_client.effects import Effects
from recourse_client.errors import (
    LeaseLost,
    RecourseError,
    RunEnded,
    UnreadableAnswer,
)
from recourse_client.ids import new_id
from recourse_client.journal import Journal, Patience
from recourse_client.lease import Lease
from recourse_client.outcomes import (
    Json,
)
from recourse_client.plan import Decided, Plan, read_plan, read_turn, require
from recourse_client.reports import REPORT_PATIENCE
from recourse_client.spool import Spool
from recourse_client.turns import Turn

_log = logging.getLogger("recourse_client")

Decide: TypeAlias = Callable[[], Decided]

# How long the journal may hold a question for claimable runs; its own limit is 60.
LONG_POLL_SECONDS = 30
# Between two questions that found only others' runs, so that a busy queue isn't asked in a loop.
_POLL_PAUSE_SECONDS = 1.0
_LEAVING = Patience(tries_max=2, total_seconds=5.0)


@dataclass(frozen=True)
class RunInfo:
    """A run as the journal lists it."""

    id: str
    state: str
    flow: str
    flow_version: str
    external_id: str
    paused_reasons: tuple[str, ...] = ()


def read_run(source: object) -> RunInfo:
    """Return a run from the journal's answer; raises `UnreadableAnswer`."""
    if not isinstance(source, dict):
        raise UnreadableAnswer("the journal's answer has no usable 'run'")
    return RunInfo(
        id=require(source, "id", str),
        state=require(source, "state", str),
        flow=require(source, "flow", str),
        flow_version=require(source, "flow_version", str),
        external_id=require(source, "external_id", str),
        paused_reasons=tuple(str(reason) for reason in source.get("paused_reasons") or ()),
    )


class NotClaimed(LeaseLost):
    """The run was never claimed by this object, or has been left already."""


class Run:
    """One run. As a context manager it claims on entry and, when nothing is in flight, releases on exit."""

    def __init__(
        self,
        *,
        journal: Journal,
        spool: Spool,
        info: RunInfo,
        worker: str,
        flow_version: str,
        flow_digest: str | None = None,
        lease_seconds: int,
        report_patience: Patience = REPORT_PATIENCE,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.info = info
        self._journal = journal
        self._spool = spool
        self._worker = worker
        self._flow_version = flow_version
        self._flow_digest = flow_digest
        self._lease_seconds = lease_seconds
        self._report_patience = report_patience
        self._pause = pause
        self._plan: Plan | None = None
        self._lease: Lease | None = None
        self._effects: Effects | None = None
        self._ended = False

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def plan(self) -> Plan:
        """What was on record when this run was claimed."""
        if self._plan is None:
            raise NotClaimed(f"run {self.id} is not claimed")
        return self._plan

    def lost(self) -> str | None:
        """Return why this process may not advance the run any more, or None while it may."""
        return self._lease.lost() if self._lease is not None else "it is not claimed"

    # --- claiming and leaving ---------------------------------------------------------------------------

    def claim(self) -> Self:
        """Claim the run and keep the lease renewed in a background thread.

        Raises `AlreadyClaimed`, `RunPaused`, `RunEnded`, `FlowVersionMismatch`, `JournalUnreachable`.
        """
        body: dict[str, Json] = {
            "claim_id": new_id("claim"),
            "worker": self._worker,
            "flow_version": self._flow_version,
            "lease_seconds": self._lease_seconds,
        }
        if self._flow_digest is not None:
            body["flow_digest"] = self._flow_digest
        answer = self._journal.post(
            f"{self._path}/claim",
            body,
            # A lost answer must not cost the whole term.
            seconds_per_try=max(1.0, self._lease_seconds / 3),
        )
        plan = read_plan(answer.body.get("plan"))
        lease = Lease(
            journal=self._journal, run_id=self.id, claimed=answer, lease_seconds=self._lease_seconds
        )
        self._plan, self._lease = plan, lease
        self._effects = Effects(
            journal=self._journal, spool=self._spool, lease=lease, report_patience=self._report_patience
        )
        self._ended = False
        lease.start()
        return self

    def leave(self) -> None:
        """Give the lease back if nothing is in flight; otherwise let it lapse, and the journal looks into it.

        Never raises: leaving must not hide why it is left.
        """
        lease, effects = self._lease, self._effects
        if lease is None or effects is None:
            return
        lease.stop()
        self._lease = self._effects = None
        try:
            effects.deliver_held_back()
        except RecourseError as error:
            _log.error("%s", error)
        if self._ended or not effects.nothing_in_flight():
            return
        try:
            self._journal.post(
                f"{self._path}/release", {"token": lease.token}, patience=_LEAVING, seconds_per_try=2.0
            )
        except RecourseError as error:  # it is over already, or lapses by itself
            _log.info("the lease on run %s was not given back: %s", self.id, error)

    def __enter__(self) -> Self:
        return self if self._lease is not None else self.claim()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.leave()

    def wait_until_claimable(self, *, timeout_seconds: float | None = None) -> bool:
        """Wait until the run may be claimed (a person decided, say); return False if time ran out first.

        Raises `RunEnded` if it was completed or abandoned meanwhile. Another worker may be faster.
        """
        clock = self._journal.clock
        ends_at = None if timeout_seconds is None else clock() + timeout_seconds
        while True:
            wait = LONG_POLL_SECONDS
            if ends_at is not None:
                wait = int(max(0, min(wait, ends_at - clock())))
            if any(found.id == self.id for found in claimable(self._journal, self.info.flow, wait)):
                return True
            state = self.refresh().state
            if state in {"completed", "abandoned"}:
                raise RunEnded(f"run_ended: run {self.id} is {state}")
            if ends_at is not None and clock() >= ends_at:
                return False
            pause = _POLL_PAUSE_SECONDS * random.uniform(0.5, 1.0)  # noqa: S311 (spreads load)
            self._pause(pause if ends_at is None else min(pause, max(0.0, ends_at - clock())))

    def refresh(self) -> RunInfo:
        """Ask the journal how the run stands now."""
        body = self._journal.get(self._path).body
        self.info = read_run(body.get("run", body))
        return self.info

    # --- advancing --------------------------------------------------------------------------------------

    def turn(self, index: int, decide: Decide) -> Turn:
        """Return turn `index` (from 1, without gaps), asking the model only if no decision is saved for it.

        A saved one is repeated, word for word, under this claim's token, and `decide` isn't called.
        Raises `LeaseLost`, `PreviousTurnOpen`, `TurnAlreadyDecided`, `NotJson`, `JournalUnreachable`.
        """
        lease, effects = self._held()
        lease.check()
        saved = self.plan.turn(index)
        if saved is None:
            content = decide().to_json()
            lease.check()
        else:
            content = saved.content()
        answer = self._journal.post(
            f"{self._path}/turns", {"token": lease.token, "index": index, **content}, until=lease.ends_at
        )
        return Turn(
            journal=self._journal,
            lease=lease,
            effects=effects,
            run_path=self._path,
            saved=read_turn(answer.body.get("turn")),
            resumed=saved is not None,
        )

    def complete(self, output: Json = None) -> RunInfo:
        """End the run with its output; raises `OperationsOpen` while an effect isn't settled or given up."""
        lease, effects = self._held()
        effects.deliver_held_back()
        lease.check()
        answer = self._journal.post(f"{self._path}/complete", {"token": lease.token, "output": output})
        lease.stop()
        self._ended = True
        self.info = read_run(answer.body.get("run"))
        return self.info

    def check(self) -> None:
        """Raise `LeaseLost` if this process may not advance the run any more."""
        self._held()[0].check()

    def _held(self) -> tuple[Lease, Effects]:
        if self._lease is None or self._effects is None:
            raise NotClaimed(f"run {self.id} is not claimed: use it in a `with` block, or call claim()")
        return self._lease, self._effects

    @property
    def _path(self) -> str:
        return f"/runs/{quote(self.id, safe='')}"


def claimable(journal: Journal, flow: str, wait_seconds: int) -> list[RunInfo]:
    """Return every run of a flow that may be claimed now, waiting up to `wait_seconds` for the first."""
    query = {"claimable": "1", "flow": flow, "wait": str(wait_seconds)}
    found: list[RunInfo] = []
    while True:
        body = journal.get("/runs", query, seconds_per_try=wait_seconds + 10.0).body
        found += [read_run(item) for item in require(body, "runs", list)]
        more = body.get("next")
        if not more:
            return found
        query = {"claimable": "1", "flow": flow, "after": str(more)}
