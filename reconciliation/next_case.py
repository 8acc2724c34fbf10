"""The next case for a person: the most urgent one of their teams that nobody works on, claimed for them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar, Final

from django.db import transaction
from django.db.models import Exists, OuterRef

from reconciliation.models import Case
from reconciliation.snoozing import awake, is_asleep
from reconciliation.states import CaseState, TakenAs
from reconciliation.work_models import CaseClaim
from reconciliation.working import Worker, claim_of, live_claims, put_claim, require_person
from runs.locking import database_now
from runs.refusals import Refusal

# Candidates read at once: how many colleagues can take one in the same moment before the list is read anew.
CANDIDATES_MAX: Final = 20

_QUEUE: Final = ("worsens_at", "-at_risk_minor", "id")


class NothingToTake(Refusal):
    """No case of the person's teams waits for a decision without somebody at it."""

    word: ClassVar[str] = "nothing_to_take"


def next_for(*, teams: Sequence[str], worker: Worker) -> CaseClaim:
    """Claim the most urgent case of these teams that waits for a decision and that nobody works on.

    Two people who ask at once get two cases: a case that another transaction holds is passed over, unless
    there is no other. Owns its transactions. Raises `Forbidden`, `NothingToTake`.
    """
    require_person(worker)
    tried: set[str] = set()
    while wanted := _candidates(teams, tried):
        taken = _take_one(wanted, worker, tried)
        if taken is not None:
            return taken
    raise NothingToTake("No case of your teams waits for a decision without somebody at it.")


def _candidates(teams: Sequence[str], tried: Collection[str]) -> list[str]:
    """The most urgent unclaimed cases, each team's read in the order of its index."""
    now = database_now()
    claimed = Exists(live_claims(now).filter(case=OuterRef("pk")))
    waiting = Case.objects.filter(~claimed, awake(now), state=CaseState.NEEDS_DECISION).exclude(pk__in=tried)
    rows = [
        row
        for team in teams
        for row in waiting.filter(team=team)
        .order_by(*_QUEUE)
        .values_list("worsens_at", "at_risk_minor", "pk")[:CANDIDATES_MAX]
    ]
    return [pk for _, _, pk in sorted(rows, key=lambda row: (row[0], -row[1], row[2]))[:CANDIDATES_MAX]]


def _take_one(wanted: list[str], worker: Worker, tried: set[str]) -> CaseClaim | None:
    """Claim the first of these that is to be had; None if it was claimed, decided or put off while we looked.

    A transaction of its own, so that a case which we couldn't have is held no longer.
    """
    with transaction.atomic():
        waiting = Case.objects.filter(state=CaseState.NEEDS_DECISION).order_by(*_QUEUE)
        free = waiting.filter(pk__in=wanted).select_for_update(skip_locked=True, no_key=True).first()
        # All of them held by others: they may only be looked up, so wait for the most urgent.
        waited = waiting.filter(pk=wanted[0]).select_for_update(no_key=True)
        case = free if free is not None else waited.first()
        if case is None:
            tried.add(wanted[0])
            return None
        tried.add(case.pk)
        now = database_now()
        # Asked again under the lock: somebody may have claimed it or put it off since the list was read.
        if claim_of(case_id=case.pk, now=now) is not None or is_asleep(case, now):
            return None
        return put_claim(case, worker, now, taken_as=TakenAs.NEXT)
