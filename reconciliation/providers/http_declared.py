"""The adapter that is data: it sends, asks and reads as a declaration says, and concludes what it may.

Where the declaration is silent the default taxonomy holds. Of a send: 2xx with a receipt that names the
operation and equals its payload is a receipt; a 4xx is a definite refusal, except those that can be about
time, traffic or an earlier request; everything else is unknown. Of a question: only a whole, readable answer
of the declared form lets anything follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciliation.contracts import Contract, LookupKind, ProviderAccount
from reconciliation.providers.answers import Body, matches_any, read_body, retry_after_ms
from reconciliation.providers.base import (
    Candidate,
    Exchange,
    Finding,
    Inconclusive,
    NotFound,
    NotSentSeen,
    OutgoingOperation,
    Phase,
    Question,
    Receipt,
    ReceiptSeen,
    ReceiptState,
    RejectedSeen,
    SendOutcome,
    Unavailable,
    UnknownSeen,
)
from reconciliation.providers.conclusions import by_reference, count, inconclusive, judge_ours
from reconciliation.providers.declaration import Declared
from reconciliation.providers.matching import Reading, Subject, read_record
from reconciliation.providers.paths import MISSING, Missing, value_at
from reconciliation.providers.reach import environment_reach
from reconciliation.providers.redaction import redactor_for
from reconciliation.providers.request_building import build_question, build_send
from reconciliation.providers.templates import Values, ValueUnusable
from reconciliation.providers.transport import Answer, Transport
from runs.refusals import Refusal

# 4xx that don't say "this request had no effect": time-out, conflict (in flight, or it exists), too early or
# misdirected, too many requests, and nginx's "the client left" (RFC 9110, RFC 8470, RFC 6585).
NOT_DEFINITE = frozenset({408, 409, 421, 425, 429, 499})
# More records than this for one operation are not read one by one.
ITEMS_MAX = 1000


class HttpDeclared:
    """One declared account. Share between threads, not across a fork."""

    def __init__(
        self,
        declared: Declared,
        *,
        sending: Transport | None = None,
        asking: Transport | None = None,
    ) -> None:
        """`sending` takes a connection of its own for every request, `asking` keeps connections open."""
        self._declared = declared
        self._account = declared.account
        self._http = declared.http
        self._redactor = redactor_for(declared.http.secrets, declared.http.redact_names)
        reach = environment_reach(declared.own_hosts)
        self._sending = sending or Transport(keep_alive=False, reach=reach)
        self._asking = asking or Transport(keep_alive=True, reach=reach)

    @property
    def account(self) -> ProviderAccount:
        return self._account

    @property
    def contract(self) -> Contract:
        return self._account.contract

    def close(self) -> None:
        self._sending.close()
        self._asking.close()

    # -- sending ----------------------------------------------------------------------------------------

    def send(self, operation: OutgoingOperation) -> SendOutcome:
        """Send one attempt; the outcome says what may be concluded from what came back."""
        template = self._http.send_for(operation.tool)
        if not self._account.configured or self._account.base_url is None:
            return _not_started("This account isn't configured here, so nothing was sent.", "NotConfigured")
        if template is None:
            return _not_started("No request is declared for this tool, so nothing was sent.", "NoSuchTool")
        values = Values(
            key=operation.idempotency_key,
            operation=operation.operation_id,
            tool=operation.tool,
            payload=operation.payload,
            secrets=self._http.secrets,
        )
        try:
            call = build_send(self._declared, template, operation, values)
        except (ValueUnusable, Refusal) as error:
            return _not_started(f"The request can't be made ({error}), so nothing was sent.", "Unusable")
        answer = self._sending.call(
            call, redactor=self._redactor.keeping(operation.idempotency_key, operation.operation_id)
        )
        return self._judge_send(operation, answer)

    def _judge_send(self, operation: OutgoingOperation, answer: Answer) -> SendOutcome:
        exchange = answer.exchange
        if answer.status is None:
            if answer.not_sent:
                return NotSentSeen(
                    exchange=exchange,
                    summary=f"The request was never started ({exchange.error_class}), so nothing was sent.",
                )
            return UnknownSeen(
                exchange=exchange,
                summary=f"The request left and no answer came back ({exchange.error_class}).",
            )
        rules = self._http.answers
        body = read_body(answer)
        replayed = rules.replay_header is not None and rules.replay_header in answer.headers
        if matches_any(self.contract.proves_existence, answer.status, body, unreadable=False):
            return UnknownSeen(
                exchange=exchange,
                summary=f"The provider answered {answer.status}, which proves that the effect exists.",
                effect_exists=True,
            )
        # An answer whose body can't be read could be one of these, so it counts as one.
        undecided = (*self.contract.proves_existence, *rules.unknown)
        if matches_any(undecided, answer.status, body, unreadable=True):
            return self._undecided(answer)
        if matches_any(rules.rejected, answer.status, body, unreadable=False):
            return self._rejected(operation, answer, replayed=replayed)
        if 200 <= answer.status < 300 or matches_any(rules.receipt, answer.status, body, unreadable=False):
            return self._judge_receipt(operation, answer, body, replayed=replayed)
        if 400 <= answer.status < 500 and answer.status not in NOT_DEFINITE:
            return self._rejected(operation, answer, replayed=replayed)
        return self._undecided(answer)

    def _judge_receipt(
        self, operation: OutgoingOperation, answer: Answer, body: Body, *, replayed: bool
    ) -> SendOutcome:
        exchange = answer.exchange
        record = value_at(self._http.answers.receipt_at, body.value) if body.readable else MISSING
        reading = None
        if isinstance(record, dict):
            reading = self._reading(record, _subject_of(operation), named_by_reply=True)
        if reading is None:
            why = "came without a readable receipt" if body.readable else "could not be read to its end"
            return UnknownSeen(
                exchange=exchange, summary=f"The provider answered {answer.status}, but the answer {why}."
            )
        receipt = reading.receipt
        if reading.foreign or not receipt.named or not receipt.same:
            return UnknownSeen(exchange=exchange, summary=_mismatch_sentence(reading), receipt=receipt)
        match receipt.state:
            case ReceiptState.SUCCEEDED:
                return ReceiptSeen(
                    exchange=exchange,
                    receipt=receipt,
                    replayed=replayed,
                    summary=f"The provider confirmed it with receipt {receipt.reference}.",
                )
            case ReceiptState.PENDING:
                return UnknownSeen(
                    exchange=exchange,
                    receipt=receipt,
                    summary=f"The provider took it as {receipt.reference}; it says"
                    f" “{receipt.status}”, which is not success yet.",
                )
            case ReceiptState.REFUSED:
                return self._rejected(operation, answer, replayed=replayed, receipt=receipt)

    def _rejected(
        self, operation: OutgoingOperation, answer: Answer, *, replayed: bool, receipt: Receipt | None = None
    ) -> RejectedSeen:
        """A refusal. It speaks for earlier attempts only where the contract says that it is replayed, and,
        if replays are marked, where this one is.
        """
        marked = self._http.answers.replay_header is None or replayed
        speaks = operation.attempt_number == 1 or (self.contract.rejection_replays and marked)
        ended = f" Its record {receipt.reference} says “{receipt.status}”." if receipt else ""
        more = "" if speaks else " That says nothing about earlier attempts."
        return RejectedSeen(
            exchange=answer.exchange,
            receipt=receipt,
            speaks_for_first=speaks,
            summary=f"The provider refused this request with {answer.status}.{ended}{more}",
        )

    def _undecided(self, answer: Answer) -> UnknownSeen:
        return UnknownSeen(
            exchange=answer.exchange,
            retry_after_ms=retry_after_ms(answer),
            summary=f"The provider answered {answer.status}, which doesn't say whether it happened.",
        )

    # -- asking -----------------------------------------------------------------------------------------

    def look_up(self, question: Question) -> Finding:
        """Ask one question; the finding says what may be concluded from the answer."""
        template = self._http.lookup_for(question.tool)
        if self.contract.lookup is LookupKind.NONE or template is None:
            return Inconclusive(
                reason="no_lookup", summary="This provider offers no way to look the effect up."
            )
        if not self._account.configured or self._account.base_url is None:
            return Unavailable(
                reason="not_configured", summary="This account isn't configured here, so it can't be asked."
            )
        values = Values(
            key=question.idempotency_key,
            operation=question.operation_id,
            tool=question.tool,
            payload=question.payload,
            reference=question.reference,
            first_sent_at=question.first_sent_at,
            secrets=self._http.secrets,
        )
        try:
            call = build_question(self._declared, template, values)
        except (ValueUnusable, Refusal) as error:
            return Inconclusive(reason="cannot_ask", summary=f"The question can't be put ({error}).")
        answer = self._asking.call(
            call, redactor=self._redactor.keeping(question.idempotency_key, question.operation_id)
        )
        return self._judge_lookup(question, answer)

    def _judge_lookup(self, question: Question, answer: Answer) -> Finding:
        exchange = answer.exchange
        status = answer.status
        if status is None:
            return Unavailable(
                exchange=exchange,
                summary=f"The provider could not be asked ({exchange.error_class}): nothing follows.",
            )
        if status in self._http.lookup.not_found_statuses and answer.readable:
            return self._not_found(question, exchange)
        if status in (408, 425, 429) or status >= 500:
            return Unavailable(
                reason="overloaded" if status in (429, 503) else "failing",
                exchange=exchange,
                retry_after_ms=retry_after_ms(answer),
                summary=f"The provider answered {status} to the question. Nothing follows from that.",
            )
        if status in (401, 403, 407):
            return Unavailable(
                reason="refused_us",
                exchange=exchange,
                summary=f"The provider refused the question with {status}: our credentials may be wrong.",
            )
        body = read_body(answer)
        if not 200 <= status < 300:
            return inconclusive(exchange, "unexpected_status", f"it answered {status}")
        if not body.readable:
            return inconclusive(exchange, "unreadable", "its answer could not be read safely to the end")
        return self._judge_items(question, exchange, body.value)

    def _judge_items(self, question: Question, exchange: Exchange, document: Any) -> Finding:
        """Conclude from a whole answer. `items` must lead to one list or one object, all of records."""
        rules = self._http.lookup
        items = value_at(rules.items, document)
        if isinstance(items, dict):
            items = [items]
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            return inconclusive(exchange, "unexpected_form", "its answer doesn't have the declared form")
        if len(items) > ITEMS_MAX:
            return inconclusive(exchange, "too_many", f"it answered with more than {ITEMS_MAX} records")
        more = MISSING if rules.more is None else value_at(rules.more, document)
        incomplete = not isinstance(more, Missing) and bool(more)
        subject = _subject_of(question)
        readings = [self._reading(item, subject, named_by_reply=False) for item in items]
        usable = [reading for reading in readings if reading is not None]
        ours = by_reference(reading.receipt for reading in usable if reading.receipt.named)
        if ours:
            return judge_ours(ours, exchange, incomplete=incomplete or len(usable) < len(readings))
        if len(usable) < len(readings):
            return inconclusive(exchange, "no_reference", "it shows a record without an id")
        if incomplete:
            return inconclusive(exchange, "incomplete", "it says that its answer is not the whole list")
        alike = by_reference(
            reading.receipt
            for reading in usable
            if reading.carries_nothing and reading.receipt.same and reading.receipt.comparisons
        )
        if alike:
            return Candidate(
                exchange=exchange,
                receipts=alike,
                summary=f"{count(alike)} looks like this operation and carries nothing of ours:"
                " only a person can tell.",
            )
        if usable and self.contract.lookup in (LookupKind.BY_KEY, LookupKind.BY_REFERENCE):
            # An exact filter that shows others' records isn't filtering, so it may be hiding ours.
            return inconclusive(exchange, "not_filtered", "it answered with records of other operations")
        return self._not_found(question, exchange)

    def _not_found(self, question: Question, exchange: Exchange) -> NotFound:
        proof = question.last_quiet_at is not None and self.contract.absence_is_proved(
            first_sent_at=question.first_sent_at,
            last_quiet_at=question.last_quiet_at,
            asked_at=question.asked_at,
        )
        meaning = (
            "By its contract that proves that nothing happened."
            if proof
            else "That doesn't prove that nothing happened."
        )
        return NotFound(
            exchange=exchange,
            proof=proof,
            summary=f"The provider shows no record of this operation. {meaning}",
        )

    # -- both -------------------------------------------------------------------------------------------

    def _reading(
        self, record: Mapping[str, Any], subject: Subject, *, named_by_reply: bool
    ) -> Reading | None:
        return read_record(
            record,
            contract=self.contract,
            subject=subject,
            named_by_reply=named_by_reply,
            redactor=self._redactor,
        )


def _subject_of(asked: OutgoingOperation | Question) -> Subject:
    return Subject(
        operation_id=asked.operation_id,
        key=asked.idempotency_key,
        tool=asked.tool,
        payload=asked.payload,
        amount=asked.amount,
    )


def _mismatch_sentence(reading: Reading) -> str:
    receipt = reading.receipt
    if reading.foreign:
        return (
            f"The provider answered with record {receipt.reference}, which carries another key or reference."
        )
    if not receipt.named:
        return f"The provider answered with record {receipt.reference}, which doesn't carry our key."
    fields = ", ".join(one.path for one in receipt.differences)
    return f"The provider's record {receipt.reference} differs from what was asked: {fields}."


def _not_started(summary: str, error_class: str) -> NotSentSeen:
    return NotSentSeen(
        exchange=Exchange(method="", url="", error_class=error_class, phase=Phase.NOT_STARTED),
        summary=summary,
    )
