"""What is on record, as JSON: runs, plans, operations and cases. Reads only; concludes nothing."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from console.pages.present.marks import NEEDS
from reconciliation.models import Case
from reconciliation.states import CaseState, Need
from runs.canonical import parse
from runs.leases import RunPaused, paused_sentence
from runs.locking import database_now
from runs.models import Attempt, Operation, Receipt, Run
from runs.plan import build_plan
from runs.refusals import NotFound, Refusal
from runs.states import PauseReason

# What a plan shows of an answer that isn't JSON (runs.plan shows as much).
TEXT_SHOWN_MAX = 2_000
# A person needs minutes; asking more often than this tells a worker nothing (API.md).
PERSON_RETRY_SECONDS = 30
# A lookup is made within seconds, and mostly settles it.
LOOKUP_RETRY_SECONDS = 2
# Of a run's open cases so many are named in a sentence; the plan has all of them.
CASES_NAMED_MAX = 3
_PERSON_STATES = (CaseState.NEEDS_DECISION, CaseState.AWAITING_APPROVAL)


# --- instants with their durations ----------------------------------------------------------------------


def utc(at: datetime) -> str:
    """ISO 8601 in UTC, with microseconds, ending in Z."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def ahead(name: str, at: datetime | None, now: datetime) -> dict[str, Any]:
    """`{name}_at` and `{name}_in_ms`, which is 0 once it has come."""
    left = None if at is None else max(0, _ms(at - now))
    return {f"{name}_at": at and utc(at), f"{name}_in_ms": left}


def passed(name: str, at: datetime | None, now: datetime) -> dict[str, Any]:
    """`{name}_at` and `{name}_ago_ms`."""
    return {f"{name}_at": at and utc(at), f"{name}_ago_ms": None if at is None else max(0, _ms(now - at))}


def _ms(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)


def value(content: bytes | memoryview | None) -> Any:
    """Stored JSON as a value; what not every reader reads alike as bounded text, as in a plan."""
    if content is None:
        return None
    try:
        return parse(bytes(content))
    except Refusal:
        return bytes(content).decode("utf-8", "replace")[:TEXT_SHOWN_MAX]


def amount(currency: str, minor: int | None) -> dict[str, Any] | None:
    return {"currency": currency, "minor": minor} if currency and minor is not None else None


# --- runs -----------------------------------------------------------------------------------------------


def find_run(*, team: str, run_id: str) -> Run:
    """The team's run with its flow and version; raises `NotFound`."""
    run = Run.objects.select_related("flow", "flow_version").filter(pk=run_id, team=team).first()
    if run is None:
        raise NotFound(f"There is no run {run_id} that you can see.", run=run_id)
    return run


def run_short(run: Run) -> dict[str, Any]:
    return {
        "id": run.id,
        "state": str(run.state),
        "flow": run.flow.name,
        "flow_version": run.flow_version.version,
        "external_id": run.external_id,
        "paused_reasons": list(run.paused_reasons),
    }


def run_full(run: Run) -> dict[str, Any]:
    now = database_now()
    lease = None
    if run.lease_token is not None and run.lease_expires_at is not None and run.lease_expires_at > now:
        # The token itself is its holder's alone.
        lease = {
            "number": run.lease_number,
            "holder": run.lease_holder,
            **ahead("expires", run.lease_expires_at, now),
        }
    budget = None
    if run.budget_currency:
        budget = {
            "currency": run.budget_currency,
            "limit_minor": run.budget_limit_minor,
            "reserved_minor": run.budget_reserved_minor,
            "spent_minor": run.budget_spent_minor,
            "held_minor": run.budget_held_minor,
        }
    return {
        **run_short(run),
        "goal": run.goal,
        "flow_digest": run.flow_version.digest,
        "input_digest": run.input_digest,
        "turn": run.turn_index,
        "lease": lease,
        "budget": budget,
        "approval": run.approval_id,
        "open_cases": list(
            Case.objects.filter(run=run)
            .exclude(state=CaseState.RESOLVED)
            .order_by("id")
            .values_list("id", flat=True)
        ),
        **passed("created", run.created_at, now),
        **passed("ended", run.ended_at, now),
        "end_reason": run.end_reason,
        "output": value(run.output),
    }


# --- plans ----------------------------------------------------------------------------------------------


def plan_of(run: Run) -> dict[str, Any]:
    """The run's plan, with the open case beside each call that waits and a duration beside each instant."""
    plan = build_plan(run)
    _name_cases(run, plan["turns"])
    dated = [(one, "recorded_at", "recorded_ago_ms") for one in plan["open_evidence"]]
    dated += [(one, "at", "ago_ms") for one in plan["known_failures"]]
    now = database_now() if dated else None
    for entry, at_name, ago_name in dated:
        at = datetime.fromisoformat(entry[at_name])
        entry[at_name] = utc(at)
        entry[ago_name] = max(0, _ms(now - at)) if now is not None else 0
    return plan


def plan_turn(run: Run, index: int) -> dict[str, Any]:
    """One turn of the plan; raises `NotFound`."""
    turns: list[dict[str, Any]] = build_plan(run, only_turn=index)["turns"]
    if not turns:
        raise NotFound(f"Run {run.id} has no turn {index}.", run=run.id, turn=index)
    _name_cases(run, turns)
    return turns[0]


def _name_cases(run: Run, turns: Iterable[dict[str, Any]]) -> None:
    open_calls = [call for turn in turns for call in turn["calls"] if call["next"] in ("wait", "repeat")]
    if not open_calls:
        return
    cases = dict(
        Case.objects.filter(run=run).exclude(state=CaseState.RESOLVED).values_list("operation_id", "id")
    )
    for call in open_calls:
        call["case"] = cases.get(call["operation"]["id"])


def paused_claim(
    team: str, run_id: str, refusal: RunPaused
) -> tuple[RunPaused, dict[str, Any], dict[str, str]]:
    """The refusal of a claim with its cases named, what it carries besides, and when to look again."""
    run = find_run(team=team, run_id=run_id)
    reasons = refusal.details.get("reasons", [])
    by_person = [reason for reason in reasons if reason != PauseReason.OUTCOME]
    opened = Case.objects.filter(run=run).exclude(state=CaseState.RESOLVED).order_by("opened_at", "id")
    open_cases = list(opened.values_list("id", "state", "need")[: CASES_NAMED_MAX + 1])
    awaited = bool(by_person) or any(state in _PERSON_STATES for _, state, _ in open_cases)
    seconds = PERSON_RETRY_SECONDS if awaited else LOOKUP_RETRY_SECONDS
    outcome = " and ".join(_case_waits(*one) for one in open_cases[:CASES_NAMED_MAX])
    if len(open_cases) > CASES_NAMED_MAX:
        outcome += ", and more"
    said = RunPaused(paused_sentence(run_id, reasons, outcome=outcome), **refusal.details)
    return said, {"plan": plan_of(run)}, {"Retry-After": str(seconds)}


def _case_waits(case_id: str, state: str, need: str) -> str:
    match CaseState(state):
        case CaseState.NEEDS_DECISION:
            why = NEEDS.get(Need(need), need) if need else ""
            return f"{case_id} waits for a person" + (f" ({why[0].lower()}{why[1:]})" if why else "")
        case CaseState.AWAITING_APPROVAL:
            return f"{case_id} waits for an approver"
        case CaseState.RETRYING:
            return f"{case_id} waits for a retry that was granted"
        case _:
            return f"{case_id} is being looked up"


# --- operations -----------------------------------------------------------------------------------------


def operation_full(*, team: str, operation_id: str) -> dict[str, Any]:
    """One operation of the team with its attempts; raises `NotFound`."""
    operation = Operation.objects.select_related("call").filter(pk=operation_id, team=team).first()
    if operation is None:
        raise NotFound(f"There is no operation {operation_id} that you can see.", operation=operation_id)
    now = database_now()
    receipt = Receipt.objects.filter(operation=operation).first()
    open_case = Case.objects.filter(operation=operation).exclude(state=CaseState.RESOLVED).first()
    return {
        "id": operation.pk,
        "state": str(operation.state),
        "idempotency_key": operation.key,
        "digest": operation.payload_digest,
        "run": operation.run_id,
        "turn": operation.turn_index,
        "call_id": operation.call.call_id,
        "tool": operation.tool,
        "provider": operation.provider_id,
        "payload": value(operation.payload),
        "amount": amount(operation.amount_currency, operation.amount_minor),
        "attempts": [
            _attempt(one, now) for one in Attempt.objects.filter(operation=operation).order_by("number")
        ],
        "receipt": receipt
        and {
            "reference": receipt.reference,
            "body": value(receipt.body),
            "matched_by": receipt.matched_by,
        },
        "refusal": value(operation.refusal),
        "known_effect": operation.known_effect,
        "open_case": open_case.pk if open_case else None,
        **passed("created", operation.created_at, now),
        **passed("settled", operation.settled_at, now),
    }


def _attempt(attempt: Attempt, now: datetime) -> dict[str, Any]:
    return {
        "attempt_id": attempt.attempt_id,
        "number": attempt.number,
        "executor": attempt.executor,
        "worker": attempt.worker,
        "outcome": attempt.outcome,
        **passed("minted", attempt.minted_at, now),
        **ahead("quiet_after", attempt.quiet_after_at, now),
    }


def content_shown(content: bytes, *, length_max: int) -> dict[str, Any]:
    """Bytes as text where they are text, else as base64; cut at `length_max` bytes."""
    shown = content[:length_max]
    # A cut may go through a character of up to four bytes: that is no reason to show base64.
    for dropped in range(4 if len(shown) < len(content) else 1):
        try:
            return {"body": shown[: len(shown) - dropped].decode(), "body_base64": None}
        except UnicodeDecodeError:
            continue
    return {"body": None, "body_base64": base64.b64encode(shown).decode()}
