"""The adapter that is data: it sends, asks and reads as a declaration says, and concludes what it may.

Where the declaration is silent the default taxonomy holds. Of a send: 2xx with a receipt that names the
operation and equals its payload is a receipt; a 4xx is a definite refusal, except those that can be about
time, traffic or an earlier request; everything else is unknown. Of a question: only a whole, readable answer
of the declared form lets anything follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from reconciliation.contracts import Contract, ProviderAccount
from reconciliation.providers.answers import (
    NOT_DEFINITE,
    Body,
    has_header,
    matches_any,
    read_body,
    retry_after_ms,
)
from reconciliation.providers.asking import Asker
from reconciliation.providers.authorizing import TokenRefused, TokenSource
from reconciliation.providers.base import (
    AbsenceSeen,
    Exchange,
    Finding,
    NotSentSeen,
    OutgoingOperation,
    Phase,
    Question,
    Receipt,
    ReceiptSeen,
    ReceiptState,
    RejectedSeen,
    SendOutcome,
    UnknownSeen,
)
from reconciliation.providers.declaration import Declared
from reconciliation.providers.environment import AuthScheme
from reconciliation.providers.listing import Listing, Permit, list_made
from reconciliation.providers.making_absent import make_absent
from reconciliation.providers.matching import Reading, Subject, read_record
from reconciliation.providers.paths import MISSING, value_at
from reconciliation.providers.reach import environment_reach
from reconciliation.providers.redaction import redactor_for
from reconciliation.providers.request_building import build_send
from reconciliation.providers.templates import Values, ValueUnusable
from reconciliation.providers.transport import Answer, Transport
from runs.refusals import Refusal


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
        self._redactor = redactor_for(_secrets_in_use(declared), declared.http.redact_names)
        reach = environment_reach(declared.own_hosts)
        self._sending = sending or Transport(keep_alive=False, reach=reach)
        self._asking = asking or Transport(keep_alive=True, reach=reach)
        self._tokens = self._token_source()
        self._asker = Asker(declared, transport=self._asking, redactor=self._redactor, tokens=self._tokens)

    @property
    def account(self) -> ProviderAccount:
        return self._account

    @property
    def contract(self) -> Contract:
        return self._account.contract

    def _token_source(self) -> TokenSource | None:
        authorization = self._http.authorization
        if authorization is None or authorization.scheme is not AuthScheme.CLIENT_CREDENTIALS:
            return None
        return TokenSource(
            authorization,
            base_url=self._account.base_url or "",
            values=_identity_values(self._declared),
            transport=self._asking,
            redactor=self._redactor,
        )

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
            amount=operation.amount,
            secrets=self._http.secrets,
            settings=self._http.settings,
        )
        try:
            call = build_send(self._declared, template, operation, values)
            if self._tokens is not None:
                call = self._tokens.sign(call)
        except TokenRefused as error:
            # What asking for the token met is not the request's exchange: that one never started.
            return _not_started(error.sentence, "NoToken", seen=error.exchange)
        except (ValueUnusable, Refusal) as error:
            return _not_started(f"The request can't be made ({error}), so nothing was sent.", "Unusable")
        answer = self._sending.call(
            call, redactor=self._redactor.keeping(operation.idempotency_key, operation.operation_id)
        )
        if answer.status == 401 and self._tokens is not None:
            self._tokens.forget()
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
        replayed = rules.replay_header is not None and has_header(
            answer.headers, rules.replay_header, rules.replay_values
        )
        if matches_any(
            self.contract.proves_existence, answer.status, body, unreadable=False, headers=answer.headers
        ):
            return UnknownSeen(
                exchange=exchange,
                summary=f"The provider answered {answer.status}, which proves that the effect exists.",
                effect_exists=True,
            )
        # An answer whose body can't be read could be one of these, so it counts as one.
        undecided = (*self.contract.proves_existence, *rules.unknown)
        if matches_any(undecided, answer.status, body, unreadable=True, headers=answer.headers):
            return self._undecided(answer, replayed=replayed)
        if matches_any(rules.rejected, answer.status, body, unreadable=False, headers=answer.headers):
            return self._rejected(operation, answer, replayed=replayed)
        if 200 <= answer.status < 300 or matches_any(
            rules.receipt, answer.status, body, unreadable=False, headers=answer.headers
        ):
            return self._judge_receipt(operation, answer, body, replayed=replayed)
        if 400 <= answer.status < 500 and answer.status not in NOT_DEFINITE:
            return self._rejected(operation, answer, replayed=replayed)
        return self._undecided(answer, replayed=replayed)

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

    def _undecided(self, answer: Answer, *, replayed: bool) -> UnknownSeen:
        # An error that is played back is as old as the first attempt, and as silent about its effect.
        again = ", played back from an earlier request," if replayed else ","
        return UnknownSeen(
            exchange=answer.exchange,
            retry_after_ms=retry_after_ms(answer),
            summary=f"The provider answered {answer.status}{again} which doesn't say whether it happened.",
        )

    # -- asking -----------------------------------------------------------------------------------------

    def look_up(self, question: Question) -> Finding:
        """Ask in the declared ways; the finding says what may be concluded from the answers."""
        return self._asker.look_up(question)

    def list_made(self, *, since_at: datetime, until_at: datetime, permit: Permit) -> Listing:
        """List what was made at the provider in this time, without an operation to ask about."""
        return list_made(
            self._declared,
            transport=self._asking,
            redactor=self._redactor,
            tokens=self._tokens,
            since_at=since_at,
            until_at=until_at,
            permit=permit,
        )

    # -- undoing ----------------------------------------------------------------------------------------

    def make_absent(self, operation: OutgoingOperation) -> AbsenceSeen:
        """Send the request that makes sure that the effect isn't there, as two people decided."""
        return make_absent(
            self._declared,
            operation,
            transport=self._sending,
            redactor=self._redactor,
            tokens=self._tokens,
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


def _secrets_in_use(declared: Declared) -> Mapping[str, str]:
    """The account's secrets, and the form in which a basic authorization carries them."""
    http = declared.http
    if http.authorization is None or http.authorization.scheme is AuthScheme.BEARER:
        return http.secrets
    try:
        basic = http.authorization.basic(_identity_values(declared))
    except ValueUnusable:
        return http.secrets
    return {**http.secrets, "authorization": basic}


def _identity_values(declared: Declared) -> Values:
    http = declared.http
    return Values(key="", operation="", tool="", payload={}, secrets=http.secrets, settings=http.settings)


def _not_started(summary: str, error_class: str, *, seen: Exchange | None = None) -> NotSentSeen:
    said = "" if seen is None else f"{seen.status or seen.error_class} from {seen.url}"
    return NotSentSeen(
        exchange=Exchange(method="", url="", error_class=error_class, error=said, phase=Phase.NOT_STARTED),
        summary=summary,
    )
