"""Reports: what a sender saw of its attempt, and what that is.

The usual report, a receipt that matches, is one statement. Everything else goes through `receiving`: it is
kept as evidence first, then the policy's rules say whether that settles the operation; if not, a case is
open.
"""

from __future__ import annotations

import json
from typing import Any

from reconciliation.accounts import account_of, is_declared, not_comparable
from reconciliation.contracts import AnswerPattern
from reconciliation.providers import registry
from reconciliation.providers.answers import NOT_DEFINITE, Body, matches_any
from reconciliation.providers.base import ReceiptMatch
from reconciliation.providers.matching import match_receipt
from reconciliation.receiving import ReceiptMismatch, ReceiptReused, Report, SeenReply, Sender, receive
from runs.canonical import parse
from runs.ids import check_client_id
from runs.journal import settling
from runs.journal.intentions import Intended, read_intended
from runs.journal.replies import confirm_by_reply, confirmed_answer
from runs.refusals import Invalid, Refusal
from runs.states import Claim, MatchedBy

__all__ = [
    "ReceiptMismatch",
    "ReceiptReused",
    "SeenReply",
    "Sender",
    "report_not_sent",
    "report_receipt",
    "report_rejection",
    "report_unknown",
]


def report_receipt(
    *,
    sender: Sender,
    operation_id: str,
    attempt_id: str,
    reference: str,
    seen: SeenReply,
    match: ReceiptMatch | None = None,
) -> dict[str, Any]:
    """Report a receipt; `seen.body` is the provider's record of the effect. Returns the API's answer.

    `match` is for a sender of ours that has compared the record already, as it came.
    Raises `ReceiptMismatch` or `ReceiptReused` after keeping the report, `NotFound`, `Invalid`.
    """
    check_client_id(attempt_id, where="attempt_id")
    if not reference or len(reference) > 300:
        raise Invalid("reference must be the provider's id, 1 to 300 characters.", where="reference")
    report = Report(
        sender=sender,
        operation_id=operation_id,
        attempt_id=attempt_id,
        claim=Claim.RECEIPT,
        seen=seen,
        reference=reference,
    )
    operation = read_intended(operation_id=operation_id, team=sender.team)
    judged = match or _match(operation, report, shown=False)
    if judged.matches and sender.token:
        number = confirm_by_reply(
            team=sender.team,
            operation_id=operation_id,
            token=sender.token,
            attempt_id=attempt_id,
            receipt=_facts(judged, seen.body),
            report_digest=report.digest,
        )
        if number is not None:
            return {**confirmed_answer(operation_id, attempt_id, number), "replayed": False}
    return receive(report, match or _match(operation, report, shown=True))


def report_rejection(
    *, sender: Sender, operation_id: str, attempt_id: str, seen: SeenReply
) -> dict[str, Any]:
    """Report a definite refusal of this attempt; it settles only what it can speak for.

    An answer that doesn't say that nothing happened (a time-out, a conflict, a rate limit, 5xx: DESIGN §5),
    or that proves by the contract that it did, is kept as an unknown outcome, whatever its sender takes it
    for.
    """
    return _report(Claim.REJECTION, sender, operation_id, attempt_id, seen)


def report_not_sent(*, sender: Sender, operation_id: str, attempt_id: str, seen: SeenReply) -> dict[str, Any]:
    """Report a positive sign that this attempt's request never left.

    With the status of an answer it is none: an answered request has left, and its outcome is unknown.
    """
    return _report(Claim.NOT_SENT, sender, operation_id, attempt_id, seen)


def report_unknown(*, sender: Sender, operation_id: str, attempt_id: str, seen: SeenReply) -> dict[str, Any]:
    """Report an outcome that settles nothing: time-out, reset, 5xx, an unreadable answer."""
    return _report(Claim.UNKNOWN, sender, operation_id, attempt_id, seen)


def _report(
    claim: Claim, sender: Sender, operation_id: str, attempt_id: str, seen: SeenReply
) -> dict[str, Any]:
    check_client_id(attempt_id, where="attempt_id")
    operation = read_intended(operation_id=operation_id, team=sender.team)
    exists = _proves_existence(operation.provider_id, seen)
    mistaken_for = _mistaken_for(operation.provider_id, claim, seen, exists=exists)
    report = Report(
        sender=sender,
        operation_id=operation_id,
        attempt_id=attempt_id,
        claim=Claim.UNKNOWN if mistaken_for else claim,
        seen=seen,
        mistaken_for=mistaken_for,
        effect_exists=exists,
    )
    return receive(report, None)


def _mistaken_for(provider_id: str, claim: Claim, seen: SeenReply, *, exists: bool) -> str:
    """What the sender takes its answer for, if the answer doesn't say so; else ""."""
    if claim == Claim.REJECTION and (exists or not _could_be_definite(provider_id, seen)):
        return "a refusal"
    # Whoever was answered has asked: the request left.
    return "a request that never left" if claim == Claim.NOT_SENT and seen.status is not None else ""


def _could_be_definite(provider_id: str, seen: SeenReply) -> bool:
    if seen.status is None:
        # A sender that states no status has a protocol of its own, and its word for it.
        return True
    # "This key was used for something else" looks like a refusal, and says that something is there.
    if _is_of(registry.undecided_answers(provider_id), seen):
        return False
    # Some providers refuse with HTTP 200, and say so in the body; their file tells how.
    if _is_of(registry.refused_answers(provider_id), seen):
        return True
    return 400 <= seen.status < 500 and seen.status not in NOT_DEFINITE


def _proves_existence(provider_id: str, seen: SeenReply) -> bool:
    return _is_of(account_of(provider_id).contract.proves_existence, seen)


def _is_of(patterns: tuple[AnswerPattern, ...], seen: SeenReply) -> bool:
    if seen.status is None or not patterns:
        return False
    try:
        body = Body(value=parse(seen.body), readable=True)
    except Refusal:
        body = Body(value=None, readable=False)
    headers = {name.lower(): value for name, value in seen.headers}
    return matches_any(patterns, seen.status, body, unreadable=False, headers=headers)


def _match(operation: Intended, report: Report, *, shown: bool) -> ReceiptMatch:
    account = account_of(operation.provider_id)
    match = match_receipt(
        contract=account.contract,
        operation_id=operation.pk,
        payload=json.loads(bytes(operation.payload)),
        key=operation.key,
        amount=operation.amount,
        reference=report.reference,
        body=report.seen.body,
        # A direct reply is named by the attempt that it answers; whether there was one is checked in SQL.
        named_by_reply=True,
        tool=operation.tool,
        shown=shown,
    )
    return match if is_declared(account) else not_comparable(match)


def _facts(match: ReceiptMatch, body: bytes) -> settling.ReceiptFacts:
    receipt = match.receipt
    return settling.ReceiptFacts(
        reference=receipt.reference,
        body=body,
        matched_by=MatchedBy((receipt.matched_by or MatchedBy.REPLY_ONLY).value),
        amount_currency=receipt.amount.currency if receipt.amount else "",
        amount_minor=receipt.amount.minor if receipt.amount else None,
    )
