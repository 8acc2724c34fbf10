"""Who works on a case, and who has its page open."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from console.queries.together import Together
from reconciliation.models import Case
from reconciliation.snoozing import is_asleep
from reconciliation.states import CaseState
from reconciliation.work_models import CaseClaim, CasePresence, CaseSnooze
from reconciliation.working import live_claims, present_at


@dataclass(frozen=True, kw_only=True)
class Desk:
    """The claim that lasts, if any, and everybody who is there, the viewer among them."""

    claim: CaseClaim | None = None
    present: tuple[CasePresence, ...] = ()
    # Who put it off, while it is.
    snooze: CaseSnooze | None = None


class DeskParts:
    """The queries of one case's desk among others that are read together."""

    def __init__(self, together: Together, case: Case, *, now: datetime) -> None:
        claims, snoozes = live_claims(now), CaseSnooze.objects.all()
        if case.state == CaseState.RESOLVED:
            # Nobody works on one that is resolved.
            claims = claims.none()
        if not is_asleep(case, now):
            snoozes = snoozes.none()
        self._claim = together.add(claims.filter(case=case.pk))
        self._present = together.add(present_at(case_id=case.pk, now=now))
        self._snooze = together.add(snoozes.filter(case=case.pk))

    def desk(self) -> Desk:
        """The desk, once they were read."""
        return Desk(claim=self._claim.first, present=self._present.rows, snooze=self._snooze.first)


def desk_of(case: Case, *, now: datetime) -> Desk:
    """Who is at the case now, in one statement."""
    together = Together()
    parts = DeskParts(together, case, now=now)
    together.read()
    return parts.desk()
