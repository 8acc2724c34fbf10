"""Lists by keyset, and the wait for a run that may be claimed.

A page is one index scan however long the list is; `next` says where the following page starts. A waiting
caller holds a thread and nothing else: no transaction, no lock. Their number is bounded, and whoever comes
beyond it is answered at once, so that waiting can't keep others from reporting.
"""

from __future__ import annotations

import random
import threading
import time
from datetime import datetime
from typing import Any, TypeVar, cast

from django.conf import settings
from django.db.models import Model, Q, QuerySet
from django.db.models.functions import Now

from console.api.case_showing import case_short
from console.api.showing import run_short
from console.queries.keyset import pack, unpack
from reconciliation.models import Case
from runs.locking import database_now
from runs.models import Flow, Run
from runs.refusals import Invalid
from runs.states import RunState

M = TypeVar("M", bound=Model)

PAGE_ROWS = 50
WAIT_SECONDS_MAX = 60
# Soon enough for a person who waits for the agent to go on, and four small index scans a second at most.
POLL_SECONDS = 0.25
POLL_SECONDS_MAX = 1.0


# --- cursors --------------------------------------------------------------------------------------------


def read_cursor(text: str) -> tuple[datetime, str]:
    """Return where a page starts; raises `Invalid` for anything that we didn't write."""
    try:
        at, row_id = unpack(text, datetime, str)
    except Invalid:
        raise Invalid("after must be the `next` of an earlier page.", where="query: after") from None
    return cast(datetime, at), cast(str, row_id)


def _page(rows: list[Any], at_name: str) -> tuple[list[Any], str | None]:
    """Split off the row beyond the page, which says that there is another."""
    if len(rows) <= PAGE_ROWS:
        return rows, None
    shown = rows[:PAGE_ROWS]
    last = shown[-1]
    return shown, pack(getattr(last, at_name), last.pk)


# --- runs -----------------------------------------------------------------------------------------------


def list_runs(
    *, team: str, flow: str | None, state: str | None, external_id: str | None, after: str | None
) -> dict[str, Any]:
    """The team's runs, newest first."""
    runs = Run.objects.filter(team=team)
    if flow is not None:
        runs = runs.filter(flow__name=flow)
    if state is not None:
        runs = runs.filter(state=state)
    if external_id is not None:
        runs = runs.filter(external_id=external_id)
    if after is not None:
        at, row_id = read_cursor(after)
        runs = runs.filter(Q(created_at__lt=at) | Q(created_at=at, id__lt=row_id))
    rows = list(runs.select_related("flow", "flow_version").order_by("-created_at", "-id")[: PAGE_ROWS + 1])
    shown, following = _page(rows, "created_at")
    return {"runs": [run_short(run) for run in shown], "next": following}


def claimable_runs(*, team: str, flow: str, after: str | None, wait_seconds: int) -> dict[str, Any]:
    """The flow's open runs that nobody holds, oldest first; waits for the first one, if there is none."""
    ends_at = time.monotonic() + wait_seconds
    found = _ask_claimable(team=team, flow=flow, after=after)
    if found["runs"] or wait_seconds == 0 or not _waiters.enter():
        return found
    try:
        pause = POLL_SECONDS
        while not found["runs"] and (left := ends_at - time.monotonic()) > 0:
            time.sleep(min(left, pause * random.uniform(0.8, 1.2)))  # noqa: S311 - spreads load
            pause = min(POLL_SECONDS_MAX, pause * 1.2)
            found = _ask_claimable(team=team, flow=flow, after=after)
        return found
    finally:
        _waiters.leave()


def _ask_claimable(*, team: str, flow: str, after: str | None) -> dict[str, Any]:
    flow_id = Flow.objects.filter(team=team, name=flow).values_list("id", flat=True).first()
    if flow_id is None:
        return {"runs": [], "next": None}
    runs: QuerySet[Run] = Run.objects.filter(flow=flow_id, state=RunState.OPEN).filter(
        Q(lease_token__isnull=True) | Q(lease_expires_at__lte=Now())
    )
    if after is not None:
        at, row_id = read_cursor(after)
        runs = runs.filter(Q(created_at__gt=at) | Q(created_at=at, id__gt=row_id))
    rows = list(runs.select_related("flow", "flow_version").order_by("created_at", "id")[: PAGE_ROWS + 1])
    shown, following = _page(rows, "created_at")
    return {"runs": [run_short(run) for run in shown], "next": following}


class _Waiters:
    """How many callers are parked in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def enter(self) -> bool:
        with self._lock:
            if self.count >= settings.RECOURSE_WAITERS_MAX:
                return False
            self.count += 1
            return True

    def leave(self) -> None:
        with self._lock:
            self.count -= 1


_waiters = _Waiters()


# --- cases ----------------------------------------------------------------------------------------------


def list_cases(
    *, team: str, operation: str | None, run: str | None, state: str | None, after: str | None
) -> dict[str, Any]:
    """The team's cases, newest first."""
    cases = Case.objects.filter(team=team)
    if operation is not None:
        cases = cases.filter(operation=operation)
    if run is not None:
        cases = cases.filter(run=run)
    if state is not None:
        cases = cases.filter(state=state)
    if after is not None:
        at, row_id = read_cursor(after)
        cases = cases.filter(Q(opened_at__lt=at) | Q(opened_at=at, id__lt=row_id))
    rows = list(cases.order_by("-opened_at", "-id")[: PAGE_ROWS + 1])
    now = database_now()
    shown, following = _page(rows, "opened_at")
    return {"cases": [case_short(case, now) for case in shown], "next": following}
