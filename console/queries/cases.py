"""One case with everything its page shows, judged as it is now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from console.queries.desk import Desk, desk_of
from console.queries.people import Names
from console.queries.queue import Place, place_of
from console.queries.related import Related, related_to
from reconciliation.cases import extra_minor
from reconciliation.gathering import INFORMATIVE, Judged, judge_now
from reconciliation.health import Waiting, why_waiting
from reconciliation.models import Case, Decision, Lookup
from reconciliation.notes import NOTES_MAX
from reconciliation.retries import pending_retry
from reconciliation.states import CaseState
from reconciliation.work_models import CaseNote
from runs.ids import could_be_id
from runs.locking import database_now
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


def find_case(case_id: str, *, teams: Sequence[str]) -> Case:
    """The case, if it belongs to one of the teams; raises `NotFound`."""
    cases = Case.objects.select_related("operation__call", "run__flow", "run__flow_version")
    case = cases.filter(pk=case_id, team__in=teams).first() if could_be_id(case_id) else None
    if case is None:
        raise NotFound(f"There is no case {case_id} that you can see.", case=case_id)
    return case


def read_case(case_id: str, *, teams: Sequence[str], evidence_before: str = "") -> CaseRead:
    """Read a case of the teams in some twenty queries. Raises `NotFound`."""
    case = find_case(case_id, teams=teams)
    operation, run = case.operation, case.run
    now = database_now()
    judged = judge_now(run=run, operation=operation, case=case, now=now)
    evidence = _evidence(operation, evidence_before)
    leaves = AuditLeaf.objects.filter(operation_ref=operation.pk).order_by("-id")[: LEAVES_MAX + 1]
    latest_leaves = tuple(reversed(leaves))
    decisions = tuple(Decision.objects.filter(case=case).order_by("-made_at", "-id")[:DECISIONS_MAX])
    actors = {leaf.actor for leaf in latest_leaves} | {one.actor for one in evidence}
    settled = operation.state in OPERATION_SETTLED
    steps = Call.objects.filter(run=run).order_by("turn__index", "position")
    return CaseRead(
        now=now,
        case=case,
        operation=operation,
        run=run,
        judged=judged,
        attempts=tuple(Attempt.objects.filter(operation=operation).order_by("number")),
        evidence=evidence[:EVIDENCE_ROWS],
        evidence_more=len(evidence) > EVIDENCE_ROWS,
        lookup=(Lookup.objects.filter(operation=operation, finding__in=INFORMATIVE).order_by("-id").first()),
        leaves=latest_leaves[-LEAVES_MAX:],
        leaves_more=len(latest_leaves) > LEAVES_MAX,
        decisions=decisions,
        receipt=Receipt.objects.filter(operation=operation).first(),
        grant=Grant.objects.filter(operation=operation).order_by("-made_at", "-id").first(),
        extra_minor=extra_minor(operation, since=case.opened_at) if settled else 0,
        retry_pending=pending_retry(case) is not None,
        steps=tuple(steps.values_list("turn__index", "position", "tool")[:STEPS_MAX]),
        place=place_of(case, teams=teams, now=now),
        names=Names(actors | {one.actor for one in decisions}),
        waiting=None if case.state == CaseState.RESOLVED else why_waiting(case, now),
        notes={
            one.pk: one for one in CaseNote.objects.filter(case=case).order_by("-made_at", "-id")[:NOTES_MAX]
        },
        desk=desk_of(case, now=now),
        related=related_to(case),
    )


def _evidence(operation: Operation, before: str) -> tuple[Evidence, ...]:
    rows = Evidence.objects.filter(operation=operation).select_related("attempt")
    if could_be_id(before):
        # An id we never gave shows the newest again.
        oldest = Evidence.objects.filter(operation=operation, pk=before).values_list("recorded_at").first()
        if oldest is not None:
            rows = rows.filter(recorded_at__lte=oldest[0]).exclude(recorded_at=oldest[0], id__gte=before)
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
    judged = judge_now(run=case.run, operation=case.operation, case=case, now=database_now())
    return Standing(
        version=case.version,
        evidence_digest=judged.evidence_digest,
        state=str(case.state),
        finding_summary=case.finding_summary,
    )
