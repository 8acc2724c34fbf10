"""The plan: what a worker that resumes a run is told, turn by turn and call by call (DESIGN §3).

Computed from the journal alone, so that a resumed run never asks the model to choose again and never
guesses from its own memory what happened.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from runs.canonical import parse
from runs.models import Attempt, Call, Evidence, Grant, Operation, Receipt, Run, Turn
from runs.refusals import Refusal
from runs.states import AttemptOutcome, Executor, GrantState, OperationState

# A plan is read by a program and a person; what is listed beside the turns is bounded.
EVIDENCE_LISTED_MAX = 50
# Receipts and refusals are shown as JSON where they are JSON, as bounded text where they aren't.
TEXT_SHOWN_MAX = 2000


def build_plan(run: Run, *, only_turn: int | None = None) -> dict[str, Any]:
    """Return the plan of a run, in the API's shape; with `only_turn`, of that turn alone.

    Queries don't grow with the number of turns: one each for turns, calls, operations, receipts, grants. Of
    one turn, what they read doesn't grow with the turns before it either.
    """
    saved = Turn.objects.filter(run=run).order_by("index")
    chosen = Call.objects.filter(run=run).order_by("turn_id", "position")
    effects = Operation.objects.filter(run=run).defer("payload")
    if only_turn is not None:
        saved = saved.filter(index=only_turn)
        chosen = chosen.filter(turn__index=only_turn)
        effects = effects.filter(turn_index=only_turn)
    # In this order: a turn may be saved meanwhile, and an effect seen without its operation would look like
    # a read, which anybody may repeat.
    turns, calls = list(saved), list(chosen)
    operations = {one.call_id: one for one in effects}
    facts = _Facts(run, list(operations.values()), only_turn)
    return {
        "run_id": run.id,
        "state": str(run.state),
        "paused_reasons": list(run.paused_reasons),
        "goal": run.goal,
        "input": _value(bytes(run.input)),
        "turns": plan_turns(
            turns=turns, calls=calls, operations=operations, receipts=facts.receipts, granted=facts.granted
        ),
        "open_evidence": facts.open_evidence,
        "known_failures": facts.known_failures,
    }


def plan_turns(
    *,
    turns: Iterable[Turn],
    calls: Iterable[Call],
    operations: Mapping[int, Operation],
    receipts: Mapping[str, Receipt],
    granted: Collection[str],
) -> list[dict[str, Any]]:
    """Return what each call of these turns says next, from rows that were read already: no query.

    Operations by their call, receipts by their operation, and operations that the agent may send once more.
    """
    by_turn: dict[int, list[dict[str, Any]]] = {}
    for call in calls:
        planned = _plan_call(call, operations.get(call.pk), receipts, granted)
        by_turn.setdefault(call.turn_id, []).append(planned)
    return [
        {
            "index": turn.index,
            "decision": _value(bytes(turn.decision)),
            "parallel": turn.parallel == "parallel",
            "calls": by_turn.get(turn.pk, []),
        }
        for turn in turns
    ]


class _Facts:
    """What the calls' next steps depend on, read once for the whole run or for one of its turns."""

    def __init__(self, run: Run, operations: list[Operation], only_turn: int | None) -> None:
        scope: dict[str, Any] = {"operation__run": run}
        if only_turn is not None:
            scope["operation__turn_index"] = only_turn
        self.receipts = {one.operation_id: one for one in Receipt.objects.filter(**scope)}
        self.granted = set(
            Grant.objects.filter(**scope, state=GrantState.OPEN, executor=Executor.AGENT).values_list(
                "operation_id", flat=True
            )
        )
        unsettled = [one.pk for one in operations if one.state == OperationState.SENT_UNKNOWN]
        evidence = Evidence.objects.filter(operation__in=unsettled).order_by("-recorded_at", "-id")
        self.open_evidence = [
            {
                "id": one.pk,
                "operation": one.operation_id,
                "kind": one.kind,
                "finding": one.finding or None,
                "summary": one.summary,
                "recorded_at": one.recorded_at.isoformat(),
            }
            for one in evidence[:EVIDENCE_LISTED_MAX]
        ]
        failed = Attempt.objects.filter(
            **scope,
            outcome__in=[AttemptOutcome.REJECTED, AttemptOutcome.UNKNOWN, AttemptOutcome.UNREPORTED],
        ).order_by("-minted_at")
        self.known_failures = [
            {
                "operation": one.operation_id,
                "attempt_id": one.attempt_id,
                "number": one.number,
                "outcome": one.outcome,
                "at": one.minted_at.isoformat(),
            }
            for one in failed[:EVIDENCE_LISTED_MAX]
        ]


def _plan_call(
    call: Call, operation: Operation | None, receipts: Mapping[str, Receipt], granted: Collection[str]
) -> dict[str, Any]:
    planned: dict[str, Any] = {
        "call_id": call.call_id,
        "tool": call.tool,
        "effect": call.kind == "effect",
        "provider": None,
        "args": _value(bytes(call.args)),
        "amount": None,
    }
    if operation is None:
        if call.result is None:
            return {**planned, "next": "read"}
        return {**planned, "next": "skip", "result": _value(bytes(call.result))}
    planned["provider"] = operation.provider_id
    if operation.amount_minor is not None:
        planned["amount"] = {"currency": operation.amount_currency, "minor": operation.amount_minor}
    planned["operation"] = {
        "id": operation.pk,
        "state": str(operation.state),
        "idempotency_key": operation.key,
        "digest": operation.payload_digest,
    }
    return {**planned, **_next_step(operation, receipts, granted)}


def _next_step(
    operation: Operation, receipts: Mapping[str, Receipt], granted: Collection[str]
) -> dict[str, Any]:
    match OperationState(operation.state):
        case OperationState.READY:
            return {"next": "send"}
        case OperationState.SENT_UNKNOWN:
            return {"next": "repeat" if operation.pk in granted else "wait"}
        case OperationState.CONFIRMED:
            receipt = receipts[operation.pk]
            return {
                "next": "skip",
                "receipt": {
                    "reference": receipt.reference,
                    "body": _value(bytes(receipt.body)),
                    "matched_by": receipt.matched_by,
                },
            }
        case OperationState.REJECTED:
            return {"next": "skip", "refusal": _value(bytes(operation.refusal or b"null"))}
        case OperationState.ABANDONED:
            return {"next": "skip", "abandoned": {"known_effect": operation.known_effect}}


def _value(content: bytes) -> Any:
    """Return stored JSON as a value, anything else as bounded text.

    A receipt is the provider's: what not every reader reads alike (NaN, a name twice, half of a surrogate
    pair, endless nesting) would break the plan for its reader, and is shown as the text that it is.
    """
    try:
        return parse(content)
    except Refusal:
        return content.decode("utf-8", "replace")[:TEXT_SHOWN_MAX]
