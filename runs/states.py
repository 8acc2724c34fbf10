"""The journal's state machines, without a database.

Each state's comment says how a row enters it, how it leaves, and who moves it on. Every change is a
compare-and-set in `runs.journal`, in one transaction with its audit leaf.
"""

from __future__ import annotations

from enum import StrEnum


class RunState(StrEnum):
    # Enters: POST /runs, or the last pause reason falls away. Leaves: a pause reason, complete, abandon.
    # A worker moves it on, under a lease.
    OPEN = "open"
    # Enters: the first pause reason. Leaves: the last reason is taken away by a decision, an approver,
    # or a worker of the pinned version. No lease is live while a run is paused.
    PAUSED = "paused"
    # Enters: the worker says it is done and every call is settled. Final.
    COMPLETED = "completed"
    # Enters: a person gives the run up. Final for the run; its open cases stay open.
    ABANDONED = "abandoned"


RUN_ENDED = frozenset({RunState.COMPLETED, RunState.ABANDONED})


class PauseReason(StrEnum):
    # An operation's outcome is unknown, and nothing else may be sent until that is settled.
    OUTCOME = "outcome"
    # The next operation would exceed the run's limit; an approver may raise it.
    BUDGET = "budget"
    # The approval the run refers to has expired or was withdrawn; an approver may renew it.
    APPROVAL = "approval"
    # No worker of the pinned flow version has come for a set time; an approver keeps or moves the pin.
    FLOW_VERSION = "flow_version"
    # Sending is frozen after a restore, until what may have been sent is looked up.
    FROZEN = "frozen"


class OperationState(StrEnum):
    # Enters: the turn is saved; or every attempt is proved not sent. Leaves: begin_send, evidence of
    # success from an unknown sender, abandon.
    READY = "ready"
    # Enters: committed before a request leaves. Leaves: only by evidence or by a person. Someone always
    # owns the question: the attempt's sender while its lease lives, after that a case.
    SENT_UNKNOWN = "sent_unknown"
    # Enters: a receipt that names this operation and matches its payload. Final.
    CONFIRMED = "confirmed"
    # Enters: a definite refusal, and no other attempt can have had an effect. Final.
    REJECTED = "rejected"
    # Enters: a person gives the obligation up, with what is known of the effect. Final.
    ABANDONED = "abandoned"


OPERATION_SETTLED = frozenset({OperationState.CONFIRMED, OperationState.REJECTED, OperationState.ABANDONED})

# The whole machine (DESIGN §3). There is no `failed`: that word would claim that nothing happened.
OPERATION_MOVES: dict[OperationState, frozenset[OperationState]] = {
    OperationState.READY: frozenset({OperationState.SENT_UNKNOWN, OperationState.ABANDONED}),
    OperationState.SENT_UNKNOWN: frozenset(
        {
            OperationState.READY,
            OperationState.SENT_UNKNOWN,
            OperationState.CONFIRMED,
            OperationState.REJECTED,
            OperationState.ABANDONED,
        }
    ),
    OperationState.CONFIRMED: frozenset(),
    OperationState.REJECTED: frozenset(),
    OperationState.ABANDONED: frozenset(),
}


class AttemptOutcome(StrEnum):
    # Enters: minted by begin_send. Leaves: its sender's report, or the sweeper when the sender can no
    # longer be expected to report.
    OPEN = "open"
    # The provider answered with a receipt that matched.
    RECEIPT = "receipt"
    # The provider refused this attempt; that says nothing about the attempts before it.
    REJECTED = "rejected"
    # A positive sign that no byte of the request left.
    NOT_SENT = "not_sent"
    # The sender saw something that settles nothing: time-out, reset, 5xx, an unreadable 2xx.
    UNKNOWN = "unknown"
    # Nobody reported before the quiet time or the lease ended.
    UNREPORTED = "unreported"


class GrantState(StrEnum):
    # Enters: a retry decision. Leaves: used by one begin_send, or ended by time or by events.
    OPEN = "open"
    # One attempt was minted with it.
    CONSUMED = "consumed"
    # The operation left sent_unknown, its attempts moved, or the grant was withdrawn.
    VOID = "void"
    # Unused at not_after.
    EXPIRED = "expired"


class Executor(StrEnum):
    # The agent's worker, told `repeat` by its plan.
    AGENT = "agent"
    # The console's Celery worker, with credentials of its own.
    CONSOLE = "console"


class Reservation(StrEnum):
    # No amount, or nothing sent yet.
    NONE = "none"
    # Made at the first sent_unknown; kept through retries and through not_sent.
    RESERVED = "reserved"
    # Confirmed: the receipt's amount is spent.
    SETTLED = "settled"
    # Rejected, proved absent, or abandoned with nothing sent.
    RELEASED = "released"
    # Abandoned with the effect unknown: neither spent nor free until evidence or an approver says.
    HELD = "held"


class LeaseEnd(StrEnum):
    # The worker gave it back.
    RELEASED = "released"
    # Its time ran out, and somebody noticed.
    EXPIRED = "expired"
    # A person took it away.
    REVOKED = "revoked"
    # The run was paused: there was nothing the worker might do.
    PAUSED = "paused"
    # The run ended.
    ENDED = "ended"


class EvidenceKind(StrEnum):
    # A report by the attempt's own sender, under its token.
    REPORT = "report"
    # A report that came after the lease ended, or for an attempt already ended.
    LATE_REPORT = "late_report"
    # A report for an attempt that was never given: somebody sent without "go".
    STRAY_REPORT = "stray_report"
    # The answer to a question that Recourse asked the provider.
    LOOKUP = "lookup"
    # The provider's own notice.
    WEBHOOK = "webhook"
    # Something that a person attached.
    ATTACHMENT = "attachment"
    # What a request to make the effect absent came to.
    MAKE_ABSENT = "make_absent"


class Claim(StrEnum):
    """What a piece of evidence says about the effect, if it is true."""

    # It happened, and this is the receipt.
    RECEIPT = "receipt"
    # It was refused.
    REJECTION = "rejection"
    # The request never left.
    NOT_SENT = "not_sent"
    # It doesn't say.
    UNKNOWN = "unknown"
    # The finding of a lookup says it (see Evidence.finding).
    FINDING = "finding"
    # It isn't there any more, if it ever was: the provider was asked to make sure of that.
    ABSENT = "absent"


class MatchedBy(StrEnum):
    """How a receipt was tied to its operation (DESIGN law 6)."""

    # It carries our idempotency key.
    KEY = "key"
    # It carries our operation's reference.
    REFERENCE = "reference"
    # Nothing in it is ours: it is the direct reply to the attempt.
    REPLY_ONLY = "reply_only"
    # A person matched it.
    PERSON = "person"


class Sending(StrEnum):
    """Whether anything may be sent at a provider account."""

    # Enters: by default; again when what may have been sent before a restore is looked up. Leaves: a freeze.
    OPEN = "open"
    # Enters: the database is found to be a copy, or to have lost time. Leaves: per account, once reconciled.
    FROZEN = "frozen"


class FreezeAnswer(StrEnum):
    """What an administrator says a database is whose sending was frozen."""

    # Nobody has said yet.
    AWAITED = "awaited"
    # A copy beside the production: it stays frozen.
    COPY = "copy"
    # A copy that is a deployment of its own from here on, with its own environment id and accounts.
    OWN_ENVIRONMENT = "own_environment"
    # The production itself, restored from a backup or moved.
    PRODUCTION = "production"


class ListingState(StrEnum):
    """Whether what was made at an account since the backup has been listed."""

    DUE = "due"
    # Everything was read.
    DONE = "done"
    # The account offers no list by time: only people can look at the provider.
    NOT_OFFERED = "not_offered"


class OrphanState(StrEnum):
    # The journal knows no operation of it.
    OPEN = "open"
    # Its run was redone: the same key belongs to this operation.
    LINKED = "linked"
