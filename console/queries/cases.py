"""One case with everything its page shows, judged as it is now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import DateTimeField, F, Func, Subquery, TextField, Value
from django.db.models.functions import Cast, Coalesce

from console.queries.desk import Desk, DeskParts
from console.queries.people import Names
from console.queries.queue import Place, around, place_in
from console.queries.related import Related, related_to
from console.queries.together import CountOf, Together
from reconciliation.admission import claimed_at
from reconciliation.approval_models import ApprovalRequest
from reconciliation.extra_effects import extra_of, told_since
from reconciliation.gate_models import AccountGate
from reconciliation.gathering import (
    Judged,
    Rows,
    absences_of,
    attempts_of,
    decisions_about,
    grants_of,
    judge_now,
    lookups_of,
    ours_shown_of,
)
from reconciliation.health import Line, Waiting, ahead_of, is_due, why_waiting
from reconciliation.models import Case, Decision, Lookup
from reconciliation.notes import NOTES_MAX
from reconciliation.retries import pending_of, retries_of
from reconciliation.states import CaseState
from reconciliation.work_models import CaseNote
from runs.ids import could_be_id
from runs.models import Attempt, AuditLeaf, Call, Evidence, Grant, Operation, Receipt, Run
from runs.refusals import NotFound
from runs.states import OPERATION_SETTLED

# Evidence of one page; the same answer again is one entry, however often it came.
EVIDENCE_ROWS = 30
# Enough for a case that was looked up for a day; older entries are in the effect history.
LEAVES_MAX = 200
DECISIONS_MAX = 20
STEPS_MAX = 500


@dataclass(frozen=True, kw_only=True)
class CaseRead:
    """A case as read at `now`, without a lock: what a decision asks again under one."""

    now: datetime
    case: Case
    operation: Operation
    run: Run
    judged: Judged
    attempts: tuple[Attempt, ...]
    # Newest first, at most EVIDENCE_ROWS; `evidence_more` says that older ones were left out.
    evidence: tuple[Evidence, ...]
    evidence_more: bool
    # The latest look that told something, whatever page of the evidence is shown.
    lookup: Lookup | None
    # Oldest first, the latest LEAVES_MAX.
    leaves: tuple[AuditLeaf, ...]
    leaves_more: bool
    decisions: tuple[Decision, ...]
    receipt: Receipt | None
    grant: Grant | None
    # What the effects beyond the one that settled the operation cost, in minor units of its currency.
    extra_minor: int
    # A retry that was decided and still waits for its fresh lookup.
    retry_pending: bool
    # The run's calls in order: (turn, position, tool), to say which step this is and what comes next.
    steps: tuple[tuple[int, int, str], ...]
    place: Place
    names: Names
    # Why it isn't being looked up this instant; None once it is settled.
    waiting: Waiting | None
    # The latest request to a second person about it, without its content; None if there was none.
    approval: ApprovalRequest | None
    # By the id that a leaf names: what people wrote down about this case.
    notes: dict[str, CaseNote]
    # Who works on it, and who looks at it.
    desk: Desk
    # Other cases that may have to do with it, the closest first.
    related: tuple[Related, ...]

    @property
    def step_number(self) -> int:
        """The number of this operation's call among the run's calls, from 1."""
        here = (self.operation.turn_index, self.operation.position)
        return 1 + sum(1 for turn, position, _ in self.steps if (turn, position) < here)

    @property
    def next_tool(self) -> str:
        """The tool of the call after this one, as far as the model has decided it; "" if it hasn't."""
        here = (self.operation.turn_index, self.operation.position)
        return next((tool for turn, position, tool in self.steps if (turn, position) > here), "")


class _Clock(Func):
    """The database's clock, as `database_now` reads it."""

    function = "clock_timestamp"
    output_field = DateTimeField()


def find_case(case_id: str, *, teams: Sequence[str]) -> Case:
    """The case, if it belongs to one of the teams, with the time (`read_at`); raises `NotFound`."""
    cases = Case.objects.select_related("operation__call", "run__flow", "run__flow_version")
    seen = cases.annotate(found_at=_Clock())
    case = seen.filter(pk=case_id, team__in=teams).first() if could_be_id(case_id) else None
    if case is None:
        raise NotFound(f"There is no case {case_id} that you can see.", case=case_id)
    return case


def read_at(case: Case) -> datetime:
    """When `find_case` found this case, by the database's clock."""
    found_at: datetime = case.found_at  # type: ignore[attr-defined]
    return found_at


def read_case(case_id: str, *, teams: Sequence[str], evidence_before: str = "") -> CaseRead:
    """Read a case of the teams in eight statements at most. Raises `NotFound`."""
    case = find_case(case_id, teams=teams)
    operation, run, now = case.operation, case.run, read_at(case)
    asked = _Asked(case, teams=teams, now=now)
    evidence = _evidence(operation, evidence_before)
    leaves = AuditLeaf.objects.filter(operation_ref=operation.pk).order_by("-id")[: LEAVES_MAX + 1]
    latest_leaves = tuple(reversed(leaves))
    decisions = asked.decisions.rows
    actors = {leaf.actor for leaf in latest_leaves} | {one.actor for one in evidence}
    receipt = asked.receipt.first
    confirmed = receipt.reference if receipt is not None else None
    return CaseRead(
        now=now,
        case=case,
        operation=operation,
        run=run,
        judged=judge_now(run=run, operation=operation, case=case, now=now, rows=asked.rows()),
        attempts=asked.attempts.rows,
        evidence=evidence[:EVIDENCE_ROWS],
        evidence_more=len(evidence) > EVIDENCE_ROWS,
        lookup=asked.lookup.first,
        leaves=latest_leaves[-LEAVES_MAX:],
        leaves_more=len(latest_leaves) > LEAVES_MAX,
        decisions=decisions,
        receipt=receipt,
        grant=asked.grant.first,
        extra_minor=extra_of(operation, confirmed=confirmed, told=asked.told.rows),
        retry_pending=pending_of(case, asked.retry.first) is not None,
        steps=tuple((one["turn__index"], one["position"], one["tool"]) for one in asked.steps.rows),
        place=place_in(case, asked.around.first, now=now),
        names=Names(actors | {one.actor for one in decisions}),
        waiting=None if case.state == CaseState.RESOLVED else why_waiting(case, now, line=asked.line()),
        approval=asked.approval.first,
        notes={one.pk: one for one in asked.notes.rows},
        desk=asked.desk.desk(),
        related=related_to(case),
    )


class _Asked:
    """What is a few rows each about one case, read in one statement."""

    def __init__(self, case: Case, *, teams: Sequence[str], now: datetime) -> None:
        self._case, operation = case, case.operation
        together = Together()
        add = together.add
        self.attempts = add(attempts_of(operation))
        self.grant = add(grants_of(operation))
        self.lookup = add(lookups_of(operation))
        self._absences = add(absences_of(operation))
        self._ours_shown = add(ours_shown_of(operation).values("evidence_id"))
        self._decided = add(decisions_about(operation).values("id"))
        self.decisions = add(Decision.objects.filter(case=case).order_by("-made_at", "-id")[:DECISIONS_MAX])
        self.retry = add(retries_of(case))
        self.receipt = add(Receipt.objects.filter(operation=operation).defer("body").order_by("pk")[:1])
        self.notes = add(CaseNote.objects.filter(case=case).order_by("-made_at", "-id")[:NOTES_MAX])
        requests = ApprovalRequest.objects.filter(case=case).order_by("-requested_at", "-id")
        self.approval = add(requests.defer("content")[:1])
        calls = Call.objects.filter(run=case.run_id).order_by("turn__index", "position")
        self.steps = add(calls.values("turn__index", "position", "tool")[:STEPS_MAX])
        self.around = add(around(case, teams=teams, now=now))
        self.desk = DeskParts(together, case, now=now)
        told = told_since(operation, case.opened_at)
        self.told = add(told if operation.state in OPERATION_SETTLED else told.none())
        self._line = _LineParts(together, case, now=now) if is_due(case, now) else None
        together.read()

    def rows(self) -> Rows:
        """What the policy judges by."""
        shown = self._ours_shown.first
        return Rows(
            attempts=self.attempts.rows,
            grant=self.grant.first,
            lookup=self.lookup.first,
            ours_shown=shown["evidence_id"] if shown is not None else "",
            decided=bool(self._decided.rows),
            absences=self._absences.rows,
        )

    def line(self) -> Line | None:
        """What a lookup that is due waits for; None where it isn't."""
        return self._line.line() if self._line is not None else None


class _LineParts:
    """The queries about the account that a case which is due waits for."""

    def __init__(self, together: Together, case: Case, *, now: datetime) -> None:
        self._slug = case.provider_slug
        self._gate = together.add(AccountGate.objects.filter(pk=self._slug))
        self._counts = together.add(
            Case.objects.filter(pk=case.pk).values(
                at_once=CountOf(claimed_at(self._slug, now=now).values("pk")),
                ahead=CountOf(ahead_of(case, now).values("pk")),
            )
        )

    def line(self) -> Line:
        counts = self._counts.first or {"at_once": 0, "ahead": 0}
        return Line(gate=self._gate.first or AccountGate(account_id=self._slug), **counts)


def _evidence(operation: Operation, before: str) -> tuple[Evidence, ...]:
    rows = Evidence.objects.filter(operation=operation).select_related("attempt")
    if could_be_id(before):
        oldest = Evidence.objects.filter(operation=operation, pk=before).values("recorded_at")
        # An id we never gave shows the newest again: with nothing to compare with, nothing is left out.
        ever = Cast(Value("infinity", output_field=TextField()), DateTimeField())
        from_at = Coalesce(Subquery(oldest), ever)
        rows = rows.alias(from_at=from_at).filter(recorded_at__lte=F("from_at"))
        rows = rows.exclude(recorded_at=F("from_at"), id__gte=before)
    return tuple(rows.order_by("-recorded_at", "-id")[: EVIDENCE_ROWS + 1])


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Whether a page that shows an earlier version is behind; one judgement, nothing of the page itself."""

    version: int
    evidence_digest: str
    state: str
    finding_summary: str


def standing_of(case_id: str, *, teams: Sequence[str]) -> Standing:
    """Where the case stands now. Raises `NotFound`."""
    case = find_case(case_id, teams=teams)
    judged = judge_now(run=case.run, operation=case.operation, case=case, now=read_at(case))
    return Standing(
        version=case.version,
        evidence_digest=judged.evidence_digest,
        state=str(case.state),
        finding_summary=case.finding_summary,
    )
