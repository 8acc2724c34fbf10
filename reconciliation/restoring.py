"""The way back after a freeze: what an administrator says, what may have been sent, and what was forgotten.

In this order, and each step can be repeated: somebody says which database this is; every operation that was
ready counts as perhaps sent and is looked up like any other unknown outcome; the time since the backup is
listed at the providers; and an account sends again once everything there is settled, or when an administrator
opens it knowing what isn't. `place` freezes, the sweeper calls the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar

from django.db import connection, transaction

from reconciliation import place
from reconciliation.marking import RESTORER, unreported_at
from reconciliation.models import Case
from reconciliation.place import COMES_BACK
from reconciliation.states import CaseState
from runs import account_access, audit
from runs.actors import Actor
from runs.ids import new_id
from runs.journal.evidence import storable_text
from runs.locking import database_now
from runs.models import (
    AccountReturn,
    Environment,
    Freeze,
    ProviderAccount,
    Team,
)
from runs.refusals import Invalid, Refusal
from runs.states import (
    FreezeAnswer,
    ListingState,
    Sending,
)

REASON_LENGTH_MIN, REASON_LENGTH_MAX = 10, 2_000
# What an earlier time means is a slip, and before the year 1 there is none to ask a provider for.
EARLIEST_AT = datetime(2000, 1, 1, tzinfo=UTC)


class NothingFrozen(Refusal):
    """Sending isn't frozen, so there is nothing to say about it."""

    word: ClassVar[str] = "not_frozen"


class NotReconciled(Refusal):
    """The account can't send again yet; `reasons` say what is still to be found out."""

    word: ClassVar[str] = "not_reconciled"


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far an account is: what keeps everyone from opening it, and what only people may overlook."""

    account: str
    blocked_by: tuple[str, ...]
    left_to_people: tuple[str, ...]

    @property
    def settled(self) -> bool:
        return not self.blocked_by and not self.left_to_people


def declare_restored(*, because: str, actor: Actor) -> Freeze:
    """Freeze because somebody says so, where nothing here could tell. Owns its transaction."""
    with transaction.atomic():
        return place.freeze(because=because, actor=actor)


def answer_freeze(
    *,
    freeze_id: str,
    answer: FreezeAnswer,
    backup_taken_at: datetime | None,
    actor: Actor,
    actor_name: str,
    reason: str,
) -> Freeze:
    """Say which database this is. Raises `NothingFrozen`, or `Invalid` with the field in `where`.

    A copy stays frozen, and may be given an environment of its own later. The production, and a copy with its
    own environment, go on to be looked up. An answer may be changed until sending is open everywhere; what
    was looked up meanwhile stands. Owns its transaction.
    """
    if not REASON_LENGTH_MIN <= len(reason.strip()) <= REASON_LENGTH_MAX or storable_text(reason) != reason:
        raise Invalid(f"Say why, in {REASON_LENGTH_MIN} to {REASON_LENGTH_MAX} characters.", where="reason")
    seen = place.read_fingerprint()
    with transaction.atomic():
        # The environment first, as `place.check_place` does, so that neither waits for the other for ever.
        Environment.objects.select_for_update().first()
        freeze = Freeze.objects.select_for_update().filter(pk=freeze_id, ended_at__isnull=True).first()
        if freeze is None:
            raise NothingFrozen("Sending isn't frozen by that any more; nothing was changed.")
        now = database_now()
        _check_answer(answer, backup_taken_at, now)
        before = {"answer": str(freeze.answer)}
        freeze.answer, freeze.answered_at, freeze.reason = answer, now, reason.strip()
        freeze.backup_taken_at = backup_taken_at if answer == FreezeAnswer.PRODUCTION else None
        freeze.answered_by, freeze.answered_by_name = actor.id, actor_name
        freeze.save()
        ProviderAccount.objects.update(sending=Sending.FROZEN)
        AccountReturn.objects.filter(freeze=freeze).update(opened_at=None, opened_by="")
        after = {"answer": str(answer), "environment": _go_back(freeze, answer, seen, now)}
        if freeze.backup_taken_at is not None:
            after["backup_taken_at"] = freeze.backup_taken_at.isoformat()
        audit.append(
            audit.Event(
                action="sending.freeze_answered",
                actor=actor,
                subject=freeze.pk,
                before=before,
                after=after,
                reason=freeze.reason,
            )
        )
        return freeze


def _check_answer(answer: FreezeAnswer, backup_taken_at: datetime | None, now: datetime) -> None:
    if answer == FreezeAnswer.AWAITED:
        raise Invalid("Say which database this is.", where="answer")
    if answer != FreezeAnswer.PRODUCTION:
        return
    if backup_taken_at is None:
        raise Invalid(
            "Say when the backup was taken: what happened since then is looked for.", where="backup_taken_at"
        )
    if backup_taken_at < EARLIEST_AT:
        raise Invalid("No backup of this is that old.", where="backup_taken_at")
    if backup_taken_at > now:
        raise Invalid("The backup can't have been taken in the future.", where="backup_taken_at")


def _go_back(freeze: Freeze, answer: FreezeAnswer, seen: place.Fingerprint, now: datetime) -> str:
    """Take in where we are now, and begin each account's way back; the environment's id."""
    environment = Environment.objects.select_for_update().get()
    if answer in COMES_BACK:
        for name, value in vars(seen).items():
            setattr(environment, name, value)
        if answer == FreezeAnswer.OWN_ENVIRONMENT:
            environment.id_text = new_id("env")
        environment.save()
        # Another environment has forgotten nothing of its own: there is nothing to list.
        own = answer == FreezeAnswer.OWN_ENVIRONMENT
        listing = ListingState.DONE if own else ListingState.DUE
        for slug in ProviderAccount.objects.values_list("slug", flat=True):
            AccountReturn.objects.update_or_create(
                freeze=freeze,
                account_id=slug,
                defaults={
                    "marked_at": None,
                    "listing": listing,
                    "listing_note": "",
                    "listed_at": None,
                    "listing_failures_count": 0,
                    "listing_not_before_at": now,
                },
            )
    return environment.id_text


# --- sending again ------------------------------------------------------------------------------------------


def progress_of(one: AccountReturn) -> Progress:
    """What still stands between an account and sending again."""
    slug, freeze = one.account_id, one.freeze
    if freeze.answer not in COMES_BACK:
        return Progress(
            account=slug,
            blocked_by=("Nobody has said that this database is the one that sends.",),
            left_to_people=(),
        )
    blocked, left = [], []
    if one.marked_at is None:
        blocked.append("What was ready and may have been sent is still being collected.")
    teams = list(Team.objects.values_list("slug", flat=True))
    here = Case.objects.filter(team__in=teams, provider_slug=slug)
    looking = here.filter(state=CaseState.LOOKING_UP).count()
    if looking:
        blocked.append(f"Unknown outcomes still being looked up: {looking}.")
    # By their open attempts, of which there are few: no index finds operations by their state.
    unreported = unreported_at([slug]).values("operation").distinct().count()
    if unreported:
        blocked.append(f"Sent, and not reported by their senders yet: {unreported}.")
    waiting = here.exclude(state__in=[CaseState.LOOKING_UP, CaseState.RESOLVED]).count()
    if waiting:
        left.append(f"Looked up and still unknown, in cases that wait for people: {waiting}.")
    if one.listing == ListingState.DUE:
        said = f" {one.listing_note}" if one.listing_note else ""
        listing = f"What was made here since the backup isn't listed yet.{said}"
        # With a reason people may go on without it: it failed, or isn't asked for hours.
        (left if one.listing_note else blocked).append(listing)
    elif one.listing == ListingState.NOT_OFFERED:
        said = f" {one.listing_note}" if one.listing_note else ""
        left.append(
            f"This account can't be asked what was made since the backup: only people can look there.{said}"
        )
    elif one.listing_note:
        left.append(f"Its list was read to the end, and leaves out: {one.listing_note}")
    if freeze.answer == FreezeAnswer.OWN_ENVIRONMENT:
        left.append("This environment is new: an administrator says which accounts are its own.")
    return Progress(account=slug, blocked_by=tuple(blocked), left_to_people=tuple(left))


def open_settled() -> int:
    """Open every account where nothing is left to find out or to decide; how many."""
    freeze = place.open_freeze()
    if freeze is None or freeze.answer not in COMES_BACK:
        return 0
    opened = 0
    for one in AccountReturn.objects.filter(freeze=freeze, opened_at__isnull=True).select_related("freeze"):
        if progress_of(one).settled:
            try:
                open_account(account=one.account_id, actor=RESTORER, reason="Everything is settled.")
            except (NotReconciled, NothingFrozen):
                continue
            opened += 1
    return opened


def open_account(*, account: str, actor: Actor, reason: str, teams: Sequence[str] | None = None) -> None:
    """Let an account send again. Raises `NothingFrozen`, or `NotReconciled` while something is looked up.

    To somebody of these `teams` an account of others isn't there (`AccountNotFound`); None asks for no team.

    What stays unknown stays so: each such operation waits for its own decision. Who opens knows that, and for
    the restorer itself it isn't allowed. Owns its transaction.
    """
    if teams is not None and not account_access.open_to(teams).filter(pk=account).exists():
        raise account_access.not_there(account)
    with transaction.atomic():
        freeze = Freeze.objects.select_for_update().filter(ended_at__isnull=True).first()
        one = AccountReturn.objects.select_for_update().filter(
            freeze=freeze, account=account, opened_at__isnull=True
        )
        found = one.select_related("freeze").first() if freeze is not None else None
        if freeze is None or found is None:
            raise NothingFrozen(
                f"Sending isn't frozen at {account}, or nobody has said which database it is."
            )
        progress = progress_of(found)
        reasons = [*progress.blocked_by, *(progress.left_to_people if actor == RESTORER else ())]
        if reasons:
            raise NotReconciled(
                f"Sending stays frozen at {account}. {' '.join(reasons)}", account=account, reasons=reasons
            )
        now = database_now()
        AccountReturn.objects.filter(pk=found.pk).update(opened_at=now, opened_by=actor.id)
        environment = Environment.objects.get()
        place.bind(account, environment=environment.id_text, now=now, by=actor.id)
        ProviderAccount.objects.filter(pk=account).update(sending=Sending.OPEN)
        audit.append(
            audit.Event(
                action="sending.opened",
                actor=actor,
                subject=account,
                after={"freeze": freeze.pk, "left": list(progress.left_to_people)},
                reason=reason,
            )
        )
        if not AccountReturn.objects.filter(freeze=freeze, opened_at__isnull=True).exists():
            Freeze.objects.filter(pk=freeze.pk).update(ended_at=now)
            audit.append(audit.Event(action="sending.freeze_ended", actor=actor, subject=freeze.pk))


# --- effects that the journal has forgotten -----------------------------------------------------------------

_LINK = """
UPDATE runs_orphan orphan SET state = 'linked', operation_id = o.id, linked_at = clock_timestamp()
FROM runs_operation o
WHERE orphan.state = 'open' AND orphan.key <> '' AND o.key = orphan.key AND o.provider_id = orphan.account_id
RETURNING orphan.id, o.id, o.team_id, o.run_id
"""


def link_orphans() -> int:
    """Link every orphan whose run was redone: its key is an operation's again. Owns its transaction."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(_LINK)
            linked = cursor.fetchall()
        for orphan, operation, team, run in linked:
            audit.append(
                audit.Event(
                    action="orphan.linked",
                    actor=RESTORER,
                    team=team,
                    run=run,
                    operation=operation,
                    subject=orphan,
                )
            )
        return len(linked)
