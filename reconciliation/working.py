"""Working on cases together: claim one, keep it, give it back, take it over.

A claim warns colleagues and decides nothing: whoever decides first, on the version that stands, has decided.
It lasts ten minutes and is renewed while its page is in use, so that whatever a closed browser leaves behind
ends by itself. With `assigning` the only writer of `CaseClaim`, and of `CasePresence` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

from django.db import connection, transaction
from django.db.models import QuerySet
from django.db.models.functions import Least

from reconciliation.decisions import find_case
from reconciliation.models import Case
from reconciliation.moves import append_event
from reconciliation.persons import Forbidden, Worker
from reconciliation.states import CaseState, TakenAs
from reconciliation.work_models import CaseClaim, CasePresence
from runs.actors import ActorKind
from runs.ids import could_be_id
from runs.journal.evidence import storable_text
from runs.locking import database_now
from runs.models import NAME_LENGTH
from runs.refusals import Invalid, Refusal

__all__ = [
    "CLAIM_SECONDS",
    "LEFT_SECONDS",
    "PRESENCE_KEPT_SECONDS",
    "PRESENT_MAX",
    "PRESENT_SECONDS",
    "REASON_LENGTH_MAX",
    "REASON_LENGTH_MIN",
    "UNUSED_SECONDS_MAX",
    "CaseSettled",
    "CaseTaken",
    "ClaimGone",
    "Worker",
    "be_there",
    "claim_case",
    "claim_of",
    "leave",
    "live_claims",
    "lock_open",
    "present_at",
    "put_claim",
    "release",
    "require_person",
    "take_over",
    "taken",
]

# Long enough to phone a provider, short enough that a colleague needn't ask who went home.
CLAIM_SECONDS: Final = 600
# A page that was left: another of the person's, or its own sub-page, has so long to say that it is in use.
# Longer than two of its questions, of which one may be lost.
LEFT_SECONDS: Final = 40
# A page that is open and that nobody has loaded or used for so long keeps nothing.
UNUSED_SECONDS_MAX: Final = 3_600
# Pages ask every 15 seconds: two in a row may be lost before somebody counts as gone.
PRESENT_SECONDS: Final = 50
# What is older says nothing to anybody and is deleted with the next visit.
PRESENCE_KEPT_SECONDS: Final = 3_600
# More names than this are no help to anybody.
PRESENT_MAX: Final = 20
# As for a decision: a reason that an auditor can use has a few words in it.
REASON_LENGTH_MIN: Final = 10
REASON_LENGTH_MAX: Final = 4_000


class CaseTaken(Refusal):
    """A colleague works on the case; details say who, since when and until when."""

    word: ClassVar[str] = "case_taken"


class CaseSettled(Refusal):
    """The case is resolved: there is nothing to work on."""

    word: ClassVar[str] = "case_settled"


class ClaimGone(Refusal):
    """The person's claim isn't theirs any more: it ended, or a colleague took it over."""

    word: ClassVar[str] = "claim_gone"


def live_claims(now: datetime) -> QuerySet[CaseClaim]:
    """The claims that last."""
    return CaseClaim.objects.filter(until_at__gt=now)


def claim_of(*, case_id: str, now: datetime) -> CaseClaim | None:
    """The claim that lasts on this case, if any."""
    return live_claims(now).filter(case=case_id).first()


# --- Claim, give back, take over ----------------------------------------------------------------------------


def claim_case(*, case_id: str, team: str | None, worker: Worker) -> CaseClaim:
    """Claim a case that nobody works on; one's own claim is renewed. Owns its transaction.

    Refuses in this order, having changed nothing: `NotFound`, `Forbidden`, `CaseSettled`, `CaseTaken`.
    """
    found = find_case(case_id=case_id, team=team)
    require_person(worker)
    with transaction.atomic():
        case, now = lock_open(found)
        held = claim_of(case_id=case.pk, now=now)
        if held is not None and held.actor != worker.actor.id:
            raise taken(held)
        return _renewed(held, now) if held is not None else put_claim(case, worker, now)


def take_over(*, case_id: str, team: str | None, worker: Worker, reason: str, seen_number: int) -> CaseClaim:
    """Take a colleague's claim over, and say why. Owns its transaction.

    `seen_number` is that of the claim which the person saw; a claim that has ended meanwhile is simply
    claimed. Refuses in this order, having changed nothing: `NotFound`, `Forbidden`, `Invalid`, `CaseSettled`,
    and `CaseTaken` when it is another claim by now.
    """
    found = find_case(case_id=case_id, team=team)
    require_person(worker)
    if not REASON_LENGTH_MIN <= len(reason.strip()) <= REASON_LENGTH_MAX:
        raise Invalid(
            f"Give a reason of {REASON_LENGTH_MIN} to {REASON_LENGTH_MAX:,} characters.", where="reason"
        )
    with transaction.atomic():
        case, now = lock_open(found)
        held = claim_of(case_id=case.pk, now=now)
        if held is not None and held.actor == worker.actor.id:
            return _renewed(held, now)
        if held is not None and held.number != seen_number:
            raise taken(held)
        return put_claim(case, worker, now, reason=storable_text(reason.strip()), instead_of=held)


def release(*, case_id: str, team: str | None, worker: Worker) -> None:
    """Give one's claim back. Owns its transaction. Raises `NotFound`, `ClaimGone`."""
    found = find_case(case_id=case_id, team=team)
    with transaction.atomic():
        case = Case.objects.select_for_update(no_key=True).get(pk=found.pk)
        now = database_now()
        held = claim_of(case_id=case.pk, now=now)
        if held is None or held.actor != worker.actor.id:
            raise _gone(held)
        CaseClaim.objects.filter(pk=held.pk).update(until_at=now)
        append_event(case, worker.actor, "case.claim_released", after={"number": held.number})


def leave(*, case_id: str, worker: Worker) -> None:
    """The person's page of the case was left: a claim that was simply the next one ends in a moment.

    Unless a page of theirs says before that it is in use (`be_there`): so it outlives a reload, the case's
    own sub-pages and a second window. A claim of another kind, or another person's, stays as it is.
    """
    now = database_now()
    own = live_claims(now).filter(case=case_id, actor=worker.actor.id, taken_as=TakenAs.NEXT)
    own.update(until_at=Least("until_at", now + timedelta(seconds=LEFT_SECONDS)))


def require_person(worker: Worker) -> None:
    """Raise `Forbidden` for anybody else."""
    if worker.actor.kind is not ActorKind.PERSON:
        raise Forbidden("Only a person works on a case.", actor=str(worker.actor.kind))


def lock_open(found: Case) -> tuple[Case, datetime]:
    """Hold the case: every change of hands does, so that of two one comes first. Raises `CaseSettled`."""
    case = Case.objects.select_for_update(no_key=True).get(pk=found.pk)
    if case.state == CaseState.RESOLVED:
        raise CaseSettled("This case is resolved: there is nothing left to work on.", case=case.pk)
    return case, database_now()


def _renewed(held: CaseClaim, now: datetime) -> CaseClaim:
    held.used_at = now
    held.until_at = max(held.until_at, now + timedelta(seconds=CLAIM_SECONDS))
    held.save(update_fields=["used_at", "until_at"])
    return held


def put_claim(
    case: Case,
    worker: Worker,
    now: datetime,
    *,
    reason: str = "",
    instead_of: CaseClaim | None = None,
    taken_as: TakenAs = TakenAs.CHOSEN,
) -> CaseClaim:
    """Make the claim this person's. Needs the case's lock."""
    before = CaseClaim.objects.filter(case=case).values_list("number", flat=True).first()
    fields: dict[str, Any] = {
        "number": (before or 0) + 1,
        "actor": worker.actor.id,
        "actor_name": storable_text(worker.name)[:NAME_LENGTH],
        "given_by": "",
        "taken_as": taken_as,
        "claimed_at": now,
        "used_at": now,
        "until_at": now + timedelta(seconds=CLAIM_SECONDS),
    }
    made, _ = CaseClaim.objects.update_or_create(case=case, defaults=fields)
    action = "case.claim_taken_over" if instead_of is not None else "case.claimed"
    append_event(
        case,
        worker.actor,
        action,
        before={"claimed_by": instead_of.actor} if instead_of is not None else {},
        after={"number": made.number, "until": made.until_at.isoformat()},
        reason=reason,
    )
    return made


def taken(held: CaseClaim) -> CaseTaken:
    """The refusal that names whoever has the case."""
    return CaseTaken(
        f"{held.actor_name or held.actor} works on this case.",
        case=held.case_id,
        by=held.actor_name or held.actor,
        number=held.number,
        since=held.claimed_at.isoformat(),
        until=held.until_at.isoformat(),
    )


def _gone(held: CaseClaim | None) -> ClaimGone:
    if held is None:
        return ClaimGone("Your claim on this case had ended already. Nothing else was changed.")
    name = held.actor_name or held.actor
    return ClaimGone(f"This claim isn’t yours any more: {name} works on the case now.", by=name)


# --- Who is there -------------------------------------------------------------------------------------------


# One after the other, by what each reads of the one before: of two who come at once, each has its own row
# before it takes out another's, and passes over one that is held, so neither waits for the other in a circle.
# The claim is asked for by its actor in the update itself: somebody may take it over in that moment.
_BE_THERE: Final = """
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now FROM reconciliation_case WHERE id = %(case)s AND team_id = ANY(%(teams)s)
), kept AS (
    UPDATE reconciliation_caseclaim AS claim SET
        used_at = CASE WHEN %(used)s THEN greatest(claim.used_at, clock.now) ELSE claim.used_at END,
        until_at = greatest(claim.until_at, least(
            clock.now + %(claim)s,
            CASE WHEN %(used)s THEN clock.now ELSE claim.used_at END + %(unused)s
        ))
    FROM clock
    WHERE claim.case_id = %(case)s AND claim.actor = %(actor)s AND claim.until_at > clock.now
    RETURNING claim.case_id
), here AS (
    INSERT INTO reconciliation_casepresence (case_id, actor, actor_name, seen_at)
    SELECT %(case)s, %(actor)s, %(name)s, clock.now FROM clock WHERE (SELECT count(*) FROM kept) >= 0
    ON CONFLICT (case_id, actor) DO UPDATE SET actor_name = EXCLUDED.actor_name, seen_at = EXCLUDED.seen_at
    RETURNING seen_at
)
DELETE FROM reconciliation_casepresence WHERE %(used)s AND id IN (
    SELECT id FROM reconciliation_casepresence
    WHERE case_id = %(case)s AND actor <> %(actor)s AND seen_at < (SELECT seen_at FROM here) - %(past)s
    FOR UPDATE SKIP LOCKED
)
"""


def be_there(*, case_id: str, teams: Sequence[str], worker: Worker, used: bool) -> None:
    """The person's page of the case was loaded (`used`) or is still open: seen there, their claim kept.

    One statement; nothing at all for a case of another team. A page that merely stays open keeps the claim
    for at most `UNUSED_SECONDS_MAX` after it was used, and one that has ended stays so. What is long past of
    others is deleted, so that the table stays as small as the number of people.
    """
    if not could_be_id(case_id):
        return
    asked: dict[str, Any] = {
        "case": case_id,
        "teams": list(teams),
        "actor": worker.actor.id,
        "name": storable_text(worker.name)[:NAME_LENGTH],
        "used": used,
        "claim": timedelta(seconds=CLAIM_SECONDS),
        "unused": timedelta(seconds=UNUSED_SECONDS_MAX),
        "past": timedelta(seconds=PRESENCE_KEPT_SECONDS),
    }
    with connection.cursor() as cursor:
        cursor.execute(_BE_THERE, asked)


def present_at(*, case_id: str, now: datetime) -> QuerySet[CasePresence]:
    """Who has the page of the case open, by name."""
    since = now - timedelta(seconds=PRESENT_SECONDS)
    rows = CasePresence.objects.filter(case=case_id, seen_at__gt=since).order_by("actor_name", "actor")
    return rows[:PRESENT_MAX]
