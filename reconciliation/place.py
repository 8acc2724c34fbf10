"""Which database this is: the deployment's environment, the server it last ran on, and freezing its sending.

A database that comes back on another server, on another timeline or as another database has been restored,
promoted or copied: what it says was never sent may have been. Sending then stops at every account before
anything else is done, and only an administrator's word starts the way back (`restoring`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import structlog
from django.db import ProgrammingError, connection, transaction
from django.db.models import Exists, OuterRef

from reconciliation.fencing import Write, note_refused_write
from runs import audit, leases
from runs.actors import JOURNAL, Actor
from runs.ids import new_id
from runs.locking import database_now
from runs.models import AccountReturn, Binding, Environment, Freeze, Operation, ProviderAccount, Run
from runs.refusals import NotFound
from runs.states import FreezeAnswer, Sending

log = structlog.get_logger(__name__)

BECAUSE_LENGTH_MAX = 500
# Of the freezes that are answered, those that go on to sending.
COMES_BACK = (FreezeAnswer.PRODUCTION, FreezeAnswer.OWN_ENVIRONMENT)


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """The server and database that we are connected to; None for what this role may not read."""

    system_identifier: int | None
    timeline: int | None
    database_oid: int | None

    def differs_from(self, environment: Environment) -> str:
        """What says that this isn't where the journal last ran: a sentence, "" if nothing does."""
        pairs = (
            ("database server (system identifier)", environment.system_identifier, self.system_identifier),
            ("timeline", environment.timeline, self.timeline),
            ("database (oid)", environment.database_oid, self.database_oid),
        )
        changed = [
            f"its {what} was {before} and is {now}"
            for what, before, now in pairs
            if before is not None and now is not None and before != now
        ]
        return f"This database has moved: {'; '.join(changed)}." if changed else ""


def read_fingerprint() -> Fingerprint:
    """Ask the server who it is. Managed servers may keep pg_control from us: then less is known."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            # Of the log that is written now: the last checkpoint's timeline is the old one for minutes after
            # a standby was promoted.
            cursor.execute(
                "SELECT (pg_control_system()).system_identifier,"
                " ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint"
            )
            identifier, timeline = cursor.fetchone()
    except ProgrammingError:
        # insufficient_privilege, or a server that only speaks PostgreSQL's language.
        log.warning("place_not_readable")
        identifier, timeline = None, None
    with connection.cursor() as cursor:
        cursor.execute("SELECT oid FROM pg_database WHERE datname = current_database()")
        (oid,) = cursor.fetchone()
    return Fingerprint(system_identifier=identifier, timeline=timeline, database_oid=oid)


def check_place() -> Freeze | None:
    """Compare where we are with where we were, freeze sending if that changed, and return the open freeze.

    Asked at every start and by the sweeper. The first time, the environment is made and the accounts bound to
    it. Owns its transaction.
    """
    seen = read_fingerprint()
    with transaction.atomic():
        environment = _environment(seen)
        moved = seen.differs_from(environment)
        frozen = open_freeze()
        if moved and (frozen is None or frozen.answer in COMES_BACK):
            # Where we were is taken in with such an answer, so this is yet another move.
            frozen = freeze(because=moved, actor=JOURNAL)
        elif not moved:
            _learn(environment, seen)
        _hold_accounts(environment, frozen)
        return frozen


def check_at_start() -> None:
    """As `check_place`, for a process that starts; a database without our tables has nothing to send."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('runs_environment') IS NOT NULL")
        (there,) = cursor.fetchone()
    frozen = check_place() if there else None
    if frozen is not None:
        log.warning("sending_frozen", freeze=frozen.pk, because=frozen.because, answer=frozen.answer)


def open_freeze() -> Freeze | None:
    """The freeze that isn't over, None if sending isn't frozen."""
    return Freeze.objects.filter(ended_at__isnull=True).first()


def freeze(*, because: str, actor: Actor) -> Freeze:
    """Freeze sending at every account, or return the freeze that waits for its answer or stays a copy's.

    One that was answered may have opened accounts: it ends, and what happened since is asked anew. Needs a
    transaction.
    """
    with connection.cursor() as cursor:
        # Everyone who would freeze or end a freeze waits here for each other.
        cursor.execute("LOCK TABLE runs_freeze IN SHARE ROW EXCLUSIVE MODE")
    found = open_freeze()
    if found is not None and found.answer not in COMES_BACK:
        return found
    now = database_now()
    if found is not None:
        Freeze.objects.filter(pk=found.pk).update(ended_at=now)
        audit.append(
            audit.Event(action="sending.freeze_ended", actor=actor, subject=found.pk, reason="frozen anew")
        )
    made = Freeze.objects.create(id=new_id("frz"), found_at=now, because=because[:BECAUSE_LENGTH_MAX])
    with connection.cursor() as cursor:
        # Every send locks its run before it reads whether it may go: those under way end first, and those
        # that come later wait for our commit.
        cursor.execute("LOCK TABLE runs_run IN EXCLUSIVE MODE")
    ProviderAccount.objects.update(sending=Sending.FROZEN)
    audit.append(
        audit.Event(action="sending.frozen", actor=actor, subject=made.pk, after={"because": made.because})
    )
    log.warning("sending_frozen", freeze=made.pk, because=made.because)
    return made


def notice_token(*, operation_id: str, token: str) -> bool:
    """As `notice_token_of`, for the run of this operation."""
    run_id = Operation.objects.filter(pk=operation_id).values_list("run_id", flat=True).first()
    return run_id is not None and notice_token_of(run_id=run_id, token=token)


def notice_token_of(*, run_id: str, token: str) -> bool:
    """Freeze if we gave out this token in a time that the journal has forgotten. True if we did.

    A lease's number only grows, by a claim that is on record here before anybody gets its token: a higher
    one, or one of a run that isn't here, was given by a journal that went on from an older state of this one.
    A token that we never gave is refused like any other and freezes nothing. Owns its transaction.
    """
    number = leases.given_number(run_id=run_id, token=token)
    if number is None:
        return False
    given = Run.objects.filter(pk=run_id).values_list("lease_number", flat=True).first()
    if given is not None and number <= given:
        return False
    if open_freeze() is not None:
        # What was forgotten is known: the worker is one of those that went on before.
        return True
    known = "doesn't know that run" if given is None else f"has given out {given}"
    with transaction.atomic():
        freeze(
            because=f"A worker showed lease {number} of run {run_id}, and this journal {known}: it has"
            " forgotten what happened since.",
            actor=JOURNAL,
        )
    return True


@contextmanager
def noticing(*, run_id: str, token: str, write: Write | None = None) -> Iterator[None]:
    """Where something is refused inside for want of the right token, look whether it is a forgotten one.

    `write`: what was refused with it, which is kept on record if the token was the run's once.
    """
    try:
        yield
    except (leases.StaleToken, leases.RunPaused, NotFound) as refusal:
        forgotten = notice_token_of(run_id=run_id, token=token)
        if write is not None and not forgotten and isinstance(refusal, leases.StaleToken):
            note_refused_write(run_id=run_id, token=token, write=write)
        raise


def bind(account: str, *, environment: str, now: datetime, by: str) -> None:
    Binding.objects.update_or_create(
        account_id=account, defaults={"environment": environment, "bound_at": now, "bound_by": by}
    )


def _environment(seen: Fingerprint) -> Environment:
    found = Environment.objects.select_for_update().first()
    if found is not None:
        return found
    now = database_now()
    made = Environment(
        id_text=new_id("env"),
        system_identifier=seen.system_identifier,
        timeline=seen.timeline,
        database_oid=seen.database_oid,
        made_at=now,
    )
    Environment.objects.bulk_create([made], ignore_conflicts=True)
    return Environment.objects.select_for_update().get()


def _learn(environment: Environment, seen: Fingerprint) -> None:
    """Take in what could not be read before."""
    known = {name: value for name, value in vars(seen).items() if value is not None}
    if any(getattr(environment, name) is None for name in known):
        Environment.objects.filter(pk=environment.pk).update(**known)


def _hold_accounts(environment: Environment, frozen: Freeze | None) -> None:
    """Bind new accounts while nothing is frozen; hold back those that may not send here."""
    if frozen is None:
        new = ProviderAccount.objects.filter(binding__isnull=True).values_list("slug", flat=True)
        for slug in list(new):
            bind(slug, environment=environment.id_text, now=database_now(), by=JOURNAL.id)
    sends = ProviderAccount.objects.filter(sending=Sending.OPEN)
    # Those of another environment: a copy that was given an id of its own has to be told which are its own.
    sends.filter(binding__isnull=False).exclude(binding__environment=environment.id_text).update(
        sending=Sending.FROZEN
    )
    if frozen is not None:
        back = AccountReturn.objects.filter(freeze=frozen, account=OuterRef("slug"), opened_at__isnull=False)
        sends.filter(~Exists(back)).update(sending=Sending.FROZEN)
