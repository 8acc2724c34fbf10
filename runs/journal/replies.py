"""Reports on attempts: the usual one in a statement of its own, and what the others are answered from."""

from __future__ import annotations

from typing import Any

from django.db import IntegrityError, connection

from runs.canonical import digest
from runs.ids import could_be_id, new_id
from runs.journal.prepared import fetch_one
from runs.journal.settling import ReceiptFacts
from runs.journal.statements import CONFIRM_BY_REPLY
from runs.locking import LockedOperation
from runs.models import Attempt, Report
from runs.states import AttemptOutcome


def confirm_by_reply(
    *,
    team: str | None,
    operation_id: str,
    token: str,
    attempt_id: str,
    receipt: ReceiptFacts,
    report_digest: str,
) -> int | None:
    """sent_unknown → confirmed in one commit, by the attempt's own sender under its live token.

    Returns the attempt's number; None when anything at all is unusual (stale token, a doubt, a repeat, a
    receipt that is already taken), with nothing changed: the slow path under the lock then says what it is.
    """
    if not all(could_be_id(one) for one in (operation_id, token, attempt_id)):
        return None
    try:
        row = fetch_one(
            CONFIRM_BY_REPLY,
            {
                "operation": operation_id,
                "team": team,
                "token": token,
                "attempt_id": attempt_id,
                "receipt_id": new_id("rcpt"),
                "reference": receipt.reference,
                "body": receipt.body,
                "body_digest": digest(receipt.body),
                "matched_by": str(receipt.matched_by),
                "amount_currency": receipt.amount_currency,
                "amount_minor": receipt.amount_minor,
                "report_digest": report_digest,
            },
        )
    except IntegrityError as error:
        if "receipt_confirms_one_operation" in str(error) and not connection.in_atomic_block:
            return None
        raise
    return None if row is None else int(row[0])


def first_answer(locked: LockedOperation, *, attempt_id: str, report_digest: str) -> dict[str, Any] | None:
    """Return what this very report was answered the first time, or None if it is new."""
    operation = locked.operation
    kept = Report.objects.filter(operation=operation, attempt_id=attempt_id, digest=report_digest).first()
    if kept is not None:
        answer: dict[str, Any] = kept.answer
        return answer
    # The hot path keeps no row: its answer is always the same, and the attempt remembers the report.
    attempt = Attempt.objects.filter(
        operation=operation,
        attempt_id=attempt_id,
        report_digest=report_digest,
        outcome=AttemptOutcome.RECEIPT,
    ).first()
    return None if attempt is None else confirmed_answer(operation.pk, attempt_id, attempt.number)


def confirmed_answer(operation_id: str, attempt_id: str, number: int) -> dict[str, Any]:
    """The answer to a receipt that confirmed on the hot path, in the API's shape."""
    return {
        "operation": {"id": operation_id, "state": "confirmed"},
        "attempt": {"attempt_id": attempt_id, "number": number, "outcome": "receipt"},
        "next": "continue",
        "case": None,
        "recorded_as_evidence": False,
    }


def keep_answer(
    locked: LockedOperation, *, attempt_id: str, report_digest: str, answer: dict[str, Any]
) -> None:
    """Keep the first answer to a report, so that the same report gets it again at any time."""
    Report.objects.create(
        operation=locked.operation, attempt_id=attempt_id, digest=report_digest, answer=answer
    )
