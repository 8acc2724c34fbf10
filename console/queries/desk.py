"""Who works on a case, and who has its page open."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from reconciliation.models import Case
from reconciliation.snoozing import is_asleep
from reconciliation.states import CaseState
from reconciliation.work_models import CaseClaim, CasePresence, CaseSnooze
from reconciliation.working import claim_of, present_at


@dataclass(frozen=True, kw_only=True)
class Desk:
    """The claim that lasts, if any, and everybody who is there, the viewer among them."""

    claim: CaseClaim | None = None
    present: tuple[CasePresence, ...] = ()
    # Who put it off, while it is.
    snooze: CaseSnooze | None = None


def desk_of(case: Case, *, now: datetime) -> Desk:
    """Who is at the case now; on one that is resolved nobody works any more."""
    resolved = case.state == CaseState.RESOLVED
    return Desk(
        claim=None if resolved else claim_of(case_id=case.pk, now=now),
        present=present_at(case_id=case.pk, now=now),
        snooze=CaseSnooze.objects.filter(case=case).first() if is_asleep(case, now) else None,
    )
