"""The five answers for a page of cases at once: as many queries for fifty cases as for one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet, Subquery

from reconciliation.accounts import account_of
from reconciliation.contracts import Contract, ProviderAccount
from reconciliation.facts import Facts
from reconciliation.gathering import attempt_facts, pinned_of
from reconciliation.models import Case
from reconciliation.questions import Answer, answer_questions
from reconciliation.states import CaseKind, CaseState
from runs.models import Attempt, Evidence
from runs.states import Claim, EvidenceKind, OperationState, PauseReason, RunState


@dataclass(frozen=True, kw_only=True)
class Overview:
    """What the questions need of a case, and their answers; not enough to decide by."""

    facts: Facts
    account: ProviderAccount
    contract: Contract
    answers: tuple[Answer, ...]


def answers_of(cases: Sequence[Case], *, now: datetime) -> dict[str, Overview]:
    """Answer the five questions for each case, by its id.

    Each case's `operation`, `operation.call`, `run` and `run.flow_version` must be loaded with it, and
    `stray_report()` as `stray_report`. One query, however many cases.
    """
    operations = [case.operation_id for case in cases]
    attempts: dict[str, list[Attempt]] = defaultdict(list)
    not_sent: set[int] = set()
    for attempt in _attempts(operations):
        attempts[attempt.operation_id].append(attempt)
        if attempt.reported_not_sent:
            not_sent.add(attempt.pk)
    return {
        case.pk: _answer(
            case,
            account_of(case.provider_slug),
            attempts[case.operation_id],
            # What the query annotated.
            vars(case)["stray_report"] or "",
            not_sent,
            now,
        )
        for case in cases
    }


def stray_report() -> Subquery:
    """For a query of cases: evidence that somebody sent who never asked, by its id."""
    stray = Evidence.objects.filter(operation=OuterRef("operation"), kind=EvidenceKind.STRAY_REPORT)
    return Subquery(stray.order_by("-recorded_at").values("pk")[:1])


def _attempts(operations: Sequence[str]) -> QuerySet[Any]:
    """The attempts in order, with whether it was said later that they never left."""
    not_sent = Evidence.objects.filter(attempt=OuterRef("pk"), claim=Claim.NOT_SENT)
    return (
        Attempt.objects.filter(operation__in=operations)
        .annotate(reported_not_sent=Exists(not_sent))
        .order_by("operation", "number")
    )


def _answer(
    case: Case,
    account: ProviderAccount,
    attempts: list[Attempt],
    stray: str,
    not_sent: set[int],
    now: datetime,
) -> Overview:
    operation, run = case.operation, case.run
    facts = Facts(
        operation_state=OperationState(operation.state),
        case_kind=CaseKind(case.kind),
        case_state=CaseState(case.state),
        opened_at=case.opened_at,
        turn_index=operation.turn_index,
        call_id=operation.call.call_id,
        attempts=tuple(attempt_facts(one, run, one.pk in not_sent, now) for one in attempts),
        first_sent_at=operation.first_sent_at,
        last_quiet_at=operation.last_quiet_at,
        pinned=pinned_of(operation),
        current=account.pin if operation.sent_by else None,
        console_can_send=account.console_can_send,
        can_be_asked_here=account.configured,
        sent_by_unknown=stray,
        run_state=RunState(run.state),
        paused_for_version=(
            run.flow_version.version if PauseReason.FLOW_VERSION in run.paused_reasons else ""
        ),
        approval_until_at=run.approval_until_at,
    )
    return Overview(
        facts=facts,
        account=account,
        contract=account.contract,
        answers=answer_questions(facts, account.contract, now),
    )
