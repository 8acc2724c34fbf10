"""The shapes of the answers, for the OpenAPI document and for tests; the calls build them as plain dicts.

Every instant stands with a duration in milliseconds: `…_at` with `…_in_ms` if it lies ahead, with
`…_ago_ms` if it has passed.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Json = Any


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Problem(BaseModel):
    """RFC 9457; further members depend on the word."""

    model_config = ConfigDict(extra="allow")

    type: str
    word: str
    title: str
    status: int
    detail: str


class MoneyShape(Shape):
    currency: str
    minor: int


class RunShort(Shape):
    id: str
    state: Literal["open", "paused", "completed", "abandoned"]
    flow: str
    flow_version: str
    external_id: str
    paused_reasons: list[str]


class LeaseShown(Shape):
    number: int
    holder: str
    expires_at: str
    expires_in_ms: int


class BudgetShown(Shape):
    currency: str
    limit_minor: int | None
    reserved_minor: int
    spent_minor: int
    held_minor: int


class RunFull(RunShort):
    goal: str
    flow_digest: str
    input_digest: str
    turn: int
    lease: LeaseShown | None
    budget: BudgetShown | None
    approval: str | None
    open_cases: list[str]
    created_at: str
    created_ago_ms: int
    ended_at: str | None
    ended_ago_ms: int | None
    end_reason: str
    output: Json


class OperationShort(Shape):
    id: str
    state: Literal["ready", "sent_unknown", "confirmed", "rejected", "abandoned"]


class PlannedOperation(OperationShort):
    idempotency_key: str
    digest: str


class ReceiptShown(Shape):
    reference: str
    body: Json
    matched_by: str


class PlanCall(Shape):
    """One saved call and its next step; a read has no operation."""

    call_id: str
    tool: str
    effect: bool
    provider: str | None
    args: Json
    amount: MoneyShape | None
    next: Literal["skip", "read", "send", "wait", "repeat"]
    operation: PlannedOperation | None = None
    case: str | None = None
    result: Json = None
    receipt: ReceiptShown | None = None
    refusal: Json = None
    abandoned: Json = None


class PlanTurn(Shape):
    index: int
    decision: Json
    parallel: bool
    calls: list[PlanCall]


class Plan(Shape):
    run_id: str
    state: str
    paused_reasons: list[str]
    goal: str
    input: Json
    turns: list[PlanTurn]
    open_evidence: list[dict[str, Json]]
    known_failures: list[dict[str, Json]]


class RunAnswer(Shape):
    run: RunFull


class RunStarted(Shape):
    run: RunShort
    replayed: bool


class RunMoved(RunStarted):
    pass


class RunList(Shape):
    runs: list[RunShort]
    next: str | None = Field(description="Give it as `after` for the following page.")


class PlanAnswer(Shape):
    plan: Plan


class Claimed(Shape):
    token: str
    claim_id: str
    expires_at: str
    expires_in_ms: int
    plan: Plan
    replayed: bool


class Renewed(Shape):
    expires_at: str
    expires_in_ms: int


class TurnAnswer(Shape):
    turn: PlanTurn
    replayed: bool


class ResultAnswer(Shape):
    call_id: str
    digest: str
    replayed: bool


class GoAnswer(Shape):
    operation: str
    attempt_id: str
    attempt: int
    idempotency_key: str
    payload: Json
    payload_base64: str
    provider: str
    start_within_ms: int
    request_within_ms: int
    replayed: bool


class AttemptNamed(Shape):
    attempt_id: str
    number: int | None
    outcome: str | None


class ReportAnswer(Shape):
    operation: OperationShort
    attempt: AttemptNamed
    next: Literal["continue", "stop"]
    case: str | None
    recorded_as_evidence: bool
    replayed: bool


class AttemptShown(Shape):
    attempt_id: str
    number: int
    executor: str
    worker: str
    outcome: str
    minted_at: str
    minted_ago_ms: int
    quiet_after_at: str
    quiet_after_in_ms: int


class OperationFull(PlannedOperation):
    run: str
    turn: int
    call_id: str
    tool: str
    provider: str
    payload: Json
    amount: MoneyShape | None
    attempts: list[AttemptShown]
    receipt: ReceiptShown | None
    refusal: Json
    known_effect: str
    open_case: str | None
    created_at: str
    created_ago_ms: int
    settled_at: str | None
    settled_ago_ms: int | None


class OperationAnswer(Shape):
    operation: OperationFull


class AnswerShown(Shape):
    number: int
    question: str
    answer: Literal["yes", "no", "unknown"]
    sentence: str
    until_at: str | None
    until_in_ms: int | None


class ActionShown(Shape):
    action: Literal["confirm", "retry", "abandon", "make_absent", "accept", "compensate"]
    permission: Literal["allowed", "second_person", "locked"]
    sentence: str
    question: int | None
    unlocks_at: str | None
    unlocks_in_ms: int | None
    closes_at: str | None
    closes_in_ms: int | None


class EvidenceShown(Shape):
    id: str
    kind: str
    claim: str
    finding: str | None
    summary: str
    reference: str | None
    actor: str
    recorded_at: str
    recorded_ago_ms: int
    seen: dict[str, Json]
    body: str | None
    body_base64: str | None
    body_length: int
    body_sha256: str | None
    body_cut: bool


class LookupShown(Shape):
    number: int
    finding: str
    summary: str
    proof: str
    asked_by: str
    asked_at: str
    asked_ago_ms: int
    duration_ms: int
    evidence: str
    used: str


class DecisionShown(Shape):
    id: str
    action: str
    actor: str
    actor_name: str
    role: str
    reason_code: str
    reason: str
    seen_version: int
    made_at: str
    made_ago_ms: int


class CaseShort(Shape):
    id: str
    operation: str
    run: str
    number: int
    kind: Literal["unknown", "conflict"]
    state: Literal["looking_up", "needs_decision", "awaiting_approval", "retrying", "resolved"]
    need: str | None
    # Why lookups were given up and a person is asked; null while the case isn't parked.
    parked_because: str | None
    resolution: str | None
    version: int
    opened_because: str
    finding: str | None
    finding_summary: str | None
    provider: str
    tool: str
    flow: str
    at_risk: MoneyShape | None
    opened_at: str
    opened_ago_ms: int
    decide_by_at: str
    decide_by_in_ms: int


class CaseFull(CaseShort):
    evidence_digest: str
    answers: list[AnswerShown]
    actions: list[ActionShown]
    evidence: list[EvidenceShown]
    lookups: list[LookupShown]
    decisions: list[DecisionShown]
    next_lookup_at: str | None
    next_lookup_in_ms: int | None


class CaseAnswer(Shape):
    case: CaseFull


class CaseList(Shape):
    cases: list[CaseShort]
    next: str | None


class CaseMoved(Shape):
    id: str
    state: str
    version: int
    resolution: str | None


class RunState(Shape):
    id: str
    state: str
    paused_reasons: list[str]


class DecisionAnswer(Shape):
    decision: str
    action: str
    case: CaseMoved
    operation: OperationShort
    run: RunState
    grant: str | None
    replayed: bool


class ApprovalAsked(Shape):
    """The decision takes a second person, who is asked; `approval` is the request, `why` says why two."""

    approval: str
    action: str
    why: str
    expires_at: str
    expires_in_ms: int
    case: CaseMoved
    operation: OperationShort
    run: RunState
    replayed: bool


class ApprovalShort(Shape):
    id: str
    kind: Literal[
        "override",
        "retry",
        "abandonment",
        "budget_raise",
        "approval_renewal",
        "flow_version",
        "held_freed",
        "make_absent",
    ]
    title: str
    state: Literal["requested", "approved", "carried_out", "refused", "withdrawn", "expired", "voided"]
    run: str
    operation: str | None
    case: str | None
    requester: str
    requester_name: str
    reason_code: str
    reason: str
    content_digest: str
    requested_at: str
    requested_ago_ms: int
    expires_at: str
    expires_in_ms: int
    answerer: str | None
    answerer_name: str | None
    answered_at: str | None
    answered_ago_ms: int | None
    comment: str
    ended_at: str | None
    ended_ago_ms: int | None
    voided_because: str


class ApprovalMessageShown(Shape):
    id: str
    kind: Literal["question", "reply"]
    text: str
    actor: str
    actor_name: str
    made_at: str
    made_ago_ms: int


class ApprovalFull(ApprovalShort):
    # Everything that is consented to; `content_digest` is the SHA-256 of its canonical form (RFC 8785).
    content: dict[str, Json]
    decision: str | None
    messages: list[ApprovalMessageShown]


class ApprovalAnswer(Shape):
    approval: ApprovalFull


class ApprovalList(Shape):
    approvals: list[ApprovalShort]
    next: str | None


class ApprovalMoved(Shape):
    approval: ApprovalShort
    case: CaseMoved | None
    decision: str | None
    replayed: bool


class ApprovalMessageMade(Shape):
    approval: str
    message: str
    replayed: bool


class LookupAsked(Shape):
    case: CaseMoved
    next_lookup_at: str | None
    next_lookup_in_ms: int | None


class Withdrawn(Shape):
    withdrawn: bool
    case: CaseMoved


class Attached(Shape):
    evidence: str
    case: CaseMoved
    replayed: bool
