"""Many cases at once: freeze a list, start something over it, stop the rest.

The list is frozen by id, with the version and the evidence that each case had, before anything is asked; what
starts is over that list and no other, whatever the queue shows by then. Nothing here changes a case:
`bulk_running` does, one by one, in the name of whoever started it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final

from django.db import transaction
from django.db.models import Count

from reconciliation.asked import Asked, check_words
from reconciliation.bulk_models import (
    BULK_ACTIONS,
    ITEMS_MAX,
    QUERY_LENGTH,
    BulkDeed,
    BulkItem,
    BulkJob,
    BulkState,
)
from reconciliation.gathering import judge_now
from reconciliation.models import Case
from reconciliation.states import Action, Permission
from reconciliation.waking import wake
from reconciliation.working import Worker, require_person
from runs import audit
from runs.actors import Actor
from runs.canonical import canonicalise
from runs.ids import new_id
from runs.journal.evidence import storable_text
from runs.locking import database_now
from runs.models import NAME_LENGTH
from runs.refusals import Invalid, NotFound, Refusal

# Each is judged by the policy before it is shown: more would make a page slow, and one reason seldom fits.
DECIDED_MAX: Final = 200


class NotAlike(Refusal):
    """The cases differ in what one decision would have to be the same for; `differs` says in what."""

    word: ClassVar[str] = "not_alike"


class AlreadyStarted(Refusal):
    """The list was started before, with something else."""

    word: ClassVar[str] = "already_started"


class AlreadyEnded(Refusal):
    """There is nothing left to stop."""

    word: ClassVar[str] = "already_ended"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a person wants done with every case of their list."""

    action: Action | None = None
    executor: str = ""
    then: str = ""
    reason_code: str = ""
    reason: str = ""
    # To whom it is assigned.
    assignee: Worker | None = None


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Cases that are alike: the same provider, the same verdict, the same actions open to one person."""

    provider: str
    kind: str
    finding: str
    offers: str
    count: int = 0

    @property
    def actions(self) -> tuple[Action, ...]:
        return tuple(Action(one) for one in self.offers.split(",") if one)


def list_max(deed: BulkDeed) -> int:
    """How many cases a list for this may hold."""
    return DECIDED_MAX if deed is BulkDeed.DECIDE else ITEMS_MAX


# --- The frozen list ----------------------------------------------------------------------------------------


def freeze(
    *,
    worker: Worker,
    teams: Sequence[str],
    deed: BulkDeed,
    case_ids: Sequence[str],
    query: str = "",
    matched_count: int | None = None,
) -> BulkJob:
    """Keep these cases of the teams as a list, in this order; nothing is done with them yet.

    `query` and `matched_count` tell of a list that came of the queue's filters; one that is longer than
    `list_max` is cut there. Owns its transaction. Raises `Forbidden`, `Invalid` for no case or for more
    chosen ones than fit, and `NotFound` for a case that isn't the teams'.
    """
    require_person(worker)
    chosen = list(dict.fromkeys(case_ids))
    most = list_max(deed)
    if not chosen:
        raise Invalid("Choose at least one case.", where="case")
    if len(chosen) > most:
        if not query:
            raise Invalid(
                f"{len(chosen):,} cases are chosen, and a list for this holds {most:,}.", where="case"
            )
        chosen = chosen[:most]
    with transaction.atomic():
        now = database_now()
        by_id = {
            case.pk: case
            for case in Case.objects.filter(pk__in=chosen, team__in=teams).select_related(
                "operation__call", "run__flow", "run__flow_version"
            )
        }
        missing = next((one for one in chosen if one not in by_id), None)
        if missing is not None:
            raise NotFound(f"There is no case {missing} that you can see.", case=missing)
        items = [
            _item(position, by_id[case_id], deed, now) for position, case_id in enumerate(chosen, start=1)
        ]
        job = BulkJob.objects.create(
            id=new_id("bulk"),
            deed=deed,
            actor=worker.actor.id,
            actor_name=storable_text(worker.name)[:NAME_LENGTH],
            query=query[:QUERY_LENGTH],
            matched_count=len(items) if matched_count is None else max(matched_count, len(items)),
            items_count=len(items),
            list_digest=_digest(items),
            frozen_at=now,
        )
        for item in items:
            item.job = job
        BulkItem.objects.bulk_create(items)
    return job


def _item(position: int, case: Case, deed: BulkDeed, now: datetime) -> BulkItem:
    evidence, offers = "", ""
    if deed is BulkDeed.DECIDE:
        judged = judge_now(run=case.run, operation=case.operation, case=case, now=now)
        evidence = judged.evidence_digest
        offers = ",".join(
            str(status.action)
            for status in judged.assessment.actions
            if status.action in BULK_ACTIONS and status.permission is Permission.ALLOWED
        )
    return BulkItem(
        position=position,
        case=case,
        seen_version=case.version,
        evidence_digest=evidence,
        provider=case.provider_slug,
        kind=case.kind,
        finding=case.finding,
        offers=offers,
    )


def _digest(items: Sequence[BulkItem]) -> str:
    return canonicalise([[one.case_id, one.seen_version, one.evidence_digest] for one in items]).digest


def find_job(*, job_id: str, worker: Worker) -> BulkJob:
    """The person's own job. Raises `NotFound`, also for another's."""
    job = BulkJob.objects.filter(pk=job_id, actor=worker.actor.id).first()
    if job is None:
        raise NotFound(f"There is no list {job_id} of yours.", job=job_id)
    return job


def kinds_of(job: BulkJob) -> tuple[Kind, ...]:
    """The kinds of cases in a list as they were frozen, the most frequent first."""
    rows = (
        BulkItem.objects.filter(job=job)
        .values_list("provider", "kind", "finding", "offers")
        .annotate(count=Count("pk"))
        .order_by("-count", "provider", "finding", "kind", "offers")
    )
    return tuple(
        Kind(provider=provider, kind=kind, finding=finding, offers=offers, count=count)
        for provider, kind, finding, offers, count in rows
    )


def cases_of_kind(job: BulkJob, kind: Kind) -> list[str]:
    """The cases of one kind, in the order of the list."""
    alike = {
        "provider": kind.provider,
        "kind": kind.kind,
        "finding": kind.finding,
        "offers": kind.offers,
    }
    rows = BulkItem.objects.filter(job=job, **alike).order_by("position")
    return list(rows.values_list("case_id", flat=True))


def differences(kinds: Sequence[Kind]) -> tuple[str, ...]:
    """In what these kinds differ: provider, verdict, what one person may do."""
    pairs: dict[str, set[object]] = {
        "provider": {one.provider for one in kinds},
        "verdict": {(one.kind, one.finding) for one in kinds},
        "allowed actions": {one.offers for one in kinds},
    }
    return tuple(name for name, values in pairs.items() if len(values) > 1)


def listed_in_words(names: Sequence[str]) -> str:
    """ "provider", "provider and verdict", "provider, verdict and allowed actions"."""
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


# --- Start and stop -----------------------------------------------------------------------------------------


def start(*, job_id: str, worker: Worker, wanted: Wanted) -> BulkJob:
    """Start what is wanted over the frozen list; a worker carries it out. Owns its transaction.

    The same again, of a list that was started so, is the job that runs. Refuses in this order, having changed
    nothing: `NotFound`, `Forbidden`, `Invalid`, `NotAlike`, `AlreadyStarted`.
    """
    require_person(worker)
    found = find_job(job_id=job_id, worker=worker)
    fields = _fields(BulkDeed(found.deed), wanted)
    if found.deed == BulkDeed.DECIDE:
        kinds = kinds_of(found)
        if len(kinds) > 1:
            differs = differences(kinds)
            raise NotAlike(
                f"These cases differ in {listed_in_words(differs)}: no one decision fits them all.",
                differs=list(differs),
            )
    with transaction.atomic():
        job = BulkJob.objects.select_for_update(no_key=True).get(pk=found.pk)
        if job.state != BulkState.FROZEN:
            if all(getattr(job, name) == value for name, value in fields.items()):
                return job
            raise AlreadyStarted("This list was started before, with something else.", job=job.pk)
        now = database_now()
        for name, value in fields.items():
            setattr(job, name, value)
        job.state, job.started_at, job.called_at = BulkState.RUNNING, now, now
        job.save()
        append_event(
            job,
            worker.actor,
            "bulk.started",
            after={
                "deed": job.deed,
                "cases": job.items_count,
                "list": job.list_digest,
                **{name: value for name, value in fields.items() if value and name != "reason"},
            },
            reason=job.reason,
        )
        call(job)
    return job


def _fields(deed: BulkDeed, wanted: Wanted) -> dict[str, str]:
    """What is wanted, as the job keeps it. Raises `Invalid`."""
    if deed is BulkDeed.ASSIGN:
        if wanted.assignee is None:
            raise Invalid("Choose who gets the cases.", where="assignee")
        require_person(wanted.assignee)
        return {
            "assignee": wanted.assignee.actor.id,
            "assignee_name": storable_text(wanted.assignee.name)[:NAME_LENGTH],
        }
    if deed is not BulkDeed.DECIDE:
        return {}
    if wanted.action not in BULK_ACTIONS:
        raise Invalid("Choose what to decide.", where="action", allowed=[str(one) for one in BULK_ACTIONS])
    fields = {
        "action": str(wanted.action),
        "executor": wanted.executor if wanted.action is Action.RETRY else "",
        "then": wanted.then if wanted.action is Action.ABANDON else "",
        "reason_code": wanted.reason_code,
        "reason": storable_text(wanted.reason.strip()),
    }
    check_words(
        Asked(
            action=wanted.action,
            seen_version=0,
            evidence_digest="",
            reason_code=fields["reason_code"],
            reason=fields["reason"],
            idempotency_key="bulk",
            executor=fields["executor"],
            then=fields["then"],
        )
    )
    return fields


def asked_of(job: BulkJob, item: BulkItem) -> Asked:
    """The decision that was asked for one case of the list."""
    wanted = Wanted(
        action=Action(job.action),
        executor=job.executor,
        then=job.then,
        reason_code=job.reason_code,
        reason=job.reason,
    )
    return decision_of(wanted, item)


def decision_of(wanted: Wanted, item: BulkItem) -> Asked:
    """What is wanted, as a decision of this case as it was frozen; its key is the item's: it is made once."""
    if wanted.action is None:
        raise Invalid("Choose what to decide.", where="action")
    return Asked(
        action=wanted.action,
        seen_version=item.seen_version,
        evidence_digest=item.evidence_digest,
        reason_code=wanted.reason_code,
        reason=wanted.reason,
        idempotency_key=f"{item.job_id}:{item.position}",
        executor=wanted.executor,
        then=wanted.then,
    )


def stop(*, job_id: str, worker: Worker) -> BulkJob:
    """Stop what hasn't been done; what has stays. Owns its transaction. Raises `NotFound`, `AlreadyEnded`."""
    found = find_job(job_id=job_id, worker=worker)
    with transaction.atomic():
        # Whoever carries out a case holds this row: after the lock, no further one begins.
        job = BulkJob.objects.select_for_update(no_key=True).get(pk=found.pk)
        if job.state != BulkState.RUNNING:
            raise AlreadyEnded(
                "There is nothing left to stop: nothing of this list is being done.", job=job.pk
            )
        job.state, job.ended_at = BulkState.STOPPED, database_now()
        job.save(update_fields=["state", "ended_at"])
        done = job.next_position - 1
        append_event(job, worker.actor, "bulk.stopped", after={"done": done, "left": job.items_count - done})
    return job


def call(job: BulkJob) -> None:
    """Ask a worker for the job's next stretch, once this transaction is committed."""
    chunk = job.next_chunk
    transaction.on_commit(lambda: wake("run_bulk", job.pk, chunk), robust=True)


def append_event(job: BulkJob, actor: Actor, action: str, *, after: dict[str, Any], reason: str = "") -> None:
    """Append the leaf of an event of the list as a whole; each case has leaves of its own."""
    teams = list(Case.objects.filter(bulk_items__job=job).values_list("team_id", flat=True).distinct()[:2])
    audit.append(
        audit.Event(
            action=action,
            actor=actor,
            # Of several teams it is nobody's alone.
            team=teams[0] if len(teams) == 1 else "",
            subject=job.pk,
            after=after,
            reason=reason,
        )
    )
