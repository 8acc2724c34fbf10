"""One effect, from "may I?" to "acknowledged": the order of these steps is what this library is for.

1. Ask for "go" under a fresh attempt id, repeated identically until it is answered. Without an answer,
   nothing is sent.
2. Right before your function starts, look at the clock and the lease. Too late: it isn't started, and the
   journal is told that the attempt never left.
3. Call your function, once.
4. Keep what it said on disk, deliver it until it is acknowledged, and start nothing new before that.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from recourse_client.errors import (
    EffectNotSent,
    Invalid,
    JournalError,
    NotJson,
    OutcomeUnknown,
    RecourseError,
    Refusal,
    ReportedLate,
    ReportNotDelivered,
    SpoolError,
    StaleToken,
    StartWindowPassed,
    TooLarge,
    UnreadableAnswer,
    UnreadableJson,
)
from recourse_client.ids import new_id
from recourse_client.journal import ONCE, Answer, Journal, Patience
from recourse_client.lease import Lease
from recourse_client.outcomes import (
    Confirmed,
    Go,
    NotSent,
    Receipt,
    Refused,
    Rejected,
    Seen,
    SendFunction,
    Unknown,
)
from recourse_client.plan import CallPlan, require
from recourse_client.reports import (
    REPORT_PATIENCE,
    Attempt,
    Outcome,
    Reporter,
    Settled,
    answer_value,
    receipt_report,
    seen_report,
)
from recourse_client.spool import Report, Spool

_log = logging.getLogger("recourse_client")

# Ctrl-C and a stop signal must not hang on a journal that doesn't answer: the report is on disk by then.
_INTERRUPTED_SECONDS = 3.0
_SHA256_HEX_LENGTH = 64


@dataclass(frozen=True)
class _Said:
    """What a sending function came to."""

    outcome: Outcome
    receipt: Receipt | None = None
    seen: Seen | None = None
    cause: BaseException | None = None

    @property
    def interruption(self) -> BaseException | None:
        """Ctrl-C, a stop signal's SystemExit and the like: reported, and then let through."""
        return None if isinstance(self.cause, Exception) else self.cause


class Effects:
    """Runs the effects of one claimed run. Safe to use from several threads (a parallel turn)."""

    def __init__(
        self, *, journal: Journal, spool: Spool, lease: Lease, report_patience: Patience = REPORT_PATIENCE
    ) -> None:
        self._journal = journal
        self._spool = spool
        self._lease = lease
        self._reporter = Reporter(journal=journal, spool=spool, patience=report_patience)
        self._lock = threading.Lock()
        self._in_flight = 0
        self._held_back: list[tuple[Report, Path | None]] = []

    def run(self, call: CallPlan, send: SendFunction) -> Confirmed | Refused | None:
        """Make one attempt at a call's effect.

        Returns `Confirmed` or `Refused`, or None if the operation was settled by something else meanwhile
        (a lookup, a person) and the plan has the record. Raises `EffectNotSent`, `OutcomeUnknown`,
        `ReportedLate`, `ReportNotDelivered`, `LeaseLost`, `StartWindowPassed`, `SpoolFull`, or what the
        journal refuses; where it raises before your function began, nothing was sent.
        """
        if call.operation is None:
            raise UnreadableAnswer(f"the journal gave no operation for the effect {call.call_id!r}")
        self.deliver_held_back()
        self._lease.check()
        self._spool.check_room()
        attempt = Attempt(
            operation=call.operation.id,
            call_id=call.call_id,
            attempt_id=new_id("att"),
            token=self._lease.token,
        )
        with self._counted():
            go = self._ask(attempt, call)
            self._withdraw_if_late(go, attempt)
            said = _call(send, go)
            try:
                settled = self._report(attempt, said)
            except RecourseError as error:
                if said.interruption is None:
                    raise
                _log.error("%s", error)
        if said.interruption is not None:
            raise said.interruption
        return _conclude(go, said, settled)

    def nothing_in_flight(self) -> bool:
        """Say whether every attempt of this claim has an acknowledged end."""
        with self._lock:
            return self._in_flight == 0 and not self._held_back

    def deliver_held_back(self) -> None:
        """Deliver the reports of this run that are still unacknowledged; raises `ReportNotDelivered`."""
        with self._lock:
            waiting = list(self._held_back)
        for report, kept in waiting:
            with contextlib.suppress(Refusal):  # acknowledged, or set aside: either way it is dealt with
                self._reporter.deliver(report, patience=ONCE, kept=kept)
            with self._lock, contextlib.suppress(ValueError):
                self._held_back.remove((report, kept))

    # --- before the function starts ---------------------------------------------------------------------

    def _ask(self, attempt: Attempt, call: CallPlan) -> Go:
        try:
            answer = self._journal.post(
                f"/operations/{attempt.operation}/send",
                {"token": attempt.token, "attempt_id": attempt.attempt_id},
                until=self._lease.ends_at,
            )
            return self._go(answer, attempt, call)
        except StartWindowPassed:
            self._tell_not_sent(attempt, "the start window had passed before go arrived")
            raise
        except Refusal as refusal:
            if isinstance(refusal, StaleToken):
                self._lease.lose(str(refusal))
            if refusal.tries > 1:
                # An earlier try may have been carried out and its answer lost: then the attempt is on
                # record as sent, and only we know that it wasn't.
                self._tell_not_sent(attempt, f"go never arrived: {refusal}")
            raise
        except BaseException as error:
            self._keep_not_sent(attempt, f"go never arrived: {type(error).__name__}")
            raise

    def _go(self, answer: Answer, attempt: Attempt, call: CallPlan) -> Go:
        body = answer.body
        try:
            payload_bytes = base64.b64decode(require(body, "payload_base64", str), validate=True)
            payload = json.loads(payload_bytes)
        except (binascii.Error, ValueError, RecursionError) as error:
            raise UnreadableAnswer(f"the payload can't be read: {error}") from error
        digest = call.operation.digest if call.operation is not None else ""
        if len(digest) == _SHA256_HEX_LENGTH and hashlib.sha256(payload_bytes).hexdigest() != digest:
            raise UnreadableAnswer("the payload that came with go isn't the one in the plan")
        start_within_ms: int = require(body, "start_within_ms", int)
        request_within_ms: int = require(body, "request_within_ms", int)
        # From before the *first* ask, even if a repeat brought the answer: never later than the journal
        # counts, whatever was lost in between.
        starts_until = answer.asked_at + start_within_ms / 1000
        clock, lease = self._journal.clock, self._lease

        def why_not() -> str | None:
            if clock() >= starts_until:
                return "the start window has passed"
            lost = lease.lost()
            return f"the lease is lost: {lost}" if lost is not None else None

        return Go(
            operation=attempt.operation,
            attempt_id=attempt.attempt_id,
            attempt=require(body, "attempt", int),
            call_id=call.call_id,
            tool=call.tool,
            provider=str(body.get("provider") or call.provider or ""),
            key=require(body, "idempotency_key", str),
            payload=payload,
            payload_bytes=payload_bytes,
            request_within_seconds=request_within_ms / 1000,
            _why_not=why_not,
        )

    def _withdraw_if_late(self, go: Go, attempt: Attempt) -> None:
        try:
            go.check()
        except NotSent as late:
            self._tell_not_sent(attempt, str(late))
            self._lease.check()
            raise StartWindowPassed(
                f"start_window_passed: {late}; the effect of call {go.call_id} was not started"
            ) from None

    def _tell_not_sent(self, attempt: Attempt, reason: str) -> None:
        """Tell the journal that the attempt never left, so that nobody has to look for it.

        Nothing depends on it: without it, the attempt becomes a case when its quiet time has passed. So
        a failure is left in the log, and the caller raises what stopped the effect.
        """
        report = seen_report(
            self._reporter.journal_url, attempt, Outcome.NOT_SENT, Seen(error=reason, phase="before_start")
        )
        try:
            self._reporter.deliver(report)
        except ReportNotDelivered as error:
            self._hold_back(report, error.spooled)
            _log.warning("%s", error)
        except (JournalError, SpoolError) as error:
            _log.warning("%s", error)

    def _keep_not_sent(self, attempt: Attempt, reason: str) -> None:
        """As `_tell_not_sent`, while the journal can't be asked: keep it for later."""
        report = seen_report(
            self._reporter.journal_url, attempt, Outcome.NOT_SENT, Seen(error=reason, phase="before_start")
        )
        try:
            kept = self._reporter.keep(report)
        except SpoolError as error:
            _log.warning("%s", error)
            kept = None
        self._hold_back(report, kept)

    # --- after it ---------------------------------------------------------------------------------------

    def _report(self, attempt: Attempt, said: _Said) -> Settled:
        url = self._reporter.journal_url
        seen = said.seen or Seen()
        if said.receipt is not None:
            try:
                report = receipt_report(url, attempt, said.receipt)
            except NotJson as error:
                return self._report_unusable(attempt, said, error)
        else:
            report = seen_report(url, attempt, said.outcome, seen)
        try:
            return self._deliver(report, said)
        except (Invalid, UnreadableJson, TooLarge) as refusal:
            if said.outcome is Outcome.UNKNOWN:
                raise
            return self._report_unusable(attempt, said, refusal)

    def _report_unusable(self, attempt: Attempt, said: _Said, why: Exception) -> Settled:
        """Report as unknown what the journal can't take in its own form, so that nothing seen is dropped."""
        if said.receipt is not None:
            what = f"receipt {said.receipt.reference!r} can't be journaled as one: {why}"
            seen = Seen(body=said.receipt.body, error=what, phase="after_reply")
        else:
            status = said.seen.status if said.seen is not None else None
            body_seen = said.seen.body if said.seen is not None else None
            seen = Seen(
                status=status,
                body=body_seen,
                error=f"a refusal that can't be journaled: {why}",
                phase="after_reply",
            )
        report = seen_report(self._reporter.journal_url, attempt, Outcome.UNKNOWN, seen)
        settled = self._deliver(report, said)
        raise OutcomeUnknown(
            f"what the provider answered to call {attempt.call_id} can't be journaled as a {said.outcome};"
            f" the journal has it as an unknown outcome: {why}",
            operation=attempt.operation,
            call_id=attempt.call_id,
            case=settled.case,
        ) from why

    def _deliver(self, report: Report, said: _Said) -> Settled:
        try:
            if said.interruption is not None:
                return self._reporter.deliver(report, patience=ONCE, seconds_per_try=_INTERRUPTED_SECONDS)
            return self._reporter.deliver(report)
        except ReportNotDelivered as error:
            self._hold_back(report, error.spooled)
            raise

    def _hold_back(self, report: Report, kept: Path | None) -> None:
        with self._lock:
            self._held_back.append((report, kept))

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        with self._lock:
            self._in_flight += 1
        try:
            yield
        finally:
            with self._lock:
                self._in_flight -= 1


def _call(send: SendFunction, go: Go) -> _Said:
    """Call the user's function once and name what it said; what escaped here would be a lost report."""
    try:
        receipt: object = send(go)
    except Rejected as said:
        return _Said(Outcome.REJECTION, seen=said.seen, cause=said)
    except NotSent as said:
        return _Said(Outcome.NOT_SENT, seen=said.seen, cause=said)
    except Unknown as said:
        return _Said(Outcome.UNKNOWN, seen=said.seen, cause=said)
    except BaseException as error:  # noqa: BLE001 (reported, then raised again by the caller)
        kind = type(error)
        seen = Seen(error=f"{kind.__module__}.{kind.__qualname__}: {error}", phase="sending")
        return _Said(Outcome.UNKNOWN, seen=seen, cause=error)
    if not isinstance(receipt, Receipt):
        seen = Seen(
            body=repr(receipt)[:1_000],
            error=f"the sending function returned {type(receipt).__name__}, not a Receipt",
            phase="after_reply",
        )
        return _Said(Outcome.UNKNOWN, seen=seen)
    return _Said(Outcome.RECEIPT, receipt=receipt)


def _conclude(go: Go, said: _Said, settled: Settled) -> Confirmed | Refused | None:
    """Turn the journal's verdict on a report into a result, or into the error that names it."""
    state = settled.operation_state
    if settled.may_continue and settled.case is None:
        if state == "confirmed" and said.receipt is not None:
            return Confirmed(go.operation, go.call_id, _as_recorded(said.receipt), saved=False)
        if state == "rejected" and said.outcome is Outcome.REJECTION and said.seen is not None:
            return Refused(go.operation, go.call_id, answer_value(said.seen.body), saved=False)
    if settled.may_continue and state in {"confirmed", "rejected", "abandoned"}:
        return None
    case = f"; case {settled.case} is open" if settled.case else ""
    if settled.recorded_as_evidence:
        raise ReportedLate(
            f"the {said.outcome} of call {go.call_id} came after the lease had ended and is kept as evidence;"
            f" the operation is {state}{case}",
            operation=go.operation,
            operation_state=state,
            case=settled.case,
        ) from said.cause
    if said.outcome is Outcome.NOT_SENT and state == "ready":
        raise EffectNotSent(
            f"the effect of call {go.call_id} was not sent ({said.cause}); the operation is ready",
            operation=go.operation,
            call_id=go.call_id,
        ) from said.cause
    raise OutcomeUnknown(
        f"the outcome of call {go.call_id} is open: {_why_open(go, said, state)}{case}",
        operation=go.operation,
        call_id=go.call_id,
        case=settled.case,
    ) from said.cause


def _why_open(go: Go, said: _Said, state: str) -> str:
    match said.outcome:
        case Outcome.RECEIPT:
            return f"there is a receipt, and the operation is {state}"
        case Outcome.REJECTION:
            return f"attempt {go.attempt} was refused, which doesn't settle the operation ({state})"
        case Outcome.NOT_SENT:
            return f"attempt {go.attempt} was not sent, which doesn't settle the operation ({state})"
        case Outcome.UNKNOWN:
            return said.seen.error if said.seen is not None and said.seen.error else "nothing is known"
        case _:
            assert_never(said.outcome)


def _as_recorded(receipt: Receipt) -> Receipt:
    """Return a receipt as the plan of a resumed run shows it, so that both runs see the same."""
    return Receipt(receipt.reference, answer_value(receipt.body))
