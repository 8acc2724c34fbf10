"""What a person asks for in a decision, its form, and what the case itself says to it.

Asked by the review, which writes nothing, and by the record alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final

from reconciliation.accounts import is_declared, not_comparable
from reconciliation.choosing import chosen_receipt, record_of, why_not_chosen
from reconciliation.facts import SeenReceipt
from reconciliation.gathering import Judged, key_reaches_console
from reconciliation.permissions import ActionStatus
from reconciliation.providers.base import ReceiptMatch
from reconciliation.providers.matching import match_receipt
from reconciliation.providers.redaction import Redactor
from reconciliation.states import Action, Permission, ReasonCode, Then
from runs.canonical import canonicalise, digest, parse
from runs.models import Operation
from runs.money import Money
from runs.refusals import Invalid, Refusal
from runs.states import Executor

# A reason that an auditor can use has a few words in it; longer than this is an attachment.
REASON_LENGTH_MIN: Final = 10
REASON_LENGTH_MAX: Final = 4000
KEY_LENGTH_MAX: Final = 100
# They give the obligation up, so whoever decides says what becomes of the run.
THEN_IS_SAID: Final = frozenset({Action.ABANDON, Action.MAKE_ABSENT})


class ActionLocked(Refusal):
    """The policy doesn't allow this action now, or not to one person; details say why and until when."""

    word: ClassVar[str] = "action_locked"


@dataclass(frozen=True, kw_only=True)
class GivenReceipt:
    """The receipt that a person confirms with: one that is on record, or the provider's record in full."""

    evidence_id: str = ""
    reference: str = ""
    body: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a person asks for, and what they saw when they asked."""

    action: Action
    seen_version: int
    evidence_digest: str
    reason_code: str
    reason: str
    idempotency_key: str
    executor: str = ""
    then: str = ""
    receipt: GivenReceipt | None = None

    def content_digest(self, case_id: str) -> str:
        receipt = self.receipt or GivenReceipt()
        return canonicalise(
            {
                "case": case_id,
                "action": str(self.action),
                "seen_version": self.seen_version,
                "evidence_digest": self.evidence_digest,
                "reason_code": self.reason_code,
                "reason": self.reason,
                "executor": self.executor,
                "then": self.then,
                "receipt": [receipt.evidence_id, receipt.reference, digest(receipt.body)],
            }
        ).digest


def check_words(asked: Asked) -> None:
    """Refuse a decision whose words don't have their form (`Invalid`, with the field in `where`)."""
    if not 1 <= len(asked.idempotency_key) <= KEY_LENGTH_MAX:
        raise Invalid(f"Idempotency-Key must be 1 to {KEY_LENGTH_MAX} characters.", where="Idempotency-Key")
    if asked.reason_code not in set(ReasonCode):
        raise Invalid("Choose a reason code.", where="reason_code", allowed=[str(one) for one in ReasonCode])
    if not REASON_LENGTH_MIN <= len(asked.reason.strip()) <= REASON_LENGTH_MAX:
        raise Invalid(
            f"Give a reason of {REASON_LENGTH_MIN} to {REASON_LENGTH_MAX} characters.", where="reason"
        )
    if asked.action == Action.RETRY and asked.executor not in set(Executor):
        raise Invalid("Say who sends it: agent or console.", where="executor")
    if asked.action in THEN_IS_SAID and asked.then not in set(Then):
        raise Invalid("Say whether the run ends or continues without the effect.", where="then")


def locked_refusal(action: Action, status: ActionStatus | None) -> ActionLocked:
    """The refusal of an action that nobody may take now; None: the case doesn't offer it."""
    if status is None:
        return ActionLocked(f"This case offers no {action}.", action=str(action), reasons=[])
    unlocks: datetime | None = status.unlocks_at
    return ActionLocked(
        status.sentence,
        action=str(action),
        permission=str(status.permission),
        reasons=[status.sentence],
        question=status.question or None,
        unlocks_at=unlocks.isoformat() if unlocks else None,
    )


def needs_second_person(action: Action, why: str) -> ActionLocked:
    """The refusal of an action that takes two, where a second person can't be asked: among many cases."""
    return ActionLocked(
        f"{why} A second person is asked on the case’s own page.",
        action=str(action),
        permission=str(Permission.SECOND_PERSON),
        reasons=[why],
        question=None,
        unlocks_at=None,
    )


def why_two(operation: Operation, judged: Judged, status: ActionStatus, asked: Asked) -> str:
    """Why what is asked for takes a second person, in a sentence; "" if one is enough.

    Raises `Invalid` for a receipt that no evidence names, or that confirmed another operation already: no
    number of people may confirm with that one.
    """
    second = status.permission is Permission.SECOND_PERSON
    if asked.action is not Action.CONFIRM:
        return status.sentence if second else ""
    given = asked.receipt or GivenReceipt()
    if given.body:
        if second and not status.receipt_unlocks:
            return status.sentence
        problems = match_given(operation, judged, given).problems
        if problems:
            return f"The receipt given doesn't match: {' '.join(problems)}"
        # The record may be of what was undone since.
        return status.sentence if judged.facts.absences else ""
    if not second:
        return ""
    chosen = bool(given.evidence_id or given.reference) or status.receipt_unlocks
    receipt = receipt_named(operation, judged, status, given) if chosen else None
    if receipt is None:
        return status.sentence
    why = why_not_chosen(receipt, record_of(operation, receipt))
    if receipt.confirmed_other:
        raise Invalid(why, where="receipt")
    return f"{why} {status.sentence}".strip()


def receipt_named(
    operation: Operation, judged: Judged, status: ActionStatus, given: GivenReceipt
) -> SeenReceipt | None:
    """The receipt on record that an override names; None where it names none. Raises `Invalid`.

    Where nothing matching is on record, a reference that stands alone is what the person read elsewhere.
    """
    if not given.evidence_id and status.receipt_unlocks:
        exact = [one for one in judged.facts.receipts if given.reference and one.reference == given.reference]
        return exact[0] if exact else None
    if not given.evidence_id and not given.reference:
        raise Invalid("Choose the receipt that it is confirmed with.", where="receipt")
    return chosen_receipt(
        operation=operation,
        facts=judged.facts,
        evidence_id=given.evidence_id,
        reference=given.reference,
    )


def receipt_on_record(operation: Operation, judged: Judged, given: GivenReceipt) -> SeenReceipt:
    """The receipt on record that one person may confirm with; if one was named, it and no other.

    Raises `Invalid` if no evidence names it or it can't confirm.
    """
    receipt = chosen_receipt(
        operation=operation,
        facts=judged.facts,
        evidence_id=given.evidence_id,
        reference=given.reference,
    )
    why = why_not_chosen(receipt, record_of(operation, receipt)) if receipt is not None else ""
    if receipt is None or why:
        raise Invalid(why or "The receipt must be one that is on record and matches.", where="receipt")
    return receipt


def match_given(
    operation: Operation, judged: Judged, given: GivenReceipt, *, redactor: Redactor | None = None
) -> ReceiptMatch:
    """Hold the record that a person gives against the operation; nothing names it but what it carries.

    `redactor`: where it is shown, what must not be; by default what looks secret anywhere.
    """
    payload = parse(bytes(operation.payload))
    match = match_receipt(
        contract=judged.contract,
        operation_id=operation.pk,
        payload=payload if isinstance(payload, dict) else {},
        key=operation.key,
        amount=operation.amount,
        reference=given.reference or None,
        body=given.body,
        named_by_reply=False,
        tool=operation.tool,
        redactor=redactor,
    )
    return match if is_declared(judged.account) else not_comparable(match)


def amount_stated(operation: Operation, judged: Judged, given: GivenReceipt) -> Money | None:
    """The amount of the receipt that is confirmed with, which is what is then booked.

    None where it states none, or is on record and equal to what was intended: the operation's own is booked.
    """
    if given.body:
        return match_given(operation, judged, given).receipt.amount
    named = [
        one
        for one in judged.facts.receipts
        if given.evidence_id in ("", one.evidence_id) and given.reference == one.reference
    ]
    record = record_of(operation, named[0]) if named else None
    amount = record.get("amount") if record is not None else None
    return Money(str(amount[0]), int(amount[1])) if amount else None


def require_console_may_send(operation: Operation, judged: Judged) -> None:
    """Refuse a repeat by the console that it can't send, or whose key may not be the one first used there."""
    if not judged.account.console_can_send:
        raise ActionLocked(
            f"The console holds no credentials for {judged.account.title}; the agent can send it.",
            action=str(Action.RETRY),
            reasons=["no console credentials"],
            question=None,
            unlocks_at=None,
        )
    if not key_reaches_console(operation, judged.contract):
        scope = judged.contract.key_scope
        sentence = (
            f"{judged.account.title} keeps keys apart by {scope.value.replace('_', ' ')}, and the agent sent"
            " first: the console's repeat could be a second effect. The agent can send it."
        )
        raise ActionLocked(
            sentence, action=str(Action.RETRY), reasons=[sentence], question=2, unlocks_at=None
        )
