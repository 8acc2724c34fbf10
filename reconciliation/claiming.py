"""Who looks a case up: one worker at a time, by a claim on the case's row with a number and an end.

The row is locked first and the clock read after it (DESIGN law 7), so two workers never ask about one case at
once: the second is told whose number it met. A claim that ends without an answer is taken over by the next
number, and an answer that comes under an older one is evidence and no more.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog
from django.db import transaction
from django.db.models import Q, QuerySet

from reconciliation import admission, moves
from reconciliation.accounts import account_of, is_declared
from reconciliation.admission import Admitted, Held
from reconciliation.contracts import ProviderAccount
from reconciliation.models import Case
from reconciliation.providers.base import Question
from reconciliation.states import CaseState, Need
from runs.locking import database_now, lock_operation
from runs.models import Operation

log = structlog.get_logger(__name__)

# Longer than any lookup's own time limits and the worker's, so that a claim outlives its lookup unless the
# worker died.
CLAIM_SECONDS = 90
# A case whose lookups take their worker with them, so often in a row, is parked: the next would go too.
LOST_MAX = 3


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A claimed case and the question to put; plain values, so that no row is held while we wait.

    `admitted` is the slot at the provider; None where nobody will be asked (no lookup, not configured), which
    needs none.
    """

    case_id: str
    run_id: str
    claim: str
    version: int
    provider: str
    question: Question
    admitted: Admitted | None = None


@dataclass(frozen=True, kw_only=True)
class NotDue:
    """Nothing to look up: settled, not planned, or due later."""

    due_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Taken:
    """Another worker is at it, under this number, until then at the latest."""

    number: int
    until_at: datetime


@dataclass(frozen=True, kw_only=True)
class Lost:
    """It was begun too often without ever coming back; it has to be parked."""

    case_id: str


Begun = Asked | NotDue | Taken | Lost | Held


def due(*, now: datetime) -> QuerySet[Case]:
    """The cases whose lookup is due and isn't being made."""
    return (
        Case.objects.filter(next_lookup_at__lte=now)
        .exclude(state=CaseState.RESOLVED)
        .filter(Q(lookup_claim="") | Q(lookup_claimed_until_at__lte=now))
    )


def begin(*, case_id: str) -> Begun:
    """Claim this case, with a slot at its provider; or say what keeps it from being looked up now."""
    with transaction.atomic():
        case = _held(Case.objects.filter(pk=case_id)).first()
        begun = NotDue() if case is None else _begin(case)
    return _with_question(begun)


def begin_oldest(*, slug: str) -> Begun:
    """Claim the account's case that has been due longest, passing over those that somebody holds."""
    with transaction.atomic():
        waiting = due(now=database_now()).filter(provider_slug=slug).order_by("next_lookup_at", "id")
        case = _held(waiting, skip_locked=True).first()
        begun = NotDue() if case is None else _begin(case)
    return _with_question(begun)


def claim_due(*, case_id: str) -> Asked | None:
    """Claim this case without asking for a slot; None if it isn't due or somebody is at it."""
    with transaction.atomic():
        case = _held(Case.objects.filter(pk=case_id)).first()
        claimed = NotDue() if case is None else _claimable(case, database_now())
        if case is not None and isinstance(claimed, _Claim):
            _keep(case, claimed)
    begun = _with_question(claimed)
    return begun if isinstance(begun, Asked) else None


def _held(cases_wanted: QuerySet[Case], *, skip_locked: bool = False) -> QuerySet[Case]:
    """Lock the cases, and read their operations, which don't change in what a question is made of."""
    return cases_wanted.select_related("operation").select_for_update(of=("self",), skip_locked=skip_locked)


@dataclass(frozen=True, kw_only=True)
class _Claim:
    """A claim that is on record, or about to be; the question is put together once it is committed."""

    case: Case
    number: int
    claim: str
    now: datetime
    lost_count: int
    admitted: Admitted | None = None


def _claimable(case: Case, now: datetime) -> _Claim | NotDue | Taken | Lost:
    if case.state == CaseState.RESOLVED or case.next_lookup_at is None or case.next_lookup_at > now:
        return NotDue(due_at=None if case.state == CaseState.RESOLVED else case.next_lookup_at)
    if case.lookup_claim and case.lookup_claimed_until_at and case.lookup_claimed_until_at > now:
        return Taken(number=case.lookup_claim_number, until_at=case.lookup_claimed_until_at)
    lost_count = case.lookups_lost_count + 1 if case.lookup_claim else 0
    if lost_count >= LOST_MAX:
        return Lost(case_id=case.pk)
    number = case.lookup_claim_number + 1
    return _Claim(
        case=case,
        number=number,
        claim=f"{number}-{secrets.token_hex(8)}",
        now=now,
        lost_count=lost_count,
    )


def _begin(case: Case) -> _Claim | NotDue | Taken | Lost | Held:
    claim = _claimable(case, database_now())
    if not isinstance(claim, _Claim):
        return claim
    account = account_of(case.provider_slug)
    admitted = None
    if _can_be_asked(account):
        answer = admission.admit(
            slug=account.slug,
            contract=account.contract,
            case_id=case.pk,
            claim=claim.claim,
            claim_within=timedelta(seconds=CLAIM_SECONDS),
        )
        if not isinstance(answer, Admitted):
            return answer
        admitted = answer
    _keep(case, claim)
    return replace(claim, admitted=admitted)


def _can_be_asked(account: ProviderAccount) -> bool:
    """Whether a request will go out; without one there is nothing to limit."""
    return is_declared(account) and account.configured and account.contract.has_lookup


def _keep(case: Case, claim: _Claim) -> None:
    case.lookup_claim, case.lookup_claim_number = claim.claim, claim.number
    case.lookup_claimed_until_at = claim.now + timedelta(seconds=CLAIM_SECONDS)
    case.lookups_lost_count = claim.lost_count
    case.save(
        update_fields=["lookup_claim", "lookup_claim_number", "lookup_claimed_until_at", "lookups_lost_count"]
    )


def _with_question(begun: _Claim | NotDue | Taken | Lost | Held) -> Begun:
    """Put the question together, after the claim is committed: what fails here can't block its account."""
    if not isinstance(begun, _Claim):
        return begun
    case = begun.case
    return Asked(
        case_id=case.pk,
        run_id=case.run_id,
        claim=begun.claim,
        version=case.version,
        provider=case.operation.provider_id,
        # Where it waits for its slot, it is put then and not before.
        question=question_of(case.operation, begun.admitted.start_at if begun.admitted else begun.now),
        admitted=begun.admitted,
    )


def question_of(operation: Operation, asked_at: datetime) -> Question:
    """What a provider is asked about an operation of the journal."""
    return Question(
        operation_id=operation.pk,
        idempotency_key=operation.key,
        tool=operation.tool,
        payload=json.loads(bytes(operation.payload)),
        amount=operation.amount,
        first_sent_at=operation.first_sent_at or asked_at,
        last_quiet_at=operation.last_quiet_at,
        asked_at=asked_at,
    )


def give_back(asked: Asked) -> None:
    """End a claim under which nobody was asked; the case stays due."""
    Case.objects.filter(pk=asked.case_id, lookup_claim=asked.claim).update(
        lookup_claim="", lookup_claimed_until_at=None
    )


def park_lost(*, case_id: str) -> bool:
    """Hand a case to a person whose lookups never come back. True unless it has moved meanwhile.

    It isn't looked up by itself any more: a person may ask for it, and one more loss parks it again.
    """
    operation_id = Case.objects.values_list("operation_id", flat=True).get(pk=case_id)
    with transaction.atomic():
        locked = lock_operation(operation_id=operation_id, team=None)
        case = Case.objects.select_for_update().get(pk=case_id)
        if not isinstance(_claimable(case, locked.now), Lost):
            return False
        why = f"Its lookup was begun {LOST_MAX} times and never came back: each may have ended its worker."
        case.lookup_claim, case.lookup_claimed_until_at = "", None
        case.lookups_lost_count = LOST_MAX - 1
        moves.hand_to_person(locked, case, Need.PARKED, why=why)
        case.next_lookup_at = None
        case.save()
        log.error("lookup_lost", case=case.pk, operation=operation_id, times=LOST_MAX)
        return True
