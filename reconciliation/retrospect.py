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

from django.db.models import Q

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
    attempts: tuple[Attempt, ...]
    lookup: Lookup | None
    moved: tuple[str, ...]
    named: str

    @property
    def agrees(self) -> bool:
        """Whether what is shown is proved to be what the decision was made on."""
        return self.named == self.judged.evidence_digest


def known_at(*, decision_id: str, operation: Operation) -> Known:
    """Wind an operation back to one of its decisions. Raises `NotFound`."""
    decision = (
        Decision.objects.select_related("case", "operation__call", "operation__run__flow")
        .select_related("operation__run__flow_version")
        .filter(pk=decision_id, operation=operation)
        .first()
    )
    if decision is None:
        raise NotFound(
            f"There is no decision {decision_id[:64]} that you can see.", decision=decision_id[:64]
        )
    before = _entries_before(decision)
    at = decision.made_at
    case, op, run = decision.case, copy.copy(decision.operation), copy.copy(decision.operation.run)
    told = [event for leaf, event in before.entries if leaf.operation_ref]
    _wind_case(case, told, before.entry)
    _wind_operation(op, told, at)
    _wind_run(run, [event for leaf, event in before.entries if not leaf.operation_ref], at)
    evidence = _evidence(op, before)
    minted = op.attempts.filter(minted_at__lte=at).order_by("number")
    attempts = tuple(_attempt_then(one, at) for one in minted)
    seen = [one.pk for one in evidence]
    lookups = Lookup.objects.filter(operation=op, evidence__in=seen).order_by("-id")
    lookup = lookups.filter(finding__in=INFORMATIVE).first()
    ours = lookups.filter(finding__in=[str(kind) for kind in SHOWS_OURS]).first()
    case.lookups_count = lookups.filter(case=case).count()
    account, moved = _account_then(op.provider_id, at)
    facts = gather_facts(
        run=run,
        operation=op,
        case=case,
        account=account,
        evidence=evidence,
        rows=Rows(
            attempts=attempts,
            grant=_grant_then(op, at),
            lookup=lookup,
            ours_shown=ours.evidence_id if ours is not None else "",
            decided=may_repeat_alone(run)
            and Decision.objects.filter(operation=op, made_at__lt=at).exclude(pk=decision.pk).exists(),
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


def _entries_before(decision: Decision) -> _Before:
    of_it = Q(operation_ref=decision.operation_id) | Q(run_ref=decision.case.run_id, operation_ref="")
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


def _wind_operation(operation: Operation, told: Iterable[_Event], at: datetime) -> None:
    operation.state = OperationState.READY
    for event in told:
        action, state = str(event.get("action", "")), _part(event, "after").get("state")
        if action in _SENT:
            operation.state = OperationState.SENT_UNKNOWN
        elif action.startswith("operation.") and state in set(OperationState):
            operation.state = str(state)


def _wind_run(run: Run, told: Iterable[_Event], at: datetime) -> None:
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
    lease = (
        Lease.objects.filter(run=run, claimed_at__lte=at, expires_at__gt=at)
        .filter(Q(ended_at__isnull=True) | Q(ended_at__gte=at))
        .order_by("-number")
        .first()
    )
    run.lease_token = lease.token if lease is not None else None
    run.lease_expires_at = lease.expires_at if lease is not None else None
    run.lease_holder = lease.worker if lease is not None else ""


# --- Rows as they were ----------------------------------------------------------------------------------


def _evidence(operation: Operation, before: _Before) -> list[Evidence]:
    """Evidence by its entry, not by its time: what a decision brought with it comes after it."""
    recorded = {
        str(event.get("subject", ""))
        for leaf, event in before.entries
        if leaf.action == "evidence.recorded" and leaf.operation_ref == operation.pk
    }
    rows = Evidence.objects.filter(operation=operation, pk__in=recorded).select_related("attempt")
    return list(
        rows.annotate(tells=Q(claim__in=TELLING)).order_by("-tells", "-recorded_at", "-id")[
            :EVIDENCE_READ_MAX
        ]
    )


def _attempt_then(attempt: Attempt, at: datetime) -> Attempt:
    if attempt.ended_at is not None and attempt.ended_at >= at:
        attempt.outcome, attempt.ended_at = AttemptOutcome.OPEN, None
    return attempt


def _grant_then(operation: Operation, at: datetime) -> Grant | None:
    grant = Grant.objects.filter(operation=operation, made_at__lt=at).order_by("-made_at", "-id").first()
    if grant is not None and grant.ended_at is not None and grant.ended_at >= at:
        grant.state, grant.ended_at = GrantState.OPEN, None
    return grant


def _account_then(slug: str, at: datetime) -> tuple[ProviderAccount, list[str]]:
    """The account as it was held to, and what of it can't be wound back."""
    moved: list[str] = []
    if Declaration.objects.filter(account=slug, made_at__gt=at).exists():
        moved.append("The provider was declared anew since; its contract then isn’t the one shown.")
    if not Tightening.objects.filter(account=slug, made_at__gt=at).exists():
        return effective.account(slug), moved
    then = Tightening.objects.filter(account=slug, made_at__lte=at).order_by("-number").first()
    return held_to(registry.account(slug), then.values if then is not None else {}), moved


def decisions_of(operation: Operation) -> Sequence[Decision]:
    """Every decision about the operation, oldest first, by people and by policies."""
    return list(Decision.objects.filter(operation=operation).order_by("made_at", "id")[:ENTRIES_MAX])
