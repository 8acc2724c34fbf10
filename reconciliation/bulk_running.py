"""Carrying out a list, one case after the other, in the name of whoever started it.

Each case is one transaction: it holds the job's row, asks whether the person still may, does what is wanted
through the same door as a page would, and writes the outcome. So an outcome and its effect are there together
or not at all; with a worker killed at any point, two workers at one job or a message delivered ten times,
every case is done once. Messages only say that there is something to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, assert_never

import structlog
from celery.exceptions import SoftTimeLimitExceeded
from django.db import OperationalError, transaction
from django.db.models import F, QuerySet

from reconciliation import bulk, lookups
from reconciliation.assigning import assign_case
from reconciliation.bulk_models import (
    SENTENCE_LENGTH,
    BulkDeed,
    BulkItem,
    BulkJob,
    BulkOutcome,
    BulkState,
    ItemResult,
)
from reconciliation.decisions import DecisionStale, Forbidden, decide
from reconciliation.gate_models import SweepFailure
from reconciliation.models import Case
from reconciliation.providers.base import elapsed_seconds
from reconciliation.standing import standing_of
from reconciliation.states import CaseState
from reconciliation.waking import wake
from reconciliation.working import CaseSettled, Worker, claim_case
from runs.journal.evidence import storable_text
from runs.locking import database_now
from runs.refusals import Refusal

log = structlog.get_logger(__name__)

# A stretch is short, so that a long list keeps nothing else in the queue waiting.
CHUNK_ITEMS_MAX: Final = 25
CHUNK_SECONDS: Final = 2.0
# A stretch takes seconds: one that hasn't called for the next by then has lost its worker, or its message.
STALLED_SECONDS: Final = 10
# A case that was begun so often, and lost its transaction or its worker each time, is passed over, so that it
# doesn't stop the rest.
TRIES_MAX: Final = 3


class NoLookup(Refusal):
    """The provider offers no lookup, or the case is settled: there is nothing to ask."""

    word = "no_lookup"


@dataclass(frozen=True, kw_only=True)
class Came:
    """What came of one case."""

    result: ItemResult = ItemResult.DONE
    word: str = ""
    sentence: str = ""
    decision_id: str | None = None


def run_chunk(*, job_id: str, chunk: int) -> int:
    """Carry out the job's stretch of this number; returns how many cases got their outcome.

    A call for a stretch that somebody has begun comes to nothing. Owns its transactions.
    """
    if not _begin(job_id, chunk):
        return 0
    until = elapsed_seconds() + CHUNK_SECONDS
    done = 0
    while done < CHUNK_ITEMS_MAX and elapsed_seconds() < until:
        try:
            if not _do_next(job_id):
                return done
        except Exception:
            # A deadlock, a connection that is gone, no time left: the case is as it was, and still waits.
            log.exception("bulk_item_lost", job=job_id)
            break
        done += 1
    wake("run_bulk", job_id, chunk + 1)
    return done


def _begin(job_id: str, chunk: int) -> bool:
    """Take the stretch, unless somebody has it or is inside a case of the one before."""
    with transaction.atomic():
        next_up = BulkJob.objects.filter(pk=job_id, state=BulkState.RUNNING, next_chunk=chunk)
        job = _free(next_up)
        if job is None:
            return False
        job.next_chunk, job.called_at = chunk + 1, database_now()
        job.save(update_fields=["next_chunk", "called_at"])
        return True


def _free(jobs: QuerySet[BulkJob]) -> BulkJob | None:
    """Lock the job, or pass it over: a case that waits for its run's row must keep nobody else waiting."""
    return jobs.select_for_update(skip_locked=True, no_key=True).first()


def _do_next(job_id: str) -> bool:
    """Carry out the next case and write its outcome; False if the job has ended."""
    # On record before anything is done: a case that ends its worker leaves nobody to count.
    BulkJob.objects.filter(pk=job_id, state=BulkState.RUNNING).update(tries_count=F("tries_count") + 1)
    with transaction.atomic():
        job = BulkJob.objects.select_for_update(no_key=True).get(pk=job_id)
        if job.state != BulkState.RUNNING:
            return False
        item = BulkItem.objects.get(job=job, position=job.next_position)
        came = _too_often(job) or _carry_out(job, item)
        BulkOutcome.objects.create(
            item=item,
            result=came.result,
            word=came.word,
            sentence=storable_text(came.sentence)[:SENTENCE_LENGTH],
            decision_id=came.decision_id,
            made_at=database_now(),
        )
        job.next_position, job.tries_count = job.next_position + 1, 0
        job.save(update_fields=["next_position", "tries_count"])
        if job.next_position > job.items_count:
            _end(job)
        return True


def _end(job: BulkJob) -> None:
    job.state, job.ended_at = BulkState.DONE, database_now()
    job.save(update_fields=["state", "ended_at"])
    counts = {
        str(result): BulkOutcome.objects.filter(item__job=job, result=result).count() for result in ItemResult
    }
    standing = standing_of(actor=job.actor, deed=BulkDeed(job.deed), team="")
    bulk.append_event(job, standing.worker.actor, "bulk.ended", after=counts)


def _too_often(job: BulkJob) -> Came | None:
    if job.tries_count <= TRIES_MAX:
        return None
    sentence = f"It was begun {job.tries_count - 1} times and never finished. Nothing was changed."
    return Came(result=ItemResult.FAILED, word="not_finished", sentence=sentence)


def _carry_out(job: BulkJob, item: BulkItem) -> Came:
    try:
        # A savepoint: a refusal undoes whatever came before it, and its outcome is written.
        with transaction.atomic():
            deed = BulkDeed(job.deed)
            team = Case.objects.values_list("team_id", flat=True).get(pk=item.case_id)
            standing = standing_of(actor=job.actor, deed=deed, team=team)
            if standing.why_not:
                raise Forbidden(standing.why_not)
            return _act(deed, job, item, team, standing.worker)
    except Refusal as refusal:
        return Came(result=ItemResult.REFUSED, word=refusal.word, sentence=sentence_of(refusal))
    except (OperationalError, SoftTimeLimitExceeded):
        raise
    except Exception as error:
        # What our own code fails on must not keep the cases after it waiting.
        log.exception("bulk_item_failed", job=job.pk, case=item.case_id)
        sentence = f"Recourse failed on it ({type(error).__name__}). Nothing was changed."
        return Came(result=ItemResult.FAILED, word="internal_error", sentence=sentence)


def _act(deed: BulkDeed, job: BulkJob, item: BulkItem, team: str, worker: Worker) -> Came:
    match deed:
        case BulkDeed.CLAIM:
            claim_case(case_id=item.case_id, team=team, worker=worker)
            return Came()
        case BulkDeed.ASSIGN:
            whom = standing_of(actor=job.assignee, deed=deed, team=team)
            if whom.why_not:
                raise Forbidden(f"It can’t be given to {job.assignee_name}: {whom.why_not}")
            assign_case(case_id=item.case_id, team=team, worker=worker, assignee=whom.worker)
            return Came()
        case BulkDeed.LOOK_UP:
            _look_up(job, item, team, worker)
            return Came()
        case BulkDeed.DECIDE:
            decided = decide(
                case_id=item.case_id,
                team=team,
                actor=worker.actor,
                asked=bulk.asked_of(job, item),
                actor_name=worker.name,
                may_ask=False,
            )
            return Came(decision_id=str(decided.answer["decision"]))
        case _:
            assert_never(deed)


def _look_up(job: BulkJob, item: BulkItem, team: str, worker: Worker) -> None:
    case = lookups.ask_again(case_id=item.case_id, team=team, actor=worker.actor, list_id=job.pk)
    why_not = lookups.why_not_looked_up(case)
    if why_not:
        raise NoLookup(why_not) if case.state != CaseState.RESOLVED else CaseSettled(why_not)


def sentence_of(refusal: Refusal) -> str:
    """A refusal as it stands beside its case; of one that changed, what changed."""
    if not isinstance(refusal, DecisionStale):
        return refusal.sentence
    changed = " ".join(str(one) for one in refusal.details.get("changed", []))
    return f"It changed since the list was frozen. {changed}".strip()


# --- What the sweeper does ----------------------------------------------------------------------------------


def stalled(now: datetime, failing: QuerySet[SweepFailure, str]) -> list[str]:
    """Jobs that run and that no worker has gone on with for a while."""
    since = now - timedelta(seconds=STALLED_SECONDS)
    running = BulkJob.objects.filter(state=BulkState.RUNNING, called_at__lte=since).exclude(pk__in=failing)
    return list(running.order_by("called_at").values_list("pk", flat=True)[:200])


def call_again(job_id: str) -> None:
    """Call a worker for the next stretch of a job that stands still."""
    with transaction.atomic():
        now = database_now()
        since = now - timedelta(seconds=STALLED_SECONDS)
        job = _free(BulkJob.objects.filter(pk=job_id, state=BulkState.RUNNING, called_at__lte=since))
        if job is not None:
            job.called_at = now
            job.save(update_fields=["called_at"])
            bulk.call(job)
