"""The queue: cases by what gets worse first, the backlog over them, and where one case stands in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from django.db.models import BinaryField, F, OuterRef, Q, QuerySet, Subquery, TextField, Value, When
from django.db.models import Case as FirstOf
from django.db.models.functions import Coalesce, Concat, Length
from django.db.models.lookups import Exact, IContains, IsNull

from console.queries import keyset
from console.queries.backlog import COUNT_MAX, SOON, Backlog, backlog_of, capped
from console.queries.choices import Choices, choices_of
from console.queries.finding import Named, find_named
from console.queries.parts import PART_LENGTH_MIN, subjects_with
from console.queries.together import CountOf
from reconciliation.models import Case, Lookup
from reconciliation.overview import Overview, answers_of, stray_report
from reconciliation.snoozing import asleep, awake, is_asleep
from reconciliation.states import CaseState
from reconciliation.work_models import CaseClaim
from reconciliation.working import live_claims
from runs.locking import database_now
from runs.models import Operation
from runs.money import codes_with_digits

PAGE_ROWS = 50
# Of what is resolved, so many are looked for among the names that have a part; newest first.
SUBJECTS_MAX = 500
# Between two names: nobody searches for it.
_BETWEEN: Final = Value("\n")
# Whom a list is narrowed to, where it isn't a person by their id.
ME: Final = "me"
NOBODY: Final = "nobody"
# A longer payload isn't read for the sake of a row's title.
PAYLOAD_READ_MAX = 4_096


class View(StrEnum):
    """Which cases a list shows; each in an order that an index has."""

    # What a person has to decide, by what gets worse first.
    NEEDS_DECISION = "needs_decision"
    # The same, of which key or time limit ends within an hour or has ended.
    SOON = "soon"
    # The same, of which the provider shows more effects than were intended, or evidence contradicts itself.
    CONFLICT = "conflict"
    # What people have put off until a time.
    SNOOZED = "snoozed"
    # Being looked up, oldest first.
    LOOKING_UP = "looking_up"
    # A granted retry that isn't over, oldest first.
    RETRYING = "retrying"
    # Answered, newest first.
    RESOLVED = "resolved"


_STATES: Final = {
    View.NEEDS_DECISION: CaseState.NEEDS_DECISION,
    View.SOON: CaseState.NEEDS_DECISION,
    View.CONFLICT: CaseState.NEEDS_DECISION,
    View.SNOOZED: CaseState.NEEDS_DECISION,
    View.LOOKING_UP: CaseState.LOOKING_UP,
    View.RETRYING: CaseState.RETRYING,
    View.RESOLVED: CaseState.RESOLVED,
}
# The sort key of each view, first what is compared first; each is the order of an index on `Case`.
_ORDERS: Final[dict[CaseState, tuple[str, ...]]] = {
    CaseState.NEEDS_DECISION: ("worsens_at", "-at_risk_minor", "id"),
    CaseState.LOOKING_UP: ("opened_at", "id"),
    CaseState.RETRYING: ("opened_at", "id"),
    CaseState.RESOLVED: ("-resolved_at", "-id"),
}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a list is narrowed to, as the address says it; empty is any."""

    view: View = View.NEEDS_DECISION
    text: str = ""
    provider: str = ""
    flow: str = ""
    tool: str = ""
    # What the latest lookup found, and why a person is asked.
    finding: str = ""
    reason: str = ""
    # In major units, whatever the currency: 100 is €100.00 and also JPY 100.
    amount_min: Decimal | None = None
    waiting_min: timedelta | None = None
    # Who works on it: an actor, or one of the two words; `me` is whom ME means.
    assignee: str = ""
    me: str = ""
    after: str = ""

    @property
    def narrowed(self) -> bool:
        return bool(
            self.text
            or self.provider
            or self.flow
            or self.tool
            or self.finding
            or self.reason
            or self.amount_min is not None
            or self.waiting_min is not None
            or self.assignee
        )


@dataclass(frozen=True, kw_only=True)
class Row:
    """A case of the list, with what its row shows beside it."""

    case: Case
    overview: Overview
    looked_up_at: datetime | None
    payload: bytes
    # The name of whoever works on it, "" for nobody.
    claimant: str = ""
    # Who gave it to them, until they have looked at it.
    given_by: str = ""


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A page of the queue. `after` is the cursor of what follows, "" at the end."""

    now: datetime
    rows: tuple[Row, ...]
    backlog: Backlog
    choices: Choices
    # Nothing has exactly the name that was asked for: what has it as a part of its own is listed.
    by_part: bool = False
    after: str = ""


def list_cases(*, teams: Sequence[str], asked: Asked) -> Listed:
    """Read one page of cases with the backlog over it. Raises `Invalid` for a cursor that can't be read."""
    backlog = backlog_of(teams=teams)
    now = backlog.now
    named = find_named(asked.text, teams=teams) if asked.text else Named()
    condition = _condition(asked, teams, now, named)
    ids = [] if condition is None else _page_ids(teams, asked, condition)
    shown = ids[:PAGE_ROWS]
    rows = _rows(shown, now)
    after = ""
    if len(ids) > PAGE_ROWS and rows:
        after = _cursor(rows[-1].case)
    return Listed(
        now=now,
        rows=rows,
        backlog=backlog,
        choices=choices_of(teams=teams, state=_STATES[asked.view]),
        by_part=len(asked.text) >= PART_LENGTH_MIN and not named,
        after=after,
    )


def count_new(*, teams: Sequence[str], asked: Asked, since: datetime) -> int:
    """How many cases have come into this list since then, up to the cap; a retry comes by a person's deed."""
    came = {CaseState.NEEDS_DECISION: "needs_decision_since_at", CaseState.LOOKING_UP: "opened_at"}
    column = "resolved_at" if asked.view is View.RESOLVED else came.get(_STATES[asked.view], "")
    condition = _condition(asked, teams, database_now()) if column else None
    if condition is None:
        return 0
    return capped(Case.objects.filter(condition, team__in=teams, **{f"{column}__gt": since}))


# --- Which cases, in which order --------------------------------------------------------------------------


def _condition(asked: Asked, teams: Sequence[str], now: datetime, named: Named | None = None) -> Q | None:
    """The filters as one condition; None when nothing can match. `named`: what has the name asked for."""
    condition = Q(state=_STATES[asked.view])
    if asked.view is View.SNOOZED:
        condition &= asleep(now)
    elif _STATES[asked.view] is CaseState.NEEDS_DECISION and not asked.text:
        # Who asks for one by its name finds it, put off or not.
        condition &= awake(now)
    if asked.view is View.SOON:
        condition &= Q(worsens_at__lte=now + SOON)
    if asked.view is View.CONFLICT:
        condition &= Q(kind="conflict")
    if asked.text:
        named = find_named(asked.text, teams=teams) if named is None else named
        called = _of_named(named) if named else _of_part(asked, teams)
        if called is None:
            return None
        condition &= called
    for column, value in (
        ("provider_slug", asked.provider),
        ("flow_name", asked.flow),
        ("tool", asked.tool),
        ("finding", asked.finding),
        ("need", asked.reason),
    ):
        if value:
            condition &= Q(**{column: value})
    if asked.amount_min is not None:
        condition &= _at_least(asked.amount_min)
    if asked.waiting_min is not None:
        condition &= Q(opened_at__lte=now - asked.waiting_min)
    if asked.assignee:
        condition &= _of_assignee(asked, now)
    return condition


def _of_assignee(asked: Asked, now: datetime) -> Q:
    """Cases that this person works on, or nobody.

    Asked case by case, by the claims' key: the list is short beside all claims that there ever were.
    """
    worker = Subquery(live_claims(now).filter(case=OuterRef("pk")).values("actor")[:1])
    if asked.assignee == NOBODY:
        return Q(IsNull(worker, True))
    return Q(Exact(worker, Value(asked.me if asked.assignee == ME else asked.assignee)))


def _of_part(asked: Asked, teams: Sequence[str]) -> Q | None:
    """Cases of which a name contains the text; None where it is too short or nothing can match.

    What isn't settled is little: there the names themselves are read, case by case, also of what came this
    second.
    """
    text = asked.text
    if len(text) < PART_LENGTH_MIN:
        return None
    if asked.view is View.RESOLVED:
        subjects = subjects_with(text, teams=teams, subjects_max=SUBJECTS_MAX)
        return Q(operation__in=subjects) | Q(run__in=subjects) if subjects else None
    reference = Coalesce("receipt__reference", Value(""))
    names = Concat("id", _BETWEEN, "key", _BETWEEN, "run__external_id", _BETWEEN, reference)
    of_case = Operation.objects.filter(pk=OuterRef("operation")).values(names=names)
    return Q(IContains(Subquery(of_case, output_field=TextField()), text))


def _at_least(amount: Decimal) -> Q:
    """Amounts of at least so many major units, each currency by its own minor unit; most have two digits."""
    odd: list[str] = []
    condition = Q()
    for digits in (0, 3, 4):
        codes = codes_with_digits(digits)
        odd += codes
        condition |= Q(at_risk_currency__in=codes, at_risk_minor__gte=int(amount * 10**digits))
    usual = ~Q(at_risk_currency__in=["", *odd]) & Q(at_risk_minor__gte=int(amount * 100))
    return condition | usual


def _of_named(named: Named) -> Q:
    return Q(pk__in=named.cases) | Q(operation__in=named.operations) | Q(run__in=named.runs)


def ids_matching(*, teams: Sequence[str], asked: Asked, rows_max: int) -> list[str]:
    """The first ids of everything that the filters let through, in the order of the list, from its top."""
    condition = _condition(asked, teams, database_now())
    return [] if condition is None else _page_ids(teams, replace(asked, after=""), condition, rows_max)


def _page_ids(teams: Sequence[str], asked: Asked, condition: Q, rows_max: int = PAGE_ROWS + 1) -> list[str]:
    """The ids of one page and one more, in order; each team read by its index, then merged."""
    state = _STATES[asked.view]
    order = _ORDERS[state]
    if asked.after:
        condition &= _beyond(state, asked.after)

    def of_team(team: str) -> QuerySet[Case, Any]:
        return Case.objects.filter(condition, team=team).order_by(*order)

    return merged_ids(teams, of_team, order, rows_max)


def merged_ids(
    teams: Sequence[str], of_team: Callable[[str], QuerySet[Any, Any]], order: tuple[str, ...], rows_max: int
) -> list[str]:
    """The first ids of several teams' lists taken together.

    One list by `team IN (…)` would have to be sorted whole; each team's own list is the order of an index.
    """
    columns = [name.lstrip("-") for name in order if name.lstrip("-") != "id"]
    parts = [of_team(team).values_list("id", *columns)[:rows_max] for team in teams]
    if not parts:
        return []
    rows = parts[0] if len(parts) == 1 else parts[0].union(*parts[1:], all=True).order_by(*order)[:rows_max]
    return [row[0] for row in rows]


def _cursor(case: Case) -> str:
    match CaseState(case.state):
        case CaseState.RESOLVED:
            return keyset.pack(case.resolved_at, case.pk)
        case CaseState.NEEDS_DECISION:
            return keyset.pack(case.worsens_at, case.at_risk_minor, case.pk)
        case _:
            return keyset.pack(case.opened_at, case.pk)


def _beyond(state: CaseState, cursor: str) -> Q:
    """What comes after the cursor. The first column's bound is apart, so that an index can start there."""
    if state is CaseState.NEEDS_DECISION:
        at, minor, pk = keyset.unpack(cursor, datetime, int, str)
        return after_in_queue(at, minor, pk)
    at, pk = keyset.unpack(cursor, datetime, str)
    if state is CaseState.RESOLVED:
        return Q(resolved_at__lte=at) & (Q(resolved_at__lt=at) | Q(id__lt=pk))
    return Q(opened_at__gte=at) & (Q(opened_at__gt=at) | Q(id__gt=pk))


def after_in_queue(at: object, minor: object, pk: object) -> Q:
    """What comes after this place in the order of the queue."""
    return Q(worsens_at__gte=at) & (
        Q(worsens_at__gt=at) | Q(at_risk_minor__lt=minor) | Q(at_risk_minor=minor, id__gt=pk)
    )


def before_in_queue(at: object, minor: object, pk: object) -> Q:
    """What comes before this place in the order of the queue."""
    return Q(worsens_at__lte=at) & (
        Q(worsens_at__lt=at) | Q(at_risk_minor__gt=minor) | Q(at_risk_minor=minor, id__lt=pk)
    )


# --- What a row shows -------------------------------------------------------------------------------------


def _rows(ids: Sequence[str], now: datetime) -> tuple[Row, ...]:
    latest = Lookup.objects.filter(case=OuterRef("pk"))
    small = When(payload_length__lte=PAYLOAD_READ_MAX, then=F("operation__payload"))
    cases = (
        Case.objects.filter(pk__in=ids)
        .select_related("operation__call", "run__flow_version", "claim")
        .defer(
            "operation__payload",
            "operation__refusal",
            "operation__known_effect",
            "operation__call__args",
            "operation__call__result",
            "run__input",
            "run__output",
            "run__end_reason",
        )
        .annotate(payload_length=Length("operation__payload"), stray_report=stray_report())
        .annotate(looked_up_at=Subquery(latest.order_by("-number").values("asked_at")[:1]))
        .annotate(small_payload=FirstOf(small, default=Value(None), output_field=BinaryField(null=True)))
    )
    by_id: dict[str, Any] = {case.pk: case for case in cases}
    listed = [by_id[one] for one in ids if one in by_id]
    overviews = answers_of(listed, now=now)
    # On a case that is resolved nobody works any more.
    held: dict[str, CaseClaim | None] = {one.pk: getattr(one, "claim", None) for one in listed}
    claims = {pk: claim for pk, claim in held.items() if claim is not None and claim.until_at > now}
    return tuple(
        Row(
            case=case,
            overview=overviews[case.pk],
            looked_up_at=case.looked_up_at,
            payload=bytes(case.small_payload or b""),
            **_hands(claims.get(case.pk) if case.state != CaseState.RESOLVED else None),
        )
        for case in listed
    )


def _hands(claim: CaseClaim | None) -> dict[str, str]:
    """Who has the case, and who gave it to them while they haven't opened it."""
    if claim is None:
        return {}
    unopened = claim.used_at == claim.claimed_at
    return {
        "claimant": claim.actor_name or claim.actor,
        "given_by": claim.given_by if unopened else "",
    }


# --- Where a case stands ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Place:
    """The neighbours of a case in the queue, and its number in it where it is in it."""

    previous: str = ""
    next: str = ""
    number: int | None = None
    total: int = 0


def place_of(case: Case, *, teams: Sequence[str], now: datetime) -> Place:
    """Where the case stands among those that need a decision; any other between its old neighbours."""
    return place_in(case, around(case, teams=teams, now=now).first(), now=now)


def around(case: Case, *, teams: Sequence[str], now: datetime) -> QuerySet[Case, Any]:
    """One row about what stands around the case in the queue, for `place_in`; counts end at the cap."""
    waiting = Case.objects.filter(awake(now), team__in=teams, state=CaseState.NEEDS_DECISION)
    waiting = waiting.exclude(pk=case.pk)
    key = (case.worsens_at, case.at_risk_minor, case.pk)
    later = waiting.filter(after_in_queue(*key)).order_by("worsens_at", "-at_risk_minor", "id")
    earlier = waiting.filter(before_in_queue(*key)).order_by("-worsens_at", "at_risk_minor", "-id")
    all_of_them = waiting.order_by("worsens_at", "-at_risk_minor", "id")
    return Case.objects.filter(pk=case.pk).values(
        previous=Subquery(earlier.values("pk")[:1]),
        next=Subquery(later.values("pk")[:1]),
        before=CountOf(earlier.values("pk")[: COUNT_MAX + 1]),
        others=CountOf(all_of_them.values("pk")[: COUNT_MAX + 1]),
    )


def place_in(case: Case, row: Mapping[str, Any] | None, *, now: datetime) -> Place:
    """The place that the row of `around` tells of; no neighbours where there is none."""
    if row is None:
        return Place()
    inside = case.state == CaseState.NEEDS_DECISION and not is_asleep(case, now)
    return Place(
        previous=row["previous"] or "",
        next=row["next"] or "",
        number=row["before"] + 1 if inside else None,
        total=row["others"] + inside,
    )
