"""Operations at the shipped sandbox accounts, reported on, taken in, looked up and decided about."""

from __future__ import annotations

import itertools
import json
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.db.models import F

from reconciliation import decisions, intake, lookups, reports
from reconciliation.accounts import sync_accounts
from reconciliation.decisions import Asked, Decided, GivenReceipt
from reconciliation.gate_models import AccountGate
from reconciliation.gathering import Judged, judge_now
from reconciliation.models import Case
from reconciliation.providers import registry
from reconciliation.reports import SeenReply, Sender
from reconciliation.states import Action, CaseState
from runs.actors import Actor
from runs.models import Operation, Run
from runs.refusals import Refusal
from tests.factories import PERSON, TEAM, Claimed, effect, fresh, held, make_claimed, quieten, send

SUPPLIER, DESK, COURIER, PAYMENTS = (
    "sandbox-supplier",
    "sandbox-desk",
    "sandbox-courier",
    "sandbox-payments",
)
# No token of the run's, and of the same form.
ANOTHER_TOKEN = "7-00000000000000000000"
REASON = "The supplier was asked by telephone."
_keys = itertools.count(1)


def declare() -> None:
    """Read the declarations anew, for the address of this test's sandbox, and tell the journal of them."""
    registry.reload()
    sync_accounts()


def make_sent(
    provider: str = SUPPLIER, *, minor: int | None = None, attempt_id: str = "a1", **fields: Any
) -> Claimed:
    """A run under a live lease whose one operation is sent and not reported."""
    args = {"sku": "FC-20", "quantity": 40}
    if minor is not None:
        args |= {"amount_minor": minor, "currency": "EUR"}
    claimed = make_claimed(effect(provider=provider, args=args, minor=minor), **fields)
    send(claimed, attempt_id=attempt_id)
    return claimed


def record(operation: Operation, reference: str = "ord_1", **changes: Any) -> dict[str, Any]:
    """What the sandbox would show for this operation."""
    payload = json.loads(bytes(operation.payload))
    return {
        **payload,
        "id": reference,
        "status": "succeeded",
        "idempotency_key": operation.key,
        **changes,
    }


def report(
    what: str,
    claimed: Claimed,
    *,
    token: str | None = None,
    attempt_id: str = "a1",
    reference: str = "ord_1",
    operation: Operation | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """Report on the operation, by default as its worker; `changes` are to the record or to what was seen."""
    of = operation or claimed.operation
    sender = Sender(team=TEAM, token=claimed.token if token is None else token)
    told: dict[str, Any] = {"sender": sender, "operation_id": of.pk, "attempt_id": attempt_id}
    match what:
        case "receipt":
            body = json.dumps(record(of, reference, **changes)).encode()
            return reports.report_receipt(**told, reference=reference, seen=SeenReply(status=201, body=body))
        case "rejection":
            return reports.report_rejection(
                **told, seen=SeenReply(**{"status": 422, "body": b'{"error":"no stock"}', **changes})
            )
        case "not_sent":
            return reports.report_not_sent(
                **told, seen=SeenReply(**{"error": "ConnectError", "phase": "connect", **changes})
            )
        case _:
            return reports.report_unknown(
                **told, seen=SeenReply(**{"error": "ReadTimeout", "phase": "waiting", **changes})
            )


def report_refused(what: str, claimed: Claimed, **fields: Any) -> Refusal | None:
    """As `report`, for reports that may be refused; what is refused is kept all the same."""
    try:
        report(what, claimed, **fields)
    except Refusal as refusal:
        return refusal
    return None


def in_doubt(provider: str = SUPPLIER, **fields: Any) -> tuple[Claimed, Case]:
    """An operation whose sender saw no answer, its quiet time over; nobody has looked it up yet."""
    claimed = make_sent(provider, **fields)
    report("unknown", claimed)
    quieten(claimed.operation)
    return claimed, case_of(claimed)


def case_of(claimed: Claimed, operation: Operation | None = None) -> Case:
    """The operation's latest case."""
    return Case.objects.filter(operation=operation or claimed.operation).order_by("-number")[0]


def open_case_of(claimed: Claimed, operation: Operation | None = None) -> Case | None:
    of = operation or claimed.operation
    return Case.objects.filter(operation=of).exclude(state=CaseState.RESOLVED).first()


def state_of(claimed: Claimed) -> str:
    return fresh(claimed.operation).state


def due_now(case: Case) -> None:
    """Let the case's next lookup be due, as time would, and the provider's pauses be over."""
    AccountGate.objects.all().delete()
    Case.objects.filter(pk=case.pk, next_lookup_at__isnull=False).update(
        next_lookup_at=F("opened_at") - timedelta(seconds=1)
    )


def look(case: Case) -> str:
    """Look the case up now, as the next worker would; the finding."""
    due_now(case)
    return lookups.look_up(case_id=case.pk)


def judged(case: Case) -> Judged:
    """What a page would show of the case."""
    with held(Operation.objects.get(pk=case.operation_id)) as locked:
        return judge_now(run=locked.run, operation=locked.operation, case=fresh(case), now=locked.now)


def asked(case: Case, action: Action, **fields: Any) -> Asked:
    """A decision as somebody would ask for it who has just opened the case's page."""
    usual: dict[str, Any] = {
        "action": action,
        "seen_version": fresh(case).version,
        "evidence_digest": judged(case).evidence_digest,
        "reason_code": "not_at_provider",
        "reason": REASON,
        "idempotency_key": f"key-{next(_keys)}",
        "executor": "agent" if action == Action.RETRY else "",
        "then": "continue" if action == Action.ABANDON else "",
    }
    return Asked(**{**usual, **fields})


def decide(
    case: Case,
    action: Action,
    *,
    actor: Actor = PERSON,
    team: str | None = TEAM,
    may_ask: bool = True,
    **fields: Any,
) -> Decided:
    return decisions.decide(
        case_id=case.pk,
        team=team,
        actor=actor,
        asked=asked(case, action, **fields),
        actor_name=actor.id.removeprefix("person:").title(),
        may_ask=may_ask,
    )


def given(operation: Operation, reference: str = "ord_1", **changes: Any) -> GivenReceipt:
    """The provider's record as a person would paste it."""
    return GivenReceipt(
        reference=reference, body=json.dumps(record(operation, reference, **changes)).encode()
    )


def take_in(run: Run) -> int:
    return intake.take_in_run(run_id=run.pk)


def ignore_refusal(act: Any, *args: Any, **kwargs: Any) -> None:
    with suppress(Refusal):
        act(*args, **kwargs)
