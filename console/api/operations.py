"""Calls about operations: ask for go, report what was seen, read."""

from __future__ import annotations

import base64
import json
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Body, Router

from console.api import answers, bodies, showing
from console.api.bearer import caller_of
from console.api.calling import JOURNAL, READ, call
from console.api.problems import answered
from reconciliation import place, reports, retries
from reconciliation.reports import Sender

router = Router(tags=["Operations"])

_REPORTED = {200: answers.ReportAnswer, 202: answers.ReportAnswer}


@router.get(
    "/operations/{id:operation_id}",
    **call(scopes=READ, answers={200: answers.OperationAnswer}, words=("not_found",), body=False),
)
def read_operation(request: HttpRequest, operation_id: str) -> HttpResponse:
    """Show an operation: its key, payload, attempts, and the receipt or refusal that settled it."""
    shown = showing.operation_full(team=caller_of(request).team, operation_id=operation_id)
    return answered(200, {"operation": shown})


@router.post(
    "/operations/{id:operation_id}/send",
    **call(
        scopes=JOURNAL,
        answers={200: answers.GoAnswer},
        words=(
            "not_found",
            "stale_token",
            "run_paused",
            "run_ended",
            "sending_frozen",
            "not_sendable",
            "start_window_passed",
            "attempt_ended",
        ),
    ),
)
def send_operation(request: HttpRequest, operation_id: str, payload: Body[bodies.Send]) -> HttpResponse:
    """Ask for go. A 200 means that the attempt is on record as sent, durably, and may start now.

    The sender starts within `start_within_ms`, counted by a monotonic clock from before it first asked, and
    takes at most `request_within_ms`. The same attempt id again gets go again, with the time that is left.
    """
    go = retries.begin_send(
        team=caller_of(request).team,
        operation_id=operation_id,
        token=payload.token,
        attempt_id=payload.attempt_id,
    )
    return answered(
        200,
        {
            "operation": go.operation_id,
            "attempt_id": go.attempt_id,
            "attempt": go.number,
            "idempotency_key": go.idempotency_key,
            "payload": json.loads(go.payload),
            "payload_base64": base64.b64encode(go.payload).decode(),
            "provider": go.provider,
            "start_within_ms": go.start_within_ms,
            "request_within_ms": go.request_within_ms,
            "replayed": go.replayed,
        },
    )


@router.post(
    "/operations/{id:operation_id}/receipt",
    **call(scopes=JOURNAL, answers=_REPORTED, words=("not_found", "receipt_mismatch", "receipt_reused")),
)
def report_receipt(
    request: HttpRequest, operation_id: str, payload: Body[bodies.GiveReceipt]
) -> HttpResponse:
    """Report the provider's proof of the effect. It confirms if it names the operation and matches it.

    A report that comes too late, or for an attempt that was never given, is 202: kept as evidence, from
    which the policy may conclude at once. Every refusal of a receipt has stored it first.
    """
    return _reported(
        payload.token,
        reports.report_receipt(
            sender=_sender(request, payload.token),
            operation_id=operation_id,
            attempt_id=payload.attempt_id,
            reference=payload.reference,
            seen=payload.seen(),
        ),
    )


@router.post(
    "/operations/{id:operation_id}/rejection",
    **call(scopes=JOURNAL, answers=_REPORTED, words=("not_found",)),
)
def report_rejection(request: HttpRequest, operation_id: str, payload: Body[bodies.Sighting]) -> HttpResponse:
    """Report a definite refusal of this attempt. `next` says whether that settles the operation."""
    return _reported(
        payload.token,
        reports.report_rejection(
            sender=_sender(request, payload.token),
            operation_id=operation_id,
            attempt_id=payload.attempt_id,
            seen=payload.seen(),
        ),
    )


@router.post(
    "/operations/{id:operation_id}/not-sent",
    **call(scopes=JOURNAL, answers=_REPORTED, words=("not_found",)),
)
def report_not_sent(request: HttpRequest, operation_id: str, payload: Body[bodies.Sighting]) -> HttpResponse:
    """Report a positive sign that this attempt's request never left. Silence is no such sign."""
    return _reported(
        payload.token,
        reports.report_not_sent(
            sender=_sender(request, payload.token),
            operation_id=operation_id,
            attempt_id=payload.attempt_id,
            seen=payload.seen(),
        ),
    )


@router.post(
    "/operations/{id:operation_id}/unknown",
    **call(scopes=JOURNAL, answers=_REPORTED, words=("not_found",)),
)
def report_unknown(request: HttpRequest, operation_id: str, payload: Body[bodies.Sighting]) -> HttpResponse:
    """Report an outcome that settles nothing: a time-out, a reset, a 5xx, an answer that can't be read."""
    return _reported(
        payload.token,
        reports.report_unknown(
            sender=_sender(request, payload.token),
            operation_id=operation_id,
            attempt_id=payload.attempt_id,
            seen=payload.seen(),
        ),
    )


def _sender(request: HttpRequest, token: str) -> Sender:
    return Sender(team=caller_of(request).team, token=token)


def _reported(token: str, answer: dict[str, Any]) -> HttpResponse:
    if answer["recorded_as_evidence"]:
        # Kept whatever it is; a token that this journal never gave says that the journal has forgotten.
        place.notice_token(operation_id=answer["operation"]["id"], token=token)
    return answered(202 if answer["recorded_as_evidence"] else 200, answer)
