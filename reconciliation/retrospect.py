"""What was known when somebody decided: the facts wound back to that instant, and judged again.

Evidence, attempts, lookups and leases are never changed, so what was on record then can be told from what is
on record now; states are read from the audit log's entries before the decision's own. The digest over it is
compared with the one that the decision named: where they agree, this is what was decided on.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db.models import Q, QuerySet

from reconciliation import effective
from reconciliation.contracts import ProviderAccount
from reconciliation.gathering import (
    EVIDENCE_READ_MAX,
    INFORMATIVE,
    SHOWS_OURS,
    TELLING,
    Judged,
    Rows,
    gather_facts,
    may_repeat_alone,
    says_digest,
)
from reconciliation.making_absent_models import AbsenceRequest, AbsenceState
from reconciliation.models import Case, Decision, Declaration, Lookup, Tightening
from reconciliation.policy import POLICY, assess
from reconciliation.providers import registry
from reconciliation.states import CaseKind, CaseState, Need
from reconciliation.strictness import held_to
from runs.models import Attempt, AuditLeaf, Evidence, Grant, Lease, Operation, Run
from runs.refusals import NotFound
from runs.states import AttemptOutcome, GrantState, OperationState, PauseReason, RunState

# An operation with more entries than this before a decision is told from the latest of them.
ENTRIES_MAX: Final = 5_000
# Of each kind of row; one operation rarely has ten.
ROWS_MAX: Final = 500
_SENT: Final = ("operation.sent", "operation.sent_again", "operation.perhaps_sent")


@dataclass(frozen=True, kw_only=True)
class Known:
    """What was on record when a decision was made, judged by the policy of today.

    `entry` is the decision's own entry of the audit log, `evidence` what came before it, newest first.
    `named` is the digest that the decision named. `moved` says what was changed since that it depends on.
    """

    decision: Decision
    entry: int
    at: datetime
    case: Case
    operation: Operation
    run: Run
    judged: Judged
    evidence: tuple[Evidence, ...]
    # How many pieces came with the decision or after it.
    later_count: int
    attempts: tuple[Attempt, ...]
    lookup: Lookup | None
    moved: tuple[str, ...]
    named: str

    @property
    def agrees(self) -> bool:
        """Whether what is shown is proved to be what the decision was made on."""
        return self.named == self.judged.evidence_digest


@dataclass(frozen=True, kw_only=True)
class OnRecord:
    """The rows about one operation that its past is told from; what came after is left out here."""

    evidence: Sequence[Evidence]
    attempts: Sequence[Attempt]
    lookups: Sequence[Lookup]
    grants: Sequence[Grant]
    leases: Sequence[Lease]
    tightenings: Sequence[Tightening]
    declarations: Sequence[Declaration]
    decisions: Sequence[Decision]
    absences: Sequence[AbsenceRequest]


def rows_of(operation: Operation) -> dict[str, QuerySet[Any]]:
    """What `OnRecord` is made of, each on its index; by the names that it has there."""
    of_it = {"operation": operation}
    account = operation.provider_id
    return {
        "evidence": Evidence.objects.filter(**of_it).defer("body").order_by("-recorded_at", "-id")[:ROWS_MAX],
        "attempts": Attempt.objects.filter(**of_it).order_by("number")[:ROWS_MAX],
        "lookups": Lookup.objects.filter(**of_it).order_by("-id")[:ROWS_MAX],
        "grants": Grant.objects.filter(**of_it).order_by("-made_at", "-id")[:ROWS_MAX],
        "leases": Lease.objects.filter(run=operation.run_id).order_by("-number")[:ROWS_MAX],
        "tightenings": Tightening.objects.filter(account=account).order_by("-number")[:ROWS_MAX],
        "declarations": Declaration.objects.filter(account=account).order_by("-number")[:1],
        "decisions": Decision.objects.filter(**of_it).order_by("made_at", "id")[:ROWS_MAX],
        "absences": AbsenceRequest.objects.filter(**of_it).order_by("number")[:ROWS_MAX],
    }


def known_at(*, decision_id: str, operation: Operation, on_record: OnRecord | None = None) -> Known:
    """Wind an operation back to one of its decisions. Raises `NotFound`.

    `on_record`: what the caller has read already by `rows_of`. The operation comes with its run and call.
    """
    held = on_record or OnRecord(**{name: list(rows) for name, rows in rows_of(operation).items()})
    decision = next((one for one in held.decisions if one.pk == decision_id), None)
    if decision is None:
        raise NotFound("There is no such decision that you can see.", decision=decision_id[:64])
    before = _entries_before(decision, operation)
    at = decision.made_at
    case, op, run = decision.case, copy.copy(operation), copy.copy(operation.run)
    told = [event for leaf, event in before.entries if leaf.operation_ref]
    _wind_case(case, told, before.entry)
    _wind_operation(op, told)
    _wind_run(run, [event for leaf, event in before.entries if not leaf.operation_ref], held.leases, at)
    attempts = tuple(_attempt_then(one, at) for one in held.attempts if one.minted_at <= at)
    evidence = _evidence_then(held, before, attempts)
    seen = {one.pk for one in evidence}
    lookups = [one for one in held.lookups if one.evidence_id in seen]
    lookup = next((one for one in lookups if one.finding in INFORMATIVE), None)
    ours = next((one for one in lookups if one.finding in [str(kind) for kind in SHOWS_OURS]), None)
    case.lookups_count = sum(1 for one in lookups if one.case_id == case.pk)
    account, moved = _account_then(op.provider_id, held, at)
    earlier = any(one.made_at < at and one.pk != decision.pk for one in held.decisions)
    facts = gather_facts(
        run=run,
        operation=op,
        case=case,
        account=account,
        evidence=evidence,
        rows=Rows(
            attempts=attempts,
            grant=_grant_then(held, at),
            lookup=lookup,
            ours_shown=ours.evidence_id if ours is not None else "",
            decided=may_repeat_alone(run) and earlier,
            absences=tuple(_absence_then(one, at) for one in held.absences if one.sent_at < at),
        ),
        now=at,
    )
    assessment = assess(facts, account.contract, at)
    judged = Judged(
        facts=facts,
        contract=account.contract,
        account=account,
        assessment=assessment,
        evidence_digest=says_digest(evidence, assessment),
    )
    if decision.policy != POLICY:
        moved.append(f"The policy was {decision.policy} then and is {POLICY} now.")
    return Known(
        decision=decision,
        entry=before.leaf.pk if before.leaf is not None else 0,
        at=at,
        case=case,
        operation=op,
        run=run,
        judged=judged,
        evidence=tuple(sorted(evidence, key=lambda one: (one.recorded_at, one.pk), reverse=True)),
        later_count=len(held.evidence) - len(evidence),
        attempts=attempts,
        lookup=lookup,
        moved=tuple(moved),
        named=decision.evidence_digest,
    )


# --- What the log says of the time before ---------------------------------------------------------------

_Event = dict[str, Any]


@dataclass(frozen=True)
class _Before:
    """The decision's entry with its event, and the entries before it in their order."""

    leaf: AuditLeaf | None
    entry: _Event
    entries: tuple[tuple[AuditLeaf, _Event], ...]


def event_in(body: bytes) -> _Event:
    """The event of an entry's canonical body; {} if it can't be read."""
    try:
        read: Any = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    event = read.get("event") if isinstance(read, dict) else None
    return event if isinstance(event, dict) else {}


def _entries_before(decision: Decision, operation: Operation) -> _Before:
    of_it = Q(operation_ref=operation.pk) | Q(run_ref=operation.run_id, operation_ref="")
    leaves = AuditLeaf.objects.filter(of_it).order_by("-id")[:ENTRIES_MAX]
    read = [(leaf, event_in(bytes(leaf.body))) for leaf in leaves]
    for index, (leaf, event) in enumerate(read):
        after = _part(event, "after")
        if leaf.action.startswith("case.decided.") and after.get("decision") == decision.pk:
            return _Before(leaf, event, tuple(reversed(read[index + 1 :])))
    # A policy's own decision has no entry of its own: what it settled stands under the same instant.
    return _Before(None, {}, tuple(reversed([one for one in read if one[0].at < decision.made_at])))


def _part(event: _Event, name: str) -> dict[str, Any]:
    part = event.get(name)
    return part if isinstance(part, dict) else {}


def _wind_case(case: Case, told: Iterable[_Event], entry: _Event) -> None:
    case.kind, case.state = CaseKind.UNKNOWN, CaseState.LOOKING_UP
    for event in told:
        after = _part(event, "after")
        if event.get("subject") != case.pk:
            continue
        if event.get("action") == "case.opened" and after.get("kind") in set(CaseKind):
            case.kind = after["kind"]
        if event.get("action") == "case.moved" and after.get("state") in set(CaseState):
            case.state = after["state"]
            case.kind = CaseKind.CONFLICT if after.get("need") == Need.CONFLICT else case.kind
    case.state = _part(entry, "before").get("state", case.state)
    case.version = _part(entry, "before").get("version", case.version)


def _wind_operation(operation: Operation, told: Iterable[_Event]) -> None:
    operation.state = OperationState.READY
    for event in told:
        action, state = str(event.get("action", "")), _part(event, "after").get("state")
        if action in _SENT:
            operation.state = OperationState.SENT_UNKNOWN
        elif action.startswith("operation.") and state in set(OperationState):
            operation.state = str(state)


def _wind_run(run: Run, told: Iterable[_Event], leases: Sequence[Lease], at: datetime) -> None:
    reasons: list[str] = []
    for event in told:
        after = _part(event, "after")
        if event.get("action") in ("run.paused", "run.pause_reason_ended"):
            listed = after.get("reasons")
            reasons = [str(one) for one in listed] if isinstance(listed, list) else []
    # What ended at the very instant was ended by the decision.
    if run.ended_at is None or run.ended_at >= at:
        run.state = RunState.PAUSED if reasons else RunState.OPEN
    run.paused_reasons = [one for one in reasons if one in set(PauseReason)]
    live = (one for one in leases if one.claimed_at <= at < one.expires_at)
    lease = next((one for one in live if one.ended_at is None or one.ended_at >= at), None)
    run.lease_token = lease.token if lease is not None else None
    run.lease_expires_at = lease.expires_at if lease is not None else None
    run.lease_holder = lease.worker if lease is not None else ""


# --- Rows as they were ----------------------------------------------------------------------------------


def _evidence_then(held: OnRecord, before: _Before, attempts: Sequence[Attempt]) -> list[Evidence]:
    """Evidence by its entry, not by its time: what a decision brought with it comes after it."""
    recorded = {
        str(event.get("subject", ""))
        for leaf, event in before.entries
        if leaf.action == "evidence.recorded" and leaf.operation_ref
    }
    by_id = {one.pk: one for one in attempts}
    known = [one for one in held.evidence if one.pk in recorded]
    for one in known:
        one.attempt = by_id.get(one.attempt_id) if one.attempt_id is not None else None
    # As `judge_now` reads it: what a rule can follow from first.
    known.sort(key=lambda one: one.claim in TELLING, reverse=True)
    return known[:EVIDENCE_READ_MAX]


def _attempt_then(attempt: Attempt, at: datetime) -> Attempt:
    if attempt.ended_at is not None and attempt.ended_at >= at:
        attempt.outcome, attempt.ended_at = AttemptOutcome.OPEN, None
    return attempt


def _absence_then(request: AbsenceRequest, at: datetime) -> AbsenceRequest:
    """The request as it stood then: without an answer that came later."""
    if request.ended_at is None or request.ended_at < at:
        return request
    then = copy.copy(request)
    then.state, then.outcome, then.proved, then.ended_at = AbsenceState.SENT, "", False, None
    return then


def _grant_then(held: OnRecord, at: datetime) -> Grant | None:
    grant = next((one for one in held.grants if one.made_at < at), None)
    if grant is not None and grant.ended_at is not None and grant.ended_at >= at:
        grant.state, grant.ended_at = GrantState.OPEN, None
    return grant


def _account_then(slug: str, held: OnRecord, at: datetime) -> tuple[ProviderAccount, list[str]]:
    """The account as it was held to, and what of it can't be wound back."""
    moved: list[str] = []
    if any(one.made_at > at for one in held.declarations):
        moved.append("The provider was declared anew since; its contract then isn’t the one shown.")
    if not any(one.made_at > at for one in held.tightenings):
        return effective.account(slug), moved
    then = next((one for one in held.tightenings if one.made_at <= at), None)
    return held_to(registry.account(slug), then.values if then is not None else {}), moved


def decisions_of(operation: Operation) -> Sequence[Decision]:
    """Every decision about the operation, oldest first, by people and by policies."""
    return list(Decision.objects.filter(operation=operation).order_by("made_at", "id")[:ENTRIES_MAX])
