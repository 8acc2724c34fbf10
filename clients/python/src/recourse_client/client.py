"""The client: one journal, one token, one folder for undelivered reports."""

from __future__ import annotations

import os
import platform
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Self

from recourse_client.clock import Clock, boot_seconds
from recourse_client.errors import AlreadyClaimed, NotConfigured, RunPaused
from recourse_client.journal import Journal, Patience
from recourse_client.outcomes import Json
from recourse_client.plan import Money
from recourse_client.reports import REPORT_PATIENCE, Delivery, Reporter
from recourse_client.runs import LONG_POLL_SECONDS, Run, RunInfo, claimable, read_run
from recourse_client.spool import Spool, default_folder

# Short enough that a restarted worker doesn't wait long for its own old lease.
LEASE_SECONDS = 30
_WORKER_LENGTH_MAX = 64
# At a run's start: a journal that doesn't answer now won't answer the run either.
_REDELIVERY = Patience(tries_max=2, total_seconds=5.0)


class Client:
    """Talks to one journal. Safe to share between threads; not across a fork.

    `url` and `token` default to `$RECOURSE_URL` and `$RECOURSE_TOKEN`, `spool` to `$RECOURSE_SPOOL` or the
    user's state folder. The spool must outlive the process: in a container, put it on a volume.
    `patience` bounds the repeats of every call to the journal, `report_patience` those of a report, while
    nothing else of its run goes on.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        spool: str | Path | None = None,
        worker: str | None = None,
        patience: Patience | None = None,
        report_patience: Patience = REPORT_PATIENCE,
        seconds_per_try: float = 10.0,
        clock: Clock = boot_seconds,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        url = url or os.environ.get("RECOURSE_URL")
        token = token or os.environ.get("RECOURSE_TOKEN")
        if not url:
            raise NotConfigured("name the journal's address: Client(url=…) or $RECOURSE_URL")
        if not token:
            raise NotConfigured("give a bearer token: Client(token=…) or $RECOURSE_TOKEN")
        self._journal = Journal(
            url=url,
            token=token,
            user_agent=_user_agent(),
            patience=patience,
            seconds_per_try=seconds_per_try,
            clock=clock,
            pause=pause,
        )
        self._report_patience = report_patience
        self._pause = pause
        self.spool = Spool(Path(spool) if spool is not None else default_folder())
        self.worker = _worker_name(worker or f"{socket.gethostname()}:{os.getpid()}")

    def close(self) -> None:
        self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- runs -------------------------------------------------------------------------------------------

    @contextmanager
    def run(
        self,
        *,
        flow: str,
        flow_version: str,
        external_id: str,
        input: Json,  # noqa: A002 (the journal's word)
        goal: str | None = None,
        budget: Money | None = None,
        approval: str | None = None,
        flow_digest: str | None = None,
        lease_seconds: int = LEASE_SECONDS,
        wait_seconds: float = 0.0,
    ) -> Iterator[Run]:
        """Start or reopen a run, claim it for the `with` block, and give it back afterwards.

        With `wait_seconds`, a run that is paused or held by somebody else is waited for that long, and then
        claimed once more. Raises what `start` and the last `Run.claim` raise.
        """
        run = self.start(
            flow=flow,
            flow_version=flow_version,
            external_id=external_id,
            input=input,
            goal=goal,
            budget=budget,
            approval=approval,
            flow_digest=flow_digest,
            lease_seconds=lease_seconds,
        )
        self._claim(run, wait_seconds=wait_seconds)
        with run:
            yield run

    def start(
        self,
        *,
        flow: str,
        flow_version: str,
        external_id: str,
        input: Json,  # noqa: A002 (the journal's word)
        goal: str | None = None,
        budget: Money | None = None,
        approval: str | None = None,
        flow_digest: str | None = None,
        lease_seconds: int = LEASE_SECONDS,
    ) -> Run:
        """Start a run, or reopen the one of that flow and external id, without claiming it.

        The same input gives the existing run as it was pinned; another raises `ExternalIdReused`. `goal` is a
        sentence for people. Reports that an earlier process could not deliver are delivered first.
        """
        self.spool.prepare()
        self.deliver_spooled()
        body: dict[str, Json] = {
            "flow": flow,
            "flow_version": flow_version,
            "external_id": external_id,
            "input": input,
        }
        if goal is not None:
            body["goal"] = goal
        if budget is not None:
            body["budget"] = {"limit": budget.to_json()}
        if approval is not None:
            body["approval"] = approval
        if flow_digest is not None:
            body["flow_digest"] = flow_digest
        answer = self._journal.post("/runs", body)
        return self._run(read_run(answer.body.get("run")), flow_version, lease_seconds, flow_digest)

    def reopen(
        self,
        run_id: str,
        *,
        flow_version: str,
        flow_digest: str | None = None,
        lease_seconds: int = LEASE_SECONDS,
    ) -> Run:
        """Return a run that was found by `wait_claimable`, unclaimed: use it in a `with` block."""
        self.spool.prepare()
        self.deliver_spooled()
        run = self._run(RunInfo(run_id, "", "", flow_version, ""), flow_version, lease_seconds, flow_digest)
        run.refresh()
        return run

    def wait_claimable(self, flow: str, *, wait_seconds: int = LONG_POLL_SECONDS) -> list[RunInfo]:
        """Return the runs of a flow that may be claimed now; wait up to `wait_seconds` (0 to 60) for one."""
        return claimable(self._journal, flow, wait_seconds)

    def _run(self, info: RunInfo, flow_version: str, lease_seconds: int, flow_digest: str | None) -> Run:
        return Run(
            journal=self._journal,
            spool=self.spool,
            info=info,
            worker=self.worker,
            flow_version=flow_version,
            flow_digest=flow_digest,
            lease_seconds=lease_seconds,
            report_patience=self._report_patience,
            pause=self._pause,
        )

    def _claim(self, run: Run, *, wait_seconds: float) -> None:
        ends_at = self._journal.clock() + wait_seconds
        while True:
            try:
                run.claim()
                return
            except (RunPaused, AlreadyClaimed):
                left = ends_at - self._journal.clock()
                if left <= 0:
                    raise
                # Whether or not it became claimable: what keeps us out at the end may be another reason than
                # the one that we began to wait for, and is asked for once more.
                run.wait_until_claimable(timeout_seconds=left)

    # --- undelivered reports ----------------------------------------------------------------------------

    def deliver_spooled(self, *, patience: Patience | None = None) -> Delivery:
        """Deliver the reports that an earlier process kept on disk; `start` does it by itself.

        Never raises for the journal's answers: what came of each file is in the `Delivery`, and in the log.
        """
        reporter = Reporter(journal=self._journal, spool=self.spool)
        return reporter.deliver_waiting(patience=patience or _REDELIVERY)


def _worker_name(wanted: str) -> str:
    """Return a name in the journal's alphabet; of a long one the end, which holds the process id."""
    return re.sub(r"[^A-Za-z0-9_.:-]", "-", wanted)[-_WORKER_LENGTH_MAX:]


def _user_agent() -> str:
    try:
        own = version("recourse-client")
    except PackageNotFoundError:  # used from a checkout
        own = "0"
    return f"recourse-client/{own} python/{platform.python_version()}"
