"""Every way in which a call of this library can fail, as one tree.

    RecourseError
      NotConfigured                   no address or no bearer token
      NotJson                         a value of yours has no strict JSON form; nothing was sent
      LeaseLost                       this process may not advance the run any more
        ReportedLate                  the report arrived after the lease ended and is kept as evidence
      EffectError
        EffectNotSent                 the effect didn't leave; the operation is ready again
        OutcomeUnknown                it may have happened: nobody may send it again on a guess
        ReportNotDelivered            the journal has not acknowledged what was seen
        NoReceipt                     a receipt was asked of an effect that has none
      SpoolError
        SpoolUnavailable              the folder for undelivered reports can't be written
        SpoolFull                     it holds as many as it may; nothing more is sent
      JournalError
        JournalUnreachable            no usable answer after bounded, identical repeats
        UnreadableAnswer              an answer that lacks what was agreed
        Refusal                       the journal answered with a problem; one subclass per `word`
          AlreadyClaimed, RunPaused, RunEnded, FlowVersionMismatch, StaleToken (also a LeaseLost),
          ExternalIdReused, TurnAlreadyDecided, PreviousTurnOpen, NotSendable, StartWindowPassed,
          AttemptEnded, ReceiptMismatch, ReceiptReused, OperationsOpen, DecisionStale, ActionLocked,
          IdempotencyKeyReused, UnreadableJson, Invalid, TooLarge, NotFound, Forbidden, Unauthorized,
          RateLimited, SendingFrozen

`Rejected`, `NotSent` and `Unknown`, which *your* sending function raises, are no errors of this
library: they are reports, and live in `recourse_client.outcomes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


class RecourseError(Exception):
    """The root of everything that this library raises on its own account."""


class NotConfigured(RecourseError):
    """The journal's address or the bearer token is missing or malformed."""


class NotJson(RecourseError):
    """A value that was to be journaled has no strict JSON form; the journal was not asked."""


# --- the lease --------------------------------------------------------------------------------------------


class LeaseLost(RecourseError):
    """This process may not advance the run any more: start nothing new and leave the `with` block."""


class ReportedLate(LeaseLost):
    """A report arrived after the lease had ended; the journal keeps it as evidence and moved nothing for us.

    `operation_state` is the state that policy reached from all the evidence, `case` the open case's id.
    """

    def __init__(self, message: str, *, operation: str, operation_state: str, case: str | None) -> None:
        super().__init__(message)
        self.operation = operation
        self.operation_state = operation_state
        self.case = case


# --- one effect -------------------------------------------------------------------------------------------


class EffectError(RecourseError):
    """One effect didn't end in a receipt; `operation` and `call_id` say which."""

    def __init__(self, message: str, *, operation: str, call_id: str) -> None:
        super().__init__(message)
        self.operation = operation
        self.call_id = call_id


class EffectNotSent(EffectError):
    """It is proved that this attempt never left and the journal has it; the operation is ready again."""


class OutcomeUnknown(EffectError):
    """The effect may or may not have happened; the journal has what was seen. `case` is the open case."""

    def __init__(self, message: str, *, operation: str, call_id: str, case: str | None = None) -> None:
        super().__init__(message, operation=operation, call_id=call_id)
        self.case = case


class ReportNotDelivered(EffectError):
    """The journal hasn't acknowledged what was seen of an attempt.

    `spooled` is the file that keeps the report: it is delivered when the next run starts, or by
    `python -m recourse_client spool DIR --deliver`. None means that it could not be kept either: then the
    journal finds the attempt unreported when its quiet time has passed, and opens a case.
    `outcome` is the word of the report: receipt, rejection, not-sent or unknown.
    """

    def __init__(
        self, message: str, *, operation: str, call_id: str, outcome: str, spooled: Path | None
    ) -> None:
        super().__init__(message, operation=operation, call_id=call_id)
        self.outcome = outcome
        self.spooled = spooled


class NoReceipt(EffectError):
    """The effect was refused, given up, or confirmed by a person without a receipt: there is none to give."""


# --- the spool --------------------------------------------------------------------------------------------


class SpoolError(RecourseError):
    """The folder that keeps undelivered reports can't do its work."""


class SpoolUnavailable(SpoolError):
    """The folder can't be created, written or read."""


class SpoolFull(SpoolError):
    """It holds as many undelivered reports as it may; nothing is sent whose report could not be kept."""


# --- the journal's answers --------------------------------------------------------------------------------


class JournalError(RecourseError):
    """The journal refused, or could not be asked."""


class JournalUnreachable(JournalError):
    """No usable answer came, after bounded and identical repeats; `status` is the last one, if any came."""

    def __init__(self, message: str, *, tries: int, status: int | None = None) -> None:
        super().__init__(message)
        self.tries = tries
        self.status = status


class UnreadableAnswer(JournalError):
    """The journal's answer doesn't have the agreed form; nothing was concluded from it."""


class Refusal(JournalError):
    """The journal answered with a problem: `word` names the fact, `problem` holds the whole document.

    `status` is None where this library reached the same verdict by its own clock, without an answer.
    """

    word: str = "refused"
    # How many identical tries it took; above 1, an earlier one may have been carried out.
    tries: int = 1

    def __init__(
        self, message: str, *, status: int | None = None, problem: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.problem: dict[str, Any] = dict(problem or {})


class AlreadyClaimed(Refusal):
    """Somebody else holds the lease."""

    word = "already_claimed"

    @property
    def holder(self) -> str:
        return str(self.problem.get("holder", ""))

    @property
    def expires_in_ms(self) -> int:
        return _milliseconds(self.problem.get("expires_in_ms"))


class RunPaused(Refusal):
    """The run can't be advanced now: `reasons` say why, `plan` (where given) how far it is.

    `call_id` and `case` are set when one call of a leased run waits for its outcome.
    """

    word = "run_paused"
    call_id: str | None = None
    case: str | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        found = self.problem.get("reasons", self.problem.get("paused_reasons"))
        return tuple(str(reason) for reason in found) if isinstance(found, list) else ()

    @property
    def plan(self) -> Mapping[str, Any] | None:
        found = self.problem.get("plan")
        return found if isinstance(found, dict) else None

    @property
    def retry_after_seconds(self) -> float | None:
        found = self.problem.get("retry_after_seconds")
        return float(found) if isinstance(found, (int, float)) and not isinstance(found, bool) else None


class RunEnded(Refusal):
    """The run is completed or abandoned."""

    word = "run_ended"


class FlowVersionMismatch(Refusal):
    """The run is pinned to another flow version than the one this worker runs."""

    word = "flow_version_mismatch"

    @property
    def pinned(self) -> str:
        return str(self.problem.get("pinned", self.problem.get("flow_version", "")))


class StaleToken(Refusal, LeaseLost):
    """The fencing token is outdated: the lease expired, was released, revoked or ended with the run."""

    word = "stale_token"


class ExternalIdReused(Refusal):
    """This flow has a run of that external id with another input."""

    word = "external_id_reused"


class TurnAlreadyDecided(Refusal):
    """Another content is saved for this turn; the saved one counts."""

    word = "turn_already_decided"


class PreviousTurnOpen(Refusal):
    """A call of an earlier turn isn't settled."""

    word = "previous_turn_open"


class NotSendable(Refusal):
    """The operation may not be sent now; `reason` says why, `blocked_by` names an operation in the way."""

    word = "not_sendable"

    @property
    def reason(self) -> str:
        return str(self.problem.get("reason", ""))

    @property
    def blocked_by(self) -> str:
        return str(self.problem.get("blocked_by", ""))


class StartWindowPassed(Refusal):
    """Go came, or was kept, too long ago: the effect was not started and may not be under this attempt."""

    word = "start_window_passed"


class AttemptEnded(Refusal):
    """The attempt or its operation is already settled."""

    word = "attempt_ended"


class ReceiptMismatch(Refusal):
    """The receipt speaks of another effect than the payload asked for; it is stored, and a case is open."""

    word = "receipt_mismatch"


class ReceiptReused(Refusal):
    """The same receipt confirms another operation; it is stored, and a case is open."""

    word = "receipt_reused"


class OperationsOpen(Refusal):
    """The run can't be completed: an operation is neither settled nor given up."""

    word = "operations_open"


class DecisionStale(Refusal):
    """The case changed since it was read."""

    word = "decision_stale"


class ActionLocked(Refusal):
    """The action is locked now; the problem says why and until when."""

    word = "action_locked"


class IdempotencyKeyReused(Refusal):
    """The Idempotency-Key was used with another content."""

    word = "idempotency_key_reused"


class UnreadableJson(Refusal):
    """The journal reads JSON strictly and could not read this body."""

    word = "unreadable_json"


class Invalid(Refusal):
    """The body doesn't have the form that the call needs."""

    word = "invalid"


class TooLarge(Refusal):
    """The body is larger than the journal takes."""

    word = "too_large"


class NotFound(Refusal):
    """Nothing of that id is visible to this token."""

    word = "not_found"


class AccountNotFound(Refusal):
    """A call names a provider account that there isn't, or that is other teams'; `where` says which call."""

    word = "account_not_found"


class Forbidden(Refusal):
    """The token's scope doesn't include this."""

    word = "forbidden"


class Unauthorized(Refusal):
    """The bearer token is missing, unknown, expired or revoked."""

    word = "unauthorized"


class RateLimited(Refusal):
    """Too many calls; `JournalUnreachable` carries it as its cause when patience ran out."""

    word = "rate_limited"


class SendingFrozen(Refusal):
    """Sending is frozen for the whole deployment (after a restore, or by an administrator)."""

    word = "sending_frozen"


def _milliseconds(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _by_word() -> dict[str, type[Refusal]]:
    return {kind.word: kind for kind in Refusal.__subclasses__()}


_REFUSALS: Mapping[str, type[Refusal]] = _by_word()
# Where no problem document came (a proxy's page), the status still says this much.
_BY_STATUS: Mapping[int, type[Refusal]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    413: TooLarge,
    422: Invalid,
    429: RateLimited,
}
# A problem's sentence is shown in tracebacks and logs; the journal's are shorter than this.
_SENTENCE_LENGTH_MAX = 2_000


def refusal_from(*, status: int, problem: Mapping[str, Any]) -> Refusal:
    """Return the typed refusal for a problem document (RFC 9457); unknown words give a plain `Refusal`.

    Members that say more (holder, reasons, plan, …) may stand in the document itself or under `details`.
    """
    details = problem.get("details")
    merged: dict[str, Any] = {**(details if isinstance(details, dict) else {}), **problem}
    word = merged.get("word")
    kind = _REFUSALS.get(word) if isinstance(word, str) else None
    kind = kind or _BY_STATUS.get(status, Refusal)
    sentence = merged.get("detail") or merged.get("title") or f"the journal answered {status}"
    return kind(f"{word or kind.word}: {sentence}"[:_SENTENCE_LENGTH_MAX], status=status, problem=merged)
