"""The effect history: the audit log's entries of a person's teams, newest first, narrowed by what is asked.

Each page is a stretch of an index, whatever is asked for: of the log's own where a name narrows it or
nothing does, else of the table that is filed behind the journal. Entries that aren't filed yet are looked at
beside it, so that nothing is missing that was written a moment ago. What needs both a mark and another filter
reads a bounded stretch of the marks at a time and says how far it came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from django.contrib.postgres.fields import ArrayField
from django.db import connection, models
from django.db.models import Exists, F, Func, Max, OuterRef, Q, QuerySet, Value

from console.history_models import HistoryEntry, HistoryMark, Mark
from console.queries import administered, keyset
from console.queries.administered import Administered
from console.queries.choices import OFFERED_MAX, VISIBLE_ACCOUNT
from console.queries.finding import Named, find_named
from console.queries.people import Names
from reconciliation.models import Case, Decision
from runs.models import AuditLeaf, Operation

PAGE_ROWS = 50
# How many marked entries one page looks through where no index serves all of what is asked.
SCANNED_MAX = 5_000
# How many of them first: where one in ten is as asked, they fill a page.
LOOKED_THROUGH_FIRST = 500
# Of how many runs with one external id entries are listed: flows choose such ids, and many may choose a day.
NAMED_MAX: Final = 1_000
# How many entries that aren't filed yet one page looks through: what a busy journal writes in some passes.
UNFILED_MAX = 20_000
# More than so many aren't counted.
COUNT_MAX: Final = 99
# The counts beside the exceptions are of so many days.
COUNTED_DAYS: Final = 30


class Group(StrEnum):
    """Actions that are asked for together, by a word of their own."""

    DECISIONS = "decisions"
    REQUESTS = "requests"
    LOOKUPS = "lookups"
    SETTLED = "settled"
    CONFLICTS = "conflicts"
    LEASES = "leases"
    APPROVALS = "approvals"
    ADMINISTRATION = "administration"


ACTIONS: Final[dict[Group, tuple[str, ...]]] = {
    Group.DECISIONS: (
        "case.decided.confirm",
        "case.decided.retry",
        "case.decided.abandon",
        "case.decided.make_absent",
        "case.decided.accept",
        "case.decided.compensate",
    ),
    Group.REQUESTS: (
        "operation.sent",
        "operation.sent_again",
        "operation.sent_by_unknown",
        "operation.perhaps_sent",
        "absence.sent",
    ),
    Group.LOOKUPS: ("evidence.recorded",),
    Group.SETTLED: (
        "operation.confirmed",
        "operation.rejected",
        "operation.abandoned",
        "operation.not_sent",
    ),
    Group.CONFLICTS: ("conflict.accepted", "conflict.compensated", "operation.sent_by_unknown"),
    Group.LEASES: ("run.claimed", "lease.ended"),
    Group.APPROVALS: (
        "approval.requested",
        "approval.asked",
        "approval.replied",
        "approval.approved",
        "approval.carried_out",
        "approval.refused",
        "approval.withdrawn",
        "approval.expired",
        "approval.voided",
        "approval.own_attempt_refused",
    ),
    Group.ADMINISTRATION: (*administered.ACTIONS, "team.made", "flow.policy_changed"),
}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the history is narrowed to; empty is any. `after` and `before` are places in the list."""

    text: str = ""
    # A group's word, or one action.
    action: str = ""
    actor: str = ""
    provider: str = ""
    mark: Mark | None = None
    from_at: datetime | None = None
    # Exclusive.
    until_at: datetime | None = None
    after: str = ""
    before: str = ""
    # The entry that is shown open.
    entry: str = ""

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions that are asked for; none: any."""
        if not self.action:
            return ()
        return ACTIONS[Group(self.action)] if self.action in set(Group) else (self.action,)

    @property
    def is_narrowed(self) -> bool:
        """Whether anything but the place is asked for."""
        return bool(self.text or self.action or self.actor or self.provider or self.mark or self.has_times)

    @property
    def has_times(self) -> bool:
        return self.from_at is not None or self.until_at is not None


@dataclass(frozen=True, kw_only=True)
class About:
    """What an entry is about: the operation, and the page that shows it."""

    tool: str
    currency: str
    minor: int | None
    case_id: str
    provider: str = ""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What is around any page of the history: what its filters offer, how many entries each mark has, how far
    entries are filed, and the time. People as (actor, name)."""

    now: datetime
    providers: tuple[str, ...] = ()
    people: tuple[tuple[str, str], ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    through_leaf: int = 0
    through_at: datetime | None = None
    latest_leaf: int = 0

    @property
    def is_behind(self) -> bool:
        """Whether more was written since than a page can look through."""
        return self.latest_leaf - self.through_leaf > UNFILED_MAX


@dataclass(frozen=True, kw_only=True)
class Entries:
    """A page of the history. `scanned_to` is how far a bounded search came without filling the page.

    `behind`: what was written since `frame.through_at` isn't in this list. `cut`: nor is what older things
    than the newest `NAMED_MAX` of the name asked for did.
    """

    frame: Frame
    leaves: tuple[AuditLeaf, ...]
    about: dict[str, About]
    decisions: dict[str, Decision]
    names: Names
    after: str = ""
    before: str = ""
    scanned_to: datetime | None = None
    behind: bool = False
    cut: bool = False

    @property
    def now(self) -> datetime:
        return self.frame.now


def list_entries(*, teams: Sequence[str], asked: Asked, beyond: Administered | None = None) -> Entries:
    """Read one page of the history. Raises `Invalid` for a place that can't be read.

    `beyond`: what the reader may see of the entries of no team, None where the event asked for has none.
    """
    place = place_of(asked)
    frame = read_frame(teams)
    search = Search(teams=teams, asked=asked, frame=frame, beyond=beyond)
    found = search.page(place, PAGE_ROWS)
    operations = {one.operation_ref for one in found.leaves if one.operation_ref}
    return Entries(
        frame=frame,
        leaves=found.leaves,
        about=about_of(operations),
        decisions=_decisions(found.leaves, asked.entry),
        names=Names({leaf.actor for leaf in found.leaves}),
        after=found.after,
        before=found.before,
        scanned_to=found.scanned_to,
        behind=search.is_filed and frame.is_behind,
        cut=search.is_cut,
    )


# --- One page, by whatever index serves it --------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """A place in the list: an entry that was shown, and which way to go on from it."""

    at: datetime
    leaf: int
    is_newer: bool = False


@dataclass(frozen=True, kw_only=True)
class Found:
    """A page's entries, newest first; the cursors of what is older and newer, "" where nothing is."""

    leaves: tuple[AuditLeaf, ...] = ()
    after: str = ""
    before: str = ""
    scanned_to: datetime | None = None


def place_of(asked: Asked) -> Place | None:
    """Where the asked page begins; None: with the newest. Raises `Invalid`."""
    cursor = asked.before or asked.after
    if not cursor:
        return None
    at, leaf = keyset.unpack(cursor, datetime, int)
    if not isinstance(at, datetime) or not isinstance(leaf, int):
        raise TypeError(cursor)  # `unpack` has seen to it
    return Place(at=at, leaf=leaf, is_newer=bool(asked.before))


class Search:
    """One way of narrowing the history of these teams: read in pages, or to its end."""

    def __init__(
        self, *, teams: Sequence[str], asked: Asked, frame: Frame, beyond: Administered | None = None
    ) -> None:
        self._teams, self._asked, self._frame, self._beyond = tuple(teams), asked, frame, beyond
        self._named = find_named(asked.text, teams=teams, hits_max=NAMED_MAX) if asked.text else Named()

    @property
    def is_filed(self) -> bool:
        """Whether what is filed is asked; without filters the log's order serves, with a name its indexes."""
        return self._asked.is_narrowed and not self._asked.text

    @property
    def is_cut(self) -> bool:
        """Whether more things have the name asked for than entries are listed of."""
        return self._named.cut

    @property
    def is_empty(self) -> bool:
        """Whether nothing can match, so that nothing need be read."""
        return not self._teams or bool(self._asked.text and not self._named)

    def page(self, place: Place | None, rows: int) -> Found:
        """The entries next to a place (None: the newest)."""
        if self.is_empty:
            return Found()
        if not self.is_filed:
            ids = self._from_log(place, rows + 1)
            return self._found(ids, place, rows)
        if self._asked.mark is not None:
            return self._marked(self._asked.mark, place, rows)
        # What is filed between the two questions answers both.
        keys = {*self._from_files(place, rows + 1), *self._not_filed(place, rows + 1)}
        keys.update(self._of_no_team(place, rows + 1))
        newer = place is not None and place.is_newer
        ids = [leaf for _, leaf in sorted(keys, reverse=not newer)]
        return self._found(ids[: rows + 1], place, rows)

    def stretch(self, place: Place, rows: int) -> tuple[tuple[AuditLeaf, ...], Place | None]:
        """The next older entries, and the place after them; None at the end.

        For whoever reads to the end: what is filed alone, so everything up to the place must be.
        """
        found = self.page(place, rows)
        if not found.after:
            return found.leaves, None
        at, leaf = keyset.unpack(found.after, datetime, int)
        if not isinstance(at, datetime) or not isinstance(leaf, int):
            raise TypeError(found.after)  # `unpack` has seen to it
        return found.leaves, Place(at=at, leaf=leaf)

    # --- from the log itself

    def _from_log(self, place: Place | None, rows: int) -> list[int]:
        """In the order of the entries' numbers: what a named thing did in its life, or everything."""
        newer = place is not None and place.is_newer
        order = "id" if newer else "-id"
        if self._asked.text:
            entries = AuditLeaf.objects.filter(_of_named(self._named), self._log_filters())
            entries = entries.filter(team_slug__in=self._teams)
            return list(_beyond_leaf(entries, place).order_by(order).values_list("pk", flat=True)[:rows])
        parts = [
            _beyond_leaf(AuditLeaf.objects.filter(team_slug=team), place)
            .order_by(order)
            .values_list("id", flat=True)[:rows]
            for team in self._teams
        ]
        if len(parts) == 1:
            return list(parts[0])
        return list(parts[0].union(*parts[1:], all=True).order_by(order)[:rows])

    def _log_filters(self) -> Q:
        asked = self._asked
        filters = Q()
        if asked.actions:
            filters &= Q(action__in=asked.actions)
        if asked.actor:
            filters &= Q(actor=asked.actor)
        if asked.provider:
            about = Operation.objects.filter(pk=OuterRef("operation_ref"), provider=asked.provider)
            filters &= Q(Exists(about))
        if asked.mark is not None:
            filters &= Q(Exists(HistoryMark.objects.filter(leaf=OuterRef("pk"), mark=asked.mark)))
        return filters & self._times()

    def _times(self) -> Q:
        asked = self._asked
        times = Q()
        if asked.from_at is not None:
            times &= Q(at__gte=asked.from_at)
        if asked.until_at is not None:
            times &= Q(at__lt=asked.until_at)
        return times

    # --- from what is filed, and what isn't yet

    def _streams(self) -> list[dict[str, Any]]:
        """What each index is asked for: a team, and one action at a time."""
        asked = self._asked
        exact = {
            name: value for name, value in (("provider", asked.provider), ("actor", asked.actor)) if value
        }
        each = [{"action": one} for one in asked.actions] or [{}]
        return [{"team_slug": team, **exact, **one} for team in self._teams for one in each]

    def _from_files(self, place: Place | None, rows: int) -> list[tuple[datetime, int]]:
        newer = place is not None and place.is_newer
        order = ("at", "leaf") if newer else ("-at", "-leaf")
        parts = [
            HistoryEntry.objects.filter(self._times(), _beyond(place, "leaf"), **stream)
            .order_by(*order)
            .values_list("at", "leaf")[:rows]
            for stream in self._streams()
        ]
        found = parts[0] if len(parts) == 1 else parts[0].union(*parts[1:], all=True).order_by(*order)[:rows]
        return [(at, leaf) for at, leaf in found]

    def _not_filed(self, place: Place | None, rows: int) -> list[tuple[datetime, int]]:
        """Entries written since, unless they are more than a page looks through."""
        if self._frame.is_behind:
            return []
        newer = place is not None and place.is_newer
        order = ("at", "id") if newer else ("-at", "-id")
        unfiled = AuditLeaf.objects.filter(pk__gt=self._frame.through_leaf, team_slug__in=self._teams)
        entries = unfiled.filter(self._log_filters(), _beyond(place, "id"))
        return [(at, leaf) for at, leaf in entries.order_by(*order).values_list("at", "id")[:rows]]

    def _of_no_team(self, place: Place | None, rows: int) -> list[tuple[datetime, int]]:
        """What was administered for every team, where that is asked for and the reader may see it."""
        actions = [one for one in self._asked.actions if one in administered.ACTIONS]
        if self._beyond is None or not actions:
            return []
        return self._beyond.keys(
            actions=actions,
            actor=self._asked.actor,
            account=self._asked.provider,
            narrowed=self._times() & _beyond(place, "id"),
            newer=place is not None and place.is_newer,
            rows=rows,
        )

    # --- by what sets an entry apart

    def _marked(self, mark: Mark, place: Place | None, rows: int) -> Found:
        """The marked entries, of an account if asked; with another filter, out of a bounded stretch."""
        asked = self._asked
        narrowed = bool(asked.actions or asked.actor)
        account = {"provider": asked.provider} if asked.provider else {}
        taken = SCANNED_MAX if narrowed else rows + 1
        newer = place is not None and place.is_newer
        order = ("at", "leaf") if newer else ("-at", "-leaf")
        parts = [
            HistoryMark.objects.filter(
                self._times(), _beyond(place, "leaf"), team_slug=team, mark=mark, **account
            )
            .order_by(*order)
            .values_list("at", "leaf")[:taken]
            for team in self._teams
        ]
        union = parts[0] if len(parts) == 1 else parts[0].union(*parts[1:], all=True).order_by(*order)[:taken]
        stretch = [(at, leaf) for at, leaf in union]
        if not narrowed:
            return self._found([leaf for _, leaf in stretch], place, rows)
        ids = self._narrowed([leaf for _, leaf in stretch], order, rows + 1)
        found = self._found(ids, place, rows)
        if len(ids) > rows or len(stretch) < SCANNED_MAX:
            return found
        # As far as it came, which isn't the end: whoever asks goes on from there.
        at, leaf = stretch[-1]
        if newer:
            older = found.after or keyset.pack(*stretch[0])
            return Found(leaves=found.leaves, after=older, before=keyset.pack(at, leaf), scanned_to=at)
        return Found(leaves=found.leaves, after=keyset.pack(at, leaf), before=found.before, scanned_to=at)

    def _narrowed(self, leaves: Sequence[int], order: Sequence[str], rows: int) -> list[int]:
        """The first of these entries, in their order, that are as asked; most pages are full after a few."""
        asked = self._asked
        exact: dict[str, Any] = {"actor": asked.actor} if asked.actor else {}
        if asked.actions:
            exact["action__in"] = asked.actions
        ids: list[int] = []
        for some in (leaves[:LOOKED_THROUGH_FIRST], leaves[LOOKED_THROUGH_FIRST:]):
            if some and len(ids) < rows:
                entries = HistoryEntry.objects.filter(_among(some), **exact).order_by(*order)
                ids += entries.values_list("leaf", flat=True)[: rows - len(ids)]
        return ids

    # --- the page

    def _found(self, ids: Sequence[int], place: Place | None, rows: int) -> Found:
        """The entries of these numbers, in their order, with what is on either side."""
        more, shown = len(ids) > rows, list(ids[:rows])
        by_id = {leaf.pk: leaf for leaf in AuditLeaf.objects.filter(pk__in=shown)} if shown else {}
        leaves = [by_id[one] for one in shown if one in by_id]
        newer = place is not None and place.is_newer
        if newer:
            leaves.reverse()
        if not leaves:
            return Found()
        return Found(
            leaves=tuple(leaves),
            after=_cursor(leaves[-1]) if more or newer else "",
            before=_cursor(leaves[0]) if (more if newer else place is not None) else "",
        )


def _cursor(leaf: AuditLeaf) -> str:
    return keyset.pack(leaf.at, leaf.pk)


def _among(leaves: Sequence[int]) -> Func:
    """Entries of these numbers, as one array: thousands of values take longer to write than to find."""
    array = Value(list(leaves), output_field=ArrayField(models.BigIntegerField()))
    return Func(
        F("leaf"),
        array,
        template="%(expressions)s)",
        arg_joiner=" = ANY(",
        output_field=models.BooleanField(),
    )


def _beyond(place: Place | None, name: str) -> Q:
    """What comes after a place in the order of time and number; as one bound of an index, and exactly."""
    if place is None:
        return Q()
    sign = "gt" if place.is_newer else "lt"
    bound = Q(**{f"at__{sign}e": place.at})
    return bound & (Q(**{f"at__{sign}": place.at}) | Q(**{f"{name}__{sign}": place.leaf}))


def _beyond_leaf(entries: QuerySet[AuditLeaf], place: Place | None) -> QuerySet[AuditLeaf]:
    if place is None:
        return entries
    return entries.filter(pk__gt=place.leaf) if place.is_newer else entries.filter(pk__lt=place.leaf)


def _of_named(named: Named) -> Q:
    operations = [*named.operations]
    if named.cases:
        operations += Case.objects.filter(pk__in=named.cases).values_list("operation_id", flat=True)
    condition = Q(operation_ref__in=operations) if operations else Q()
    return condition | Q(run_ref__in=named.runs) if named.runs else condition


# --- What is beside the entries -------------------------------------------------------------------------


def about_of(operations: set[str]) -> dict[str, About]:
    """The operations of these ids, each with its latest case."""
    rows = (
        Operation.objects.filter(pk__in=operations)
        .annotate(case_id=Max("cases__id"))
        .values_list("pk", "tool", "amount_currency", "amount_minor", "case_id", "provider_id")
    )
    return {
        pk: About(tool=tool, currency=currency, minor=minor, case_id=case_id or "", provider=provider)
        for pk, tool, currency, minor, case_id, provider in rows
    }


def _decisions(leaves: Sequence[AuditLeaf], entry: str) -> dict[str, Decision]:
    """The decisions of the operation whose entry is open, by id: their words are part of the entry."""
    opened = next((one for one in leaves if str(one.pk) == entry), None)
    if opened is None or not opened.action.startswith("case.decided."):
        return {}
    rows = Decision.objects.filter(operation=opened.operation_ref).order_by("-made_at")[:20]
    return {row.pk: row for row in rows}


_FRAME: Final = """
(SELECT 'provider', slug, '', 0::bigint, NULL::timestamptz FROM runs_provideraccount AS account
 WHERE {visible} ORDER BY slug LIMIT %(most)s)
UNION ALL
(SELECT DISTINCT 'person', 'person:' || person.id,
        coalesce(nullif(trim(person.first_name || ' ' || person.last_name), ''), person.username) AS name,
        0::bigint, NULL::timestamptz
 FROM console_person AS person JOIN console_person_teams AS member ON member.person_id = person.id
 WHERE member.team_id = ANY(%(teams)s)
 ORDER BY name LIMIT %(most)s)
UNION ALL
SELECT 'mark', kinds.mark, '', (
    SELECT count(*) FROM (
        SELECT FROM unnest(%(teams)s::text[]) AS team (slug)
        CROSS JOIN LATERAL (
            SELECT FROM console_historymark
            WHERE team_slug = team.slug AND mark = kinds.mark
                AND at >= clock_timestamp() - %(days)s * interval '1 day'
            ORDER BY at DESC LIMIT %(count)s
        ) AS marked
        LIMIT %(count)s
    ) AS counted
), NULL FROM unnest(%(marks)s::text[]) AS kinds (mark)
UNION ALL
SELECT 'through', '', '', max(through_leaf), max(through_at) FROM console_historyprogress
UNION ALL
SELECT 'latest', '', '', max(id), clock_timestamp() FROM runs_auditleaf
"""


def read_frame(teams: Sequence[str]) -> Frame:
    """Read what is around a page, in one statement; also people whose login is closed are offered."""
    asked: dict[str, Any] = {
        "teams": list(teams),
        "most": OFFERED_MAX,
        "days": COUNTED_DAYS,
        "count": COUNT_MAX + 1,
        "marks": [str(mark) for mark in Mark],
    }
    with connection.cursor() as cursor:
        cursor.execute(_FRAME.format(visible=VISIBLE_ACCOUNT), asked)
        rows = cursor.fetchall()
    (through,) = [row for row in rows if row[0] == "through"]
    (latest,) = [row for row in rows if row[0] == "latest"]
    return Frame(
        now=latest[4],
        providers=tuple(row[1] for row in rows if row[0] == "provider"),
        people=tuple((row[1], row[2]) for row in rows if row[0] == "person"),
        counts={row[1]: row[3] for row in rows if row[0] == "mark"},
        through_leaf=through[3] or 0,
        through_at=through[4],
        latest_leaf=latest[3] or 0,
    )


# Parts of Recourse that entries are by, for the filter.
PARTS: Final = ("journal", "sweeper", "lookup", "retry", "webhook", "console-sender")
