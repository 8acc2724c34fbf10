"""The lease on a run: kept by a background thread, doubted by the clock.

Lost means lost for good: by the journal's answer to a renewal, or because the local clock shows that the
last known term has run out. The term is counted from before the request that gave it was first sent, so it
ends here no later than in the journal.
"""

from __future__ import annotations

import logging
import os
import threading

from recourse_client.errors import JournalError, LeaseLost, Refusal, UnreadableAnswer
from recourse_client.journal import ONCE, Answer, Journal
from recourse_client.plan import require

_log = logging.getLogger("recourse_client")

# The first renewal leaves after a third of the term and may take a sixth of it. If it hangs, two more find
# time before the term ends; if it fails at once, many do.
_RENEW_AFTER = 1 / 3
_TRY_TAKES_AT_MOST = 1 / 6
_AGAIN_AFTER = 1 / 24


class Lease:
    """One claim's lease; `start` keeps it renewed until `stop`. Safe to ask from any thread."""

    def __init__(self, *, journal: Journal, run_id: str, claimed: Answer, lease_seconds: int) -> None:
        """Take over the lease of a claim's answer; raises `UnreadableAnswer` if it has none."""
        self.token: str = require(claimed.body, "token", str)
        self._journal = journal
        self._run_id = run_id
        self._clock = journal.clock
        self._pid = os.getpid()
        self._term_seconds = float(lease_seconds)
        self._lock = threading.Lock()
        self._ends_at = _end(claimed)
        self._lost: str | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"recourse-lease-{run_id}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop renewing. The term that is left goes on: release it in the journal, or let it lapse."""
        self._stopped.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=self._term_seconds * _TRY_TAKES_AT_MOST)

    @property
    def ends_at(self) -> float:
        with self._lock:
            return self._ends_at

    def lost(self) -> str | None:
        """Return why this process may not advance the run any more, or None while it may."""
        # A forked child has the token but nobody to renew it, and its parent goes on with the same run.
        if os.getpid() != self._pid:
            return "it was claimed by another process, before a fork"
        with self._lock:
            if self._lost is None and self._clock() >= self._ends_at:
                self._lost = "its term ran out by this machine's clock, without a renewal"
            return self._lost

    def check(self) -> None:
        """Raise `LeaseLost` if this process may not advance the run any more."""
        reason = self.lost()
        if reason is not None:
            raise LeaseLost(f"the lease on run {self._run_id} is lost: {reason}")

    def lose(self, reason: str) -> None:
        """Record that the journal has ended the lease; the first reason stays."""
        with self._lock:
            self._lost = self._lost or reason

    def _keep(self) -> None:
        pause = self._term_seconds * _RENEW_AFTER
        while not self._stopped.wait(pause):
            if self.lost() is not None:
                return
            try:
                answer = self._journal.post(
                    f"/runs/{self._run_id}/renew",
                    {"token": self.token},
                    patience=ONCE,
                    seconds_per_try=self._term_seconds * _TRY_TAKES_AT_MOST,
                )
                ends_at = _end(answer)
            except Refusal as refusal:
                if not self._stopped.is_set():
                    self.lose(str(refusal))
                return
            except JournalError as error:
                _log.warning("the lease on run %s was not renewed: %s", self._run_id, error)
                pause = self._term_seconds * _AGAIN_AFTER
            else:
                with self._lock:
                    self._ends_at = max(self._ends_at, ends_at)
                pause = self._term_seconds * _RENEW_AFTER


def _end(answer: Answer) -> float:
    milliseconds: int = require(answer.body, "expires_in_ms", int)
    if milliseconds < 0:
        raise UnreadableAnswer("the journal's answer has a negative 'expires_in_ms'")
    return answer.asked_at + milliseconds / 1000
