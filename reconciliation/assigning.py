"""Giving a case to somebody: a claim that is theirs before they have opened it.

Like every claim it warns and decides nothing. It lasts a working day instead of ten minutes, for whoever gets
it may not be there yet; from then on it is kept, given back and taken over like one of their own.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from django.db import transaction

from reconciliation.decisions import find_case
from reconciliation.models import Case
from reconciliation.moves import append_event
from reconciliation.states import TakenAs
from reconciliation.work_models import CaseClaim
from reconciliation.working import Worker, claim_of, lock_open, require_person, taken
from runs.journal.evidence import storable_text
from runs.models import NAME_LENGTH

# A shift: what nobody has looked at by then waits for everybody again.
ASSIGNED_SECONDS: Final = 8 * 3_600


def assign_case(*, case_id: str, team: str | None, worker: Worker, assignee: Worker) -> CaseClaim:
    """Give a case to somebody, oneself included. Owns its transaction.

    What they have already is theirs for longer, and one's own claim is handed over. Refuses in this order,
    having changed nothing: `NotFound`, `Forbidden`, `CaseSettled`, `CaseTaken` if a third person works on it.
    """
    found = find_case(case_id=case_id, team=team)
    require_person(worker)
    require_person(assignee)
    with transaction.atomic():
        case, now = lock_open(found)
        held = claim_of(case_id=case.pk, now=now)
        if held is not None and held.actor not in (worker.actor.id, assignee.actor.id):
            raise taken(held)
        until_at = now + timedelta(seconds=ASSIGNED_SECONDS)
        if held is not None and held.actor == assignee.actor.id:
            # Given now, whatever it was before: leaving its page doesn't give it back any more.
            held.until_at, held.taken_as = max(held.until_at, until_at), TakenAs.CHOSEN
            held.save(update_fields=["until_at", "taken_as"])
            _append(case, worker, held)
            return held
        number = CaseClaim.objects.filter(case=case).values_list("number", flat=True).first() or 0
        fields: dict[str, Any] = {
            "number": number + 1,
            "actor": assignee.actor.id,
            "actor_name": storable_text(assignee.name)[:NAME_LENGTH],
            "taken_as": TakenAs.CHOSEN,
            "given_by": "" if worker.actor.id == assignee.actor.id else _name(worker),
            "claimed_at": now,
            "used_at": now,
            "until_at": until_at,
        }
        made, _ = CaseClaim.objects.update_or_create(case=case, defaults=fields)
        _append(case, worker, made, before=held)
    return made


def _append(case: Case, worker: Worker, given: CaseClaim, *, before: CaseClaim | None = None) -> None:
    append_event(
        case,
        worker.actor,
        "case.assigned",
        before={"claimed_by": before.actor} if before is not None else {},
        after={"to": given.actor, "number": given.number, "until": given.until_at.isoformat()},
    )


def _name(worker: Worker) -> str:
    return storable_text(worker.name or worker.actor.id)[:NAME_LENGTH]
