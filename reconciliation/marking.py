"""What the lost time may have sent: marked, so that it is looked up before anything of it is sent again.

After a restore the journal says of operations that they were never sent, or what became of them as far as it
was known at the backup. Somebody whom it has forgotten may have sent them since, or sent them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from reconciliation import cases, moves, place
from reconciliation.accounts import account_of
from reconciliation.gate_models import SweepFailure
from reconciliation.models import Case
from reconciliation.place import COMES_BACK
from reconciliation.states import CaseKind, CaseState
from runs.actors import Actor, ActorKind
from runs.journal.freezing import FORGOTTEN_SENDER, mark_perhaps_sent
from runs.journal.settling import MoveRefused
from runs.locking import database_now, lock_operation
from runs.models import AccountReturn, Attempt, Freeze, Grant, Operation, ProviderAccount, Run, Team
from runs.states import RUN_ENDED, AttemptOutcome, GrantState, OperationState, RunState

RESTORER = Actor(ActorKind.SYSTEM, "restore")
PERHAPS_SENT = "The journal was restored from a backup: a sender whom it has forgotten may have sent this."
PERHAPS_REPEATED = (
    "The journal was restored from a backup: it has forgotten what was found out and decided since, and"
    " whether a repeat was sent. It is looked up anew."
)
# Runs or cases whose operations are asked for at once.
ROWS_AT_ONCE = 500
_OPEN_CASES = tuple(state for state in CaseState if state is not CaseState.RESOLVED)
_GOING_ON = tuple(state for state in RunState if state not in RUN_ENDED)


def perhaps_sent(failing: QuerySet[SweepFailure, str], *, limit: int) -> list[str]:
    """Operations that the lost time may have sent, and that don't count as that yet; without those that
    failed lately.
    """
    freeze = place.open_freeze()
    if freeze is None or freeze.answer not in COMES_BACK:
        return []
    waiting = AccountReturn.objects.filter(freeze=freeze, marked_at__isnull=True)
    slugs = frozenset(waiting.values_list("account_id", flat=True))
    failed = list(failing)
    found: list[str] = []
    for some in _unmarked(freeze, slugs) if slugs else ():
        found += some.exclude(pk__in=failed).values_list("pk", flat=True)
        if len(found) >= limit:
            break
    return sorted(set(found))[:limit]


def _unmarked(freeze: Freeze, slugs: frozenset[str]) -> Iterator[QuerySet[Operation]]:
    """Operations that were ready at the answer, or are in doubt, and have no attempt of the forgotten.

    Ready ones are only in runs that go on, those in doubt have an open case or an open grant: each is found
    by an index of those, some at a time. No index finds operations by their state, for every send would pay
    for it.
    """
    unsent = Operation.objects.filter(
        state=OperationState.READY, created_at__lte=freeze.answered_at, provider__in=slugs
    )
    doubted = Operation.objects.filter(
        state=OperationState.SENT_UNKNOWN,
        in_doubt_since_at__isnull=False,
        first_sent_at__lte=freeze.answered_at,
        provider__in=slugs,
    )
    # What was decided of these, and found out, may have been acted on in the lost time.
    doubted = doubted.exclude(Exists(_forgotten_attempts(freeze).filter(operation=OuterRef("pk"))))
    grants = Grant.objects.filter(state=GrantState.OPEN, made_at__lte=freeze.answered_at)
    for some in _batches(grants, at="made_at", of="operation_id"):
        yield doubted.filter(pk__in=some)
    for team in Team.objects.order_by("slug").values_list("slug", flat=True):
        for case_state in _OPEN_CASES:
            cases_here = Case.objects.filter(team=team, state=case_state, kind=CaseKind.UNKNOWN)
            for some in _batches(cases_here, at="opened_at", of="operation_id"):
                yield doubted.filter(pk__in=some)
        for run_state in _GOING_ON:
            runs = Run.objects.filter(team=team, state=run_state, created_at__lte=freeze.answered_at)
            for some in _batches(runs, at="created_at", of="id"):
                yield unsent.filter(run__in=some)


def _batches(rows: QuerySet[Any], *, at: str, of: str) -> Iterator[list[str]]:
    """What stands in `of` of each row, the newest by `at` first, as the index has them."""
    page = rows.order_by(f"-{at}", "-id").values_list("id", at, of)
    after: Q | None = None
    while True:
        found = list((page if after is None else page.filter(after))[:ROWS_AT_ONCE])
        if found:
            yield [of_it for _, _, of_it in found]
        if len(found) < ROWS_AT_ONCE:
            return
        last_id, last_at, _ = found[-1]
        after = Q(**{f"{at}__lt": last_at}) | Q(**{at: last_at}, id__lt=last_id)


def _forgotten_attempts(freeze: Freeze) -> QuerySet[Attempt]:
    return Attempt.objects.filter(worker=FORGOTTEN_SENDER, ended_at__gte=freeze.found_at)


def mark(*, operation_id: str) -> bool:
    """Let one operation count as perhaps sent, with a case that is looked up. Owns its transaction.

    One that was in doubt before the backup is asked about anew: what is on record of it may be older than a
    repeat that was decided, granted and sent in the lost time.
    """
    with transaction.atomic():
        locked = lock_operation(operation_id=operation_id, team=None)
        operation = locked.operation
        freeze = place.open_freeze()
        if freeze is None or freeze.answer not in COMES_BACK:
            return False
        if _forgotten_attempts(freeze).filter(operation=operation).exists():
            return False
        begun = operation.first_sent_at or operation.created_at
        why = PERHAPS_SENT if operation.state == OperationState.READY else PERHAPS_REPEATED
        try:
            mark_perhaps_sent(
                locked,
                since_at=max(begun, freeze.backup_taken_at or begun),
                actor=RESTORER,
                reason=f"{why} ({freeze.pk})",
            )
        except MoveRefused:
            return False
        case = cases.open_case(locked, kind=CaseKind.UNKNOWN, because=why)
        if why == PERHAPS_REPEATED and case.kind == CaseKind.UNKNOWN:
            has_lookup = account_of(operation.provider_id).contract.has_lookup
            moves.back_to_looking_up(locked, case, why=why, has_lookup=has_lookup)
        cases.judge(locked, case)
        here = AccountReturn.objects.filter(freeze=freeze, account=operation.provider_id)
        here.update(marked_count=F("marked_count") + 1)
        return True


def note_marked() -> None:
    """Note the accounts where everything that the lost time may have sent counts as that."""
    freeze = place.open_freeze()
    if freeze is None or freeze.answer not in COMES_BACK:
        return
    now = database_now()
    # An account that was declared since the answer comes back as the others do.
    since = ProviderAccount.objects.exclude(pk__in=freeze.returns.values("account"))
    AccountReturn.objects.bulk_create(
        [
            AccountReturn(freeze=freeze, account_id=slug, listing_not_before_at=now)
            for slug in since.values_list("slug", flat=True)
        ],
        ignore_conflicts=True,
    )
    waiting = AccountReturn.objects.filter(freeze=freeze, marked_at__isnull=True)
    slugs = frozenset(waiting.values_list("account_id", flat=True))
    done = slugs - _with_more(freeze, slugs) if slugs else slugs
    waiting.filter(account_id__in=done).update(marked_at=database_now())


def _with_more(freeze: Freeze, slugs: frozenset[str]) -> set[str]:
    """Those of the accounts where something is still to be marked, or may be once its sender is given up."""
    more = set(unreported_at(slugs).values_list("operation__provider_id", flat=True))
    for some in _unmarked(freeze, slugs):
        if more >= slugs:
            break
        more.update(some.values_list("provider_id", flat=True).distinct())
    return more


def unreported_at(slugs: Iterable[str]) -> QuerySet[Attempt]:
    """Attempts whose senders haven't said what came of them, and nobody has given them up yet."""
    return Attempt.objects.filter(
        outcome=AttemptOutcome.OPEN,
        operation__provider__in=slugs,
        operation__state=OperationState.SENT_UNKNOWN,
        operation__in_doubt_since_at__isnull=True,
    )
