"""The facts that the policy concludes from: plain values, so that it stays a pure function.

`gathering` reads them from the database; tests write them by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from reconciliation.contracts import AccountPin, MakeAbsent
from reconciliation.providers.base import FindingKind
from reconciliation.states import CaseKind, CaseState
from runs.states import AttemptOutcome, OperationState, RunState

# In place of an operation's id, where that is another team's: a shared account shows its receipts to both.
ANOTHER_TEAMS: Final = "another team's"


class Holder(StrEnum):
    """What the sender of an attempt may still do."""

    # Its token is the run's current one and the lease hasn't ended.
    LIVE = "live"
    # Its token is outdated, or its lease has ended.
    OUTDATED = "outdated"
    # The console's own sender, which holds no lease: only time outdates it.
    CONSOLE = "console"


@dataclass(frozen=True, kw_only=True)
class AttemptFacts:
    """One attempt. `proved_not_sent`: by its own outcome, or by a positive report that came late."""

    number: int
    outcome: AttemptOutcome
    minted_at: datetime
    quiet_after_at: datetime
    holder: Holder
    worker: str = ""
    lease_ends_at: datetime | None = None
    proved_not_sent: bool = False


@dataclass(frozen=True, kw_only=True)
class SeenReceipt:
    """A receipt on record; `matches`: it names the operation, equals the payload and has succeeded.

    `confirmed_other` is the operation that the same receipt has confirmed already: it can confirm no second.
    Of another team's operation there is no id here, only that there is one (`ANOTHER_TEAMS`).
    """

    reference: str
    evidence_id: str
    matches: bool
    confirmed_other: str = ""


@dataclass(frozen=True, kw_only=True)
class LookupFacts:
    """The latest lookup that answered something, and how the lookups went so far."""

    finding: FindingKind
    proof: bool
    asked_at: datetime
    evidence_id: str
    summary: str


@dataclass(frozen=True, kw_only=True)
class RejectionFacts:
    """A definite refusal that was reported of one attempt."""

    attempt_number: int
    evidence_id: str


@dataclass(frozen=True, kw_only=True)
class AbsenceFacts:
    """A request to make the effect absent that has left, or may have; `open`: nobody knows its answer yet.

    From `quiet_after_at` on it can no longer take effect.
    """

    number: int
    sent_at: datetime
    quiet_after_at: datetime
    open: bool


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Everything the policy may look at about one case; times are the database's."""

    operation_state: OperationState
    case_kind: CaseKind
    case_state: CaseState
    opened_at: datetime
    turn_index: int
    call_id: str
    attempts: tuple[AttemptFacts, ...]
    first_sent_at: datetime | None
    last_quiet_at: datetime | None
    pinned: AccountPin | None
    current: AccountPin | None
    console_can_send: bool
    # Every receipt on record for the operation, from lookups and reports alike.
    receipts: tuple[SeenReceipt, ...] = ()
    rejections: tuple[RejectionFacts, ...] = ()
    mismatch_reported: str = ""
    # Evidence that somebody sent it without "go".
    sent_by_unknown: str = ""
    # Evidence that the effect was there (a lookup, an answer that proves it, a receipt that isn't final),
    # where the latest lookup doesn't show it.
    shown_before: str = ""
    lookup: LookupFacts | None = None
    lookups_count: int = 0
    lookups_failed_count: int = 0
    grant_open: str = ""
    grant_ends_at: datetime | None = None
    grant_ended_unused: str = ""
    run_state: RunState = RunState.OPEN
    paused_for_version: str = ""
    approval_until_at: datetime | None = None
    abandonment_people: int = 1
    # The flow lets the policy repeat by itself where that is safe, and nobody has decided about it yet.
    may_repeat_alone: bool = False
    # The provider's request to make an effect absent, None where it offers none; those that left, in order.
    absence_way: MakeAbsent | None = None
    absences: tuple[AbsenceFacts, ...] = ()
    # The journal was restored, and has forgotten whether people let the provider make the effect absent.
    perhaps_made_absent: bool = False
    # Whether everything that a lookup needs from the environment is set in this process.
    can_be_asked_here: bool = True
    # Whether what the console sends would meet the key that was used first.
    key_reaches_console: bool = True
