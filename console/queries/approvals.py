"""Requests for a second person's consent: which wait for whom, and one of them with all that it is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import DateTimeField, Func, OuterRef, Q, QuerySet, TextField
from django.db.models.functions import Cast, JSONObject, Now

from console.queries import keyset
from console.queries.cases import CaseRead, read_case
from console.queries.people import Names
from console.queries.queue import merged_ids
from reconciliation.approval_kinds import content_of
from reconciliation.approval_models import (
    APPROVAL_OPEN,
    DECISION_KINDS,
    ApprovalKind,
    ApprovalMessage,
    ApprovalRequest,
    ApprovalState,
)
from runs.ids import could_be_id
from runs.locking import database_now
from runs.models import Call, FlowVersion, Operation, Run
from runs.refusals import NotFound

PAGE_ROWS: Final = 50
# Beyond it a count says "99+".
COUNT_MAX: Final = 99
# Of each version of a flow so many runs are counted, and so many effects of theirs: history has no end.
RUNS_LOOKED_MAX: Final = 500
EFFECTS_LOOKED_MAX: Final = 1_000
_OPEN: Final = sorted(str(one) for one in APPROVAL_OPEN)
_ENDED: Final = sorted(str(one) for one in ApprovalState if one not in APPROVAL_OPEN)
_KINDS: Final = frozenset(str(one) for one in ApprovalKind)


class View(StrEnum):
    """Which requests a list shows."""

    # What this person can answer, by deadline.
    FOR_YOU = "for_you"
    # What this human being asked for and is still open, by deadline.
    OWN = "own"
    # What has ended, latest asked first.
    DECIDED = "decided"


@dataclass(frozen=True, kw_only=True)
class Asker:
    """Whoever looks: their account, and the human being behind it."""

    actor: str
    principal: str

    def owns(self, requester: str, principal: str) -> bool:
        return requester == self.actor or (bool(principal) and principal == self.principal)

    @property
    def own(self) -> Q:
        """Requests of this human being."""
        return Q(requester=self.actor) | Q(requester_principal=self.principal)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a list is narrowed to; empty is any."""

    view: View = View.FOR_YOU
    kind: str = ""
    after: str = ""


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """How many requests wait for this person, and how many of their own do; up to a cap."""

    for_you: int
    own: int


@dataclass(frozen=True, kw_only=True)
class Listed:
    now: datetime
    rows: tuple[ApprovalRequest, ...]
    waiting: Waiting
    names: Names
    after: str = ""


def _requested(teams: Sequence[str]) -> QuerySet[ApprovalRequest]:
    """Open to answers: asked, and in time. The sweeper ends the others."""
    return ApprovalRequest.objects.filter(
        team__in=list(teams), state=ApprovalState.REQUESTED, expires_at__gt=Now()
    )


def count_waiting(*, teams: Sequence[str], asker: Asker) -> Waiting:
    """Count both in one query that reads no more than the cap."""
    rows = _requested(teams).order_by().values_list("requester", "requester_principal")
    own = [asker.owns(*one) for one in rows[: COUNT_MAX + 1]]
    return Waiting(for_you=own.count(False), own=own.count(True))


def list_approvals(*, teams: Sequence[str], asker: Asker, asked: Asked) -> Listed:
    """Read one page of requests. Raises `Invalid` for a cursor that can't be read."""
    newest = asked.view is View.DECIDED
    column = "requested_at" if newest else "expires_at"
    order = (f"-{column}", "-id") if newest else (column, "id")
    condition = Q(kind=asked.kind) if asked.kind in _KINDS else Q()
    match asked.view:
        case View.FOR_YOU:
            condition &= Q(state=ApprovalState.REQUESTED, expires_at__gt=Now()) & ~asker.own
        case View.OWN:
            condition &= Q(state__in=_OPEN) & asker.own
        case View.DECIDED:
            condition &= Q(state__in=_ENDED)
    if asked.after:
        at, pk = keyset.unpack(asked.after, datetime, str)
        way = "lt" if newest else "gt"
        condition &= Q(**{f"{column}__{way}": at}) | Q(**{column: at, f"id__{way}": pk})

    def of_team(team: str) -> QuerySet[ApprovalRequest, Any]:
        return ApprovalRequest.objects.filter(condition, team=team).order_by(*order)

    ids = merged_ids(teams, of_team, order, PAGE_ROWS + 1)
    found = {one.pk: one for one in _with_run().filter(pk__in=ids[:PAGE_ROWS])}
    rows = tuple(found[pk] for pk in ids[:PAGE_ROWS] if pk in found)
    after = keyset.pack(getattr(rows[-1], column), rows[-1].pk) if len(ids) > PAGE_ROWS and rows else ""
    people = {one.requester for one in rows} | {one.answerer for one in rows if one.answerer}
    return Listed(
        now=database_now(),
        rows=rows,
        waiting=count_waiting(teams=teams, asker=asker),
        names=Names(people),
        after=after,
    )


def next_for(*, teams: Sequence[str], asker: Asker, but: str) -> str:
    """The request that this person should answer next, by deadline; "" if none waits."""
    rows = _requested(teams).exclude(asker.own).exclude(pk=but).order_by("expires_at", "id")
    return rows.values_list("pk", flat=True).first() or ""


def _with_run() -> QuerySet[ApprovalRequest]:
    return ApprovalRequest.objects.select_related("run__flow", "run__flow_version", "operation").defer(
        "run__input", "run__output", "operation__payload"
    )


@dataclass(frozen=True, kw_only=True)
class Message:
    """A question about a request, or a reply."""

    kind: str
    text: str
    actor: str
    actor_name: str
    made_at: datetime


@dataclass(frozen=True, kw_only=True)
class VersionRead:
    """A flow version as it is on record; of runs and effects the states, up to one more than is looked at."""

    name: str
    digest: str
    first_seen_at: datetime
    last_worker_at: datetime | None
    runs: tuple[str, ...]
    effects: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ApprovalRead:
    """One request as it stands, with what it is about as that is now."""

    now: datetime
    approval: ApprovalRequest
    # What is consented to: see `ApprovalRequest`.
    content: dict[str, Any]
    messages: tuple[Message, ...]
    names: Names
    # Of a request about a case.
    case: CaseRead | None = None
    # The run's calls in order with their operations, where the request is about the run's version.
    calls: tuple[Call, ...] = ()
    # Of the run, or those that a budget waits for.
    operations: tuple[Operation, ...] = ()
    versions: tuple[VersionRead, ...] = ()

    @property
    def run(self) -> Run:
        return self.approval.run

    @property
    def parameters(self) -> dict[str, Any]:
        given: dict[str, Any] = self.content["parameters"]
        return given

    @property
    def facts(self) -> dict[str, Any]:
        rests_on: dict[str, Any] = self.content["facts"]
        return rests_on


def read_approval(approval_id: str, *, teams: Sequence[str]) -> ApprovalRead:
    """Read a request of the teams with what its page shows. Raises `NotFound`."""
    clock = Func(function="clock_timestamp", output_field=DateTimeField())
    said = ApprovalMessage.objects.filter(approval=OuterRef("pk")).order_by("made_at", "id")
    words = JSONObject(kind="kind", text="text", actor="actor", actor_name="actor_name", made_at="made_at")
    rows = _with_run().filter(pk=approval_id, team__in=list(teams))
    rows = rows.annotate(read_at=clock, said=ArraySubquery(said.values_list(words)))
    approval: Any = rows.first() if could_be_id(approval_id) else None
    if approval is None:
        raise NotFound(f"There is no approval {approval_id} that you can see.", approval=approval_id)
    messages = tuple(
        Message(**{**one, "made_at": datetime.fromisoformat(one["made_at"])}) for one in approval.said
    )
    kind = ApprovalKind(approval.kind)
    # Names on record with what they did needn't be looked up.
    people = {
        actor
        for actor, name in (
            (approval.requester, approval.requester_name),
            (approval.answerer, approval.answerer_name),
            *((one.actor, one.actor_name) for one in messages),
        )
        if actor and not name
    }
    shown: dict[str, Any] = {}
    if kind in DECISION_KINDS and approval.case_id:
        shown["case"] = read_case(approval.case_id, teams=teams)
    elif kind is ApprovalKind.FLOW_VERSION:
        shown["calls"] = tuple(Call.objects.filter(run=approval.run_id).order_by("turn__index", "position"))
        shown["operations"] = _operations(Q(run=approval.run_id))
        shown["versions"] = _versions(approval.run.flow_id, content_of(approval)["facts"])
    elif kind is ApprovalKind.BUDGET_RAISE:
        waiting = [str(one[0]) for one in content_of(approval)["facts"].get("waiting", [])]
        shown["operations"] = _operations(Q(pk__in=waiting))
    return ApprovalRead(
        now=approval.read_at,
        approval=approval,
        content=content_of(approval),
        messages=messages,
        names=Names(people),
        **shown,
    )


def _operations(which: Q) -> tuple[Operation, ...]:
    return tuple(Operation.objects.filter(which).defer("payload").order_by("turn_index", "position"))


def _versions(flow: str, facts: Mapping[str, Any]) -> tuple[VersionRead, ...]:
    """The pinned version and the one asked for, in one query that reads no more than its bounds."""
    runs = Run.objects.filter(flow_version=OuterRef("pk")).order_by()
    some = Run.objects.filter(flow_version=OuterRef(OuterRef("pk"))).order_by()
    effects = Operation.objects.filter(run__in=some.values("pk")[:RUNS_LOOKED_MAX]).order_by()
    named = [str(facts[name]) for name in ("version", "to") if facts.get(name)]
    # As text: a state's column has a domain, and of a domain's arrays the driver makes one string.
    state = Cast("state", TextField())
    found = FlowVersion.objects.filter(flow=flow, version__in=named).annotate(
        run_states=ArraySubquery(runs.values_list(state)[: RUNS_LOOKED_MAX + 1]),
        effect_states=ArraySubquery(effects.values_list(state)[: EFFECTS_LOOKED_MAX + 1]),
    )
    return tuple(
        VersionRead(
            name=one.version,
            digest=one.digest,
            first_seen_at=one.first_seen_at,
            last_worker_at=one.last_worker_at,
            runs=tuple(one.run_states),
            effects=tuple(one.effect_states),
        )
        for one in found
    )


def open_of_run(run_id: str) -> QuerySet[ApprovalRequest]:
    """The run's open requests without their content, latest first: what is asked for already."""
    rows = ApprovalRequest.objects.filter(run=run_id, state__in=_OPEN).defer("content")
    return rows.order_by("-requested_at", "-id")[:10]
