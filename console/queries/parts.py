"""Search by a part of a name: what begins with it, then what contains it, then what is written alike.

Each stage is bounded whatever there is: the first reads a stretch of an index, the others may take so long
and no longer, and say so when that wasn't enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final

from django.db import OperationalError, connection, transaction
from django.db.backends.utils import CursorWrapper
from psycopg.errors import QueryCanceled

from console.queries import keyset
from console.search_models import TermKind

# Three characters are the least that the index can tell apart.
PART_LENGTH_MIN: Final = 3
# A short word is alike to too much.
ALIKE_LENGTH_MIN: Final = 6
# Of the threes of characters of two words so many are the same: two wrong letters of 26, four of 40.
ALIKE_MIN: Final = 0.5
ALIKE_MAX: Final = 20
# A name so long is cut into pieces, and what is alike has one of them, but for the first, as it is: of three
# pieces one slip spares one, of four pieces two slips do. That reads short stretches of the index; everything
# that shares half of the threes takes long ones, the longer the journal the longer. The first piece is what
# most names share. Of a shorter name the pieces would be of two or three characters, which name nothing.
CUT_LENGTH_MIN: Final = 12
# From here on half of the threes survive two slips.
TWO_SLIPS_LENGTH_MIN: Final = 16
# So much of the end of a part is looked for in the index; what that finds is compared with the whole part.
# Each three of characters more reads one more stretch of the index, the longer the journal the longer, and
# the threes of so many leave next to nothing over. The end, because most names share how they begin.
LOOKED_FOR_MAX: Final = 9
PAGE_ROWS: Final = 50
# What is asked for by three letters may be half of everything. A person waits so long gladly, not longer.
LOOK_MS: Final = 400


class How(StrEnum):
    """In which way a name matches, best first."""

    BEGINS = "begins"
    CONTAINS = "contains"
    ALIKE = "alike"


@dataclass(frozen=True, kw_only=True)
class Match:
    """A name that matches, and what it names: an operation, or a run by its external id."""

    pk: int
    how: How
    kind: TermKind
    subject: str


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A page of matches, best first. `after` is the cursor of what follows, "" at the end.

    `through_at` is until when names are known by their parts; None before the first. `stopped` says that
    looking for more took too long.
    """

    matches: tuple[Match, ...] = ()
    after: str = ""
    through_at: datetime | None = None
    stopped: bool = False


# Before each statement, in the same message: how long it may take, and that the index is to be used. With
# other ways forbidden it seems so dear that a server with a compiler compiles it, longer than it may take.
_LIMITS: Final = (
    f"SET LOCAL statement_timeout = {LOOK_MS}; SET LOCAL enable_seqscan = off; SET LOCAL jit = off; "
    f"SET LOCAL pg_trgm.similarity_threshold = {ALIKE_MIN}; "
)
_BEGINS: Final = """
SELECT listed.id, listed.kind, listed.subject, progress.through_at
FROM (SELECT max(through_at) AS through_at FROM console_searchprogress) AS progress
LEFT JOIN LATERAL (
    SELECT term.* FROM unnest(%(teams)s::text[]) AS team (slug)
    CROSS JOIN LATERAL (
        SELECT id, kind, subject, term FROM console_searchterm
        WHERE team_slug = team.slug AND term LIKE lower(%(begins)s) {only} {beyond}
        ORDER BY term, id
        LIMIT %(rows)s
    ) AS term
    ORDER BY term.term, term.id
    LIMIT %(rows)s
) AS listed ON true
ORDER BY listed.term, listed.id
"""
_BEYOND_NAME: Final = """
AND (term, id) > (SELECT term, id FROM console_searchterm WHERE id = %(after)s AND team_slug = ANY(%(teams)s))
"""
# MATERIALIZED: found by its letters first, and only then put in order; not searched for in that order.
_CONTAINS: Final = """
WITH found AS MATERIALIZED (
    SELECT id, kind, subject FROM console_searchterm
    WHERE term LIKE lower(%(contains)s) AND strpos(term, lower(%(plain)s)) > 0
          AND term NOT LIKE lower(%(begins)s) AND team_slug = ANY(%(teams)s) {only} {beyond}
)
SELECT id, kind, subject, NULL FROM found ORDER BY id DESC LIMIT %(rows)s
"""
_BEYOND_NEWER: Final = "AND id < %(after)s"
_ALIKE: Final = """
WITH found AS MATERIALIZED (
    SELECT id, kind, subject, similarity(term, lower(%(plain)s)) AS much FROM console_searchterm
    WHERE {alike} AND team_slug = ANY(%(teams)s) {only}
)
SELECT id, kind, subject, NULL FROM found WHERE much >= %(alike_min)s
ORDER BY much DESC, id DESC LIMIT %(rows)s
"""
_WHOLE_ALIKE: Final = "term %% lower(%(plain)s)"
_PIECE: Final = "piece_"
_OPERATION_MARK: Final = "op_"


def find_parts(query: str, *, teams: Sequence[str], after: str = "", rows_max: int = PAGE_ROWS) -> Parts:
    """Find names of these teams by a part of them. Raises `Invalid` for a cursor that can't be read.

    Three statements at most, in a transaction of its own. A query that is too short finds nothing.
    """
    text, only = _read(query)
    stage, beyond = _place(after)
    if len(text) < PART_LENGTH_MIN or not teams:
        return Parts()
    asked: dict[str, Any] = {
        "teams": list(teams),
        "plain": text,
        "begins": f"{_escaped(text)}%",
        "contains": _contains(text),
        "alike_min": ALIKE_MIN,
        **_pieces(text),
    }
    found = Parts()
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            for how in list(How)[stage:]:
                asked["after"], beyond = beyond, 0
                asked["rows"] = rows_max + 1 - len(found.matches)
                if asked["rows"] <= 0 or (how is How.ALIKE and not _may_be_alike(text, found, after)):
                    break
                rows = _rows(cursor, _statement(how, only, asked), asked)
                if how is How.BEGINS:
                    found = Parts(through_at=rows[0][-1])
                found = replace(found, matches=found.matches + _matches(how, rows))
            # It only read; its limits end here too where it was part of another transaction.
            transaction.set_rollback(True)
    except OperationalError as error:
        if not isinstance(error.__cause__, QueryCanceled):
            raise
        found = replace(found, stopped=True)
    return _paged(found, rows_max)


def _rows(cursor: CursorWrapper, statement: str, asked: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What the statement answers, within its limits: the last result of the message."""
    cursor.execute(_LIMITS + statement.strip(), asked)
    while cursor.nextset():
        pass
    rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


def _may_be_alike(text: str, found: Parts, after: str) -> bool:
    """Whether to look for what is written alike: only where nothing has the part itself."""
    return not found.matches and not after and len(text) >= ALIKE_LENGTH_MIN


def _read(query: str) -> tuple[str, str]:
    """The part to look for, and the condition that it names an operation."""
    text = query.strip()
    if text[: len(_OPERATION_MARK)].lower() == _OPERATION_MARK:
        return text[len(_OPERATION_MARK) :], f"AND kind = '{TermKind.OPERATION}'"
    return text, ""


def _place(cursor: str) -> tuple[int, int]:
    if not cursor:
        return 0, 0
    stage, pk = keyset.unpack(cursor, int, int)
    # Only the first two are read in pages.
    return (stage, pk) if stage in (0, 1) and isinstance(pk, int) and isinstance(stage, int) else (0, 0)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _contains(text: str) -> str:
    """The pattern by which the index finds what may contain it."""
    return f"%{_escaped(text[-LOOKED_FOR_MAX:])}%"


def _pieces(text: str) -> dict[str, str]:
    """The patterns of what a long name that is alike may have as it is; none for a short one."""
    if len(text) < CUT_LENGTH_MIN:
        return {}
    pieces = 4 if len(text) >= TWO_SLIPS_LENGTH_MIN else 3
    ends = [len(text) * number // pieces for number in range(1, pieces + 1)]
    return {
        f"{_PIECE}{number}": f"%{_escaped(text[start:end])}%"
        for number, (start, end) in enumerate(pairwise(ends))
    }


def _statement(how: How, only: str, asked: Mapping[str, Any]) -> str:
    goes_on = bool(asked.get("after"))
    match how:
        case How.BEGINS:
            return _BEGINS.format(only=only, beyond=_BEYOND_NAME if goes_on else "")
        case How.CONTAINS:
            return _CONTAINS.format(only=only, beyond=_BEYOND_NEWER if goes_on else "")
        case How.ALIKE:
            pieces = [f"term LIKE lower(%({name})s)" for name in asked if name.startswith(_PIECE)]
            alike = f"({' OR '.join(pieces)})" if pieces else _WHOLE_ALIKE
            return _ALIKE.format(only=only, alike=alike)


def _matches(how: How, rows: Sequence[tuple[Any, ...]]) -> tuple[Match, ...]:
    shown = rows[:ALIKE_MAX] if how is How.ALIKE else rows
    return tuple(
        Match(pk=pk, how=how, kind=TermKind(kind), subject=subject)
        for pk, kind, subject, _ in shown
        if pk is not None  # the row that says only until when names are known
    )


def _paged(found: Parts, rows_max: int) -> Parts:
    if len(found.matches) <= rows_max:
        return found
    shown = found.matches[:rows_max]
    last = shown[-1]
    return replace(found, matches=shown, after=keyset.pack(list(How).index(last.how), last.pk))


def subjects_with(query: str, *, teams: Sequence[str], subjects_max: int) -> tuple[str, ...]:
    """Operations and runs of which a name contains this, newest first; none where it takes too long.

    One statement, in a transaction of its own.
    """
    text, only = _read(query)
    if len(text) < PART_LENGTH_MIN or not teams:
        return ()
    asked = {
        "teams": list(teams),
        "plain": text,
        "contains": _contains(text),
        "begins": "",
        "rows": subjects_max,
    }
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            rows = _rows(cursor, _statement(How.CONTAINS, only, asked), asked)
            transaction.set_rollback(True)
    except OperationalError as error:
        if not isinstance(error.__cause__, QueryCanceled):
            raise
        return ()
    return tuple(dict.fromkeys(subject for _, _, subject, _ in rows))
