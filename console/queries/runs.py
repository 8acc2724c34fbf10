"""Runs: the list, and one run with its plan, leases, budget and what happened in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Count, DateTimeField, Exists, F, Func, OuterRef, Q, QuerySet, Sum

from console.queries import keyset
from console.queries.approvals import open_of_run
from console.queries.finding import clean
from console.queries.people import Names
from console.queries.queue import merged_ids
from console.queries.together import Together
from reconciliation.approval_models import ApprovalRequest
from reconciliation.models import Case
from reconciliation.states import CaseState, Resolution
from runs.ids import could_be_id
from runs.locking import database_now
from runs.models import Attempt, AuditLeaf, Call, FlowVersion, Grant, Lease, Operation, Run, Turn
from runs.plan import plan_turns
from runs.refusals import NotFound
from runs.states import Executor, GrantState, OperationState

PAGE_ROWS = 50
LEASES_MAX = 50
LEAVES_MAX = 100
# A run with more steps is cut, and says so; its plan is whole in the API.
STEPS_MAX = 300


class View(StrEnum):
    """Which runs a list shows, newest first."""

    ALL = "all"
    PAUSED = "paused"
    OPEN = "open"
    COMPLETED = "completed"
    ABANDONED = "abandoned"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a list is narrowed to; empty is any."""

    view: View = View.ALL
    text: str = ""
    flow: str = ""
    after: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A run of the list; counts over its operations, effects as far as they are known."""

    run: Run
    requests: int
    confirmed: int
    unknown: int
    given_up: int
    calls_settled: int
    calls: int
    case_id: str


@dataclass(frozen=True, kw_only=True)
class Listed:
    now: datetime
    rows: tuple[Row, ...]
    after: str = ""


_ORDER: Final = ("-created_at", "-id")


def list_runs(*, teams: Sequence[str], asked: Asked) -> Listed:
    """Read one page of runs in five queries. Raises `Invalid` for a cursor that can't be read."""
    condition = Q()
    if asked.view is not View.ALL:
        condition &= Q(state=asked.view.value)
    if text := clean(asked.text):
        condition &= Q(pk=text) | Q(external_id=text)
    if flow := clean(asked.flow):
        condition &= Q(flow__name=flow)
    if asked.after:
        at, pk = keyset.unpack(asked.after, datetime, str)
        condition &= Q(created_at__lte=at) & (Q(created_at__lt=at) | Q(id__lt=pk))

    def of_team(team: str) -> QuerySet[Run, Any]:
        return Run.objects.filter(condition, team=team).order_by(*_ORDER)

    ids = merged_ids(teams, of_team, _ORDER, PAGE_ROWS + 1)
    rows = _rows(ids[:PAGE_ROWS])
    after = keyset.pack(rows[-1].run.created_at, rows[-1].run.pk) if len(ids) > PAGE_ROWS else ""
    return Listed(now=database_now(), rows=rows, after=after)


def _rows(ids: Sequence[str]) -> tuple[Row, ...]:
    runs = Run.objects.select_related("flow", "flow_version").defer("input", "output", "end_reason")
    by_id = {run.pk: run for run in runs.filter(pk__in=ids)}
    counted = {
        row["run_id"]: row
        for row in Operation.objects.filter(run__in=ids)
        .values("run_id")
        .annotate(
            requests=Sum("attempts_count"),
            confirmed=Count("pk", filter=Q(state=OperationState.CONFIRMED)),
            unknown=Count("pk", filter=Q(state=OperationState.SENT_UNKNOWN)),
        )
    }
    # What a person gave up may have happened; what ended with its run, unsent, has not. Asked by run: inside
    # the counts above it would be made a table of all cases that were ever given up.
    abandoned = Case.objects.filter(run__in=ids, resolution=Resolution.ABANDONED)
    by_run = abandoned.values("run_id").annotate(number=Count("operation", distinct=True))
    given_up = dict(by_run.values_list("run_id", "number"))
    per_run = Call.objects.filter(run__in=ids).values("run_id").annotate(number=Count("pk"))
    numbers = dict(per_run.values_list("run_id", "number"))
    waiting = Case.objects.filter(run__in=ids).exclude(state=CaseState.RESOLVED).order_by("-opened_at")
    cases = dict(waiting.values_list("run_id", "pk"))
    listed = []
    for one in ids:
        run = by_id.get(one)
        if run is None:
            continue
        row: Any = counted.get(one, {})
        total = numbers.get(one, 0)
        listed.append(
            Row(
                run=run,
                requests=row.get("requests") or 0,
                confirmed=row.get("confirmed", 0),
                unknown=row.get("unknown", 0),
                given_up=given_up.get(one, 0),
                calls_settled=total - (run.turn_calls - run.turn_settled),
                calls=total,
                case_id=cases.get(one, ""),
            )
        )
    return tuple(listed)


@dataclass(frozen=True, kw_only=True)
class RunRead:
    """One run as it stands."""

    now: datetime
    run: Run
    # Turn by turn, call by call: what a worker would be told.
    plan: list[dict[str, Any]]
    turns: tuple[Turn, ...]
    calls: tuple[Call, ...]
    operations: dict[int, Operation]
    attempts: tuple[Attempt, ...]
    leases: tuple[Lease, ...]
    leases_more: bool
    cases: tuple[Case, ...]
    leaves: tuple[AuditLeaf, ...]
    leaves_more: bool
    other_versions: tuple[str, ...]
    # What is asked of a second person about it and still open.
    asked: tuple[ApprovalRequest, ...]
    names: Names
    steps_more: bool

    @property
    def open_case(self) -> Case | None:
        """The case that the run waits for, the one that gets worse first."""
        waiting = [one for one in self.cases if one.state != CaseState.RESOLVED]
        return min(waiting, key=lambda one: one.worsens_at, default=None)


def find_run(run_id: str, *, teams: Sequence[str]) -> Run:
    """The run, if it belongs to one of the teams; raises `NotFound`."""
    found: Run = _find(run_id, teams, Run.objects.all())
    return found


def external_ids_of(runs: set[str]) -> dict[str, str]:
    """What these runs are called outside, by their ids; no query for none."""
    if not runs:
        return {}
    return dict(Run.objects.filter(pk__in=runs).values_list("pk", "external_id"))


def _find(run_id: str, teams: Sequence[str], among: QuerySet[Run]) -> Any:
    runs = among.select_related("flow", "flow_version", "approval")
    run = runs.filter(pk=run_id, team__in=teams).first() if could_be_id(run_id) else None
    if run is None:
        raise NotFound(f"There is no run {run_id} that you can see.", run=run_id)
    return run


def _with_surroundings(runs: QuerySet[Run]) -> QuerySet[Run]:
    """With the database's time, and the flow's other versions that workers came with, latest first."""
    versions = (
        FlowVersion.objects.filter(flow=OuterRef("flow"), last_worker_at__isnull=False)
        .exclude(pk=OuterRef("flow_version"))
        .order_by(F("last_worker_at").desc())
    )
    clock = Func(function="clock_timestamp", output_field=DateTimeField())
    return runs.annotate(read_at=clock, other_versions=ArraySubquery(versions.values("version")[:3]))


def read_run(run_id: str, *, teams: Sequence[str]) -> RunRead:
    """Read a run of the teams in nine queries, however many steps it has. Raises `NotFound`."""
    run = _find(run_id, teams, _with_surroundings(Run.objects.all()))
    # In this order: a turn may be saved meanwhile, and an effect seen without its operation would look like a
    # read.
    turns = tuple(Turn.objects.filter(run=run).order_by("index"))
    calls = tuple(Call.objects.filter(run=run).order_by("turn__index", "position"))
    operations: dict[int, Any] = {one.call_id: one for one in _operations(run)}
    leaves = tuple(reversed(AuditLeaf.objects.filter(run_ref=run.pk).order_by("-id")[: LEAVES_MAX + 1]))
    together = Together()
    leased = together.add(Lease.objects.filter(run=run).order_by("-number")[: LEASES_MAX + 1])
    cases = together.add(Case.objects.filter(run=run).order_by("opened_at"))
    asked = together.add(open_of_run(run.pk))
    together.read()
    leases = leased.rows
    return RunRead(
        now=run.read_at,
        run=run,
        plan=plan_turns(
            turns=turns,
            calls=calls,
            operations=operations,
            receipts={one.pk: one.receipt for one in operations.values() if hasattr(one, "receipt")},
            granted={one.pk for one in operations.values() if one.granted},
        ),
        turns=turns,
        calls=calls[:STEPS_MAX],
        operations=operations,
        attempts=tuple(Attempt.objects.filter(operation__run=run).order_by("minted_at")),
        leases=leases[:LEASES_MAX],
        leases_more=len(leases) > LEASES_MAX,
        cases=cases.rows,
        leaves=leaves[-LEAVES_MAX:],
        leaves_more=len(leaves) > LEAVES_MAX,
        other_versions=tuple(run.other_versions),
        asked=asked.rows,
        names=Names({leaf.actor for leaf in leaves}),
        steps_more=len(calls) > STEPS_MAX,
    )


def _operations(run: Run) -> QuerySet[Any]:
    """The run's operations with their receipts, and whether the agent may repeat one."""
    grant = Grant.objects.filter(operation=OuterRef("pk"), state=GrantState.OPEN, executor=Executor.AGENT)
    return (
        Operation.objects.filter(run=run)
        .select_related("receipt")
        .defer("payload")
        .annotate(granted=Exists(grant))
    )
